/* drive.c: keys to actions, requests to the trace, state to cells. No terminal, no clock. */
#include "tui/drive.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "study/compare/diverge.h"
#include "study/look/lens.h"
#include "study/live/live.h"
#include "tui/fault_list.h"
#include "tui/predict.h"
#include "tui/sql_panel.h"
#include "tui/view.h"

static int known(int number) { return number > 0 ? number : 0; }

/* How far the dials go for the run and the step where they are. */
static void read_limits(struct drive *d) {
  d->limits =
      (struct limits){.runs = known(look_runs(d->look)), .help_top = screen_help_last(d->cells.rows, d->cells.columns)};
  if (d->state.mode == INPUT_FAULT) d->limits.fault_stride = fault_list_stride(d->cells.rows, d->cells.columns);
  bool examples = d->sql->outcome == SQL_NOTHING_ASKED;
  d->limits.sql_rows = examples ? SQL_EXAMPLES : d->sql->rows;
  d->limits.sql_columns = d->sql->columns;
  d->limits.live = d->live != NULL;
  d->limits.no_live = d->no_live;
  d->limits.working = live_awaits(d);
  const struct look_run *run = look_run(d->look, d->state.run);
  if (!run) return;
  d->limits.steps = known(run->steps);
  d->limits.layers = known(run->n_layer);
  d->limits.heads = known(run->n_head);
  struct place place;
  place_of(&d->state, d->look, &place);
  d->limits.rows = place.rows;
  d->limits.own = place.own;
}

/* Another run or step has other limits: the dials are put into them at once. */
void drive_settle(struct drive *d) {
  read_limits(d);
  state_clamp(&d->state, &d->limits);
  read_limits(d); /* the step may have been put back, and the rows are its */
  state_clamp(&d->state, &d->limits);
}

/* ---- beginning ------------------------------------------------------------------------------------------------------ */

static kvs_status go(struct drive *d, const char *dial, int to, kvs_error *err) {
  if (to < 0) return KVS_OK;
  char line[64];
  snprintf(line, sizeof line, "%s %d", dial, to);
  drive_command(d, line);
  return d->state.message_is_error && *d->state.message
             ? kvs_fail(err, KVS_ERR_INPUT, "%s: %s", d->name, d->state.message)
             : KVS_OK;
}

/* The first token that was generated: there a cache is read, and one row comes in. */
static void go_to_first_decode(struct drive *d) {
  const struct look_step *first = look_step(d->look, d->state.run, 0);
  int step = first ? known(first->prompt_steps) : 0;
  d->state.step = step < d->limits.steps ? step : d->limits.steps - 1;
  drive_settle(d);
}

kvs_status drive_init(struct drive *d, struct look *look, const char *name, const struct start *start, kvs_error *err) {
  *d = (struct drive){.look = look, .name = name, .depth = DEPTH_256};
  d->sql = sql_panel_create(look_db(look));
  if (!d->sql) return kvs_fail_memory(err, "opening the screen");
  read_limits(d);
  state_init(&d->state, &d->limits);
  d->state.sql = d->sql;
  drive_settle(d);
  const char *trouble = look_error(look);
  if (trouble) return kvs_fail(err, KVS_ERR_INPUT, "%s: %s", name, trouble);
  kvs_status status = go(d, "run", start->run, err);
  if (status == KVS_OK && start->step < 0) go_to_first_decode(d);
  if (status == KVS_OK) status = go(d, "step", start->step, err);
  if (status == KVS_OK) status = go(d, "layer", start->layer, err);
  if (status == KVS_OK) status = go(d, "head", start->head, err);
  d->state.message[0] = '\0';
  return status;
}

void drive_free(struct drive *d) {
  cells_free(&d->cells);
  sql_panel_free(d->sql);
  lens_free(d->lens);
  d->sql = NULL;
  d->lens = NULL;
}

kvs_status drive_set_model(struct drive *d, const kvs_model *model, kvs_error *err) {
  lens_free(d->lens);
  d->lens = d->state.lens = NULL;
  if (!model) return KVS_OK;
  kvs_status status = lens_create(model, &d->lens, err);
  d->state.lens = d->lens;
  return status;
}

void drive_set_live(struct drive *d, struct live *live, const char *why) {
  d->live = live;
  d->state.live = live != NULL;
  d->no_live = why;
  read_limits(d);
}

/* ---- requests ------------------------------------------------------------------------------------------------------- */

