/* test_api.c: what the public headers promise and no other suite asks: names, who decodes, a run gone on with, calls out of order. */
#include "trace_maker.h"

#include <limits.h>

#include "tests/support/memory_model.h"

/* docs/trace-schema.md lists the words. */
static void the_trace_s_words(void **state) {
  (void)state;
  static const char *const phases[] = {"read_length", "embed", "project", "append", "score",
                                       "softmax",     "mix",   "output",  "mlp",    "logits"};
  assert_int_equal(KVS_PHASE_COUNT, 10);
  for (int i = 0; i < KVS_PHASE_COUNT; i++) assert_string_equal(kvs_phase_name((kvs_phase)i), phases[i]);
  assert_string_equal(kvs_mode_name(KVS_PREFILL), "prefill");
  assert_string_equal(kvs_mode_name(KVS_DECODE), "decode");
  assert_string_equal(kvs_source_name(KVS_PROMPT), "prompt");
  assert_string_equal(kvs_source_name(KVS_SAMPLED), "sampled");
  assert_string_equal(kvs_source_name(KVS_FORCED), "forced");
  assert_string_equal(kvs_version(), KVS_VERSION);
}

static void an_engine_says_what_it_decodes_with(void **state) {
  (void)state;
  kvs_model *model = memory_model(small_config, KVS_F32, 1);
  kvs_engine *engine;
  for (int i = 0; kvs_kernel_name(i); i++) {
    ok(kvs_engine_create(model, &(kvs_engine_options){2, kvs_kernel_name(i)}, &engine, &error));
    assert_string_equal(kvs_engine_kernel(engine), kvs_kernel_name(i));
    assert_int_equal(kvs_engine_threads(engine), 2);
    kvs_engine_free(engine);
  }
  ok(kvs_engine_create(model, NULL, &engine, &error));
  assert_string_equal(kvs_engine_kernel(engine), kvs_kernel_name(0)); /* the fastest */
  kvs_engine_free(engine);
  /* `--threads` is said to go to 256. */
  assert_status(kvs_engine_create(model, &(kvs_engine_options){257, NULL}, &engine, &error), KVS_ERR_USAGE, __LINE__);
  assert_null(engine);
  ok(kvs_engine_create(model, &(kvs_engine_options){256, NULL}, &engine, &error));
  assert_int_equal(kvs_engine_threads(engine), 256);
  kvs_engine_free(engine);
  memory_model_free(model);
}

/* The length is looked at before the text is. */
static void a_text_of_more_than_two_gigabytes(void **state) {
  (void)state;
  kvs_tokenizer *tokenizer;
  int *tokens = &(int){0};
  size_t count = 1;
  ok(kvs_tokenizer_open("reverse", &tokenizer, &error));
  assert_status(kvs_tokenizer_encode(tokenizer, "a", (size_t)INT_MAX + 1, false, &tokens, &count, &error),
                KVS_ERR_USAGE, __LINE__);
  assert_says("2147483648 bytes is more than can be encoded at once (2147483647)");
  assert_null(tokens);
  assert_int_equal(count, 0);
  kvs_tokenizer_free(tokenizer);
}

/* ---- going on with a run -------------------------------------------------------------------------------------------- */

static kvs_model *model;
static kvs_tokenizer *tokenizer;
static kvs_engine *engine;
static kvs_trace *trace;
static int tokens[4];

/* Letters of the small speller, and four of them fed to an engine that logs to r.kvt: run 1, and `runs` in all. */
static void make_runs(int runs) {
  for (int i = 0; i < 4; i++) tokens[i] = 3 + 2 * i;
  ok(kvs_model_open("reverse", &model, &error));
  ok(kvs_tokenizer_open("reverse", &tokenizer, &error));
  ok(kvs_engine_create(model, &(kvs_engine_options){1, NULL}, &engine, &error));
  for (int run = 1; run <= runs; run++) {
    int got;
    ok(kvs_trace_create(in_folder("r.kvt"), run == 1 ? KVS_TRACE_REPLACE : KVS_TRACE_APPEND, &trace, &error));
    ok(kvs_trace_begin_run(trace, model, tokenizer, NULL, NULL, &got, &error));
    assert_int_equal(got, run);
    kvs_observer observer = kvs_trace_observer(trace);
    kvs_engine_reset(engine);
    kvs_engine_observe(engine, &observer);
    for (int i = 0; i < 4; i++) ok(kvs_engine_decode(engine, tokens[i], KVS_PROMPT, &error));
    kvs_engine_observe(engine, NULL);
    ok(kvs_trace_end_run(trace, &error));
    ok(kvs_trace_close(trace, &error));
  }
  ok(kvs_trace_create(in_folder("r.kvt"), KVS_TRACE_APPEND, &trace, &error));
}

static int close_all(void **state) {
  (void)state;
  kvs_engine_free(engine);
  if (trace) kvs_trace_close(trace, NULL);
  kvs_tokenizer_free(tokenizer);
  kvs_model_free(model);
  engine = NULL, trace = NULL, tokenizer = NULL, model = NULL;
  return 0;
}

