/* test_live.c: decoding while somebody looks. What a session adds to a trace is compared, row for row, with what `kvstep run` writes in
 * one go; what it must not do is tried. KVSTEP names the binary. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kvstep/kvstep.h"
#include "study/live.h"

static char folder[] = "/tmp/kvstep-live-XXXXXX";
static char program[4096], path[4200], other[4200];
static struct live *live;
static kvs_model *model;
static kvs_tokenizer *tokenizer;
static sqlite3 *db;
static kvs_error err;

/* ---- helpers -------------------------------------------------------------------------------------------------------- */

static int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int shell(const char *format, ...) {
  char line[16384];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  int status = system(line);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A run in the trace that is to be gone on with, or in the one that it is compared with. */
static void record(const char *to, const char *options) {
  assert_int_equal(shell("'%s' run -o '%s' %s >/dev/null 2>&1", program, to, options), 0);
}

static int make_folder(void **state) {
  (void)state;
  const char *named = getenv("KVSTEP");
  if (!realpath(named ? named : "./kvstep", program) || !mkdtemp(folder)) return -1;
  return 0;
}

static int remove_folder(void **state) {
  (void)state;
  return shell("chmod -R u+w '%s' && rm -rf '%s'", folder, folder);
}

static int start(void **state) {
  (void)state;
  snprintf(path, sizeof path, "%s/live.db", folder);
  snprintf(other, sizeof other, "%s/other.db", folder);
  return shell("rm -f '%s'/*", folder);
}

static void free_model(void) {
  kvs_tokenizer_free(tokenizer);
  kvs_model_free(model);
  tokenizer = NULL;
  model = NULL;
}

/* The screen's order: who reads is closed before who writes. */
static void shut(void) {
  assert_int_equal(sqlite3_close(db), SQLITE_OK);
  db = NULL;
  kvs_status status = live_close(live, &err);
  live = NULL;
  free_model();
  if (status != KVS_OK) fail_msg("%s", err.message);
}

static int stop(void **state) {
  (void)state;
  sqlite3_close(db);
  live_close(live, NULL);
  db = NULL;
  live = NULL;
  free_model();
  return 0;
}

static kvs_status open_with(const char *name) {
  assert_int_equal(kvs_model_open(name, &model, &err), KVS_OK);
  assert_int_equal(kvs_tokenizer_open(name, &tokenizer, &err), KVS_OK);
  return live_open(path, model, tokenizer, &live, &err);
}

static void open_live(const char *name) {
  if (open_with(name) != KVS_OK) fail_msg("%s", err.message);
  if (kvs_trace_read(path, &db, &err) != KVS_OK) fail_msg("%s", err.message);
}

static void ask(const struct live_order *order) {
  if (live_ask(live, db, order, &err) != KVS_OK) fail_msg("%s", err.message);
}

static struct live_status done(void) {
  struct live_status status;
  live_wait(live);
  live_status(live, &status);
  assert_false(status.working);
  return status;
}

static struct live_status go_on(int run, int tokens) {
  ask(&(struct live_order){.kind = LIVE_GO_ON, .run = run, .tokens = tokens});
  return done();
}

static long long number(sqlite3 *from, const char *sql) {
  sqlite3_stmt *statement;
  if (sqlite3_prepare_v2(from, sql, -1, &statement, NULL) != SQLITE_OK) fail_msg("%s: %s", sql, sqlite3_errmsg(from));
  assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
  long long value = sqlite3_column_int64(statement, 0);
  sqlite3_finalize(statement);
  return value;
}

/* One file, whole, not in WAL mode. */
static void is_one_whole_file(void) {
  sqlite3 *file;
  assert_int_equal(shell("test \"$(ls '%s' | grep -c '^live.db')\" = 1", folder), 0);
  assert_int_equal(sqlite3_open(path, &file), SQLITE_OK);
  assert_int_equal(number(file, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"), 1);
  assert_int_equal(number(file, "SELECT count(*) FROM pragma_journal_mode WHERE journal_mode = 'delete'"), 1);
  assert_int_equal(number(file, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
  sqlite3_close(file);
}

/* What may differ: when, and how fast. */
static const struct {
  const char *table, *columns;
} tables[] = {
    {"run", "model, model_sha256, n_layer, n_head, n_embd, head_dim, n_ctx, n_vocab, fault, fault_from_step, seed, "
            "temperature, top_k, top_p, prompt, finished_at IS NULL"},
    {"step", "step, mode, token, source, cache_length_before, position, cache_length_after, logprob"},
    {"event", "step, seq, phase, layer, cache_length"},
    {"kv_row", "layer, row, step, k, v"},
    {"head_step", "step, layer, head, q, scores, weights, out"},
    {"head_stat", "*"},
    {"layer_step", "step, layer, x_in, attn_out, x_mid, mlp_out, x_out"},
    {"step_vector", "step, wte, wpe, x, logits"},
    {"step_stat", "*"},
    {"top_token", "step, rank, token, token_text, logit, probability"},
};

/* Run `run` of the session's file against run `theirs` of the other one; only the columns that begin a list with a word. */
static void is_row_for_row(int run, int theirs, size_t from) {
  sqlite3 *file;
  char sql[8192];
  assert_int_equal(sqlite3_open(path, &file), SQLITE_OK);
  snprintf(sql, sizeof sql, "ATTACH '%s' AS other", other);
  assert_int_equal(sqlite3_exec(file, sql, NULL, NULL, NULL), SQLITE_OK);
  for (size_t i = from; i < sizeof tables / sizeof *tables; i++) {
    bool all = strcmp(tables[i].columns, "*") == 0;
    if (all && run != theirs) continue; /* the run's number is among them */
    for (int way = 0; way < 2; way++) {
      const char *a = way ? "other" : "main", *b = way ? "main" : "other";
      int ra = way ? theirs : run, rb = way ? run : theirs;
      snprintf(sql, sizeof sql,
               "SELECT count(*) FROM (SELECT %s FROM %s.%s WHERE run = %d EXCEPT SELECT %s FROM %s.%s WHERE run = %d)",
               tables[i].columns, a, tables[i].table, ra, tables[i].columns, b, tables[i].table, rb);
      long long missing = number(file, sql);
      if (missing) fail_msg("%lld rows of %s differ", missing, tables[i].table);
    }
  }
  snprintf(sql, sizeof sql, "SELECT (SELECT count(*) FROM main.event WHERE run = %d) > 0", run);
  assert_int_equal(number(file, sql), 1);
  sqlite3_close(file);
}

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
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    long long prompt = number(db, "SELECT count(*) FROM other.step WHERE source = 'prompt'");
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
  long long steps = number(db, "SELECT count(*) FROM step WHERE run = 1");
  assert_int_equal(status.steps, steps);
  shut();
  is_one_whole_file();
  char whole[256];
  snprintf(whole, sizeof whole, "-m austen -p 'It is a truth' -n %lld",
           steps - number((sqlite3_open(path, &db), db), "SELECT count(*) FROM step WHERE source = 'prompt'"));
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

/* ---- what is refused ------------------------------------------------------------------------------------------------ */

static void refused(const struct live_order *order, kvs_status status, const char *words) {
  assert_int_equal(live_ask(live, db, order, &err), status);
  if (!strstr(err.message, words)) fail_msg("\"%s\" is not in: %s", words, err.message);
}

static void orders_that_cannot_be_done(void **state) {
  (void)state;
  record(path, "-m reverse -p 'position>' -n 2");
  open_live("reverse");
  refused(&(struct live_order){.kind = LIVE_GO_ON, .run = 9, .tokens = 1}, KVS_ERR_INPUT, "no run 9");
  refused(&(struct live_order){.kind = LIVE_PROMPT, .run = 1, .prompt = "", .prompt_length = 0}, KVS_ERR_INPUT,
          "empty");
  refused(&(struct live_order){.kind = LIVE_PROMPT, .run = 1, .prompt = "ABC", .prompt_length = 3}, KVS_ERR_INPUT, "");
  char letters[40];
  memset(letters, 'a', sizeof letters);
  refused(&(struct live_order){.kind = LIVE_PROMPT, .run = 1, .prompt = letters, .prompt_length = sizeof letters},
          KVS_ERR_INPUT, "40 tokens, and the context of reverse holds 32");
  assert_int_equal(number(db, "SELECT count(*) FROM run"), 1);
  shut();
  is_one_whole_file();
}

static void traces_that_are_not_the_models(void **state) {
  (void)state;
  kvs_model *reverse, *austen;
  record(path, "-m reverse -p 'position>' -n 2");
  assert_int_equal(kvs_model_open("reverse", &reverse, &err), KVS_OK);
  assert_int_equal(kvs_model_open("austen", &austen, &err), KVS_OK);
  assert_int_equal(kvs_trace_read(path, &db, &err), KVS_OK);
  assert_int_equal(live_fits(db, path, reverse, &err), KVS_OK);
  assert_int_equal(live_fits(db, path, austen, &err), KVS_ERR_INPUT);
  assert_non_null(strstr(err.message, "other weights"));
  sqlite3_close(db);
  assert_int_equal(shell("sqlite3 '%s' 'UPDATE run SET model_sha256 = NULL'", path), 0);
  assert_int_equal(kvs_trace_read(path, &db, &err), KVS_OK);
  assert_int_equal(live_fits(db, path, reverse, &err), KVS_ERR_INPUT);
  assert_non_null(strstr(err.message, "does not say"));
  kvs_model_free(reverse);
  kvs_model_free(austen);
}

/* Somebody else's run, and one whose numbers are not this engine's. */
static void runs_that_are_not_gone_on_with(void **state) {
  (void)state;
  record(path, "-m reverse -p 'position>' -n 2");
  assert_int_equal(shell("sqlite3 '%s' \"UPDATE run SET engine = 'numpy'\"", path), 0);
  open_live("reverse");
  refused(&(struct live_order){.kind = LIVE_GO_ON, .run = 1, .tokens = 1}, KVS_ERR_INPUT, "another engine (numpy)");
  ask(&(struct live_order){.kind = LIVE_AGAIN, .run = 1}); /* its tokens are */
  assert_int_equal(done().end, LIVE_DONE);
  assert_int_equal(go_on(2, 1).end, LIVE_DONE);
  shut();
  assert_int_equal(shell("sqlite3 '%s' \"UPDATE run SET engine = 'kvstep'; "
                         "UPDATE top_token SET logit = logit + 0.001 WHERE run = 1\"",
                         path),
                   0);
  open_live("reverse");
  struct live_status status = go_on(1, 1);
  assert_int_equal(status.end, LIVE_FAILED);
  assert_non_null(strstr(status.text, "do not give the numbers"));
  assert_int_equal(number(db, "SELECT count(*) FROM step WHERE run = 1"), 11);
  assert_int_equal(number(db, "SELECT finished_at IS NOT NULL FROM run WHERE run = 1"), 1);
  shut();
  assert_int_equal(shell("sqlite3 '%s' 'DELETE FROM step WHERE run = 1 AND step = 4'", path), 0);
  open_live("reverse");
  refused(&(struct live_order){.kind = LIVE_GO_ON, .run = 1, .tokens = 1}, KVS_ERR_INPUT, "step 4 of run 1 is not");
}

/* A program that may be writing the run: the sqlite3 shell with the trace open in WAL mode, told through pipes when to go. */
static void a_run_that_somebody_else_may_be_writing(void **state) {
  (void)state;
  record(path, "-m reverse -p 'position>' -n 2");
  assert_int_equal(shell("sqlite3 '%s' 'UPDATE run SET finished_at = NULL'", path), 0);
  open_live("reverse");
  int to[2], from[2];
  assert_int_equal(pipe(to), 0);
  assert_int_equal(pipe(from), 0);
  pid_t child = fork();
  if (child == 0) {
    dup2(to[0], 0);
    dup2(from[1], 1);
    close(to[1]);
    close(from[0]);
    execlp("sqlite3", "sqlite3", path, (char *)NULL);
    _exit(127);
  }
  static const char begin[] = "PRAGMA journal_mode = WAL; SELECT count(*) FROM run; SELECT 'open';\n";
  assert_int_equal(write(to[1], begin, sizeof begin - 1), sizeof begin - 1);
  char said[256] = "";
  for (size_t used = 0; !strstr(said, "open");) {
    ssize_t n = read(from[0], said + used, sizeof said - 1 - used);
    assert_true(n > 0);
    used += (size_t)n;
  }
  refused(&(struct live_order){.kind = LIVE_GO_ON, .run = 1, .tokens = 1}, KVS_ERR_IO, "another program");
  close(to[1]);
  close(to[0]);
  waitpid(child, NULL, 0);
  close(from[0]);
  close(from[1]);
  assert_int_equal(go_on(1, 1).end, LIVE_DONE); /* it was cut off, and nobody is there */
  shut();
  is_one_whole_file();
}

/* What opening it for decoding says to somebody who is not root, for whom there are no permissions. */
static kvs_status open_as_a_guest(void) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && setuid(65534) != 0) _exit(99);
    _exit((int)open_with("reverse"));
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  return (kvs_status)WEXITSTATUS(status);
}

/* Two who go on with one run at the same time: one of them is first with a row. */
static void somebody_else_is_first(void **state) {
  (void)state;
  record(path, "-m reverse -p 'position>' -n 3");
  open_live("reverse");
  go_on(1, 1);
  assert_int_equal(shell("sqlite3 '%s' \"INSERT INTO kv_row (run, layer, row, step) VALUES (1, 1, 13, 13)\"", path), 0);
  struct live_status status = go_on(1, 1);
  assert_int_equal(status.end, LIVE_FAILED);
  assert_non_null(strstr(status.text, "another program has added steps to run 1"));
  assert_null(strstr(status.text, "UNIQUE"));
  assert_int_equal(shell("sqlite3 '%s' 'DELETE FROM kv_row WHERE step = 13'", path), 0);
  assert_int_equal(go_on(1, 1).end, LIVE_DONE);
  shut();
}

static void files_that_cannot_be_written(void **state) {
  (void)state;
  record(path, "-m reverse -p 'position>' -n 2");
  assert_int_equal(chmod(path, 0444), 0);
  assert_int_equal(chmod(folder, 0777), 0);
  assert_int_equal(open_as_a_guest(), KVS_ERR_IO);
  assert_int_equal(chmod(path, 0666), 0);
  assert_int_equal(open_as_a_guest(), KVS_OK);
  assert_int_equal(chmod(folder, 0555), 0); /* no log could be made beside it */
  assert_int_equal(open_as_a_guest(), KVS_ERR_IO);
  assert_int_equal(chmod(folder, 0755), 0);
}

static void files_that_go(void **state) {
  (void)state;
  record(path, "-m reverse -p 'position>' -n 2");
  open_live("reverse");
  assert_int_equal(rename(path, other), 0);
  struct live_status status = go_on(1, 1);
  assert_int_equal(status.end, LIVE_FAILED);
  assert_non_null(strstr(status.text, "deleted or replaced"));
  assert_int_equal(access(path, F_OK), -1); /* and no other is made in its place */
  assert_int_equal(rename(other, path), 0);
  assert_int_equal(go_on(1, 1).end, LIVE_DONE);
}

/* A limit on the size of files stands for a full disk. */
static void a_full_disk(void **state) {
  (void)state;
  record(path, "-m austen -p 'It is a truth' -n 1");
  open_live("austen");
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit before, limit;
  struct stat st;
  assert_int_equal(stat(path, &st), 0);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  limit = before;
  limit.rlim_cur = (rlim_t)st.st_size + 400000;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  struct live_status status = go_on(1, 1000);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  assert_int_equal(status.end, LIVE_FAILED);
  assert_non_null(strstr(status.text, "disk full"));
  assert_int_equal(number(db, "SELECT count(*) FROM step WHERE run = 1"), status.steps);
  assert_int_equal(number(db, "SELECT finished_at IS NULL FROM run WHERE run = 1"), 1);
  int steps = status.steps;
  assert_int_equal(go_on(1, 3).steps, steps + 3); /* there is space again */
  shut();
  is_one_whole_file();
}

static void a_locked_file(void **state) {
  (void)state;
  record(path, "-m reverse -p 'position>' -n 2");
  open_live("reverse");
  assert_int_equal(go_on(1, 1).end, LIVE_DONE);
  sqlite3 *writer;
  assert_int_equal(sqlite3_open(path, &writer), SQLITE_OK);
  assert_int_equal(sqlite3_exec(writer, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
  struct live_status status = go_on(1, 1); /* after five seconds of trying */
  assert_int_equal(status.end, LIVE_FAILED);
  assert_non_null(strstr(status.text, "locked by another program"));
  sqlite3_close(writer);
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
#define LIVE_TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
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
      LIVE_TEST(orders_that_cannot_be_done),
      LIVE_TEST(traces_that_are_not_the_models),
      LIVE_TEST(runs_that_are_not_gone_on_with),
      LIVE_TEST(a_run_that_somebody_else_may_be_writing),
      LIVE_TEST(somebody_else_is_first),
      LIVE_TEST(files_that_cannot_be_written),
      LIVE_TEST(files_that_go),
      LIVE_TEST(a_full_disk),
      LIVE_TEST(a_locked_file),
      LIVE_TEST(the_prompt_is_read_as_it_is),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
