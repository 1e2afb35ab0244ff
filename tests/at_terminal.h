/* at_terminal.h: `kvstep view` in a terminal of its own, for the tests of the screen. KVSTEP names the binary. */
#ifndef KVS_TESTS_AT_TERMINAL_H
#define KVS_TESTS_AT_TERMINAL_H

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/pty.h"
#include "tests/support/scratch.h"

#define UNUSED __attribute__((unused))

static const char *program;
static char trace[128];
static struct pty *pty;

/* `position>` in the backwards speller: nine letters of prompt, so that the first generated token is step 9. Run 2 has the
 * off-by-one fault. */
static UNUSED int setup(void **state) {
  if (make_folder(state)) return -1;
  program = kvstep_binary();
  snprintf(trace, sizeof trace, "%s/t.trace", folder);
  signal(SIGPIPE, SIG_IGN);
  return shell("'%s' run -m reverse -p 'position>' -n 8 --log full -o '%s' >/dev/null 2>&1 &&"
               "'%s' run -m reverse -p 'position>' -n 8 -o '%s' --append --fault off-by-one >/dev/null 2>&1",
               program, trace, program, trace);
}

static UNUSED int close_pty(void **state) {
  (void)state;
  pty_free(pty);
  pty = NULL;
  return 0;
}

/* What decodes on is test_screen_live.c's; elsewhere the trace stays as it is. */
static UNUSED void open_with(int rows, int columns, const char *option, const char *const environment[]) {
  const char *const argv[] = {program, "view", "--read-only", trace, option, NULL};
  pty = pty_start(argv, rows, columns, environment);
  assert_non_null(pty);
}

/* ncurses draws from top to bottom: with the last line, all is there. */
static UNUSED bool bottom_shows_quit(struct pty *p, const void *nothing) {
  (void)nothing;
  return strstr(pty_row(p, p->rows - 1), "? help  q quit") != NULL;
}

static UNUSED void see_all(const char *text) {
  assert_true(pty_wait(pty, text));
  assert_true(pty_wait_for(pty, bottom_shows_quit, NULL));
}

/* The usual screen, open and drawn. */
static UNUSED void open_screen(void) {
  open_with(24, 80, NULL, NULL);
  see_all("step 9/");
}

static UNUSED void type(const char *keys) { assert_true(pty_send(pty, keys)); }

static UNUSED void type_and_see(const char *keys, const char *text) {
  type(keys);
  assert_true(pty_wait(pty, text));
}

/* Leaves by `q`: exit 0, the primary screen, a cursor, the modes of before. */
static UNUSED void quit_whole(void) {
  type("q");
  assert_int_equal(pty_wait_exit(pty), 0);
  assert_false(pty->alternate);
  assert_true(pty->cursor);
  assert_true(pty_modes_whole(pty));
}

#endif
