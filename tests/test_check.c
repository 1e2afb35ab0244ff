/* test_check.c: the rules on runs of the real engine and on traces altered by hand, each with the place where the mistake was put; and a small
 * part of the matrix of faults and verdicts that `make bench-check` prints. */
#include "tests/trace_maker.h"

#include "study/check/check.h"
#include "tests/support/check_pairs.h"
#include "tests/support/memory_model.h"

static const kvs_config config = {
    .n_layer = 2, .n_head = 2, .n_embd = 16, .n_ctx = 32, .n_vocab = 40, .scale_attn_weights = true, .tied = true};
static struct matrix_model model;

static int open_model(void **state) {
  model = matrix_random("made", config, 21, 4);
  return make_folder(state);
}

static int close_model(void **state) {
  matrix_model_free(&model);
  return remove_folder(state);
}

/* A right run of 3 prompt tokens and 6 decoded ones, with the prompt a, b, c. */
static void make_right(const char *path) {
  kvs_trace *trace;
  kvs_engine *engine;
  kvs_config shape = *kvs_model_config(model.model);
  kvs_trace_source source = made_source(&shape);
  kvs_run_info info = {.prompt = "abc", .prompt_length = 3};
  const int prompt[] = {0, 1, 2};
  ok(kvs_trace_create(path, KVS_TRACE_REPLACE, &trace, &error));
  ok(kvs_trace_begin_run_from(trace, &source, &info, NULL, NULL, &error));
  ok(kvs_engine_create(model.model, &(kvs_engine_options){.threads = 1}, &engine, &error));
  kvs_observer observer = kvs_trace_observer(trace);
  kvs_engine_observe(engine, &observer);
  ok(kvs_engine_prefill(engine, prompt, 3, KVS_PROMPT, &error));
  for (int i = 0; i < 6; i++) {
    const float *logits = kvs_engine_logits(engine);
    int best = 0;
    for (int t = 1; t < shape.n_vocab; t++)
      if (logits[t] > logits[best]) best = t;
    ok(kvs_engine_decode(engine, best, KVS_SAMPLED, &error));
  }
  kvs_engine_free(engine);
  ok(kvs_trace_end_run(trace, &error));
  ok(kvs_trace_close(trace, &error));
}

/* make_right's steps: a prompt of three tokens and six more. */
enum { RIGHT_STEPS = 9 };

static int told; /* how often progress was told of, each time of the next step */

static void count_told(void *context, int run, int done, int count) {
  assert_null(context);
  assert_int_equal(run, 1);
  assert_int_equal(done, told++);
  assert_int_equal(count, RIGHT_STEPS);
}

static struct check_report check_of(const char *path, bool weights) {
  sqlite3 *db;
  struct look *look;
  struct check_report report;
  ok(kvs_trace_read(path, &db, &error));
  ok(look_open(db, &look, &error));
  const struct check_progress progress = {NULL, count_told};
  told = 0;
  ok(check_run(look, 1, weights ? model.model : NULL, &progress, &report, &error));
  look_close(look);
  return report;
}

/* A right run, altered so, is found to have this kind from this step on (-1: clean; -2: cannot tell). */
static void expect(const char *sql, bool weights, const char *kind, int step, int line) {
  const char *path = in_folder("altered.db");
  make_right(path);
  alter(path, sql);
  struct check_report r = check_of(path, weights);
  char found[2000] = "";
  for (size_t f = 0; f < r.count; f++) {
    strncat(found, r.findings[f].kinds[0], 100);
    strncat(found, ": ", 3);
    strncat(found, r.findings[f].sentence, 500);
    strncat(found, "; ", 3);
  }
  enum check_verdict wanted = step == -1 ? CHECK_CLEAN : step == -2 ? CHECK_CANNOT_TELL : CHECK_FAULT;
  if (r.verdict != wanted) fail_msg("line %d: verdict %s: %s", line, check_verdict_name(r.verdict), found);
  if (step >= 0 && (strcmp(r.findings[0].kinds[0], kind) != 0 || r.findings[0].first_step != step))
    fail_msg("line %d: not %s from step %d on, but %s", line, kind, step, found);
  check_report_free(&r);
}
#define EXPECT(sql, weights, kind, step) expect(sql, weights, kind, step, __LINE__)

static void test_right(void **state) {
  (void)state;
  EXPECT("", true, NULL, -1);
  assert_int_equal(told, RIGHT_STEPS);
  EXPECT("", false, NULL, -1);
  assert_int_equal(told, 0); /* without weights nothing takes long */
}

