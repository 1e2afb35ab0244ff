/* test_diagnose.c: lists of facts, made up by hand, and the mistakes that they must be explained by. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "study/check/diagnose.h"
#include "study/check/recompute.h"

/* A run of 4 prompt tokens in a batch, then decode up to step 11; the trace claims the right positions. */
#define STEPS 12
static struct check_step steps[STEPS];
static struct check check;
static struct finding *findings;
static size_t count;

static int start(void **state) {
  (void)state;
  check = (struct check){.run = 1, .steps = steps, .count = STEPS, .prompt_length = 4};
  check.shape =
      (struct look_run){.run = 1, .n_layer = 3, .n_head = 2, .n_embd = 8, .head_dim = 4, .n_ctx = 32, .n_vocab = 50};
  for (int i = 0; i < STEPS; i++)
    steps[i] = (struct check_step){.step = i,
                                   .token = i,
                                   .prefill = i < 4,
                                   .prompt = i < 4,
                                   .sampled = i >= 4,
                                   .has_source = true,
                                   .before = i,
                                   .after = i + 1,
                                   .position = i,
                                   .claims = true,
                                   .logprob = NAN,
                                   .batch_first = i < 4 ? 0 : i,
                                   .batch_end = i < 4 ? 4 : i + 1};
  return 0;
}

static int end(void **state) {
  (void)state;
  facts_free(&check.facts);
  free(findings);
  findings = NULL, count = 0;
  return 0;
}

static void add(enum fact_kind kind, int step, int layer, int row, double found, double right) {
  kvs_error err;
  struct fact fact = check_fact(&check, kind, step);
  fact.layer = layer, fact.row = row, fact.found = found, fact.right = right;
  assert_int_equal(facts_add(&check.facts, &fact, &err), KVS_OK);
}

static void explain(size_t wanted) {
  kvs_error err;
  assert_int_equal(diagnose(&check, &findings, &count, &err), KVS_OK);
  if (count != wanted)
    fail_msg("%zu findings, not %zu; the first: %s: %s", count, wanted, count ? findings[0].kinds[0] : "",
             count ? findings[0].sentence : "");
}

static void is(size_t i, const char *kind, int first, bool to_end) {
  if (strcmp(findings[i].kinds[0], kind) != 0)
    fail_msg("%s, not %s: %s", findings[i].kinds[0], kind, findings[i].sentence);
  assert_int_equal(findings[i].first_step, first);
  assert_int_equal(findings[i].to_end, to_end);
  assert_true(strlen(findings[i].sentence) > 20 && strlen(findings[i].sql) > 20);
}

static void test_nothing(void **state) {
  (void)state;
  explain(0);
}

static void used(int first, int last, int offset, int fixed) {
  for (int s = first; s <= last; s++) add(FACT_POSITION_USED, s, 0, s, fixed >= -1 ? fixed : s + offset, s);
}
#define MOVED (-2)

static void test_off_by_one(void **state) {
  (void)state;
  used(6, 11, 1, MOVED);
  explain(1);
  is(0, "off-by-one", 6, true);
  assert_non_null(strstr(findings[0].sentence, "claims 6, which is not what was used"));
}

static void test_one_token_only(void **state) {
  (void)state;
  used(7, 7, 1, MOVED);
  explain(1);
  is(0, "off-by-one", 7, false);
  assert_non_null(strstr(findings[0].sentence, "in step 7,"));
}

static void test_positions(void **state) {
  (void)state;
  used(5, 11, 3, MOVED); /* length + prompt length - 1 = + 3 */
  explain(1);
  is(0, "position-jump", 5, true);
}

/* Three and more positions that have nothing in common are one finding, also where one of them is what another mistake would give. */
/* Some places behind the length is no start at 0, though it could be told as one long before the run. */
static void test_behind(void **state) {
  (void)state;
  used(6, 11, -2, MOVED);
  explain(1);
  is(0, "wrong-position", 6, true);
  assert_non_null(strstr(findings[0].sentence, "length - 2"));
}

