/* kernels_vector.h: the inner loops, written once for vectors of any width. A file for one instruction set defines the vectors
 * (list below) and includes this one, which ends in the kernels' functions.
 *
 * Columns, rows of K and dimensions of V are independent of each other, so they go side by side in vectors and registers;
 * what is summed stays in the order that numeric.h defines. So every width gives the same bits.
 *
 * To be defined before:
 *   vec, WIDTH                            a vector of WIDTH (4, 8 or 16) floats
 *   v_zero() v_set(x) v_load(p) v_store(p, v)
 *   v_load_some(p, n) v_store_some(p, v, n)  the first n (0 … WIDTH) floats, the others 0; memory behind them is not touched
 *   v_load_f16(p) v_load_bf16(p)          WIDTH 16-bit numbers, widened
 *   v_fma(a, b, c)                        a·b + c, rounded once
 *   v_add v_sub v_mul v_div
 *   v_greater(a, b)                       a > b ? a : b      (so b where one is NaN)
 *   v_less(a, b)                          a < b ? a : b
 *   v_times_pow2(p, n)                    p · 2^(n >> 1) · 2^(n − (n >> 1)) for whole n
 *   v_nan_of(x, v)                        x where x is NaN, else v
 *   v_fold4(out, sums)                    four times kvs_fold: out[u] of the lanes sums[u][0 … LANE_VECS)
 *   TILE_ROWS, TILE_VECS                  the largest tile of y that fits the registers
 *   GROUP_MOST                            vectors of y that a single row of x fills at once, at most
 *   DOT_WORDS                             rows of w (4 or 8) whose dot products with a row of x are under way at once
 *   DOT_ROWS                              rows of x for which four of them are
 *   MIX_BLOCKS                            blocks of V rows under way at once
 */

#define LANE_VECS (KVS_LANES / WIDTH)
#define INLINE static inline __attribute__((always_inline))

INLINE float load1(const void *data, kvs_dtype dtype, size_t i) {
  switch (dtype) {
  case KVS_F16:
    return kvs_widen_f16(((const uint16_t *)data)[i]);
  case KVS_BF16:
    return kvs_widen_bf16(((const uint16_t *)data)[i]);
  default:
    return ((const float *)data)[i];
  }
}

/* WIDTH weights from element i on, widened. Inlined with a constant dtype, the choice disappears. */
INLINE vec load(const void *data, kvs_dtype dtype, size_t i) {
  if (dtype == KVS_F32) return v_load((const float *)data + i);
  if (dtype == KVS_F16) return v_load_f16((const uint16_t *)data + i);
  return v_load_bf16((const uint16_t *)data + i);
}

/* The first n of them (any n; more than WIDTH is WIDTH), the others 0. */
INLINE vec load_some(const void *data, kvs_dtype dtype, size_t i, int n) {
  if (n >= WIDTH) return load(data, dtype, i);
  if (n <= 0) return v_zero();
  if (dtype == KVS_F32) return v_load_some((const float *)data + i, n);
  float wide[WIDTH] = {0};
  for (int l = 0; l < n; l++) wide[l] = load1(data, dtype, i + (size_t)l);
  return v_load(wide);
}

static void widen(float *to, const void *row, kvs_dtype dtype, int n) {
  int i = 0;
  for (; i + WIDTH <= n; i += WIDTH) v_store(to + i, load(row, dtype, (size_t)i));
  for (; i < n; i++) to[i] = load1(row, dtype, (size_t)i);
}

/* A whole dot product's sum. */
INLINE float fold(const vec lanes[LANE_VECS]) {
  float lane[KVS_LANES];
  for (int l = 0; l < LANE_VECS; l++) v_store(lane + l * WIDTH, lanes[l]);
  return kvs_fold(lane);
}

#include "engine/kernels_linear.h"

/* ---- sums in lanes ------------------------------------------------------------------------------------------------ */

INLINE float dot(const float *a, const void *b, kvs_dtype dtype, size_t b_at, int n) {
  vec sum[LANE_VECS];
  for (int l = 0; l < LANE_VECS; l++) sum[l] = v_zero();
  for (int i = 0; i < n; i += KVS_LANES) /* missing elements count as 0·0 */
    for (int l = 0; l < LANE_VECS; l++) {
      int at = i + l * WIDTH;
      sum[l] = v_fma(load_some(a, KVS_F32, (size_t)at, n - at), load_some(b, dtype, b_at + (size_t)at, n - at), sum[l]);
    }
  return fold(sum);
}

