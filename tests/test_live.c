/* test_live.c: decoding while somebody looks. What a session adds to a trace is compared, row for row, with what `kvstep run` writes in
 * one go. */
#include "tests/live_session.h"

/* ---- going on ------------------------------------------------------------------------------------------------------- */

/* Three tokens by `kvstep run`, then in pieces here: the same as all of them by `kvstep run`. */
static void goes_on_as(const char *name, const char *options) {
  char first[512], whole[512];
  snprintf(first, sizeof first, "-m %s %s -n 3", name, options);
  snprintf(whole, sizeof whole, "-m %s %s -n 10", name, options);
  record(path, first);
  record(other, whole);
  open_live(name);
  int steps = go_on(1, 1).steps;
  struct live_status status = go_on(1, 4);
  assert_int_equal(status.steps, steps + 4);
  assert_int_equal(status.end, LIVE_DONE);
  shut();
  open_live(name); /* another session: the engine is fed all of it again */
  status = go_on(1, 2);
  assert_int_equal(status.steps, steps + 6);
  assert_int_equal(number(db, "SELECT count(*) FROM run WHERE finished_at IS NOT NULL"), 1);
  shut();
  is_one_whole_file();
  is_row_for_row(1, 1, 0);
  assert_int_equal(start(NULL), 0);
}

static void a_run_goes_on_as_if_made_in_one_go(void **state) {
  (void)state;
  goes_on_as("austen", "-p 'It is a truth' --log full");
  goes_on_as("austen", "-p 'It is a truth' --layers 0,3 --heads 1,2");
  goes_on_as("austen", "-p 'It is a truth' --log steps");
  goes_on_as("reverse", "-p 'positions>'"); /* the tenth token ends the text */
}

static void a_sampled_run_keeps_its_random_numbers(void **state) {
  (void)state;
  goes_on_as("austen", "-p 'It is' --temperature 0.9 --top-k 40 --seed 7");
  goes_on_as("austen", "-p 'It is' --temperature 1.3 --top-p 0.8 --seed 18446744073709551615");
}

static void every_fault_goes_on(void **state) {
  (void)state;
  char options[256];
  for (int i = 0; kvs_fault_at(i); i++) {
    snprintf(options, sizeof options, "-p 'It is a truth' --fault %s", kvs_fault_at(i)->name);
    goes_on_as("austen", options);
  }
  goes_on_as("austen", "-p 'It is a truth' --fault off-by-one --fault-from 5"); /* amid what is fed again */
}

/* What a run under any fault was given, decoded without it: the prompt once, each token once, the rule kept. */
static void every_fault_is_taken_out_again(void **state) {
  (void)state;
  char options[256];
  for (int i = 0; kvs_fault_at(i); i++) {
    const kvs_fault *fault = kvs_fault_at(i);
    if (fault->fills_context) continue; /* its prompt is another one */
    snprintf(options, sizeof options, "-m austen -p 'It is a truth' -n 6 --fault %s", fault->name);
    record(path, options);
    record(other, "-m austen -p 'It is a truth' -n 6");
    open_live("austen");
    ask(&(struct live_order){.kind = LIVE_AGAIN, .run = 1});
    struct live_status status = done();
    if (status.end != LIVE_DONE) fail_msg("%s: %s", fault->name, status.text);
    char sql[8192];
    snprintf(sql, sizeof sql, "ATTACH '%s' AS other", other);
    execute(db, sql);
    int prompt = (int)number(db, "SELECT count(*) FROM other.step WHERE source = 'prompt'");
    assert_int_equal(status.steps, prompt + 6);
    assert_int_equal(number(db, "SELECT count(*) FROM main.rule WHERE run = 2 AND off_by = 0"), prompt + 6);
    assert_int_equal(number(db, "SELECT count(*) FROM main.step WHERE run = 2 AND cache_length_before = step "
                                "AND (step < (SELECT count(*) FROM other.step WHERE source = 'prompt')) = "
                                "(source = 'prompt') AND source <> 'sampled'"),
                     prompt + 6);
    assert_int_equal(number(db, "SELECT count(*) FROM main.step AS a JOIN other.step AS b USING (step, token) "
                                "WHERE a.run = 2 AND b.source = 'prompt'"),
                     prompt);
    assert_int_equal(stop(NULL), 0);
    assert_int_equal(start(NULL), 0);
  }
}

