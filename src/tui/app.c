/* app.c: the loop: a key or a moment's time, the next state, the screen. */
#include "tui/app.h"

#include "base/clock.h"
#include "study/live/live.h"
#include "tui/drive.h"
#include "tui/sql_panel.h"
#include "tui/term.h"

/* How often a trace that may be growing is looked at, in seconds. */
#define LOOK_EVERY 0.25

/* Keys that are taken before the screen is drawn again: a held key must not leave the screen behind, nor freeze it. */
#define KEYS_AT_ONCE 32

/* While a question in SQL is answered: how often the keys are looked at, and when it is said that this takes a while. */
#define POLL_EVERY 0.03
#define SAY_AFTER 0.4

struct app {
  struct drive drive;
  double played, looked; /* when, last */
  bool dirty;

  double asked, polled; /* when the key came that may have asked a question; when keys were looked at since */
  bool said;
  int kept[64]; /* keys that came meanwhile; more are lost, they were pasted */
  int keeping;
  bool ending; /* a signal wants us to end: what is open is closed first */
};

/* Where the terminal's own cursor belongs: in what is typed, on the line above the last, where the screen has marked it. */
static void input_place(const struct drive *d, int *row, int *column) {
  *row = *column = -1;
  if (!state_is_typing(&d->state)) return;
  for (int c = 0; c < d->cells.columns; c++) {
    const struct cell *cell = cells_at(&d->cells, d->cells.rows - 2, c);
    if (!cell || !(cell->attributes & ATTR_REVERSE)) continue;
    *row = d->cells.rows - 2;
    *column = c;
    return;
  }
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
  double due = -1, at = kvs_now();
  if (a->drive.cells.unfinished) return 0; /* the rest of the view, as soon as no key is waiting */
  if (s->playing) due = a->played + 1 / state_pace(s);
  if (s->following && (due < 0 || a->looked + LOOK_EVERY < due)) due = a->looked + LOOK_EVERY;
  if (due < 0) return -1;
  return due <= at ? 0 : (int)((due - at) * 1000) + 1;
}

static void say_busy(struct app *a) {
  struct cells *cells = &a->drive.cells;
  cells_put_field(cells, cells_area(cells), cells->rows - 2, 0, cells->columns, ROLE_MESSAGE,
                  " SQLite is still at it; ^C or Escape stops it");
  term_put(cells, -1, -1);
  a->said = true;
}

/* ^Z or another size while SQLite works, which rests too: of another size, only that line is left on the screen. */
static void interrupt_query(struct app *a, bool suspend) {
  int rows, columns;
  if (suspend) term_suspend();
  term_size(&rows, &columns);
  struct cells *cells = &a->drive.cells;
  if (cells->rows != rows || cells->columns != columns) cells_resize(cells, rows, columns);
  say_busy(a);
}

/* Asked while SQLite works: whether ^C or Escape has come. Other keys are kept for later. The trace cannot be read now, so
 * the screen stays as it is but for one line. */
static bool wants_to_stop(void *context) {
  struct app *a = context;
  double at = kvs_now();
  if (at - a->polled < POLL_EVERY) return false;
  a->polled = at;
  if (!a->said && at - a->asked > SAY_AFTER) say_busy(a);
  for (int key; (key = term_key(0)) != TERM_NOTHING;) {
    a->ending |= key == TERM_ENDING;
    if (key == TERM_GONE || key == TERM_ENDING || action_for_key(key) == ACTION_CANCEL) return true;
    if (key == TERM_WOKEN) continue; /* what is new is looked at after the answer */
    bool suspend = key == TERM_SUSPEND || action_for_key(key) == ACTION_SUSPEND;
    if (suspend || key == KEYS_RESIZE)
      interrupt_query(a, suspend);
    else if (a->keeping < (int)(sizeof a->kept / sizeof *a->kept))
      a->kept[a->keeping++] = key;
    else if (key == KEYS_PASTED) /* its beginning may be among those that were kept */
      a->kept[a->keeping - 1] = key;
  }
  return false;
}

/* The next key: one that was kept, or one from the terminal. */
static int next_key(struct app *a, int timeout) {
  if (a->keeping == 0) return term_key(timeout);
  int key = a->kept[0];
  a->keeping--;
  for (int i = 0; i < a->keeping; i++) a->kept[i] = a->kept[i + 1];
  return key;
}

static void serve_terminal(struct app *a) {
  enum request request = a->drive.state.request;
  a->drive.state.request = REQUEST_NONE;
  if (request == REQUEST_SUSPEND) term_suspend();
  if (request == REQUEST_REDRAW) term_redraw();
}

static void take_key(struct app *a, int key) {
  if (key == TERM_WOKEN) {
    a->dirty |= live_news(&a->drive);
    return;
  }
  bool played = a->drive.state.playing;
  a->dirty = true;
  a->asked = kvs_now();
  a->said = false;
  if (key == TERM_SUSPEND) {
    term_suspend();
  } else if (key != KEYS_RESIZE) {
    drive_key(&a->drive, key);
    serve_terminal(a);
    live_news(&a->drive); /* which may have been put off while a line was typed, or a question answered */
  }
  if (!played) a->played = kvs_now(); /* the first moment comes after a full pause */
}

/* What time brings: another moment, another step in the file. A trace is looked at on a key too, if it has been a while. */
static void take_time(struct app *a) {
  double at = kvs_now();
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
  while (!a->drive.state.quit && !a->ending) {
    kvs_status status = a->dirty ? draw(a, err) : KVS_OK;
    if (status != KVS_OK) return status;
    int key = next_key(a, patience(a));
    take_time(a);
    a->dirty |= a->drive.cells.unfinished;
    for (int taken = 0; key != TERM_NOTHING; key = next_key(a, 0)) {
      if (key == TERM_GONE) return kvs_fail(err, KVS_ERR_IO, "the terminal has gone");
      if (key == TERM_ENDING) return KVS_OK;
      take_key(a, key);
      if (a->drive.state.quit || ++taken == KEYS_AT_ONCE) break;
    }
  }
  return KVS_OK;
}

kvs_status app_run(struct look *look, const struct app_options *options, int *signal, kvs_error *err) {
  struct app a = {.dirty = true, .looked = kvs_now()};
  kvs_status status = drive_init(&a.drive, look, options->name, options->start, err);
  if (a.drive.sql) {
    a.drive.sql->interrupted = wants_to_stop;
    a.drive.sql->context = &a;
  }
  if (status == KVS_OK) status = drive_set_model(&a.drive, options->model, err);
  a.drive.cells.hurried = true;
  if (options->depth >= 0) a.drive.depth = (enum depth)options->depth;
  a.drive.cells.ascii = options->ascii || !term_utf8();
  if (status == KVS_OK) drive_set_live(&a.drive, options->live, options->no_live);
  if (status == KVS_OK) status = term_open(options->depth, err);
  if (status == KVS_OK && options->live) {
    term_watch(live_wake_fd(options->live));
    term_end_gently();
  }
  if (status == KVS_OK) status = loop(&a, err);
  term_close();
  *signal = term_signal();
  drive_free(&a.drive);
  return status;
}
