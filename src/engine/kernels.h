/* kernels.h: the inner loops, as a table of functions for each instruction set. All tables give the same bits
 * (numeric.h says which); kernels_reference.c is their definition in plain C. */
#ifndef KVS_ENGINE_KERNELS_H
#define KVS_ENGINE_KERNELS_H

#include "model/weights.h"

typedef struct kvs_kernels {
  const char *name;

  /* to[i] = row[i], widened to float32. n elements. */
  void (*widen)(float *to, const void *row, kvs_dtype dtype, int n);

  /* y[r][j] = b[j] + Σ_i x[r][i]·w[i][j] for r < rows and begin ≤ j < end: i ascending, in blocks of KVS_BLOCK, one fma a
   * term. x [rows][w.rows], y [rows][w.cols]. `pack` is this thread's own room for KVS_PACK_FLOATS floats. */
  void (*linear)(float *y, const float *x, int rows, const kvs_linear *linear, int begin, int end, float *pack);

  /* One row of x in two steps, for the same sums as linear's. First sums[b][j] = Σ_i x[i]·w[i][j], i in block b, for
   * first ≤ b < last and begin ≤ j < end. x [w.rows], sums [blocks of w.rows][w.cols]. */
  void (*block_sums)(float *sums, const float *x, const kvs_tensor *w, int first, int last, int begin, int end);

  /* Then y[j] = bias[j] + Σ_b sums[b][j], b ascending, for begin ≤ j < end. sums [blocks][cols]. */
  void (*add_blocks)(float *y, const float *bias, const float *sums, int blocks, int cols, int begin, int end);

  /* y[r·y_stride + j] = Σ_i x[r][i]·w[j][i] for begin ≤ j < end: sums in KVS_LANES lanes, folded. x [rows][w.cols]. */
  void (*dot_rows)(float *y, int y_stride, const float *x, int rows, const kvs_tensor *w, int begin, int end);

  /* scores[i] = scale · Σ_d q[d]·k[i·stride + d], i < rows, lanes as above. */
  void (*score)(float *scores, const float *q, const float *k, int stride, int rows, int head_dim, float scale);

  /* weights[i] = exp(scores[i] − max) / Σ, the sum in lanes. rows ≥ 1. */
  void (*softmax)(float *weights, const float *scores, int rows);

  /* out[d] = Σ_i weights[i]·v[i·stride + d], i ascending, in blocks of KVS_BLOCK, one fma a term. */
  void (*mix)(float *out, const float *weights, const float *v, int stride, int rows, int head_dim);

  /* y = g·((x − mean)/sqrt(var + epsilon)) + b; sums in lanes. n elements. */
  void (*layer_norm)(float *y, const float *x, const kvs_norm *norm, float epsilon, int n);

  /* The largest of x [n], NaN left out; −∞ where there is no other. */
  float (*largest)(const float *x, int n);

  /* sums[0] = Σ exp(x[i] − max), sums[1] = Σ exp(x[i] − max)·(x[i] − max), in double; max is the largest x. */
  void (*exp_sums)(const float *x, int n, double max, double *sums);

  /* sums[0] = Σ w[i], sums[1] = −Σ w[i]·ln w[i] in double, as kvs_w_ln_w has it. n weights. */
  void (*weight_sums)(const float *w, int n, double *sums);

  /* The first i with x[i] ≥ least; n where there is none. NaN is not. */
  int (*first_from)(const float *x, int n, float least);

  /* x[i] = activation(x[i]) in place. */
  void (*activate)(float *x, size_t n, kvs_activation activation);
} kvs_kernels;

#define KVS_PACK_FLOATS (512 * 400 + 384 * 32) /* what kernels_vector.h packs: about what a second-level cache holds */

/* The table called `name`, or the fastest one for NULL; NULL if this CPU has none of that name. */
const kvs_kernels *kvs_kernels_find(const char *name);

/* The fastest for some hundred numbers between other work: not AVX-512, since what is wider than AVX2 in the CPU sleeps while it is
 * not used, and waking takes longer than is saved. */
const kvs_kernels *kvs_kernels_for_few(void);

extern const kvs_kernels kvs_kernels_reference;
#if defined(__x86_64__)
extern const kvs_kernels kvs_kernels_avx2, kvs_kernels_avx512;
#elif defined(__aarch64__)
extern const kvs_kernels kvs_kernels_neon;
#endif

#endif
