/* test_summary.c: a head's entropy, sum and largest weight, the logarithm under it, and the best tokens: against long double,
 * by hand, and the same bits from every kernel and from the SQL functions. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <sqlite3.h>
#include <string.h>

#include "engine/kernels.h"
#include "engine/numeric.h"
#include "engine/summary.h"
#include "kvstep/engine.h"
#include "tests/support/random.h"
#include "trace/sql/init.h"

static float from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint32_t random_bits(void) { return (uint32_t)random_below(1 << 16) << 16 | (uint32_t)random_below(1 << 16); }

/* ---- the logarithm --------------------------------------------------------------------------------------------------- */

static void check_log(float x) {
  long double exact = logl((long double)x);
  double got = kvs_log_within((double)x);
  int exponent;
  frexpl(exact, &exponent);
  long double error = fabsl((long double)got - exact) / ldexpl(1, exponent - 53);
  if (exact == 0 ? got != 0 : !(error <= 1)) fail_msg("ln %a is %a, off by %.3Lf ulp", (double)x, got, error);
}

/* 149 subnormal powers of two and what lies between, every normal exponent, the ends of each, and the places where the
 * logarithm changes its form (√½, √2) or its sign. */
static void logarithm_is_within_one_ulp(void **state) {
  (void)state;
  if (LDBL_MANT_DIG < 64) {
    print_message("skipped: long double is not wider than double here\n");
    skip();
  }
  for (uint32_t bit = 0; bit < 23; bit++)
    for (int i = 0; i < 100; i++) check_log(from_bits(1u << bit | (random_bits() & ((1u << bit) - 1))));
  for (uint32_t exponent = 0; exponent < 255; exponent++) {
    for (int i = 0; i < 1000; i++) check_log(from_bits(exponent << 23 | (random_bits() & 0x7FFFFF) | (exponent == 0)));
    check_log(from_bits(exponent << 23 | (exponent == 0)));
    check_log(from_bits(exponent << 23 | 0x7FFFFF));
  }
  for (uint32_t i = 0; i < 5000; i++) {
    const uint32_t near[] = {0x3F800000 /* 1 */, 0x3F3504F3 /* √½ */, 0x3FB504F3 /* √2 */};
    for (int n = 0; n < 3; n++) check_log(from_bits(near[n] + i)), check_log(from_bits(near[n] - i));
  }
  assert_true(kvs_log_within(1.0) == 0 && !signbit(kvs_log_within(1.0)));
  assert_true(kvs_log_within(0.5) == -0x1.62e42fefa39efp-1); /* −ln 2, nearest */
}

/* ---- weights --------------------------------------------------------------------------------------------------------- */

static void weights_by_hand(void **state) {
  (void)state;
  const float halves[] = {0.5f, 0.5f}, one[] = {0, 1}, uneven[] = {0.25f, 0.75f}, least[] = {0x1p-149f};
  kvs_weights_summary of = kvs_summarize_weights(halves, 2);
  assert_true(of.entropy == 0x1.62e42fefa39efp-1 && of.sum == 1 && of.max_row == 0);
  of = kvs_summarize_weights(one, 2);
  assert_true(of.entropy == 0 && !signbit(of.entropy) && of.sum == 1 && of.max_row == 1);
  of = kvs_summarize_weights(uneven, 2);
  assert_true(fabs(of.entropy - 0.56233514461880829) < 2e-16 && of.sum == 1 && of.max_row == 1);
  of = kvs_summarize_weights(least, 1); /* 149·ln 2 = 103.27892990343184 */
  assert_true(fabs(of.entropy / 0x1p-149 - 103.27892990343184) < 1e-13 && of.sum == 0x1p-149);
  of = kvs_summarize_weights(least, 0);
  assert_true(of.entropy == 0 && of.sum == 0 && of.max_row == -1);
}

