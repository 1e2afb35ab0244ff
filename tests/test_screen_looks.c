/* test_screen_looks.c: the screen in terminals of all kinds: colours, none, ASCII, sizes that change, and those it refuses. */
#include "at_terminal.h"

/* ---- colours -------------------------------------------------------------------------------------------------------- */

static bool plain(VTermScreenCell cell) {
  return VTERM_COLOR_IS_DEFAULT_FG(&cell.fg) && VTERM_COLOR_IS_DEFAULT_BG(&cell.bg);
}

/* Cells with a colour of their own; the largest colour number in *most. */
static int colored_cells(int *most) {
  int count = 0;
  *most = -1;
  for (int row = 0; row < pty->rows; row++)
    for (int column = 0; column < pty->columns; column++) {
      VTermScreenCell cell = pty_cell(pty, row, column);
      count += !plain(cell);
      if (!VTERM_COLOR_IS_DEFAULT_FG(&cell.fg) && VTERM_COLOR_IS_INDEXED(&cell.fg) && cell.fg.indexed.idx > *most)
        *most = cell.fg.indexed.idx;
    }
  return count;
}

static void test_colors(void **state) {
  (void)state;
  int most;
  open_screen();
  assert_true(colored_cells(&most) > 20);
  quit_whole();
  close_pty(NULL);
  static const char *const eight[] = {"TERM=xterm", NULL};
  open_with(24, 80, NULL, eight);
  see_all("step 9/");
  assert_true(colored_cells(&most) > 20);
  assert_true(most < 16);
  quit_whole();
}

static void test_no_color(void **state) {
  (void)state;
  static const char *const none[] = {"NO_COLOR=1", NULL}, *const empty[] = {"NO_COLOR=", NULL},
                           *const vt100[] = {"TERM=vt100", NULL};
  int most;
  open_with(24, 80, NULL, none);
  see_all("step 9/");
  assert_int_equal(colored_cells(&most), 0);
  quit_whole();
  close_pty(NULL);
  open_with(24, 80, NULL, vt100);
  see_all("step 9/");
  assert_int_equal(colored_cells(&most), 0);
  quit_whole();
  close_pty(NULL);
  open_with(24, 80, NULL, empty); /* set but empty: as if it were not */
  see_all("step 9/");
  assert_true(colored_cells(&most) > 0);
  quit_whole();
}

static void only_ascii(void) {
  static const char *const views[] = {"1", "2", "3", "4", "5", "6", "7", "?"};
  for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
    type(views[i]);
    type_and_see(":", ":"); /* what was typed before has been drawn by then */
    for (int row = 0; row < pty->rows; row++)
      for (const char *c = pty_row(pty, row); *c; c++) assert_true((unsigned char)*c < 0x80);
    type("\007");
  }
  type("\007\007");
  assert_true(pty_wait_gone(pty, "help: every key"));
}

static void test_ascii(void **state) {
  (void)state;
  static const char *const c_locale[] = {"LC_ALL=C", NULL};
  open_with(24, 80, "--ascii", NULL);
  assert_true(pty_wait(pty, "step 9/"));
  only_ascii();
  quit_whole();
  close_pty(NULL);
  open_with(24, 80, NULL, c_locale);
  assert_true(pty_wait(pty, "step 9/"));
  only_ascii();
  quit_whole();
}

/* ---- sizes ---------------------------------------------------------------------------------------------------------- */

static void test_resize_small(void **state) {
  (void)state;
  open_screen();
  pty_resize(pty, 1, 1);
  type("l"); /* goes on meanwhile */
  pty_resize(pty, 14, 80);
  assert_true(pty_wait(pty, "kvstep needs 60"));
  pty_resize(pty, 24, 59);
  assert_true(pty_wait(pty, "kvstep needs 60"));
  pty_resize(pty, 15, 60);
  assert_true(pty_wait(pty, "step 10/"));
  pty_resize(pty, 24, 80);
  assert_true(pty_wait_for(pty, bottom_shows_quit, NULL));
  quit_whole();
}

static void test_starts_tiny(void **state) {
  (void)state;
  open_with(1, 1, NULL, NULL);
  assert_true(pty_wait(pty, "1")); /* of "1 × 1: …" */
  pty_resize(pty, 24, 80);
  assert_true(pty_wait(pty, "step 9/"));
  quit_whole();
}

static void test_resize_large(void **state) {
  (void)state;
  open_screen();
  pty_resize(pty, 150, 500);
  assert_true(pty_wait_for(pty, bottom_shows_quit, NULL));
  for (const char *key = "2345671"; *key; key++) {
    const char keys[] = {*key, '\0'};
    type(keys);
  }
  type_and_see("l", "step 10/");
  quit_whole();
}

static void test_resizes_in_a_row(void **state) {
  (void)state;
  open_screen();
  for (int i = 0; i < 200; i++) {
    pty_resize(pty, 1 + i * 7 % 60, 1 + i * 13 % 200);
    if (i % 20 == 0) type("l");
  }
  pty_resize(pty, 24, 80);
  assert_true(pty_wait(pty, "step 16/"));
  assert_true(pty_wait_for(pty, bottom_shows_quit, NULL));
  quit_whole();
}

/* ---- terminals that are none ---------------------------------------------------------------------------------------- */

static void refuses(const char *const environment[], const char *word) {
  open_with(24, 80, NULL, environment);
  assert_int_equal(pty_wait_exit(pty), 2);
  char all[8192] = "";
  for (int row = 0; row < pty->rows; row++) strncat(all, pty_row(pty, row), sizeof all - strlen(all) - 1);
  assert_non_null(strstr(all, "kvstep show"));
  assert_non_null(strstr(all, word));
  assert_int_equal(pty->alternates, 0);
  assert_true(pty_modes_whole(pty));
  close_pty(NULL);
}

static void test_no_such_terminal(void **state) {
  (void)state;
  static const char *const dumb[] = {"TERM=dumb", NULL}, *const unset[] = {"TERM", NULL},
                           *const unknown[] = {"TERM=no-such-terminal", NULL};
  refuses(dumb, "TERM=dumb");
  refuses(unset, "TERM is not set");
  refuses(unknown, "no-such-terminal");
}

static void test_no_terminal(void **state) {
  (void)state;
  assert_int_equal(shell("'%s' view '%s' </dev/null >'%s/o' 2>'%s/e'", program, trace, folder, folder), 2);
  assert_int_equal(shell("grep -q 'kvstep show' '%s/e' && ! test -s '%s/o'", folder, folder), 0);
  assert_int_equal(shell("'%s' </dev/null >/dev/null 2>&1", program), 2);
}

int main(void) {
#define SCREEN_TEST(name) cmocka_unit_test_teardown(name, close_pty)
  const struct CMUnitTest tests[] = {
      SCREEN_TEST(test_colors),           SCREEN_TEST(test_no_color),         SCREEN_TEST(test_ascii),
      SCREEN_TEST(test_resize_small),     SCREEN_TEST(test_starts_tiny),      SCREEN_TEST(test_resize_large),
      SCREEN_TEST(test_resizes_in_a_row), SCREEN_TEST(test_no_such_terminal), SCREEN_TEST(test_no_terminal),
  };
  return cmocka_run_group_tests(tests, setup, remove_folder);
}
