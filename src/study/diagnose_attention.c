/* diagnose_attention.c: mistakes of the attention itself: which rows take part, the scale, the softmax, how heads are cut. */
#include "study/diagnose_parts.h"

#include <math.h>

static bool guessed(const struct fact *f, enum hypothesis what) {
  return f->kind == FACT_CHAIN_HYPOTHESIS && (int)f->found == (int)what;
}

/* What follows when one layer's attention is wrong. */
#define FOLLOWS (RECOMPUTED | BIT(MIX_WRONG) | BIT(SOFTMAX_WRONG))

/* ---- heads ---- */

static bool is_cut(const struct diagnosis *d, const struct fact *f) {
  (void)d;
  return f->kind == FACT_HEAD_CUT || guessed(f, HYPOTHESIS_INTERLEAVED);
}

/* Scores against rows that were stored in these steps, in the wrong order, come out wrong later as well. */
static void take_rows(struct diagnosis *d) {
  for (size_t i = 0; i < d->facts->count; i++) {
    const struct fact *f = &d->facts->at[i];
    bool of_row = (f->kind == FACT_ROW_UNSTABLE || f->kind == FACT_MIX_WRONG) && f->row >= 0;
    for (int s = 0; of_row && !d->explained[i] && s < d->check->count; s++)
      d->explained[i] = d->mine[s] && d->check->steps[s].before == f->row;
  }
}

static kvs_status heads_interleaved(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, is_cut);
  if (g.facts == 0) return KVS_OK;
  take_with(d, &g, FOLLOWS | BIT(ROW_UNSTABLE));
  take_rows(d);
  struct finding *f = find(d, &g, true, "heads-interleaved", NULL, err);
  if (!f) return err->status;
  int n_head = d->check->shape.n_head;
  bool by_row = g.first->kind == FACT_HEAD_CUT && g.first->row >= 0;
  say(f, "%s the heads are cut wrongly: layer %d", when(f), f->layer);
  if (by_row)
    say(f, "'s K row %d is that of its token", f->row);
  else
    say(f, g.first->kind == FACT_HEAD_CUT ? "'s scores follow from q and K" : " follows from the layer below");
  say(f, " only if head h takes the dimensions h, h + %d, h + %d ... instead of %d in a row.", n_head, 2 * n_head,
      d->check->shape.head_dim);
  if (by_row)
    show(f,
         "SELECT step, layer, row, hex(substr(k, 1, 16)) AS k_begins FROM kv_row WHERE run = %d AND layer = %d AND row "
         "= %d",
         d->check->run, f->layer, f->row);
  show(f,
       "SELECT a.row, a.score, sum(q.q * c.k) / sqrt(%d) AS q_times_k_scaled FROM attention AS a JOIN query_vector AS "
       "q ON q.run = a.run AND "
       "q.step = a.step AND q.layer = a.layer AND q.head = a.head JOIN cache AS c ON c.run = a.run AND c.layer = "
       "a.layer AND c.head = "
       "a.head AND c.row = a.row AND c.dim = q.dim WHERE a.run = %d AND a.step = %d AND a.layer = %d AND a.head = 0 "
       "GROUP BY a.row",
       d->check->shape.head_dim, d->check->run, f->first_step, f->layer < 0 ? 0 : f->layer);
  return KVS_OK;
}

/* ---- scale ---- */

static bool is_scale_1(const struct diagnosis *d, const struct fact *f) {
  (void)d;
  return (f->kind == FACT_SCALE && fabs(f->found - 1) < 0.02) || guessed(f, HYPOTHESIS_NO_SCALE);
}

static bool is_scale_n_embd(const struct diagnosis *d, const struct fact *f) {
  double wrong = 1 / sqrt((double)d->check->shape.n_embd);
  return (f->kind == FACT_SCALE && fabs(f->found / wrong - 1) < 0.02) || guessed(f, HYPOTHESIS_SCALE_N_EMBD);
}

static bool is_scale(const struct diagnosis *d, const struct fact *f) {
  (void)d;
  return f->kind == FACT_SCALE;
}

/* Only the column is wrong: what was made of the scores is right. With weights the layers follow the right way; without, the weights
 * that were logged are not the softmax of these scores. */
