/* pty.h: a program in a terminal of its own: keys go in, and what it draws is read back from a model of the screen (libvterm).
 * Nothing here waits for a time: every wait is for a state, and gives up after a generous deadline. */
#ifndef KVS_TESTS_PTY_H
#define KVS_TESTS_PTY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <termios.h>
#include <vterm.h>

#define PTY_DEADLINE 30.0 /* seconds; a sanitized program on a busy machine is slow */

struct pty {
  int master; /* −1: closed */
  pid_t child;
  int status; /* of waitpid, once `ended` */
  bool ended;
  VTerm *vterm;
  VTermScreen *screen;
  int rows, columns;
  bool alternate, cursor;
  char tail[6];   /* the last bytes received */
  int alternates; /* how often the alternate screen was entered */
  size_t received;
  struct termios before; /* the modes that the program found */
};

/* Starts argv (found by PATH) in rows × columns. `environment`: NAME=VALUE, or NAME to unset it; NULL at its end. TERM is
 * xterm-256color unless it says otherwise. NULL when it cannot be started. */
struct pty *pty_start(const char *const argv[], int rows, int columns, const char *const environment[]);

/* Kills what is left and frees. */
void pty_free(struct pty *pty);

/* Types these bytes, reading meanwhile what the program draws. */
bool pty_send(struct pty *pty, const char *bytes);

void pty_resize(struct pty *pty, int rows, int columns);

/* Closes the terminal under the program, as a window that is closed. */
void pty_close(struct pty *pty);

/* Reads what there is within `seconds`, at most once. False when there was nothing. */
bool pty_pump(struct pty *pty, double seconds);

bool pty_has(struct pty *pty, const char *text);

/* Waits until the screen shows the text, or no more. False after the deadline. */
bool pty_wait(struct pty *pty, const char *text);
bool pty_wait_gone(struct pty *pty, const char *text);
bool pty_wait_for(struct pty *pty, bool (*state)(struct pty *pty, const void *context), const void *context);

/* Waits for the program's end: its exit code, or 128 + the signal; −1 after the deadline. */
int pty_wait_exit(struct pty *pty);

/* One row's text, UTF-8; good until the next call. */
const char *pty_row(struct pty *pty, int row);
VTermScreenCell pty_cell(struct pty *pty, int row, int column);

/* Whether the terminal's modes are those that the program found. */
bool pty_modes_whole(struct pty *pty);

/* The screen on stderr, for a test that fails. */
void pty_dump(struct pty *pty);

double pty_now(void);

#endif
