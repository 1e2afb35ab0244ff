/* check_attention.c: goes through a trace's attention layer by layer: fills the layer's cache step by step as kv_row says, and holds each
 * step's heads against it. Dead rows (D12) are noted while the cache fills. */
#include "study/check/check_attend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trace/query.h"

#define MOST_HEAD_STEPS (16 << 20)
#define MOST_LAYER_BYTES ((size_t)512 << 20)
#define ROWS_OF_A_STEP 4  /* that it may have written in one layer, … */
#define ROWS_BESIDES 4096 /* … and rows that nobody of the run wrote */
#define SAMPLES 24        /* steps of a layer from which its noise is learnt */

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

/* ---- the rows of one layer ---- */

static void rows_free(struct layer_rows *c) {
  for (int i = 0; i < c->count; i++) free(c->at[i].k), free(c->at[i].v), free(c->at[i].norm_k);
  free(c->at);
  free(c->now);
  *c = (struct layer_rows){0};
}

static int by_step(const void *a, const void *b) {
  const struct layer_row *x = a, *y = b;
  if (x->step != y->step) return x->step < y->step ? -1 : 1;
  return (x->row > y->row) - (x->row < y->row);
}

static float *copied(const float *from, int count) {
  float *to = malloc((size_t)count * sizeof *to);
  if (to) memcpy(to, from, (size_t)count * sizeof *to);
  return to;
}

static float part_norm(const float *values, int count) {
  double sum = 0;
  for (int i = 0; i < count; i++) sum += (double)values[i] * (double)values[i];
  return (float)sqrt(sum);
}

static kvs_status load_row(struct check *check, int layer, struct layer_row *r, kvs_error *err) {
  const struct look_row *row = look_row(check->look, check->run, r->step, layer, r->row);
  int n_head = check->shape.n_head, head_dim = check->shape.head_dim;
  if (!row || row->step != r->step) return KVS_OK;
  r->norm_k = calloc(2 * (size_t)n_head, sizeof *r->norm_k);
  if (row->k) r->k = copied(row->k, check->shape.n_embd);
  if (row->v) r->v = copied(row->v, check->shape.n_embd);
  if (!r->norm_k || (row->k && !r->k) || (row->v && !r->v)) return kvs_fail_memory(err, "reading a layer's cache");
  r->norm_v = r->norm_k + n_head;
  for (int h = 0; h < n_head; h++) {
    if (r->k) r->norm_k[h] = part_norm(r->k + h * head_dim, head_dim);
    if (r->v) r->norm_v[h] = part_norm(r->v + h * head_dim, head_dim);
  }
  check->seen.k_rows += r->k != NULL;
  check->seen.v_rows += r->v != NULL;
  return KVS_OK;
}

static kvs_status list_rows(struct check *check, struct layer_rows *c, kvs_error *err) {
  sqlite3_stmt *s = NULL;
  bool more = false;
  int room = 0;
  size_t each = 2 * (size_t)check->shape.n_embd * sizeof(float);
  const int parameters[] = {check->run, c->layer};
  kvs_status status = query_prepare(
      look_db(check->look), "SELECT row, step FROM main.kv_row WHERE run = ?1 AND layer = ?2", parameters, 2, &s, err);
  while (status == KVS_OK && (status = query_step(s, &more, err)) == KVS_OK && more) {
    struct layer_row row = {.row = look_int(s, 0), .step = look_int(s, 1)};
    if (row.row < 0 || row.step < 0 || row.row >= 1 << 20) continue;
    if (each * (size_t)c->count > MOST_LAYER_BYTES || c->count > ROWS_BESIDES + ROWS_OF_A_STEP * check->count)
      status = kvs_fail(err, KVS_ERR_INPUT, "kv_row has more rows of layer %d than %d steps can have written", c->layer,
                        check->count);
    else if (c->count == room) {
      room = room ? 2 * room : 64;
      struct layer_row *grown = realloc(c->at, (size_t)room * sizeof *grown);
      if (grown)
        c->at = grown;
      else
        status = kvs_fail_memory(err, "reading a layer's cache");
    }
    if (status == KVS_OK) {
      c->at[c->count++] = row;
      if (row.row >= c->rows) c->rows = row.row + 1;
    }
  }
  sqlite3_finalize(s);
  return status;
}

