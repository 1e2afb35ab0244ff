/* help.c: every key and what it does, from the one table of actions. */
#include "tui/help.h"

#include <stdio.h>
#include <string.h>

#include "tui/action.h"

#define AROUND_HELP 4  /* rows: title, rule, message, status */
#define HELP_NAMES 110 /* columns from which on the names of the actions are shown, for scripts */
#define HELP_TEXT 22   /* where the words begin */

/* The help of one action from `line` on; returns its lines. cells NULL: they are only counted. */
static int draw_row(struct cells *cells, struct area area, int line, const struct action_row *row) {
  bool named = area.columns >= HELP_NAMES;
  int width = area.columns - HELP_TEXT - (named ? 20 : 1), lines = 0;
  if (width < 20) width = 20;
  if (cells) cells_put(cells, area, line, 3, 18, ROLE_KEY, row->keys);
  if (cells && named) cells_put_right(cells, area, line, area.columns - 1, -1, ROLE_DIM, row->name);
  for (const char *text = row->help; *text; lines++) {
    int bytes = text_line(text, width);
    if (cells) cells_putf(cells, area, line + lines, HELP_TEXT, -1, ROLE_TEXT, "%.*s", bytes, text);
    text += bytes;
    while (*text == ' ') text++;
  }
  return lines;
}

/* The help, from the one table, of which the first `top` lines are out of sight; returns how many lines it has. */
static int draw_lines(struct cells *cells, struct area area, int top) {
  int line = 0;
  const char *group = "";
  for (int a = ACTION_NONE + 1; a < ACTION_COUNT; a++) {
    const struct action_row *row = action_row((enum action)a);
    if (strcmp(group, row->group) != 0) {
      group = row->group;
      if (line) line++;
      if (cells) cells_put(cells, area, line - top, 1, -1, ROLE_TITLE, group);
      line++;
    }
    line += draw_row(cells, area, line - top, row);
  }
  return line;
}

int help_last(int rows, int columns) {
  int lines = draw_lines(NULL, (struct area){0, 0, rows, columns}, 0), room = rows - AROUND_HELP;
  return lines > room ? lines - room : 0;
}

void help_draw(struct cells *cells, struct area area, int top) {
  struct area body = area_rows(area, 1, area.rows - 3);
  int last = help_last(area.rows, area.columns); /* the screen may have grown since */
  if (top > last) top = last;
  cells_rule(cells, body, 0, "help: every key");
  draw_lines(cells, area_rows(body, 1, body.rows - 1), top);
  char more[32];
  snprintf(more, sizeof more, "↓ %d more", last - top);
  if (top < last) cells_put_right(cells, area, area.rows - 2, area.columns - 1, -1, ROLE_DIM, more);
}
