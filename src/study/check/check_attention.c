/* check_attention.c: goes through a trace's attention layer by layer: fills the layer's cache step by step as kv_row says, and holds each
 * step's heads against it. */
#include "study/check/check_attend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trace/query.h"

#define MOST_HEAD_STEPS (16 << 20)
#define SAMPLES 24 /* steps of a layer from which its noise is learnt */

struct fact attend_fact(const struct attend *a, enum fact_kind kind) {
  struct fact fact = check_fact(a->check, kind, a->check->steps[a->i].step);
  fact.layer = a->cache->layer;
  return fact;
}

/* ---- which heads are logged ---- */

struct place {
  int layer, step, head;
};
struct places {
  struct place *at;
  int count, room;
};

static int by_layer(const void *a, const void *b) {
  const struct place *x = a, *y = b;
  if (x->layer != y->layer) return x->layer < y->layer ? -1 : 1;
  if (x->step != y->step) return x->step < y->step ? -1 : 1;
  return (x->head > y->head) - (x->head < y->head);
}

static kvs_status add_place(struct places *p, struct place place, kvs_error *err) {
  if (p->count == MOST_HEAD_STEPS)
    return kvs_fail(err, KVS_ERR_INPUT, "head_step has more than %d lines for one run: too many to check",
                    MOST_HEAD_STEPS);
  if (p->count == p->room) {
    int room = p->room ? 2 * p->room : 1024;
    struct place *grown = realloc(p->at, (size_t)room * sizeof *grown);
    if (!grown) return kvs_fail_memory(err, "reading which heads were logged");
    p->at = grown, p->room = room;
  }
  p->at[p->count++] = place;
  return KVS_OK;
}

/* Layers with rows but without heads get a place without a step. */
static kvs_status find_places(struct check *check, struct places *places, kvs_error *err) {
  static const char *const sql[] = {"SELECT layer, step, head FROM main.head_step WHERE run = ?1",
                                    "SELECT DISTINCT layer, -1, -1 FROM main.kv_row WHERE run = ?1"};
  kvs_status status = KVS_OK;
  for (int q = 0; status == KVS_OK && q < 2; q++) {
    sqlite3_stmt *s = NULL;
    bool row = false;
    status = check_query(check, sql[q], &s, err);
    while (status == KVS_OK && (status = check_row(check, s, &row, err)) == KVS_OK && row) {
      struct place place = {look_int(s, 0), look_int(s, 1), look_int(s, 2)};
      if (place.layer >= 0 && place.layer < check->shape.n_layer) status = add_place(places, place, err);
    }
    sqlite3_finalize(s);
  }
  if (places->count) qsort(places->at, (size_t)places->count, sizeof *places->at, by_layer);
  return status;
}

/* Puts in what was written up to this step; of a batch, also the rows of its later tokens where nothing lay before: they are all in the
 * cache before any token attends. */
static void rows_advance(struct layer_rows *c, const struct check *check, int i) {
  int step = check->steps[i].step, last = check->steps[check->steps[i].batch_end - 1].step;
  for (; c->done < c->count && c->at[c->done].step <= step; c->done++) c->now[c->at[c->done].row] = c->done;
  for (int r = c->done; r < c->count && c->at[r].step <= last; r++)
    if (c->now[c->at[r].row] < 0) c->now[c->at[r].row] = r;
}

const struct layer_row *attend_row(const struct attend *a, int row) {
  const struct layer_rows *c = a->cache;
  if (a->shift) { /* the newest rows, in the order in which they came */
    int at = c->done - a->rows + row;
    return at >= 0 && at < c->done ? &c->at[at] : NULL;
  }
  return row < c->rows && c->now[row] >= 0 ? &c->at[c->now[row]] : NULL;
}

/* ---- one step in one layer ---- */

/* Its past and itself; where the length does not grow, as many as there are. */
static int rows_right(const struct check_step *s) {
  return s->before != LOOK_NONE && s->after > s->before + 1 ? s->before + 1 : s->after;
}