static void test_lengths(void **state) { /* D1, D14 */
  (void)state;
  EXPECT("UPDATE step SET cache_length_after = cache_length_before WHERE step = 5", false, "overwrite-last", 5);
  EXPECT("UPDATE step SET cache_length_before = cache_length_before + 4, cache_length_after = cache_length_after + 4, "
         "position = position + 4",
         false, "stale-cache", 0);
  EXPECT("UPDATE run SET n_ctx = 7", false, "context-overflow", 7);
  EXPECT("UPDATE event SET cache_length = cache_length + 1 WHERE step >= 4 AND layer = 1 AND phase = 'append'", false,
         "cross-layer-length", 4);
  EXPECT("UPDATE step SET cache_length_before = cache_length_before + 2, cache_length_after = cache_length_after + 2, "
         "position = position + 2 WHERE "
         "step >= 6; DELETE FROM kv_row; DELETE FROM head_stat; DELETE FROM head_step; DELETE FROM event; DELETE FROM "
         "step_vector",
         false, "wrong-length", 6);
}

static void test_claims(void **state) { /* the position column */
  (void)state;
  EXPECT("UPDATE step SET position = position + 1 WHERE step >= 4", false, "off-by-one", 4);
  EXPECT("UPDATE step SET position = 0 WHERE step = 6", false, "reset-to-zero", 6);
  EXPECT("UPDATE step SET position = NULL WHERE step >= 3", false, "skip-wpe", 3);
  EXPECT("UPDATE step SET position = 3 WHERE step >= 4", false, "constant-position", 4);
  EXPECT("UPDATE step SET position = position + 2 WHERE step >= 5", false, "position-jump", 5);
  EXPECT("UPDATE step SET position = position - 1 WHERE step = 8", false, "wrong-position", 8);
  /* Only the column is wrong: the K row was made with the right one. */
  EXPECT("UPDATE step SET position = position + 1 WHERE step >= 4", true, "position-column", 4);
  EXPECT("UPDATE step SET position = NULL; UPDATE run SET engine = 'mine'", false, NULL,
         -1); /* not logged by an engine that is not ours */
}

static void test_events(void **state) {
  (void)state;
  EXPECT("UPDATE event SET seq = seq + 100000 WHERE step = 5 AND phase = 'read_length'", false, "event-order", 5);
  /* Attention over the past and the new row, before that is stored: another order, and no mistake. */
  EXPECT("UPDATE event SET seq = seq + 100000 WHERE step = 8 AND layer = 1 AND phase IN ('append', 'output', 'mlp')",
         false, NULL, -1);
}

static void test_attention(void **state) { /* D3, D4, D5, D6, D12, the mix */
  (void)state;
  EXPECT("UPDATE head_step SET scores = substr(scores, 1, length(scores) - 4), weights = substr(weights, 1, "
         "length(weights) - 4) WHERE step = 6",
         false, "attend-before-append", 6);
  EXPECT("UPDATE head_step SET weights = CAST(X'0000803F' || zeroblob(length(weights) - 4) AS BLOB) WHERE step = 5",
         false, "mask-corner", 5);
  EXPECT("UPDATE head_step SET weights = CAST(zeroblob(4) || substr(weights, 5) AS BLOB) WHERE step = 5 AND layer = 1",
         false, "wrong-rows", 5);
  /* 0.25 and 0.75244140625: 1.00244 in all, which float16 (spaced 1/2048 there) may come to, and one bit finer may not. */
  EXPECT("UPDATE head_step SET q = NULL, scores = NULL, out = NULL, weights = X'0000803E00A0403F' WHERE step = 1",
         false, NULL, -1);
  EXPECT("UPDATE head_step SET q = NULL, scores = NULL, out = NULL, weights = X'0000803E00B0403F' WHERE step = 1",
         false, "softmax-extent", 1);
  EXPECT("UPDATE head_step SET q = NULL, scores = NULL, out = NULL, weights = X'0000803E01A0403F' WHERE step = 1",
         false, "softmax-extent", 1);
  EXPECT("UPDATE kv_row SET v = zeroblob(length(v)) WHERE step = 4", false, "k-without-v", 4);
  EXPECT("UPDATE kv_row SET k = zeroblob(length(k)), v = zeroblob(length(v)) WHERE step >= 7", false,
         "row-never-written", 7);
  EXPECT("DELETE FROM kv_row WHERE step = 5", false, "row-never-written", 5);
  EXPECT("UPDATE kv_row SET k = CAST(X'0000C07F' || substr(k, 5) AS BLOB) WHERE step = 4 AND layer = 1", false,
         "dead-row", 4);
  /* Rows 2 and 3 of layer 1 exchanged: the scores do not follow from them. */
  EXPECT(
      "UPDATE kv_row SET step = step + 100 WHERE layer = 1 AND row IN (2, 3); UPDATE kv_row SET k = (SELECT o.k FROM "
      "kv_row AS o WHERE o.layer = 1 "
      "AND o.row = 5 - kv_row.row) WHERE layer = 1 AND row = 3; UPDATE kv_row SET step = step - 100 WHERE step >= 100",
      false, "wrong-rows", 3);
  EXPECT("UPDATE head_step SET out = (SELECT o.out FROM head_step AS o WHERE o.step = 7 AND o.layer = 0 AND o.head = "
         "1) WHERE step = 7 AND "
         "layer = 0 AND head = 0",
         false, "wrong-mix", 7);
}

