/* drawn.h: a trace opened without a terminal, and what is then on the screen, for the tests of the views. */
#ifndef KVS_TESTS_DRAWN_H
#define KVS_TESTS_DRAWN_H

#include "trace_maker.h"

#include <sqlite3.h>

#include "study/look/look.h"
#include "tui/drive.h"
#include "tui/view.h"

static struct look *look;
static struct drive drive;

static UNUSED bool try_open(const char *path, const struct start *start) {
  kvs_error err;
  sqlite3 *db;
  if (kvs_trace_read(path, &db, &err) != KVS_OK) return false;
  if (look_open(db, &look, &err) != KVS_OK) return false;
  if (drive_init(&drive, look, path, start, &err) == KVS_OK) return true;
  drive_free(&drive);
  look_close(look);
  look = NULL;
  return false;
}

static UNUSED void open_at(const char *path, int run, int step, int layer, int head) {
  if (!try_open(path, &(struct start){run, step, layer, head})) fail_msg("%s cannot be opened", path);
}

enum { STEPS = 8 };

/* Eight steps of two layers of two heads, a correct run of the tokens a to h; then `changes` in SQL. Opened at step 5, layer 1, head 0. */
static UNUSED void bend(const char *changes) {
  unlink(in_folder("t.kvt"));
  make_trace(in_folder("t.kvt"), STEPS, &(kvs_log){.level = KVS_LOG_FULL, .last_step = -1});
  alter(in_folder("t.kvt"), changes);
  open_at(in_folder("t.kvt"), 1, 5, 1, 0);
}

static UNUSED int shut(void **state) {
  (void)state;
  if (look) drive_free(&drive);
  if (look) look_close(look);
  look = NULL;
  return 0;
}

static UNUSED void draw(int columns, int rows) { assert_true(drive_draw(&drive, rows, columns)); }

static UNUSED void line_text(int row, char *text, size_t size) {
  size_t used = 0;
  *text = '\0';
  for (int column = 0; column < drive.cells.columns; column++) {
    const struct cell *cell = cells_at(&drive.cells, row, column);
    used += (size_t)snprintf(text + used, size - used, "%s", cell->text);
    assert_true(used < size);
  }
}

/* The row where this text stands, from the top; −1: nowhere. */
static UNUSED int row_of(const char *text) {
  static char line[8192];
  for (int row = 0; row < drive.cells.rows; row++) {
    line_text(row, line, sizeof line);
    if (strstr(line, text)) return row;
  }
  return -1;
}

/* All of it, each line with its end; good until the next call. */
static UNUSED const char *screen_text(void) {
  static char all[256 * 1024];
  size_t used = 0;
  for (int row = 0; row < drive.cells.rows; row++) {
    line_text(row, all + used, sizeof all - used - 1);
    used += strlen(all + used);
    all[used++] = '\n';
  }
  all[used] = '\0';
  return all;
}

static UNUSED void show(void) { fputs(screen_text(), stderr); }

static UNUSED void sees_(const char *text, int line) {
  if (strstr(screen_text(), text)) return;
  show();
  fail_msg("line %d: \"%s\" is not on the screen", line, text);
}
#define sees(text) sees_((text), __LINE__)

static UNUSED void misses_(const char *text, int line) {
  if (!strstr(screen_text(), text)) return;
  show();
  fail_msg("line %d: \"%s\" is on the screen", line, text);
}
#define misses(text) misses_((text), __LINE__)

#endif
