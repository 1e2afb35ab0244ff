/* check_softmax.c: how many rows got a score (D3), and whether the weights are a softmax of the scores over those rows (D4). */
#include "study/check/check_attend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A weight of 0 is one where softmax would give at least this; float16 has no smaller ones than 6e-8. */
#define NO_WEIGHT 1e-6

static bool is_masked(float score) { return score <= CHECK_MASKED; }

/* Whether all numbers could be float16 or bfloat16, which have 10 and 7 bits of the fraction's 23: then they are as coarse as
 * that. */
static bool looks_short(const float *values, int count) {
  bool shortened = true;
  for (int i = 0; i < count && shortened; i++) {
    unsigned bits;
    memcpy(&bits, &values[i], sizeof bits);
    shortened = (bits & 0x1FFF) == 0;
  }
  return shortened;
}

/* Masked rows behind the cache's end are no rows: some engines log the whole of their buffers. */
static int trimmed(const struct attend_head *h, int right) {
  int rows = h->rows;
  while (rows > right && rows > 0 &&
         (h->weights ? h->weights[rows - 1] == 0 : h->scores && is_masked(h->scores[rows - 1])))
    rows--;
  return rows;
}

kvs_status attend_counts(struct attend *a, kvs_error *err) {
  int odd = 0, at = -1;
  if (a->right <= 0) return KVS_OK;
  a->rows = 0;
  for (int h = 0; h < a->count; h++) {
    struct attend_head *head = &a->head[h];
    head->rows = trimmed(head, a->right);
    if (head->rows > a->rows) a->rows = head->rows;
    if (!head->scores && !head->weights) continue;
    a->check->seen.scores++;
    if (head->rows != a->right && odd++ == 0) at = h;
  }
  if (at < 0) return KVS_OK;
  struct fact fact = attend_fact(a, FACT_SCORE_COUNT);
  fact.head = a->head[at].head, fact.found = a->head[at].rows, fact.right = a->right;
  return check_note(a->check, &fact, err);
}

/* Whether all weights are multiples of this, and that says something: ones and zeros are multiples of anything. */
static bool is_rounded_to(const struct attend *a, double grain) {
  bool between = false;
  for (int h = 0; h < a->count; h++)
    for (int r = 0; a->head[h].weights && r < a->head[h].rows; r++) {
      double parts = (double)a->head[h].weights[r] / grain;
      if (!(fabs(parts - round(parts)) < 1e-6 / grain)) return false;
      between = between || (parts > 0.5 && parts < 1 / grain - 0.5);
    }
  return between;
}

/* Published attention is often a text of two to four decimals. More cannot be told from float32. */
static double find_grain(const struct attend *a) {
  for (double grain = 1e-2; grain > 5e-5; grain /= 10)
    if (is_rounded_to(a, grain)) return grain;
  return 0;
}

/* ---- one head ---- */

struct softmax {
  double padding;        /* of the weights: on rows of padding */
  double most, whole;    /* of the scores: the largest, and Σ exp(score − most) over rows that take part */
  double sum;            /* of the weights */
  int zeros, first_zero; /* rows of the past, or itself, that have no weight though they should */
  int worst;             /* the row whose weight is the furthest off; -1: all are right */
  double worst_found, worst_right;
};

/* Whether the row was kept out though it is in the cache. */
static bool is_shut_out(const struct attend_head *h, const struct softmax *s, int row, int right, double grain) {
  if (row >= right || h->weights[row] != 0) return false;
  if (!h->scores) return grain == 0;
  return is_masked(h->scores[row]) || exp((double)h->scores[row] - s->most) > (NO_WEIGHT + grain) * s->whole;
}

static void measure_scores(const struct attend_head *h, struct softmax *s) {
  s->most = -INFINITY;
  for (int r = 0; r < h->rows; r++)
    if ((double)h->scores[r] > s->most) s->most = (double)h->scores[r];
  for (int r = 0; r < h->rows; r++) s->whole += exp((double)h->scores[r] - s->most);
}

/* The weights against softmax of the scores, over the rows that were let in. */
static void compare(const struct attend_head *h, double grain, struct softmax *s) {
  double whole = 0, largest = 0;
  bool shortened = looks_short(h->scores, h->rows) || looks_short(h->weights, h->rows);
  for (int r = 0; r < h->rows; r++) {
    if (h->weights[r] != 0) whole += exp((double)h->scores[r] - s->most);
    if (!is_masked(h->scores[r]) && fabs((double)h->scores[r]) > largest) largest = fabs((double)h->scores[r]);
  }
  double unit = shortened ? 1.0 / 128 : 2e-4, furthest = 1;
  double within = expm1(fmin(unit * (largest + 2), 5));
  for (int r = 0; r < h->rows; r++) {
    if (h->weights[r] == 0) continue;
    double right = exp((double)h->scores[r] - s->most) / whole, apart = fabs((double)h->weights[r] - right);
    double off = apart / (right * within + unit / 10 + grain);
    if (off <= furthest && !isnan(off)) continue;
    furthest = isnan(off) ? INFINITY : off;
    s->worst = r, s->worst_found = (double)h->weights[r], s->worst_right = right;
  }
}

