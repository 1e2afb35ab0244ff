/* numeric.c: exp and erf in double, written out so that every machine gives the same bits. */
#include "engine/numeric.h"

double kvs_exp(double x) {
  if (!(x > -745.2)) return x == x ? 0.0 : x;
  if (x > 709.7) return INFINITY;
  return kvs_exp_within(x);
}

/* erf(z) = 2/√π · exp(−z²) · Σ 2^k z^(2k+1) / (1·3·5·…·(2k+1)) (Abramowitz & Stegun 7.1.6): all terms of one sign, so nothing cancels. */
static double erf_series(double z) {
  double term = z, sum = z;
  for (int k = 1; term > 1e-17 * sum; k++) {
    term *= 2 * z * z / (2 * k + 1);
    sum += term;
  }
  return 1.1283791670955126 * kvs_exp(-z * z) * sum;
}

float kvs_gelu_erf(float x) {
  double z = fabs((double)x) * 0.70710678118654752440;
  double erf = z > 6 ? 1.0 : z > 0 ? erf_series(z) : 0.0;
  if (x != x) return x;
  return (float)(0.5 * (double)x * (1.0 + (x < 0 ? -erf : erf)));
}
