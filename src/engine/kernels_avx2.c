/* kernels_avx2.c: the inner loops for x86-64 CPUs with AVX2, FMA and F16C: the same sums in the same order as
 * kernels_reference.c, eight elements at a time. Columns are independent of each other, so they go side by side in a vector;
 * what is summed stays in order. Built with -mavx2 -mfma -mf16c and called only where the CPU has them. */
#if defined(__x86_64__)
#include "engine/kernels.h"
#include "engine/numeric.h"

#include <immintrin.h>
#include <stdbool.h>

/* The first n (0..8) lanes on. */
static __m256i tail_mask(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* Eight weights at element i, widened. Inlined with a constant dtype, the switch disappears. */
static inline __attribute__((always_inline)) __m256 load8(const void *data, kvs_dtype dtype, size_t i) {
  if (dtype == KVS_F32) return _mm256_loadu_ps((const float *)data + i);
  __m128i narrow = _mm_loadu_si128((const __m128i *)((const uint16_t *)data + i));
  if (dtype == KVS_F16) return _mm256_cvtph_ps(narrow);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(narrow), 16));
}

static inline float load1(const void *data, kvs_dtype dtype, size_t i) {
  switch (dtype) {
  case KVS_F16:
    return kvs_widen_f16(((const uint16_t *)data)[i]);
  case KVS_BF16:
    return kvs_widen_bf16(((const uint16_t *)data)[i]);
  default:
    return ((const float *)data)[i];
  }
}

/* n (1..8) weights, the others 0: nothing past the end is read. */
static __m256 load_tail(const void *data, kvs_dtype dtype, size_t i, int n) {
  float eight[8] = {0};
  for (int l = 0; l < n; l++) eight[l] = load1(data, dtype, i + (size_t)l);
  return _mm256_loadu_ps(eight);
}

static void widen(float *to, const void *row, kvs_dtype dtype, int n) {
  int i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, load8(row, dtype, (size_t)i));
  for (; i < n; i++) to[i] = load1(row, dtype, (size_t)i);
}

/* ---- linear ------------------------------------------------------------------------------------------------------ */

/* Up to eight rows of w from row i on, one row of x: the block's sums so far come from `block` (from 0 in the block's first
 * rows) and go back there, or onto y in its last. */
static inline __attribute__((always_inline)) void add_rows(float *y, float *block, const float *x, const kvs_tensor *w,
                                                           kvs_dtype dtype, int i, int count, int begin, int end,
                                                           bool first, bool last) {
  size_t n_out = (size_t)w->cols;
  __m256 x_i[8];
  for (int u = 0; u < count; u++) x_i[u] = _mm256_set1_ps(x[i + u]);
  int j = begin;
  for (; j + 8 <= end; j += 8) {
    __m256 sum = first ? _mm256_setzero_ps() : _mm256_loadu_ps(block + (j - begin));
    for (int u = 0; u < count; u++)
      sum = _mm256_fmadd_ps(x_i[u], load8(w->data, dtype, (size_t)(i + u) * n_out + (size_t)j), sum);
    if (last)
      _mm256_storeu_ps(y + j, _mm256_add_ps(_mm256_loadu_ps(y + j), sum));
    else
      _mm256_storeu_ps(block + (j - begin), sum);
  }
  for (; j < end; j++) {
    float sum = first ? 0 : block[j - begin];
    for (int u = 0; u < count; u++)
      sum = fmaf(x[i + u], load1(w->data, dtype, (size_t)(i + u) * n_out + (size_t)j), sum);
    if (last)
      y[j] += sum;
    else
      block[j - begin] = sum;
  }
}

