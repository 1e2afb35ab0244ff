/* test_live_refused.c: what a live session must not do: orders that cannot be done, traces that are not its own, and files that go, are
 * locked, or cannot be written. */
#include "tests/live_session.h"

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
  execute(writer, "BEGIN IMMEDIATE");
  struct live_status status = go_on(1, 1); /* after five seconds of trying */
  assert_int_equal(status.end, LIVE_FAILED);
  assert_non_null(strstr(status.text, "locked by another program"));
  sqlite3_close(writer);
  assert_int_equal(go_on(1, 1).end, LIVE_DONE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      LIVE_TEST(orders_that_cannot_be_done),
      LIVE_TEST(traces_that_are_not_the_models),
      LIVE_TEST(runs_that_are_not_gone_on_with),
      LIVE_TEST(a_run_that_somebody_else_may_be_writing),
      LIVE_TEST(somebody_else_is_first),
      LIVE_TEST(files_that_cannot_be_written),
      LIVE_TEST(files_that_go),
      LIVE_TEST(a_full_disk),
      LIVE_TEST(a_locked_file),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
