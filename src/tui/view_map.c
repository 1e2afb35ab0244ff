/* view_map.c: one head over all steps: a line for each step, a column for each cache row. Above the diagonal there is nothing in decode;
 * in prefill there are rows already, and the causal mask hides them. */
#include <stdio.h>

#include "tui/view.h"

#define LEFT 18 /* columns for the step and its token */

static void draw_line(struct cells *cells, struct area area, int line, int step, int first, int last,
                      const struct state *s, struct look *look) {
  const struct look_step *t = look_step(look, s->run, step);
  if (!t) return;
  bool here = step == s->step;
  int masked = t->mode == KVS_PREFILL ? t->prompt_steps : 0;
  cells_putf(cells, area, line, 0, 6, here ? ROLE_HERE : ROLE_DIM, "%s%4d", here ? "▸" : " ", step);
  cells_put(cells, area, line, 7, LEFT - 8, here ? ROLE_HERE : ROLE_TOKEN, t->text);
  const struct look_head *head = look_head(look, s->run, step, s->layer, s->head);
  if (!head || !head->weights) {
    cells_put(cells, area, line, LEFT, -1, ROLE_DIM, "not logged");
    return;
  }
  for (int row = first; row <= last; row++) {
    int at = LEFT + row - first;
    if (row < head->rows)
      draw_weight(cells, area, line, at, (double)head->weights[row]);
    else if (row < masked)
      cells_put(cells, area, line, at, 1, ROLE_DIM, "-");
  }
}

/* The number under the row cursor, so that no cell is only a colour. */
static void draw_reading(struct cells *cells, struct area area, const struct state *s, struct look *look) {
  const struct look_head *head = look_head(look, s->run, s->step, s->layer, s->head);
  if (!head || !head->weights) return;
  int row = s->row < 0 ? head->rows - 1 : s->row;
  if (row >= head->rows) return;
  char score[24] = "not logged";
  if (head->scores) snprintf(score, sizeof score, "%.3f", (double)head->scores[row]);
  int used = cells_putf(cells, area, 0, 0, -1, ROLE_TEXT, "step %d, row %d %s: weight %.4f, score %s", s->step, row,
                        look_row_text(look, s->run, s->step, s->layer, row), (double)head->weights[row], score);
  const char *legend = cells->ascii ? ", < 0.1  - masked" : "· < 0.125  - masked";
  if (used + 2 + text_columns(legend) <= area.columns)
    cells_put_right(cells, area, 0, area.columns, -1, ROLE_DIM, legend);
}

/* Every tenth row's number over its column, and the row cursor's; one that would run into the cursor's gives way. */
static void draw_columns(struct cells *cells, struct area area, int first, int last, int here) {
  char mark[16];
  snprintf(mark, sizeof mark, "▾%d", here);
  int at = LEFT + here - first, width = text_columns(mark);
  bool seen = here >= first && here <= last;
  cells_put(cells, area, 1, 0, LEFT - 1, ROLE_DIM, " step  token");
  for (int row = first + (10 - first % 10) % 10; row <= last; row += 10) {
    char number[16];
    snprintf(number, sizeof number, "%d", row);
    int column = LEFT + row - first, end = column + text_columns(number);
    if (!seen || end < at || column > at + width) cells_put(cells, area, 1, column, -1, ROLE_DIM, number);
  }
  if (!seen) return;
  if (at + width > area.columns) {
    snprintf(mark, sizeof mark, "%d▾", here);
    at -= width - 1;
  }
  cells_put(cells, area, 1, at, -1, ROLE_HERE, mark);
}

static void draw(struct cells *cells, struct area area, const struct state *s, struct look *look) {
  const struct look_run *run = look_run(look, s->run);
  const struct look_step *step = look_step(look, s->run, s->step);
  if (!run || !step) return;
  int first_step, last_step, first_row, last_row, here = s->row < 0 ? step->length_before : s->row;
  window_of(run->steps, area.rows - 2, s->step, &first_step, &last_step);
  const struct look_step *newest = look_step(look, s->run, last_step);
  int rows = newest && newest->length_after > 0 ? newest->length_after : run->steps;
  if (newest && newest->mode == KVS_PREFILL && newest->prompt_steps > rows) rows = newest->prompt_steps;
  window_of(rows, area.columns - LEFT, here, &first_row, &last_row);
  draw_reading(cells, area, s, look);
  draw_columns(cells, area, first_row, last_row, here);
  for (int i = first_step; i <= last_step; i++)
    draw_line(cells, area, 2 + i - first_step, i, first_row, last_row, s, look);
}

const struct view view_map = {"map", "all steps × rows of this head", draw};