static void weights_that_are_none(void **state) {
  (void)state;
  const float negative[] = {-0.5f, 0.5f, -0.0f}, some[] = {NAN, 0.5f, NAN, 0.5f}, none[] = {NAN, NAN};
  const float lowest[] = {NAN, -INFINITY, -INFINITY}, infinite[] = {0.5f, INFINITY}, both[] = {-INFINITY, INFINITY};
  const float zeros[] = {-0.0f, 0.0f};
  kvs_weights_summary of = kvs_summarize_weights(negative, 3);
  assert_true(of.entropy == 0.5 * 0x1.62e42fefa39efp-1 && of.sum == 0 && of.max_row == 1);
  of = kvs_summarize_weights(some, 4);
  assert_true(isnan(of.entropy) && isnan(of.sum) && of.max_row == 1);
  of = kvs_summarize_weights(none, 2);
  assert_true(isnan(of.entropy) && isnan(of.sum) && of.max_row == -1);
  of = kvs_summarize_weights(lowest, 3);
  assert_int_equal(of.max_row, 1);
  of = kvs_summarize_weights(infinite, 2);
  assert_true(of.entropy == -INFINITY && of.sum == INFINITY && of.max_row == 1);
  of = kvs_summarize_weights(both, 2);
  assert_true(of.entropy == -INFINITY && isnan(of.sum) && of.max_row == 1);
  assert_int_equal(kvs_summarize_weights(zeros, 2).max_row, 0);
}

/* Weights as a softmax makes them: some near 1, many small, subnormal and 0. */
static float any_weight(void) {
  switch (random_below(8)) {
  case 0:
    return 0;
  case 1:
    return from_bits(random_bits() & 0x7FFFFF); /* subnormal */
  default:
    return ldexpf((float)random_below(1 << 24), -24 - random_below(40));
  }
}

static void weights_against_long_double(void **state) {
  (void)state;
  static float w[1030];
  for (int rows = 1; rows <= 1030; rows += 1 + rows / 10) {
    long double sum = 0, entropy = 0, size = 0;
    int best = 0;
    for (int i = 0; i < rows; i++) {
      w[i] = any_weight();
      long double term = w[i] > 0 ? -(long double)w[i] * logl((long double)w[i]) : 0;
      sum += (long double)w[i], entropy += term, size += fabsl(term);
      if (w[i] > w[best]) best = i;
    }
    kvs_weights_summary of = kvs_summarize_weights(w, rows);
    assert_true(fabsl((long double)of.sum - sum) <= 1e-15L * sum);
    assert_true(fabsl((long double)of.entropy - entropy) <= 1e-15L * size);
    assert_int_equal(of.max_row, best);
  }
}

/* One in `rare` is no weight at all. */
static void fill(float *w, int n, int rare) {
  static const float odd[] = {-0.0f, -1, 1, INFINITY, -INFINITY, NAN, FLT_MAX, -0x1p-149f};
  for (int i = 0; i < n; i++) w[i] = random_below(rare) ? any_weight() : odd[random_below(8)];
}

static bool same_bits(double a, double b) { return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0; }

static void every_kernel_gives_the_same_sums(void **state) {
  (void)state;
  float w[301];
  for (int rows = 0; rows <= 300; rows++)
    for (int rare = 100; rare <= 1000000; rare *= 100) {
      double expected[2], got[2];
      fill(w + 1, rows, rare); /* w + 1: not where vectors like to begin */
      kvs_kernels_reference.weight_sums(w + 1, rows, expected);
      for (int k = 0; kvs_kernel_name(k); k++) {
        kvs_kernels_find(kvs_kernel_name(k))->weight_sums(w + 1, rows, got);
        if (!same_bits(got[0], expected[0]) || !same_bits(got[1], expected[1]))
          fail_msg("%s, %d rows: %a and %a, the reference has %a and %a", kvs_kernel_name(k), rows, got[0], got[1],
                   expected[0], expected[1]);
      }
    }
}

/* NULL stands for NaN. */
static double column(sqlite3_stmt *statement, int i) {
  return sqlite3_column_type(statement, i) == SQLITE_NULL ? NAN : sqlite3_column_double(statement, i);
}

