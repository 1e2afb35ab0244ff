/* test_trace_full.c: a trace on a full disk: what is kept, and what is said. */
#include "trace_file.h"

#include <errno.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

/* Feeds steps until one is refused, since some before it could not be written; how many are in the file, as it is said. `each`: one
 * after another, else as many together as the trace likes, but no more than are on its two tapes. */
static int feed_until_full(bool each) {
  kvs_trace_source source = made_source(&small_config);
  ok(begin(&source));
  kvs_observer observer = kvs_trace_observer(trace);
  int step = 0, kept = -1, end = 0;
  kvs_status status = KVS_OK;
  while (step < 60 && status == KVS_OK) {
    status = feed(&observer, &small_config, step++, &error);
    if (status == KVS_OK && each) status = kvs_trace_settle(trace, &error);
  }
  assert_status(status, KVS_ERR_IO, __LINE__);
  assert_says("disk full");
  assert_says("keep that too"); /* the log */
  assert_int_equal(sscanf(strstr(error.message, "steps 0.."), "steps 0..%d of run 1 are kept%n", &kept, &end), 1);
  assert_true(end > 0);
  assert_in_range(step - 1 - kept, 1, each ? 1 : 8);
  assert_status(feed(&observer, &small_config, step, &error), KVS_ERR_USAGE, __LINE__);
  assert_status(kvs_trace_settle(trace, &error), KVS_ERR_USAGE, __LINE__);
  return kept + 1;
}

static void a_full_disk_keeps_what_was_settled(void **state) {
  (void)state;
  const char *disk = in_folder("disk");
  mkdir(disk, 0700);
  if (mount("tmpfs", disk, "tmpfs", 0, "size=384k") != 0) {
    print_message("skipped: a small disk cannot be mounted here: %s\n", strerror(errno));
    skip();
  }
  char path[128], copy[128];
  snprintf(path, sizeof path, "%s/full.kvt", disk);
  snprintf(copy, sizeof copy, "%s/rescued.kvt", folder);
  ok(kvs_trace_create(path, KVS_TRACE_NEW, &trace, &error));
  int steps = feed_until_full(true);
  ok(kvs_trace_close(trace, &error)); /* it was told */
  assert_int_equal(shell("cp %s %s; test ! -e %s-wal || cp %s-wal %s-wal", path, copy, path, path, copy), 0);
  assert_int_equal(umount(disk), 0);
  sqlite3 *db;
  ok(kvs_trace_read(copy, &db, &error));
  assert_int_equal(number(db, "SELECT count(*) FROM step"), steps);
  assert_int_equal(number(db, "SELECT count(*) FROM head_step"), steps * 4);
  assert_text(db, "PRAGMA integrity_check", "ok");
  sqlite3_close(db);
}

/* Room for the log, not for the file as well: a run that is finished is not said to be lost. */
static void a_disk_that_is_full_at_the_end_keeps_a_finished_run(void **state) {
  (void)state;
  const char *disk = in_folder("end");
  mkdir(disk, 0700);
  if (mount("tmpfs", disk, "tmpfs", 0, "size=384k") != 0) {
    print_message("skipped: a small disk cannot be mounted here: %s\n", strerror(errno));
    skip();
  }
  char path[128], copy[128];
  snprintf(path, sizeof path, "%s/end.kvt", disk);
  snprintf(copy, sizeof copy, "%s/kept.kvt", folder);
  kvs_trace_source source = made_source(&small_config);
  ok(kvs_trace_create(path, KVS_TRACE_NEW, &trace, &error));
  ok(begin(&source));
  kvs_observer observer = kvs_trace_observer(trace);
  for (int step = 0; step < 2; step++) ok(feed(&observer, &small_config, step, &error));
  ok(kvs_trace_end_run(trace, &error));
  assert_int_not_equal(shell("head -c 400000 /dev/zero > %s/rest 2> %s/said", disk, folder), 0); /* nothing is left */
  assert_status(kvs_trace_close(trace, &error), KVS_ERR_IO, __LINE__);
  trace = NULL;
  assert_says("disk full; what is kept lies in it and in");
  assert_int_equal(shell("cp %s %s && cp %s-wal %s-wal", path, copy, path, copy), 0);
  assert_int_equal(umount(disk), 0);
  sqlite3 *db;
  ok(kvs_trace_read(copy, &db, &error));
  assert_int_equal(number(db, "SELECT count(*) FROM step"), 2);
  assert_int_equal(number(db, "SELECT count(finished_at) FROM run"), 1);
  sqlite3_close(db);
}

/* The same where nothing can be mounted: no file may grow past a limit. */
static void a_file_size_limit_keeps_what_was_settled(void **state) {
  (void)state;
  struct rlimit old, low = {.rlim_cur = 400 << 10};
  getrlimit(RLIMIT_FSIZE, &old);
  low.rlim_max = old.rlim_max;
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  ok(kvs_trace_create(in_folder("limit.kvt"), KVS_TRACE_NEW, &trace, &error));
  setrlimit(RLIMIT_FSIZE, &low);
  int steps = feed_until_full(false);
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, handler);
  assert_true(steps > 0);
  ok(kvs_trace_end_run(trace, &error));
  ok(kvs_trace_close(trace, &error));
  assert_one_file(in_folder("limit.kvt"));
  sqlite3 *db;
  ok(kvs_trace_read(in_folder("limit.kvt"), &db, &error));
  assert_int_equal(number(db, "SELECT count(*) FROM step"), steps);
  assert_true(isnan(number(db, "SELECT finished_at FROM run")));
  sqlite3_close(db);
}

/* There is no room for the first step, nor for taking the run out again: then the file goes. */
static void a_full_disk_before_the_first_step_leaves_nothing(void **state) {
  (void)state;
  struct rlimit old, low;
  struct stat log;
  const char *path = in_folder("no-room.kvt");
  kvs_trace_source source = made_source(&small_config);
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  ok(kvs_trace_create(path, KVS_TRACE_NEW, &trace, &error));
  ok(begin(&source));
  assert_int_equal(stat(in_folder("no-room.kvt-wal"), &log), 0);
  getrlimit(RLIMIT_FSIZE, &old);
  low = (struct rlimit){.rlim_cur = (rlim_t)log.st_size, .rlim_max = old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &low);
  kvs_observer observer = kvs_trace_observer(trace);
  ok(feed(&observer, &small_config, 0, &error));
  assert_status(kvs_trace_settle(trace, &error), KVS_ERR_IO, __LINE__);
  assert_says("disk full; no step of run 1 is kept");
  assert_int_equal(kvs_trace_leave_run(trace), 0);
  ok(kvs_trace_close(trace, &error));
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, handler);
  assert_false(exists(path, "") || exists(path, "-wal") || exists(path, "-shm"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_full_disk_keeps_what_was_settled),
      cmocka_unit_test(a_disk_that_is_full_at_the_end_keeps_a_finished_run),
      cmocka_unit_test(a_file_size_limit_keeps_what_was_settled),
      cmocka_unit_test(a_full_disk_before_the_first_step_leaves_nothing),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