/* Then rows that would have had next to no weight anyway were shut out as well. */
static bool sees_row_0_only(const struct attend_head *h, int right) {
  for (int r = 1; r < h->rows; r++)
    if (h->weights[r] != 0) return false;
  return h->rows > 1 && h->rows <= right && h->weights[0] > 0;
}

static struct softmax measure(const struct attend_head *h, int pads, int right, double grain) {
  struct softmax s = {.worst = -1, .first_zero = -1};
  if (h->scores) measure_scores(h, &s);
  for (int r = 0; r < h->rows; r++) {
    s.sum += (double)h->weights[r];
    if (r < pads) s.padding += (double)h->weights[r];
    if (r < pads) continue;
    if (!is_shut_out(h, &s, r, right, grain)) continue;
    if (s.zeros++ == 0) s.first_zero = r;
  }
  if (s.zeros > 0 && sees_row_0_only(h, right)) s.zeros = h->rows - 1, s.first_zero = 1;
  if (h->scores) compare(h, grain, &s);
  return s;
}

static bool sum_is_off(const struct attend_head *h, double sum, double grain) {
  return !(fabs(sum - 1) <= (looks_short(h->weights, h->rows) ? 8e-3 : 1e-3) + 0.5 * grain * h->rows);
}

/* ---- all heads ---- */

/* Each row's weights sum to 1 over the heads, and not over the rows. */
static bool is_over_heads(const struct attend *a, const struct softmax *s) {
  bool off = false;
  if (a->count != a->cut.n_head) return false;
  for (int h = 0; h < a->count; h++) {
    if (!a->head[h].weights || a->head[h].rows != a->rows) return false;
    off = off || sum_is_off(&a->head[h], s[h].sum, a->grain);
  }
  for (int r = 0; off && r < a->rows; r++) {
    double sum = 0;
    for (int h = 0; h < a->count; h++) sum += (double)a->head[h].weights[r];
    if (!(fabs(sum - 1) < 1e-2)) return false;
  }
  return off;
}

/* Without scores a weight of 0 is one that is there in every head. */
static bool shut_out_in_all(const struct attend *a, const struct softmax *s) {
  int compared = 0;
  for (int h = 0; h < a->count; h++) {
    if (!a->head[h].weights) continue;
    compared++;
    if (s[h].zeros != s[0].zeros || s[h].first_zero != s[0].first_zero) return false;
  }
  return compared > 1 || (compared == 1 && a->head[0].scores);
}

static kvs_status note(struct attend *a, enum fact_kind kind, int h, int row, double found, double right,
                       kvs_error *err) {
  struct fact fact = attend_fact(a, kind);
  fact.head = h < 0 ? -1 : a->head[h].head, fact.row = row, fact.found = found, fact.right = right;
  return check_note(a->check, &fact, err);
}

/* The weights sum to less than 1: is what is missing the share of rows that nobody wrote, with a score of 0 each? */
static kvs_status note_sum(struct attend *a, int h, const struct softmax *s, kvs_error *err) {
  int unused = a->check->shape.n_ctx - a->head[h].rows;
  if (a->head[h].scores && s->sum < 1 && unused > 0) {
    double missing = s->whole * exp(s->most) * (1 / s->sum - 1);
    if (fabs(missing - unused) < 0.02 * unused + 0.1)
      return note(a, FACT_SCORE_COUNT, h, -1, a->check->shape.n_ctx, a->right, err);
  }
  return note(a, FACT_SOFTMAX_SUM, h, -1, s->sum, 1, err);
}

kvs_status attend_softmax(struct attend *a, kvs_error *err) {
  struct softmax s[ATTEND_HEADS] = {0};
  int zero = -1, off = -1, wrong = -1, padding = -1;
  a->grain = find_grain(a);
  for (int h = 0; h < a->count; h++) {
    const struct attend_head *head = &a->head[h];
    if (!head->weights || head->rows == 0) continue;
    s[h] = measure(head, a->check->pads, a->right, a->grain);
    if (padding < 0 && s[h].padding > NO_WEIGHT) padding = h;
    a->check->seen.softmaxes++;
    if (zero < 0 && s[h].zeros > 0 && (head->scores || shut_out_in_all(a, s))) zero = h;
    if (off < 0 && sum_is_off(head, s[h].sum, a->grain)) off = h;
    if (wrong < 0 && s[h].worst >= 0) wrong = h;
  }
  kvs_status status = KVS_OK;
  if (padding >= 0) status = note(a, FACT_PADDING_SEEN, padding, 0, s[padding].padding, 0, err);
  if (status == KVS_OK && zero >= 0)
    status = note(a, FACT_SOFTMAX_ZERO, zero, s[zero].first_zero, s[zero].zeros, a->head[zero].rows, err);
  if (status != KVS_OK) return status;
  a->no_softmax = off >= 0 || wrong >= 0;
  if (is_over_heads(a, s)) return note(a, FACT_SOFTMAX_AXIS, -1, -1, a->rows, a->rows, err);
  if (off >= 0) return note_sum(a, off, &s[off], err);
  if (wrong >= 0)
    return note(a, FACT_SOFTMAX_WRONG, wrong, s[wrong].worst, s[wrong].worst_found, s[wrong].worst_right, err);
  return KVS_OK;
}
