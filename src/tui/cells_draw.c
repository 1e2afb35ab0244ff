/* cells_draw.c: bars, small graphs, heat cells and lines; each can be read without its colour. */
#include "tui/cells.h"

#include <math.h>
#include <string.h>

/* 0..1; NaN and below are 0. */
static double clamp(double fraction) { return !(fraction > 0) ? 0 : fraction > 1 ? 1 : fraction; }

/* How many columns really lie between `column` and the area's or the width's end: nobody draws far out of sight. */
static int room(struct area area, int column, int width) {
  long long most = (long long)area.columns - column;
  if (width >= 0 && width < most) most = width;
  return most < 0 ? 0 : most > 1 << 20 ? 1 << 20 : (int)most;
}

void cells_bar(struct cells *cells, struct area area, int row, int column, int width, enum role role, double fraction) {
  static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  if (width < 0) width = room(area, column, width);
  double units = floor(clamp(fraction) * width * 8 + 0.5);
  int full = (int)(units / 8), part = (int)(units - 8.0 * full);
  if (cells->ascii) {
    full += part >= 4;
    part = 0;
  }
  int drawn = room(area, column, full);
  for (int i = 0; i < drawn; i++) cells_put(cells, area, row, column + i, 1, role, cells->ascii ? "#" : "█");
  if (part && drawn == full) cells_put(cells, area, row, column + full, 1, role, eighths[part]);
}

/* The value farthest from 0 among those that share a column. NaN wins: it must not be hidden. */
static float largest(const float *values, int first, int end) {
  float most = values[first];
  for (int i = first + 1; i < end && !isnan(most); i++)
    if (isnan(values[i]) || fabsf(values[i]) > fabsf(most)) most = values[i];
  return most;
}

void cells_graph(struct cells *cells, struct area area, int row, int column, int width, enum role role,
                 const float *values, int count, double scale) {
  static const char *const heights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  int columns = width < 0 ? room(area, column, width) : width;
  if (count < columns) columns = count;
  if (columns <= 0) return;
  int drawn = room(area, column, columns);
  for (int i = 0; i < drawn; i++) {
    int first = (int)((long long)i * count / columns), end = (int)((i + 1LL) * count / columns);
    float value = largest(values, first, end);
    double size = scale > 0 ? clamp(fabs((double)value) / scale) : value != 0 ? 1 : 0;
    enum role shown = value < 0 ? ROLE_NEGATIVE : role;
    if (isnan(value))
      cells_put(cells, area, row, column + i, 1, ROLE_WRONG, "?");
    else if (cells->ascii)
      cells_putf(cells, area, row, column + i, 1, shown, "%d", (int)(size * 9 + 0.5));
    else
      cells_put(cells, area, row, column + i, 1, shown, heights[(int)(size * 7 + 0.5)]);
  }
}

void cells_heat(struct cells *cells, struct area area, int row, int column, int width, double fraction) {
  static const char *const shades[] = {" ", "░", "▒", "▓", "█"};
  static const char *const ascii[] = {" ", ".", ":", "+", "#", "@"};
  double size = clamp(fraction);
  const char *shade = cells->ascii ? ascii[(int)(size * 5 + 0.5)] : shades[(int)(size * 4 + 0.5)];
  enum role role = (enum role)(ROLE_RAMP + (int)(size * (RAMP_STEPS - 1) + 0.5));
  if (isnan(fraction)) {
    shade = "?";
    role = ROLE_WRONG;
  }
  int drawn = room(area, column, width);
  for (int i = 0; i < drawn; i++) cells_put(cells, area, row, column + i, 1, role, shade);
}

/* ---- lines ---------------------------------------------------------------------------------------------------------- */

enum arm { UP = 1, DOWN = 2, LEFT = 4, RIGHT = 8 };

static const char *const lines[16] = {
    [LEFT] = "─",
    [RIGHT] = "─",
    [LEFT | RIGHT] = "─",
    [UP] = "│",
    [DOWN] = "│",
    [UP | DOWN] = "│",
    [DOWN | RIGHT] = "┌",
    [DOWN | LEFT] = "┐",
    [UP | RIGHT] = "└",
    [UP | LEFT] = "┘",
    [UP | DOWN | RIGHT] = "├",
    [UP | DOWN | LEFT] = "┤",
    [LEFT | RIGHT | DOWN] = "┬",
    [LEFT | RIGHT | UP] = "┴",
    [UP | DOWN | LEFT | RIGHT] = "┼",
};

/* The arms of the line that stands at a place of the area; 0 when there is none. ASCII's lines are whole lines or crossings. */
static unsigned arms(const struct cells *cells, struct area area, int row, int column) {
  const struct cell *cell = cells_at(cells, area.row + row, area.column + column);
  if (!cell || cell->role != ROLE_FRAME) return 0;
  if (cells->ascii) {
    if (strcmp(cell->text, "-") == 0) return LEFT | RIGHT;
    if (strcmp(cell->text, "|") == 0) return UP | DOWN;
    return strcmp(cell->text, "+") == 0 ? UP | DOWN | LEFT | RIGHT : 0;
  }
  for (unsigned i = 15; i > 0; i--) {
    if (!lines[i] || strcmp(cell->text, lines[i]) != 0) continue;
    if (i == LEFT || i == RIGHT) return LEFT | RIGHT;
    return i == UP || i == DOWN ? UP | DOWN : i;
  }
  return 0;
}

/* Adds a line's arms to those of the line that stands there. */
static void line_at(struct cells *cells, struct area area, int row, int column, unsigned own) {
  unsigned all = own | arms(cells, area, row, column);
  cells_put(cells, area, row, column, 1, ROLE_FRAME, lines[all]);
}

/* Joins the neighbour of a line's end, when it is a line that crosses the way. */
static void meet(struct cells *cells, struct area area, int row, int column, unsigned arm) {
  unsigned there = arms(cells, area, row, column), across = arm & (LEFT | RIGHT) ? UP | DOWN : LEFT | RIGHT;
  if (!(there & across)) return;
  const struct area whole = cells_area(cells); /* the neighbour lies outside the area */
  cells_put(cells, whole, area.row + row, area.column + column, 1, ROLE_FRAME, lines[there | arm]);
}

void cells_rule(struct cells *cells, struct area area, int row, const char *title) {
  int width = room(area, 0, cells->columns + 1);
  if (row < 0 || row >= area.rows || width == 0) return;
  for (int i = 0; i < width; i++) line_at(cells, area, row, i, LEFT | RIGHT);
  meet(cells, area, row, -1, RIGHT);
  meet(cells, area, row, width, LEFT);
  if (!title || !*title || width < 5) return;
  cells_put(cells, area, row, 1, 1, ROLE_FRAME, " ");
  int used = cells_put(cells, area, row, 2, width - 4, ROLE_TITLE, title);
  cells_put(cells, area, row, 2 + used, 1, ROLE_FRAME, " ");
}

void cells_divider(struct cells *cells, struct area area, int column) {
  int height = area.rows < cells->rows + 1 ? area.rows : cells->rows + 1;
  if (column < 0 || column >= area.columns || height <= 0) return;
  for (int i = 0; i < height; i++) {
    unsigned here = arms(cells, area, i, column), own = UP | DOWN;
    /* A rule at the first or last row of the area is where the divider ends. */
    if (here & (LEFT | RIGHT) && i == 0) own = DOWN;
    if (here & (LEFT | RIGHT) && i == height - 1) own = UP;
    line_at(cells, area, i, column, own);
  }
  meet(cells, area, -1, column, DOWN);
  meet(cells, area, height, column, UP);
}
