/* summary.c: the largest of a vector, the logits' probabilities and entropy, a head's entropy and sum. */
#include "engine/summary.h"

#include <math.h>

#include "engine/kernels.h"
#include "kvstep/engine.h"

static int argmax(const kvs_kernels *kernels, const float *x, int n) {
  int at = kernels->first_from(x, n, kernels->largest(x, n));
  return at < n ? at : -1;
}

int kvs_argmax(const float *x, int n) { return argmax(kvs_kernels_find(NULL), x, n); }

int kvs_best_tokens(const float *logits, int n_vocab, int *best, int room) {
  const kvs_kernels *kernels = kvs_kernels_find(NULL);
  float least = -INFINITY; /* what a token must have to be among the best, once there are `room` */
  int count = 0, token = 0;
  while ((token += kernels->first_from(logits + token, n_vocab - token, least)) < n_vocab) {
    int at = count < room ? count++ : count - 1;
    for (; at > 0 && logits[token] > logits[best[at - 1]]; at--) best[at] = best[at - 1];
    best[at] = token++;
    if (count < room) continue;
    if (logits[best[count - 1]] == INFINITY) break;
    least = nextafterf(logits[best[count - 1]], INFINITY); /* an equal one comes too late */
  }
  return count;
}

/* The largest logit, ln Σ exp(logit − largest) so that nothing overflows, and the entropy, in one pass:
 * −Σ p·ln p = ln Σ − Σ exp(d)·d / Σ, where d = logit − largest. */
typedef struct distribution {
  double max, log_sum, entropy;
} distribution;

static distribution distribution_of(const float *logits, int n_vocab) {
  const kvs_kernels *kernels = kvs_kernels_find(NULL);
  int best = argmax(kernels, logits, n_vocab);
  distribution of = {.max = best < 0 ? NAN : (double)logits[best]};
  double sums[2];
  kernels->exp_sums(logits, n_vocab, of.max, sums);
  of.log_sum = log(sums[0]);
  of.entropy = of.log_sum - sums[1] / sums[0];
  return of;
}

kvs_top kvs_logits_top(const float *logits, int n_vocab) {
  distribution of = distribution_of(logits, n_vocab);
  return (kvs_top){of.max, -of.log_sum, of.entropy};
}

double kvs_logprob(const float *logits, int n_vocab, int token) {
  distribution of = distribution_of(logits, n_vocab);
  return (double)logits[token] - of.max - of.log_sum;
}

double kvs_entropy(const float *logits, int n_vocab) { return distribution_of(logits, n_vocab).entropy; }

kvs_weights_summary kvs_summarize_weights(const float *w, int rows) {
  const kvs_kernels *kernels = kvs_kernels_for_few();
  double sums[2];
  kernels->weight_sums(w, rows, sums);
  return (kvs_weights_summary){.entropy = sums[1], .sum = sums[0], .max_row = argmax(kernels, w, rows)};
}
