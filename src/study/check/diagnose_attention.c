/* diagnose_attention.c: mistakes of the attention itself: which rows take part, and the softmax. */
#include "study/check/diagnose_parts.h"

#include <math.h>

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
      "heads, and no head's weights sum to 1.",
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
      "the unused rows are zero, score 0, and take weight.",
      when(f), f->first_step, n_ctx, d->check->steps[i].before + 1);
  show(f,
       "SELECT h.step, h.layer, h.head, length(coalesce(h.scores, h.weights)) / 4 AS rows_attended, "
       "s.cache_length_after, m.weight_sum FROM head_step AS h JOIN step AS s ON s.run = h.run AND s.step = h.step "
       "LEFT JOIN head_summary AS m ON m.run = h.run AND m.step = h.step AND m.layer = h.layer AND m.head = h.head "
       "WHERE h.run = %d AND h.step = %d AND (length(coalesce(h.scores, h.weights)) / 4 > s.cache_length_after OR "
       "m.weight_sum < 0.999)",
       d->check->run, f->first_step);
  return KVS_OK;
}

/* ---- which rows ---- */

static bool is_padding(const struct diagnosis *d, const struct fact *f) {
  (void)d;
  return f->kind == FACT_PADDING_SEEN || guessed(f, HYPOTHESIS_PADDING);
}

static kvs_status padding_unmasked(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, is_padding);
  if (g.facts == 0) return KVS_OK;
  take_with(d, &g, FOLLOWS);
  struct finding *f = find(d, &g, true, "padding-unmasked", NULL, err);
  if (!f) return err->status;
  say(f, "%s the padding is attended to: the first %d token%s padding, ", when(f), d->check->pads,
      d->check->pads == 1 ? " is" : "s are");
  if (g.first->kind == FACT_PADDING_SEEN)
    say(f, "and %.4f of the weight of head %d in step %d, layer %d, is on them. They must be masked.", g.first->found,
        f->head, f->first_step, f->layer);
  else
    say(f, "and layer %d follows from the layer below only if they are seen. They must be masked.", f->layer + 1);
  show(f, "SELECT layer, head, row, row_token_text, weight FROM attention WHERE run = %d AND step = %d AND row < %d",
       d->check->run, f->first_step, d->check->pads);
  return KVS_OK;
}

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
      "aligned to the top left, as if the one query were the text's first.",
      when(f), f->first_step, f->layer);
  show(f,
       "SELECT head, row, score, weight FROM attention WHERE run = %d AND step = %d AND layer = %d AND row > 0 AND "
       "weight = 0",
       d->check->run, f->first_step, f->layer < 0 ? 0 : f->layer);
  return KVS_OK;
}

static bool is_without_itself(const struct diagnosis *d, const struct fact *f) {
  if (guessed(f, HYPOTHESIS_WITHOUT_ITSELF) || not_stored_yet(d, f)) return true;
  if (f->kind == FACT_SOFTMAX_ZERO)
    return f->found == 1 && (f->row == rows_right(d, f) - 1 || f->row == (int)f->right - 1);
  return f->kind == FACT_SCORE_COUNT && f->found == f->right - 1 && f->found < rows_right(d, f);
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
       "s.cache_length_after, m.self_weight FROM head_step AS h JOIN step AS s ON s.run = h.run AND s.step = h.step "
       "LEFT JOIN head_summary AS m ON m.run = h.run AND m.step = h.step AND m.layer = h.layer AND m.head = h.head "
       "WHERE h.run = %d AND h.step = %d AND h.layer = %d",
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
        "weight 0, the first is row %d.",
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
  static kvs_status (*const all[])(struct diagnosis *,
                                   kvs_error *) = {wrong_axis,  prefill_unmasked,     padding_unmasked, whole_capacity,
                                                   mask_corner, attend_before_append, wrong_rows,       wrong_softmax};
  kvs_status status = KVS_OK;
  for (size_t i = 0; status == KVS_OK && i < sizeof all / sizeof *all; i++) status = all[i](d, err);
  return status;
}
