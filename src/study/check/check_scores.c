/* check_scores.c: do the scores follow from q and the rows that were appended (D6), with the scale (D5) and the cut into heads (D11) that
 * they should have? Where they do not, a few mistakes are tried, and the one under which most scores follow is the one that is told.
 * Where only weights are logged, their logarithms stand for the scores: the same but for a number per head. */
#include "study/check/check_scores.h"

#include <math.h>
#include <stdlib.h>

#define COARSEST 2e-2 /* scores of a clean trace are within this share of |q|·|K|, or it cannot be judged */
#define FINEST 1e-3   /* … and need not be nearer */

double attend_dot(const struct cut *cut, const float *q, const float *k, int head) {
  double sum = 0;
  if (cut->interleaved) {
    for (int d = 0; d < cut->head_dim; d++) sum += (double)q[d] * (double)k[d * cut->n_head + head];
    return sum;
  }
  float lane[8] = {0};
  int d = 0;
  k += (size_t)head * (size_t)cut->head_dim;
  for (; d + 8 <= cut->head_dim; d += 8)
    for (int l = 0; l < 8; l++) lane[l] += q[d + l] * k[d + l];
  for (int l = 0; l < 8; l++) sum += (double)lane[l];
  for (; d < cut->head_dim; d++) sum += (double)q[d] * (double)k[d];
  return sum;
}

double score_length(const float *values, int count) {
  double sum = 0;
  for (int i = 0; i < count; i++) sum += (double)values[i] * (double)values[i];
  return sqrt(sum);
}

bool score_logged(const struct attend *a, const struct attend_head *h, int row, double *score) {
  if (row >= h->rows || (!h->scores && (a->no_softmax || a->grain > 0))) return false;
  if (h->scores) {
    *score = (double)h->scores[row];
    return *score > -1e4;
  }
  if (!h->weights || !(h->weights[row] > 1e-30f)) return false;
  *score = log((double)h->weights[row]);
  return true;
}

/* What row lies at `row` for this comparison; NULL: none to compare with. */
static const struct layer_row *row_at(const struct attend *a, int row) {
  const struct layer_row *r = attend_row(a, row);
  return r && r->k && !r->k_as_zero ? r : NULL;
}