static void test_scattered(void **state) {
  (void)state;
  add(FACT_POSITION_USED, 5, 0, 5, 20, 5);
  add(FACT_POSITION_USED, 6, 0, 6, 0, 6);
  add(FACT_POSITION_USED, 7, 0, 7, 17, 7);
  add(FACT_POSITION_USED, 8, 0, 8, 30, 8);
  explain(1);
  is(0, "wrong-position", 5, false);
  assert_non_null(strstr(findings[0].sentence, "follow no rule"));
}

/* A token that does not see its own row, where that is not the row at the length. */
static void test_without_itself_overwritten(void **state) {
  (void)state;
  add(FACT_SOFTMAX_ZERO, 8, 0, 7, 1, 8);
  explain(1);
  is(0, "attend-before-append", 8, false);
}

static void test_constant(void **state) {
  (void)state;
  used(5, 11, 0, 4);
  explain(1);
  is(0, "constant-position", 5, true);
}

static void test_counts_anew(void **state) {
  (void)state;
  for (int s = 4; s <= 11; s++) add(FACT_POSITION_USED, s, 0, s, s - 4, s);
  explain(1);
  is(0, "reset-to-zero", 4, true);
  assert_non_null(strstr(findings[0].sentence, "count on"));
}

static void test_two_positions(void **state) {
  (void)state;
  used(5, 8, 1, MOVED);
  used(9, 11, 0, -1);
  explain(2);
  is(0, "off-by-one", 5, false);
  is(1, "skip-wpe", 9, true);
}

static void test_same_by_nature(void **state) {
  (void)state;
  check.prompt_length = 2; /* then length + prompt length - 1 is length + 1 */
  used(4, 11, 1, MOVED);
  explain(1);
  is(0, "off-by-one", 4, true);
  assert_int_equal(findings[0].kind_count, 2);
  assert_string_equal(findings[0].kinds[1], "position-jump");
}

static void test_mistaken_column(void **state) {
  (void)state;
  check.model = (const kvs_model *)&check; /* only that there is one */
  for (int s = 4; s <= 11; s++) {
    steps[s].position = s + 1, steps[s].k_judged = true;
    add(FACT_POSITION_CLAIMED, s, -1, s, s + 1, s);
  }
  explain(1);
  is(0, "position-column", 4, true);
}

/* What follows from an overwritten row is no mistake of its own. */
static void test_consequences(void **state) {
  (void)state;
  for (int s = 5; s <= 11; s++) {
    steps[s].before = steps[s].after = 5;
    add(FACT_LENGTH_GROWTH, s, -1, 5, 5, 6);
    add(FACT_ROW_OVERWRITTEN, s, 0, 4, s - 1, 5);
    add(FACT_ROW_UNSTABLE, s, 1, 3, 0.5, 0.7);
    add(FACT_CHAIN, s, 1, -1, 0.3, 0);
    add(FACT_LOGITS_WRONG, s, -1, -1, 0.2, 0);
  }
  explain(1);
  is(0, "overwrite-last", 5, true);
}

static void test_three_at_once(void **state) {
  (void)state;
  used(6, 11, 1, MOVED);
  for (int s = 4; s <= 11; s++) add(FACT_SCALE, s, 0, -1, 1, 0.5);
  for (int s = 8; s <= 11; s++) add(FACT_ROW_DEAD_V, s, 0, s, 0, 0);
  explain(3);
  is(0, "wrong-scale", 4, true);
  is(1, "off-by-one", 6, true);
  is(2, "k-without-v", 8, true);
}

static void test_scale_by_n_embd(void **state) {
  (void)state;
  add(FACT_SCALE, 5, 0, -1, 1 / sqrt(8), 0.5);
  add(FACT_SCALE, 6, 0, -1, 0.1, 0.5);
  explain(2);
  is(0, "wrong-scale-n-embd", 5, false);
  is(1, "wrong-scale", 6, false);
}

