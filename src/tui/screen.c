/* screen.c: the whole screen: title, tokens, the rule, the view, what is being typed, and what the keys do. */
#include <stdio.h>
#include <string.h>

#include "tui/fault_list.h"
#include "tui/foot.h"
#include "tui/moment_words.h"
#include "tui/predict.h"
#include "tui/view.h"

#define LEAST_ROWS 15
#define LEAST_COLUMNS 60

/* ---- the lines that are always there ------------------------------------------------------------------------------ */

/* The dials matter most: where the line is narrow, the names give way. */
static void draw_title(struct cells *cells, struct area area, const struct state *s, const struct look_run *run,
                       const char *trace_name, const struct prediction *asked) {
  char name[sizeof run->fault + 1] = "", places[96] = "", dials[sizeof name + sizeof places + 32], last[16];
  bool fault = run && *run->fault && strcmp(run->fault, "none") != 0;
  if (run && run->steps > 0)
    snprintf(places, sizeof places, "  step %d/%s  layer %d/%d  head %d/%d ", s->step,
             prediction_number(asked, run->steps - 1, last), s->layer, run->n_layer - 1, s->head, run->n_head - 1);
  else
    snprintf(places, sizeof places, run ? "  no step yet " : "no run yet ");
  int room = area.columns - text_columns(places) - 12; /* whatever a trace calls its fault */
  if (run) snprintf(name, sizeof name, "%.*s", text_fitting(look_run_name(run), room), look_run_name(run));
  if (run)
    snprintf(dials, sizeof dials, "run %d %s%s", s->run, name, places);
  else
    snprintf(dials, sizeof dials, "%s", places);
  int left = area.columns - text_columns(dials);
  if (left > 8) cells_put(cells, area, 0, 1, -1, ROLE_TITLE, "kvstep");
  if (left > 14) cells_put_field(cells, area, 0, 9, left - 10, ROLE_TEXT, run ? run->model : trace_name);
  cells_put_right(cells, area, 0, area.columns, area.columns, fault ? ROLE_WRONG : ROLE_TEXT, dials);
}

/* Tokens around the current one, each with its step; the current one stands out, and a line stands where the prompt ends. */
static void draw_tokens(struct cells *cells, struct area area, const struct state *s, struct look *look, int steps,
                        const struct prediction *asked) {
  const int field = 12;
  int count = (area.columns - 1) / field, first, last;
  window_of(steps, count, s->step, &first, &last);
  for (int step = first; step <= last; step++) {
    const struct look_step *t = look_step(look, s->run, step);
    if (!t) continue;
    char number[16], text[80];
    prediction_label(asked, step, number);
    snprintf(text, sizeof text, "%s", t->text);
    int at = 1 + (step - first) * field, used = cells_put(cells, area, 1, at, 5, ROLE_DIM, number);
    enum role role = step == s->step ? ROLE_HERE : t->mode == KVS_PREFILL ? ROLE_DIM : ROLE_TOKEN;
    cells_put(cells, area, 1, at + used + 1, field - used - 2, role, text);
    if (step > 0 && step == t->prompt_steps) cells_put(cells, area, 1, at - 1, 1, ROLE_FRAME, "│");
  }
}

/* What the append did, or that it is still to come; *wrong: not what the rule says. */
static void append_words(char *text, size_t size, const struct state *s, struct look *look, const struct look_step *t,
                         const struct place *place, const struct prediction *asked, bool *wrong) {
  char number[16];
  prediction_number(asked, place->after, number);
  const char *zeros = reached(s, KVS_APPEND) ? zeros_written(s, look, place) : "";
  *wrong = true;
  if (place->P != t->length_before)
    snprintf(text, size, "WRONG: layer %d holds %d rows", s->layer, place->P);
  else if (!reached(s, KVS_APPEND))
    snprintf(text, size, "it still holds %d rows ", place->P), *wrong = false;
  else if (!place->written)
    snprintf(text, size, "WRONG: no row was written");
  else if (*zeros)
    snprintf(text, size, "WRONG: row %d: %s zeros", place->own, zeros);
  else if (place->own != place->P)
    snprintf(text, size, "WRONG: row %d, not row %d", place->own, place->P);
  else if (place->after != place->P + 1 && place->after != LOOK_NONE)
    snprintf(text, size, "WRONG: length %d → %s", place->P, number);
  else
    snprintf(text, size, "append: length %d → %s ", place->P, number), *wrong = false;
}

/* The rule in words where the position is right; the append's own mistakes at the right. */
static void draw_kept(struct cells *cells, struct area area, int at, const struct state *s, struct look *look,
                      const struct look_step *t, const struct place *place, const struct prediction *asked) {
  char rule[64], append[64];
  bool wrong;
  append_words(append, sizeof append, s, look, t, place, asked, &wrong);
  plain_signs(cells, append, sizeof append);
  snprintf(rule, sizeof rule, "t = cache length read before the append = %d", t->length_before);
  int room = area.columns - at - 2 - text_columns(append);
  if (wrong && text_columns(rule) > room) snprintf(rule, sizeof rule, "t = length before = %d", t->length_before);
  cells_put(cells, area, 2, at, -1, ROLE_RIGHT, rule);
  enum role role = wrong ? ROLE_WRONG : reached(s, KVS_APPEND) ? ROLE_NEW : ROLE_DIM;
  if (text_columns(rule) <= room) cells_put_right(cells, area, 2, area.columns, 40, role, append);
}