/* One row of x: the weights stream past once, eight rows of w at a time, while the sums stay in the L1 cache. */
static inline __attribute__((always_inline)) void linear_one(float *y, const float *x, const kvs_tensor *w,
                                                             kvs_dtype dtype, int begin, int end, float *block) {
  for (int i = 0; i < w->rows; i += 8) {
    int left = w->rows - i;
    bool first = i % KVS_BLOCK == 0, last = i % KVS_BLOCK == KVS_BLOCK - 8 || left <= 8;
    if (left < 8)
      add_rows(y, block, x, w, dtype, i, left, begin, end, first, last);
    else if (first)
      add_rows(y, block, x, w, dtype, i, 8, begin, end, true, last);
    else if (last)
      add_rows(y, block, x, w, dtype, i, 8, begin, end, false, true);
    else
      add_rows(y, block, x, w, dtype, i, 8, begin, end, false, false);
  }
}

#define PANEL 32  /* columns of w that are packed side by side */
#define DEPTH 256 /* rows of w packed at a time, whole blocks: PANEL × DEPTH floats fit the L1/L2 cache */
#define TILE 3    /* rows of x whose sums stay in registers: 3 × 4 accumulators */

/* pack[i][0..PANEL) = w[first + i][j ..), widened; columns past `columns` are 0. */
static void pack_panel(float *pack, const kvs_tensor *w, int first, int depth, int j, int columns) {
  for (int i = 0; i < depth; i++) {
    size_t from = (size_t)(first + i) * (size_t)w->cols + (size_t)j;
    for (int l = 0; l < PANEL; l += 8) {
      int left = columns - l;
      __m256 eight = left >= 8  ? load8(w->data, w->dtype, from + (size_t)l)
                     : left > 0 ? load_tail(w->data, w->dtype, from + (size_t)l, left)
                                : _mm256_setzero_ps();
      _mm256_storeu_ps(pack + i * PANEL + l, eight);
    }
  }
}

/* y[0..rows)[0..columns) += x · pack, one block; rows ≤ TILE, a constant after inlining. */
static inline __attribute__((always_inline)) void tile(float *y, size_t y_stride, const float *x, size_t x_stride,
                                                       int rows, const float *pack, int depth, int columns) {
  __m256 sum[TILE][4];
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < 4; c++) sum[r][c] = _mm256_setzero_ps();
  for (int i = 0; i < depth; i++) {
    __m256 w[4];
    for (int c = 0; c < 4; c++) w[c] = _mm256_loadu_ps(pack + i * PANEL + 8 * c);
    for (int r = 0; r < rows; r++) {
      __m256 x_i = _mm256_set1_ps(x[(size_t)r * x_stride + (size_t)i]);
      for (int c = 0; c < 4; c++) sum[r][c] = _mm256_fmadd_ps(x_i, w[c], sum[r][c]);
    }
  }
  for (int r = 0; r < rows; r++) {
    float *to = y + (size_t)r * y_stride;
    if (columns == PANEL) {
      for (int c = 0; c < 4; c++) _mm256_storeu_ps(to + 8 * c, _mm256_add_ps(_mm256_loadu_ps(to + 8 * c), sum[r][c]));
      continue;
    }
    float edge[PANEL];
    for (int c = 0; c < 4; c++) _mm256_storeu_ps(edge + 8 * c, sum[r][c]);
    for (int l = 0; l < columns; l++) to[l] += edge[l];
  }
}

/* One packed block for all rows of x. */
static void add_block(float *y, size_t n_out, const float *x, size_t n_in, int rows, const float *pack, int depth,
                      int columns) {
  int r = 0;
  for (; r + TILE <= rows; r += TILE)
    tile(y + (size_t)r * n_out, n_out, x + (size_t)r * n_in, n_in, TILE, pack, depth, columns);
  for (; r < rows; r++) tile(y + (size_t)r * n_out, n_out, x + (size_t)r * n_in, n_in, 1, pack, depth, columns);
}

