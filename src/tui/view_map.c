/* view_map.c: one head over all steps: a line for each step, a column for each cache row. Above the diagonal there is nothing in decode;
 * in prefill there are rows already, and the causal mask hides them. */
#include <stdio.h>

#include "tui/view.h"

#define LEFT 18 /* columns for the step and its token */

/* What stands in the place of weights that are not there; NULL if they are. */
static const char *missing(const struct cells *cells, const struct state *s, int step, const struct look_head *head) {
  if (step == s->step && !reached(s, KVS_SOFTMAX)) return "not there yet: softmax makes the weights";
  if (head && head->weights) return NULL;
  return !head && cells->unfinished ? "reading…" : "not logged";
}

static void draw_line(struct cells *cells, struct area area, int line, int step, int first, int last,
                      const struct state *s, struct look *look, int *fetched) {
  const struct look_step *t = look_step(look, s->run, step);
  if (!t) return;
  bool here = step == s->step;
  int masked = t->mode == KVS_PREFILL ? t->prompt_steps : 0;
  cells_putf(cells, area, line, 0, 6, here ? ROLE_HERE : ROLE_DIM, "%s%4d", here ? "▸" : " ", step);
  cells_put(cells, area, line, 7, LEFT - 8, here ? ROLE_HERE : ROLE_TOKEN, t->text);
  const struct look_head *head = head_in_time(cells, look, s->run, step, s->layer, s->head, fetched);
  const char *words = missing(cells, s, step, head);
  if (words) {
    cells_put(cells, area, line, LEFT, -1, ROLE_DIM, words);
    return;
  }
  for (int row = first; row <= last; row++) {
    int at = LEFT + row - first;
    if (row < head->rows)
      draw_weight(cells, area, line, at, (double)head->weights[row], head->rows);
    else if (row < masked)
      cells_put(cells, area, line, at, 1, ROLE_DIM, "-");
  }
}

/* From the current step outwards, so that it and its neighbours are read first. */
static void draw_lines(struct cells *cells, struct area area, int first, int last, int first_row, int last_row,
                       const struct state *s, struct look *look) {
  int fetched = 0;
  for (int away = 0; s->step - away >= first || s->step + away <= last; away++) {
    int before = s->step - away, after = s->step + away;
    if (before >= first && before <= last)
      draw_line(cells, area, before - first, before, first_row, last_row, s, look, &fetched);
    if (away > 0 && after >= first && after <= last)
      draw_line(cells, area, after - first, after, first_row, last_row, s, look, &fetched);
  }
}

/* What the shades mean, as long as there is room for it. */
static const char *legend(const struct cells *cells, int room) {
  static const char *const words[] = {"· < ¼ of an even 1/rows  - masked", "· < ¼ of 1/rows  - masked",
                                      "· < ¼ of 1/rows"};
  static const char *const ascii[] = {", < 1/5 of an even 1/rows  - masked", ", < 1/5 of 1/rows  - masked",
                                      ", < 1/5 of 1/rows"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    const char *text = cells->ascii ? ascii[i] : words[i];
    if (text_columns(text) <= room) return text;
  }
  return "";
}

/* The number under the row cursor, so that no cell is only a colour. */
static void draw_reading(struct cells *cells, struct area area, const struct state *s, struct look *look, int row) {
  const struct look_head *head = look_head(look, s->run, s->step, s->layer, s->head);
  if (!head || !head->weights) {
    cells_putf(cells, area, 0, 0, -1, ROLE_DIM,
               "layer %d head %d was not logged in this step: kvstep run --layers, --heads", s->layer, s->head);
    return;
  }
  char score[24] = "not logged", weight[24] = "not there yet";
  if (head->scores && row < head->rows) snprintf(score, sizeof score, "%.3f", (double)head->scores[row]);
  if (!reached(s, KVS_SCORE)) snprintf(score, sizeof score, "not there yet");
  if (reached(s, KVS_SOFTMAX) && row < head->rows) snprintf(weight, sizeof weight, "%.4f", (double)head->weights[row]);
  int used = cells_putf(cells, area, 0, 0, -1, ROLE_TEXT, "step %d, row %d %s: ", s->step, row,
                        look_row_text(look, s->run, s->step, s->layer, row));
  if (row >= head->rows)
    used += cells_put(cells, area, 0, used, -1, ROLE_TEXT, "not attended to");
  else
    used += cells_putf(cells, area, 0, used, -1, ROLE_TEXT, "weight %s, score %s", weight, score);
  cells_put_right(cells, area, 0, area.columns, -1, ROLE_DIM, legend(cells, area.columns - used - 2));
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
  struct place place;
  place_of(s, look, &place);
  int first_step, last_step, first_row, last_row;
  window_of(run->steps, area.rows - 2, s->step, &first_step, &last_step);
  const struct look_step *newest = look_step(look, s->run, last_step);
  int rows = newest && newest->length_after > 0 ? newest->length_after : run->steps;
  if (newest && newest->mode == KVS_PREFILL && newest->prompt_steps > rows) rows = newest->prompt_steps;
  if (place.rows > rows) rows = place.rows;
  window_of(rows, area.columns - LEFT, place.here, &first_row, &last_row);
  draw_reading(cells, area, s, look, place.here);
  draw_columns(cells, area, first_row, last_row, place.here);
  draw_lines(cells, area_rows(area, 2, area.rows - 2), first_step, last_step, first_row, last_row, s, look);
}

const struct view view_map = {"map", "all steps × rows; shades by multiples of 1/rows", draw};
