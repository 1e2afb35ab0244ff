/* rule_lines.h: three lines above every view: which t the step used and which is right, the cache, and where t points in it. */
#ifndef KVS_TUI_RULE_LINES_H
#define KVS_TUI_RULE_LINES_H

#include "tui/predict.h"
#include "tui/view.h"

/* Draws into the area's first three lines. `step` is the state's; what is asked for in a prediction is `?` there. */
void rule_lines_draw(struct cells *cells, struct area area, const struct state *state, struct look *look,
                     const struct look_step *step, const struct place *place, const struct prediction *asked);

#endif