/* False: not to be judged. */
static bool attend_load(struct check *check, struct layer_rows *c, const struct place *places, int count,
                        struct attend *a) {
  int i = check_index(check, places->step);
  if (i < check->pads) return false;
  const struct look_run *shape = &check->shape;
  *a = (struct attend){.check = check,
                       .cache = c,
                       .i = i,
                       .right = rows_right(&check->steps[i]),
                       .cut = {false, shape->n_head, shape->head_dim}};
  a->scale = 1 / sqrt((double)shape->head_dim);
  if (check->model) {
    const kvs_config *config = kvs_model_config(check->model);
    if (!config->scale_attn_weights) a->scale = 1;
    if (config->scale_attn_by_inverse_layer_idx) a->scale /= c->layer + 1;
  }
  a->used_scale = a->scale;
  for (int p = 0; p < count && a->count < ATTEND_HEADS; p++) {
    if (places[p].head < 0 || places[p].head >= shape->n_head) continue;
    const struct look_head *h = look_head(check->look, check->run, places->step, c->layer, places[p].head);
    if (!h) continue;
    a->head[a->count++] = (struct attend_head){h->head, h->rows, h->q, h->scores, h->weights, h->out};
    if (h->rows > a->rows) a->rows = h->rows;
  }
  return a->count > 0;
}

static kvs_status attend_step(struct attend *a, kvs_error *err) {
  kvs_status status = attend_counts(a, err);
  if (status == KVS_OK) status = attend_softmax(a, err);
  if (status == KVS_OK) status = attend_scores(a, err);
  if (status == KVS_OK) status = attend_mix(a, err);
  return status;
}

/* Places of one step of one layer: how many. */
static int same_step(const struct places *p, int from) {
  int n = 1;
  while (from + n < p->count && p->at[from + n].layer == p->at[from].layer && p->at[from + n].step == p->at[from].step)
    n++;
  return n;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values, int count) {
  if (count == 0) return NAN;
  qsort(values, (size_t)count, sizeof *values, ascending);
  return values[count / 2];
}

/* A layer's usual noise, from steps all over the run. The rows are as they are at the end, or as first written. */
static void learn_noise(struct check *check, struct layer_rows *c, const struct places *p, int from, int end) {
  double scores[SAMPLES], mixes[SAMPLES];
  int score_count = 0, mix_count = 0, steps = 0, taken = 0;
  for (int at = from; at < end; at += same_step(p, at)) steps++;
  for (int r = c->count - 1; r >= 0; r--) c->now[c->at[r].row] = r;
  int every = steps / SAMPLES + 1, n = 0;
  for (int at = from, count; at < end && taken < SAMPLES; at += count, n++) {
    struct attend a;
    count = same_step(p, at);
    if (n % every || p->at[at].step < 0 || !attend_load(check, c, p->at + at, count, &a)) continue;
    taken++;
    if (a.rows > a.right) a.rows = a.right;
    for (int h = 0; h < a.count; h++)
      if (a.head[h].rows > a.rows) a.head[h].rows = a.rows;
    double score = attend_score_noise(&a), mix = attend_mix_noise(&a);
    if (!isnan(score)) scores[score_count++] = score;
    if (!isnan(mix)) mixes[mix_count++] = mix;
  }
  c->noise = median(scores, score_count);
  c->mix_noise = median(mixes, mix_count);
  for (int r = 0; r < c->rows; r++) c->now[r] = -1;
}

static kvs_status check_layer(struct check *check, const struct places *p, int from, int end, kvs_error *err) {
  struct layer_rows c;
  kvs_status status = layer_rows_load(check, p->at[from].layer, &c, err);
  if (status == KVS_OK) status = layer_rows_check(check, &c, err);
  if (status == KVS_OK) learn_noise(check, &c, p, from, end);
  for (int at = from, count; status == KVS_OK && at < end; at += count) {
    struct attend a;
    count = same_step(p, at);
    if (p->at[at].step < 0 || !attend_load(check, &c, p->at + at, count, &a)) continue;
    rows_advance(&c, check, a.i);
    status = attend_step(&a, err);
  }
  layer_rows_free(&c);
  return status;
}

kvs_status check_attention(struct check *check, kvs_error *err) {
  struct places places = {0};
  kvs_status status = find_places(check, &places, err);
  for (int from = 0, end; status == KVS_OK && from < places.count; from = end) {
    for (end = from; end < places.count && places.at[end].layer == places.at[from].layer;) end++;
    status = check_layer(check, &places, from, end, err);
  }
  free(places.at);
  return status;
}
