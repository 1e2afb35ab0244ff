/* test_screen_files.c: the screen and files: a trace that goes, is cut or grows, the demonstration, key scripts; and tmux. */
#include "at_terminal.h"

/* ---- the trace underneath ------------------------------------------------------------------------------------------- */

static int open_copy(void **state) {
  (void)state;
  strcpy(trace, in_folder("copy.trace"));
  return shell("cp '%s' '%s'", in_folder("t.trace"), trace);
}

static int close_copy(void **state) {
  strcpy(trace, in_folder("t.trace"));
  return close_pty(state);
}

static void test_trace_deleted(void **state) {
  (void)state;
  open_screen();
  unlink(trace);
  type_and_see("l", "step 10/");
  for (const char *key = "2345671"; *key; key++) {
    const char keys[] = {*key, '\0'};
    type(keys);
  }
  type_and_see("h", "step 9/");
  quit_whole();
}

static void test_trace_truncated(void **state) {
  (void)state;
  open_screen();
  assert_int_equal(truncate(trace, 8192), 0);
  type("g234567");
  type_and_see("?", "help: every key"); /* it is still there, whatever it can read */
  assert_int_equal(truncate(trace, 0), 0);
  type("\007G1l\014");
  type_and_see("?", "help: every key");
  type("\007");
  assert_true(pty_wait_gone(pty, "help: every key"));
  quit_whole();
}

/* A trace that another program writes is followed from its end on. */
static void test_follows(void **state) {
  (void)state;
  assert_int_equal(shell("sqlite3 '%s' 'PRAGMA foreign_keys=OFF; CREATE TABLE held AS SELECT * FROM step WHERE run=1 "
                         "AND step=16; DELETE FROM step WHERE run=1 AND step=16' 2>/dev/null",
                         trace),
                   0);
  open_with(24, 80, NULL, NULL);
  assert_true(pty_wait(pty, "step 9/15"));
  type_and_see("G", "step 15/15");
  assert_int_equal(shell("sqlite3 '%s' 'INSERT INTO step SELECT * FROM held'", trace), 0);
  assert_true(pty_wait(pty, "step 16/16"));
  quit_whole();
}

/* ---- kvstep alone, scripts, tmux ------------------------------------------------------------------------------------ */

static void test_kvstep_alone(void **state) {
  (void)state;
  char temporary[512];
  snprintf(temporary, sizeof temporary, "TMPDIR=%s/tmp", folder);
  assert_int_equal(shell("mkdir '%s/tmp'", folder), 0);
  const char *const argv[] = {program, NULL}, *const environment[] = {temporary, NULL};
  pty = pty_start(argv, 24, 80, environment);
  assert_non_null(pty);
  assert_true(pty_wait(pty, "step 9/"));
  assert_true(pty_has(pty, "reverse"));
  type_and_see("r", "off-by-one");
  type_and_see("r", "reset-to-zero");
  type_and_see("G", "step 1");
  quit_whole();
  assert_int_equal(shell("test -z \"$(ls -A '%s/tmp')\"", folder), 0); /* nothing is left over */
}

static int play(const char *keys, const char *options) {
  write_file(in_folder("keys"), keys, strlen(keys));
  return shell("cd '%s' && '%s' view '%s' --keys keys %s >out 2>err </dev/null", folder, program, trace, options);
}

static void test_script(void **state) {
  (void)state;
  assert_int_equal(
      play("# to step 11, by key and by name\nRight next-step 3\n\n:save-screen a.txt\n:save-screen a.svg\n"
           "/ p Enter  # the next p\n:head 2\n:save-screen b.txt\nq\nnot-reached\n",
           "--size 100x30"),
      0);
  assert_int_equal(shell("cd '%s' && test ! -s err && grep -q 'step 11/' a.txt && grep -q '3 map' a.txt && "
                         "grep -q '<svg' a.svg && grep -q 'head 2/' b.txt && test $(wc -l < a.txt) = 30",
                         folder),
                   0);
  assert_int_equal(play("Right Right view-map\n:save-screen c.txt\n", "--size 100x30"), 0);
  assert_int_equal(shell("cd '%s' && cmp a.txt c.txt", folder), 0);
  assert_int_equal(play(":save-screen d.txt\n", "--ascii"), 0);
  assert_int_equal(shell("cd '%s' && ! LC_ALL=C grep -q '[^ -~]' d.txt", folder), 0);
}

