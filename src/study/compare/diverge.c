/* diverge.c: how far two runs are apart in one step. */
#include "study/compare/diverge.h"

#include <math.h>

/* ln Σ exp(logit), with the maximum taken out so that no exp overflows. NaN if there is no finite maximum. */
static double log_sum_exp(const float *logits, int count) {
  double most = -INFINITY, sum = 0;
  for (int i = 0; i < count; i++)
    if ((double)logits[i] > most) most = (double)logits[i];
  if (!isfinite(most)) return NAN;
  for (int i = 0; i < count; i++) sum += exp((double)logits[i] - most);
  return most + log(sum);
}

double diverge_kl(const float *logits_a, const float *logits_b, int count) {
  double whole_a = log_sum_exp(logits_a, count), whole_b = log_sum_exp(logits_b, count), sum = 0;
  if (isnan(whole_a) || isnan(whole_b)) return NAN;
  for (int i = 0; i < count; i++) {
    double log_a = (double)logits_a[i] - whole_a, p = exp(log_a);
    if (p > 0) sum += p * (log_a - ((double)logits_b[i] - whole_b));
  }
  return sum < 0 ? 0 : sum;
}

double diverge_max_abs(const float *a, const float *b, int count) {
  double most = count > 0 ? 0 : NAN;
  for (int i = 0; i < count; i++) {
    double apart = a[i] == b[i] ? 0 : fabs((double)a[i] - (double)b[i]);
    if (isnan(apart)) return NAN;
    if (apart > most) most = apart;
  }
  return most;
}

int diverge_top(const float *values, int count) {
  int top = -1;
  for (int i = 0; i < count; i++)
    if (!isnan(values[i]) && (top < 0 || values[i] > values[top])) top = i;
  return top;
}

double diverge_attention(const float *a, int rows_a, const float *b, int rows_b) {
  double sum = 0;
  for (int row = 0; row < rows_a || row < rows_b; row++)
    sum += fabs((row < rows_a ? (double)a[row] : 0) - (row < rows_b ? (double)b[row] : 0));
  return sum / 2;
}

int diverge_other(int run, int chosen, int runs) {
  if (runs < 2) return 0;
  if (chosen >= 1 && chosen <= runs && chosen != run) return chosen;
  return run == 1 ? 2 : 1;
}

int diverge_next_other(int run, int chosen, int runs) {
  if (runs < 2) return 0;
  int next = diverge_other(run, chosen, runs);
  do next = next % runs + 1;
  while (next == run);
  return next;
}
