/* numeric.c: exp and erf in double, written out so that every machine gives the same bits. */
#include "engine/numeric.h"

/* 2^n · exp(r), |r| ≤ ln 2 / 2, exp(r) by its Taylor polynomial of degree 13 (remainder below 5e-18). Plain products and sums:
 * no fma here, since where the CPU has none it is a slow call, and a step takes one exp for each word of the vocabulary. */
double kvs_exp(double x) {
  if (!(x > -745.2)) return x == x ? 0.0 : x;
  if (x > 709.7) return INFINITY;
  double n = (x * 1.4426950408889634 + 0x1.8p52) - 0x1.8p52;        /* rounded to the nearest integer */
  double r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33; /* ln 2 in two parts; n times the first is exact */
  double p = 1.0 / 6227020800;
  const double inverse_factorial[] = {
      1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
      1.0 / 120,       1.0 / 24,       1.0 / 6,       1.0 / 2,      1.0,         1.0};
  for (int k = 0; k < 13; k++) p = p * r + inverse_factorial[k];
  int whole = (int)n, half = whole >> 1; /* in two halves, so that subnormal results come out */
  return p * kvs_pow2_double(half) * kvs_pow2_double(whole - half);
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
