/* numeric.h: kvstep's float32 arithmetic, defined once. Every kernel must give exactly these bits.
 *
 * A sum over i of products is a chain of fused multiply-adds in a stated order, never left to the compiler, the vector width or the
 * number of threads. exp, gelu and erf are written out here because libm's differ in the last bit from one machine to the
 * next. fmaf, sqrtf, + − × ÷ are exact by IEEE 754, and the build forbids contraction (-ffp-contract=off).
 */
#ifndef KVS_ENGINE_NUMERIC_H
#define KVS_ENGINE_NUMERIC_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/half.h"

/* Sums along a vector run in this many lanes: element i goes to lane i mod 16, and the lanes are folded in halves. */
#define KVS_LANES 16

/* Long sums run in blocks of this many terms: each block is a chain of fma that starts at 0, and is then added to the sum. A
 * chain of 3072 terms would lose two more bits. */
#define KVS_BLOCK 64

/* Lanes 0..15 → one number: l += l+8, then l += l+4, l += l+2, l += l+1. */
static inline float kvs_fold(float *lane) {
  for (int half = KVS_LANES / 2; half > 0; half /= 2)
    for (int l = 0; l < half; l++) lane[l] += lane[l + half];
  return lane[0];
}

/* The same of doubles. */
static inline double kvs_fold_double(double *lane) {
  for (int half = KVS_LANES / 2; half > 0; half /= 2)
    for (int l = 0; l < half; l++) lane[l] += lane[l + half];
  return lane[0];
}