/* The rule in words: what t is, or under a fault what was used instead. */
static void draw_rule_words(struct cells *cells, struct area area, const struct state *s, struct look *look,
                            const struct look_step *t, const struct place *place, const struct prediction *asked) {
  int P = t->length_before;
  char number[16];
  int at = 1 + cells_put(cells, area, 2, 1, -1, ROLE_TITLE, "rule") + 2;
  if (P == LOOK_NONE) {
    cells_put(cells, area, 2, at, -1, ROLE_DIM, "the trace does not say how long the cache was");
  } else if (t->position == P) {
    draw_kept(cells, area, at, s, look, t, place, asked);
  } else if (t->position == LOOK_NONE) {
    cells_putf(cells, area, 2, at, -1, ROLE_WRONG, "WRONG: no position was added; wpe[%d] is right", P);
  } else {
    prediction_number(asked, t->position, number);
    const char *how = t->position == P + 1 ? ", read after the append" : t->position == 0 ? ", started again at 0" : "";
    char words[128];
    snprintf(words, sizeof words, "WRONG: t = %s%s: wpe[%s] used, wpe[%d] right", number, how, number, P);
    if (at + text_columns(words) > area.columns) /* the numbers matter more than the reason */
      snprintf(words, sizeof words, "WRONG: t = %s: wpe[%s] used, wpe[%d] right", number, number, P);
    cells_put(cells, area, 2, at, -1, ROLE_WRONG, words);
  }
}

/* One row of the cache as a slot: ■ holds a row, □ is free, × was skipped; in a colour of its own what was there before the run. */
static void draw_slot(struct cells *cells, struct area area, int at, int slot, const struct state *s, struct look *look,
                      const struct place *place) {
  bool appended = reached(s, KVS_APPEND);
  const char *zeros = appended && place->written && slot == place->own ? zeros_written(s, look, place) : "";
  bool right = place->written && place->own == place->P && !*zeros, nothing = strchr(zeros, 'K') && strchr(zeros, 'V');
  enum look_origin origin = look_row_origin(look, s->run, place->as_of, s->layer, slot);
  if (appended && place->written && slot == place->own)
    cells_put(cells, area, 3, at, 1, right ? ROLE_NEW : ROLE_WRONG, nothing ? "×" : "■");
  else if (slot == place->P)
    cells_put(cells, area, 3, at, 1, appended ? ROLE_WRONG : ROLE_FREE, place->written || !appended ? "□" : "×");
  else if (slot > place->P)
    cells_put(cells, area, 3, at, 1, ROLE_DIM, "·");
  else if (origin == LOOK_NEVER)
    cells_put(cells, area, 3, at, 1, ROLE_WRONG, "×");
  else
    cells_put(cells, area, 3, at, 1, origin == LOOK_EARLIER ? ROLE_WRONG : ROLE_BAR,
              origin == LOOK_EARLIER ? "?" : "■");
}

/* What is to be said of the slots. */
static void slot_words(char *text, size_t size, const struct state *s, struct look *look, const struct place *place) {
  const struct look_append *first = look_append(look, s->run, 0, s->layer);
  int used = 0;
  if (!reached(s, KVS_APPEND))
    used = snprintf(text, size, "row %d free", place->P);
  else if (!place->written)
    used = snprintf(text, size, "row %d not written", place->P);
  else if (place->own == place->P && *zeros_written(s, look, place))
    used = snprintf(text, size, "row %d: %s zeros", place->P, zeros_written(s, look, place));
  else if (place->own == place->P)
    used = snprintf(text, size, "row %d new", place->P);
  else
    used = snprintf(text, size, "row %d %s, %d free", place->own, place->own < place->P ? "again" : "new", place->P);
  if (first && first->before > 0)
    snprintf(text + used, size - (size_t)used, "; 0..%d from before this run", first->before - 1);
}

/* Where t points; beyond the line's end at its end, with an arrow that way. */
static void draw_pointer(struct cells *cells, struct area area, int label, int first, const struct look_step *t,
                         const struct prediction *asked) {
  if (t->position == LOOK_NONE) return;
  int at = t->position >= first ? t->position - first < area.columns ? label + t->position - first : area.columns
                                : label - 1;
  const char *arrow = at > area.columns - 2 ? "→" : "↑";
  if (at > area.columns - 2) at = area.columns - 2;
  enum role role = t->position == t->length_before ? ROLE_RIGHT : ROLE_WRONG;
  char pointer[32], number[16];
  snprintf(pointer, sizeof pointer, "t = %s", prediction_number(asked, t->position, number));
  cells_put(cells, area, 4, at, 1, role, arrow);
  cells_put(cells, area, 4, at + 2 + text_columns(pointer) < area.columns ? at + 2 : at - 1 - text_columns(pointer), -1,
            role, pointer);
}

