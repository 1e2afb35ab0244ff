/* check_layer.c: the rows of one layer as kv_row has them, read once, and what is wrong with them by themselves (D12): dead ones, and those
 * that were not written over. */
#include "study/check/check_attend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trace/query.h"

#define MOST_LAYER_BYTES ((size_t)512 << 20)
#define ROWS_OF_A_STEP 4  /* that it may have written in one layer, … */
#define ROWS_BESIDES 4096 /* … and rows that nobody of the run wrote */

void layer_rows_free(struct layer_rows *c) {
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

kvs_status layer_rows_load(struct check *check, int layer, struct layer_rows *c, kvs_error *err) {
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

kvs_status layer_rows_check(struct check *check, struct layer_rows *c, kvs_error *err) {
  kvs_status status = KVS_OK;
  for (int r = 0; status == KVS_OK && r < c->count; r++) status = check_dead(check, c, &c->at[r], err);
  return status == KVS_OK ? check_kept(check, c, err) : status;
}
