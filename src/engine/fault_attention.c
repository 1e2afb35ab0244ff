/* fault_attention.c: faults of the attention: which rows take part, the scale, the softmax, and how heads are cut. */
#include "engine/faults.h"
#include "engine/plan.h"

#include <math.h>

static void attend_before_append(kvs_step_plan *plan, const kvs_situation *s) {
  if (s->mode == KVS_DECODE && s->cache_length > 0) plan->rows = plan->visible = s->cache_length;
}

static void mask_corner(kvs_step_plan *plan, const kvs_situation *s) {
  if (s->mode == KVS_DECODE) plan->visible = 1;
}

static void prefill_unmasked(kvs_step_plan *plan, const kvs_situation *s) {
  if (s->mode == KVS_PREFILL) plan->rows = plan->visible = s->batch_end;
}

static void wrong_scale(kvs_step_plan *plan, const kvs_situation *s) {
  (void)s;
  plan->scale = 1;
}

static void wrong_scale_n_embd(kvs_step_plan *plan, const kvs_situation *s) {
  plan->scale = 1.0f / sqrtf((float)s->config->n_embd);
}

static void softmax_extent(kvs_step_plan *plan, const kvs_situation *s) {
  if (s->mode == KVS_DECODE) plan->rows = plan->visible = s->config->n_ctx;
}

static void softmax_wrong_axis(kvs_step_plan *plan, const kvs_situation *s) {
  plan->across_heads = s->mode == KVS_DECODE;
}

static void heads_interleaved(kvs_step_plan *plan, const kvs_situation *s) {
  plan->interleaved = s->mode == KVS_DECODE;
}

/* score / (q·K[0]) of head 0 of layer 0 in every step. */
#define SCALE_OF_ROW_0                                                                                                 \
  "SELECT a.run, a.step, a.score, sum(q.q * c.k) AS q_times_k, a.score / sum(q.q * c.k) AS scale, r.head_dim, "        \
  "r.n_embd FROM attention AS a JOIN run AS r ON r.run = a.run "                                                       \
  "JOIN query_vector AS q ON q.run = a.run AND q.step = a.step AND q.layer = a.layer AND q.head = a.head "             \
  "JOIN cache AS c ON c.run = a.run AND c.layer = a.layer AND c.head = a.head AND c.row = a.row AND c.dim = q.dim "    \
  "WHERE a.layer = 0 AND a.head = 0 AND a.row = 0 GROUP BY a.run, a.step "

