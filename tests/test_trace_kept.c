/* test_trace_kept.c: what is left of a trace after a crash, and while others have it open. */
#include "trace_file.h"

#include <signal.h>
#include <sys/wait.h>

/* ---- children -------------------------------------------------------------------------------------------------- */

/* Runs `body` in a child as nobody; its exit status. */
static int as_nobody(int (*body)(void)) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    if (setgid(65534) || setuid(65534)) _exit(77);
    _exit(body());
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int without_permission(void) {
  sqlite3 *db;
  kvs_error e;
  if (kvs_trace_create(in_folder("new.kvt"), KVS_TRACE_NEW, &trace, &e) != KVS_ERR_IO ||
      !strstr(e.message, "cannot be written"))
    return 1;
  if (kvs_trace_create(in_folder("p.kvt"), KVS_TRACE_APPEND, &trace, &e) != KVS_ERR_IO ||
      !strstr(e.message, "cannot be written"))
    return 2;
  if (kvs_trace_read(in_folder("secret.kvt"), &db, &e) != KVS_ERR_IO || !strstr(e.message, "no permission")) return 3;
  if (kvs_trace_read(in_folder("p.kvt"), &db, &e) != KVS_OK) return 4; /* in a folder where nothing can be made */
  if (number(db, "SELECT count(*) FROM attention") != 12) return 5;
  sqlite3_close(db);
  /* A file that was left in WAL mode, without its log. */
  if (kvs_trace_read(in_folder("wal.kvt"), &db, &e) != KVS_OK) return 6;
  if (number(db, "SELECT count(*) FROM attention") != 12) return 7;
  sqlite3_close(db);
  return 0;
}

static void permissions_are_respected(void **state) {
  (void)state;
  if (geteuid() != 0) {
    print_message("skipped: needs root, to become somebody who has no permission\n");
    skip();
  }
  make_trace(in_folder("p.kvt"), 2, NULL);
  make_trace(in_folder("secret.kvt"), 2, NULL);
  make_trace(in_folder("wal.kvt"), 2, NULL);
  alter(in_folder("wal.kvt"), "PRAGMA journal_mode = WAL");
  assert_false(exists(in_folder("wal.kvt"), "-wal"));
  chmod(in_folder("p.kvt"), 0444), chmod(in_folder("secret.kvt"), 0), chmod(in_folder("wal.kvt"), 0444);
  assert_int_equal(as_nobody(without_permission), 0);
}

/* Writes steps for ever and says after each that it is settled; `surely`: and in the file. */
static void write_until_killed(const char *path, bool surely, int out) {
  kvs_trace_source source = made_source(&small_config);
  kvs_log log = {.level = KVS_LOG_FULL, .last_step = -1};
  if (kvs_trace_create(path, KVS_TRACE_NEW, &trace, NULL) != KVS_OK) _exit(1);
  if (kvs_trace_begin_run_from(trace, &source, NULL, &log, NULL, NULL) != KVS_OK) _exit(2);
  kvs_observer observer = kvs_trace_observer(trace);
  for (int step = 0;; step++) {
    if (feed(&observer, &small_config, step, NULL) != KVS_OK) _exit(3);
    if (surely && kvs_trace_settle(trace, NULL) != KVS_OK) _exit(3);
    if (write(out, "s", 1) != 1) _exit(4);
  }
}

/* Every step that is there is whole. */
static void assert_whole(sqlite3 *db, int at_least) {
  int steps = (int)number(db, "SELECT count(*) FROM step");
  assert_true(steps >= at_least);
  assert_int_equal(number(db, "SELECT ifnull(max(step), -1) FROM step"), steps - 1);
  assert_int_equal(number(db, "SELECT count(*) FROM event"), steps * 17);
  assert_int_equal(number(db, "SELECT count(*) FROM kv_row"), steps * 2);
  assert_int_equal(number(db, "SELECT count(*) FROM head_step"), steps * 4);
  assert_int_equal(number(db, "SELECT count(*) FROM head_stat"), steps * 4);
  assert_int_equal(number(db, "SELECT count(*) FROM layer_step"), steps * 2);
  assert_int_equal(number(db, "SELECT count(*) FROM step_vector"), steps);
  assert_int_equal(number(db, "SELECT count(*) FROM top_token"), steps * 20);
  assert_text(db, "PRAGMA integrity_check", "ok");
}

