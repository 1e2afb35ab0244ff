/* screen.c: the whole screen: title, tokens, the rule, the view, what is being typed, and what the keys do. */
#include <stdio.h>
#include <string.h>

#include "tui/sql_panel.h"
#include "tui/view.h"

#define LEAST_ROWS 15
#define LEAST_COLUMNS 60

/* ---- the lines that are always there ------------------------------------------------------------------------------ */

static void draw_title(struct cells *cells, struct area area, const struct state *s, const struct look_run *run,
                       const char *trace_name) {
  int at = cells_put(cells, area, 0, 1, -1, ROLE_TITLE, "kvstep");
  at += 2 + cells_putf(cells, area, 0, at + 3, area.columns / 3, ROLE_TEXT, "%s", run ? run->model : trace_name);
  char dials[160];
  bool fault = run && *run->fault && strcmp(run->fault, "none") != 0;
  snprintf(dials, sizeof dials, "run %d%s%s  step %d/%d  layer %d/%d  head %d/%d ", s->run, fault ? " " : " correct",
           fault ? run->fault : "", s->step, run ? run->steps - 1 : 0, s->layer, run ? run->n_layer - 1 : 0, s->head,
           run ? run->n_head - 1 : 0);
  cells_put_right(cells, area, 0, area.columns, area.columns - at - 4, fault ? ROLE_WRONG : ROLE_TEXT, dials);
}

/* Tokens around the current one, each with its step; the current one stands out. */
static void draw_tokens(struct cells *cells, struct area area, const struct state *s, struct look *look, int steps) {
  const int field = 12;
  int count = (area.columns - 1) / field, first, last;
  window_of(steps, count, s->step, &first, &last);
  for (int step = first; step <= last; step++) {
    const struct look_step *t = look_step(look, s->run, step);
    if (!t) continue;
    char number[16], text[80];
    snprintf(number, sizeof number, "%d", step);
    snprintf(text, sizeof text, "%s", t->text);
    int at = 1 + (step - first) * field, used = cells_put(cells, area, 1, at, 5, ROLE_DIM, number);
    enum role role = step == s->step ? ROLE_HERE : t->mode == KVS_PREFILL ? ROLE_DIM : ROLE_TOKEN;
    cells_put(cells, area, 1, at + used + 1, field - used - 2, role, text);
  }
}

/* The rule in words: what t is, or under a fault what was used instead. Copied before the next look. */
static void draw_rule_words(struct cells *cells, struct area area, const struct state *s, const struct look_step *t) {
  int P = t->length_before;
  bool right = t->position == P;
  int at = 1 + cells_put(cells, area, 2, 1, -1, ROLE_TITLE, "rule") + 2;
  if (P == LOOK_NONE) {
    cells_put(cells, area, 2, at, -1, ROLE_DIM, "the trace does not say how long the cache was");
  } else if (right) {
    cells_putf(cells, area, 2, at, -1, ROLE_RIGHT, "t = cache length read before the append = %d%s", P,
               reached(s, KVS_APPEND) ? "" : "   the cache still holds as many rows");
    if (reached(s, KVS_APPEND)) {
      char lengths[48];
      snprintf(lengths, sizeof lengths, "append: length %d → %d ", P, t->length_after);
      cells_put_right(cells, area, 2, area.columns, 40, ROLE_NEW, lengths);
    }
  } else if (t->position == LOOK_NONE) {
    cells_putf(cells, area, 2, at, -1, ROLE_WRONG, "WRONG: no position was added; wpe[%d] is right", P);
  } else {
    const char *how = t->position == P + 1 ? ", read after the append" : t->position == 0 ? ", started again at 0" : "";
    cells_putf(cells, area, 2, at, -1, ROLE_WRONG, "WRONG: t = %d%s: wpe[%d] used, wpe[%d] right", t->position, how,
               t->position, P);
  }
}

/* The cache as a row of slots: filled, the one that is free or has just been filled, and below them where t points. */
static void draw_slots(struct cells *cells, struct area area, const struct state *s, const struct look_step *t) {
  int P = t->length_before, label = 7, room = area.columns - label - 12;
  if (P == LOOK_NONE || room < 4) return;
  int first = P + 2 > room ? P + 2 - room : 0;
  bool appended = reached(s, KVS_APPEND);
  cells_put(cells, area, 3, 1, -1, ROLE_DIM, "cache");
  if (first > 0) cells_put(cells, area, 3, label - 1, -1, ROLE_DIM, "…");
  for (int slot = first; slot <= P + 1; slot++) {
    int at = label + slot - first;
    if (slot < P)
      cells_put(cells, area, 3, at, 1, ROLE_BAR, "■");
    else if (slot == P)
      cells_put(cells, area, 3, at, 1, appended ? ROLE_NEW : ROLE_FREE, appended ? "■" : "□");
    else
      cells_put(cells, area, 3, at, 1, ROLE_DIM, "·");
  }
  cells_putf(cells, area, 3, label + P + 2 - first + 1, -1, ROLE_DIM, appended ? "slot %d new" : "slot %d free", P);
  if (t->position == LOOK_NONE) return;
  int at = t->position >= first ? label + t->position - first : label - 1;
  enum role role = t->position == P ? ROLE_RIGHT : ROLE_WRONG;
  char pointer[32];
  snprintf(pointer, sizeof pointer, "t = %d", t->position);
  cells_put(cells, area, 4, at, 1, role, "↑");
  cells_put(cells, area, 4, at + 2 + text_columns(pointer) < area.columns ? at + 2 : at - 1 - text_columns(pointer), -1,
            role, pointer);
}