static void test_tokens(void **state) { /* D8 */
  (void)state;
  EXPECT("UPDATE run SET prompt = 'abbc'", false, "token-skipped", 2);
  EXPECT("UPDATE run SET prompt = 'abd'", false, NULL, -1); /* another text: no token was left out */
  EXPECT("UPDATE run SET prompt = 'abcd'", false, "token-skipped", 3);
  EXPECT(
      "UPDATE step SET source = 'sampled' WHERE step = 2; UPDATE run SET prompt = 'ab'; UPDATE step SET logprob = NULL",
      false, NULL, -1); /* in a batch: not chosen */
}

/* Step 5 held another token for the best than was fed next. Where both were as good, either may have been chosen. */
#define OTHER_BEST                                                                                                     \
  "DELETE FROM step_vector; CREATE TEMP TABLE two AS SELECT rank, token FROM top_token WHERE step = 5 AND rank <= 2; " \
  "UPDATE top_token SET token = (SELECT t.token FROM two AS t WHERE t.rank = 3 - top_token.rank) "                     \
  "WHERE step = 5 AND rank <= 2;"

static void test_equal_best(void **state) { /* D8 */
  (void)state;
  EXPECT(OTHER_BEST "UPDATE top_token SET logit = 2, probability = 0.3 WHERE step = 5 AND rank <= 2;"
                    "UPDATE step SET logprob = ln(0.3) WHERE step = 6",
         false, NULL, -1);
  EXPECT(OTHER_BEST "UPDATE top_token SET logit = 4 - rank, probability = 0.3 / rank WHERE step = 5 AND rank <= 2;"
                    "UPDATE step SET logprob = ln(0.15) WHERE step = 6",
         false, "last-token-twice", 6); /* this model says one token again and again */
}

/* Two mistakes at once are both named, each from its own step on. */
static void test_mixture(void **state) {
  (void)state;
  const char *path = in_folder("two.db");
  make_right(path);
  alter(path, "UPDATE step SET position = position + 1 WHERE step >= 4; UPDATE kv_row SET v = zeroblob(length(v)) "
              "WHERE step >= 6");
  struct check_report r = check_of(path, false);
  assert_int_equal(r.count, 2);
  assert_string_equal(r.findings[0].kinds[0], "off-by-one");
  assert_int_equal(r.findings[0].first_step, 4);
  assert_true(r.findings[0].to_end);
  assert_string_equal(r.findings[1].kinds[0], "k-without-v");
  assert_int_equal(r.findings[1].first_step, 6);
  assert_non_null(
      strstr(r.findings[0].sentence, "from step 4 on, position = length + 1: the length is read after the append"));
  assert_non_null(strstr(r.findings[0].sentence, "Step 4 used wpe[5], right is wpe[4]"));
  check_report_free(&r);
}

/* What run.fault says is not looked at. */
static void test_blind(void **state) {
  (void)state;
  EXPECT("UPDATE run SET fault = 'off-by-one', fault_from_step = 3", true, NULL, -1);
  EXPECT("UPDATE run SET fault = 'none'; UPDATE step SET position = position + 1 WHERE step >= 4", false, "off-by-one",
         4);
}

