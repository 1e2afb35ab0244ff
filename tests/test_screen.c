/* test_screen.c: the screen as somebody at a terminal meets it: a pty, keys, and a model of what is seen. KVSTEP names the binary. */
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

static char folder[] = "/tmp/kvstep-screen-XXXXXX";
static char program[4096], trace[4200];
static struct pty *pty;

/* ---- helpers -------------------------------------------------------------------------------------------------------- */

static int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int shell(const char *format, ...) {
  char line[8192];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  int status = system(line);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static bool sanitized(void) {
  const char *san = getenv("KVSTEP_SAN");
  return san && *san;
}

/* `position>` in the backwards speller: nine letters of prompt, so that the first generated token is step 9. Run 2 has the
 * off-by-one fault. */
static int setup(void **state) {
  (void)state;
  const char *named = getenv("KVSTEP");
  if (!realpath(named ? named : "./kvstep", program) || !mkdtemp(folder)) return -1;
  snprintf(trace, sizeof trace, "%s/t.trace", folder);
  signal(SIGPIPE, SIG_IGN);
  return shell("'%s' run -m reverse -p 'position>' -n 8 --log full -o '%s' >/dev/null 2>&1 &&"
               "'%s' run -m reverse -p 'position>' -n 8 -o '%s' --append --fault off-by-one >/dev/null 2>&1",
               program, trace, program, trace);
}

static int teardown(void **state) {
  (void)state;
  return shell("rm -rf '%s'", folder);
}

static int close_pty(void **state) {
  (void)state;
  pty_free(pty);
  pty = NULL;
  return 0;
}

static void open_with(int rows, int columns, const char *option, const char *const environment[]) {
  const char *const argv[] = {program, "view", trace, option, NULL};
  pty = pty_start(argv, rows, columns, environment);
  assert_non_null(pty);
}

/* ncurses draws from top to bottom: with the last line, all is there. */
static bool bottom_shows_quit(struct pty *p, const void *nothing) {
  (void)nothing;
  return strstr(pty_row(p, p->rows - 1), "? help  q quit") != NULL;
}

static void see_all(const char *text) {
  assert_true(pty_wait(pty, text));
  assert_true(pty_wait_for(pty, bottom_shows_quit, NULL));
}

/* The usual screen, open and drawn. */
static void open_screen(void) {
  open_with(24, 80, NULL, NULL);
  see_all("step 9/");
}

static void type(const char *keys) { assert_true(pty_send(pty, keys)); }

static void type_and_see(const char *keys, const char *text) {
  type(keys);
  assert_true(pty_wait(pty, text));
}

/* Leaves by `q`: exit 0, the primary screen, a cursor, the modes of before. */
static void quit_whole(void) {
  type("q");
  assert_int_equal(pty_wait_exit(pty), 0);
  assert_false(pty->alternate);
  assert_true(pty->cursor);
  assert_true(pty_modes_whole(pty));
}

/* ---- drawing and keys ----------------------------------------------------------------------------------------------- */

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

/* ^C leaves what is being done and never the program; so does SIGINT from elsewhere. Unknown keys do nothing. */
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

/* ---- stopping and dying --------------------------------------------------------------------------------------------- */

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

static void test_suspend(void **state) {
  (void)state;
  char line[9000];
  open_shell();
  snprintf(line, sizeof line, "'%s' view '%s'\r", program, trace);
  type(line);
  assert_true(pty_wait(pty, "step 9/"));
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

/* ---- the trace underneath ------------------------------------------------------------------------------------------- */

static void test_trace_deleted(void **state) {
  (void)state;
  char kept[4200];
  snprintf(kept, sizeof kept, "%s", trace);
  snprintf(trace, sizeof trace, "%s/deleted.trace", folder);
  assert_int_equal(shell("cp '%s' '%s'", kept, trace), 0);
  open_screen();
  unlink(trace);
  type_and_see("l", "step 10/");
  for (const char *key = "2345671"; *key; key++) {
    const char keys[] = {*key, '\0'};
    type(keys);
  }
  type_and_see("h", "step 9/");
  quit_whole();
  snprintf(trace, sizeof trace, "%s", kept);
}

static void test_trace_truncated(void **state) {
  (void)state;
  char kept[4200];
  snprintf(kept, sizeof kept, "%s", trace);
  snprintf(trace, sizeof trace, "%s/cut.trace", folder);
  assert_int_equal(shell("cp '%s' '%s'", kept, trace), 0);
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
  snprintf(trace, sizeof trace, "%s", kept);
}

/* A trace that another program writes is followed from its end on. */
static void test_follows(void **state) {
  (void)state;
  char kept[4200];
  snprintf(kept, sizeof kept, "%s", trace);
  snprintf(trace, sizeof trace, "%s/growing.trace", folder);
  assert_int_equal(shell("cp '%s' '%s'", kept, trace), 0);
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
  snprintf(trace, sizeof trace, "%s", kept);
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
  assert_int_equal(shell("test -z \"$(ls -A '%s/tmp')\"", folder), 0); /* nothing to be left over */
  type_and_see("r", "off-by-one");
  type_and_see("r", "reset-to-zero");
  type_and_see("G", "step 1");
  quit_whole();
}

static int play(const char *keys, const char *options) {
  char path[512];
  snprintf(path, sizeof path, "%s/keys", folder);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(keys, file);
  fclose(file);
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

/* ---- anything at all ------------------------------------------------------------------------------------------------ */

static unsigned random_state;
static int random_below(int n) {
  random_state = random_state * 1664525U + 1013904223U;
  return (int)((random_state >> 8) % (unsigned)n);
}

static void test_random_keys(void **state) {
  (void)state;
  static const char *const keys[] = {" ",        ".",        "b",
                                     ",",        "\033[C",   "\033[D",
                                     "\033[A",   "\033[B",   "\033[H",
                                     "\033[F",   "\033[5~",  "\033[6~",
                                     "\033OP",   "\033",     "\t",
                                     "\033[Z",   "\r",       "\177",
                                     "h",        "j",        "k",
                                     "l",        "g",        "G",
                                     "n",        "N",        "d",
                                     "r",        "R",        "P",
                                     "+",        "-",        "[",
                                     "]",        "{",        "}",
                                     "/",        ":",        "?",
                                     "1",        "2",        "3",
                                     "4",        "5",        "6",
                                     "7",        "\007",     "\003",
                                     "\014",     "\303\251", "\344\270\255",
                                     "\033[99~", "\377",     "e\314\201"};
  open_screen();
  random_state = 20240607;
  int count = sanitized() ? 2000 : 5000;
  for (int i = 0; i < count; i++) {
    assert_true(pty_send(pty, keys[random_below((int)(sizeof keys / sizeof *keys))]));
    if (random_below(40) == 0) pty_resize(pty, 1 + random_below(60), 1 + random_below(180));
    pty_pump(pty, 0);
  }
  pty_resize(pty, 24, 80);
  type("\007\007\0071:step 4\r");
  assert_true(pty_wait(pty, "step 4/"));
  type("\003");
  assert_true(pty_wait(pty, "1 step"));
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
      SCREEN_TEST(test_search),
      SCREEN_TEST(test_difference),
      SCREEN_TEST(test_commands),
      SCREEN_TEST(test_save_screen),
      SCREEN_TEST(test_endless_query),
      SCREEN_TEST(test_cancel_and_unknown_keys),
      SCREEN_TEST(test_plays),
      SCREEN_TEST(test_colors),
      SCREEN_TEST(test_no_color),
      SCREEN_TEST(test_ascii),
      SCREEN_TEST(test_resize_small),
      SCREEN_TEST(test_starts_tiny),
      SCREEN_TEST(test_resize_large),
      SCREEN_TEST(test_resizes_in_a_row),
      SCREEN_TEST(test_suspend),
      SCREEN_TEST(test_continued),
      SCREEN_TEST(test_dies_of_term),
      SCREEN_TEST(test_dies_of_hup),
      SCREEN_TEST(test_dies_of_quit),
      SCREEN_TEST(test_dies_of_segv),
      SCREEN_TEST(test_dies_of_others),
      SCREEN_TEST(test_closed),
      SCREEN_TEST(test_closed_under_nohup),
      SCREEN_TEST(test_no_such_terminal),
      SCREEN_TEST(test_no_terminal),
      SCREEN_TEST(test_trace_deleted),
      SCREEN_TEST(test_trace_truncated),
      SCREEN_TEST(test_follows),
      SCREEN_TEST(test_kvstep_alone),
      SCREEN_TEST(test_script),
      SCREEN_TEST(test_script_errors),
      SCREEN_TEST(test_tmux),
      SCREEN_TEST(test_random_keys),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