static bool is_column(const struct diagnosis *d, const struct group *g) {
  const unsigned long long broken =
      BIT(CHAIN) | BIT(CHAIN_HYPOTHESIS) | BIT(KEY_WRONG) | BIT(VALUE_WRONG) | BIT(LOGITS_WRONG) | BIT(WEIGHTS_WRONG);
  bool odd = false, softmax = false;
  if (g->first->kind != FACT_SCALE || (g->kinds & broken)) return false;
  for (size_t i = 0; i < d->facts->count; i++) {
    const struct fact *f = &d->facts->at[i];
    int s = step_index(d, f->step);
    if (s < 0 || !d->mine[s]) continue;
    odd = odd || (broken >> f->kind & 1);
    softmax = softmax || (f->kind == FACT_SOFTMAX_WRONG && f->layer == g->first->layer);
  }
  if (!d->check->model) return softmax;
  int s = step_index(d, g->first_step);
  return !odd && d->check->steps[s].chain_judged && g->first->layer < d->check->shape.n_layer - 1;
}

static void say_column(struct finding *f, const struct diagnosis *d, const struct group *g) {
  say(f,
      "%s the logged scores are q.K times %.4f, not times 1/sqrt(%d) = %.4f, but what the engine made of them is "
      "right%s: only the "
      "column is mistaken, they were logged before they were scaled.",
      when(f), g->first->found, d->check->shape.head_dim, g->first->right,
      d->check->model ? " (the layers follow from each other)" : " (the weights are no softmax of these)");
}

static kvs_status wrong_scale(struct diagnosis *d, predicate *which, const char *kind, const char *words,
                              kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, which);
  if (g.facts == 0) return KVS_OK;
  take_with(d, &g, FOLLOWS);
  bool column = is_column(d, &g);
  struct finding *f = find(d, &g, true, column ? "scores-column" : kind, NULL, err);
  if (!f) return err->status;
  int head_dim = d->check->shape.head_dim;
  if (column) say_column(f, d, &g);
  if (!column) say(f, "%s the scores are not divided by sqrt(head_dim): ", when(f));
  if (column)
    ;
  else if (g.first->kind == FACT_SCALE)
    say(f, "in step %d, layer %d, score / (q.K) is %.4f, right is 1/sqrt(%d) = %.4f", f->first_step, f->layer,
        g.first->found, head_dim, g.first->right);
  else
    say(f, "layer %d follows from the layer below only with another scale", f->layer);
  if (!column) say(f, "%s.", words);
  show(f,
       "SELECT a.row, a.score, sum(q.q * c.k) AS q_times_k, a.score / sum(q.q * c.k) AS scale FROM attention AS a JOIN "
       "query_vector AS q ON "
       "q.run = a.run AND q.step = a.step AND q.layer = a.layer AND q.head = a.head JOIN cache AS c ON c.run = a.run "
       "AND c.layer = "
       "a.layer AND c.head = a.head AND c.row = a.row AND c.dim = q.dim WHERE a.run = %d AND a.step = %d AND a.layer = "
       "%d AND a.head = "
       "0 GROUP BY a.row",
       d->check->run, f->first_step, f->layer < 0 ? 0 : f->layer);
  return KVS_OK;
}

static kvs_status scales(struct diagnosis *d, kvs_error *err) {
  kvs_status status = wrong_scale(d, is_scale_1, "wrong-scale", ": they are q.K itself", err);
  if (status == KVS_OK)
    status =
        wrong_scale(d, is_scale_n_embd, "wrong-scale-n-embd", ": it is sqrt(n_embd) that they are divided by", err);
  if (status == KVS_OK) status = wrong_scale(d, is_scale, "wrong-scale", "", err);
  return status;
}

/* ---- softmax ---- */

static bool is_axis(const struct diagnosis *d, const struct fact *f) {
  (void)d;
  return f->kind == FACT_SOFTMAX_AXIS || guessed(f, HYPOTHESIS_WRONG_AXIS);
}