static void test_least(void **state) {
  (void)state;
  static const char *const least =
      "DELETE FROM head_stat; DELETE FROM head_step; DELETE FROM step_vector; DELETE FROM top_token; DELETE FROM "
      "event; "
      "DELETE FROM step_stat; DELETE FROM kv_row WHERE layer > 0; UPDATE kv_row SET v = NULL; UPDATE run SET engine = "
      "'mine', prompt = NULL, temperature = NULL; UPDATE step SET mode = NULL, source = NULL, logprob = NULL, seconds "
      "= NULL, "
      "position = NULL, cache_length_before = NULL, cache_length_after = NULL";
  char sql[1200];
  EXPECT(least, true, NULL, -1);
  EXPECT("DELETE FROM kv_row; DELETE FROM head_stat; DELETE FROM head_step; DELETE FROM step_vector; UPDATE run SET "
         "engine = 'mine'; UPDATE step SET "
         "position = NULL",
         true, NULL, -2);
  /* Two steps' rows exchanged: of other tokens, or of other positions. */
  snprintf(sql, sizeof sql, "%s; UPDATE kv_row SET k = (SELECT o.k FROM kv_row AS o WHERE o.row = 4) WHERE row = 6",
           least);
  const char *path = in_folder("least.db");
  make_right(path);
  alter(path, sql);
  struct check_report r = check_of(path, true);
  assert_int_equal(r.verdict, CHECK_FAULT);
  assert_int_equal(r.findings[0].first_step, 6);
  check_report_free(&r);
}

/* Every fault at this small shape, with weights and without. */
static void test_matrix(void **state) {
  (void)state;
  for (int weights = 0; weights < 2; weights++) {
    const struct matrix_options o = {.weights = weights, .generate = 8, .late = false, .details = stderr};
    for (int i = 0; kvs_fault_at(i); i++) {
      struct matrix_line line = {0};
      matrix_fault(&model, kvs_fault_at(i), &o, &line);
      if (line.named + line.among + line.unseen != line.runs || line.mute)
        fail_msg("%s: %d runs, %d without effect, %d named, %d among others, %d queries without rows", line.name,
                 line.runs, line.unseen, line.named, line.among, line.mute);
    }
    for (int c = 0; c < CONTROL_COUNT; c++) {
      struct matrix_line line = {0};
      matrix_control(&model, (enum matrix_control)c, &o, &line);
      if (line.named != line.runs) fail_msg("%s: %d runs, %d clean", line.name, line.runs, line.named);
    }
  }
}

/* Two faults of which the one hides behind what merely follows from the other: each is named all the same, and nothing else is.
 * `make bench-check BENCH_MODEL=pairs` tries every pair. */
static void test_pairs(void **state) {
  (void)state;
  static const char *const pairs[][2] = {{"overwrite-last", "k-without-v"},
                                         {"overwrite-last", "row-never-written"},
                                         {"overwrite-last", "cross-layer-length"},
                                         {"overwrite-last", "cross-layer-shared"},
                                         {"cross-layer-length", "cross-layer-shared"},
                                         {"cross-layer-shared", "wrong-scale"},
                                         {"cross-layer-shared", "heads-interleaved"},
                                         {"cross-layer-shared", "stale-cache"},
                                         {"context-unguarded", "mask-corner"},
                                         {"context-unguarded", "wrong-scale"},
                                         {"context-overflow", "heads-interleaved"},
                                         {"row-never-written", "context-unguarded"},
                                         {"row-never-written", "token-skipped"},
                                         {"k-without-v", "token-skipped"},
                                         {"position-jump", "prompt-twice"},
                                         {"position-jump", "last-token-twice"},
                                         {"off-by-one", "wrong-scale"}};
  for (int weights = 0; weights < 2; weights++)
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
      const struct matrix_options o = {.weights = weights, .generate = 8, .details = stderr};
      struct pair_line line = {0};
      pairs_of(&model, kvs_fault_find(pairs[p][0]), kvs_fault_find(pairs[p][1]), &o, &line);
      if (line.right != line.runs || line.runs == 0)
        fail_msg("%s and %s, %s weights: %d runs, %d right, %d with a name missing, %d with another", pairs[p][0],
                 pairs[p][1], weights ? "with" : "without", line.runs, line.right, line.missing, line.extra);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_right),      cmocka_unit_test(test_lengths),   cmocka_unit_test(test_claims),
      cmocka_unit_test(test_events),     cmocka_unit_test(test_attention), cmocka_unit_test(test_tokens),
      cmocka_unit_test(test_equal_best), cmocka_unit_test(test_mixture),   cmocka_unit_test(test_blind),
      cmocka_unit_test(test_least),      cmocka_unit_test(test_matrix),    cmocka_unit_test(test_pairs)};
  return cmocka_run_group_tests(tests, open_model, close_model);
}
