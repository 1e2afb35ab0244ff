/* view_sql.c: the answer to the last question in SQL, the error in it, or questions to begin with. */
#include <stdio.h>
#include <string.h>

#include "tui/sql_panel.h"
#include "tui/view.h"

#define GAP 2 /* between columns */

/* ---- long lines ----------------------------------------------------------------------------------------------------- */

/* Bytes of `text` that go into a line of `columns`, with the blank that ends it. */
static int line_length(const char *text, int columns) {
  int length = text_line(text, columns);
  return text[length] == ' ' ? length + 1 : length;
}

/* Text over as many rows as it takes, at most `most`, from column 1 on; a caret under byte `caret` unless it is −1. Returns
 * the rows used. */
static int draw_wrapped(struct cells *cells, struct area area, int row, int most, enum role role, const char *text,
                        int caret) {
  int used = 0;
  for (int length; used < most; text += length, caret -= length) {
    char line[LINE_SIZE];
    length = line_length(text, area.columns - 2);
    snprintf(line, sizeof line, "%.*s", length, text);
    cells_put(cells, area, row + used++, 1, area.columns - 2, role, line);
    bool here = caret >= 0 && (caret < length || (caret == length && !text[length]));
    if (here && used < most && caret < LINE_SIZE) {
      line[caret] = '\0';
      cells_put(cells, area, row + used++, 1 + text_columns(line), 1, ROLE_ERROR, "^");
    }
    if (!text[length]) break;
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
              area.columns < 66 ? "; asks in SQL. Or take one, about where the dials are:"
                                : "; asks in SQL. Or take one of these, about where the dials are:");
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

/* The query with the caret; where it is too long for `most` rows, the lines up to the caret. Returns the rows used. */
static int draw_query(struct cells *cells, struct area area, int most, const char *query, int caret) {
  int width = area.columns - 2, line = 0, skipped = 0;
  for (int at = 0, length; caret > 0 && (length = line_length(query + at, width)) && at + length <= caret; at += length)
    line += query[at + length] != '\0';
  for (; line - skipped + 2 > most && skipped < line; skipped++) {
    int length = line_length(query, width);
    query += length;
    caret -= length;
  }
  if (skipped) cells_put(cells, area, 0, 0, 1, ROLE_DIM, "…");
  return draw_wrapped(cells, area, 0, most, ROLE_TEXT, query, caret);
}

static void draw_error(struct cells *cells, struct area area, const struct sql_panel *p) {
  int row = p->query ? draw_query(cells, area, area.rows - 3, p->query, p->error_offset) : 0;
  row += draw_wrapped(cells, area, row, area.rows - row - 1, ROLE_ERROR, p->error, -1);
  if (area.rows > row + 2) row++;
  cells_put(cells, area, row, 1, -1, ROLE_DIM, "; and Up bring it back to mend it, ; and Enter examples");
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

/* A column's name, and behind it which way the rows are sorted by it. */
static void draw_name(struct cells *cells, struct area area, const struct sql_panel *p, const struct state *s,
                      int column, int at, int width) {
  const char *mark = s->sql_sort == column + 1 ? "↑" : s->sql_sort == -column - 1 ? "↓" : "";
  int room = *mark ? width - 2 : width;
  put_field(cells, area, 1, at, room, p->column[column].number, ROLE_TITLE, p->column[column].name);
  cells_put(cells, area, 1, at + room + 1, 1, ROLE_TITLE, mark);
  if (column == s->sql_column) cells_mark(cells, area, 1, at, width, ATTR_REVERSE);
}

static void draw_cell(struct cells *cells, struct area area, const struct sql_panel *p, int row, int column, int line,
                      int at, int width, bool here) {
  char text[4 * SQL_WIDTH_MOST + 8];
  enum sql_type type = sql_panel_value(p, row, column)->type;
  sql_panel_text(p, row, column, text, sizeof text);
  enum role role = type == SQL_NULL || type == SQL_BLOB ? ROLE_DIM : here ? ROLE_HERE : ROLE_TEXT;
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
  char took[24], place[64] = "no row";
  time_text(p->seconds, took);
  if (p->rows)
    snprintf(place, sizeof place, "row %d of %d, column %d of %d", s->sql_row + 1, p->rows, s->sql_column + 1,
             p->columns);
  int row = area.rows - 1, used = cells_putf(cells, area, row, 1, -1, ROLE_DIM, "%s, %s", place, took);
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

const struct view view_sql = {"SQL", "the trace answers questions", draw};
