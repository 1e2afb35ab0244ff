/* help.h: the help on the whole screen, but for the title and the status line. */
#ifndef KVS_TUI_HELP_H
#define KVS_TUI_HELP_H

#include "tui/cells.h"

/* The last line of the help that can be the first one shown, on a screen of this size. */
int help_last(int rows, int columns);

/* Draws it from line `top` on; `area` is the screen. */
void help_draw(struct cells *cells, struct area area, int top);

#endif