/* Many rows of x: each part of w is packed once and used for all of them. */
static void linear_many(float *y, const float *x, int rows, const kvs_tensor *w, int begin, int end, float *pack) {
  size_t n_in = (size_t)w->rows, n_out = (size_t)w->cols;
  for (int j = begin; j < end; j += PANEL) {
    int columns = end - j < PANEL ? end - j : PANEL;
    for (int first = 0; first < w->rows; first += DEPTH) {
      int depth = w->rows - first < DEPTH ? w->rows - first : DEPTH;
      pack_panel(pack, w, first, depth, j, columns);
      for (int i = 0; i < depth; i += KVS_BLOCK)
        add_block(y + j, n_out, x + first + i, n_in, rows, pack + i * PANEL,
                  depth - i < KVS_BLOCK ? depth - i : KVS_BLOCK, columns);
    }
  }
}

static void linear(float *y, const float *x, int rows, const kvs_linear *linear, int begin, int end, float *pack) {
  const kvs_tensor *w = &linear->w;
  for (int r = 0; r < rows; r++)
    memcpy(y + (size_t)r * (size_t)w->cols + begin, linear->b + begin, (size_t)(end - begin) * sizeof(float));
  if (rows > 1) {
    linear_many(y, x, rows, w, begin, end, pack);
    return;
  }
  for (int from = begin; from < end; from += KVS_PACK_FLOATS) { /* the room for a block's sums */
    int to = end - from < KVS_PACK_FLOATS ? end : from + KVS_PACK_FLOATS;
    if (w->dtype == KVS_F32)
      linear_one(y, x, w, KVS_F32, from, to, pack);
    else if (w->dtype == KVS_F16)
      linear_one(y, x, w, KVS_F16, from, to, pack);
    else
      linear_one(y, x, w, KVS_BF16, from, to, pack);
  }
}

/* ---- sums in lanes ------------------------------------------------------------------------------------------------ */

/* Sixteen lanes in two vectors, folded in halves as kvs_fold does. */
static inline float fold(__m256 low, __m256 high) {
  __m256 eight = _mm256_add_ps(low, high);
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

/* The rest of a dot product, fewer than 16 elements from i on; missing ones count as 0·0. */
static inline __attribute__((always_inline)) void dot_tail(const float *a, const void *b, kvs_dtype dtype,
                                                           size_t b_offset, int i, int n, __m256 *low, __m256 *high) {
  int left = n - i, first = left < 8 ? left : 8, second = left - first;
  *low = _mm256_fmadd_ps(_mm256_maskload_ps(a + i, tail_mask(first)), load_tail(b, dtype, b_offset + (size_t)i, first),
                         *low);
  __m256 rest = second ? load_tail(b, dtype, b_offset + (size_t)i + 8, second) : _mm256_setzero_ps();
  __m256 a_rest = second ? _mm256_maskload_ps(a + i + 8, tail_mask(second)) : _mm256_setzero_ps();
  *high = _mm256_fmadd_ps(a_rest, rest, *high);
}

static inline __attribute__((always_inline)) float dot(const float *a, const void *b, kvs_dtype dtype, size_t b_offset,
                                                       int n) {
  __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    low = _mm256_fmadd_ps(_mm256_loadu_ps(a + i), load8(b, dtype, b_offset + (size_t)i), low);
    high = _mm256_fmadd_ps(_mm256_loadu_ps(a + i + 8), load8(b, dtype, b_offset + (size_t)i + 8), high);
  }
  if (i < n) dot_tail(a, b, dtype, b_offset, i, n, &low, &high);
  return fold(low, high);
}