/* A step that was found; the message has been given if there is none. */
static void go_to_found(struct drive *d, int step) {
  char line[32];
  snprintf(line, sizeof line, "step %d", step);
  state_command(&d->state, &d->limits, line);
}

static void search(struct drive *d) {
  struct state *s = &d->state;
  int direction = s->request_direction < 0 ? -1 : 1;
  int found = look_find(d->look, s->run, s->step, direction, s->search);
  bool around = found == LOOK_NONE && d->limits.steps > 0;
  if (around) found = look_find(d->look, s->run, direction > 0 ? -1 : d->limits.steps, direction, s->search);
  if (found == LOOK_NONE) {
    state_say(s, true, "no token of this run contains \"%.100s\"", s->search);
    return;
  }
  go_to_found(d, found);
  if (around) state_say(s, false, direction > 0 ? "found from the beginning on" : "found from the end back");
}

static void first_difference(struct drive *d) {
  struct state *s = &d->state;
  int other = diverge_other(s->run, s->request_number, d->limits.runs); /* what was chosen may be this run by now */
  if (!other) {
    state_say(s, true, "this trace has one run");
    return;
  }
  int step = look_first_difference(d->look, s->run, other, 0);
  if (step == LOOK_NONE) {
    state_say(s, false, "no step differs from run %d", other);
    return;
  }
  go_to_found(d, step);
  state_say(s, false, "step %d is the first that differs from run %d", step, other);
}

/* After settle: the limits are those of the step that was gone to. */
static void go_to_row(struct drive *d) {
  char line[32];
  snprintf(line, sizeof line, "row %d", d->state.request_number);
  state_command(&d->state, &d->limits, line);
}

/* What would be on the screen now, at its present size. */
static void save_screen(struct drive *d) {
  struct state *s = &d->state;
  const char *path = s->request_text, *dot = strrchr(path, '.');
  bool hurried = d->cells.hurried;
  d->cells.hurried = false; /* a picture is whole */
  bool drawn = drive_draw(d, d->cells.rows, d->cells.columns);
  d->cells.hurried = hurried;
  if (!drawn) {
    state_say(s, true, "out of memory while drawing");
    return;
  }
  errno = 0;
  FILE *file = fopen(path, "w");
  bool written = file && (dot && strcmp(dot, ".svg") == 0 ? cells_write_svg(&d->cells, d->depth, file)
                                                          : cells_write_text(&d->cells, file));
  int errnum = errno;
  if (file && fclose(file) != 0 && written) {
    written = false;
    errnum = errno;
  }
  if (written)
    state_say(s, false, "saved the screen to %.180s", path);
  else
    state_say(s, true, "%.120s cannot be written: %s", path, strerror(errnum));
}

/* ---- questions in SQL ----------------------------------------------------------------------------------------------- */

static void ask(struct drive *d, const char *query) {
  sql_panel_ask(d->sql, query);
  d->state.sql_row = d->state.sql_column = d->state.sql_sort = 0;
}

static void ask_example(struct drive *d) {
  const struct state *s = &d->state;
  char query[LINE_SIZE];
  sql_example_query(s->sql_row, s->run, s->step, s->layer, s->head, query, sizeof query);
  ask(d, query);
}

static void recall(struct drive *d) {
  struct state *s = &d->state;
  int at = s->sql_recalled + s->request_direction;
  if (at < 0) return;
  if (s->sql_recalled == 0) sql_panel_keep_draft(d->sql, s->line);
  const char *line = sql_panel_recall(d->sql, at);
  if (!line) {
    state_say(s, false, at == 1 ? "no question was asked before" : "this is the first question");
    return;
  }
  state_replace(s, 0, (int)strlen(s->line), line);
  s->sql_recalled = at;
}

/* One word is put in; of several what they have in common, and they are named. */
static void complete(struct drive *d) {
  struct state *s = &d->state;
  struct sql_words words;
  sql_complete(d->sql->db, s->line, s->cursor, &words);
  if (words.count == 0) state_say(s, false, "no table, column or word of SQL begins so");
  if (words.count > 0) state_replace(s, words.from, s->cursor, words.common);
  size_t used = 0;
  for (int i = 0; words.count > 1 && i < words.count && used + SQL_WORD + 3 < sizeof s->message; i++)
    used += (size_t)snprintf(s->message + used, sizeof s->message - used, "%s  ", words.word[i]);
  if (used) s->message_is_error = false;
  sql_words_free(&words);
}