/* Replacing a file under its writer would end in its removing the new file's log. */
static void a_file_that_is_being_written_is_not_replaced(void **state) {
  (void)state;
  const char *path = in_folder("busy.kvt");
  kvs_trace_source source = made_source(&small_config);
  int ends[2], status;
  assert_int_equal(pipe(ends), 0);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) close(ends[0]), write_until_killed(path, true, ends[1]);
  close(ends[1]);
  char c;
  assert_int_equal(read(ends[0], &c, 1), 1);
  ok(kvs_trace_create(path, KVS_TRACE_REPLACE, &trace, &error));
  assert_status(begin(&source), KVS_ERR_IO, __LINE__);
  assert_says("in use by another program");
  ok(kvs_trace_close(trace, &error));
  assert_int_equal(read(ends[0], &c, 1), 1); /* and it goes on */
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  assert_true(WIFSIGNALED(status));
  close(ends[0]);
  ok(kvs_trace_create(path, KVS_TRACE_REPLACE, &trace, &error));
  ok(begin(&source));
  ok(kvs_trace_end_run(trace, &error));
  ok(kvs_trace_close(trace, &error));
  assert_one_file(path);
}

/* But for those on the two tapes, if nobody waited until they were in the file: four that are to be written together, and three
 * that wait for a fourth. */
static void a_kill_loses_no_settled_step(void **state) {
  (void)state;
  srand(7);
  for (int round = 0; round < 50; round++) {
    char name[32];
    snprintf(name, sizeof name, "kill%d.kvt", round);
    const char *path = in_folder(name);
    bool surely = round % 2;
    int ends[2], wanted = rand() % 40;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) close(ends[0]), write_until_killed(path, surely, ends[1]);
    close(ends[1]);
    char c;
    int settled = 0;
    while (settled < wanted + 1 && read(ends[0], &c, 1) == 1) settled++;
    for (volatile int spin = rand() % 2000000; spin > 0; spin--) {} /* somewhere within a later step */
    kill(child, SIGKILL);
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status));
    while (read(ends[0], &c, 1) == 1) settled++;
    close(ends[0]);
    sqlite3 *db;
    ok(kvs_trace_read(path, &db, &error));
    assert_whole(db, surely ? settled : settled - 7);
    assert_true(isnan(number(db, "SELECT finished_at FROM run")));
    sqlite3_close(db);
    if (round % 10 == 0) { /* the next writer cleans up */
      make_trace(path, 1, NULL);
      assert_one_file(path);
    }
  }
}

/* Makes a file as a writer does, and dies with so much put into its first transaction that some of it is in the log. */
static void die_before_the_first_commit(const char *path) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    sqlite3 *db;
    int rc = sqlite3_open(path, &db);
    if (rc == SQLITE_OK)
      rc = sqlite3_exec(db,
                        "PRAGMA journal_mode = WAL; PRAGMA cache_size = 5; BEGIN; CREATE TABLE run (run, engine);"
                        "INSERT INTO run VALUES (1, randomblob(200000))",
                        NULL, NULL, NULL);
    _exit(rc);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_true(exists(path, "-wal"));
}

static void assert_nothing_in(const char *path) {
  static const char words[] = "a file with nothing in it: a run was stopped before its first step was kept, perhaps; "
                              "remove it, or let a run replace it (--force)";
  sqlite3 *db;
  kvs_trace_source source = made_source(&small_config);
  assert_status(kvs_trace_read(path, &db, &error), KVS_ERR_INPUT, __LINE__);
  assert_says(words);
  kvs_status status = kvs_trace_create(path, KVS_TRACE_APPEND, &trace, &error);
  if (status == KVS_OK) { /* only SQLite can see it, through the log */
    status = begin(&source);
    assert_int_equal(kvs_trace_close(trace, NULL), KVS_OK);
  }
  assert_status(status, KVS_ERR_INPUT, __LINE__);
  assert_says(words);
  assert_true(exists(path, ""));
  ok(kvs_trace_create(path, KVS_TRACE_REPLACE, &trace, &error)); /* the remedy */
  ok(begin(&source));
  ok(kvs_trace_end_run(trace, &error));
  ok(kvs_trace_close(trace, &error));
  assert_one_file(path);
}