static void every_fault_is_put_in(void **state) {
  (void)state;
  record(path, "-m reverse -p 'position>' -n 4");
  open_live("reverse");
  for (int i = 0; kvs_fault_at(i); i++) {
    const kvs_fault *fault = kvs_fault_at(i);
    ask(&(struct live_order){.kind = LIVE_AGAIN, .run = 1, .fault = fault});
    struct live_status status = done();
    if (status.end == LIVE_FAILED || status.end == LIVE_STOPPED) fail_msg("%s: %s", fault->name, status.text);
    assert_int_equal(status.run, i + 2);
    char sql[512];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM run WHERE run = %d AND fault = '%s'", i + 2, fault->name);
    assert_int_equal(number(db, sql), 1);
    if (fault->fills_context) assert_true(status.steps >= 31);
  }
  shut();
  is_one_whole_file();
}

static void the_end_of_the_text_is_told_and_can_be_passed(void **state) {
  (void)state;
  record(path, "-m reverse -p 'abc>' -n 1");
  open_live("reverse");
  struct live_status status = go_on(1, 20);
  assert_int_equal(status.end, LIVE_END_TOKEN);
  int steps = status.steps;
  assert_true(steps < 20);
  char sql[128];
  snprintf(sql, sizeof sql, "SELECT token FROM step WHERE run = 1 AND step = %d", steps - 1);
  assert_int_equal(number(db, sql), live_end_token(live));
  assert_int_equal(go_on(1, 1).steps, steps + 1);
}

static void the_context_ends(void **state) {
  (void)state;
  record(path, "-m reverse -p 'position>' -n 2");
  open_live("reverse");
  struct live_status status = {.end = LIVE_NOT_YET};
  while (status.end != LIVE_CONTEXT) status = go_on(1, 30); /* past each end of text */
  assert_int_equal(status.steps, 32);
  assert_non_null(strstr(status.text, "context is full"));
  status = go_on(1, 1);
  assert_int_equal(status.end, LIVE_CONTEXT);
  assert_int_equal(number(db, "SELECT count(*) FROM run WHERE finished_at IS NOT NULL"), 1);
  shut();
  is_one_whole_file();
}

/* ---- new runs ------------------------------------------------------------------------------------------------------- */

static void a_prompt_makes_a_run(void **state) {
  (void)state;
  record(path, "-m austen -p 'It is a truth' -n 3");
  record(other, "-m austen -p 'It is' -n 2");
  record(other, "-m austen -p 'She was\n' -n 6 --append");
  open_live("austen");
  ask(&(struct live_order){.kind = LIVE_PROMPT, .run = 1, .tokens = 6, .prompt = "She was\n", .prompt_length = 8});
  struct live_status status = done();
  assert_int_equal(status.run, 2);
  assert_int_equal(status.end, LIVE_DONE);
  shut();
  is_one_whole_file();
  is_row_for_row(2, 2, 0);
}