/* Sets the dials that the row names. Run before step and step before row: each has the limits of those before it. */
static void jump(struct drive *d) {
  struct state *s = &d->state;
  static const char *const names[] = {"run", "step", "layer", "head", "row"};
  int *const dials[] = {&s->run, &s->step, &s->layer, &s->head, &s->row};
  char where[160] = "";
  for (int i = 0, number; i < 5; i++) {
    if (!sql_panel_dial(d->sql, s->sql_row, names[i], &number)) continue;
    if (i < 2) {
      s->row = -1;
      s->moment = KVS_LOGITS;
      s->following = false;
    }
    const int ends[] = {d->limits.runs, d->limits.steps - 1, d->limits.layers - 1, d->limits.heads - 1,
                        d->limits.rows - 1};
    int least = i == 0 ? 1 : 0; /* runs count from 1 */
    *dials[i] = number < least ? least : number < ends[i] ? number : ends[i];
    drive_settle(d);
    size_t used = strlen(where);
    snprintf(where + used, sizeof where - used, "%s%s %d", used ? ", " : "", names[i], *dials[i]);
  }
  if (s->row == d->limits.own) s->row = -1; /* as when the row cursor comes to it */
  if (!*where) {
    state_say(s, true, "this row has no column run, step, layer, head or row to go to");
    return;
  }
  s->view = VIEW_STEP;
  state_say(s, false, "%s: from row %d of the answer; 9 shows it again", where, s->sql_row + 1);
}

static void serve_sql(struct drive *d, enum request request) {
  struct state *s = &d->state;
  if (request == REQUEST_SQL) ask(d, s->request_text);
  if (request == REQUEST_SQL_EXAMPLE) ask_example(d);
  if (request == REQUEST_SQL_RECALL) recall(d);
  if (request == REQUEST_SQL_COMPLETE) complete(d);
  if (request == REQUEST_SQL_JUMP) jump(d);
  if (request == REQUEST_SQL_SORT && !sql_panel_sort(d->sql, abs(s->sql_sort) - 1, s->sql_sort < 0))
    state_say(s, true, "out of memory while sorting");
}

/* Suspending and redrawing are left to whoever has the terminal. */
static void serve(struct drive *d) {
  enum request request = d->state.request;
  drive_settle(d);
  if (request == REQUEST_NONE || request == REQUEST_SUSPEND || request == REQUEST_REDRAW) return;
  d->state.request = REQUEST_NONE;
  if (request == REQUEST_SEARCH) search(d);
  if (request == REQUEST_DIFFERENCE) first_difference(d);
  if (request == REQUEST_ROW) go_to_row(d);
  if (request == REQUEST_SAVE_SCREEN) save_screen(d);
  if (request == REQUEST_ASK || request == REQUEST_JUDGE || request == REQUEST_SKIP)
    predict_serve(&d->state, d->look, request);
  serve_sql(d, request);
  live_serve(d, request);
  drive_settle(d);
}

/* ---- keys ----------------------------------------------------------------------------------------------------------- */

static void encode(unsigned c, char text[5]) {
  int n = 0;
  if (c < 0x80) {
    text[n++] = (char)c;
  } else if (c < 0x800) {
    text[n++] = (char)(0xC0 | c >> 6);
  } else if (c < 0x10000) {
    text[n++] = (char)(0xE0 | c >> 12);
    text[n++] = (char)(0x80 | (c >> 6 & 63));
  } else {
    text[n++] = (char)(0xF0 | c >> 18);
    text[n++] = (char)(0x80 | (c >> 12 & 63));
    text[n++] = (char)(0x80 | (c >> 6 & 63));
  }
  if (c >= 0x80) text[n++] = (char)(0x80 | (c & 63));
  text[n] = '\0';
}

void drive_action(struct drive *d, enum action action) {
  if (action == ACTION_NONE && d->state.mode != INPUT_PREDICT) return; /* there, every other key gets a hint */
  state_update(&d->state, &d->limits, action);
  serve(d);
}

void drive_command(struct drive *d, const char *line) {
  struct state *s = &d->state;
  char said[sizeof s->message];
  bool was_error = s->message_is_error;
  memcpy(said, s->message, sizeof said);
  s->message[0] = '\0';
  s->message_is_error = false;
  state_command(s, &d->limits, line);
  if (s->request == REQUEST_SAVE_SCREEN) { /* what was said before belongs to the picture */
    memcpy(s->message, said, sizeof said);
    s->message_is_error = was_error;
  }
  serve(d);
}

static bool is_printable(int key) { return key >= ' ' && key < KEYS_BASE && !(key >= 0x7F && key < 0xA0); }

