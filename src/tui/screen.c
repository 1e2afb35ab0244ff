/* screen.c: the whole screen: title, tokens, the rule, the view, what is being typed, and what the keys do. */
#include <stdio.h>
#include <string.h>

#include "tui/view.h"

#define LEAST_ROWS 15
#define LEAST_COLUMNS 60

/* ---- the lines that are always there ------------------------------------------------------------------------------ */

/* The dials matter most: where the line is narrow, the names give way. */
static void draw_title(struct cells *cells, struct area area, const struct state *s, const struct look_run *run,
                       const char *trace_name) {
  char dials[160];
  bool fault = run && *run->fault && strcmp(run->fault, "none") != 0;
  snprintf(dials, sizeof dials, "run %d%s%s  step %d/%d  layer %d/%d  head %d/%d ", s->run, fault ? " " : " correct",
           fault ? run->fault : "", s->step, run ? run->steps - 1 : 0, s->layer, run ? run->n_layer - 1 : 0, s->head,
           run ? run->n_head - 1 : 0);
  int left = area.columns - text_columns(dials);
  if (left > 8) cells_put(cells, area, 0, 1, -1, ROLE_TITLE, "kvstep");
  if (left > 14) cells_put_field(cells, area, 0, 9, left - 10, ROLE_TEXT, run ? run->model : trace_name);
  cells_put_right(cells, area, 0, area.columns, area.columns, fault ? ROLE_WRONG : ROLE_TEXT, dials);
}

/* Tokens around the current one, each with its step; the current one stands out, and a line stands where the prompt ends. */
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
    if (step > 0 && step == t->prompt_steps) cells_put(cells, area, 1, at - 1, 1, ROLE_FRAME, "│");
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
    at += cells_putf(cells, area, 2, at, -1, ROLE_RIGHT, "t = cache length read before the append = %d", P);
    char lengths[64];
    snprintf(lengths, sizeof lengths, reached(s, KVS_APPEND) ? "append: length %d → %d " : "it still holds %d rows ", P,
             t->length_after);
    if (at + 2 + text_columns(lengths) <= area.columns)
      cells_put_right(cells, area, 2, area.columns, 40, reached(s, KVS_APPEND) ? ROLE_NEW : ROLE_DIM, lengths);
  } else if (t->position == LOOK_NONE) {
    cells_putf(cells, area, 2, at, -1, ROLE_WRONG, "WRONG: no position was added; wpe[%d] is right", P);
  } else {
    const char *how = t->position == P + 1 ? ", read after the append" : t->position == 0 ? ", started again at 0" : "";
    char words[128];
    snprintf(words, sizeof words, "WRONG: t = %d%s: wpe[%d] used, wpe[%d] right", t->position, how, t->position, P);
    if (at + text_columns(words) > area.columns) /* the numbers matter more than the reason */
      snprintf(words, sizeof words, "WRONG: t = %d: wpe[%d] used, wpe[%d] right", t->position, t->position, P);
    cells_put(cells, area, 2, at, -1, ROLE_WRONG, words);
  }
}

/* The cache as a line of slots, one for each row: filled, the one that is free or has just been filled, and below them where t points. */
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
  cells_putf(cells, area, 3, label + P + 2 - first + 1, -1, ROLE_DIM, appended ? "row %d new" : "row %d free", P);
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

static void draw_message(struct cells *cells, struct area area, const struct state *s) {
  int row = area.rows - 2;
  if (s->mode == INPUT_SEARCH || s->mode == INPUT_COMMAND) {
    const char *mark = s->mode == INPUT_SEARCH ? "/" : ":";
    cells_put(cells, area, row, 0, -1, ROLE_INPUT, mark);
    int used = cells_put(cells, area, row, 1, -1, ROLE_INPUT, s->line);
    char until[LINE_SIZE];
    snprintf(until, sizeof until, "%.*s", s->cursor, s->line);
    int at = text_columns(until);
    if (at >= used) cells_put(cells, area, row, 1 + at, 1, ROLE_INPUT, " ");
    cells_mark(cells, area, row, 1 + at, 1, ATTR_REVERSE);
  } else if (*s->message) {
    cells_put(cells, area, row, 1, -1, s->message_is_error ? ROLE_ERROR : ROLE_MESSAGE, s->message);
  }
}

/* An entry of the status line: one key, or two that belong together. */
struct entry {
  enum action actions[2];
  const char *words;
};

/* The first key of an action, by the table; an arrow key as its arrow. */
static void first_key(enum action action, char *key, size_t size) {
  static const char *const arrows[][2] = {{"Left", "←"}, {"Right", "→"}, {"Up", "↑"}, {"Down", "↓"}};
  const char *all = action_row(action)->keys;
  snprintf(key, size, "%.*s", (int)strcspn(all, " "), all);
  for (size_t i = 0; i < sizeof arrows / sizeof *arrows; i++)
    if (strcmp(key, arrows[i][0]) == 0) snprintf(key, size, "%s", arrows[i][1]);
}

/* Two keys of one column each stand together, as one. */
static void entry_keys(const struct entry *entry, char *keys, size_t size) {
  char one[24], two[24] = "";
  first_key(entry->actions[0], one, sizeof one);
  if (entry->actions[1] != ACTION_NONE) first_key(entry->actions[1], two, sizeof two);
  bool joined = !*two || (text_columns(one) == 1 && text_columns(two) == 1);
  snprintf(keys, size, joined ? "%s%s" : "%s %s", one, two);
}

