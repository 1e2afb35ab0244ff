/* test_trace_gone.c: a trace that is deleted, moved or replaced under its writer, and one that its writer takes away again. */
#include "trace_file.h"

/* Begins a run and makes two steps that are in the file. */
static kvs_observer begin_two_steps(const char *path) {
  kvs_trace_source source = made_source(&small_config);
  ok(kvs_trace_create(path, KVS_TRACE_NEW, &trace, &error));
  ok(begin(&source));
  kvs_observer observer = kvs_trace_observer(trace);
  for (int step = 0; step < 2; step++) ok(feed(&observer, &small_config, step, &error));
  ok(kvs_trace_settle(trace, &error));
  return observer;
}

/* What is now at `away` holds the steps that were kept, all of them in the one file. */
static void assert_kept_at(const char *away, bool finished) {
  sqlite3 *db;
  struct stat log;
  char name[200];
  snprintf(name, sizeof name, "%s-wal", away);
  assert_true(stat(name, &log) != 0 || log.st_size == 0);
  unlink(name);
  ok(kvs_trace_read(away, &db, &error));
  assert_text(db, "SELECT group_concat(step) FROM step", "0,1");
  assert_int_equal(number(db, "SELECT count(finished_at) FROM run"), finished);
  assert_text(db, "PRAGMA integrity_check", "ok");
  sqlite3_close(db);
}

enum loss { DELETED, MOVED, MOVED_WITH_LOG, REPLACED, LOSSES };

static void take_away(const char *path, const char *away, enum loss loss) {
  char from[200], to[200];
  assert_int_equal(loss == DELETED ? unlink(path) : rename(path, away), 0);
  snprintf(from, sizeof from, "%s-wal", path), snprintf(to, sizeof to, "%s-wal", away);
  if (loss == MOVED_WITH_LOG) assert_int_equal(rename(from, to), 0);
  if (loss == REPLACED) make_trace(path, 3, NULL);
}

/* Told with the next step, once; no step goes where nobody would find it, and what is there now is not touched. */
static void a_file_that_is_gone_is_noticed_at_the_next_step(void **state) {
  (void)state;
  for (enum loss loss = DELETED; loss < LOSSES; loss++) {
    char path[128], away[160], name[32];
    snprintf(name, sizeof name, "here%d.kvt", (int)loss);
    snprintf(path, sizeof path, "%s", in_folder(name));
    snprintf(away, sizeof away, "%s.away", path);
    kvs_observer observer = begin_two_steps(path);
    take_away(path, away, loss);
    ok(feed(&observer, &small_config, 2, &error)); /* is written behind the next one */
    assert_status(kvs_trace_settle(trace, &error), KVS_ERR_IO, __LINE__);
    assert_says(path);
    assert_says("deleted, moved or replaced while it was being written; steps 0..1 of run 1 are kept in the file that "
                "was there, and lost with it if it was deleted");
    assert_status(feed(&observer, &small_config, 3, &error), KVS_ERR_USAGE, __LINE__);
    assert_int_equal(kvs_trace_leave_run(trace), 2);
    ok(kvs_trace_close(trace, &error)); /* it was told */
    if (loss != DELETED) assert_kept_at(away, false);
    if (loss == REPLACED) {
      sqlite3 *db;
      ok(kvs_trace_read(path, &db, &error));
      assert_text(db, "SELECT group_concat(step) FROM step", "0,1,2");
      sqlite3_close(db);
    } else {
      assert_false(exists(path, "") || exists(path, "-wal") || exists(path, "-shm"));
    }
  }
}

/* After the last step it is told at the end: the run is finished, in the file that was moved. */
static void a_file_that_was_moved_at_the_end_is_named_so(void **state) {
  (void)state;
  char path[128], away[128];
  snprintf(path, sizeof path, "%s", in_folder("end-here.kvt"));
  snprintf(away, sizeof away, "%s", in_folder("end-away.kvt"));
  begin_two_steps(path);
  take_away(path, away, MOVED);
  ok(kvs_trace_end_run(trace, &error));
  assert_status(kvs_trace_close(trace, &error), KVS_ERR_IO, __LINE__);
  assert_says("deleted, moved or replaced while it was being written; what was written is kept in the file that was "
              "there");
  assert_kept_at(away, true);
}

/* Who writes a new file under the name has a log of its own, and keeps it when the first writer ends. */
static void two_writers_of_one_name_do_not_share_a_log(void **state) {
  (void)state;
  char path[128], away[128];
  snprintf(path, sizeof path, "%s", in_folder("name.kvt"));
  snprintf(away, sizeof away, "%s", in_folder("name-away.kvt"));
  kvs_observer first = begin_two_steps(path);
  kvs_trace *first_trace = trace;
  take_away(path, away, MOVED);
  kvs_observer second = begin_two_steps(path);
  kvs_trace *second_trace = trace;
  ok(feed(&first, &small_config, 2, &error));
  assert_status(kvs_trace_close(first_trace, &error), KVS_ERR_IO, __LINE__);
  assert_says("steps 0..1 of run 1 are kept in the file that was there");
  assert_kept_at(away, false);
  assert_true(exists(path, "-wal"));
  ok(feed(&second, &small_config, 2, &error));
  ok(kvs_trace_end_run(second_trace, &error));
  ok(kvs_trace_close(second_trace, &error));
  assert_one_file(path);
  sqlite3 *db;
  ok(kvs_trace_read(path, &db, &error));
  assert_text(db, "SELECT group_concat(step) FROM step", "0,1,2");
  sqlite3_close(db);
}

/* ---- a run that came to nothing ------------------------------------------------------------------------------------ */

/* Begins a run in a new file, and leaves it before its first step. */
static void leave_without_a_step(const char *path) {
  kvs_trace_source source = made_source(&small_config);
  ok(kvs_trace_create(path, KVS_TRACE_NEW, &trace, &error));
  ok(begin(&source));
  assert_true(exists(path, ""));
  assert_int_equal(kvs_trace_leave_run(trace), 0);
}

/* A file that was made for it is gone again; with a run of somebody else in it, it stays. */
static void a_file_without_a_run_is_removed(void **state) {
  (void)state;
  const char *path = in_folder("nothing.kvt");
  leave_without_a_step(path);
  ok(kvs_trace_close(trace, &error));
  assert_false(exists(path, "") || exists(path, "-wal") || exists(path, "-shm"));

  leave_without_a_step(path);
  kvs_trace *first = trace;
  make_trace(path, 1, NULL);
  ok(kvs_trace_close(first, &error));
  assert_one_file(path);
  sqlite3 *db;
  ok(kvs_trace_read(path, &db, &error));
  assert_int_equal(number(db, "SELECT count(*) FROM step"), 1);
  sqlite3_close(db);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_file_that_is_gone_is_noticed_at_the_next_step),
      cmocka_unit_test(a_file_that_was_moved_at_the_end_is_named_so),
      cmocka_unit_test(two_writers_of_one_name_do_not_share_a_log),
      cmocka_unit_test(a_file_without_a_run_is_removed),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
