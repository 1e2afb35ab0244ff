/* drive.c: actions to the state, its requests to the trace, the state to cells. No terminal, no clock. Keys: drive_keys.c. */
#include "tui/drive.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "study/compare/diverge.h"
#include "study/look/lens.h"
#include "study/live/live.h"
#include "tui/fault_list.h"
#include "tui/help.h"
#include "tui/predict.h"
#include "tui/sql_panel.h"
#include "tui/sql_serve.h"
#include "tui/view.h"

static int known(int number) { return number > 0 ? number : 0; }

/* How far the dials go for the run and the step where they are. */
static void read_limits(struct drive *d) {
  d->limits =
      (struct limits){.runs = known(look_runs(d->look)), .help_top = help_last(d->cells.rows, d->cells.columns)};
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
  sql_serve(d, request);
  live_serve(d, request);
  drive_settle(d);
}

/* ---- actions and commands ------------------------------------------------------------------------------------------- */

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

/* All could be read: what was said of trouble with that, a lock that has gone since, is true no more, and would hide what is going on. */
static void take_back(struct drive *d) {
  bool shown = *d->trouble && d->state.message_is_error && strcmp(d->state.message, d->trouble) == 0;
  d->trouble[0] = '\0';
  if (!shown) return;
  state_say(&d->state, false, "%s", "");
  draw(d);
}

bool drive_draw(struct drive *d, int rows, int columns) {
  if (d->cells.rows != rows || d->cells.columns != columns) {
    if (!cells_resize(&d->cells, rows, columns)) return false;
    read_limits(d); /* some are the screen's */
  }
  draw(d);
  const char *trouble = look_error(d->look);
  if (!trouble) {
    take_back(d);
    return true;
  }
  state_say(&d->state, true, "%s", trouble);
  snprintf(d->trouble, sizeof d->trouble, "%s", d->state.message);
  draw(d); /* once more, with the message; the same trouble again is no news */
  look_error(d->look);
  d->cells.unfinished = false; /* what fails now would fail in the next frame; a key tries again */
  return true;
}
