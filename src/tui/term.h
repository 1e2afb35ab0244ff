/* term.h: the terminal: a grid of cells goes out, keys come in, and it is left whole on every way out. One at a time.
 * Only term.c, term_put.c and term_keys.c know ncurses. */
#ifndef KVS_TUI_TERM_H
#define KVS_TUI_TERM_H

#include <stdbool.h>

#include "kvstep/error.h"

struct cells;

/* What term_key returns besides keys. */
enum { TERM_NOTHING = 0, TERM_GONE = -1, TERM_SUSPEND = -2, TERM_WOKEN = -3, TERM_ENDING = -4 };

/* Takes the terminal over: alternate screen, keys unechoed, handlers for the signals that would leave it so. `depth` is an
 * enum depth of theme.h, or −1 for as many colours as the terminal has and NO_COLOR allows.
 * Errors: KVS_ERR_USAGE when stdin or stdout is no terminal, or one that cannot place its cursor; the message says what
 * to use instead. */
kvs_status term_open(int depth, kvs_error *err);

/* Makes term_key look at this descriptor too: TERM_WOKEN when it is readable (it is emptied here). Until term_close. */
void term_watch(int descriptor);

/* From here on, until term_close, the first SIGTERM or SIGHUP does not end the program but comes as TERM_ENDING, for a file to be
 * closed first. A second SIGTERM ends it, and so does a second in which the terminal takes nothing more; SIGHUP often comes twice, and is
 * ignored from the first one on, also after term_close. term_signal: which one it was, 0: none; to be raised again in the end. */
void term_end_gently(void);
int term_signal(void);

/* Gives it back as it was. Harmless when it is not open. */
void term_close(void);

/* Whether it can show UTF-8, by the locale. */
bool term_utf8(void);

void term_size(int *rows, int *columns);

/* Shows the cells; what has not changed costs nothing. The cursor is shown at (row, column), or hidden when row is −1. */
void term_put(const struct cells *cells, int row, int column);

/* Forgets what is on the terminal, so that the next term_put draws all of it. */
void term_redraw(void);

/* Gives the terminal back and stops, as ^Z does; returns once the process is continued, with everything to be drawn. */
void term_suspend(void);

/* The next key: a code point or an enum key of action.h. Waits at most `timeout` milliseconds (−1: for ever), then
 * TERM_NOTHING. TERM_GONE: the terminal is no more. TERM_SUSPEND: somebody sent SIGTSTP. TERM_WOKEN, TERM_ENDING: see
 * above. KEYS_RESIZE: another size, or
 * back from a stop. */
int term_key(int timeout);

#endif
