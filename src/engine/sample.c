/* sample.c: choosing the next token: greedy, or by chance with temperature, top-k and top-p. */
#include "kvstep/engine.h"

#include <math.h>
#include <stdlib.h>

#include "engine/numeric.h"
#include "engine/summary.h"

typedef struct candidate {
  int token;
  float logit;
  double probability;
} candidate;

struct kvs_sampler {
  kvs_sampling sampling;
  int n_vocab;
  uint64_t state;
  candidate *candidates; /* [n_vocab] */
};

kvs_status kvs_sampler_create(const kvs_sampling *sampling, int n_vocab, kvs_sampler **out, kvs_error *err) {
  *out = NULL;
  if (!(sampling->temperature >= 0) || !isfinite(sampling->temperature))
    return kvs_fail(err, KVS_ERR_USAGE, "temperature %g: give 0 (greedy) or more", sampling->temperature);
  if (sampling->top_k < 0) return kvs_fail(err, KVS_ERR_USAGE, "top-k %d: give 0 (all) or more", sampling->top_k);
  if (!(sampling->top_p > 0 && sampling->top_p <= 1))
    return kvs_fail(err, KVS_ERR_USAGE, "top-p %g: give more than 0, at most 1 (all)", sampling->top_p);
  kvs_sampler *sampler = calloc(1, sizeof *sampler);
  candidate *candidates = calloc((size_t)n_vocab, sizeof *candidates);
  if (!sampler || !candidates) {
    free(sampler);
    free(candidates);
    return kvs_fail_memory(err, "creating the sampler");
  }
  *sampler = (kvs_sampler){*sampling, n_vocab, sampling->seed, candidates};
  *out = sampler;
  return KVS_OK;
}

void kvs_sampler_free(kvs_sampler *sampler) {
  if (!sampler) return;
  free(sampler->candidates);
  free(sampler);
}

/* SplitMix64 (Steele, Lea and Flood 2014), and its upper 53 bits as a number in [0, 1). */
static double uniform(uint64_t *state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  return (double)(z >> 11) * 0x1p-53;
}

/* Largest logit first, lowest id among equals; NaN last. A total order, so every qsort gives the same result. */
static int by_logit(const void *left, const void *right) {
  const candidate *a = left, *b = right;
  if (isnan(a->logit) != isnan(b->logit)) return isnan(a->logit) ? 1 : -1;
  if (a->logit != b->logit && !isnan(a->logit)) return a->logit > b->logit ? -1 : 1;
  return a->token < b->token ? -1 : a->token > b->token;
}

static int greedy(const float *logits, int n_vocab) {
  int best = kvs_argmax(logits, n_vocab);
  return best < 0 ? 0 : best; /* nothing but NaN */
}

int kvs_sampler_next(kvs_sampler *sampler, const float *logits) {
  const kvs_sampling *s = &sampler->sampling;
  if (s->temperature == 0) return greedy(logits, sampler->n_vocab);
  candidate *c = sampler->candidates;
  for (int i = 0; i < sampler->n_vocab; i++) c[i] = (candidate){i, logits[i], 0};
  qsort(c, (size_t)sampler->n_vocab, sizeof *c, by_logit);
  int kept = s->top_k > 0 && s->top_k < sampler->n_vocab ? s->top_k : sampler->n_vocab;
  double sum = 0;
  for (int i = 0; i < kept; i++) {
    double below = ((double)c[i].logit - (double)c[0].logit) / s->temperature;
    c[i].probability = isnan(below) ? 0 : kvs_exp(below);
    sum += c[i].probability;
  }
  if (!(sum > 0)) return c[0].token; /* nothing but NaN */
  double mass = 0;
  int within = 0; /* the smallest set that reaches top_p, at least one */
  while (within < kept && (within == 0 || mass < s->top_p * sum)) mass += c[within++].probability;
  double mark = uniform(&sampler->state) * mass;
  for (int i = 0; i < within; i++) {
    mark -= c[i].probability;
    if (mark < 0) return c[i].token;
  }
  return c[within - 1].token;
}
