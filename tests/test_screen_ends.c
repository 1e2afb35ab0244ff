/* test_screen_ends.c: the terminal comes back whole after every way out: signals, ^Z and fg, a terminal that is closed. */
#include "at_terminal.h"

static void open_shell(void) {
  static const char *const argv[] = {"sh", "-i", NULL};
  static const char *const environment[] = {"PS1=READY> ", "ENV", "HISTFILE", NULL};
  pty = pty_start(argv, 24, 80, environment);
  assert_non_null(pty);
  assert_true(pty_wait(pty, "READY>"));
}

/* A prompt with nothing after it: the shell has the terminal again, and its modes. */
static bool at_prompt(struct pty *p, const void *nothing) {
  (void)nothing;
  for (int row = 0; row < p->rows; row++) {
    const char *text = pty_row(p, row);
    if (strncmp(text, "READY>", 6) == 0 && text[6 + strspn(text + 6, " ")] == '\0') return true;
  }
  return false;
}

/* The screen, started by a shell that it can be stopped to. */
static void open_from_shell(void) {
  char line[512];
  open_shell();
  snprintf(line, sizeof line, "'%s' view '%s'\r", program, trace);
  type(line);
  assert_true(pty_wait(pty, "step 9/"));
}

static void test_suspend(void **state) {
  (void)state;
  open_from_shell();
  type("\032");
  assert_true(pty_wait_for(pty, at_prompt, NULL));
  assert_false(pty->alternate);
  assert_true(pty->cursor);
  type_and_see("echo shell$((6*7))\r", "shell42");
  pty_resize(pty, 30, 90);
  type_and_see("fg\r", "step 9/");
  assert_true(pty->alternate);
  assert_true(pty_wait_for(pty, bottom_shows_quit, NULL));
  type_and_see("l", "step 10/");
  type("q");
  assert_true(pty_wait_for(pty, at_prompt, NULL));
  type_and_see("echo left $?\r", "left 0");
  assert_false(pty->alternate);
  assert_true(pty->cursor);
}

/* ^Z while SQLite works stops the program and the query with it; after fg both go on, and ^C ends the query alone. */
static void test_suspend_in_a_query(void **state) {
  (void)state;
  open_from_shell();
  type(";WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n\r");
  assert_true(pty_wait(pty, "still at it"));
  type("\032");
  assert_true(pty_wait_for(pty, at_prompt, NULL));
  assert_false(pty->alternate);
  pty_resize(pty, 30, 90);
  type_and_see("fg\r", "still at it");
  assert_true(pty->alternate);
  type_and_see("\003", "stopped before the first row");
  assert_true(pty_wait_for(pty, bottom_shows_quit, NULL));
  type("q");
  assert_true(pty_wait_for(pty, at_prompt, NULL));
  type_and_see("echo left $?\r", "left 0");
}

static bool has_received(struct pty *p, const void *bytes) { return p->received >= *(const size_t *)bytes; }

/* Stopped and continued from outside, it draws everything anew. */
static void test_continued(void **state) {
  (void)state;
  open_screen();
  kill(pty->child, SIGSTOP);
  int status;
  assert_int_equal(waitpid(pty->child, &status, WUNTRACED), pty->child);
  assert_true(WIFSTOPPED(status));
  size_t before = pty->received;
  kill(pty->child, SIGCONT);
  type_and_see("l", "step 10/");
  assert_true(pty_wait_for(pty, has_received, &(size_t){before + 500}));
  quit_whole();
}

static void dies_whole(int number) {
  open_screen();
  kill(pty->child, number);
  int code = pty_wait_exit(pty);
  /* AddressSanitizer reports a fault in its own way. */
  if (sanitized() && (number == SIGSEGV || number == SIGABRT || number == SIGBUS || number == SIGFPE))
    assert_true(code > 0);
  else
    assert_int_equal(code, 128 + number);
  assert_int_equal(pty->alternates, 1);
  assert_false(pty->alternate);
  assert_true(pty->cursor);
  assert_true(pty_modes_whole(pty));
  close_pty(NULL);
}

static void test_dies_of_term(void **state) {
  (void)state;
  dies_whole(SIGTERM);
}
static void test_dies_of_hup(void **state) {
  (void)state;
  dies_whole(SIGHUP);
}
static void test_dies_of_quit(void **state) {
  (void)state;
  dies_whole(SIGQUIT);
  open_screen();
  type("\034"); /* ^\ still quits */
  assert_int_equal(pty_wait_exit(pty), 128 + SIGQUIT);
  assert_false(pty->alternate);
  assert_true(pty_modes_whole(pty));
}
static void test_dies_of_segv(void **state) {
  (void)state;
  dies_whole(SIGSEGV);
  dies_whole(SIGABRT);
}
static void test_dies_of_others(void **state) {
  (void)state;
  static const int numbers[] = {SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) dies_whole(numbers[i]);
}

/* Ends by itself within this time, once its terminal is closed. */
static void ends_when_closed(void) {
  double start = pty_now();
  pty_close(pty);
  int status;
  pid_t ended = 0;
  while (ended == 0 && pty_now() - start < PTY_DEADLINE) {
    ended = waitpid(pty->child, &status, WNOHANG);
    nanosleep(&(struct timespec){0, 5000000}, NULL);
  }
  assert_int_equal(ended, pty->child);
  pty->ended = true;
  assert_true(pty_now() - start < (sanitized() ? 5 : 1));
}

static void test_closed(void **state) {
  (void)state;
  open_screen();
  ends_when_closed();
}

/* Where SIGHUP is ignored, the end of the input has to do. */
static void test_closed_under_nohup(void **state) {
  (void)state;
  char line[9000];
  snprintf(line, sizeof line, "trap '' HUP; exec '%s' view '%s'", program, trace);
  const char *const argv[] = {"sh", "-c", line, NULL};
  pty = pty_start(argv, 24, 80, NULL);
  assert_non_null(pty);
  assert_true(pty_wait(pty, "step 9/"));
  ends_when_closed();
}

int main(void) {
#define SCREEN_TEST(name) cmocka_unit_test_teardown(name, close_pty)
  const struct CMUnitTest tests[] = {
      SCREEN_TEST(test_suspend),      SCREEN_TEST(test_suspend_in_a_query),
      SCREEN_TEST(test_continued),    SCREEN_TEST(test_dies_of_term),
      SCREEN_TEST(test_dies_of_hup),  SCREEN_TEST(test_dies_of_quit),
      SCREEN_TEST(test_dies_of_segv), SCREEN_TEST(test_dies_of_others),
      SCREEN_TEST(test_closed),       SCREEN_TEST(test_closed_under_nohup),
  };
  return cmocka_run_group_tests(tests, setup, remove_folder);
}
