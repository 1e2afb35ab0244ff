/* check_score_rows.c: single rows whose scores do not follow (D6): are they read as zero, cut otherwise than the rest, or another layer's? */
#include "study/check/check_scores.h"

#include <math.h>

/* Scores of one row in all heads: how many were compared, how many follow, and how many are exactly 0. */
struct row_fit {
  int compared, good, zero;
  double score, product;
};

static struct row_fit fit_row(const struct attend *a, const struct pairs *p, const double *offset, int row) {
  struct row_fit f = {0};
  for (int i = 0; i < p->count; i++) {
    const struct pair *x = &p->at[i];
    if (x->row != row) continue;
    bool good = score_fits(a, x, a->used_scale, offset[x->head]);
    f.compared++;
    f.good += good;
    f.zero += a->head[x->head].scores && x->score == 0 && fabs(x->product) > 0.01 * x->size;
    if (!good) f.score = x->score, f.product = a->used_scale * x->product;
  }
  return f;
}

/* The row's score in one head beside q·k, where its K is `k`. */
static struct pair pair_of(const struct attend *a, int h, int row, double score, const float *k) {
  const struct attend_head *head = &a->head[h];
  int first = head->head * a->cut.head_dim;
  return (struct pair){h, row, score, attend_dot(&a->cut, head->q, k, head->head),
                       score_length(head->q, a->cut.head_dim) * score_length(k + first, a->cut.head_dim)};
}

/* Whether the row's scores follow, in all heads, from what layer `other` has in that row. */
static bool is_of_layer(const struct attend *a, const double *offset, int other, int row) {
  int compared = 0;
  const struct look_row *r = look_row(a->check->look, a->check->run, a->check->steps[a->i].step, other, row);
  if (!r || !r->k) return false;
  for (int h = 0; h < a->count; h++) {
    const struct attend_head *head = &a->head[h];
    double score;
    if (!head->q || !score_logged(a, head, row, &score)) continue;
    struct pair p = pair_of(a, h, row, score, r->k);
    if (!score_fits(a, &p, a->used_scale, offset[h])) return false;
    compared++;
  }
  return compared > 0;
}

/* Whether the row's scores follow, in all heads, if its heads are cut interleaved. */
static bool is_woven(struct attend *a, const double *offset, int row) {
  const struct layer_row *r = attend_row(a, row);
  int compared = 0;
  if (a->cut.interleaved) return false; /* all rows are, and this one does not follow */
  bool good = r && r->k && a->cut.n_head > 1 && a->cut.head_dim > 1;
  a->cut.interleaved = true;
  for (int h = 0; good && h < a->count; h++) {
    const struct attend_head *head = &a->head[h];
    double score;
    if (!head->q || !score_logged(a, head, row, &score)) continue;
    struct pair p = pair_of(a, h, row, score, r->k);
    good = score_fits(a, &p, a->used_scale, offset[h]);
    compared++;
  }
  a->cut.interleaved = false;
  return good && compared > 2; /* of two it may be chance */
}

/* The layer whose row it is: the one found last, the first, the last, then all. */
static int layer_of(const struct attend *a, const double *offset, int row) {
  struct layer_rows *c = a->cache;
  int n_layer = a->check->shape.n_layer;
  if (n_layer > CHECK_LAYERS) n_layer = CHECK_LAYERS;
  if (c->other >= 0 && is_of_layer(a, offset, c->other, row)) return c->other;
  for (int l = n_layer - 1; l >= 0; l--)
    if (l != c->layer && l != c->other && is_of_layer(a, offset, l, row)) return c->other = l;
  return -1;
}

kvs_status score_judge_rows(struct attend *a, const struct pairs *p, const double *offset, kvs_error *err) {
  int tried = 0, wrong = -1;
  struct row_fit worst = {0};
  kvs_status status = KVS_OK;
  for (int row = 0; status == KVS_OK && row < a->rows; row++) {
    struct row_fit f = fit_row(a, p, offset, row);
    if (f.good == f.compared) continue;
    if (f.zero == f.compared && f.compared > 0) {
      struct layer_row *r = &a->cache->at[a->cache->now[row]];
      r->k_as_zero = ++r->zeros > 1; /* once, in its own step, it may just not have been stored yet */
      status = score_note(a, FACT_K_READ_AS_ZERO, row, 0, f.product, err);
      continue;
    }
    if (is_woven(a, offset, row)) {
      a->foreign = true;
      return score_note(a, FACT_HEAD_CUT, -1, 1, 0, err);
    }
    int other = tried++ < 4 ? layer_of(a, offset, row) : -1;
    if (other >= 0) {
      a->foreign = true;
      return score_note(a, FACT_ROW_OTHER_LAYER, row, other, a->cache->layer, err);
    }
    if (wrong < 0) wrong = row, worst = f;
  }
  if (status != KVS_OK || wrong < 0) return status;
  a->foreign = true;
  return score_note(a, FACT_ROW_UNSTABLE, wrong, worst.score, worst.product, err);
}