static void the_same_tokens_once_more_under_a_fault(void **state) {
  (void)state;
  record(path, "-m austen -p 'It is a truth' -n 8");
  open_live("austen");
  const kvs_fault *fault = kvs_fault_find("off-by-one");
  ask(&(struct live_order){.kind = LIVE_AGAIN, .run = 1, .fault = fault});
  assert_int_equal(done().run, 2);
  ask(&(struct live_order){.kind = LIVE_AGAIN, .run = 2});
  struct live_status status = done();
  assert_int_equal(status.run, 3);
  int prompt = (int)number(db, "SELECT count(*) FROM step WHERE run = 1 AND source = 'prompt'");
  assert_int_equal(status.steps, prompt + 8);
  /* The tokens are run 1's; the generated ones are forced; the positions are one too far, and from the first of them on only. */
  assert_int_equal(number(db, "SELECT count(*) FROM step AS a JOIN step AS b USING (step, token) "
                              "WHERE a.run = 1 AND b.run IN (2, 3) AND b.source = "
                              "CASE a.source WHEN 'sampled' THEN 'forced' ELSE a.source END"),
                   2 * (prompt + 8));
  assert_int_equal(number(db, "SELECT count(*) FROM rule WHERE run = 2 AND off_by = 1"), 8);
  assert_int_equal(number(db, "SELECT count(*) FROM rule WHERE run IN (1, 3) AND off_by = 0"), 2 * (prompt + 8));
  assert_int_equal(number(db, "SELECT fault_from_step FROM run WHERE run = 2"), prompt);
  /* Without the fault the numbers are run 1's own, bit for bit. */
  assert_int_equal(number(db,
                          "SELECT count(*) FROM step_vector AS a JOIN step_vector AS b USING (step) WHERE a.run = 1 "
                          "AND b.run = 3 AND a.logits = b.logits"),
                   prompt + 8);
  assert_int_equal(number(db,
                          "SELECT count(*) FROM step_vector AS a JOIN step_vector AS b USING (step) WHERE a.run = 1 "
                          "AND b.run = 2 AND a.logits = b.logits"),
                   prompt);
  /* Each goes on by itself. */
  assert_int_equal(go_on(2, 1).steps, prompt + 9);
  assert_int_equal(go_on(1, 1).steps, prompt + 9);
  assert_int_equal(number(db, "SELECT off_by FROM rule WHERE run = 2 ORDER BY step DESC LIMIT 1"), 1);
  shut();
  is_one_whole_file();
}

/* ---- stopping ------------------------------------------------------------------------------------------------------- */

/* Waits, without a clock, until the session has told of that many steps, or is done. */
static void wait_for_steps(int steps) {
  struct live_status status;
  for (;;) {
    live_status(live, &status);
    if (!status.working || status.steps >= steps) return;
    struct pollfd wake = {live_wake_fd(live), POLLIN, 0};
    poll(&wake, 1, 1000);
    live_woken(live);
  }
}

static void a_stopped_run_is_whole_and_can_go_on(void **state) {
  (void)state;
  record(path, "-m austen -p 'It is a truth' -n 1");
  open_live("austen");
  for (int i = 0; i < 8; i++) {
    int before = (int)number(db, "SELECT count(*) FROM step WHERE run = 1");
    ask(&(struct live_order){.kind = LIVE_GO_ON, .run = 1, .tokens = 1000});
    if (i % 2) wait_for_steps(before + i);
    live_stop(live);
    struct live_status status = done();
    assert_true(status.end == LIVE_STOPPED || status.end == LIVE_CONTEXT);
    assert_int_equal(number(db, "SELECT count(*) FROM step WHERE run = 1"),
                     status.end == LIVE_STOPPED && status.steps == 0 ? before : status.steps);
    /* Another writer is not held up. */
    assert_int_equal(shell("sqlite3 '%s' 'PRAGMA busy_timeout = 1; BEGIN IMMEDIATE; ROLLBACK' >/dev/null", path), 0);
  }
  struct live_status status = go_on(1, 2);
  int steps = (int)number(db, "SELECT count(*) FROM step WHERE run = 1");
  assert_int_equal(status.steps, steps);
  shut();
  is_one_whole_file();
  char whole[256];
  snprintf(whole, sizeof whole, "-m austen -p 'It is a truth' -n %d",
           steps - (int)number((sqlite3_open(path, &db), db), "SELECT count(*) FROM step WHERE source = 'prompt'"));
  record(other, whole);
  is_row_for_row(1, 1, 1);
}