/* ---- the lines at the bottom ------------------------------------------------------------------------------------------ */

/* The line that is being typed, scrolled so far that the cursor is seen; the cursor's place stands reversed. */
static void draw_input(struct cells *cells, struct area area, const struct state *s, const char *mark) {
  int row = area.rows - 2, start = 0;
  char until[LINE_SIZE];
  for (;;) {
    snprintf(until, sizeof until, "%.*s", s->cursor - start, s->line + start);
    if (text_columns(until) <= area.columns - 2) break;
    do start++;
    while (((unsigned char)s->line[start] & 0xC0) == 0x80);
  }
  int at = 1 + text_columns(until);
  cells_put(cells, area, row, 0, -1, ROLE_INPUT, start ? "…" : mark);
  int used = cells_put(cells, area, row, 1, -1, ROLE_INPUT, s->line + start);
  if (at >= 1 + used) cells_put(cells, area, row, at, 1, ROLE_INPUT, " ");
  cells_mark(cells, area, row, at, 1, ATTR_REVERSE);
}

static void draw_message(struct cells *cells, struct area area, const struct state *s) {
  int row = area.rows - 2;
  if (s->mode == INPUT_SEARCH || s->mode == INPUT_COMMAND || s->mode == INPUT_SQL)
    draw_input(cells, area, s, s->mode == INPUT_SEARCH ? "/" : s->mode == INPUT_COMMAND ? ":" : ";");
  else if (*s->message)
    cells_put(cells, area, row, 1, -1, s->message_is_error ? ROLE_ERROR : ROLE_MESSAGE, s->message);
}

/* While a question is typed its line is taken: what is said, such as the words to choose from, stands above it. */
static void draw_said_above(struct cells *cells, struct area area, const struct state *s) {
  if (s->mode != INPUT_SQL || !*s->message) return;
  cells_put_field(cells, area, area.rows - 3, 0, area.columns, ROLE_MESSAGE, "");
  cells_put_field(cells, area, area.rows - 3, 1, area.columns - 2, ROLE_MESSAGE, s->message);
}

/* What some keys do, in words for the status line. */
struct hint {
  enum action actions[2];
  const char *words;
};

#define HINTS_END                                                                                                      \
  { {ACTION_NONE}, NULL }
static const struct hint hints_steps[] = {{{ACTION_NEXT_MOMENT}, "next moment"},
                                          {{ACTION_PREVIOUS_MOMENT}, "back"},
                                          {{ACTION_PREVIOUS_STEP, ACTION_NEXT_STEP}, "token"},
                                          {{ACTION_PREVIOUS_LAYER, ACTION_NEXT_LAYER}, "layer"},
                                          {{ACTION_PREVIOUS_HEAD, ACTION_NEXT_HEAD}, "head"},
                                          {{ACTION_NEXT_RUN}, "run"},
                                          {{ACTION_VIEW_NEXT}, "view"},
                                          {{ACTION_HELP}, "help"},
                                          {{ACTION_QUIT}, "quit"},
                                          HINTS_END};
static const struct hint hints_line[] = {{{ACTION_ACCEPT}, "take it"}, {{ACTION_CANCEL}, "leave"}, HINTS_END};
static const struct hint hints_help[] = {
    {{ACTION_ROW_DOWN, ACTION_ROW_UP}, "scroll"}, {{ACTION_CANCEL}, "close"}, HINTS_END};
static const struct hint hints_question[] = {{{ACTION_ACCEPT}, "ask"},
                                             {{ACTION_VIEW_NEXT}, "complete"},
                                             {{ACTION_ROW_UP, ACTION_ROW_DOWN}, "earlier"},
                                             {{ACTION_CANCEL}, "leave"},
                                             HINTS_END};
static const struct hint hints_answer[] = {{{ACTION_ROW_DOWN, ACTION_ROW_UP}, "row"},
                                           {{ACTION_PREVIOUS_STEP, ACTION_NEXT_STEP}, "column"},
                                           {{ACTION_SORT}, "sort"},
                                           {{ACTION_ACCEPT}, "go there"},
                                           {{ACTION_SQL}, "ask"},
                                           {{ACTION_VIEW_NEXT}, "view"},
                                           {{ACTION_HELP}, "help"},
                                           {{ACTION_QUIT}, "quit"},
                                           HINTS_END};
