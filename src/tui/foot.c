/* foot.c: the lines at the bottom: what is being typed or was just said, and what the keys do now. */
#include "tui/foot.h"

#include <stdio.h>
#include <string.h>

#include "tui/predict.h"
#include "tui/sql_panel.h"

#define MESSAGE_LINES 3 /* that a long message takes at most */

/* ---- what is typed, what is said ------------------------------------------------------------------------------------ */

/* A message over as many lines as it needs, up to `lines`, the last of them just above the status line. Returns what it needs. */
static int draw_wrapped(struct cells *cells, struct area area, enum role role, const char *text, int lines) {
  int needed = 0;
  while (*text && needed < MESSAGE_LINES) {
    int length = text_line(text, area.columns - 2);
    if (needed < lines) cells_putf(cells, area, area.rows - 1 - lines + needed, 1, -1, role, "%.*s", length, text);
    text += length + (int)strspn(text + length, " ");
    needed++;
  }
  return needed;
}

int foot_lines(struct cells *cells, struct area area, const struct state *s) {
  if (s->mode == INPUT_PREDICT) return PREDICT_LINES;
  int needed =
      s->mode == INPUT_KEYS || s->mode == INPUT_FAULT ? draw_wrapped(cells, area, ROLE_MESSAGE, s->message, 0) : 0;
  return needed > 1 ? needed : 1;
}

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

static const char *input_mark(enum input_mode mode) {
  return mode == INPUT_SEARCH ? "/" : mode == INPUT_COMMAND ? ":" : mode == INPUT_SQL ? ";" : ">";
}

static void draw_message(struct cells *cells, struct area area, const struct state *s, struct look *look) {
  if (s->mode == INPUT_PREDICT)
    predict_draw(cells, area, s, look);
  else if (state_is_typing(s))
    draw_input(cells, area, s, input_mark(s->mode));
  else if (*s->message)
    draw_wrapped(cells, area, s->message_is_error ? ROLE_ERROR : ROLE_MESSAGE, s->message, foot_lines(cells, area, s));
  else if (*s->busy)
    cells_put(cells, area, area.rows - 2, 1, area.columns - 2, ROLE_MESSAGE, s->busy);
}

/* What may be typed: until something is, or in a prompt, which begins with what it was, all the time. */
static const char *hint(const struct state *s) {
  if (s->mode == INPUT_PROMPT) return "the prompt of a new run; \\n is a new line, \\\\ a backslash, \\xE9 any byte";
  if (*s->line) return "";
  if (s->mode == INPUT_SEARCH) return "a token's text, or a part of it; n and N go on from one to the next";
  if (s->mode == INPUT_SQL)
    return "a question in SQL, such as SELECT * FROM rule; Tab completes, Up brings an earlier one back";
  if (s->mode == INPUT_COMMAND)
    return "7.2.1.5 is step, layer, head, row; or step 7, run 2, fault NAME, decode 20, save-screen FILE, help";
  return "";
}

void foot_draw_over(struct cells *cells, struct area area, const struct state *s) {
  const char *words = *s->message ? s->message : hint(s);
  if (!state_is_typing(s) || s->mode == INPUT_PREDICT || !*words) return;
  enum role role = *s->message && s->message_is_error ? ROLE_ERROR : ROLE_MESSAGE;
  struct area above = area_rows(area, 0, area.rows - 1);
  int lines = draw_wrapped(cells, above, role, words, 0);
  for (int line = 0; line < lines; line++)
    cells_put_field(cells, above, above.rows - 2 - line, 0, above.columns, role, "");
  draw_wrapped(cells, above, role, words, lines);
}

/* ---- what the keys do ------------------------------------------------------------------------------------------------ */

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

#define END                                                                                                            \
  { {ACTION_NONE, ACTION_NONE}, "" }