static void test_script_errors(void **state) {
  (void)state;
  assert_int_equal(play("Right\nRight Rihgt\n", ""), 1);
  assert_int_equal(shell("grep -q 'keys:2: .*Rihgt' '%s/err'", folder), 0);
  assert_int_equal(play("\n\n:step 999\n", ""), 1);
  assert_int_equal(shell("grep -q 'keys:3: ' '%s/err'", folder), 0);
  assert_int_equal(play(":save-screen no/such/folder\n", ""), 1);
  assert_int_equal(play("", "--size 80"), 2);
  assert_int_equal(play("", "--size 0x24"), 2);
  assert_int_equal(play("", "--step 99"), 1);
  assert_int_equal(play("", "--run 3"), 1);
  assert_int_equal(play("", "--size 1x1"), 0);
  assert_int_equal(shell("'%s' view '%s' --keys '%s/none' 2>/dev/null", program, trace, folder), 1);
}

/* Polls a shell command until it succeeds. */
static bool comes_true(const char *command) {
  for (double end = pty_now() + PTY_DEADLINE; pty_now() < end;) {
    if (shell("%s", command) == 0) return true;
    nanosleep(&(struct timespec){0, 20000000}, NULL);
  }
  fprintf(stderr, "never true: %s\n", command);
  return false;
}

static void test_tmux(void **state) {
  (void)state;
  if (shell("command -v tmux >/dev/null") != 0) skip();
  char tmux[8192], line[9000];
  snprintf(tmux, sizeof tmux, "cd '%s' && TMUX= LC_ALL=C.UTF-8 tmux -u -S '%s/socket' -f /dev/null", folder, folder);
  assert_int_equal(
      shell("%s new-session -d -x 80 -y 24 \"'%s' view '%s'; echo left \\$? > tmux-left\"", tmux, program, trace), 0);
  snprintf(line, sizeof line, "%s capture-pane -p | grep -qF 'step 9/'", tmux);
  bool opened = comes_true(line);
  shell("%s send-keys Right", tmux);
  snprintf(line, sizeof line, "%s capture-pane -p | grep -qF 'step 10/'", tmux);
  bool stepped = opened && comes_true(line);
  shell("%s resize-window -x 120 -y 40", tmux);
  snprintf(line, sizeof line, "%s capture-pane -p | sed -n 40p | grep -qF 'q quit'", tmux);
  bool resized = stepped && comes_true(line);
  shell("%s send-keys q", tmux);
  snprintf(line, sizeof line, "grep -qs 'left 0' '%s/tmux-left'", folder);
  bool left = resized && comes_true(line);
  shell("%s kill-server 2>/dev/null", tmux);
  assert_true(opened && stepped && resized && left);
}

int main(void) {
#define SCREEN_TEST(name) cmocka_unit_test_teardown(name, close_pty)
#define ON_COPY(name) cmocka_unit_test_setup_teardown(name, open_copy, close_copy)
  const struct CMUnitTest tests[] = {
      ON_COPY(test_trace_deleted),    ON_COPY(test_trace_truncated), ON_COPY(test_follows),
      SCREEN_TEST(test_kvstep_alone), SCREEN_TEST(test_script),      SCREEN_TEST(test_script_errors),
      SCREEN_TEST(test_tmux),
  };
  return cmocka_run_group_tests(tests, setup, remove_folder);
}