/* The cache as a line of slots, one for each row of this layer, and below them where t points. */
static void draw_slots(struct cells *cells, struct area area, const struct state *s, struct look *look,
                       const struct look_step *t, const struct place *place, const struct prediction *asked) {
  int P = place->P, label = 7;
  char words[96];
  slot_words(words, sizeof words, s, look, place);
  int wide = text_columns(words) + 2, room = area.columns - label - (wide < 40 ? wide : 40);
  if (!place->known || room < 4) return;
  int first = P + 2 > room ? P + 2 - room : 0;
  cells_put(cells, area, 3, 1, -1, ROLE_DIM, "cache");
  if (prediction_hides_slots(asked, s)) {
    cells_put(cells, area, 3, label, -1, ROLE_INPUT, "?");
    cells_putf(cells, area, 3, label + 2, -1, ROLE_DIM, "slot %d new", P);
    return; /* nor where t points, since that is one of the slots */
  }
  if (first > 0) cells_put(cells, area, 3, label - 1, -1, ROLE_DIM, "…");
  for (int slot = first; slot <= P + 1; slot++) draw_slot(cells, area, label + slot - first, slot, s, look, place);
  cells_put(cells, area, 3, label + P + 2 - first + 1, -1, ROLE_DIM, words);
  draw_pointer(cells, area, label, first, t, asked);
}

/* ---- help ------------------------------------------------------------------------------------------------------------- */

#define AROUND_HELP 4  /* rows: title, rule, message, status */
#define HELP_NAMES 110 /* columns from which on the names of the actions are shown, for scripts */
#define HELP_TEXT 22   /* where the words begin */

/* The help of one action from `line` on; returns its lines. cells NULL: they are only counted. */
static int draw_help_row(struct cells *cells, struct area area, int line, const struct action_row *row) {
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

static void draw_view(struct cells *cells, struct area area, const struct state *s, struct look *look,
                      const struct prediction *asked) {
  const struct view *view = views[s->view];
  char title[160];
  snprintf(title, sizeof title, "%d %s: %s", (int)s->view + 1, view->name, view->title);
  cells_rule(cells, area, 0, title);
  struct area room = area_rows(area, 1, area.rows - 1);
  if (prediction_covers(asked, s->view))
    draw_absent(cells, room, "hidden while the question is open", "it would show the answer");
  else
    view->draw(cells, room, s, look);
}

static void draw_no_step(struct cells *cells, struct area area, const struct state *s, struct look *look) {
  char words[64] = "there is no step in this trace yet";
  bool others = look_runs(look) > 1;
  if (others) snprintf(words, sizeof words, "run %d has no step yet", s->run);
  draw_absent(cells, area, words,
              others ? "r goes to the next run; q quits" : "the screen follows it as it grows; q quits");
}

void screen_draw(struct cells *cells, const struct state *s, struct look *look, const char *trace_name) {
  cells_clear(cells);
  struct area area = cells_area(cells);
  if (area.rows < LEAST_ROWS || area.columns < LEAST_COLUMNS) {
    draw_too_small(cells, area);
    return;
  }
  const struct look_run *run = look_run(look, s->run);
  struct prediction asked;
  prediction_open(s, look, &asked);
  draw_title(cells, area, s, run, trace_name, &asked);
  foot_draw(cells, area, s, look);
  if (s->mode == INPUT_HELP) {
    struct area body = area_rows(area, 1, area.rows - 3);
    cells_rule(cells, body, 0, "help: every key");
    int last = screen_help_last(area.rows, area.columns); /* the screen may have grown since */
    draw_help(cells, area_rows(body, 1, body.rows - 1), s->help_top < last ? s->help_top : last);
    if (s->help_top < last) cells_put_right(cells, area, area.rows - 2, area.columns - 1, -1, ROLE_DIM, "↓ more");
    return;
  }
  if (s->mode == INPUT_FAULT) {
    fault_list_draw(cells, area_rows(area, 1, area.rows - 2 - foot_lines(cells, area, s)), s);
    return;
  }
  struct area body = area_rows(area, 5, area.rows - 6 - foot_lines(cells, area, s));
  bool steps = run && run->steps > 0;
  if (steps) draw_tokens(cells, area, s, look, run->steps, &asked);
  const struct look_step *step = steps ? look_step(look, s->run, s->step) : NULL;
  if (step) {
    struct place place;
    place_of(s, look, &place);
    draw_rule_words(cells, area, s, look, step, &place, &asked);
    draw_slots(cells, area, s, look, step, &place, &asked);
  }
  if (steps || s->view == VIEW_SQL) /* SQL asks the whole trace */
    draw_view(cells, body, s, look, &asked);
  else
    draw_no_step(cells, body, s, look);
  foot_draw_over(cells, area, s);
}