static kvs_status wrong_axis(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, is_axis);
  if (g.facts == 0) return KVS_OK;
  take_with(d, &g, FOLLOWS | BIT(SOFTMAX_SUM));
  struct finding *f = find(d, &g, true, "softmax-wrong-axis", NULL, err);
  if (!f) return err->status;
  say(f,
      "%s softmax runs over the heads, not over the rows: in step %d, layer %d, each row's weights sum to 1 over the "
      "heads, and no "
      "head's weights sum to 1.",
      when(f), f->first_step, f->layer);
  show(f,
       "SELECT layer, head, weight_sum FROM head_summary WHERE run = %d AND step = %d AND abs(weight_sum - 1) > 0.001",
       d->check->run, f->first_step);
  return KVS_OK;
}

static int rows_right(const struct diagnosis *d, const struct fact *f) {
  int i = step_index(d, f->step);
  return i < 0 ? -1 : d->check->steps[i].before + 1;
}

static bool is_prefill(const struct diagnosis *d, const struct fact *f) {
  int i = step_index(d, f->step);
  return i >= 0 && d->check->steps[i].prefill;
}

/* More rows than there are, up to the end of the batch: no mask. */
static bool is_unmasked(const struct diagnosis *d, const struct fact *f) {
  int i = step_index(d, f->step);
  if (guessed(f, HYPOTHESIS_WHOLE_BATCH)) return true;
  if (f->kind != FACT_SCORE_COUNT || i < 0 || !is_prefill(d, f)) return false;
  int end = d->check->steps[i].batch_end - 1;
  return f->found > f->right && f->found <= d->check->steps[end].before + 1;
}

static kvs_status prefill_unmasked(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, is_unmasked);
  if (g.facts == 0) return KVS_OK;
  take_with(d, &g, FOLLOWS);
  struct finding *f = find(d, &g, true, "prefill-unmasked", NULL, err);
  if (!f) return err->status;
  say(f, "%s in a batch there is no causal mask: ", when(f));
  if (g.first->kind == FACT_SCORE_COUNT)
    say(f, "step %d attends to %.0f rows, right is %.0f: rows of tokens that come after it are seen.", f->first_step,
        g.first->found, g.first->right);
  else
    say(f, "layer %d's rows follow from the layer below only if every token attends to the whole batch.", f->layer + 1);
  show(f,
       "SELECT h.step, h.layer, h.head, length(coalesce(h.scores, h.weights)) / 4 AS rows_attended, "
       "s.cache_length_after FROM head_step AS h "
       "JOIN step AS s ON s.run = h.run AND s.step = h.step WHERE h.run = %d AND s.mode = 'prefill' AND h.head = 0 AND "
       "length(coalesce(h.scores, h.weights)) / 4 > s.cache_length_after",
       d->check->run);
  return KVS_OK;
}

static bool is_extent(const struct diagnosis *d, const struct fact *f) {
  return guessed(f, HYPOTHESIS_WHOLE_CAPACITY) ||
         (f->kind == FACT_SCORE_COUNT && f->found > f->right && (int)f->found == d->check->shape.n_ctx);
}

static kvs_status whole_capacity(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, is_extent);
  if (g.facts == 0) return KVS_OK;
  take_with(d, &g, FOLLOWS | BIT(SOFTMAX_SUM));
  struct finding *f = find(d, &g, true, "softmax-extent", NULL, err);
  if (!f) return err->status;
  int i = step_index(d, f->first_step), n_ctx = d->check->shape.n_ctx;
  say(f,
      "%s softmax runs over the whole capacity: step %d spreads its attention over %d rows, and the cache holds %d; "
      "the unused rows are "
      "zero, score 0, and take weight.",
      when(f), f->first_step, n_ctx, d->check->steps[i].before + 1);
  show(f,
       "SELECT h.step, h.layer, h.head, length(coalesce(h.scores, h.weights)) / 4 AS rows_attended, "
       "s.cache_length_after, m.weight_sum "
       "FROM head_step AS h JOIN step "
       "AS s ON s.run = h.run AND s.step = h.step LEFT JOIN head_summary AS m ON m.run = h.run AND m.step = h.step AND "
       "m.layer = h.layer AND "
       "m.head = h.head WHERE h.run = %d AND h.step = %d AND (length(coalesce(h.scores, h.weights)) / 4 > "
       "s.cache_length_after OR "
       "m.weight_sum < 0.999)",
       d->check->run, f->first_step);
  return KVS_OK;
}

