/* script.c: replays keystrokes from a file. */
#include "tui/script.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tui/drive.h"
#include "tui/sql_panel.h"

/* Where in which file, for messages. */
struct line {
  const char *path;
  int number;
  struct patience *patience;
};

/* Nobody sits at the keys to stop a question that has no end. */
struct patience {
  long long most, left; /* instructions */
};

static bool loses_patience(void *context) {
  struct patience *patience = context;
  patience->left -= SQL_POLL_EVERY;
  return patience->left < 0;
}

/* After every word and command: whether a question took too long; the next one has as long again. */
static kvs_status check_patience(const struct line *at, kvs_error *err) {
  bool lost = at->patience->left < 0;
  at->patience->left = at->patience->most;
  if (!lost) return KVS_OK;
  return kvs_fail(
      err, KVS_ERR_INPUT,
      "%s:%d: the question was stopped after %lld million instructions of SQLite; `kvstep sql` sets no limit", at->path,
      at->number, at->patience->most / 1000000);
}

static kvs_status play_word(struct drive *d, const char *word, const struct line *at, kvs_error *err) {
  enum action action = action_named(word);
  int key = action_key(word);
  if (key) {
    drive_key(d, key);
  } else if (action != ACTION_NONE) {
    drive_action(d, action);
  } else {
    return kvs_fail(
        err, KVS_ERR_INPUT,
        "%s:%d: there is no key and no action `%s`; the help (?) lists the keys, and on 110 columns the actions",
        at->path, at->number, word);
  }
  drive_wait(d);
  d->state.request = REQUEST_NONE; /* there is no terminal to suspend or redraw */
  return check_patience(at, err);
}

static kvs_status play_command(struct drive *d, const char *line, const struct line *at, kvs_error *err) {
  drive_command(d, line);
  drive_wait(d);
  d->state.request = REQUEST_NONE;
  if (d->state.message_is_error && *d->state.message)
    return kvs_fail(err, KVS_ERR_INPUT, "%s:%d: %s", at->path, at->number, d->state.message);
  return check_patience(at, err);
}

static kvs_status play_line(struct drive *d, char *line, const struct line *at, kvs_error *err) {
  size_t length = strlen(line);
  while (length && (line[length - 1] == '\n' || line[length - 1] == '\r')) line[--length] = '\0';
  bool typing = state_is_typing(&d->state);
  if (line[0] == ':' && line[1] && !typing) return play_command(d, line + 1, at, err);
  if (line[0] == ';' && line[1] && line[1] != ' ' && !typing) { /* a question, as it would be typed */
    char command[LINE_SIZE];
    snprintf(command, sizeof command, "sql %s", line + 1);
    return play_command(d, command, at, err);
  }
  kvs_status status = KVS_OK;
  for (char *word; status == KVS_OK && !d->state.quit && (word = strsep(&line, " \t"));) {
    if (*word == '#') break;
    if (*word) status = play_word(d, word, at, err);
  }
  return status;
}

static kvs_status play_file(struct drive *d, FILE *file, const char *path, struct patience *patience, kvs_error *err) {
  struct line at = {path, 0, patience};
  char *line = NULL;
  size_t room = 0;
  kvs_status status = KVS_OK;
  errno = 0;
  while (status == KVS_OK && !d->state.quit && getline(&line, &room, file) >= 0) {
    at.number++;
    status = play_line(d, line, &at, err);
  }
  if (status == KVS_OK && ferror(file)) status = kvs_fail(err, KVS_ERR_IO, "%s: %s", path, strerror(errno));
  free(line);
  return status;
}

kvs_status script_run(struct look *look, const struct script_options *options, kvs_error *err) {
  struct drive drive = {0};
  FILE *file = fopen(options->path, "r");
  if (!file) return kvs_fail(err, KVS_ERR_IO, "%s: %s", options->path, strerror(errno));
  kvs_status status = drive_init(&drive, look, options->name, options->start, err);
  struct patience patience = {.most = options->patience > 0 ? options->patience : SCRIPT_PATIENCE};
  patience.left = patience.most;
  if (drive.sql) drive.sql->interrupted = loses_patience, drive.sql->context = &patience;
  drive.cells.ascii = options->ascii;
  if (status == KVS_OK) status = drive_set_model(&drive, options->model, err);
  if (options->depth >= 0) drive.depth = (enum depth)options->depth;
  if (status == KVS_OK) drive_set_live(&drive, options->live, options->no_live);
  if (status == KVS_OK && !drive_draw(&drive, options->rows, options->columns))
    status = kvs_fail_memory(err, "drawing the screen");
  if (status == KVS_OK) status = play_file(&drive, file, options->path, &patience, err);
  fclose(file);
  drive_free(&drive);
  return status;
}
