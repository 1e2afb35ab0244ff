/* test_run_ends.c: how `kvstep run` ends when it does not end by itself: ^C, a file that goes, and what is said and left then. The
 * run writes its text into a pipe that is nearly full, so that it stands still where the test wants it. KVSTEP names the binary. */
#include "trace_maker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#define PROMPT "It is"
enum { PIPE = 4096 };

/* A run that is going on, or has ended. */
static struct run {
  pid_t pid;
  int text;       /* what it prints */
  char err[4096]; /* what it has said */
} run;

/* Starts `kvstep run` with room for `room` bytes of text. */
static void start(const char *path, const char *option, int room) {
  int ends[2];
  char filling[PIPE] = "";
  assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
#ifdef F_SETPIPE_SZ
  assert_int_equal(fcntl(ends[1], F_SETPIPE_SZ, PIPE), PIPE);
#else
  skip();
#endif
  assert_int_equal(write(ends[1], filling, (size_t)(PIPE - room)), PIPE - room);
  fflush(NULL);
  run = (struct run){.pid = fork(), .text = ends[0]};
  assert_true(run.pid >= 0);
  if (run.pid == 0) {
    /* Whoever started the tests may ignore them, as a shell does for what runs in the background, and kvstep leaves that in force. */
    signal(SIGINT, SIG_DFL), signal(SIGTERM, SIG_DFL);
    int err = open(in_folder("said"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (dup2(ends[1], 1) < 0 || dup2(err, 2) < 0) _exit(126);
    execl(kvstep_binary(), "kvstep", "run", "-p", PROMPT, "-n", "100", "-o", path, option, (char *)NULL);
    _exit(127);
  }
  close(ends[1]);
}

/* The number that a query gives once there is such a trace; −1 before. */
static int number_in(const char *path, const char *sql) {
  sqlite3 *db;
  if (kvs_trace_read(path, &db, NULL) != KVS_OK) return -1;
  int value = (int)number(db, sql);
  sqlite3_close(db);
  return value;
}

static void wait_for(const char *path, const char *sql, int least) {
  while (number_in(path, sql) < least) {
    int status;
    if (waitpid(run.pid, &status, WNOHANG) != 0) fail_msg("it has ended before `%s` gave %d", sql, least);
    usleep(1000);
  }
}

/* Takes all the text and waits; the exit code, or minus the signal. */
static int finish(void) {
  char buffer[PIPE];
  int status;
  while (read(run.text, buffer, sizeof buffer) > 0) {}
  close(run.text);
  assert_int_equal(waitpid(run.pid, &status, 0), run.pid);
  FILE *said = fopen(in_folder("said"), "r");
  assert_non_null(said);
  run.err[fread(run.err, 1, sizeof run.err - 1, said)] = '\0';
  fclose(said);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void said(const char *words) {
  if (!strstr(run.err, words)) fail_msg("`%s` is not in:\n%s", words, run.err);
}

/* One message, not two about the same. */
static void said_once(void) {
  char *first = strstr(run.err, "kvstep:");
  assert_non_null(first);
  if (strstr(first + 1, "kvstep:")) fail_msg("more than one message:\n%s", run.err);
}

/* It stands before its first step: a new trace is gone again, one that was there is as it was. */
static void interrupted_before_the_first_step(void **state) {
  (void)state;
  const char *path = in_folder("none.db");
  start(path, NULL, 0);
  wait_for(path, "SELECT count(*) FROM run", 1);
  kill(run.pid, SIGINT);
  assert_int_equal(finish(), 128 + SIGINT);
  said("interrupted before the first step; nothing of the run is kept");
  said_once();
  assert_false(exists(path, "") || exists(path, "-wal") || exists(path, "-shm"));

  path = in_folder("one.db");
  start(path, NULL, PIPE);
  assert_int_equal(finish(), 0);
  start(path, "--append", 0);
  wait_for(path, "SELECT count(*) FROM run", 2);
  kill(run.pid, SIGINT);
  assert_int_equal(finish(), 128 + SIGINT);
  said("interrupted before the first step; nothing of the run is kept");
  assert_one_file(path);
  assert_int_equal(number_in(path, "SELECT count(*) FROM run"), 1);
}

/* What `kvstep info` says; the text is overwritten by the next call. */
static const char *info(const char *path) {
  static char text[8192];
  assert_int_equal(shell_says(text, sizeof text, "'%s' info '%s'", kvstep_binary(), path), 0);
  return text;
}

/* A kill leaves a run without a step: nothing is said of what such a run would have logged. */
static void killed_before_the_first_step(void **state) {
  (void)state;
  const char *path = in_folder("killed.db");
  start(path, NULL, 0);
  wait_for(path, "SELECT count(*) FROM run", 1);
  kill(run.pid, SIGKILL);
  assert_int_equal(finish(), -SIGKILL);
  const char *text = info(path);
  assert_non_null(strstr(text, " more in the -wal file beside it, 1 run, "));
  assert_non_null(strstr(text, "finished    NO"));
  assert_non_null(strstr(text, "steps       none: it was stopped before its first step was kept, or is making it\n"));
  assert_null(strstr(text, "rule"));
  assert_null(strstr(text, "event"));
  assert_null(strstr(text, "not logged"));
  start(path, "--append", PIPE);
  assert_int_equal(finish(), 0);
  assert_one_file(path);
  text = info(path);
  assert_null(strstr(text, "-wal"));
  assert_non_null(strstr(text, "steps       none"));
  assert_non_null(strstr(text, "steps       103: 3 prefill, 100 decode"));
}

/* As many as it says are there. */
static void interrupted_after_some_steps(void **state) {
  (void)state;
  char words[128];
  const char *path = in_folder("some.db");
  start(path, NULL, (int)strlen(PROMPT));
  wait_for(path, "SELECT count(*) FROM step", 3);
  kill(run.pid, SIGTERM);
  assert_int_equal(finish(), 128 + SIGTERM);
  assert_one_file(path);
  int steps = number_in(path, "SELECT count(*) FROM step");
  assert_true(steps >= 3);
  snprintf(words, sizeof words,
           "interrupted after %d steps; the trace holds them, and says that the run was not finished", steps);
  said(words);
  said_once();
  assert_int_equal(number_in(path, "SELECT count(finished_at) FROM run"), 0);
}

/* Whether the run has taken SIGTERM into its own hands; without /proc nobody can tell. */
static bool catches_sigterm(void) {
  char name[64], line[256];
  unsigned long long mask = 0;
  snprintf(name, sizeof name, "/proc/%d/status", (int)run.pid);
  FILE *file = fopen(name, "r");
  if (!file) skip();
  while (fgets(line, sizeof line, file))
    if (sscanf(line, "SigCgt: %llx", &mask) == 1) break;
  fclose(file);
  return mask >> (SIGTERM - 1) & 1;
}

/* It stands before a file that another program holds, and does not wait on. */
static void interrupted_before_a_locked_file(void **state) {
  (void)state;
  const char *path = in_folder("locked.db");
  sqlite3 *lock;
  start(path, NULL, PIPE);
  assert_int_equal(finish(), 0);
  assert_int_equal(sqlite3_open(path, &lock), SQLITE_OK);
  execute(lock, "BEGIN EXCLUSIVE");
  start(path, "--append", PIPE);
  while (!catches_sigterm()) {
    int status;
    assert_int_equal(waitpid(run.pid, &status, WNOHANG), 0);
    usleep(1000);
  }
  kill(run.pid, SIGTERM);
  assert_int_equal(finish(), 128 + SIGTERM);
  said("locked by another program; nothing was written");
  said_once();
  sqlite3_close(lock);
  assert_int_equal(number_in(path, "SELECT count(*) FROM run"), 1);
}

/* Somebody deletes it: the run does not go on to its end as if nothing had been. */
static void the_trace_is_deleted(void **state) {
  (void)state;
  const char *path = in_folder("deleted.db");
  start(path, NULL, (int)strlen(PROMPT));
  wait_for(path, "SELECT count(*) FROM step", 3);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(finish(), 1);
  said("deleted.db: deleted, moved or replaced while it was being written; steps 0..");
  said("lost with it if it was deleted; run it again");
  said_once();
  assert_false(exists(path, "") || exists(path, "-wal") || exists(path, "-shm"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(interrupted_before_the_first_step),
      cmocka_unit_test(killed_before_the_first_step),
      cmocka_unit_test(interrupted_after_some_steps),
      cmocka_unit_test(interrupted_before_a_locked_file),
      cmocka_unit_test(the_trace_is_deleted),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