static kvs_status rows_load(struct check *check, int layer, struct layer_rows *c, kvs_error *err) {
  *c = (struct layer_rows){.layer = layer, .other = -1, .noise = NAN, .mix_noise = NAN};
  kvs_status status = list_rows(check, c, err);
  if (status == KVS_OK && c->count) qsort(c->at, (size_t)c->count, sizeof *c->at, by_step);
  for (int i = 0; status == KVS_OK && i < c->count; i++) status = load_row(check, layer, &c->at[i], err);
  c->now = malloc(((size_t)c->rows + 1) * sizeof *c->now);
  if (status == KVS_OK && !c->now) status = kvs_fail_memory(err, "reading a layer's cache");
  for (int r = 0; c->now && r < c->rows; r++) c->now[r] = -1;
  return status;
}

/* Zero, NaN, or neither. */
static bool is_dead(const float *values, int count, double *what) {
  bool zero = true, nan = false;
  for (int i = 0; i < count; i++) {
    zero = zero && values[i] == 0;
    nan = nan || isnan(values[i]);
  }
  *what = nan ? (double)NAN : 0;
  return zero || nan;
}

static kvs_status check_dead(struct check *check, const struct layer_rows *c, const struct layer_row *r,
                             kvs_error *err) {
  struct fact fact = check_fact(check, FACT_ROW_DEAD_K, r->step);
  fact.layer = c->layer, fact.row = r->row;
  kvs_status status = KVS_OK;
  if (r->k && is_dead(r->k, check->shape.n_embd, &fact.found)) status = check_note(check, &fact, err);
  fact.kind = FACT_ROW_DEAD_V;
  if (status == KVS_OK && r->v && is_dead(r->v, check->shape.n_embd, &fact.found))
    status = check_note(check, &fact, err);
  return status;
}

static bool is_same(const float *a, const float *b, int count) {
  return a && b && memcmp(a, b, (size_t)count * sizeof *a) == 0;
}

/* Rows written over others of which K and V, or V alone, did not change to the bit. The same token at the same place may be the same row;
 * in layer 0 it is. */
static kvs_status check_kept(struct check *check, struct layer_rows *c, kvs_error *err) {
  kvs_status status = KVS_OK;
  int n = check->shape.n_embd;
  for (int r = 0; status == KVS_OK && r < c->count; r++) {
    const struct layer_row *now = &c->at[r], *old = c->now[now->row] < 0 ? NULL : &c->at[c->now[now->row]];
    c->now[now->row] = r;
    int i = check_index(check, now->step), j = old ? check_index(check, old->step) : -1;
    if (i < 0 || j < 0 || check->steps[i].token == check->steps[j].token) continue;
    bool k = is_same(now->k, old->k, n), v = is_same(now->v, old->v, n), dead;
    double what;
    dead = now->v && is_dead(now->v, n, &what);
    if (dead || !(k ? v || !now->v : v && now->k && old->k)) continue;
    struct fact fact = check_fact(check, k ? FACT_ROW_KEPT : FACT_ROW_KEPT_V, now->step);
    fact.layer = c->layer, fact.row = now->row, fact.found = old->step;
    status = check_note(check, &fact, err);
  }
  for (int row = 0; row < c->rows; row++) c->now[row] = -1;
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
  kvs_status status = rows_load(check, p->at[from].layer, &c, err);
  for (int r = 0; status == KVS_OK && r < c.count; r++) status = check_dead(check, &c, &c.at[r], err);
  if (status == KVS_OK) status = check_kept(check, &c, err);
  if (status == KVS_OK) learn_noise(check, &c, p, from, end);
  for (int at = from, count; status == KVS_OK && at < end; at += count) {
    struct attend a;
    count = same_step(p, at);
    if (p->at[at].step < 0 || !attend_load(check, &c, p->at + at, count, &a)) continue;
    rows_advance(&c, check, a.i);
    status = attend_step(&a, err);
  }
  rows_free(&c);
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