/* Four rows of w at once, to have eight sums under way. */
static inline __attribute__((always_inline)) void dot_rows_of(float *y, int y_stride, const float *x, int rows,
                                                              const kvs_tensor *w, kvs_dtype dtype, int begin,
                                                              int end) {
  int n = w->cols, j = begin;
  for (; j + 4 <= end; j += 4)
    for (int r = 0; r < rows; r++) {
      const float *x_row = x + (size_t)r * (size_t)n;
      __m256 low[4], high[4];
      for (int u = 0; u < 4; u++) low[u] = high[u] = _mm256_setzero_ps();
      int i = 0;
      for (; i + 16 <= n; i += 16) {
        __m256 x_low = _mm256_loadu_ps(x_row + i), x_high = _mm256_loadu_ps(x_row + i + 8);
        for (int u = 0; u < 4; u++) {
          size_t at = (size_t)(j + u) * (size_t)n + (size_t)i;
          low[u] = _mm256_fmadd_ps(x_low, load8(w->data, dtype, at), low[u]);
          high[u] = _mm256_fmadd_ps(x_high, load8(w->data, dtype, at + 8), high[u]);
        }
      }
      for (int u = 0; u < 4; u++) {
        if (i < n) dot_tail(x_row, w->data, dtype, (size_t)(j + u) * (size_t)n, i, n, &low[u], &high[u]);
        y[(size_t)r * (size_t)y_stride + (size_t)(j + u)] = fold(low[u], high[u]);
      }
    }
  for (; j < end; j++)
    for (int r = 0; r < rows; r++)
      y[(size_t)r * (size_t)y_stride + (size_t)j] =
          dot(x + (size_t)r * (size_t)n, w->data, dtype, (size_t)j * (size_t)n, n);
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
  for (int i = 0; i < rows; i++) scores[i] = dot(q, k, KVS_F32, (size_t)i * (size_t)stride, head_dim) * scale;
}

/* kvs_expf, eight at a time: the same operations in the same order. */
static inline __m256 exp8(__m256 x) {
  x = _mm256_min_ps(_mm256_set1_ps(KVS_EXP_HIGH), x); /* min(a, b) is a < b ? a : b, so NaN passes */
  x = _mm256_max_ps(_mm256_set1_ps(KVS_EXP_LOW), x);
  __m256 magic = _mm256_set1_ps(KVS_ROUND);
  __m256 n = _mm256_sub_ps(_mm256_fmadd_ps(x, _mm256_set1_ps(KVS_LOG2E), magic), magic);
  __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-KVS_LN2_HIGH), x);
  r = _mm256_fmadd_ps(n, _mm256_set1_ps(-KVS_LN2_LOW), r);
  __m256 p = _mm256_set1_ps(1.0f / 5040);
  const float c[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 1.0f / 2, 1.0f, 1.0f};
  for (int i = 0; i < 7; i++) p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(c[i]));
  __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), bias = _mm256_set1_epi32(127);
  __m256i rest = _mm256_sub_epi32(whole, half);
  __m256 first = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  __m256 second = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
  __m256 result = _mm256_mul_ps(_mm256_mul_ps(p, first), second);
  return _mm256_blendv_ps(result, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

static void softmax(float *weights, const float *scores, int rows) {
  float max = scores[0];
  for (int i = 1; i < rows; i++) max = scores[i] > max ? scores[i] : max;
  __m256 max8 = _mm256_set1_ps(max), sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  int i = 0;
  for (; i + 8 <= rows; i += 8) {
    __m256 e = exp8(_mm256_sub_ps(_mm256_loadu_ps(scores + i), max8));
    _mm256_storeu_ps(weights + i, e);
    sum[i / 8 % 2] = _mm256_add_ps(sum[i / 8 % 2], e);
  }
  if (i < rows) {
    float e[8] = {0};
    for (int l = 0; l < rows - i; l++) weights[i + l] = e[l] = kvs_expf(scores[i + l] - max);
    sum[i / 8 % 2] = _mm256_add_ps(sum[i / 8 % 2], _mm256_loadu_ps(e));
  }
  float total = fold(sum[0], sum[1]);
  for (int j = 0; j < rows; j++) weights[j] /= total;
}

static void mix(float *out, const float *weights, const float *v, int stride, int rows, int head_dim) {
  for (int d = 0; d < head_dim; d += 16) {
    int left = head_dim - d;
    __m256i low_mask = tail_mask(left < 8 ? left : 8), high_mask = tail_mask(left < 8 ? 0 : left < 16 ? left - 8 : 8);
    __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
    for (int first = 0; first < rows; first += KVS_BLOCK) {
      __m256 low_block = _mm256_setzero_ps(), high_block = _mm256_setzero_ps();
      for (int i = first; i < rows && i < first + KVS_BLOCK; i++) {
        const float *v_row = v + (size_t)i * (size_t)stride + d;
        __m256 w = _mm256_set1_ps(weights[i]);
        low_block = _mm256_fmadd_ps(w, _mm256_maskload_ps(v_row, low_mask), low_block);
        high_block = _mm256_fmadd_ps(w, _mm256_maskload_ps(v_row + 8, high_mask), high_block);
      }
      low = _mm256_add_ps(low, low_block);
      high = _mm256_add_ps(high, high_block);
    }
    _mm256_maskstore_ps(out + d, low_mask, low);
    _mm256_maskstore_ps(out + d + 8, high_mask, high);
  }
}

/* ---- element by element -------------------------------------------------------------------------------------------- */

static void layer_norm(float *y, const float *x, const kvs_norm *norm, float epsilon, int n) {
  __m256 sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (int i = 0; i < n; i += 8) {
    __m256 eight = n - i >= 8 ? _mm256_loadu_ps(x + i) : _mm256_maskload_ps(x + i, tail_mask(n - i));
    sum[i / 8 % 2] = _mm256_add_ps(sum[i / 8 % 2], eight);
  }
  float mean = fold(sum[0], sum[1]) / (float)n;
  __m256 mean8 = _mm256_set1_ps(mean), square[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (int i = 0; i < n; i += 8) {
    int left = n - i;
    __m256i mask = tail_mask(left < 8 ? left : 8);
    __m256 d = _mm256_sub_ps(_mm256_maskload_ps(x + i, mask), mean8);
    d = _mm256_and_ps(d, _mm256_castsi256_ps(mask)); /* missing elements count as 0 */
    square[i / 8 % 2] = _mm256_fmadd_ps(d, d, square[i / 8 % 2]);
  }
  float inverse = 1.0f / sqrtf(fold(square[0], square[1]) / (float)n + epsilon);
  __m256 inverse8 = _mm256_set1_ps(inverse);
  int i = 0;
  for (; i + 8 <= n; i += 8) {
    __m256 d = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(x + i), mean8), inverse8);
    _mm256_storeu_ps(y + i, _mm256_fmadd_ps(d, _mm256_loadu_ps(norm->g + i), _mm256_loadu_ps(norm->b + i)));
  }
  for (; i < n; i++) y[i] = fmaf((x[i] - mean) * inverse, norm->g[i], norm->b[i]);
}