/* ---- which rows ---- */

/* Rows 1 and up are shut out. With two rows this looks like a missing self as well. */
static bool is_corner(const struct diagnosis *d, const struct fact *f) {
  if (guessed(f, HYPOTHESIS_FIRST_ROW_ONLY)) return true;
  if (f->kind == FACT_SOFTMAX_ZERO) return f->row == 1 && f->found == f->right - 1 && f->right > 2;
  return f->kind == FACT_SCORE_COUNT && f->found == 1 && f->right > 2 && !is_prefill(d, f);
}

static bool is_corner_of_2(const struct diagnosis *d, const struct fact *f) {
  (void)d;
  return f->kind == FACT_SOFTMAX_ZERO && f->row == 1 && f->right == 2;
}

static kvs_status mask_corner(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, is_corner);
  if (g.facts == 0) return KVS_OK;
  take(d, &g, is_corner_of_2);
  take_with(d, &g, FOLLOWS | BIT(SOFTMAX_SUM) | BIT(SOFTMAX_ZERO));
  struct finding *f = find(d, &g, true, "mask-corner", NULL, err);
  if (!f) return err->status;
  say(f,
      "%s a token sees row 0 and nothing else: in step %d, layer %d, all weight is on row 0. The causal mask is "
      "aligned to the top left, as "
      "if the one query were the text's first.",
      when(f), f->first_step, f->layer);
  show(f,
       "SELECT head, row, score, weight FROM attention WHERE run = %d AND step = %d AND layer = %d AND row > 0 AND "
       "weight = 0",
       d->check->run, f->first_step, f->layer < 0 ? 0 : f->layer);
  return KVS_OK;
}

static bool is_without_itself(const struct diagnosis *d, const struct fact *f) {
  if (guessed(f, HYPOTHESIS_WITHOUT_ITSELF) || not_stored_yet(d, f)) return true;
  if (f->kind == FACT_SOFTMAX_ZERO) return f->found == 1 && f->row == rows_right(d, f) - 1;
  return f->kind == FACT_SCORE_COUNT && f->found == f->right - 1;
}

static bool score_first(const struct diagnosis *d, const struct fact *f) {
  (void)d;
  return f->kind == FACT_EVENT_ORDER && (int)f->right == KVS_APPEND && (int)f->found == KVS_SCORE;
}

static kvs_status attend_before_append(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, is_without_itself);
  if (g.facts == 0) return KVS_OK;
  take(d, &g, score_first);
  take_with(d, &g, FOLLOWS | BIT(V_READ_AS_ZERO));
  bool ambiguous = g.steps == 1 && g.first->kind == FACT_SOFTMAX_ZERO && g.first->right == 2;
  struct finding *f = find(d, &g, true, "attend-before-append", ambiguous ? "mask-corner" : NULL, err);
  if (!f) return err->status;
  int layer = f->layer < 0 ? 0 : f->layer;
  say(f, "%s the token does not attend to itself: ", when(f));
  if (g.first->kind == FACT_SCORE_COUNT)
    say(f,
        "step %d, layer %d, has %.0f scores, right is %.0f (the cache's length after the append). Attention runs "
        "before the append.",
        f->first_step, layer, g.first->found, g.first->right);
  else if (g.first->kind == FACT_SOFTMAX_ZERO)
    say(f, "in step %d, layer %d, row %d, its own, has weight 0. It is masked, or attention runs before the append.",
        f->first_step, layer, f->row);
  else if (g.first->kind == FACT_K_READ_AS_ZERO)
    say(f,
        "in step %d, layer %d, row %d, its own, is read as zeros, and later as what it is. Attention runs before the "
        "append.",
        f->first_step, layer, f->row);
  else
    say(f, "layer %d follows from the layer below only if its own row is left out.", layer + 1);
  show(f,
       "SELECT h.step, h.layer, h.head, length(coalesce(h.scores, h.weights)) / 4 AS rows_attended, "
       "s.cache_length_after, m.self_weight FROM "
       "head_step AS h JOIN step AS s ON s.run = h.run AND s.step = h.step LEFT JOIN head_summary AS m ON m.run = "
       "h.run AND m.step = h.step "
       "AND m.layer = h.layer AND m.head = h.head WHERE h.run = %d AND h.step = %d AND h.layer = %d",
       d->check->run, f->first_step, layer);
  return KVS_OK;
}