static void sql_functions_give_the_bits_that_are_stored(void **state) {
  (void)state;
  sqlite3 *db;
  sqlite3_stmt *statement;
  float w[301];
  assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
  assert_int_equal(sqlite3_kvstep_init(db, NULL, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_prepare_v2(db, "SELECT f32_entropy(?1), f32_sum(?1), f32_argmax(?1)", -1, &statement, NULL),
                   SQLITE_OK);
  for (int rows = 1; rows <= 300; rows++)
    for (int rare = 100; rare <= 1000000; rare *= 100) {
      fill(w, rows, rare);
      kvs_weights_summary of = kvs_summarize_weights(w, rows);
      sqlite3_bind_blob(statement, 1, w, rows * (int)sizeof *w, SQLITE_STATIC);
      assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
      assert_true(same_bits(column(statement, 0), of.entropy) && same_bits(column(statement, 1), of.sum));
      assert_true(of.max_row < 0 ? isnan(column(statement, 2)) : column(statement, 2) == of.max_row);
      sqlite3_reset(statement);
    }
  sqlite3_finalize(statement);
  sqlite3_close(db);
}

/* ---- the largest ----------------------------------------------------------------------------------------------------- */

static void every_kernel_finds_the_first(void **state) {
  (void)state;
  static const float bounds[] = {-INFINITY, 0, 0.5f, INFINITY, NAN};
  float x[200];
  for (int n = 0; n <= 200; n++)
    for (int b = 0; b < 5; b++) {
      int expected = 0, at = n ? random_below(n) : 0;
      for (int i = 0; i < n; i++) x[i] = i == at ? 0.5f : random_below(4) ? -1 : NAN;
      if (b == 0)
        for (int i = 0; i < at; i++) x[i] = NAN;
      while (expected < n && !(x[expected] >= bounds[b])) expected++;
      assert_int_equal(expected, b < 3 ? at : n);
      for (int k = 0; kvs_kernel_name(k); k++)
        assert_int_equal(kvs_kernels_find(kvs_kernel_name(k))->first_from(x, n, bounds[b]), expected);
    }
}

/* Is token a before token b? Of two numbers the larger; of equal ones the lower id. */
static bool is_before(const float *logits, int a, int b) {
  return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

/* Rank by counting: a token's rank is how many are before it. */
static void check_best(const float *logits, int n, int room) {
  int best[32], numbers = 0;
  assert_true(room <= 32);
  int count = kvs_best_tokens(logits, n, best, room);
  for (int token = 0; token < n; token++) {
    if (isnan(logits[token])) continue;
    int rank = 0;
    for (int other = 0; other < n; other++) rank += !isnan(logits[other]) && is_before(logits, other, token);
    if (rank < room) assert_int_equal(best[rank], token);
    if (rank == 0) assert_int_equal(kvs_argmax(logits, n), token);
    numbers++;
  }
  assert_int_equal(count, numbers < room ? numbers : room);
  if (numbers == 0) assert_int_equal(kvs_argmax(logits, n), -1);
}

static void best_tokens_are_ranked(void **state) {
  (void)state;
  static float logits[700];
  static const float odd[] = {INFINITY, -INFINITY, NAN, 0.0f, -0.0f, FLT_MAX, -FLT_MAX, 0x1p-149f};
  for (int n = 1; n <= 700; n += 1 + n / 4)
    for (int kinds = 1; kinds <= 1000; kinds *= 10) /* how many different logits: from all equal to hardly a tie */
      for (int rare = 2; rare <= 20000; rare *= 100) {
        for (int i = 0; i < n; i++)
          logits[i] = random_below(rare) ? (float)random_below(kinds) / 8 - 20 : odd[random_below(8)];
        check_best(logits, n, 20);
        check_best(logits, n, 1);
      }
  for (int i = 0; i < 700; i++) logits[i] = (float)i;
  check_best(logits, 700, 20);
  for (int i = 0; i < 700; i++) logits[i] = i % 30 ? -1 : INFINITY; /* more of the largest there is than room */
  check_best(logits, 700, 20);
  for (int i = 0; i < 700; i++) logits[i] = NAN;
  check_best(logits, 700, 20);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(logarithm_is_within_one_ulp),
      cmocka_unit_test(weights_by_hand),
      cmocka_unit_test(weights_that_are_none),
      cmocka_unit_test(weights_against_long_double),
      cmocka_unit_test(every_kernel_gives_the_same_sums),
      cmocka_unit_test(sql_functions_give_the_bits_that_are_stored),
      cmocka_unit_test(every_kernel_finds_the_first),
      cmocka_unit_test(best_tokens_are_ranked),
  };
  return cmocka_run_group_tests_name("summary", tests, NULL, NULL);
}
