/* fault_list.h: the list of faults to choose from, with the mistaken line of code beside the right one. */
#ifndef KVS_TUI_FAULT_LIST_H
#define KVS_TUI_FAULT_LIST_H

#include "tui/cells.h"
#include "tui/state.h"

void fault_list_draw(struct cells *cells, struct area area, const struct state *state);

#endif
