/* fault_list.c: draws the table of faults: names to choose from, and what there is to know about the chosen one. */
#include "tui/fault_list.h"

#include <stdio.h>
#include <string.h>

#include "tui/view.h"

#define NAMES 24        /* columns of the list beside the chosen one's words */
#define BESIDE 100      /* columns from which on the two stand beside each other */
#define LABEL 8         /* columns in front of the words */
#define CODE_BESIDE 110 /* columns of words from which on the two lines of code stand beside each other */

/* ---- words over several lines ------------------------------------------------------------------------------------------ */

/* How many bytes go on one line of `width` columns: up to a blank, or all that fit where there is none. */
static size_t line_bytes(const char *text, int width) {
  char line[1024];
  size_t fits = 0, blank = 0, end = 0, length = strnlen(text, sizeof line - 8);
  while (end < length) {
    do end++;
    while (end < length && ((unsigned char)text[end] & 0xC0) == 0x80);
    snprintf(line, sizeof line, "%.*s", (int)end, text);
    if (text_columns(line) > width) return blank ? blank : fits;
    fits = end;
    if (end == length || text[end] == ' ') blank = end;
  }
  return fits;
}

/* Puts the text from `row` on into columns `column` …; returns the row after it. */
static int put_words(struct cells *cells, struct area area, int row, int column, int width, enum role role,
                     const char *text) {
  if (width < 8) width = 8;
  while (*text) {
    size_t bytes = line_bytes(text, width);
    cells_putf(cells, area, row++, column, -1, role, "%.*s", (int)bytes, text);
    text += bytes;
    while (*text == ' ') text++;
  }
  return row;
}

static int put_labelled(struct cells *cells, struct area area, int row, const char *label, enum role role,
                        const char *text) {
  cells_put(cells, area, row, 0, -1, role == ROLE_TEXT ? ROLE_DIM : role, label);
  return put_words(cells, area, row, LABEL, area.columns - LABEL, role, text);
}

/* ---- the chosen one ---------------------------------------------------------------------------------------------------- */

static int put_code(struct cells *cells, struct area area, int row, const kvs_fault *fault) {
  if (area.columns < CODE_BESIDE) {
    row = put_labelled(cells, area, row, "right", ROLE_RIGHT, fault->right_line);
    return put_labelled(cells, area, row, "wrong", ROLE_WRONG, fault->wrong_line);
  }
  int half = area.columns / 2;
  struct area left = {area.row, area.column, area.rows, half - 2};
  struct area right = {area.row, area.column + half, area.rows, area.columns - half};
  int a = put_labelled(cells, left, row, "right", ROLE_RIGHT, fault->right_line);
  int b = put_labelled(cells, right, row, "wrong", ROLE_WRONG, fault->wrong_line);
  return a > b ? a : b;
}

/* What there is to know, with blank lines between if `airy`; returns the lines it takes. */
static int put_fault(struct cells *cells, struct area area, const kvs_fault *fault, bool airy) {
  int row = put_words(cells, area, 0, 0, area.columns, ROLE_TITLE, fault ? fault->name : "none");
  if (!fault)
    return put_words(cells, area, row, 0, area.columns, ROLE_TEXT,
                     "no fault: the same tokens, decoded as they should be");
  row = put_words(cells, area, row, 0, area.columns, ROLE_TEXT, fault->summary) + airy;
  row = put_code(cells, area, row, fault) + airy;
  row = put_labelled(cells, area, row, "effect", ROLE_TEXT, fault->effect) + airy;
  row = put_labelled(cells, area, row, "seen in", ROLE_TEXT, fault->seen);
  if (!fault->fills_context) return row;
  return put_labelled(cells, area, row + airy, "note", ROLE_TEXT,
                      "it shows only at the context's end: the prompt is repeated until the context is nearly full");
}

/* The lines that the longest of them takes, so that the list stays as it is from one to the next. */
static int most_lines(struct cells *cells, struct area area) {
  const struct area unseen = {area.row, area.column, 0, area.columns};
  int most = 0;
  for (int i = 0; kvs_fault_at(i); i++) {
    int lines = put_fault(cells, unseen, kvs_fault_at(i), true);
    if (lines > most) most = lines;
  }
  return most;
}

/* ---- the list ---------------------------------------------------------------------------------------------------------- */

static int count_faults(void) {
  int count = 0;
  while (kvs_fault_at(count)) count++;
  return count;
}

/* One name on each line, the chosen one among them; where there is room, what it is. */
static void put_list(struct cells *cells, struct area area, int chosen) {
  int count = count_faults() + 1, first, last;
  window_of(count, area.rows, chosen, &first, &last);
  for (int i = first; i <= last; i++) {
    const kvs_fault *fault = kvs_fault_at(i - 1);
    const char *mark = i == chosen ? "▸" : (i == first && first > 0) || (i == last && last < count - 1) ? "…" : " ";
    int row = i - first;
    cells_put(cells, area, row, 0, 1, i == chosen ? ROLE_HERE : ROLE_DIM, mark);
    cells_put(cells, area, row, 2, NAMES - 3, i == chosen ? ROLE_HERE : ROLE_TEXT, fault ? fault->name : "none");
    if (area.columns > NAMES + 20)
      cells_put_field(cells, area, row, NAMES, area.columns - NAMES, ROLE_DIM,
                      fault ? fault->summary : "as it should be");
  }
}

void fault_list_draw(struct cells *cells, struct area area, const struct state *s) {
  char title[96];
  snprintf(title, sizeof title, "a fault for the tokens of run %d", s->run);
  cells_rule(cells, area, 0, title);
  const kvs_fault *fault = kvs_fault_at(s->fault - 1);
  struct area body = {area.row + 1, area.column + 1, area.rows - 1, area.columns - 2};
  if (area.columns >= BESIDE) {
    put_list(cells, (struct area){body.row, body.column, body.rows, NAMES}, s->fault);
    put_fault(cells, (struct area){body.row, body.column + NAMES + 2, body.rows, body.columns - NAMES - 2}, fault,
              true);
    return;
  }
  /* The list above; what is known below, all of it if it can be. */
  int known = most_lines(cells, body), least = body.rows / 3, list = body.rows - 1 - known;
  if (list < least) list = least;
  if (list > count_faults() + 1) list = count_faults() + 1;
  bool airy = list + 1 + known <= body.rows;
  put_list(cells, area_rows(body, 0, list), s->fault);
  cells_rule(cells, area_rows(area, 1 + list, area.rows - 1 - list), 0, "");
  struct area words = area_rows(body, list + 1, body.rows - list - 1);
  if (put_fault(cells, words, fault, airy) <= words.rows) return;
  cells_put_field(cells, words, words.rows - 1, 0, words.columns, ROLE_DIM, "");
  cells_putf(cells, words, words.rows - 1, 0, -1, ROLE_DIM, "… the rest: kvstep faults %s", fault->name);
}