static void go_on(int token) {
  kvs_observer observer = kvs_trace_observer(trace);
  kvs_engine_observe(engine, &observer);
  ok(kvs_engine_decode(engine, token, KVS_FORCED, &error));
  kvs_engine_observe(engine, NULL);
}

/* The earlier of two runs, and no step logged but those from step 5 on. */
static void a_resumed_run_goes_on_where_it_ended(void **state) {
  (void)state;
  sqlite3 *db;
  make_runs(2);
  const kvs_log log = {.level = KVS_LOG_ATTENTION, .first_step = 5, .last_step = -1};
  ok(kvs_trace_resume_run(trace, model, tokenizer, 1, &log, &error));
  ok(kvs_trace_read(in_folder("r.kvt"), &db, &error));
  assert_int_equal(number(db, "SELECT count(finished_at) FROM run"), 2); /* as long as no step came */
  go_on(9);
  ok(kvs_trace_settle(trace, &error));
  assert_int_equal(number(db, "SELECT run FROM run WHERE finished_at IS NULL"), 1);
  go_on(10);
  ok(kvs_trace_end_run(trace, &error));
  assert_int_equal(number(db, "SELECT count(finished_at) FROM run"), 2);
  assert_text(db, "SELECT group_concat(token) FROM (SELECT token FROM step WHERE run = 1 ORDER BY step)",
              "3,5,7,9,9,10");
  assert_text(db, "SELECT group_concat(step) FROM (SELECT DISTINCT step FROM kv_row WHERE run = 1 ORDER BY step)",
              "0,1,2,3,5");
  assert_int_equal(number(db, "SELECT count(*) FROM step WHERE run = 2"), 4);
  /* seq counts on over the whole run, from 0, without a gap */
  assert_int_equal(number(db, "SELECT max(seq) + 1 = count(*) AND min(seq) = 0 FROM event WHERE run = 1"), 1);
  assert_int_equal(number(db, "SELECT count(*) FROM (SELECT step < lag(step) OVER (ORDER BY seq) AS back FROM event "
                              "WHERE run = 1) WHERE back"),
                   0);
  sqlite3_close(db);
}

static void what_cannot_be_resumed(void **state) {
  (void)state;
  make_runs(1);
  assert_status(kvs_trace_resume_run(trace, model, tokenizer, 2, NULL, &error), KVS_ERR_INPUT, __LINE__);
  assert_says("there is no run 2 in it");
  ok(kvs_trace_close(trace, &error));
  trace = NULL;
  alter(in_folder("r.kvt"), "UPDATE run SET engine = 'mine'");
  ok(kvs_trace_create(in_folder("r.kvt"), KVS_TRACE_APPEND, &trace, &error));
  assert_status(kvs_trace_resume_run(trace, model, tokenizer, 1, NULL, &error), KVS_ERR_INPUT, __LINE__);
  assert_says("another engine");
  assert_status(kvs_trace_end_run(trace, &error), KVS_ERR_USAGE, __LINE__); /* nothing was opened by that */
  kvs_model *other;
  ok(kvs_model_open("austen", &other, &error));
  kvs_tokenizer *others;
  ok(kvs_tokenizer_open("austen", &others, &error));
  assert_status(kvs_trace_resume_run(trace, other, others, 1, NULL, &error), KVS_ERR_INPUT, __LINE__);
  kvs_tokenizer_free(others);
  kvs_model_free(other);
}

/* ---- calls out of order --------------------------------------------------------------------------------------------- */

static void a_step_without_a_run(void **state) {
  (void)state;
  make_runs(1);
  kvs_observer observer = kvs_trace_observer(trace);
  kvs_engine_observe(engine, &observer);
  assert_status(kvs_engine_decode(engine, 3, KVS_FORCED, &error), KVS_ERR_USAGE, __LINE__);
  assert_says("no run is open; begin a run first");
  kvs_engine_observe(engine, NULL);
  assert_status(kvs_engine_decode(engine, 3, KVS_FORCED, &error), KVS_ERR_USAGE, __LINE__);
  assert_says("reset the engine first"); /* that step was cut short */
  kvs_engine_reset(engine);
  ok(kvs_engine_decode(engine, 3, KVS_FORCED, &error));
}

static void a_run_that_is_ended_twice(void **state) {
  (void)state;
  make_runs(1);
  assert_status(kvs_trace_end_run(trace, &error), KVS_ERR_USAGE, __LINE__);
  assert_says("no run is open that could be ended");
  ok(kvs_trace_settle(trace, &error)); /* nothing to wait for is no error */
  kvs_trace_leave_run(trace);
  sqlite3 *db;
  ok(kvs_trace_read(in_folder("r.kvt"), &db, &error));
  assert_int_equal(number(db, "SELECT count(finished_at) FROM run"), 1);
  sqlite3_close(db);
}

#define WITH_RUNS(test) cmocka_unit_test_teardown(test, close_all)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_trace_s_words),
      cmocka_unit_test(an_engine_says_what_it_decodes_with),
      cmocka_unit_test(a_text_of_more_than_two_gigabytes),
      WITH_RUNS(a_resumed_run_goes_on_where_it_ended),
      WITH_RUNS(what_cannot_be_resumed),
      WITH_RUNS(a_step_without_a_run),
      WITH_RUNS(a_run_that_is_ended_twice),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
