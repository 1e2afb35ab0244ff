/* app.c: the loop: a key or a moment's time, the next state, the screen. */
#include "tui/app.h"

#include <time.h>

#include "tui/drive.h"
#include "tui/term.h"

/* How often a trace that may be growing is looked at, in seconds. */
#define LOOK_EVERY 0.25

/* Keys that are taken before the screen is drawn again: a held key must not leave the screen behind, nor freeze it. */
#define KEYS_AT_ONCE 32

struct app {
  struct drive drive;
  double played, looked; /* when, last */
  bool dirty;
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Where the terminal's own cursor belongs: behind what is typed, on the line above the last. */
static void input_place(const struct drive *d, int *row, int *column) {
  const struct state *s = &d->state;
  *row = *column = -1;
  if (s->mode != INPUT_SEARCH && s->mode != INPUT_COMMAND) return;
  char until[LINE_SIZE];
  int length = s->cursor < LINE_SIZE ? s->cursor : LINE_SIZE - 1;
  for (int i = 0; i < length; i++) until[i] = s->line[i];
  until[length] = '\0';
  *row = d->cells.rows - 2;
  *column = 1 + text_columns(until);
}

static kvs_status draw(struct app *a, kvs_error *err) {
  int rows, columns, row, column;
  term_size(&rows, &columns);
  if (!drive_draw(&a->drive, rows, columns)) return kvs_fail_memory(err, "drawing the screen");
  input_place(&a->drive, &row, &column);
  term_put(&a->drive.cells, row, column);
  a->dirty = false;
  return KVS_OK;
}

/* Milliseconds until something is due: for ever, unless it plays or follows. */
static int patience(const struct app *a) {
  const struct state *s = &a->drive.state;
  double due = -1, at = now();
  if (s->playing) due = a->played + 1 / state_pace(s);
  if (s->following && (due < 0 || a->looked + LOOK_EVERY < due)) due = a->looked + LOOK_EVERY;
  if (due < 0) return -1;
  return due <= at ? 0 : (int)((due - at) * 1000) + 1;
}

static void serve_terminal(struct app *a) {
  enum request request = a->drive.state.request;
  a->drive.state.request = REQUEST_NONE;
  if (request == REQUEST_SUSPEND) term_suspend();
  if (request == REQUEST_REDRAW) term_redraw();
}

static void take_key(struct app *a, int key) {
  bool played = a->drive.state.playing;
  a->dirty = true;
  if (key == TERM_SUSPEND) {
    term_suspend();
  } else if (key != KEYS_RESIZE) {
    drive_key(&a->drive, key);
    serve_terminal(a);
  }
  if (!played) a->played = now(); /* the first moment comes after a full pause */
}

/* What time brings: another moment, another step in the file. A trace is looked at on a key too, if it has been a while. */
static void take_time(struct app *a) {
  double at = now();
  if (at - a->looked >= LOOK_EVERY) {
    a->dirty |= drive_refresh(&a->drive);
    a->looked = at;
  }
  if (a->drive.state.playing && at - a->played >= 1 / state_pace(&a->drive.state)) {
    drive_play(&a->drive);
    a->played = at;
    a->dirty = true;
  }
}

static kvs_status loop(struct app *a, kvs_error *err) {
  while (!a->drive.state.quit) {
    kvs_status status = a->dirty ? draw(a, err) : KVS_OK;
    if (status != KVS_OK) return status;
    int key = term_key(patience(a));
    take_time(a);
    for (int taken = 0; key != TERM_NOTHING; key = term_key(0)) {
      if (key == TERM_GONE) return kvs_fail(err, KVS_ERR_IO, "the terminal has gone");
      take_key(a, key);
      if (a->drive.state.quit || ++taken == KEYS_AT_ONCE) break;
    }
  }
  return KVS_OK;
}

kvs_status app_run(struct look *look, const struct app_options *options, kvs_error *err) {
  struct app a = {.dirty = true, .looked = now()};
  kvs_status status = drive_init(&a.drive, look, options->name, options->start, err);
  a.drive.cells.ascii = options->ascii || !term_utf8();
  if (status == KVS_OK) status = term_open(options->depth, err);
  if (status == KVS_OK) status = loop(&a, err);
  term_close();
  drive_free(&a.drive);
  return status;
}
