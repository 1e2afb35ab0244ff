/* check_positions.c: what can be said without weights about the position really used (D2): a row of wpe that comes twice, x without any wpe,
 * and layer 0's K row, which depends on token and position alone: the same token with the same row had the same position. */
#include "study/check/check_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A vector's fingerprint, and whose it is. */
struct print {
  unsigned long long hash;
  int i; /* the step's index */
};

static unsigned long long hash_of(const float *values, int count) {
  unsigned long long hash = 14695981039346656037ull; /* FNV-1a, four bytes at a time */
  for (int k = 0; k < count; k++) {
    unsigned bits;
    memcpy(&bits, &values[k], sizeof bits);
    hash = (hash ^ bits) * 1099511628211ull;
  }
  return hash;
}

static int by_hash(const void *a, const void *b) {
  const struct print *x = a, *y = b;
  if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
  return (x->i > y->i) - (x->i < y->i);
}

static bool is_of_prompt(const struct check *check, int i) { return i < check->prompt_length; }

static bool claim_is_wrong(const struct check *check, const struct check_step *s) {
  return s->claims && s->position != check_right_position(check, (int)(s - check->steps));
}

/* Step i used the position of step j, an earlier one. */
static kvs_status note_same(struct check *check, int i, int j, kvs_error *err) {
  const struct check_step *later = &check->steps[i], *earlier = &check->steps[j];
  if (j < check->pads || later->before == earlier->before || later->before == LOOK_NONE || earlier->before == LOOK_NONE)
    return KVS_OK;
  if (claim_is_wrong(check, earlier) && later->claims && !claim_is_wrong(check, later))
    return KVS_OK; /* it is the earlier one's mistake */
  bool trusted = is_of_prompt(check, j) && !is_of_prompt(check, i) && !claim_is_wrong(check, earlier);
  struct fact fact = check_fact(check, trusted ? FACT_POSITION_USED : FACT_POSITION_SAME, later->step);
  fact.layer = 0, fact.row = later->before;
  fact.found = trusted ? check_right_position(check, j) : earlier->step, fact.right = check_right_position(check, i);
  return check_note(check, &fact, err);
}

static kvs_status check_wpe(struct check *check, kvs_error *err) {
  struct print *prints = malloc(((size_t)check->count + 1) * sizeof *prints);
  int count = 0, n_embd = check->shape.n_embd;
  kvs_status status = prints ? KVS_OK : kvs_fail_memory(err, "comparing positions");
  for (int i = 0; status == KVS_OK && i < check->count; i++) {
    const struct look_vectors *v = look_vectors(check->look, check->run, check->steps[i].step);
    if (i < check->pads) continue;
    if (v && v->wpe) prints[count++] = (struct print){hash_of(v->wpe, n_embd), i};
    check->seen.positions += v && (v->wpe || (v->x && v->wte));
    if (!v || v->wpe || !v->x || !v->wte || memcmp(v->x, v->wte, (size_t)n_embd * sizeof *v->x) != 0) continue;
    struct fact fact = check_fact(check, FACT_POSITION_USED, check->steps[i].step);
    fact.row = check->steps[i].before, fact.found = -1, fact.right = check_right_position(check, i);
    status = check_note(check, &fact, err);
  }
  if (status == KVS_OK && count) qsort(prints, (size_t)count, sizeof *prints, by_hash);
  for (int p = 0, first = 0; status == KVS_OK && p < count; p++) {
    if (prints[p].hash != prints[first].hash) first = p;
    if (p > first) status = note_same(check, prints[p].i, prints[first].i, err);
  }
  free(prints);
  return status;
}

/* ---- layer 0's K rows ---- */

static int by_token(const void *a, const void *b) {
  const struct check_step *const *x = a, *const *y = b;
  if ((*x)->token != (*y)->token) return (*x)->token < (*y)->token ? -1 : 1;
  return ((*x)->step > (*y)->step) - ((*x)->step < (*y)->step);
}

/* The K row that the step wrote in layer 0, copied; NULL: not logged. */
static float *k_of(struct check *check, const struct check_step *s) {
  if (s->before < 0) return NULL;
  const struct look_row *r = look_row(check->look, check->run, s->step, 0, s->before);
  if (!r || r->step != s->step || !r->k) return NULL;
  float *k = malloc((size_t)check->shape.n_embd * sizeof *k);
  if (k) memcpy(k, r->k, (size_t)check->shape.n_embd * sizeof *k);
  return k;
}

/* Where they are the same but for rounding and the order of sums; other positions are further off by far. */
static bool is_same_row(const float *a, const float *b, int count) {
  double apart = 0, size = 0;
  for (int d = 0; d < count; d++) {
    double x = (double)a[d] - (double)b[d];
    apart += x * x, size += (double)a[d] * (double)a[d];
  }
  return size > 0 && apart < 1e-6 * size;
}

#define MOST_OF_A_TOKEN 32 /* earlier rows that one is compared with */

/* The steps of one token, in their order. */
static kvs_status check_token(struct check *check, struct check_step **steps, int count, kvs_error *err) {
  float *rows[MOST_OF_A_TOKEN];
  int of[MOST_OF_A_TOKEN], kept = 0;
  kvs_status status = KVS_OK;
  for (int s = 0; status == KVS_OK && s < count; s++) {
    float *k = k_of(check, steps[s]);
    int same = -1, i = (int)(steps[s] - check->steps);
    if (!k || i < check->pads) {
      free(k);
      continue;
    }
    check->seen.positions += kept > 0;
    for (int r = 0; r < kept && same < 0; r++)
      if (is_same_row(k, rows[r], check->shape.n_embd)) same = of[r];
    if (same >= 0) status = note_same(check, i, same, err);
    if (same < 0 && kept < MOST_OF_A_TOKEN)
      rows[kept] = k, of[kept++] = i;
    else
      free(k);
  }
  while (kept > 0) free(rows[--kept]);
  return status;
}

static kvs_status check_k(struct check *check, kvs_error *err) {
  struct check_step **order = malloc(((size_t)check->count + 1) * sizeof *order);
  if (!order) return kvs_fail_memory(err, "comparing rows of equal tokens");
  for (int i = 0; i < check->count; i++) order[i] = &check->steps[i];
  if (check->count) qsort(order, (size_t)check->count, sizeof *order, by_token);
  kvs_status status = KVS_OK;
  for (int from = 0, end; status == KVS_OK && from < check->count; from = end) {
    for (end = from; end < check->count && order[end]->token == order[from]->token;) end++;
    if (end - from > 1) status = check_token(check, order + from, end - from, err);
  }
  free(order);
  return status;
}

kvs_status check_positions(struct check *check, kvs_error *err) {
  kvs_status status = check_wpe(check, err);
  return status == KVS_OK ? check_k(check, err) : status;
}
