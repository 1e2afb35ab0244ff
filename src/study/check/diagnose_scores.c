/* diagnose_scores.c: mistakes of the scores themselves: how heads are cut, and the scale. */
#include "study/check/diagnose_parts.h"

#include <math.h>

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
       "q ON q.run = a.run AND q.step = a.step AND q.layer = a.layer AND q.head = a.head JOIN cache AS c ON c.run = "
       "a.run AND c.layer = a.layer AND c.head = a.head AND c.row = a.row AND c.dim = q.dim WHERE a.run = %d AND "
       "a.step = %d AND a.layer = %d AND a.head = 0 GROUP BY a.row",
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
      "right%s: only the column is mistaken, they were logged before they were scaled.",
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
       "query_vector AS q ON q.run = a.run AND q.step = a.step AND q.layer = a.layer AND q.head = a.head JOIN cache AS "
       "c ON c.run = a.run AND c.layer = a.layer AND c.head = a.head AND c.row = a.row AND c.dim = q.dim WHERE a.run = "
       "%d AND a.step = %d AND a.layer = %d AND a.head = 0 GROUP BY a.row",
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

kvs_status diagnose_scores(struct diagnosis *d, kvs_error *err) {
  kvs_status status = heads_interleaved(d, err);
  return status == KVS_OK ? scales(d, err) : status;
}