/* ---- what has no name ---- */

static bool is_count(const struct diagnosis *d, const struct fact *f) {
  (void)d;
  return f->kind == FACT_SCORE_COUNT || f->kind == FACT_SOFTMAX_ZERO;
}

static kvs_status wrong_rows(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, is_count);
  if (g.facts == 0) return KVS_OK;
  take_with(d, &g, FOLLOWS | BIT(SOFTMAX_SUM));
  struct finding *f = find(d, &g, true, "wrong-rows", NULL, err);
  if (!f) return err->status;
  if (g.first->kind == FACT_SCORE_COUNT)
    say(f, "%s attention runs over the wrong rows: step %d, layer %d, has %.0f scores, right is %.0f.", when(f),
        f->first_step, f->layer, g.first->found, g.first->right);
  else
    say(f,
        "%s rows of the past are masked that should be seen: in step %d, layer %d, head %d, %.0f of %.0f rows have "
        "weight 0, the first is "
        "row %d.",
        when(f), f->first_step, f->layer, f->head, g.first->found, g.first->right, f->row);
  show(f, "SELECT head, row, score, weight FROM attention WHERE run = %d AND step = %d AND layer = %d", d->check->run,
       f->first_step, f->layer);
  return KVS_OK;
}

static bool is_softmax(const struct diagnosis *d, const struct fact *f) {
  (void)d;
  return f->kind == FACT_SOFTMAX_SUM || f->kind == FACT_SOFTMAX_WRONG;
}

static kvs_status wrong_softmax(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, is_softmax);
  if (g.facts == 0) return KVS_OK;
  take_with(d, &g, FOLLOWS);
  bool nan = g.first->kind == FACT_SOFTMAX_SUM && isnan(g.first->found);
  bool sums = g.first->kind == FACT_SOFTMAX_SUM && !nan;
  struct finding *f =
      find(d, &g, true, sums ? "softmax-extent" : "wrong-weights", sums ? "softmax-wrong-axis" : NULL, err);
  if (!f) return err->status;
  if (nan)
    say(f,
        "%s weights are no numbers: in step %d, layer %d, head %d, they hold NaN. Whatever is made of them is NaN too.",
        when(f), f->first_step, f->layer, f->head);
  else if (sums)
    say(f,
        "%s the weights of a head do not sum to 1: %.4f in step %d, layer %d, head %d. Softmax runs over something "
        "else than the rows.",
        when(f), g.first->found, f->first_step, f->layer, f->head);
  else
    say(f,
        "%s the weights are not softmax of the scores: in step %d, layer %d, head %d, row %d has %.4f, right is %.4f.",
        when(f), f->first_step, f->layer, f->head, f->row, g.first->found, g.first->right);
  if (sums)
    show(f,
         "SELECT step, layer, head, weight_sum FROM head_summary WHERE run = %d AND step = %d AND abs(weight_sum - 1) "
         "> 0.001",
         d->check->run, f->first_step);
  else
    show(f, "SELECT row, score, weight FROM attention WHERE run = %d AND step = %d AND layer = %d AND head = %d",
         d->check->run, f->first_step, f->layer, f->head);
  return KVS_OK;
}

kvs_status diagnose_attention(struct diagnosis *d, kvs_error *err) {
  static kvs_status (*const all[])(struct diagnosis *, kvs_error *) = {
      heads_interleaved,    scales,     wrong_axis,   prefill_unmasked, whole_capacity, mask_corner,
      attend_before_append, wrong_rows, wrong_softmax};
  kvs_status status = KVS_OK;
  for (size_t i = 0; status == KVS_OK && i < sizeof all / sizeof *all; i++) status = all[i](d, err);
  return status;
}
