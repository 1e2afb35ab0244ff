/* fault_list.h: the list of faults to choose from, with the mistaken line of code beside the right one. */
#ifndef KVS_TUI_FAULT_LIST_H
#define KVS_TUI_FAULT_LIST_H

#include "tui/cells.h"
#include "tui/state.h"

/* How many names ← and → go on a screen of this size: those of one column; 0 where there is but one. */
int fault_list_stride(int rows, int columns);

void fault_list_draw(struct cells *cells, struct area area, const struct state *state);

#endif
