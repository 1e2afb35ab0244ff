/* foot.h: the lines at the bottom of the screen: what is being typed or was just said, and what the keys do now. */
#ifndef KVS_TUI_FOOT_H
#define KVS_TUI_FOOT_H

#include "study/look/look.h"
#include "tui/cells.h"
#include "tui/state.h"

/* Lines between the view and the status line: one, or what a question or a long message takes. */
int foot_lines(struct cells *cells, struct area area, const struct state *state);

/* The status line and those above it, into the whole screen's area. */
void foot_draw(struct cells *cells, struct area area, const struct state *state, struct look *look);

/* What must stand over the view's last line: while a line is typed, what may be, and what is said of it. Draw it after the view. */
void foot_draw_over(struct cells *cells, struct area area, const struct state *state);

#endif