/* It has no table yet; what it is can be said all the same, with a log beside it and without. */
static void a_kill_before_the_first_commit_is_named_so(void **state) {
  (void)state;
  const char *path = in_folder("early.kvt");
  fclose(fopen(path, "w"));
  assert_nothing_in(path);
  unlink(path);
  alter(path, "PRAGMA journal_mode = WAL");
  assert_nothing_in(path);
  unlink(path);
  die_before_the_first_commit(path);
  assert_nothing_in(path);
}

/* ---- others at the same time ----------------------------------------------------------------------------------- */

static void a_reader_sees_whole_steps_only(void **state) {
  (void)state;
  const char *path = in_folder("live.kvt");
  kvs_trace_source source = made_source(&small_config);
  ok(kvs_trace_create(path, KVS_TRACE_NEW, &trace, &error));
  ok(begin(&source));
  kvs_observer observer = kvs_trace_observer(trace);
  sqlite3 *db;
  ok(kvs_trace_read(path, &db, &error));
  for (int i = 0; i < 20; i++) {
    kvs_step s = made_step(i, KVS_DECODE);
    ok(feed_unsettled(&observer, &small_config, &s, &error));
    assert_int_equal(number(db, "SELECT count(*) FROM step"), i);
    assert_int_equal(number(db, "SELECT count(*) FROM head_step"), 4 * i);
    ok(observer.settled(observer.context, &error));
    ok(kvs_trace_settle(trace, &error));
    assert_int_equal(number(db, "SELECT count(*) FROM step"), i + 1);
    assert_int_equal(number(db, "SELECT count(*) FROM head_step"), 4 * (i + 1));
  }
  sqlite3_close(db);
  ok(kvs_trace_end_run(trace, &error));
  ok(kvs_trace_close(trace, &error));
  assert_one_file(path);
}

/* A screen that follows a run does not make the run fail. The file is complete by itself, and the next writer leaves WAL mode. */
static void a_run_ends_well_under_a_reader(void **state) {
  (void)state;
  const char *path = in_folder("followed.kvt");
  kvs_trace_source source = made_source(&small_config);
  ok(kvs_trace_create(path, KVS_TRACE_NEW, &trace, &error));
  ok(begin(&source));
  kvs_observer observer = kvs_trace_observer(trace);
  sqlite3 *reader, *copy_db;
  ok(kvs_trace_read(path, &reader, &error));
  kvs_step s = made_step(0, KVS_DECODE);
  ok(feed_unsettled(&observer, &small_config, &s, &error));
  ok(observer.settled(observer.context, &error));
  ok(kvs_trace_settle(trace, &error));
  assert_int_equal(number(reader, "SELECT count(*) FROM step"), 1);
  ok(kvs_trace_end_run(trace, &error));
  ok(kvs_trace_close(trace, &error));
  assert_int_equal(number(reader, "SELECT count(*) FROM run WHERE finished_at IS NOT NULL"), 1);
  char copy[300];
  snprintf(copy, sizeof copy, "%s.copy", path); /* the file alone, without what stands beside it */
  assert_int_equal(shell("cp '%s' '%s'", path, copy), 0);
  ok(kvs_trace_read(copy, &copy_db, &error));
  assert_int_equal(number(copy_db, "SELECT count(*) FROM step"), 1);
  assert_int_equal(number(copy_db, "SELECT count(*) FROM run WHERE finished_at IS NOT NULL"), 1);
  sqlite3_close(copy_db);
  sqlite3_close(reader);
  ok(kvs_trace_create(path, KVS_TRACE_APPEND, &trace, &error));
  ok(begin(&source));
  ok(kvs_trace_end_run(trace, &error));
  ok(kvs_trace_close(trace, &error));
  assert_one_file(path);
}