/* What the keys do now, in order of need. `decodes`: the next step is yet to be decoded, and can be. */
static const struct entry *entries(const struct state *s, bool decodes) {
  static const struct entry normal[] = {{{ACTION_NEXT_MOMENT, ACTION_NONE}, "on"},
                                        {{ACTION_PREVIOUS_MOMENT, ACTION_NONE}, "back"},
                                        {{ACTION_PREVIOUS_STEP, ACTION_NEXT_STEP}, "token"},
                                        {{ACTION_VIEW_NEXT, ACTION_NONE}, "view"},
                                        {{ACTION_NEXT_RUN, ACTION_NONE}, "run"},
                                        {{ACTION_PREVIOUS_LAYER, ACTION_NEXT_LAYER}, "layer"},
                                        {{ACTION_PREVIOUS_HEAD, ACTION_NEXT_HEAD}, "head"},
                                        {{ACTION_ROW_UP, ACTION_ROW_DOWN}, "row"},
                                        {{ACTION_EDIT_PROMPT, ACTION_NONE}, "prompt"},
                                        {{ACTION_CHOOSE_FAULT, ACTION_NONE}, "fault"},
                                        {{ACTION_SQL, ACTION_NONE}, "SQL"},
                                        {{ACTION_PREDICT, ACTION_NONE}, "predict"},
                                        {{ACTION_SEARCH, ACTION_NONE}, "search"},
                                        {{ACTION_PLAY, ACTION_NONE}, "play"},
                                        END};
  static const struct entry at_the_end[] = {{{ACTION_NEXT_STEP, ACTION_NONE}, "decode on"},
                                            {{ACTION_EDIT_PROMPT, ACTION_NONE}, "prompt"},
                                            {{ACTION_CHOOSE_FAULT, ACTION_NONE}, "fault"},
                                            {{ACTION_PREVIOUS_MOMENT, ACTION_NONE}, "back"},
                                            {{ACTION_VIEW_NEXT, ACTION_NONE}, "view"},
                                            {{ACTION_NEXT_RUN, ACTION_NONE}, "run"},
                                            {{ACTION_PREVIOUS_LAYER, ACTION_NEXT_LAYER}, "layer"},
                                            {{ACTION_PREVIOUS_HEAD, ACTION_NEXT_HEAD}, "head"},
                                            {{ACTION_PLAY, ACTION_NONE}, "play"},
                                            END};
  static const struct entry answer[] = {{{ACTION_SQL, ACTION_NONE}, "ask"},
                                        {{ACTION_ROW_UP, ACTION_ROW_DOWN}, "row"},
                                        {{ACTION_PREVIOUS_STEP, ACTION_NEXT_STEP}, "column"},
                                        {{ACTION_SORT, ACTION_NONE}, "sort"},
                                        {{ACTION_ACCEPT, ACTION_NONE}, "go there"},
                                        {{ACTION_VIEW_NEXT, ACTION_NONE}, "view"},
                                        END};
  static const struct entry failed[] = {
      {{ACTION_SQL, ACTION_NONE}, "ask"}, {{ACTION_VIEW_NEXT, ACTION_NONE}, "view"}, END};
  static const struct entry examples[] = {{{ACTION_ROW_UP, ACTION_ROW_DOWN}, "choose"},
                                          {{ACTION_ACCEPT, ACTION_NONE}, "ask it"},
                                          {{ACTION_SQL, ACTION_NONE}, "ask in SQL"},
                                          {{ACTION_VIEW_NEXT, ACTION_NONE}, "view"},
                                          END};
  static const struct entry typing[] = {
      {{ACTION_ACCEPT, ACTION_NONE}, "take it"}, {{ACTION_CANCEL, ACTION_NONE}, "leave"}, END};
  static const struct entry predicting[] = {
      {{ACTION_ACCEPT, ACTION_NONE}, "take it"}, {{ACTION_CANCEL, ACTION_NONE}, "skip and show"}, END};
  static const struct entry asking[] = {{{ACTION_ACCEPT, ACTION_NONE}, "ask"},
                                        {{ACTION_VIEW_NEXT, ACTION_NONE}, "complete"},
                                        {{ACTION_ROW_UP, ACTION_ROW_DOWN}, "earlier"},
                                        {{ACTION_CANCEL, ACTION_NONE}, "leave"},
                                        END};
  static const struct entry help[] = {
      {{ACTION_ROW_UP, ACTION_ROW_DOWN}, "scroll"}, {{ACTION_CANCEL, ACTION_NONE}, "close"}, END};
  static const struct entry prompting[] = {
      {{ACTION_ACCEPT, ACTION_NONE}, "decode it"}, {{ACTION_CANCEL, ACTION_NONE}, "leave"}, END};
  static const struct entry choosing[] = {{{ACTION_ROW_UP, ACTION_ROW_DOWN}, "choose"},
                                          {{ACTION_ACCEPT, ACTION_NONE}, "decode the tokens under it"},
                                          {{ACTION_CANCEL, ACTION_NONE}, "leave"},
                                          END};
  switch (s->mode) {
  case INPUT_PROMPT:
    return prompting;
  case INPUT_FAULT:
    return choosing;
  case INPUT_KEYS:
    if (s->view != VIEW_SQL) return decodes ? at_the_end : normal;
    if (s->sql && s->sql->outcome == SQL_FAILED) return failed;
    return s->sql && s->sql->columns > 0 ? answer : examples;
  case INPUT_HELP:
    return help;
  case INPUT_SQL:
    return asking;
  case INPUT_PREDICT:
    return predicting;
  default:
    return typing;
  }
}

/* Help and quit are always there, at the right end; the others as far as there is room. */
static void draw_status(struct cells *cells, struct area area, const struct state *s, bool decodes) {
  static const struct entry last[] = {{{ACTION_HELP, ACTION_NONE}, "help"}, {{ACTION_QUIT, ACTION_NONE}, "quit"}};
  int at = 1, end = area.columns - 1;
  cells_put_field(cells, area, area.rows - 1, 0, area.columns, ROLE_STATUS, "");
  if (s->mode == INPUT_KEYS) {
    for (int i = 0, next = end - 14; i < 2 && next; i++) next = draw_entry(cells, area, next, end, &last[i]);
    end -= 16;
  }
  for (const struct entry *entry = entries(s, decodes); *entry->words && at; entry++)
    at = draw_entry(cells, area, at, end, entry);
}

void foot_draw(struct cells *cells, struct area area, const struct state *s, struct look *look) {
  const struct look_run *run = look_run(look, s->run);
  draw_status(cells, area, s, s->live && run && s->step == run->steps - 1 && s->moment == KVS_LOGITS);
  draw_message(cells, area, s, look);
}
