/* test_kernels.c: every kernel gives the reference kernel's bits, and the reference's numbers are right by formulas
 * evaluated here in double. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kernels.h"
#include "engine/numeric.h"
#include "kvstep/engine.h"
#include "tests/support/memory_model.h"

static unsigned long long state = 7;

static float *random_floats(size_t n) {
  float *data = malloc(n * sizeof *data + 1);
  assert_non_null(data);
  for (size_t i = 0; i < n; i++) data[i] = 2 * memory_random(&state);
  return data;
}

static void assert_same_bits(const char *what, const float *a, const float *b, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (memcmp(&a[i], &b[i], sizeof *a) != 0)
      fail_msg("%s: element %zu is %.9g, the reference has %.9g", what, i, a[i], b[i]);
}

/* The value of a binary16 by IEEE 754's definition, in double. */
static double half_by_definition(unsigned bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double magnitude = exponent == 0    ? ldexp(fraction, -24)
                     : exponent == 31 ? (fraction ? NAN : INFINITY)
                                      : ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

static void every_16_bit_number_widens_exactly(void **unused) {
  (void)unused;
  static uint16_t all[65536];
  static float wide[65536];
  for (int i = 0; i < 65536; i++) all[i] = (uint16_t)i;
  for (int k = 0; kvs_kernel_name(k); k++) {
    const kvs_kernels *kernels = kvs_kernels_find(kvs_kernel_name(k));
    kernels->widen(wide, all, KVS_F16, 65536);
    for (unsigned i = 0; i < 65536; i++) {
      double expected = half_by_definition(i);
      if (isnan(expected))
        assert_true(isnan(wide[i]));
      else
        assert_true((double)wide[i] == expected && !signbit(wide[i]) == !signbit(expected));
    }
    kernels->widen(wide, all, KVS_BF16, 65536);
    for (uint32_t i = 0; i < 65536; i++) {
      uint32_t bits;
      memcpy(&bits, &wide[i], sizeof bits);
      assert_int_equal(bits, i << 16);
    }
  }
}

static double ulps(float value, double exact) {
  float nearest = (float)exact;
  double ulp = (double)nextafterf(fabsf(nearest), INFINITY) - (double)fabsf(nearest);
  return fabs((double)value - exact) / ulp;
}

static void exp_is_within_two_ulps(void **unused) {
  (void)unused;
  for (double x = -103.9; x < 88.6; x += 0.000731) {
    double error = ulps(kvs_expf((float)x), exp((double)(float)x));
    if (error > 2.0) fail_msg("exp(%.9g) is off by %.2f ulps", x, error);
  }
  assert_true(kvs_expf(0.0f) == 1.0f);
  assert_true(kvs_expf(-INFINITY) == 0.0f);
  assert_true(kvs_expf(-200.0f) == 0.0f);
  assert_true(isnan(kvs_expf(NAN)));
  assert_true(isfinite(kvs_expf(1000.0f)));
}

static void double_exp_is_within_two_ulps(void **unused) {
  (void)unused;
  for (double x = -744; x < 709; x += 0.0137) {
    double exact = exp(x), error = fabs(kvs_exp(x) - exact) / (nextafter(exact, INFINITY) - exact);
    if (error > 2.0) fail_msg("exp(%.17g) is off by %.2f ulps", x, error);
  }
  assert_true(kvs_exp(-INFINITY) == 0.0);
  assert_true(kvs_exp(0.0) == 1.0);
  assert_true(isnan(kvs_exp(NAN)));
}

static void activations_follow_their_formulas(void **unused) {
  (void)unused;
  for (int k = 0; kvs_kernel_name(k); k++) {
    const kvs_kernels *kernels = kvs_kernels_find(kvs_kernel_name(k));
    for (double x = -12; x < 12; x += 0.00317) {
      float value[3] = {(float)x, (float)x, (float)x};
      double v = value[0], u = sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
      kernels->activate(&value[0], 1, KVS_GELU_NEW);
      kernels->activate(&value[1], 1, KVS_GELU);
      kernels->activate(&value[2], 1, KVS_RELU);
      assert_true(fabs((double)value[0] - v / (1 + exp(-2 * u))) <= 4e-7 * fabs(v));
      assert_true(fabs((double)value[1] - v / 2 * erfc(-v / sqrt(2))) <= 1.2e-7 * fabs(v));
      assert_true(value[2] == (v < 0 ? 0 : (float)v));
    }
  }
}

static void linear_matches_double(void **unused) {
  (void)unused;
  enum { IN = 37, OUT = 45, ROWS = 5 };
  float *w = random_floats(IN * OUT), *b = random_floats(OUT), *x = random_floats(ROWS * IN), y[ROWS * OUT];
  kvs_linear linear = {{KVS_F32, IN, OUT, w}, b};
  float *pack = random_floats(KVS_PACK_FLOATS);
  for (int k = 0; kvs_kernel_name(k); k++) {
    kvs_kernels_find(kvs_kernel_name(k))->linear(y, x, ROWS, &linear, 0, OUT, pack);
    for (int r = 0; r < ROWS; r++)
      for (int j = 0; j < OUT; j++) {
        double sum = b[j];
        for (int i = 0; i < IN; i++) sum += (double)x[r * IN + i] * (double)w[i * OUT + j];
        assert_true(fabs(sum - (double)y[r * OUT + j]) < 2e-5);
      }
  }
  free(w), free(b), free(x), free(pack);
}

/* One layout of sizes for one kernel and one storage type: all rows at once, row by row, and columns in shares. */
static void compare_linear(const kvs_kernels *kernels, int in, int out, int rows, kvs_dtype dtype) {
  const kvs_config shape = {
      .n_layer = 1, .n_head = 1, .n_embd = in, .n_ctx = 1, .n_vocab = 1, .n_inner = out, .tied = true};
  kvs_model *model = memory_model(shape, dtype, (unsigned)(in * 1000 + out));
  const kvs_linear *linear = &model->layer[0].mlp_c_fc;
  float *x = random_floats((size_t)rows * (size_t)in), *pack = random_floats(KVS_PACK_FLOATS);
  float *expected = random_floats((size_t)rows * (size_t)out), *got = random_floats((size_t)rows * (size_t)out);
  kvs_kernels_reference.linear(expected, x, rows, linear, 0, out, pack);
  kernels->linear(got, x, rows, linear, 0, out, pack);
  assert_same_bits("linear, all rows", got, expected, (size_t)rows * (size_t)out);
  for (int r = 0; r < rows; r++) {
    kernels->linear(got, x + (size_t)r * (size_t)in, 1, linear, 0, out, pack);
    assert_same_bits("linear, one row", got, expected + (size_t)r * (size_t)out, (size_t)out);
  }
  /* By blocks: those of the upper half of w's rows first, and columns in two parts, as threads may take them. */
  int blocks = (in + KVS_BLOCK - 1) / KVS_BLOCK, cut = out > 40 ? 40 : out;
  float *sums = random_floats((size_t)blocks * (size_t)out);
  for (int r = 0; r < rows; r++) {
    const float *x_r = x + (size_t)r * (size_t)in;
    for (int lower = 0; lower < 2; lower++) {
      int first = lower ? 0 : blocks / 2, last = lower ? blocks / 2 : blocks;
      kernels->block_sums(sums, x_r, &linear->w, first, last, cut, out);
      kernels->block_sums(sums, x_r, &linear->w, first, last, 0, cut);
    }
    memset(got, 0x55, (size_t)out * sizeof *got);
    kernels->add_blocks(got, linear->b, sums, blocks, out, 0, cut);
    kernels->add_blocks(got, linear->b, sums, blocks, out, cut, out);
    assert_same_bits("linear, by blocks", got, expected + (size_t)r * (size_t)out, (size_t)out);
  }
  free(sums);
  for (int begin = 0; begin < out; begin += 32)
    kernels->linear(got, x, rows, linear, begin, begin + 32 < out ? begin + 32 : out, pack);
  assert_same_bits("linear, in shares", got, expected, (size_t)rows * (size_t)out);
  free(x), free(pack), free(expected), free(got);
  memory_model_free(model);
}

static void compare_dots(const kvs_kernels *kernels, int n, int rows, kvs_dtype dtype) {
  enum { WORDS = 23 };
  const kvs_config shape = {.n_layer = 1, .n_head = 1, .n_embd = n, .n_ctx = 1, .n_vocab = WORDS, .tied = true};
  kvs_model *model = memory_model(shape, dtype, (unsigned)n);
  float *x = random_floats((size_t)rows * (size_t)n), *expected = random_floats((size_t)rows * WORDS);
  float *got = random_floats((size_t)rows * WORDS);
  kvs_kernels_reference.dot_rows(expected, WORDS, x, rows, &model->wte, 0, WORDS);
  kernels->dot_rows(got, WORDS, x, rows, &model->wte, 0, 7);
  kernels->dot_rows(got, WORDS, x, rows, &model->wte, 7, WORDS);
  assert_same_bits("dot_rows", got, expected, (size_t)rows * WORDS);
  free(x), free(expected), free(got);
  memory_model_free(model);
}

static void compare_attention(const kvs_kernels *kernels, int head_dim, int rows) {
  size_t stride = (size_t)head_dim * 3;
  float *q = random_floats((size_t)head_dim), *kv = random_floats(stride * (size_t)rows);
  float *scores[2], *weights[2], *out[2];
  const kvs_kernels *both[2] = {&kvs_kernels_reference, kernels};
  for (int i = 0; i < 2; i++) {
    scores[i] = random_floats((size_t)rows), weights[i] = random_floats((size_t)rows),
    out[i] = random_floats((size_t)head_dim);
    both[i]->score(scores[i], q, kv, (int)stride, rows, head_dim, 0.37f);
    both[i]->softmax(weights[i], scores[i], rows);
    both[i]->mix(out[i], weights[i], kv, (int)stride, rows, head_dim);
  }
  assert_same_bits("scores", scores[1], scores[0], (size_t)rows);
  assert_same_bits("weights", weights[1], weights[0], (size_t)rows);
  assert_same_bits("out", out[1], out[0], (size_t)head_dim);
  free(q), free(kv);
  for (int i = 0; i < 2; i++) free(scores[i]), free(weights[i]), free(out[i]);
}

static void compare_elementwise(const kvs_kernels *kernels, int n) {
  float *x = random_floats((size_t)n), *g = random_floats((size_t)n), *b = random_floats((size_t)n);
  float *expected = random_floats((size_t)n), *got = random_floats((size_t)n);
  const kvs_norm norm = {g, b};
  kvs_kernels_reference.layer_norm(expected, x, &norm, 1e-5f, n);
  kernels->layer_norm(got, x, &norm, 1e-5f, n);
  assert_same_bits("layer_norm", got, expected, (size_t)n);
  assert_true(kernels->largest(x, n) == kvs_kernels_reference.largest(x, n));
  double sums[2][2], by_libm = 0, max = (double)x[0];
  for (int i = 1; i < n; i++) max = (double)x[i] > max ? (double)x[i] : max;
  for (int i = 0; i < n; i++) by_libm += exp((double)x[i] - max);
  kvs_kernels_reference.exp_sums(x, n, max, sums[0]);
  kernels->exp_sums(x, n, max, sums[1]);
  assert_memory_equal(sums[1], sums[0], sizeof sums[0]);
  assert_true(fabs(sums[0][0] - by_libm) <= 1e-14 * by_libm);
  for (kvs_activation activation = KVS_GELU_NEW; activation <= KVS_RELU; activation++) {
    for (int i = 0; i < n; i++) expected[i] = got[i] = 6 * x[i];
    kvs_kernels_reference.activate(expected, n, activation);
    kernels->activate(got, n, activation);
    assert_same_bits("activate", got, expected, (size_t)n);
  }
  free(x), free(g), free(b), free(expected), free(got);
}

static void all_kernels_give_the_same_bits(void **unused) {
  (void)unused;
  const int sizes[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 48, 64, 100, 257};
  const int count = sizeof sizes / sizeof *sizes;
  for (int k = 0; kvs_kernel_name(k); k++) {
    const kvs_kernels *kernels = kvs_kernels_find(kvs_kernel_name(k));
    for (int i = 0; i < count; i++) {
      compare_elementwise(kernels, sizes[i]);
      for (int rows = 1; rows <= 40; rows += 3) compare_attention(kernels, sizes[i], rows);
      for (kvs_dtype dtype = KVS_F32; dtype <= KVS_BF16; dtype++) {
        compare_dots(kernels, sizes[i], 1 + i % 4, dtype);
        for (int j = i % 3; j < count; j += 3) compare_linear(kernels, sizes[i], sizes[j], 1 + (i + j) % 8, dtype);
      }
    }
    compare_linear(kernels, 515, 70, 9, KVS_F32);    /* more depth than is packed at a time */
    compare_linear(kernels, 130, 37, 530, KVS_BF16); /* more rows of x */
    for (int rows = 1; rows <= 30; rows++) compare_linear(kernels, 70, 70, rows, rows % 3); /* every lower tile */
    for (int rows = 1; rows <= 9; rows++) compare_dots(kernels, 77, rows, rows % 3);
    compare_attention(kernels, 64, 1024);
  }
}

/* Zeros of both signs, subnormals, infinities and huge numbers go through the same operations too. */
static void special_values_give_the_same_bits(void **unused) {
  (void)unused;
  const float special[] = {0.0f, -0.0f, 1e-45f, -1e-45f, 1e-38f, -1e-30f, 3e38f, -3e38f, 1.0f, -1.0f, 88.0f, -104.5f};
  enum { N = 35 };
  for (int k = 0; kvs_kernel_name(k); k++) {
    const kvs_kernels *kernels = kvs_kernels_find(kvs_kernel_name(k));
    for (int round = 0; round < 500; round++) {
      float x[N], w[N * 16], expected[N], got[N];
      for (int i = 0; i < N; i++) x[i] = special[(unsigned)(memory_random(&state) * 1e6f + 1e6f) % 12];
      for (int i = 0; i < N * 16; i++) w[i] = special[(unsigned)(memory_random(&state) * 1e6f + 1e6f) % 6];
      kvs_kernels_reference.softmax(expected, x, N);
      kernels->softmax(got, x, N);
      assert_same_bits("softmax of special values", got, expected, N);
      kvs_kernels_reference.score(expected, x, w, 16, N, 13, 0.5f);
      kernels->score(got, x, w, 16, N, 13, 0.5f);
      assert_same_bits("scores of special values", got, expected, N);
      memcpy(expected, x, sizeof x), memcpy(got, x, sizeof x);
      kvs_kernels_reference.activate(expected, N, KVS_GELU_NEW);
      kernels->activate(got, N, KVS_GELU_NEW);
      assert_same_bits("gelu_new of special values", got, expected, N);
    }
  }
}

static void softmax_by_hand(void **unused) {
  (void)unused;
  /* exp(0) : exp(ln 2) : exp(ln 4) = 1 : 2 : 4 */
  const float scores[] = {0.0f, 0.69314718f, 1.38629436f};
  for (int k = 0; kvs_kernel_name(k); k++) {
    float weights[3];
    kvs_kernels_find(kvs_kernel_name(k))->softmax(weights, scores, 3);
    assert_true(fabs((double)weights[0] - 1.0 / 7) < 1e-7);
    assert_true(fabs((double)weights[1] - 2.0 / 7) < 1e-7);
    assert_true(fabs((double)weights[2] - 4.0 / 7) < 1e-7);
    kvs_kernels_find(kvs_kernel_name(k))->softmax(weights, scores, 1);
    assert_true(weights[0] == 1.0f);
  }
}

static void layer_norm_by_hand(void **unused) {
  (void)unused;
  /* mean 2, variance 1: (1, 3) → (−1, 1), then g·+ b */
  const float x[] = {1, 3}, g[] = {2, 4}, b[] = {10, 20};
  const kvs_norm norm = {g, b};
  for (int k = 0; kvs_kernel_name(k); k++) {
    float y[2];
    kvs_kernels_find(kvs_kernel_name(k))->layer_norm(y, x, &norm, 0.0f, 2);
    assert_true(y[0] == 8.0f && y[1] == 24.0f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_16_bit_number_widens_exactly),
      cmocka_unit_test(exp_is_within_two_ulps),
      cmocka_unit_test(double_exp_is_within_two_ulps),
      cmocka_unit_test(activations_follow_their_formulas),
      cmocka_unit_test(linear_matches_double),
      cmocka_unit_test(all_kernels_give_the_same_bits),
      cmocka_unit_test(special_values_give_the_same_bits),
      cmocka_unit_test(softmax_by_hand),
      cmocka_unit_test(layer_norm_by_hand),
  };
  return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