/* The sums of a[r]·b[u] for `rows` ≤ DOT_ROWS rows of a and `words` rows of b, all under way at once. */
INLINE void dot_sums(vec sum[][DOT_WORDS][LANE_VECS], const float *a, size_t a_stride, int rows, const void *b,
                     kvs_dtype dtype, size_t b_at, size_t b_stride, int words, int n) {
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
    for (int u = 0; u < words; u++)
#pragma GCC unroll 4
      for (int l = 0; l < LANE_VECS; l++) sum[r][u][l] = v_zero();
  int i = 0;
  for (; i + KVS_LANES <= n; i += KVS_LANES)
#pragma GCC unroll 4
    for (int l = 0; l < LANE_VECS; l++) {
      size_t at = (size_t)(i + l * WIDTH);
#pragma GCC unroll 8
      for (int u = 0; u < words; u++) {
        size_t b_from = b_at + (size_t)u * b_stride + at;
        vec b_u = load(b, dtype, b_from);
        if (dtype != KVS_F32 && rows == 1) __builtin_prefetch((const uint16_t *)b + b_from + 512, 0, 2);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) sum[r][u][l] = v_fma(v_load(a + (size_t)r * a_stride + at), b_u, sum[r][u][l]);
      }
    }
  if (i < n)
    for (int l = 0; l < LANE_VECS; l++) {
      int at = i + l * WIDTH, left = n - at;
      for (int u = 0; u < words; u++) {
        vec b_u = load_some(b, dtype, b_at + (size_t)u * b_stride + (size_t)at, left);
        for (int r = 0; r < rows; r++)
          sum[r][u][l] = v_fma(load_some(a, KVS_F32, (size_t)r * a_stride + (size_t)at, left), b_u, sum[r][u][l]);
      }
    }
}

/* One row of x: the share is read in DOT_WORDS places side by side, each from its begin to its end. Returns the first word
 * that is left over. */
INLINE int dot_streams(float *y, const float *x, const kvs_tensor *w, kvs_dtype dtype, int begin, int end) {
  int apart = (end - begin) / DOT_WORDS;
  size_t n = (size_t)w->cols;
  for (int j = begin; j < begin + apart; j++) {
    vec sum[1][DOT_WORDS][LANE_VECS];
    dot_sums(sum, x, 0, 1, w->data, dtype, (size_t)j * n, (size_t)apart * n, DOT_WORDS, w->cols);
#pragma GCC unroll 2
    for (int u = 0; u < DOT_WORDS; u += 4) {
      float four[4];
      v_fold4(four, sum[0] + u);
      for (int f = 0; f < 4; f++) y[j + (u + f) * apart] = four[f];
    }
  }
  return begin + DOT_WORDS * apart;
}

INLINE void dot_rows_of(float *y, int y_stride, const float *x, int rows, const kvs_tensor *w, kvs_dtype dtype,
                        int begin, int end) {
  size_t n = (size_t)w->cols, stride = (size_t)y_stride;
  vec sum[DOT_ROWS][DOT_WORDS][LANE_VECS];
  int j = rows == 1 ? dot_streams(y, x, w, dtype, begin, end) : begin;
  for (; j + 4 <= end; j += 4) {
    int r = 0;
    for (; DOT_ROWS > 1 && r + DOT_ROWS <= rows; r += DOT_ROWS) {
      dot_sums(sum, x + (size_t)r * n, n, DOT_ROWS, w->data, dtype, (size_t)j * n, n, 4, w->cols);
#pragma GCC unroll 4
      for (int s = 0; s < DOT_ROWS; s++) v_fold4(y + (size_t)(r + s) * stride + j, sum[s]);
    }
    for (; r < rows; r++) {
      dot_sums(sum, x + (size_t)r * n, 0, 1, w->data, dtype, (size_t)j * n, n, 4, w->cols);
      v_fold4(y + (size_t)r * stride + j, sum[0]);
    }
  }
  for (; j < end; j++)
    for (int r = 0; r < rows; r++)
      y[(size_t)r * stride + (size_t)j] = dot(x + (size_t)r * n, w->data, dtype, (size_t)j * n, w->cols);
}

static void dot_rows(float *y, int y_stride, const float *x, int rows, const kvs_tensor *w, int begin, int end) {
  if (w->dtype == KVS_F32)
    dot_rows_of(y, y_stride, x, rows, w, KVS_F32, begin, end);
  else if (w->dtype == KVS_F16)
    dot_rows_of(y, y_stride, x, rows, w, KVS_F16, begin, end);
  else
    dot_rows_of(y, y_stride, x, rows, w, KVS_BF16, begin, end);
}

/* ---- attention ---------------------------------------------------------------------------------------------------- */

