/* view_sql.c: the answer to the last question in SQL, the error in it, or questions to begin with. */
#include <stdio.h>
#include <string.h>

#include "tui/sql_panel.h"
#include "tui/view.h"

#define GAP 2 /* between columns */

/* ---- long lines ----------------------------------------------------------------------------------------------------- */

/* Bytes of the character at `text`, copied into `character` [8]. */
static int one_character(const char *text, char *character) {
  int length = 1;
  while (length < 7 && ((unsigned char)text[length] & 0xC0) == 0x80) length++;
  snprintf(character, 8, "%.*s", length, text);
  return length;
}

/* Text over as many rows as it takes, at most `most`, from column 1 on; a caret under byte `caret` unless it is −1. Returns
 * the rows used. */
static int draw_wrapped(struct cells *cells, struct area area, int row, int most, enum role role, const char *text,
                        int caret) {
  int used = 0, column = 1, caret_at = -1;
  for (int at = 0; used < most;) {
    char character[8];
    int length = one_character(text + at, character), width = text_columns(character);
    if (text[at] && column + width < area.columns) {
      if (caret >= at && caret < at + length) caret_at = column;
      column += cells_put(cells, area, row + used, column, -1, role, character);
      at += length;
      continue;
    }
    if (!text[at] && caret == at) caret_at = column;
    used++;
    if (caret_at >= 0 && used < most) cells_put(cells, area, row + used++, caret_at, 1, ROLE_ERROR, "^");
    if (!text[at] || area.columns < 4) break;
    caret_at = -1;
    column = 1;
  }
  return used;
}

/* ---- questions to begin with ---------------------------------------------------------------------------------------- */

static void draw_examples(struct cells *cells, struct area area, const struct state *s) {
  char query[LINE_SIZE];
  int under = area.rows > 12 ? 4 : 3, first, last;
  int row = area.rows > 8 ? 1 : 0;
  if (row)
    cells_put(cells, area, 0, 1, -1, ROLE_DIM,
              "; asks in SQL. Or take one of these, about the run, step, layer and head of the dials:");
  window_of(SQL_EXAMPLES, area.rows - row - under, s->sql_row, &first, &last);
  for (int i = first; i <= last; i++, row++) {
    bool here = i == s->sql_row;
    cells_put(cells, area, row, 1, -1, here ? ROLE_HERE : ROLE_DIM, here ? "▸" : " ");
    cells_put(cells, area, row, 3, -1, here ? ROLE_HERE : ROLE_TEXT, sql_example_title(i));
  }
  sql_example_query(s->sql_row, s->run, s->step, s->layer, s->head, query, sizeof query);
  if (area.rows > 12) row++;
  draw_wrapped(cells, area, row, area.rows - row, ROLE_DIM, query, -1);
}

/* ---- an error ------------------------------------------------------------------------------------------------------- */

static void draw_error(struct cells *cells, struct area area, const struct sql_panel *p) {
  int row = p->query ? draw_wrapped(cells, area, 0, area.rows - 3, ROLE_TEXT, p->query, p->error_offset) : 0;
  row += draw_wrapped(cells, area, row, area.rows - row - 1, ROLE_ERROR, p->error, -1);
  if (area.rows > row + 2) row++;
  cells_put(cells, area, row, 1, -1, ROLE_DIM,
            "; and Up bring the question back to be mended; ; and Enter show examples");
}

/* ---- rows ----------------------------------------------------------------------------------------------------------- */

/* The width of a column with its sorting mark. */
static int width_of(const struct sql_panel *p, const struct state *s, int column) {
  bool sorted = s->sql_sort == column + 1 || s->sql_sort == -column - 1;
  int name = text_columns(p->column[column].name) + 2, width = p->column[column].width;
  if (!sorted || width >= name) return width;
  return name < SQL_WIDTH_MOST ? name : SQL_WIDTH_MOST;
}

/* The first column to draw so that the chosen one is seen whole. */
static int first_column(const struct sql_panel *p, const struct state *s, int room) {
  int first = s->sql_column, used = width_of(p, s, first);
  while (first > 0 && used + GAP + width_of(p, s, first - 1) <= room) used += GAP + width_of(p, s, --first);
  return first;
}

/* A text in a column's field: numbers at its right, cut with `…`. */
static void put_field(struct cells *cells, struct area area, int row, int column, int width, bool right, enum role role,
                      const char *text) {
  int indent = right ? width - text_columns(text) : 0;
  if (indent > 0)
    cells_put(cells, area, row, column + indent, width - indent, role, text);
  else
    cells_put_field(cells, area, row, column, width, role, text);
}

