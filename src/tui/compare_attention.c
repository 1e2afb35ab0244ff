/* compare_attention.c: the attention of two runs in one step: how far apart it is head by head, and the chosen head's row by row. */
#include <math.h>
#include <stdio.h>

#include "study/compare/diverge.h"
#include "tui/compare_pair.h"

/* NaN: one of them was not logged. */
static double distance_of(struct look *look, const struct pair *p, int step, int layer, int head) {
  const struct look_head *a = look_head(look, p->a->run, step, layer, head),
                         *b = look_head(look, p->b->run, step, layer, head);
  if (!a || !b || !a->weights || !b->weights) return NAN;
  return diverge_attention(a->weights, a->rows, b->weights, b->rows);
}

/* One head: a heat cell, and the number where there is room for it. */
static void draw_distance(struct cells *cells, struct area area, int line, int at, int width, double distance,
                          bool here) {
  if (here) cells_put(cells, area, line, at - 1, 1, ROLE_HERE, "▸");
  if (isnan(distance)) {
    cells_put(cells, area, line, at, width, ROLE_DIM, "–");
    return;
  }
  int heat = width >= 6 ? width - 5 : width;
  cells_heat(cells, area, line, at, heat, distance);
  if (heat < width) cells_putf(cells, area, line, at + heat + 1, 4, here ? ROLE_HERE : ROLE_TEXT, "%.2f", distance);
}

void compare_attention(struct cells *cells, struct area area, const struct state *s, struct look *look,
                       const struct pair *p) {
  if (!reached(s, KVS_SOFTMAX)) {
    cells_put(cells, area, 0, 1, -1, ROLE_DIM, "the weights are not there yet: Space goes on");
    return;
  }
  if (s->step >= p->b->steps) {
    cells_putf(cells, area, 0, 1, -1, ROLE_DIM, "run %d has no step %d", p->b->run, s->step);
    return;
  }
  int room = area.columns - 6, width = room / (p->a->n_head > 0 ? p->a->n_head : 1) - 2;
  if (width > 12) width = 12;
  if (width < 1) width = 1;
  int first_head, last_head, first, last;
  window_of(p->a->n_head, room / (width + 2), s->head, &first_head, &last_head);
  window_of(p->a->n_layer, area.rows - 1, s->layer, &first, &last);
  double chosen = distance_of(look, p, s->step, s->layer, s->head);
  if (isnan(chosen))
    cells_putf(cells, area, 0, 1, -1, ROLE_DIM, "layer %d head %d: not logged in both runs, or no numbers", s->layer,
               s->head);
  else
    cells_putf(cells, area, 0, 1, -1, ROLE_TEXT, "layer %d head %d: %.4f", s->layer, s->head, chosen);
  for (int layer = first; layer <= last; layer++) {
    int line = 1 + layer - first;
    cells_putf(cells, area, line, 0, 5, layer == s->layer ? ROLE_HERE : ROLE_DIM, "L%d", layer);
    for (int head = first_head; head <= last_head; head++)
      draw_distance(cells, area, line, 6 + (head - first_head) * (width + 2), width,
                    distance_of(look, p, s->step, layer, head), layer == s->layer && head == s->head);
  }
}

/* One row of the chosen head's weights in both runs. */
static void draw_weights_row(struct cells *cells, struct area area, int line, int row, const struct state *s,
                             struct look *look, const struct look_head *const heads[2]) {
  int half = (area.columns - 6) / 2;
  cells_putf(cells, area, line, 0, 5, ROLE_DIM, "%5d", row);
  for (int i = 0; i < 2; i++) {
    int at = 7 + i * half;
    if (row >= heads[i]->rows) {
      cells_put(cells, area, line, at, 1, ROLE_DIM, "–");
      continue;
    }
    double weight = (double)heads[i]->weights[row];
    cells_put_field(cells, area, line, at, 8, ROLE_TOKEN, look_row_text(look, heads[i]->run, s->step, s->layer, row));
    cells_putf(cells, area, line, at + 8, 7, ROLE_TEXT, "%7.3f", weight); /* as in the step view */
    cells_bar(cells, area, line, at + 16, half - 18, ROLE_BAR, weight);
  }
}

/* What the chosen head attends to in both runs, row by row: what makes its distance. */
void compare_weights(struct cells *cells, struct area area, const struct state *s, struct look *look,
                     const struct pair *p) {
  const struct look_head *const heads[2] = {look_head(look, p->a->run, s->step, s->layer, s->head),
                                            look_head(look, p->b->run, s->step, s->layer, s->head)};
  if (area.rows < 4 || !reached(s, KVS_SOFTMAX)) return;
  if (!heads[0] || !heads[1] || !heads[0]->weights || !heads[1]->weights) return;
  char title[64];
  snprintf(title, sizeof title, "weights of layer %d head %d, row by row", s->layer, s->head);
  cells_rule(cells, area, 0, title);
  int rows = heads[0]->rows > heads[1]->rows ? heads[0]->rows : heads[1]->rows, first, last;
  cells_put(cells, area, 1, 2, 3, ROLE_DIM, "row");
  for (int i = 0; i < 2; i++)
    cells_putf(cells, area, 1, 7 + i * ((area.columns - 6) / 2), 12, ROLE_TITLE, "run %d", heads[i]->run);
  window_of(rows, area.rows - 2, s->row < 0 ? rows - 1 : s->row, &first, &last);
  for (int row = first; row <= last; row++) draw_weights_row(cells, area, 2 + row - first, row, s, look, heads);
  if (first > 0) cells_put(cells, area, 1, 0, 1, ROLE_DIM, "↑");
  if (last < rows - 1) cells_put(cells, area, area.rows - 1, 0, 1, ROLE_DIM, "↓");
}