static void a_stopped_run_says_that_it_is_not_finished(void **state) {
  (void)state;
  record(path, "-m austen -p 'It is a truth' -n 1");
  open_live("austen");
  ask(&(struct live_order){.kind = LIVE_GO_ON, .run = 1, .tokens = 1000});
  live_stop(live); /* before its first step, or in it, or soon after */
  struct live_status status = done();
  bool grew = number(db, "SELECT count(*) FROM step WHERE run = 1 AND source = 'sampled'") > 1;
  if (status.end == LIVE_STOPPED)
    assert_int_equal(number(db, "SELECT finished_at IS NULL FROM run WHERE run = 1"), grew);
  ask(&(struct live_order){.kind = LIVE_GO_ON, .run = 1, .tokens = 1000});
  wait_for_steps(12);
  shut(); /* while it decodes */
  is_one_whole_file();
  sqlite3_open(path, &db);
  assert_int_equal(number(db, "SELECT finished_at IS NULL FROM run WHERE run = 1"), 1);
}

static void one_order_at_a_time(void **state) {
  (void)state;
  record(path, "-m austen -p 'It is a truth' -n 1");
  open_live("austen");
  const struct live_order order = {.kind = LIVE_GO_ON, .run = 1, .tokens = 100};
  ask(&order);
  assert_int_equal(live_ask(live, db, &order, &err), KVS_ERR_USAGE);
  live_stop(live);
  done();
  live_stop(live); /* nothing to stop: the next order is not stopped by it */
  assert_int_equal(go_on(1, 1).end, LIVE_DONE);
}

/* A new run that is stopped has all of its prompt or is not there. */
static void a_run_without_a_step_is_not_left(void **state) {
  (void)state;
  record(path, "-m austen -p 'It is a truth' -n 1");
  open_live("austen");
  for (int i = 0; i < 5; i++) {
    ask(&(struct live_order){.kind = LIVE_PROMPT, .run = 1, .tokens = 50, .prompt = "She was", .prompt_length = 7});
    live_stop(live);
    done();
    assert_int_equal(number(db, "SELECT count(*) FROM run WHERE NOT EXISTS (SELECT 1 FROM step WHERE run = run.run)"),
                     0);
  }
  assert_int_equal(go_on(1, 1).end, LIVE_DONE);
}

static void the_prompt_is_read_as_it_is(void **state) {
  (void)state;
  char *prompt;
  size_t length;
  record(path, "-m austen -p 'She\tsaid\n\\' -n 1");
  open_live("austen");
  assert_int_equal(live_prompt(db, 1, &prompt, &length, &err), KVS_OK);
  assert_int_equal(length, 10);
  assert_memory_equal(prompt, "She\tsaid\n\\", 11);
  free(prompt);
  assert_int_equal(live_prompt(db, 2, &prompt, &length, &err), KVS_ERR_INPUT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      LIVE_TEST(a_run_goes_on_as_if_made_in_one_go),
      LIVE_TEST(a_sampled_run_keeps_its_random_numbers),
      LIVE_TEST(every_fault_goes_on),
      LIVE_TEST(every_fault_is_taken_out_again),
      LIVE_TEST(every_fault_is_put_in),
      LIVE_TEST(the_end_of_the_text_is_told_and_can_be_passed),
      LIVE_TEST(the_context_ends),
      LIVE_TEST(a_prompt_makes_a_run),
      LIVE_TEST(the_same_tokens_once_more_under_a_fault),
      LIVE_TEST(a_stopped_run_is_whole_and_can_go_on),
      LIVE_TEST(a_stopped_run_says_that_it_is_not_finished),
      LIVE_TEST(a_run_without_a_step_is_not_left),
      LIVE_TEST(one_order_at_a_time),
      LIVE_TEST(the_prompt_is_read_as_it_is),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