static const struct hint hints_failed[] = {
    {{ACTION_SQL}, "ask"}, {{ACTION_VIEW_NEXT}, "view"}, {{ACTION_HELP}, "help"}, {{ACTION_QUIT}, "quit"}, HINTS_END};
static const struct hint hints_examples[] = {{{ACTION_ROW_DOWN, ACTION_ROW_UP}, "choose"},
                                             {{ACTION_ACCEPT}, "ask it"},
                                             {{ACTION_SQL}, "ask in SQL"},
                                             {{ACTION_VIEW_NEXT}, "view"},
                                             {{ACTION_HELP}, "help"},
                                             {{ACTION_QUIT}, "quit"},
                                             HINTS_END};

/* What the keys do now. */
static const struct hint *hints(const struct state *s) {
  switch (s->mode) {
  case INPUT_KEYS:
    if (s->view != VIEW_SQL) return hints_steps;
    if (s->sql && s->sql->outcome == SQL_FAILED) return hints_failed;
    return s->sql && s->sql->columns > 0 ? hints_answer : hints_examples;
  case INPUT_HELP:
    return hints_help;
  case INPUT_SQL:
    return hints_question;
  default:
    return hints_line;
  }
}

/* By the table's own keys: the first of each action. */
static void draw_status(struct cells *cells, struct area area, const struct state *s) {
  int row = area.rows - 1, at = 1;
  cells_put_field(cells, area, row, 0, area.columns, ROLE_STATUS, "");
  for (const struct hint *hint = hints(s); hint->words; hint++) {
    char keys[64] = "";
    for (int k = 0; k < 2 && hint->actions[k] != ACTION_NONE; k++) {
      const char *all = action_row(hint->actions[k])->keys;
      size_t used = strlen(keys);
      snprintf(keys + used, sizeof keys - used, "%s%.*s", k ? " " : "", (int)strcspn(all, " "), all);
    }
    if (at + text_columns(keys) + 1 + text_columns(hint->words) + 2 > area.columns) break;
    at += cells_put(cells, area, row, at, -1, ROLE_KEY, keys) + 1;
    at += cells_put(cells, area, row, at, -1, ROLE_STATUS, hint->words) + 2;
  }
}

/* ---- help ------------------------------------------------------------------------------------------------------------- */

/* The lines of the help, from the one table; returns how many there are. Only those that are visible are drawn. */
static int draw_help(struct cells *cells, struct area area, int top) {
  int line = 0;
  const char *group = "";
  for (int a = ACTION_NONE + 1; a < ACTION_COUNT; a++) {
    const struct action_row *row = action_row((enum action)a);
    if (strcmp(group, row->group) != 0) {
      group = row->group;
      if (line) line++;
      cells_put(cells, area, line++ - top, 1, -1, ROLE_TITLE, group);
    }
    cells_put(cells, area, line - top, 3, 18, ROLE_KEY, row->keys);
    cells_put(cells, area, line - top, 22, -1, ROLE_TEXT, row->help);
    line++;
  }
  return line;
}

/* ---- all of it -------------------------------------------------------------------------------------------------------- */

static void draw_too_small(struct cells *cells, struct area area) {
  cells_putf(cells, area, 0, 0, -1, ROLE_ERROR, "%d × %d: kvstep needs %d × %d", area.columns, area.rows, LEAST_COLUMNS,
             LEAST_ROWS);
  cells_put(cells, area, 1, 0, -1, ROLE_TEXT, "make the window larger; q quits");
}

static void draw_view(struct cells *cells, struct area area, const struct state *s, struct look *look) {
  const struct view *view = views[s->view];
  char title[160];
  snprintf(title, sizeof title, "%d %s: %s", (int)s->view + 1, view->name, view->title);
  cells_rule(cells, area, 0, title);
  view->draw(cells, area_rows(area, 1, area.rows - 1), s, look);
}

void screen_draw(struct cells *cells, const struct state *s, struct look *look, const char *trace_name) {
  cells_clear(cells);
  struct area area = cells_area(cells);
  if (area.rows < LEAST_ROWS || area.columns < LEAST_COLUMNS) {
    draw_too_small(cells, area);
    return;
  }
  const struct look_run *run = look_run(look, s->run);
  draw_title(cells, area, s, run, trace_name);
  draw_status(cells, area, s);
  draw_message(cells, area, s);
  if (s->mode == INPUT_HELP) {
    struct area body = area_rows(area, 1, area.rows - 3);
    cells_rule(cells, body, 0, "help: every key");
    draw_help(cells, area_rows(body, 1, body.rows - 1), s->help_top);
    return;
  }
  struct area body = area_rows(area, 5, area.rows - 7);
  if (!run || run->steps == 0) {
    draw_absent(cells, body, "there is no step in this trace yet", "the screen follows it as it grows; q quits");
    return;
  }
  draw_tokens(cells, area, s, look, run->steps);
  const struct look_step *step = look_step(look, s->run, s->step);
  if (step) {
    draw_rule_words(cells, area, s, step);
    draw_slots(cells, area, s, step);
  }
  draw_view(cells, body, s, look);
  draw_said_above(cells, area, s);
}