static kvs_status pair_up(const struct attend *a, struct pairs *p, kvs_error *err) {
  size_t most = (size_t)a->count * (size_t)a->rows;
  *p = (struct pairs){.at = malloc((most + 1) * sizeof *p->at)};
  if (!p->at) return kvs_fail_memory(err, "comparing scores");
  for (int h = 0; h < a->count; h++) {
    const struct attend_head *head = &a->head[h];
    if (!head->q || (!head->scores && !head->weights)) continue;
    double q_length = score_length(head->q, a->cut.head_dim), score;
    for (int row = 0; row < head->rows; row++) {
      const struct layer_row *r = row_at(a, row);
      if (!r || !score_logged(a, head, row, &score)) continue;
      double k_length = a->cut.interleaved ? score_length(r->norm_k, a->cut.n_head) : (double)r->norm_k[head->head];
      p->at[p->count++] =
          (struct pair){h, row, score, attend_dot(&a->cut, head->q, r->k, head->head), q_length * k_length};
    }
  }
  return KVS_OK;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Where weights stand for scores: the number by which this head's are moved, the median of all rows. 0 for scores themselves. */
static void find_offsets(const struct attend *a, const struct pairs *p, double scale, double *offset, double *room) {
  for (int h = 0, at = 0; h < a->count; h++) {
    int n = 0;
    for (; at < p->count && p->at[at].head == h; at++) room[n++] = p->at[at].score - scale * p->at[at].product;
    offset[h] = 0;
    if (a->head[h].scores || n == 0) continue;
    qsort(room, (size_t)n, sizeof *room, ascending);
    offset[h] = room[n / 2];
  }
}

static double tolerance_of(const struct attend *a) {
  double noise = a->cache->noise;
  return isnan(noise) ? FINEST : fmin(fmax(8 * noise, FINEST), COARSEST);
}

static double off_by(const struct pair *p, double scale, double offset) {
  return fabs(p->score - offset - scale * p->product);
}

bool score_fits(const struct attend *a, const struct pair *p, double scale, double offset) {
  double extra = a->head[p->head].scores ? 1e-5 + 2e-4 * fabs(p->score) : 2e-2;
  return off_by(p, scale, offset) <= tolerance_of(a) * scale * p->size + extra;
}

/* The share of scores that follow under this scale. */
static double share(const struct attend *a, const struct pairs *p, double scale, double *offset, double *room) {
  int good = 0;
  find_offsets(a, p, scale, offset, room);
  for (int i = 0; i < p->count; i++) good += score_fits(a, &p->at[i], scale, offset[p->at[i].head]);
  return p->count ? (double)good / p->count : 0;
}

/* The scale that most scores have: the median of score / (q·K) where q·K is not near 0. */
static double usual_scale(const struct attend *a, const struct pairs *p, double *room) {
  int n = 0;
  for (int i = 0; i < p->count; i++)
    if (a->head[p->at[i].head].scores && fabs(p->at[i].product) > 0.02 * p->at[i].size && p->at[i].size > 0)
      room[n++] = p->at[i].score / p->at[i].product;
  if (n < 3) return NAN;
  qsort(room, (size_t)n, sizeof *room, ascending);
  return room[n / 2];
}

double attend_score_noise(const struct attend *a) {
  struct pairs p;
  double noise = NAN, offset[ATTEND_HEADS];
  if (pair_up(a, &p, NULL) != KVS_OK || p.count < 4) {
    free(p.at);
    return NAN;
  }
  double *room = malloc((size_t)p.count * sizeof *room);
  if (room) {
    find_offsets(a, &p, a->scale, offset, room);
    int n = 0;
    for (int i = 0; i < p.count; i++)
      if (a->head[p.at[i].head].scores && p.at[i].size > 0)
        room[n++] = off_by(&p.at[i], a->scale, 0) / (a->scale * p.at[i].size);
    if (n > 0) qsort(room, (size_t)n, sizeof *room, ascending), noise = room[n / 2];
  }
  free(room);
  free(p.at);
  return noise;
}

/* ---- which mistake ---- */

/* Tries the scales that are written by mistake with this cut, and keeps the best guess. */
static kvs_status try_scales(struct attend *a, bool interleaved, struct score_guess *best, kvs_error *err) {
  struct pairs p;
  double offset[ATTEND_HEADS];
  a->cut.interleaved = interleaved;
  kvs_status status = pair_up(a, &p, err);
  double *room = malloc(((size_t)p.count + 1) * sizeof *room);
  if (status == KVS_OK && !room) status = kvs_fail_memory(err, "comparing scores");
  if (status == KVS_OK && p.count >= 2) {
    const double scales[] = {a->scale, 1, 1 / sqrt((double)a->check->shape.n_embd), 1.0 / a->cut.head_dim,
                             usual_scale(a, &p, room)};
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
      if (!(scales[s] > 0)) continue;
      double good = share(a, &p, scales[s], offset, room);
      if (good > best->share + 0.1) *best = (struct score_guess){interleaved, scales[s], good};
    }
  }
  free(room);
  free(p.at);
  a->cut.interleaved = false;
  return status;
}

kvs_status score_note(struct attend *a, enum fact_kind kind, int row, double found, double right, kvs_error *err) {
  struct fact fact = attend_fact(a, kind);
  fact.row = row, fact.found = found, fact.right = right;
  return check_note(a->check, &fact, err);
}

static kvs_status take_guess(struct attend *a, const struct score_guess *g, kvs_error *err) {
  a->cut.interleaved = g->interleaved;
  a->used_scale = g->scale;
  a->cache->guess = *g;
  kvs_status status = KVS_OK;
  if (g->interleaved) status = score_note(a, FACT_HEAD_CUT, -1, 1, 0, err);
  if (status == KVS_OK && fabs(g->scale / a->scale - 1) > 0.01)
    status = score_note(a, FACT_SCALE, -1, g->scale, a->scale, err);
  return status;
}

