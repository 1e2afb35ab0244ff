/* test_trace_log.c: the write-ahead log is moved into the file beside the run: the right file, and what goes wrong is told once. */
#include "trace_file.h"

#include <signal.h>
#include <sys/resource.h>

static kvs_observer observer;

/* The log is moved after each commit. */
static void open_trace(const char *path) {
  kvs_trace_source source = made_source(&small_config);
  ok(kvs_trace_create(path, KVS_TRACE_APPEND, &trace, &error));
  ok(begin(&source));
  observer = kvs_trace_observer(trace);
  trace->wal_step = 1;
}

static kvs_status feed_and_settle(int step) {
  kvs_status status = feed(&observer, &small_config, step, &error);
  return status == KVS_OK ? kvs_trace_settle(trace, &error) : status;
}

static void the_log_is_moved_wherever_the_process_is(void **state) {
  (void)state;
  char before[1000];
  assert_non_null(getcwd(before, sizeof before));
  assert_int_equal(chdir(folder), 0);
  open_trace("relative.kvt");
  assert_int_equal(chdir("/"), 0);
  kvs_status status = feed_and_settle(0);
  assert_int_equal(chdir(before), 0);
  assert_status(status, KVS_OK, __LINE__);
  assert_non_null(trace->mover);
  ok(kvs_trace_end_run(trace, &error));
  ok(kvs_trace_close(trace, &error));
  assert_one_file(in_folder("relative.kvt"));
}

/* Where more is left to be moved each time the mover is done (a reader sees to that here), the log begins anew all the same. */
static void a_log_that_grows_fast_begins_anew(void **state) {
  (void)state;
  int rc = SQLITE_OK;
  sqlite3 *db;
  open_trace(in_folder("fast.kvt"));
  trace->wal_limit = 1;
  ok(kvs_trace_read(in_folder("fast.kvt"), &db, &error));
  execute(db, "BEGIN; SELECT count(*) FROM step");
  ok(feed_and_settle(0)); /* the mover is asked */
  assert_non_null(trace->mover);
  while (!kvs_mover_idle(trace->mover, &rc)) usleep(1000);
  assert_int_equal(rc, SQLITE_OK);
  sqlite3_close(db);
  ok(feed_and_settle(1)); /* all is moved here */
  int pages = trace->wal_pages;
  ok(feed_and_settle(2));
  assert_true(trace->wal_pages < pages);
  ok(kvs_trace_end_run(trace, &error));
  ok(kvs_trace_close(trace, &error));
}

/* Files may be no longer than this one is: there is room for the log, but the file cannot grow. */
static void limit_to(const char *path, struct rlimit *before) {
  struct stat st;
  assert_int_equal(stat(path, &st), 0);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, before), 0);
  struct rlimit limit = {.rlim_cur = (rlim_t)st.st_size, .rlim_max = before->rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* The error comes from the thread that moves the log, after a step was committed; the run after it has nothing to do with it. */
static void an_error_of_moving_is_told_to_one_run(void **state) {
  (void)state;
  enum { RUNS = 8, STEPS = 60, MOST = 20 };
  const char *path = in_folder("moving.kvt");
  struct rlimit before;
  for (int i = 0; i < RUNS; i++) make_trace(path, STEPS, NULL);
  open_trace(path);
  limit_to(path, &before);
  int step = 0, kept = -1;
  kvs_status status = KVS_OK;
  for (; step < MOST && (status = feed_and_settle(step)) == KVS_OK; step++) usleep(30000);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  assert_status(status, KVS_ERR_IO, __LINE__);
  assert_says("disk full");
  assert_int_equal(sscanf(strstr(error.message, "steps 0.."), "steps 0..%d", &kept), 1);
  assert_int_equal(kept, step); /* it was committed before */
  kvs_trace_leave_run(trace);
  kvs_trace_source source = made_source(&small_config);
  ok(begin(&source));
  for (step = 0; step < 3; step++) ok(feed_and_settle(step));
  ok(kvs_trace_end_run(trace, &error));
  ok(kvs_trace_close(trace, &error));
  assert_one_file(path);
}

/* Nor does it fail the next run's beginning, which is in the file by then, and would stay there. */
static void a_run_begins_whatever_is_wrong_with_the_log(void **state) {
  (void)state;
  const char *path = in_folder("begins.kvt");
  kvs_trace_source source = made_source(&small_config);
  struct rlimit before;
  for (int i = 0; i < 8; i++) make_trace(path, 60, NULL);
  open_trace(path);
  limit_to(path, &before);
  kvs_status first = KVS_OK;
  for (int step = 0; step < 10 && first == KVS_OK; step++) { /* more than there is room for in the file */
    trace->wal_step = step < 9 ? 1 << 20 : 1;
    first = feed_and_settle(step);
  }
  kvs_trace_leave_run(trace);
  usleep(100000); /* for the thread to fail; what is asserted holds without it */
  kvs_status second = begin(&source);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  assert_status(first, KVS_OK, __LINE__);
  assert_status(second, KVS_OK, __LINE__);
  assert_int_equal(kvs_trace_leave_run(trace), 0);
  ok(kvs_trace_close(trace, &error));
  sqlite3 *db;
  ok(kvs_trace_read(path, &db, &error));
  assert_text(db, "SELECT group_concat(run) FROM run", "1,2,3,4,5,6,7,8,9");
  sqlite3_close(db);
}

/* SQLite's words are those of the error, where it comes from another connection than the trace's own. */
static void an_error_of_moving_has_its_own_words(void **state) {
  (void)state;
  open_trace(in_folder("words.kvt"));
  assert_status(kvs_trace_fail(trace, SQLITE_IOERR_FSYNC, &error), KVS_ERR_IO, __LINE__);
  assert_says("cannot be written: disk I/O error");
  kvs_trace_leave_run(trace);
  ok(kvs_trace_close(trace, &error));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_log_is_moved_wherever_the_process_is),
      cmocka_unit_test(a_log_that_grows_fast_begins_anew),
      cmocka_unit_test(an_error_of_moving_is_told_to_one_run),
      cmocka_unit_test(a_run_begins_whatever_is_wrong_with_the_log),
      cmocka_unit_test(an_error_of_moving_has_its_own_words),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
