/* fault_cache.c: faults of the append: which row is written, what of it, and how the length moves. */
#include "engine/faults.h"
#include "engine/plan.h"

static void overwrite_last(kvs_step_plan *plan, const kvs_situation *s) {
  int P = s->cache_length;
  if (s->mode != KVS_DECODE || P == 0) return; /* there is no row to overwrite yet */
  plan->write_row = P - 1;
  plan->length_after = plan->rows = plan->visible = P;
}

static void k_without_v(kvs_step_plan *plan, const kvs_situation *s) { plan->write_v = s->mode != KVS_DECODE; }

static void row_never_written(kvs_step_plan *plan, const kvs_situation *s) {
  plan->write_k = plan->write_v = s->mode != KVS_DECODE;
}

static void cross_layer_length(kvs_step_plan *plan, const kvs_situation *s) {
  if (s->mode != KVS_DECODE || s->layer == 0) return;
  int read = s->cache_length + 1; /* layer 0 has appended already */
  plan->write_row = read;
  plan->length_after = plan->rows = plan->visible = read + 1;
}

static void cross_layer_shared(kvs_step_plan *plan, const kvs_situation *s) {
  if (s->mode == KVS_DECODE) plan->cache_layer = 0;
}

static void context_overflow(kvs_step_plan *plan, const kvs_situation *s) {
  int n_ctx = s->config->n_ctx;
  if (s->mode != KVS_DECODE || s->cache_length < n_ctx) return;
  plan->drop_oldest = true;
  plan->position = plan->write_row = n_ctx - 1;
  plan->length_after = plan->rows = plan->visible = n_ctx;
}

static void context_unguarded(kvs_step_plan *plan, const kvs_situation *s) {
  context_overflow(plan, s);
  plan->drop_oldest = false;
}

/* Shared by those that show in a score which does not follow from the row appended: head 0's first rows are enough to see. */
#define SCORE_IS_NOT_QK                                                                                                \
  "SELECT a.run, a.step, a.layer, a.head, a.row, a.score, s.qk AS q_times_k FROM attention AS a JOIN "                 \
  "(SELECT q.run, q.step, q.layer, q.head, c.row, c.step AS written, sum(q.q * c.k) AS qk FROM query_vector AS q "     \
  "JOIN cache AS c ON c.run = q.run AND c.layer = q.layer AND c.head = q.head AND c.dim = q.dim AND c.step <= q.step " \
  "WHERE q.head = 0 GROUP BY q.run, q.step, q.layer, c.row, c.step) AS s "                                             \
  "ON s.run = a.run AND s.step = a.step AND s.layer = a.layer AND s.head = a.head AND s.row = a.row "                  \
  "JOIN run AS r ON r.run = a.run "