static void gelu_new(float *x, int n) {
  int i = 0;
  __m256 one = _mm256_set1_ps(1.0f);
  for (; i + 8 <= n; i += 8) {
    __m256 v = _mm256_loadu_ps(x + i), cube = _mm256_mul_ps(_mm256_mul_ps(v, v), v);
    __m256 u = _mm256_fmadd_ps(_mm256_set1_ps(KVS_GELU_CUBE), cube, v);
    __m256 e = exp8(_mm256_mul_ps(_mm256_set1_ps(KVS_GELU_MINUS_2C), u));
    _mm256_storeu_ps(x + i, _mm256_div_ps(v, _mm256_add_ps(one, e)));
  }
  for (; i < n; i++) x[i] = kvs_gelu_new(x[i]);
}

static void activate(float *x, int n, kvs_activation activation) {
  if (activation == KVS_GELU_NEW) {
    gelu_new(x, n);
    return;
  }
  for (int i = 0; i < n; i++) x[i] = activation == KVS_GELU ? kvs_gelu_erf(x[i]) : kvs_relu(x[i]);
}

const kvs_kernels kvs_kernels_avx2 = {
    .name = "avx2",
    .widen = widen,
    .linear = linear,
    .dot_rows = dot_rows,
    .score = score,
    .softmax = softmax,
    .mix = mix,
    .layer_norm = layer_norm,
    .activate = activate,
};
#else
typedef int kvs_no_avx2; /* ISO C wants a declaration in every file */
#endif