/* 2^n by its bits, for a normal result. */
static inline float kvs_pow2(int n) {
  uint32_t bits = (uint32_t)(n + 127) << 23;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* The same in double, n a whole number: beside 2^52 it stands in the lowest bits. */
static inline double kvs_pow2_double(double n) {
  double value = n + (1023 + 0x1p52);
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  bits <<= 52;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* exp(x) = 2^n · exp(r), n = round(x / ln 2), |r| ≤ ln 2 / 2, exp(r) by its Taylor polynomial of degree 7
 * (remainder below 6e-9). 2^n is applied in two halves so that results below 2^-126 come out as subnormals. */
#define KVS_EXP_HIGH 88.7f   /* exp of more would not be finite */
#define KVS_EXP_LOW (-104.f) /* exp of less rounds to 0 */
#define KVS_LOG2E 1.44269504f
#define KVS_LN2_HIGH 0.693359375f /* ln 2 = HIGH + LOW; n·HIGH is exact for |n| < 2^15 */
#define KVS_LN2_LOW (-2.12194440e-4f)
#define KVS_ROUND 12582912.0f /* 1.5·2^23: adding and subtracting it rounds to the nearest integer */

static inline float kvs_expf(float x) {
  x = KVS_EXP_HIGH < x ? KVS_EXP_HIGH : x; /* written so that NaN passes through */
  x = KVS_EXP_LOW > x ? KVS_EXP_LOW : x;
  if (x != x) return x;
  float n = fmaf(x, KVS_LOG2E, KVS_ROUND) - KVS_ROUND;
  float r = fmaf(n, -KVS_LN2_HIGH, x);
  r = fmaf(n, -KVS_LN2_LOW, r);
  float p = 1.0f / 5040;
  p = fmaf(p, r, 1.0f / 720);
  p = fmaf(p, r, 1.0f / 120);
  p = fmaf(p, r, 1.0f / 24);
  p = fmaf(p, r, 1.0f / 6);
  p = fmaf(p, r, 1.0f / 2);
  p = fmaf(p, r, 1.0f);
  p = fmaf(p, r, 1.0f);
  int whole = (int)n, half = whole >> 1;
  return p * kvs_pow2(half) * kvs_pow2(whole - half);
}

/* gelu_new(x) = x/2·(1 + tanh u), u = sqrt(2/π)·(x + 0.044715 x³), which is x / (1 + exp(−2u)). */
#define KVS_GELU_CUBE 0.044715f
#define KVS_GELU_MINUS_2C (-1.59576912f) /* −2·sqrt(2/π) */

static inline float kvs_gelu_new(float x) {
  float cube = x * x * x;
  float u = fmaf(KVS_GELU_CUBE, cube, x);
  return x / (1.0f + kvs_expf(KVS_GELU_MINUS_2C * u));
}

/* gelu(x) = x/2·(1 + erf(x/√2)), in double; numeric.c. */
float kvs_gelu_erf(float x);

/* exp in double to about 1e-16, the same bits on every machine: for erf and for sampling. numeric.c. */
double kvs_exp(double x);

/* The same for −745.2 < x ≤ 709.7: 2^n · exp(r), |r| ≤ ln 2 / 2, exp(r) by its Taylor polynomial of degree 13 (remainder below
 * 5e-18). Plain products and sums: no fma here, since where the CPU has none it is a slow call, and a step takes one exp for
 * each word of the vocabulary. */
static inline double kvs_exp_within(double x) {
  double n = (x * 1.4426950408889634 + 0x1.8p52) - 0x1.8p52;        /* rounded to the nearest integer */
  double r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33; /* ln 2 in two parts; n times the first is exact */
  double p = 1.0 / 6227020800;
  p = p * r + 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 1.0 / 2;
  p = p * r + 1.0;
  p = p * r + 1.0;
  double half = (n * 0.5 - 0.25 + 0x1.8p52) - 0x1.8p52; /* ⌊n / 2⌋: in two halves, so that subnormal results come out */
  return p * kvs_pow2_double(half) * kvs_pow2_double(n - half);
}

/* sums[0] = Σ exp(d), sums[1] = Σ exp(d)·d with d = x[i] − max ≤ 0, in lanes as above; 0·−∞ counts as 0, a NaN stays. Each file of
 * kernels compiles it for its own vectors. */
static inline void kvs_exp_sums_in_lanes(const float *x, int n, double max, double *sums) {
  enum { PART = 16 * KVS_LANES };
  double sum[KVS_LANES] = {0}, weighted[KVS_LANES] = {0}, d[PART], e[PART];
  for (int first = 0; first < n; first += PART) {
    int count = n - first < PART ? n - first : PART;
    for (int i = 0; i < count; i++) d[i] = (double)x[first + i] - max;
    for (int i = count; i < PART; i++) d[i] = -INFINITY;
    for (int i = 0; i < PART; i++) {
      double within = kvs_exp_within(d[i] > -745.2 ? d[i] : 0.0), nothing = d[i] == d[i] ? 0.0 : d[i];
      e[i] = d[i] > -745.2 ? within : nothing;
    }
    for (int i = 0; i < PART; i++) d[i] = e[i] == 0 ? 0.0 : e[i] * d[i];
    for (int i = 0; i < PART; i += KVS_LANES)
      for (int l = 0; l < KVS_LANES; l++) sum[l] += e[i + l], weighted[l] += d[i + l];
  }
  sums[0] = kvs_fold_double(sum), sums[1] = kvs_fold_double(weighted);
}

/* ln x for a normal x > 0, within one ulp; the same bits on every machine. x = 2^n · m, √½ ≤ m < √2, f = m − 1 (exact). With
 * s = f / (2 + f), ln m = 2 artanh s = 2s + s·R, where R = 2/3·s² + 2/5·s⁴ + … (Abramowitz & Stegun 4.1.27; the remainder after
 * s²⁰ is below 6e-19 of the whole). Since 2s = f − s·f, that is f − s·(f − R): what is rounded is small beside f. No fma, as
 * above. A float32 is normal as a double, also where it is not as a float. */
static inline double kvs_log_within(double x) {
  uint64_t bits, power;
  memcpy(&bits, &x, sizeof bits);
  power = (bits + (0x3FF0000000000000u - 0x3FE6A09E667F3BCDu)) >> 52; /* n + 1023; √½ is 0x3FE6A09E667F3BCD */
  bits -= (power - 1023) << 52;
  power |= 0x4330000000000000u; /* beside 2^52, as in kvs_pow2_double */
  double m, n;
  memcpy(&m, &bits, sizeof m);
  memcpy(&n, &power, sizeof n);
  n -= 0x1p52 + 1023;
  double f = m - 1, s = f / (m + 1), z = s * s;
  double p = 2.0 / 21;
  p = p * z + 2.0 / 19;
  p = p * z + 2.0 / 17;
  p = p * z + 2.0 / 15;
  p = p * z + 2.0 / 13;
  p = p * z + 2.0 / 11;
  p = p * z + 2.0 / 9;
  p = p * z + 2.0 / 7;
  p = p * z + 2.0 / 5;
  p = p * z + 2.0 / 3;
  return n * 0x1.62e42feep-1 + (f - (s * (f - z * p) - n * 0x1.a39ef35793c76p-33)); /* ln 2 in two parts, as above */
}

/* w·ln w of a weight, which was a float32; 0 for one that is not positive, NaN for NaN, ∞ for ∞. */
static inline double kvs_w_ln_w(double w) {
  double positive = w > 0 ? w : 1.0, product = positive * kvs_log_within(positive);
  return w == w ? product : w;
}

/* sums[0] = Σ w[i], sums[1] = −Σ w[i]·ln w[i], in lanes as above. */
static inline void kvs_weight_sums_in_lanes(const float *w, int n, double *sums) {
  double sum[KVS_LANES] = {0}, entropy[KVS_LANES] = {0};
  for (int i = 0; i < n; i += KVS_LANES) {
    float rest[KVS_LANES] = {0};
    const float *from = n - i < KVS_LANES ? memcpy(rest, w + i, (size_t)(n - i) * sizeof *w) : w + i;
    for (int l = 0; l < KVS_LANES; l++) sum[l] += (double)from[l], entropy[l] -= kvs_w_ln_w((double)from[l]);
  }
  sums[0] = kvs_fold_double(sum), sums[1] = kvs_fold_double(entropy);
}

/* The first i with x[i] ≥ least, or n. So many comparisons at once that the compiler makes vectors of them. */
static inline int kvs_first_from_in_blocks(const float *x, int n, float least) {
  enum { SIDE_BY_SIDE = 32 };
  int i = 0;
  for (; i + SIDE_BY_SIDE <= n; i += SIDE_BY_SIDE) {
    int any = 0;
    for (int l = 0; l < SIDE_BY_SIDE; l++) any |= x[i + l] >= least;
    if (any) break;
  }
  while (i < n && !(x[i] >= least)) i++;
  return i;
}

static inline float kvs_relu(float x) { return x < 0 ? 0 : x; }

#endif