const kvs_fault kvs_faults_cache[] = {
    {.name = "overwrite-last",
     .kind = "overwrite-last",
     .summary = "the new row goes over the last one: row P-1 is written, not row P, and the length stays",
     .right_line = "cache.k[cache.length] = k;  cache.v[cache.length] = v;  cache.length++;",
     .wrong_line = "cache.k[cache.length - 1] = k;  cache.v[cache.length - 1] = v;",
     .effect = "each decoded token wipes out the one before it: the model sees the prompt and the newest token only",
     .seen = "mlx-swift-lm#90, transformers#1916",
     .detect = "D1: the length does not grow; D6: a row is written twice",
     .sql =
         "SELECT run, layer, row, count(*) AS times_written FROM kv_row GROUP BY run, layer, row HAVING count(*) > 1",
     .bend = overwrite_last},
    {.name = "k-without-v",
     .kind = "k-without-v",
     .summary = "K is appended, V is not",
     .right_line = "cache.k[P] = k;  cache.v[P] = v;",
     .wrong_line = "cache.k[P] = k;  cache.v = v;   // assigned to the whole, or to a copy: the row stays empty",
     .effect = "decoded tokens are found by their keys and then have nothing to say: their share of attention is lost",
     .seen = "rtp-llm#1240, LMCache#4463 (V corrupt)",
     .detect = "D12: V of the row is all zero, K is not",
     .sql = "SELECT run, layer, row, step FROM kv_row WHERE v = zeroblob(length(v))",
     .bend = k_without_v},
    {.name = "row-never-written",
     .kind = "row-never-written",
     .summary = "the length grows, but nothing is stored",
     .right_line = "append(&cache, k, v);   // stores the row, then length++",
     .wrong_line = "append(cache, k, v);   // by value: the row goes into a copy, only the length is handed back",
     .effect = "decoded tokens leave rows of zeros: each gets a score of 0 and takes attention away from real rows",
     .seen = "TrenTorch#192, tt-metal#54413",
     .detect = "D12: K and V of the row are all zero, or no step wrote it",
     .sql = "SELECT run, layer, row, step FROM kv_row WHERE k = zeroblob(length(k))",
     .bend = row_never_written},
    {.name = "cross-layer-length",
     .kind = "cross-layer-length",
     .summary = "layer 0's append moves the length that the later layers read",
     .right_line = "P = cache.length;  for each layer: write row P;  then cache.length++;",
     .wrong_line = "for each layer: write row cache.length;  in layer 0: cache.length++;",
     .effect =
         "layers 1 and up write one row further on: one row of theirs stays empty for ever and takes some attention",
     .seen = "fla#766, mlx-lm#1699",
     .detect = "D1 and D3 per layer: the later layers hold and attend one row more than layer 0; D12: one row is empty",
     .sql =
         "SELECT run, step, min(length(scores) / 4) AS rows_in_one_layer, max(length(scores) / 4) AS rows_in_another "
         "FROM head_step GROUP BY run, step HAVING min(length(scores)) < max(length(scores))",
     .bend = cross_layer_length},
    {.name = "cross-layer-shared",
     .kind = "cross-layer-length",
     .summary = "all layers write and read one buffer",
     .right_line = "cache.k[layer][P] = k;  cache.v[layer][P] = v;",
     .wrong_line = "cache.k[P] = k;  cache.v[P] = v;   // or one cache object handed to every layer",
     .effect = "each layer finds rows that the last layer left there; text falls apart at once",
     .seen = "TrenTorch#141, mlx-lm#1699",
     .detect = "D6: scores do not follow from the rows this layer appended; D7: the chain breaks above layer 0",
     .sql = SCORE_IS_NOT_QK "WHERE s.written = s.row AND abs(a.score * a.score * r.head_dim - s.qk * s.qk) > "
                            "0.01 * (s.qk * s.qk + 0.01) ORDER BY 1, 2, 3, 4, 5",
     .bend = cross_layer_shared},
    {.name = "context-overflow",
     .kind = "context-overflow",
     .summary = "past n_ctx the oldest row is dropped, but the others keep their positions",
     .right_line = "if (cache.length == n_ctx) stop();   // or begin again from the tokens that are to stay",
     .wrong_line = "if (cache.length == n_ctx) drop_row(cache, 0);  t = cache.length;",
     .effect =
         "learned positions cannot move: the rows that stay claim places one too far, more with every token, and every "
         "new token claims the last place",
     .seen = "transformers#1916, gpt-2-simple#72, LLMs-from-scratch#925",
     .detect =
         "D14: the length stays at n_ctx while tokens go on; D6: scores follow from rows appended one place higher",
     .sql = "SELECT s.run, s.step, s.cache_length_before, s.position, r.n_ctx FROM step AS s JOIN run AS r "
            "ON r.run = s.run WHERE s.cache_length_before >= r.n_ctx",
     .fills_context = true,
     .bend = context_overflow},
    {.name = "context-unguarded",
     .kind = "context-overflow",
     .summary = "past n_ctx nobody stops: the last row is written again and again",
     .right_line = "if (cache.length == n_ctx) stop();",
     .wrong_line = "row = min(cache.length, n_ctx - 1);   // clamped, so that nothing crashes",
     .effect = "every token past the end wipes out the one before it, and all of them claim the last place",
     .seen = "gpt-2-simple#72, LLMs-from-scratch#925",
     .detect = "D14: the length stays at n_ctx while tokens go on; D6: the last row is written again",
     .sql = "SELECT s.run, s.step, s.cache_length_before, s.position, r.n_ctx FROM step AS s JOIN run AS r "
            "ON r.run = s.run WHERE s.cache_length_before >= r.n_ctx",
     .fills_context = true,
     .bend = context_unguarded},
    {0},
};
