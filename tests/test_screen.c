/* test_screen.c: the screen as somebody at a terminal meets it: keys in, and a model of what is seen. */
#include "at_terminal.h"

static void test_opens_and_quits(void **state) {
  (void)state;
  open_screen();
  assert_true(pty->alternate);
  assert_false(pty->cursor);
  assert_true(pty_has(pty, "kvstep"));
  assert_true(pty_has(pty, "layer 0"));
  assert_true(pty_has(pty, "head 0"));
  assert_false(pty_modes_whole(pty));
  quit_whole();
}

static void test_views(void **state) {
  (void)state;
  open_screen();
  static const struct {
    const char *key, *title;
  } views[] = {{"2", "2 cache"}, {"3", "3 map"},  {"4", "4 heads"}, {"5", "5 "},
               {"6", "6 embed"}, {"7", "7 next"}, {"1", "1 step"}};
  for (size_t i = 0; i < sizeof views / sizeof *views; i++) type_and_see(views[i].key, views[i].title);
  type_and_see("\t", "2 cache");
  type_and_see("\033[Z", "1 step");
  type_and_see("\033[Z", "─ 9 ");
  quit_whole();
}

static void test_steps(void **state) {
  (void)state;
  open_screen();
  type_and_see("\033[C", "step 10/"); /* as a terminal in normal mode sends it */
  type_and_see("\033OC", "step 11/"); /* and in application mode */
  type_and_see("\033[D", "step 10/");
  type_and_see("h", "step 9/");
  type_and_see("l", "step 10/");
  type_and_see("\033[H", "step 0/");
  type_and_see("\033[6~", "step 10/");
  type_and_see("\033[5~", "step 0/");
  type_and_see("\033[4~", "step 16/");
  type_and_see("\033[1~", "step 0/");
  type_and_see("G", "step 16/");
  type_and_see("\006", "step 16/");
  type_and_see("\002", "step 6/");
  quit_whole();
}

static void test_dials(void **state) {
  (void)state;
  open_screen();
  type_and_see("]", "layer 1/");
  type_and_see("[", "layer 0/");
  type_and_see("}", "head 1/");
  type_and_see("{", "head 0/");
  type_and_see("r", "run 2 off-by-one");
  type_and_see("R", "run 1 correct");
  quit_whole();
}

static bool cursor_shown(struct pty *p, const void *nothing) {
  (void)nothing;
  return p->cursor;
}

/* Moments come and go: after eight steps back, only the first is there; the append's words come with it. */
static void test_moments(void **state) {
  (void)state;
  open_screen();
  assert_true(pty_has(pty, "row 9 new"));
  type_and_see(" ", "step 10/");
  assert_true(pty_wait(pty, "row 10 free"));
  type("   ");
  assert_true(pty_wait(pty, "row 10 new"));
  type("\177");
  assert_true(pty_wait(pty, "row 10 free"));
  type("bbb");
  assert_true(pty_wait(pty, "step 9/"));
  quit_whole();
}

static void test_help(void **state) {
  (void)state;
  open_screen();
  type_and_see("?", "help: every key");
  assert_true(pty_has(pty, "Space"));
  type("\007");
  assert_true(pty_wait_gone(pty, "help: every key"));
  type_and_see("\033OP", "help: every key");
  type("\033"); /* a lone ESC, by its 25 ms */
  assert_true(pty_wait_gone(pty, "help: every key"));
  quit_whole();
}

/* While a number is asked for, the terminal's cursor shows where it goes. */
static void test_predict_has_the_cursor(void **state) {
  (void)state;
  open_screen();
  assert_false(pty->cursor);
  type_and_see("p1", "which t will");
  assert_true(pty_wait_for(pty, cursor_shown, NULL));
  type("\033");
  assert_true(pty_wait(pty, "skipped"));
  assert_false(pty->cursor);
  quit_whole();
}

