/* view.c: what several views need: numbers in few columns, windows of long lists, saying that something is not there. */
#include "tui/view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const struct view *const views[VIEW_COUNT] = {&view_step,      &view_cache, &view_map,     &view_heads, &view_product,
                                              &view_embedding, &view_next,  &view_compare, &view_sql};

void number_text(double value, int width, char *text) {
  char room[24];
  double size = fabs(value);
  if (isnan(value))
    snprintf(room, sizeof room, "nan");
  else if (isinf(value))
    snprintf(room, sizeof room, value > 0 ? "inf" : "-inf");
  else if (size != 0 && (size < 0.0005 || size >= 99999.5))
    snprintf(room, sizeof room, "%.*e", width > 9 ? 2 : width > 7 ? 1 : 0, value);
  else
    snprintf(room, sizeof room, "%.*f", size >= 999.5 ? 0 : size >= 99.95 ? 1 : size >= 9.995 ? 2 : 3, value);
  snprintf(text, 24, "%*s", width, room);
}

double vector_largest(const float *values, int count) {
  double most = 0;
  for (int i = 0; values && i < count; i++)
    if (fabs((double)values[i]) > most) most = fabs((double)values[i]);
  return most;
}

void draw_absent(struct cells *cells, struct area area, const char *what, const char *remedy) {
  int row = area.rows / 2 - 1;
  int what_at = (area.columns - text_columns(what)) / 2, remedy_at = (area.columns - text_columns(remedy)) / 2;
  cells_put(cells, area, row < 0 ? 0 : row, what_at < 0 ? 0 : what_at, -1, ROLE_TEXT, what);
  cells_put(cells, area, row < 0 ? 1 : row + 1, remedy_at < 0 ? 0 : remedy_at, -1, ROLE_DIM, remedy);
}

void window_of(int count, int room, int at, int *first, int *last) {
  if (room < 0) room = 0;
  *first = at - room / 2;
  if (*first > count - room) *first = count - room;
  if (*first < 0) *first = 0;
  *last = *first + room - 1 < count - 1 ? *first + room - 1 : count - 1;
}

void draw_weight(struct cells *cells, struct area area, int row, int column, double weight) {
  cells_heat(cells, area, row, column, 1, weight);
  const struct cell *cell = cells_at(cells, area.row + row, area.column + column);
  if (row >= area.rows || column >= area.columns || !cell || strcmp(cell->text, " ") != 0) return;
  cells_put(cells, area, row, column, 1, (enum role)cell->role, cells->ascii ? "," : "·");
}

const char *root_sign(const struct cells *cells) { return cells->ascii ? "sqrt " : "√"; }

const float *head_part(const struct look_run *run, const float *row, int head) {
  if (!row || run->head_dim <= 0 || head < 0 || head >= run->n_head) return NULL;
  return row + (size_t)head * (size_t)run->head_dim;
}

bool reached(const struct state *state, kvs_phase phase) { return state->moment >= phase; }