/* What a key that was pasted or is a byte without a character puts into the line: a prompt has escapes for what cannot be seen. */
static void type_escaped(struct drive *d, int key) {
  bool prompt = d->state.mode == INPUT_PROMPT;
  char text[5] = "";
  if (key > KEYS_BYTE && prompt)
    snprintf(text, sizeof text, "\\x%02X", (unsigned)(key - KEYS_BYTE) & 0xFF);
  else if (key == KEYS_ENTER || key == KEYS_TAB)
    snprintf(text, sizeof text, "%s", !prompt ? " " : key == KEYS_TAB ? "\\t" : "\\n");
  else if (key == '\\' && prompt)
    snprintf(text, sizeof text, "\\\\");
  else if (is_printable(key))
    encode((unsigned)key, text);
  if (*text && state_is_typing(&d->state)) state_type(&d->state, text);
}

/* Pasted text is never keys. ^C ends a paste whose end got lost on the way. */
static void paste(struct drive *d, int key) {
  if (key == KEYS_PASTED || key == 'C' - '@') {
    d->pasting = false;
    if (!state_is_typing(&d->state))
      state_say(&d->state, false, "pasted text is not taken for keys; in a line it is typed: e : ; or / first");
  } else {
    type_escaped(d, key);
  }
}

void drive_key(struct drive *d, int key) {
  bool typing = state_is_typing(&d->state), printable = is_printable(key);
  if (d->pasting) {
    paste(d, key);
    return;
  }
  if (key == KEYS_PASTE || key == KEYS_PASTED || key >= KEYS_BYTE) {
    d->pasting = key == KEYS_PASTE;
    if (key >= KEYS_BYTE) type_escaped(d, key);
    return;
  }
  if (!typing || !printable) {
    drive_action(d, action_for_key(key));
    return;
  }
  char text[5];
  encode((unsigned)key, text);
  state_type(&d->state, text);
}

/* ---- time ----------------------------------------------------------------------------------------------------------- */

bool drive_refresh(struct drive *d) {
  kvs_error err;
  bool changed = false;
  if (look_refresh(d->look, &changed, &err) != KVS_OK) {
    bool told = d->state.message_is_error && strncmp(d->state.message, err.message, LINE_SIZE - 1) == 0;
    state_say(&d->state, true, "%s", err.message);
    return !told;
  }
  if (!changed) return false;
  drive_settle(d);
  if (d->state.following && d->state.step < d->limits.steps - 1) {
    d->state.step = d->limits.steps - 1;
    d->state.row = -1;
    drive_settle(d);
  }
  return true;
}

void drive_wait(struct drive *d) {
  if (!d->live || !live_awaits(d)) return;
  live_wait(d->live);
  live_news(d);
}

/* Whether the run's last token is the one that ends a text: playing does not go past it by itself. */
static bool at_text_end(struct drive *d) {
  const struct state *s = &d->state;
  if (!d->live || s->step + 1 < d->limits.steps || s->moment != KVS_LOGITS) return false;
  const struct look_step *step = look_step(d->look, s->run, s->step);
  return step && step->token == live_end_token(d->live);
}

void drive_play(struct drive *d) {
  if (live_awaits(d)) return; /* it comes when it is there */
  if (at_text_end(d)) {
    d->state.playing = false;
    state_say(&d->state, false, "the model ends the text here; Space decodes past its end");
    return;
  }
  int step = d->state.step;
  kvs_phase moment = d->state.moment;
  drive_action(d, ACTION_NEXT_MOMENT);
  if (d->state.step == step && d->state.moment == moment && !live_awaits(d)) d->state.playing = false;
}

/* ---- drawing -------------------------------------------------------------------------------------------------------- */

static void draw(struct drive *d) {
  d->cells.unfinished = false;
  live_busy(d);
  screen_draw(&d->cells, &d->state, d->look, d->name);
}

bool drive_draw(struct drive *d, int rows, int columns) {
  if (d->cells.rows != rows || d->cells.columns != columns) {
    if (!cells_resize(&d->cells, rows, columns)) return false;
    read_limits(d); /* some are the screen's */
  }
  draw(d);
  const char *trouble = look_error(d->look);
  if (!trouble) return true;
  state_say(&d->state, true, "%s", trouble);
  draw(d); /* once more, with the message; the same trouble again is no news */
  look_error(d->look);
  d->cells.unfinished = false; /* what fails now would fail in the next frame; a key tries again */
  return true;
}