/* Where two mistakes give the same numbers in a place, the one that explains more places is meant. */
static void test_guesses(void **state) {
  (void)state;
  add(FACT_CHAIN_HYPOTHESIS, 4, 0, -1, HYPOTHESIS_WITHOUT_ITSELF, 0);
  add(FACT_CHAIN_HYPOTHESIS, 4, 0, -1, HYPOTHESIS_FIRST_ROW_ONLY, 0);
  add(FACT_CHAIN_HYPOTHESIS, 5, 0, -1, HYPOTHESIS_FIRST_ROW_ONLY, 0);
  add(FACT_CHAIN_HYPOTHESIS, 6, 0, -1, HYPOTHESIS_FIRST_ROW_ONLY, 0);
  explain(1);
  is(0, "mask-corner", 4, false);
  assert_int_equal(findings[0].kind_count, 1);
}

static void test_guesses_alike(void **state) {
  (void)state;
  add(FACT_CHAIN_HYPOTHESIS, 4, 0, -1, HYPOTHESIS_WITHOUT_ITSELF, 0);
  add(FACT_CHAIN_HYPOTHESIS, 4, 0, -1, HYPOTHESIS_FIRST_ROW_ONLY, 0);
  explain(1);
  assert_int_equal(findings[0].kind_count, 2);
}

/* One row of two shut out is both the last and all but the first. */
static void test_two_rows(void **state) {
  (void)state;
  steps[4].before = 1, steps[4].after = 2;
  add(FACT_SOFTMAX_ZERO, 4, 0, 1, 1, 2);
  explain(1);
  assert_int_equal(findings[0].kind_count, 2);
}

static void test_context(void **state) {
  (void)state;
  check.shape.n_ctx = 8;
  for (int s = 8; s < STEPS; s++) {
    steps[s].before = steps[s].after = 8, steps[s].position = 7, steps[s].rows_judged = true;
    add(FACT_CONTEXT_LENGTH, s, -1, -1, 8, 8);
    add(FACT_LENGTH_GROWTH, s, -1, 8, 8, 9);
    add(FACT_POSITION_CLAIMED, s, -1, 8, 7, 8);
    add(FACT_ROW_OVERWRITTEN, s, 0, 7, s - 1, 8);
  }
  explain(1);
  is(0, "context-unguarded", 8, true);
  free(findings), findings = NULL;
  for (int s = 8; s < STEPS; s++) add(FACT_ROW_SHIFTED, s, 0, 0, s - 7, 0);
  explain(1);
  is(0, "context-overflow", 8, true);
}

/* A row that reads as zero in its own step and not later is attended to before it is stored. */
static void test_too_early(void **state) {
  (void)state;
  for (int s = 6; s < STEPS; s++) {
    add(FACT_K_READ_AS_ZERO, s, 0, s, 0, 0.4);
    add(FACT_V_READ_AS_ZERO, s, 0, s, 0, 0);
    add(FACT_SCORE_COUNT, s, 0, -1, 32, s + 1);
  }
  explain(2);
  assert_string_equal(findings[0].kinds[0], "softmax-extent");
  is(1, "attend-before-append", 6, true);
}

static void test_rolled_back(void **state) { /* as it should be after a rejected draft */
  (void)state;
  add(FACT_ROLLED_BACK, 8, -1, 6, 2, 8);
  add(FACT_ROW_OVERWRITTEN, 8, 0, 6, 6, 6);
  explain(0);
}

static void test_unknown(void **state) {
  (void)state;
  add(FACT_CHAIN, 6, 1, -1, 0.4, 0);
  add(FACT_LOGITS_WRONG, 6, -1, -1, 0.2, 0);
  explain(1);
  is(0, "wrong-layer", 6, false);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)
  const struct CMUnitTest tests[] = {
      TEST(test_nothing),       TEST(test_off_by_one),     TEST(test_one_token_only),
      TEST(test_positions),     TEST(test_constant),       TEST(test_counts_anew),
      TEST(test_scattered),     TEST(test_behind),         TEST(test_without_itself_overwritten),
      TEST(test_two_positions), TEST(test_same_by_nature), TEST(test_mistaken_column),
      TEST(test_consequences),  TEST(test_three_at_once),  TEST(test_scale_by_n_embd),
      TEST(test_guesses),       TEST(test_guesses_alike),  TEST(test_two_rows),
      TEST(test_context),       TEST(test_too_early),      TEST(test_rolled_back),
      TEST(test_unknown)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