static void test_search(void **state) {
  (void)state;
  open_screen();
  type_and_see("/p", "/p");
  assert_true(pty->cursor); /* it shows where typing goes */
  type("\r");
  assert_true(pty_wait_gone(pty, "/p"));
  assert_false(pty->cursor);
  assert_true(pty_wait_gone(pty, "step 9/"));
  type_and_see("n", "step 0/"); /* around the end */
  type("/zzz\r");
  assert_true(pty_wait(pty, "zzz"));
  type_and_see("/\303\251\303\274", "\303\251\303\274"); /* UTF-8 is typed as characters */
  type("\177");
  assert_true(pty_wait_gone(pty, "\303\274"));
  type("\003");
  assert_true(pty_wait_gone(pty, "/\303\251"));
  quit_whole();
}

static void test_difference(void **state) {
  (void)state;
  open_screen();
  type_and_see("d", "run 1");
  type_and_see("r", "run 2");
  type("gd");
  assert_true(pty_wait(pty, "differs from run 1"));
  assert_true(pty_has(pty, "step 9/"));
  quit_whole();
}

static void test_commands(void **state) {
  (void)state;
  open_screen();
  type_and_see(":step 3\r", "step 3/");
  type_and_see(":head 2\r", "head 2/");
  type_and_see(":nonsense\r", "nonsense");
  type(":quit\r");
  assert_int_equal(pty_wait_exit(pty), 0);
  assert_false(pty->alternate);
}

static void test_save_screen(void **state) {
  (void)state;
  open_screen();
  char line[512];
  snprintf(line, sizeof line, ":save-screen %s/s.txt\r", folder);
  type_and_see(line, "saved");
  snprintf(line, sizeof line, ":save-screen %s/s.svg\r", folder);
  type_and_see(line, "s.svg");
  assert_int_equal(shell("grep -q 'step 9/' %s/s.txt && grep -q '<svg' %s/s.svg", folder, folder), 0);
  type_and_see(":save-screen /nowhere/s.txt\r", "cannot be written");
  quit_whole();
}

/* A query without an end says so, stops at ^C or Escape at once, and loses no other key. */
static void test_endless_query(void **state) {
  (void)state;
  static const char endless[] =
      ";WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n\r";
  open_screen();
  type_and_see(endless, "still at it");
  type("1");
  type_and_see("\x03", "1 step:");
  type_and_see("9", "stopped before the first row");
  type_and_see(endless, "still at it");
  type_and_see("\x1b", "stopped before the first row");
  type_and_see(";SELECT 40 + 2 AS answer\r", "row 1 of 1");
  quit_whole();
}

/* ^C leaves what is being done and never the program; so does SIGINT from elsewhere. Unknown keys do nothing. */
static void test_cancel_and_unknown_keys(void **state) {
  (void)state;
  open_screen();
  type_and_see("?", "help: every key");
  type("\003");
  assert_true(pty_wait_gone(pty, "help: every key"));
  type_and_see("?", "help: every key");
  kill(pty->child, SIGINT);
  assert_true(pty_wait_gone(pty, "help: every key"));
  type("\033[99~\033[1;5C\033[24~\033[<0;1;1M\377\300\303");
  type_and_see("l", "step 10/");
  type_and_see("]", "layer 1/");
  quit_whole();
}

static void test_plays(void **state) {
  (void)state;
  open_screen();
  type("++++P");
  assert_true(pty_wait(pty, "step 16/")); /* all by itself, to the end */
  quit_whole();
}

int main(void) {
#define SCREEN_TEST(name) cmocka_unit_test_teardown(name, close_pty)
  const struct CMUnitTest tests[] = {
      SCREEN_TEST(test_opens_and_quits),
      SCREEN_TEST(test_views),
      SCREEN_TEST(test_steps),
      SCREEN_TEST(test_dials),
      SCREEN_TEST(test_moments),
      SCREEN_TEST(test_help),
      SCREEN_TEST(test_predict_has_the_cursor),
      SCREEN_TEST(test_search),
      SCREEN_TEST(test_difference),
      SCREEN_TEST(test_commands),
      SCREEN_TEST(test_save_screen),
      SCREEN_TEST(test_endless_query),
      SCREEN_TEST(test_cancel_and_unknown_keys),
      SCREEN_TEST(test_plays),
  };
  return cmocka_run_group_tests(tests, setup, remove_folder);
}
