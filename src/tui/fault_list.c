/* fault_list.c: draws the table of faults: names to choose from, and what there is to know about the chosen one. */
#include "tui/fault_list.h"

#include <stdio.h>
#include <string.h>

#include "tui/view.h"

#define NAMES 24        /* columns of a name: mark, name, blanks */
#define BESIDE 100      /* columns from which on names and words stand beside each other */
#define LABEL 8         /* columns in front of the words */
#define CODE_BESIDE 110 /* columns of words from which on the two lines of code stand beside each other */

/* ---- words over several lines ------------------------------------------------------------------------------------------ */

/* Puts the text from `row` on into columns `column` …; returns the row after it. */
static int put_words(struct cells *cells, struct area area, int row, int column, int width, enum role role,
                     const char *text) {
  if (width < 8) width = 8;
  while (*text) {
    int bytes = text_line(text, width);
    cells_putf(cells, area, row++, column, -1, role, "%.*s", bytes, text);
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

/* The lines that the longest of them takes at least, so that the list stays as it is from one to the next. */
static int most_lines(struct cells *cells, struct area area) {
  const struct area unseen = {area.row, area.column, 0, area.columns};
  int most = 0;
  for (int i = 0; kvs_fault_at(i); i++) {
    int lines = put_fault(cells, unseen, kvs_fault_at(i), false);
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

/* Where what stands. The names run down one column after the other, so that all are seen at once wherever they fit; where they do not,
 * they come by pages, which stay as they are while the choice moves in them. */
struct layout {
  bool beside;       /* the words about the chosen one stand beside the names, not below them */
  int across, lines; /* columns of names, and how many names stand in one */
  int room;          /* lines below the names, and below the rule under them */
};

static struct layout layout_of(struct cells *cells, struct area body) {
  int count = count_faults() + 1;
  struct layout l = {.beside = body.columns + 2 >= BESIDE && body.rows >= count, .across = 1, .lines = count};
  if (l.beside) return l;
  int most = body.rows - 1 - most_lines(cells, body), least = body.rows / 3;
  l.across = body.columns / NAMES > 0 ? body.columns / NAMES : 1;
  l.lines = (count + l.across - 1) / l.across;
  if (most < least) most = least;
  if (l.lines > most) l.lines = most > 0 ? most : 1;
  l.room = body.rows - 1 - l.lines;
  return l;
}

/* The body of the list in an area below the title: a column free on both sides, and the rule. */
static struct area body_of(struct area area) {
  return (struct area){area.row + 1, area.column + 1, area.rows - 1, area.columns - 2};
}

int fault_list_stride(int rows, int columns) {
  struct cells unseen = {0};
  struct layout l = layout_of(&unseen, body_of((struct area){0, 0, rows - 3, columns})); /* title, message, status */
  return l.across > 1 ? l.lines : 0;
}

static void put_names(struct cells *cells, struct area area, int first, int last, int lines, int chosen) {
  for (int i = first; i <= last; i++) {
    const kvs_fault *fault = kvs_fault_at(i - 1);
    int row = (i - first) % lines, column = (i - first) / lines * NAMES;
    enum role role = i == chosen ? ROLE_HERE : ROLE_TEXT;
    if (i == chosen) cells_put(cells, area, row, column, 1, role, "▸");
    cells_put(cells, area, row, column + 2, NAMES - 3, role, fault ? fault->name : "none");
  }
}

/* The rule under the names: how many of them are out of sight, and where. */
static void put_unseen(struct cells *cells, struct area area, int row, int before, int after) {
  char words[64] = "";
  int used = 0;
  if (before) used = snprintf(words, sizeof words, "↑ %d before", before);
  if (after) snprintf(words + used, sizeof words - (size_t)used, "%s↓ %d more", used ? ", " : "", after);
  cells_rule(cells, area_rows(area, row, 1), 0, words);
}

static void put_below(struct cells *cells, struct area area, struct layout l, const struct state *s,
                      const kvs_fault *fault) {
  struct area body = body_of(area), words = area_rows(body, l.lines + 1, l.room);
  int count = count_faults() + 1, page = l.lines * l.across, first = s->fault / page * page;
  int last = first + page < count ? first + page - 1 : count - 1;
  put_names(cells, body, first, last, l.lines, s->fault);
  put_unseen(cells, area, 1 + l.lines, first, count - 1 - last);
  bool airy = put_fault(cells, area_rows(words, 0, 0), fault, true) <= words.rows;
  if (put_fault(cells, words, fault, airy) <= words.rows) return;
  cells_put_field(cells, words, words.rows - 1, 0, words.columns, ROLE_DIM, "");
  cells_putf(cells, words, words.rows - 1, 0, -1, ROLE_DIM, "… the rest: kvstep faults %s", fault->name);
}

void fault_list_draw(struct cells *cells, struct area area, const struct state *s) {
  char title[96];
  snprintf(title, sizeof title, "a fault for the tokens of run %d", s->run);
  cells_rule(cells, area, 0, title);
  const kvs_fault *fault = kvs_fault_at(s->fault - 1);
  struct area body = body_of(area);
  struct layout l = layout_of(cells, body);
  if (!l.beside) {
    put_below(cells, area, l, s, fault);
    return;
  }
  put_names(cells, body, 0, l.lines - 1, l.lines, s->fault);
  put_fault(cells, area_columns(body, NAMES + 2, body.columns - NAMES - 2), fault, true);
}