static void score(float *scores, const float *q, const float *k, int stride, int rows, int head_dim, float scale) {
  int i = 0;
  for (; i + 4 <= rows; i += 4) {
    float four[4];
    vec sum[1][DOT_WORDS][LANE_VECS];
    dot_sums(sum, q, 0, 1, k, KVS_F32, (size_t)i * (size_t)stride, (size_t)stride, 4, head_dim);
    v_fold4(four, sum[0]);
    for (int u = 0; u < 4; u++) scores[i + u] = four[u] * scale;
  }
  for (; i < rows; i++) scores[i] = dot(q, k, KVS_F32, (size_t)i * (size_t)stride, head_dim) * scale;
}

/* kvs_expf: the same operations in the same order. */
INLINE vec v_exp(vec given) {
  vec x = v_greater(v_set(KVS_EXP_LOW), v_less(v_set(KVS_EXP_HIGH), given)); /* NaN passes */
  vec magic = v_set(KVS_ROUND);
  vec n = v_sub(v_fma(x, v_set(KVS_LOG2E), magic), magic);
  vec r = v_fma(n, v_set(-KVS_LN2_HIGH), x);
  r = v_fma(n, v_set(-KVS_LN2_LOW), r);
  vec p = v_set(1.0f / 5040);
  static const float c[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 1.0f / 2, 1.0f, 1.0f};
#pragma GCC unroll 8
  for (int i = 0; i < 7; i++) p = v_fma(p, r, v_set(c[i]));
  return v_nan_of(x, v_times_pow2(p, n));
}

static float largest(const float *x, int n) {
  vec most[4];
  for (int u = 0; u < 4; u++) most[u] = v_set(-INFINITY);
  int i = 0;
  for (; i + 4 * WIDTH <= n; i += 4 * WIDTH)
    for (int u = 0; u < 4; u++) most[u] = v_greater(v_load(x + i + u * WIDTH), most[u]);
  for (; i + WIDTH <= n; i += WIDTH) most[0] = v_greater(v_load(x + i), most[0]);
  float lane[WIDTH];
  v_store(lane, v_greater(v_greater(most[0], most[1]), v_greater(most[2], most[3])));
  for (int l = 1; l < WIDTH; l++) lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
  for (; i < n; i++) lane[0] = x[i] > lane[0] ? x[i] : lane[0];
  return lane[0];
}

static void softmax(float *weights, const float *scores, int rows) {
  /* A NaN in front is the largest by the definition's order. Which of two equal zeros is found makes no difference. */
  vec max = v_set(scores[0] == scores[0] ? largest(scores, rows) : scores[0]), sum[LANE_VECS];
  for (int l = 0; l < LANE_VECS; l++) sum[l] = v_zero();
  for (int i = 0; i < rows; i += KVS_LANES)
    for (int l = 0; l < LANE_VECS; l++) {
      int at = i + l * WIDTH, left = rows - at;
      if (left >= WIDTH) {
        vec e = v_exp(v_sub(v_load(scores + at), max));
        v_store(weights + at, e);
        sum[l] = v_add(sum[l], e);
      } else if (left > 0) {
        v_store_some(weights + at, v_exp(v_sub(v_load_some(scores + at, left), max)), left);
        sum[l] = v_add(sum[l], v_load_some(weights + at, left));
      }
    }
  float total = fold(sum);
  vec divisor = v_set(total);
  int i = 0;
  for (; i + WIDTH <= rows; i += WIDTH) v_store(weights + i, v_div(v_load(weights + i), divisor));
  for (; i < rows; i++) weights[i] /= total;
}

/* `vecs` vectors (the last one `some` long) of out over `blocks` blocks of rows at once, `rows` in each. */
INLINE void mix_blocks(vec *total, const float *weights, const float *v, size_t stride, int rows, int vecs, int some,
                       int blocks) {
  vec sum[MIX_BLOCKS][64 / WIDTH];
#pragma GCC unroll 2
  for (int b = 0; b < blocks; b++)
#pragma GCC unroll 16
    for (int c = 0; c < vecs; c++) sum[b][c] = v_zero();
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
    for (int b = 0; b < blocks; b++) {
      vec w = v_set(weights[b * KVS_BLOCK + i]);
      const float *row = v + (size_t)(b * KVS_BLOCK + i) * stride;
#pragma GCC unroll 16
      for (int c = 0; c < vecs; c++)
        sum[b][c] = v_fma(w, some < WIDTH ? v_load_some(row + c * WIDTH, some) : v_load(row + c * WIDTH), sum[b][c]);
    }
#pragma GCC unroll 2
  for (int b = 0; b < blocks; b++)
#pragma GCC unroll 16
    for (int c = 0; c < vecs; c++) total[c] = v_add(total[c], sum[b][c]);
}

