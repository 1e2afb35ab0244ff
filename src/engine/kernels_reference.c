/* kernels_reference.c: the inner loops in plain C. What these compute is what every other kernel must compute, to the bit. */
#include "engine/kernels.h"
#include "engine/numeric.h"

static float element(const void *data, kvs_dtype dtype, size_t i) {
  switch (dtype) {
  case KVS_F16:
    return kvs_widen_f16(((const uint16_t *)data)[i]);
  case KVS_BF16:
    return kvs_widen_bf16(((const uint16_t *)data)[i]);
  default:
    return ((const float *)data)[i];
  }
}

static void widen(float *to, const void *row, kvs_dtype dtype, int n) {
  for (int i = 0; i < n; i++) to[i] = element(row, dtype, (size_t)i);
}

/* One block of an element's sum. */
static float block_sum(const float *x, const kvs_tensor *w, int block, int j) {
  float sum = 0;
  for (int i = block * KVS_BLOCK; i < w->rows && i < (block + 1) * KVS_BLOCK; i++)
    sum = fmaf(x[i], element(w->data, w->dtype, (size_t)i * (size_t)w->cols + (size_t)j), sum);
  return sum;
}

static float linear_element(const float *x, const kvs_tensor *w, int j, float bias) {
  float sum = bias;
  for (int block = 0; block * KVS_BLOCK < w->rows; block++) sum += block_sum(x, w, block, j);
  return sum;
}

static void linear(float *y, const float *x, int rows, const kvs_linear *linear, int begin, int end, float *pack) {
  (void)pack;
  const kvs_tensor *w = &linear->w;
  for (int r = 0; r < rows; r++)
    for (int j = begin; j < end; j++)
      y[(size_t)r * (size_t)w->cols + (size_t)j] = linear_element(x + (size_t)r * (size_t)w->rows, w, j, linear->b[j]);
}

static void block_sums(float *sums, const float *x, const kvs_tensor *w, int first, int last, int begin, int end) {
  for (int b = first; b < last; b++)
    for (int j = begin; j < end; j++) sums[(size_t)b * (size_t)w->cols + (size_t)j] = block_sum(x, w, b, j);
}

static void add_blocks(float *y, const float *bias, const float *sums, int blocks, int cols, int begin, int end) {
  for (int j = begin; j < end; j++) {
    y[j] = bias[j];
    for (int b = 0; b < blocks; b++) y[j] += sums[(size_t)b * (size_t)cols + (size_t)j];
  }
}

/* Elements past the end count as 0·0, so that a lane's last bits do not depend on the vector width. */
static float dot(const float *a, const void *b, kvs_dtype dtype, size_t b_offset, int n) {
  float lane[KVS_LANES] = {0};
  for (int i = 0; i < n; i += KVS_LANES)
    for (int l = 0; l < KVS_LANES; l++)
      lane[l] = i + l < n ? fmaf(a[i + l], element(b, dtype, b_offset + (size_t)(i + l)), lane[l]) : lane[l] + 0.0f;
  return kvs_fold(lane);
}

static void dot_rows(float *y, int y_stride, const float *x, int rows, const kvs_tensor *w, int begin, int end) {
  for (int r = 0; r < rows; r++)
    for (int j = begin; j < end; j++)
      y[(size_t)r * (size_t)y_stride + (size_t)j] =
          dot(x + (size_t)r * (size_t)w->cols, w->data, w->dtype, (size_t)j * (size_t)w->cols, w->cols);
}

static void score(float *scores, const float *q, const float *k, int stride, int rows, int head_dim, float scale) {
  for (int i = 0; i < rows; i++) scores[i] = dot(q, k, KVS_F32, (size_t)i * (size_t)stride, head_dim) * scale;
}

static void softmax(float *weights, const float *scores, int rows) {
  float max = scores[0];
  for (int i = 1; i < rows; i++) max = scores[i] > max ? scores[i] : max;
  float lane[KVS_LANES] = {0};
  for (int i = 0; i < rows; i++) {
    weights[i] = kvs_expf(scores[i] - max);
    lane[i % KVS_LANES] += weights[i];
  }
  float sum = kvs_fold(lane);
  for (int i = 0; i < rows; i++) weights[i] /= sum;
}

static void mix(float *out, const float *weights, const float *v, int stride, int rows, int head_dim) {
  for (int d = 0; d < head_dim; d++) {
    float sum = 0;
    for (int first = 0; first < rows; first += KVS_BLOCK) {
      float block = 0;
      for (int i = first; i < rows && i < first + KVS_BLOCK; i++)
        block = fmaf(weights[i], v[(size_t)i * (size_t)stride + (size_t)d], block);
      sum += block;
    }
    out[d] = sum;
  }
}

static void layer_norm(float *y, const float *x, const kvs_norm *norm, float epsilon, int n) {
  float lane[KVS_LANES] = {0};
  for (int i = 0; i < n; i++) lane[i % KVS_LANES] += x[i];
  float mean = kvs_fold(lane) / (float)n;
  float square[KVS_LANES] = {0};
  for (int i = 0; i < n; i++) square[i % KVS_LANES] = fmaf(x[i] - mean, x[i] - mean, square[i % KVS_LANES]);
  float inverse = 1.0f / sqrtf(kvs_fold(square) / (float)n + epsilon);
  for (int i = 0; i < n; i++) y[i] = fmaf((x[i] - mean) * inverse, norm->g[i], norm->b[i]);
}

static void activate(float *x, size_t n, kvs_activation activation) {
  for (size_t i = 0; i < n; i++)
    x[i] = activation == KVS_GELU_NEW ? kvs_gelu_new(x[i])
           : activation == KVS_GELU   ? kvs_gelu_erf(x[i])
                                      : kvs_relu(x[i]);
}

static float largest(const float *x, int n) {
  float most = -INFINITY;
  for (int i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
  return most;
}

static void exp_sums(const float *x, int n, double max, double *sums) { kvs_exp_sums_in_lanes(x, n, max, sums); }

static void weight_sums(const float *w, int n, double *sums) { kvs_weight_sums_in_lanes(w, n, sums); }

static int first_from(const float *x, int n, float least) {
  for (int i = 0; i < n; i++)
    if (x[i] >= least) return i;
  return n;
}

const kvs_kernels kvs_kernels_reference = {
    .name = "reference",
    .widen = widen,
    .linear = linear,
    .block_sums = block_sums,
    .add_blocks = add_blocks,
    .dot_rows = dot_rows,
    .score = score,
    .softmax = softmax,
    .mix = mix,
    .layer_norm = layer_norm,
    .largest = largest,
    .exp_sums = exp_sums,
    .weight_sums = weight_sums,
    .first_from = first_from,
    .activate = activate,
};
