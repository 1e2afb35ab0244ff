/* term.c: the terminal is opened, closed, suspended and asked for its size. Cells go out in term_put.c, keys come in in term_keys.c; only
 * these three know ncurses. */
#define NCURSES_WIDECHAR 1
#include <curses.h>
#include <errno.h>
#include <langinfo.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <term.h>
#include <termios.h>
#include <unistd.h>

#undef columns /* of term.h's many macros the one that is a name here */

#include "tui/term.h"
#include "tui/term_parts.h"
#include "tui/term_signals.h"

struct terminal term;

/* ---- opening -------------------------------------------------------------------------------------------------------- */

/* Adds a capability to what restores the terminal, without terminfo's padding marks ("$<5/>"). */
static void add_restore(const char *capability) {
  const char *text = tigetstr(capability);
  if (!text || text == (char *)-1) return;
  while (*text) {
    const char *end = text[0] == '$' && text[1] == '<' ? strchr(text, '>') : NULL;
    if (end)
      text = end + 1;
    else
      signals_restore_with(text++, 1);
  }
}

static kvs_status check_terminal(kvs_error *err) {
  const char *name = getenv("TERM");
  if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
    return kvs_fail(err, KVS_ERR_USAGE,
                    "the screen needs a terminal for standard input and output; `kvstep show TRACE` prints a step as "
                    "text, and `kvstep view TRACE --keys FILE` works without a terminal");
  int known = 0;
  if (name && *name && setupterm(NULL, STDOUT_FILENO, &known) == OK && known == 1) {
    const char *move = tigetstr("cup");
    if (move && move != (char *)-1) return KVS_OK;
  }
  if (name && *name && known != 1)
    return kvs_fail(err, KVS_ERR_USAGE,
                    "the terminal TERM=%s is not known here; set TERM to one that is (xterm, linux, vt100), or let "
                    "`kvstep show TRACE` print a step as text",
                    name);
  return kvs_fail(err, KVS_ERR_USAGE,
                  "the screen needs a terminal that can place its cursor, and TERM%s%s is none; `kvstep show TRACE` "
                  "prints a step as text",
                  name && *name ? "=" : "", name && *name ? name : " is not set, so this one");
}

/* Bracketed paste, so that pasted text is not taken for keys: https://invisible-island.net/xterm/xterm-paste64.html. Asked of terminals
 * that know the mouse as xterm does, since terminfo has long had no word for it. */
#define PASTE_ON "\033[?2004h"
#define PASTE_OFF "\033[?2004l"

void term_bracket_pastes(bool on) {
  if (!term.pastes) return;
  ssize_t written = write(STDOUT_FILENO, on ? PASTE_ON : PASTE_OFF, sizeof PASTE_ON - 1);
  (void)written; /* then a paste is typed, as ever */
}

static bool knows_pastes(void) {
  const char *mouse = tigetstr("kmous");
  return mouse && mouse != (char *)-1 && (strcmp(mouse, "\033[M") == 0 || strcmp(mouse, "\033[<") == 0);
}

/* ^C, ^Z and ^S are keys; ^\ still quits, in case all else hangs. */
static void set_modes(void) {
  cbreak();
  noecho();
  nonl();
  struct termios mine;
  if (tcgetattr(STDIN_FILENO, &mine) == 0) {
    mine.c_cc[VINTR] = mine.c_cc[VSUSP] = _POSIX_VDISABLE;
#ifdef VDSUSP
    mine.c_cc[VDSUSP] = _POSIX_VDISABLE;
#endif
    mine.c_iflag &= (tcflag_t) ~(IXON | IXOFF);
    mine.c_lflag &= (tcflag_t)~IEXTEN; /* ^V and ^O are keys too */
    tcsetattr(STDIN_FILENO, TCSANOW, &mine);
  }
  def_prog_mode();
  intrflush(stdscr, FALSE);
  keypad(stdscr, TRUE);
  nodelay(stdscr, TRUE);
  set_escdelay(25);
  term_define_keys();
}

kvs_status term_open(int depth, kvs_error *err) {
  kvs_status status = check_terminal(err);
  if (status != KVS_OK) return status;
  if (!signals_begin()) return kvs_fail(err, KVS_ERR_IO, "the terminal cannot be set up: %s", strerror(errno));
  term.pastes = knows_pastes();
  if (term.pastes) signals_restore_with(PASTE_OFF, sizeof PASTE_OFF - 1);
  static const char *const capabilities[] = {"sgr0", "op", "rmkx", "rmcup", "cnorm"};
  for (size_t i = 0; i < sizeof capabilities / sizeof *capabilities; i++) add_restore(capabilities[i]);
  del_curterm(cur_term); /* newterm reads a description of its own */
  signals_catch();       /* before ncurses, which leaves alone what somebody else handles */
  term.screen = newterm(NULL, stdout, stdin);
  if (!term.screen) {
    term_close();
    return kvs_fail(err, KVS_ERR_USAGE, "the terminal cannot be set up; `kvstep show TRACE` prints a step as text");
  }
  set_modes();
  term_set_colors(depth);
  curs_set(0);
  term_bracket_pastes(true);
  getmaxyx(stdscr, term.rows, term.columns);
  return KVS_OK;
}

void term_close(void) {
  if (!signals_taken()) return;
  term_bracket_pastes(false);
  if (term.screen) endwin();
  signals_give_back(); /* endwin restores what ncurses has changed; this, what we have */
  signals_end();
  if (term.screen) delscreen(term.screen);
  term_watch(0);
  term_forget_shown();
  memset(&term, 0, sizeof term);
}

bool term_utf8(void) { return strcmp(nl_langinfo(CODESET), "UTF-8") == 0; }

void term_size(int *rows, int *columns) {
  *rows = term.rows;
  *columns = term.columns;
}

/* ---- size, suspension ----------------------------------------------------------------------------------------------- */

/* The terminal's own word on its size; a pty without one keeps what it had. */
void term_take_size(void) {
  struct winsize size;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0)
    resize_term(size.ws_row, size.ws_col);
  getmaxyx(stdscr, term.rows, term.columns);
  erase();
  term_redraw();
}

void term_suspend(void) {
  struct sigaction usual = {.sa_handler = SIG_DFL}, ours;
  term_bracket_pastes(false);
  endwin();
  signals_give_back();
  sigaction(SIGTSTP, &usual, &ours);
  kill(0, SIGTSTP); /* the whole job, as the terminal's ^Z would */
  sigaction(SIGTSTP, &ours, NULL);
  signals_take_again();
  term_bracket_pastes(true);
  term_take_size();
}