INLINE void mix_some(float *out, const float *weights, const float *v, size_t stride, int rows, int vecs, int some) {
  vec total[64 / WIDTH];
  for (int c = 0; c < vecs; c++) total[c] = v_zero();
  int i = 0;
  for (; MIX_BLOCKS > 1 && i + MIX_BLOCKS * KVS_BLOCK <= rows; i += MIX_BLOCKS * KVS_BLOCK)
    mix_blocks(total, weights + i, v + (size_t)i * stride, stride, KVS_BLOCK, vecs, some, MIX_BLOCKS);
  for (; i < rows; i += KVS_BLOCK)
    mix_blocks(total, weights + i, v + (size_t)i * stride, stride, rows - i < KVS_BLOCK ? rows - i : KVS_BLOCK, vecs,
               some, 1);
  for (int c = 0; c < vecs; c++)
    if (some < WIDTH)
      v_store_some(out, total[c], some);
    else
      v_store(out + c * WIDTH, total[c]);
}

static void mix(float *out, const float *weights, const float *v, int stride, int rows, int head_dim) {
  int d = 0;
  for (; d + 64 <= head_dim; d += 64) mix_some(out + d, weights, v + d, (size_t)stride, rows, 64 / WIDTH, WIDTH);
  for (; d + 2 * WIDTH <= head_dim; d += 2 * WIDTH) mix_some(out + d, weights, v + d, (size_t)stride, rows, 2, WIDTH);
  for (; d + WIDTH <= head_dim; d += WIDTH) mix_some(out + d, weights, v + d, (size_t)stride, rows, 1, WIDTH);
  if (d < head_dim) mix_some(out + d, weights, v + d, (size_t)stride, rows, 1, head_dim - d);
}

/* ---- element by element -------------------------------------------------------------------------------------------- */

static void layer_norm(float *y, const float *x, const kvs_norm *norm, float epsilon, int n) {
  vec sum[LANE_VECS], square[LANE_VECS];
  for (int l = 0; l < LANE_VECS; l++) sum[l] = square[l] = v_zero();
  for (int i = 0; i < n; i += KVS_LANES)
    for (int l = 0; l < LANE_VECS; l++) {
      int at = i + l * WIDTH;
      sum[l] = v_add(sum[l], load_some(x, KVS_F32, (size_t)at, n - at));
    }
  float mean = fold(sum) / (float)n;
  vec means = v_set(mean);
  for (int i = 0; i < n; i += KVS_LANES)
    for (int l = 0; l < LANE_VECS; l++) {
      int at = i + l * WIDTH, left = n - at;
      vec d;
      if (left >= WIDTH) {
        d = v_sub(v_load(x + at), means);
      } else { /* missing elements count as 0 */
        float lane[WIDTH] = {0};
        for (int m = 0; m < left; m++) lane[m] = x[at + m] - mean;
        d = v_load(lane);
      }
      square[l] = v_fma(d, d, square[l]);
    }
  float inverse = 1.0f / sqrtf(fold(square) / (float)n + epsilon);
  vec inverses = v_set(inverse);
  int i = 0;
  for (; i + WIDTH <= n; i += WIDTH)
    v_store(y + i, v_fma(v_mul(v_sub(v_load(x + i), means), inverses), v_load(norm->g + i), v_load(norm->b + i)));
  for (; i < n; i++) y[i] = fmaf((x[i] - mean) * inverse, norm->g[i], norm->b[i]);
}

static void gelu_new(float *x, size_t n) {
  for (size_t i = 0; i < n; i += WIDTH) {
    int count = n - i < WIDTH ? (int)(n - i) : WIDTH;
    vec v = v_load_some(x + i, count);
    vec u = v_fma(v_set(KVS_GELU_CUBE), v_mul(v_mul(v, v), v), v);
    vec e = v_exp(v_mul(v_set(KVS_GELU_MINUS_2C), u));
    v_store_some(x + i, v_div(v, v_add(v_set(1.0f), e)), count);
  }
}

static void activate(float *x, size_t n, kvs_activation activation) {
  if (activation == KVS_GELU_NEW) {
    gelu_new(x, n);
    return;
  }
  for (size_t i = 0; i < n; i++) x[i] = activation == KVS_GELU ? kvs_gelu_erf(x[i]) : kvs_relu(x[i]);
}

static void exp_sums(const float *x, int n, double max, double *sums) { kvs_exp_sums_in_lanes(x, n, max, sums); }

static void weight_sums(const float *w, int n, double *sums) { kvs_weight_sums_in_lanes(w, n, sums); }

static int first_from(const float *x, int n, float least) { return kvs_first_from_in_blocks(x, n, least); }

/* All of them, for the table. */
#define VECTOR_KERNELS                                                                                                 \
  .widen = widen, .linear = linear, .block_sums = block_sums, .add_blocks = add_blocks, .dot_rows = dot_rows,          \
  .score = score, .softmax = softmax, .mix = mix, .layer_norm = layer_norm, .largest = largest, .exp_sums = exp_sums,  \
  .weight_sums = weight_sums, .first_from = first_from, .activate = activate