/* The newest rows in their order, as after the oldest were dropped: 0 if they are not it. */
static kvs_status find_shift(struct attend *a, double share_now, kvs_error *err) {
  int shift = a->cache->done - a->rows;
  double offset[ATTEND_HEADS];
  if (shift <= 0) return KVS_OK;
  a->shift = shift;
  struct pairs p;
  kvs_status status = pair_up(a, &p, err);
  double *room = malloc(((size_t)p.count + 1) * sizeof *room), good = 0;
  if (status == KVS_OK && !room) status = kvs_fail_memory(err, "comparing scores");
  if (status == KVS_OK) good = share(a, &p, a->used_scale, offset, room);
  if (good < 0.9 || good < share_now + 0.1) a->shift = 0;
  free(room);
  free(p.at);
  return status == KVS_OK && a->shift ? score_note(a, FACT_ROW_SHIFTED, 0, shift, 0, err) : status;
}

/* Where rows are wrong too, few scores follow whatever the scale and the cut: then it is a mistake that was found in this layer before that
 * still explains most, of the rows in their places or of rows that moved. */
static kvs_status guess_again(struct attend *a, const struct score_guess *best, kvs_error *err) {
  const struct score_guess before = a->cache->guess;
  if (!(before.share > 0)) return KVS_OK;
  if (best->interleaved == before.interleaved && fabs(best->scale / before.scale - 1) < 0.01)
    return take_guess(a, &before, err);
  a->cut.interleaved = before.interleaved, a->used_scale = before.scale;
  kvs_status status = find_shift(a, best->share, err);
  if (status == KVS_OK && a->shift) return take_guess(a, &before, err);
  a->cut.interleaved = false, a->used_scale = a->scale;
  return status;
}

/* Each row for itself. */
static kvs_status judge_each(struct attend *a, kvs_error *err) {
  struct pairs p;
  double offset[ATTEND_HEADS];
  kvs_status status = pair_up(a, &p, err);
  double *room = malloc(((size_t)p.count + 1) * sizeof *room);
  if (status == KVS_OK && !room) status = kvs_fail_memory(err, "comparing scores");
  if (status == KVS_OK) {
    find_offsets(a, &p, a->used_scale, offset, room);
    status = score_judge_rows(a, &p, offset, err);
  }
  free(room);
  free(p.at);
  return status;
}

static kvs_status judge(struct attend *a, double share_now, kvs_error *err) {
  struct score_guess best = {false, a->scale, share_now};
  kvs_status status = try_scales(a, false, &best, err);
  if (status == KVS_OK && a->cut.n_head > 1 && a->cut.head_dim > 1 && best.share < 0.95)
    status = try_scales(a, true, &best, err);
  if (status != KVS_OK) return status;
  bool clear = best.share >= 0.6 && best.share > share_now + 0.2;
  status = clear ? take_guess(a, &best, err) : guess_again(a, &best, err);
  if (status != KVS_OK || best.share > 0.999 || a->shift) return status;
  status = find_shift(a, best.share, err);
  return status == KVS_OK && !a->shift ? judge_each(a, err) : status;
}

kvs_status attend_scores(struct attend *a, kvs_error *err) {
  struct pairs p;
  double offset[ATTEND_HEADS], good = 1;
  kvs_status status = pair_up(a, &p, err);
  double *room = malloc(((size_t)p.count + 1) * sizeof *room);
  if (status == KVS_OK && !room) status = kvs_fail_memory(err, "comparing scores");
  if (status == KVS_OK && p.count > 0) {
    good = share(a, &p, a->scale, offset, room);
    a->check->seen.products += p.count;
    a->check->steps[a->i].rows_judged = true;
  }
  free(room);
  free(p.at);
  return status == KVS_OK && good < 1 ? judge(a, good, err) : status;
}