const kvs_fault kvs_faults_attention[] = {
    {.name = "attend-before-append",
     .kind = "attend-before-append",
     .summary = "attention runs over P rows: the token itself is missing",
     .right_line = "append(cache, k, v);  out = attend(q, cache);   // P + 1 rows",
     .wrong_line = "out = attend(q, cache);  append(cache, k, v);   // P rows",
     .effect = "no decoded token sees itself; text gets clumsy, and the first rows weigh even more than they do",
     .seen = "cs249r_book#1953, mobius#365",
     .detect = "D3: P scores instead of P + 1 (or D4, if a mask does it)",
     .sql =
         "SELECT h.run, h.step, length(h.scores) / 4 AS rows_attended, s.cache_length_after FROM head_step AS h JOIN "
         "step AS s ON s.run = h.run AND s.step = h.step WHERE h.head = 0 AND length(h.scores) / 4 < "
         "s.cache_length_after",
     .bend = attend_before_append},
    {.name = "mask-corner",
     .kind = "mask-corner",
     .summary = "the causal mask is aligned to the top left: a single query sees row 0 only",
     .right_line = "mask row i of n queries: columns 0 .. P + i",
     .wrong_line = "mask row i of n queries: columns 0 .. i   // is_causal = true with one query and P + 1 keys",
     .effect = "every decoded token attends to the first row and to nothing else; text falls apart at once",
     .seen = "pytorch#103082, flash-attention#380, executorch#22443",
     .detect = "D4: rows 1 and up have finite scores and weight 0",
     .sql = "SELECT run, step, layer, head, first_weight FROM head_summary WHERE first_weight = 1 AND step > 0 AND "
            "max_row = 0",
     .bend = mask_corner},
    {.name = "prefill-unmasked",
     .kind = "prefill-unmasked",
     .summary = "no mask in a batch, because decode needs none",
     .right_line = "in a batch token i attends to rows 0 .. P + i",
     .wrong_line = "in a batch every token attends to all rows",
     .effect =
         "the prompt's tokens see their own future; the text goes on nearly as well, since decode itself is right",
     .seen = "TinyLLM#17",
     .detect = "D3: the prompt's steps have more scores than rows up to their own; D7 where scores are not logged",
     .sql =
         "SELECT h.run, h.step, length(h.scores) / 4 AS rows_attended, s.cache_length_after FROM head_step AS h JOIN "
         "step AS s ON s.run = h.run AND s.step = h.step WHERE h.head = 0 AND s.mode = 'prefill' AND "
         "length(h.scores) / 4 > s.cache_length_after",
     .from_start = true,
     .bend = prefill_unmasked},
    {.name = "wrong-scale",
     .kind = "wrong-scale",
     .summary = "the scores are not divided by sqrt(head_dim)",
     .right_line = "scores = q . K / sqrt(head_dim);",
     .wrong_line = "scores = q . K;",
     .effect = "scores are sqrt(head_dim) times too large, so softmax picks one row and forgets the others",
     .seen = "mlc-llm#3426, SKaiNET#860",
     .detect = "D5: score / (q.K) is 1",
     .sql = SCALE_OF_ROW_0 "HAVING abs(scale * scale * r.head_dim - 1) > 0.01",
     .bend = wrong_scale},
    {.name = "wrong-scale-n-embd",
     .kind = "wrong-scale",
     .summary = "the scores are divided by sqrt(n_embd) instead of sqrt(head_dim)",
     .right_line = "scores = q . K / sqrt(head_dim);",
     .wrong_line = "scores = q . K / sqrt(n_embd);",
     .effect = "scores are too small, so attention is spread too evenly",
     .seen = "mlc-llm#3426, SKaiNET#860",
     .detect = "D5: score / (q.K) is 1 / sqrt(n_embd)",
     .sql = SCALE_OF_ROW_0 "HAVING abs(scale * scale * r.head_dim - 1) > 0.01",
     .bend = wrong_scale_n_embd},
    {.name = "softmax-extent",
     .kind = "softmax-extent",
     .summary = "softmax runs over the whole capacity, unused rows included",
     .right_line = "weights = softmax(scores[0 .. P]);",
     .wrong_line = "weights = softmax(scores[0 .. n_ctx - 1]);   // unused rows are zero: score 0, exp(0) = 1",
     .effect = "rows that nobody wrote take most of the attention, and give nothing back",
     .seen = "openvino.genai#1043",
     .detect = "D3: more scores than rows in the cache (or D4: the weights of the rows sum to less than 1)",
     .sql =
         "SELECT h.run, h.step, length(h.scores) / 4 AS rows_attended, s.cache_length_after FROM head_step AS h JOIN "
         "step AS s ON s.run = h.run AND s.step = h.step WHERE h.head = 0 AND length(h.scores) / 4 > "
         "s.cache_length_after",
     .bend = softmax_extent},
    {.name = "softmax-wrong-axis",
     .kind = "softmax-extent",
     .summary = "softmax runs over the heads, not over the rows",
     .right_line = "weights = softmax(scores, axis = rows);",
     .wrong_line = "weights = softmax(scores, axis = heads);",
     .effect =
         "each row's weights sum to 1 over the heads: with more rows than heads everything gets too much attention",
     .seen = "llms-from-scratch-rs#30",
     .detect = "D4: a head's weights do not sum to 1, the heads' weights of a row do",
     .sql = "SELECT run, step, layer, head, weight_sum FROM head_summary WHERE abs(weight_sum - 1) > 0.001",
     .bend = softmax_wrong_axis},
    {.name = "heads-interleaved",
     .kind = "heads-interleaved",
     .summary = "head h takes the dimensions h, h + n_head, h + 2 n_head ..., instead of head_dim in a row",
     .right_line = "q.reshape(n_head, head_dim)",
     .wrong_line = "q.reshape(head_dim, n_head).T   // the same shape, other numbers",
     .effect = "every head mixes a little of all heads: shapes fit, nothing crashes, the text is wrong",
     .seen = "FuxiCTR#30, transformer-from-scratch#6: students",
     .detect = "D11: scores match q.K only with heads cut interleaved",
     .sql = SCALE_OF_ROW_0 "HAVING abs(scale * scale * r.head_dim - 1) > 0.01",
     .bend = heads_interleaved},
    {0},
};
