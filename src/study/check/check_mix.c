/* check_mix.c: is out the sum of the V rows, weighed? */
#include "study/check/check_attend.h"

#include <math.h>
#include <stdlib.h>

#define COARSEST 3e-2 /* of Σ weight·|V| */
#define FINEST 2e-3

/* out of one head beside Σ weights·V of the rows as logged. */
struct mix {
  bool known;      /* every row with a weight worth speaking of is logged */
  double size;     /* Σ weight·|V| */
  double off;      /* |out − Σ| */
  double off_self; /* the same if the V row of this very step were zero */
};

static double v_at(const struct cut *cut, const float *v, int head, int d) {
  return (double)(cut->interleaved ? v[d * cut->n_head + head] : v[head * cut->head_dim + d]);
}

static struct mix mix_of(const struct attend *a, const struct attend_head *h, double *sum) {
  struct mix m = {.known = h->out && h->weights && h->rows > 0};
  int head_dim = a->cut.head_dim, step = a->check->steps[a->i].step;
  const struct layer_row *self = NULL;
  double self_weight = 0;
  for (int d = 0; d < head_dim; d++) sum[d] = 0;
  for (int row = 0; m.known && row < h->rows; row++) {
    const struct layer_row *r = attend_row(a, row);
    double w = (double)h->weights[row];
    if (!r && row >= a->right) continue; /* a row that nobody wrote is zero */
    if (r && r->v_as_zero) continue;
    if (!r || !r->v) {
      m.known = fabs(w) < 1e-7;
      continue;
    }
    if (r->step == step) self = r, self_weight = w;
    for (int d = 0; d < head_dim; d++) sum[d] += w * v_at(&a->cut, r->v, h->head, d);
    m.size += fabs(w) * (double)r->norm_v[h->head];
  }
  double off = 0, off_self = 0;
  for (int d = 0; m.known && d < head_dim; d++) {
    double apart = (double)h->out[d] - sum[d];
    double apart_self = self ? apart + self_weight * v_at(&a->cut, self->v, h->head, d) : apart;
    off += apart * apart, off_self += apart_self * apart_self;
  }
  m.off = sqrt(off), m.off_self = self ? sqrt(off_self) : INFINITY;
  return m;
}

double attend_mix_noise(const struct attend *a) {
  double *sum = malloc((size_t)a->cut.head_dim * sizeof *sum), least = NAN;
  for (int h = 0; sum && h < a->count; h++) {
    struct mix m = mix_of(a, &a->head[h], sum);
    if (m.known && m.size > 0 && !(m.off / m.size > least)) least = m.off / m.size;
  }
  free(sum);
  return least;
}

static double tolerance_of(const struct attend *a) {
  double noise = a->cache->mix_noise;
  return isnan(noise) ? FINEST : fmin(fmax(8 * noise, FINEST), COARSEST);
}

/* Whether what was logged as this step's V is not what was read. */
static bool self_is_zero(const struct attend *a, const struct mix *m, double within) {
  for (int h = 0; h < a->count; h++)
    if (m[h].known && !(m[h].off_self <= within * m[h].size + 1e-6)) return false;
  return true;
}

static kvs_status note_self(struct attend *a, kvs_error *err) {
  struct fact fact = attend_fact(a, FACT_V_READ_AS_ZERO);
  for (int r = a->cache->done - 1; r >= 0 && a->cache->at[r].step == fact.step; r--) {
    a->cache->at[r].v_as_zero = true;
    fact.row = a->cache->at[r].row;
  }
  return check_note(a->check, &fact, err);
}

kvs_status attend_mix(struct attend *a, kvs_error *err) {
  struct mix m[ATTEND_HEADS];
  int worst = -1;
  double within = tolerance_of(a);
  if (a->foreign) return KVS_OK; /* not this layer's rows: told already */
  double *sum = malloc((size_t)a->cut.head_dim * sizeof *sum);
  if (!sum) return kvs_fail_memory(err, "mixing V rows");
  for (int h = 0; h < a->count; h++) {
    m[h] = mix_of(a, &a->head[h], sum);
    a->check->seen.mixes += m[h].known;
    if (!m[h].known || m[h].off <= within * m[h].size + 1e-6) continue;
    if (worst < 0 || m[h].off > m[worst].off) worst = h;
  }
  free(sum);
  if (worst < 0) return KVS_OK;
  if (self_is_zero(a, m, within)) return note_self(a, err);
  struct fact fact = attend_fact(a, FACT_MIX_WRONG);
  fact.head = a->head[worst].head, fact.found = m[worst].off, fact.right = m[worst].size;
  fact.distance = m[worst].size > 0 ? m[worst].off / m[worst].size : INFINITY;
  return check_note(a->check, &fact, err);
}
