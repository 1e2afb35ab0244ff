/* test_sample.c: greedy choice, temperature, top-k, top-p and seeds, on distributions worked out by hand. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "kvstep/engine.h"

/* Probabilities 0.5, 0.25, 0.125, 0.125 for the tokens 2, 0, 1, 3. */
static const float logits[] = {-1.38629436f, -2.07944154f, -0.69314718f, -2.07944154f};

static kvs_sampler *sampler(double temperature, int top_k, double top_p, uint64_t seed) {
  kvs_error err;
  kvs_sampler *made;
  const kvs_sampling sampling = {temperature, top_k, top_p, seed};
  if (kvs_sampler_create(&sampling, 4, &made, &err)) fail_msg("%s", err.message);
  return made;
}

static void draw(kvs_sampler *s, int counts[4], int n) {
  memset(counts, 0, 4 * sizeof *counts);
  for (int i = 0; i < n; i++) counts[kvs_sampler_next(s, logits)]++;
  kvs_sampler_free(s);
}

/* Whether `count` of n draws fits probability p within five standard deviations. */
static void assert_share(int count, int n, double p) {
  assert_true(fabs(count - n * p) <= 5 * sqrt(n * p * (1 - p)) + 1e-9);
}

static void greedy_takes_the_largest_and_the_lowest_id(void **unused) {
  (void)unused;
  kvs_sampler *s = sampler(0, 0, 1, 1);
  const float ties[] = {1, 5, 5, 5}, broken[] = {NAN, 1, 3, NAN}, nothing[] = {NAN, NAN, NAN, NAN};
  assert_int_equal(kvs_sampler_next(s, logits), 2);
  assert_int_equal(kvs_sampler_next(s, ties), 1);
  assert_int_equal(kvs_sampler_next(s, broken), 2);
  assert_int_equal(kvs_sampler_next(s, nothing), 0);
  kvs_sampler_free(s);
}

static void shares_follow_the_probabilities(void **unused) {
  (void)unused;
  enum { N = 20000 };
  int counts[4];
  draw(sampler(1, 0, 1, 42), counts, N);
  const double p[] = {0.25, 0.125, 0.5, 0.125};
  for (int i = 0; i < 4; i++) assert_share(counts[i], N, p[i]);
  /* temperature 0.5 squares the probabilities: 16 : 4 : 1 : 1 of 22 */
  draw(sampler(0.5, 0, 1, 42), counts, N);
  assert_share(counts[2], N, 16.0 / 22);
  assert_share(counts[0], N, 4.0 / 22);
  assert_share(counts[1], N, 1.0 / 22);
}

static void top_k_and_top_p_cut_the_tail(void **unused) {
  (void)unused;
  enum { N = 20000 };
  int counts[4];
  draw(sampler(1, 2, 1, 7), counts, N);
  assert_share(counts[2], N, 2.0 / 3);
  assert_share(counts[0], N, 1.0 / 3);
  assert_int_equal(counts[1] + counts[3], 0);
  draw(sampler(1, 0, 0.7, 7), counts, N); /* 0.5 is not enough, 0.75 is */
  assert_share(counts[2], N, 2.0 / 3);
  assert_int_equal(counts[1] + counts[3], 0);
  draw(sampler(1, 0, 0.8, 7), counts, N); /* the third one, the lower id among equals, belongs to it */
  assert_share(counts[1], N, 1.0 / 7);
  assert_int_equal(counts[3], 0);
  draw(sampler(1, 1, 1, 7), counts, N);
  assert_int_equal(counts[2], N);
}

/* A logit that is no number has no probability, and takes none from the others; more than there are may be kept. */
static void no_number_is_never_drawn(void **unused) {
  (void)unused;
  enum { N = 20000 };
  const float broken[] = {NAN, -1.38629436f, -0.69314718f, -1.38629436f}; /* 1 : 2 : 1 */
  int counts[4] = {0};
  kvs_sampler *s = sampler(1, 9, 1, 5);
  for (int i = 0; i < N; i++) counts[kvs_sampler_next(s, broken)]++;
  kvs_sampler_free(s);
  assert_int_equal(counts[0], 0);
  assert_share(counts[1], N, 0.25);
  assert_share(counts[2], N, 0.5);
}

static void the_same_seed_gives_the_same_tokens(void **unused) {
  (void)unused;
  kvs_sampler *a = sampler(1, 0, 1, 99), *b = sampler(1, 0, 1, 99), *c = sampler(1, 0, 1, 100);
  int differing = 0;
  for (int i = 0; i < 200; i++) {
    int token = kvs_sampler_next(a, logits);
    assert_int_equal(kvs_sampler_next(b, logits), token);
    differing += kvs_sampler_next(c, logits) != token;
  }
  assert_true(differing > 50);
  kvs_sampler_free(a), kvs_sampler_free(b), kvs_sampler_free(c);
}

/* SplitMix64's first output for seed 0 is 0xE220A8397B1DCDAF (the published test value): 0.8833 of the way, so the last of two
 * equally probable tokens; its second, 0x6E789E6AA1B965F4, is 0.4315: the first. */
static void the_random_numbers_are_splitmix64(void **unused) {
  (void)unused;
  const float even[] = {0, 0, -INFINITY, -INFINITY};
  kvs_sampler *s = sampler(1, 0, 1, 0);
  assert_int_equal(kvs_sampler_next(s, even), 1);
  assert_int_equal(kvs_sampler_next(s, even), 0);
  kvs_sampler_free(s);
}

static void logprob_and_entropy_by_hand(void **unused) {
  (void)unused;
  assert_true(fabs(kvs_logprob(logits, 4, 2) - log(0.5)) < 1e-7);
  assert_true(fabs(kvs_logprob(logits, 4, 3) - log(0.125)) < 1e-7);
  assert_true(fabs(kvs_entropy(logits, 4) - 1.75 * log(2)) < 1e-7);
  const float certain[] = {0, -INFINITY, -INFINITY, -INFINITY}, huge[] = {3e38f, 3e38f, -3e38f, -3e38f};
  assert_true(kvs_entropy(certain, 4) == 0 && kvs_logprob(certain, 4, 0) == 0);
  assert_true(fabs(kvs_logprob(huge, 4, 0) - log(0.5)) < 1e-12);
}

static void nonsense_is_refused(void **unused) {
  (void)unused;
  const kvs_sampling bad[] = {{-1, 0, 1, 0}, {NAN, 0, 1, 0}, {INFINITY, 0, 1, 0}, {1, -1, 1, 0},
                              {1, 0, 0, 0},  {1, 0, 1.1, 0}, {1, 0, NAN, 0}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    kvs_sampler *s;
    assert_int_equal(kvs_sampler_create(&bad[i], 4, &s, NULL), KVS_ERR_USAGE);
    assert_null(s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(greedy_takes_the_largest_and_the_lowest_id),
      cmocka_unit_test(shares_follow_the_probabilities),
      cmocka_unit_test(top_k_and_top_p_cut_the_tail),
      cmocka_unit_test(no_number_is_never_drawn),
      cmocka_unit_test(the_same_seed_gives_the_same_tokens),
      cmocka_unit_test(the_random_numbers_are_splitmix64),
      cmocka_unit_test(logprob_and_entropy_by_hand),
      cmocka_unit_test(nonsense_is_refused),
  };
  return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}