/* Another writer's transaction is waited for. */
static void a_short_lock_is_waited_for(void **state) {
  (void)state;
  const char *path = in_folder("wait.kvt");
  kvs_trace_source source = made_source(&small_config);
  ok(kvs_trace_create(path, KVS_TRACE_NEW, &trace, &error));
  ok(begin(&source));
  int ends[2], status;
  assert_int_equal(pipe(ends), 0);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    sqlite3 *db;
    int rc = sqlite3_open(path, &db);
    if (rc == SQLITE_OK) rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (write(ends[1], "x", 1) != 1) _exit(2);
    usleep(300000);
    if (rc == SQLITE_OK) rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    sqlite3_close(db);
    _exit(rc);
  }
  char c;
  assert_int_equal(read(ends[0], &c, 1), 1);
  kvs_observer observer = kvs_trace_observer(trace);
  ok(feed(&observer, &small_config, 0, &error));
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  close(ends[0]), close(ends[1]);
  ok(kvs_trace_end_run(trace, &error));
  ok(kvs_trace_close(trace, &error));
}

/* The header in the file may be old while there is a log beside it: what the log says counts. */
static void a_version_in_the_log_counts(void **state) {
  (void)state;
  const char *path = in_folder("log.kvt");
  make_trace(path, 1, NULL);
  sqlite3 *writer, *db;
  assert_int_equal(sqlite3_open(path, &writer), SQLITE_OK);
  execute(writer, "PRAGMA journal_mode = WAL; PRAGMA user_version = 2");
  assert_status(kvs_trace_read(path, &db, &error), KVS_ERR_INPUT, __LINE__);
  assert_says("a newer kvstep is needed");
  execute(writer, "PRAGMA user_version = 1; PRAGMA application_id = 7");
  assert_status(kvs_trace_read(path, &db, &error), KVS_ERR_INPUT, __LINE__);
  assert_says("not a kvstep trace");
  sqlite3_close(writer);
}

/* A step that was begun and never settled (a cancelled one) is not in the file. */
static void half_a_step_is_never_committed(void **state) {
  (void)state;
  const char *path = in_folder("half.kvt");
  kvs_trace_source source = made_source(&small_config);
  ok(kvs_trace_create(path, KVS_TRACE_NEW, &trace, &error));
  ok(begin(&source));
  kvs_observer observer = kvs_trace_observer(trace);
  ok(feed(&observer, &small_config, 0, &error));
  kvs_step s = made_step(1, KVS_DECODE);
  ok(feed_layer(&observer, &small_config, &s, 0, &error));
  ok(kvs_trace_end_run(trace, &error));
  ok(begin(&source));
  ok(feed_layer(&observer, &small_config, &s, 0, &error));
  ok(kvs_trace_close(trace, &error));
  assert_one_file(path);
  sqlite3 *db;
  ok(kvs_trace_read(path, &db, &error));
  assert_text(db, "SELECT group_concat(run || ':' || (finished_at IS NULL)) FROM run", "1:0,2:1");
  assert_int_equal(number(db, "SELECT count(*) FROM kv_row"), 2);
  sqlite3_close(db);
  /* A later run that ends does not end the one that was cut off. */
  ok(kvs_trace_create(path, KVS_TRACE_APPEND, &trace, &error));
  ok(begin(&source));
  ok(kvs_trace_end_run(trace, &error));
  ok(kvs_trace_close(trace, &error));
  ok(kvs_trace_read(path, &db, &error));
  assert_text(db, "SELECT group_concat(run || ':' || (finished_at IS NULL)) FROM run", "1:0,2:1,3:0");
  sqlite3_close(db);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(permissions_are_respected),      cmocka_unit_test(a_file_that_is_being_written_is_not_replaced),
      cmocka_unit_test(a_short_lock_is_waited_for),     cmocka_unit_test(a_version_in_the_log_counts),
      cmocka_unit_test(a_kill_loses_no_settled_step),   cmocka_unit_test(a_kill_before_the_first_commit_is_named_so),
      cmocka_unit_test(a_reader_sees_whole_steps_only), cmocka_unit_test(a_run_ends_well_under_a_reader),
      cmocka_unit_test(half_a_step_is_never_committed),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