/* Draws an entry at a column and returns where the next one begins; 0 if it does not fit in front of `end`. */
static int draw_entry(struct cells *cells, struct area area, int at, int end, const struct entry *entry) {
  char keys[64];
  entry_keys(entry, keys, sizeof keys);
  int width = text_columns(keys) + 1 + text_columns(entry->words);
  if (at + width > end) return 0;
  int row = area.rows - 1, used = cells_put(cells, area, row, at, -1, ROLE_KEY, keys);
  cells_put(cells, area, row, at + used + 1, -1, ROLE_STATUS, entry->words);
  return at + width + 2;
}

/* What the keys do now. Help and quit are always there, at the right end; the others come in order of need. */
static void draw_status(struct cells *cells, struct area area, const struct state *s) {
  static const struct entry normal[] = {{{ACTION_NEXT_MOMENT, ACTION_NONE}, "on"},
                                        {{ACTION_PREVIOUS_MOMENT, ACTION_NONE}, "back"},
                                        {{ACTION_PREVIOUS_STEP, ACTION_NEXT_STEP}, "token"},
                                        {{ACTION_VIEW_NEXT, ACTION_NONE}, "view"},
                                        {{ACTION_NEXT_RUN, ACTION_NONE}, "run"},
                                        {{ACTION_PREVIOUS_LAYER, ACTION_NEXT_LAYER}, "layer"},
                                        {{ACTION_PREVIOUS_HEAD, ACTION_NEXT_HEAD}, "head"},
                                        {{ACTION_ROW_UP, ACTION_ROW_DOWN}, "row"},
                                        {{ACTION_SEARCH, ACTION_NONE}, "search"},
                                        {{ACTION_PLAY, ACTION_NONE}, "play"},
                                        {{ACTION_NONE, ACTION_NONE}, ""}},
                            last[] = {{{ACTION_HELP, ACTION_NONE}, "help"}, {{ACTION_QUIT, ACTION_NONE}, "quit"}},
                            typing[] = {{{ACTION_ACCEPT, ACTION_NONE}, "take it"},
                                        {{ACTION_CANCEL, ACTION_NONE}, "leave"},
                                        {{ACTION_NONE, ACTION_NONE}, ""}},
                            help[] = {{{ACTION_ROW_UP, ACTION_ROW_DOWN}, "scroll"},
                                      {{ACTION_CANCEL, ACTION_NONE}, "close"},
                                      {{ACTION_NONE, ACTION_NONE}, ""}};
  int at = 1, end = area.columns - 1;
  cells_put_field(cells, area, area.rows - 1, 0, area.columns, ROLE_STATUS, "");
  if (s->mode == INPUT_KEYS) {
    for (int i = 0, next = end - 14; i < 2 && next; i++) next = draw_entry(cells, area, next, end, &last[i]);
    end -= 16;
  }
  const struct entry *entry = s->mode == INPUT_KEYS ? normal : s->mode == INPUT_HELP ? help : typing;
  for (; *entry->words && at; entry++) at = draw_entry(cells, area, at, end, entry);
}

/* ---- help ------------------------------------------------------------------------------------------------------------- */

#define AROUND_HELP 4  /* rows: title, rule, message, status */
#define HELP_NAMES 110 /* columns from which on the names of the actions are shown, for scripts */
#define HELP_TEXT 22   /* where the words begin */

/* Bytes of `text` to set in a line of `width` columns: up to a blank, or all that fit where there is none. The help is ASCII but
 * for a few signs of one column, so that columns are counted by characters. */
static int line_bytes(const char *text, int width) {
  int bytes = 0, blank = 0, columns = 0;
  for (; text[bytes]; bytes++) {
    columns += ((unsigned char)text[bytes] & 0xC0) != 0x80;
    if (columns > width) return blank > 0 ? blank : bytes;
    if (text[bytes] == ' ') blank = bytes;
  }
  return bytes;
}

/* The help of one action from `line` on; returns its lines. cells NULL: they are only counted. */
static int draw_help_row(struct cells *cells, struct area area, int line, const struct action_row *row) {
  bool named = area.columns >= HELP_NAMES;
  int width = area.columns - HELP_TEXT - (named ? 20 : 1), lines = 0;
  if (width < 20) width = 20;
  if (cells) cells_put(cells, area, line, 3, 18, ROLE_KEY, row->keys);
  if (cells && named) cells_put_right(cells, area, line, area.columns - 1, -1, ROLE_DIM, row->name);
  for (const char *text = row->help; *text; lines++) {
    int bytes = line_bytes(text, width);
    if (cells) cells_putf(cells, area, line + lines, HELP_TEXT, -1, ROLE_TEXT, "%.*s", bytes, text);
    text += bytes;
    while (*text == ' ') text++;
  }
  return lines;
}

/* The help, from the one table, of which the first `top` lines are out of sight; returns how many lines it has. */
static int draw_help(struct cells *cells, struct area area, int top) {
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
    line += draw_help_row(cells, area, line - top, row);
  }
  return line;
}

int screen_help_last(int rows, int columns) {
  int lines = draw_help(NULL, (struct area){0, 0, rows, columns}, 0), room = rows - AROUND_HELP;
  return lines > room ? lines - room : 0;
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
    int last = screen_help_last(area.rows, area.columns); /* the screen may have grown since */
    draw_help(cells, area_rows(body, 1, body.rows - 1), s->help_top < last ? s->help_top : last);
    if (s->help_top < last) cells_put_right(cells, area, area.rows - 2, area.columns - 1, -1, ROLE_DIM, "↓ more");
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
}