static void draw_name(struct cells *cells, struct area area, const struct sql_panel *p, const struct state *s,
                      int column, int at, int width) {
  const char *mark = s->sql_sort == column + 1 ? " ↑" : s->sql_sort == -column - 1 ? " ↓" : "";
  int room = width - text_columns(mark);
  char name[SQL_WORD + 8];
  bool fits = text_columns(p->column[column].name) <= room;
  snprintf(name, sizeof name, "%s%s", p->column[column].name, fits ? mark : "");
  put_field(cells, area, 1, at, width, p->column[column].number, ROLE_TITLE, name);
  if (!fits) cells_put_field(cells, area, 1, at, room, ROLE_TITLE, name);
  if (!fits) cells_put(cells, area, 1, at + room, -1, ROLE_TITLE, mark);
  if (column == s->sql_column) cells_mark(cells, area, 1, at, width, ATTR_REVERSE);
}

static void draw_cell(struct cells *cells, struct area area, const struct sql_panel *p, int row, int column, int line,
                      int at, int width, bool here) {
  char text[4 * SQL_WIDTH_MOST + 8];
  const struct sql_value *value = sql_panel_value(p, row, column);
  sql_panel_text(p, value, text, sizeof text);
  enum role role = value->type == SQL_NULL || value->type == SQL_BLOB ? ROLE_DIM : here ? ROLE_HERE : ROLE_TEXT;
  put_field(cells, area, line, at, width, p->column[column].number, role, text);
}

static void draw_table(struct cells *cells, struct area area, const struct sql_panel *p, const struct state *s) {
  int room = area.columns - 4, first, last, begin = first_column(p, s, room);
  window_of(p->rows, area.rows - 3, s->sql_row, &first, &last);
  if (first <= s->sql_row && s->sql_row <= last) cells_put(cells, area, 2 + s->sql_row - first, 1, 1, ROLE_HERE, "▸");
  for (int c = begin, at = 3; c < p->columns && at < area.columns - 1; c++) {
    int width = width_of(p, s, c);
    if (at + width > area.columns - 1) width = area.columns - 1 - at; /* cut at the edge, to be seen that it goes on */
    draw_name(cells, area, p, s, c, at, width);
    for (int r = first; r <= last; r++) draw_cell(cells, area, p, r, c, 2 + r - first, at, width, r == s->sql_row);
    at += width + GAP;
  }
}

static void time_text(double seconds, char text[24]) {
  if (seconds < 0.01)
    snprintf(text, 24, "%.1f ms", seconds * 1000);
  else if (seconds < 1)
    snprintf(text, 24, "%.0f ms", seconds * 1000);
  else
    snprintf(text, 24, "%.1f s", seconds);
}

static void draw_foot(struct cells *cells, struct area area, const struct sql_panel *p, const struct state *s) {
  static const char *const endings[] = {[SQL_COMPLETE] = "",
                                        [SQL_AT_MOST] = "; there are more, LIMIT and WHERE choose",
                                        [SQL_FULL] = "; no more fit in memory",
                                        [SQL_STOPPED] = "; stopped, there may be more"};
  char took[24], place[48] = "no row";
  time_text(p->seconds, took);
  if (p->rows) snprintf(place, sizeof place, "row %d of %d", s->sql_row + 1, p->rows);
  int row = area.rows - 1;
  int used = cells_putf(cells, area, row, 1, -1, ROLE_DIM, "%s, column %d of %d, %s", place, s->sql_column + 1,
                        p->columns, took);
  cells_put(cells, area, row, 1 + used, -1, ROLE_WRONG, endings[p->ending]);
}

static void draw_answer(struct cells *cells, struct area area, const struct sql_panel *p, const struct state *s) {
  cells_put_field(cells, area, 0, 1, area.columns - 2, ROLE_DIM, p->query);
  if (p->columns) draw_table(cells, area, p, s);
  if (p->rows == 0) {
    const char *what = p->ending == SQL_STOPPED ? "it was stopped before the first row" : "no row answers this";
    draw_absent(cells, area, what, p->columns ? "; and Up bring the question back" : "the statement gives no columns");
  }
  draw_foot(cells, area, p, s);
}

static void draw(struct cells *cells, struct area area, const struct state *s, struct look *look) {
  (void)look;
  const struct sql_panel *p = s->sql;
  if (!p || p->outcome == SQL_NOTHING_ASKED)
    draw_examples(cells, area, s);
  else if (p->outcome == SQL_FAILED)
    draw_error(cells, area, p);
  else
    draw_answer(cells, area, p, s);
}

const struct view view_sql = {"SQL", "the trace answers; ; asks", draw};
