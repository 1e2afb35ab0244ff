/* view_next.c: the most probable next tokens, and which of them was taken. */
#include <math.h>
#include <stdio.h>

#include "tui/view.h"

static void draw(struct cells *cells, struct area area, const struct state *s, struct look *look) {
  const struct look_run *run = look_run(look, s->run);
  const struct look_top *top = look_top(look, s->run, s->step);
  if (!run) return;
  if (!top || top->count == 0) {
    draw_absent(cells, area, "the next token's probabilities were not logged",
                "kvstep run -o TRACE logs the best twenty");
    return;
  }
  if (!reached(s, KVS_LOGITS)) {
    draw_absent(cells, area, "the logits are not there yet", "they are the last of the ten moments: Space goes on");
    return;
  }
  const struct look_step *next = s->step + 1 < run->steps ? look_step(look, s->run, s->step + 1) : NULL;
  int taken = next ? next->token : LOOK_NONE;
  char chosen[80] = "";
  if (next)
    snprintf(chosen, sizeof chosen, "%s  %s", next->source == KVS_SAMPLED ? "taken:" : "given next:", next->text);
  cells_putf(cells, area, 0, 1, -1, ROLE_DIM, "rank  token              logit   prob.");
  cells_put_right(cells, area, 0, area.columns, area.columns - 44, ROLE_TEXT, chosen);
  for (int i = 0; i < top->count && i + 1 < area.rows; i++) {
    bool here = top->token[i].token == taken;
    char logit[24];
    number_text(top->token[i].logit, 7, logit);
    cells_putf(cells, area, 1 + i, 1, 5, here ? ROLE_HERE : ROLE_DIM, "%s%3d", here ? "▸" : " ", i + 1);
    cells_put(cells, area, 1 + i, 7, 16, here ? ROLE_NEW : ROLE_TOKEN, top->token[i].text);
    cells_putf(cells, area, 1 + i, 24, -1, ROLE_TEXT, "%s  %.4f", logit, top->token[i].probability);
    cells_bar(cells, area, 1 + i, 41, area.columns - 42, ROLE_BAR, top->token[i].probability);
  }
}

const struct view view_next = {"next token", "the most probable, and which was taken", draw};
