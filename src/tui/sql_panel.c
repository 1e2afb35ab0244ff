/* sql_panel.c: asks the trace a question in SQL and keeps the answer. */
#include "tui/sql_panel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "base/clock.h"
#include "tui/cells.h"

/* A single instruction cannot be interrupted, so no value may be so long that one takes noticeable time. The longest BLOB of a
 * trace, logits over a large vocabulary, has half a mebibyte. */
#define LONGEST_VALUE (4 << 20)

#define KEPT_TEXT 512 /* bytes of a text */
#define KEPT_BLOB 64  /* and of a BLOB */
#define DECIMALS 6
#define MEMORY (96 << 20) /* for all values */

struct sql_panel *sql_panel_create(struct sqlite3 *db) {
  struct sql_panel *p = calloc(1, sizeof *p);
  if (p) p->db = db;
  return p;
}

static void forget_rows(struct sql_panel *p) {
  free(p->column);
  free(p->value);
  free(p->order);
  free(p->bytes);
  p->column = NULL;
  p->value = NULL;
  p->order = NULL;
  p->bytes = NULL;
  p->columns = p->rows = 0;
  p->value_room = p->bytes_used = p->bytes_room = 0;
  p->ending = SQL_COMPLETE;
}

void sql_panel_free(struct sql_panel *p) {
  if (!p) return;
  forget_rows(p);
  for (int i = 0; i < p->asked; i++) free(p->history[i]);
  free(p->draft);
  free(p->query);
  free(p);
}

/* ---- taking rows ---------------------------------------------------------------------------------------------------- */

/* Makes room for `more` elements behind `used`; false when out of memory. */
static bool grow(void *block, size_t *room, size_t used, size_t more, size_t size) {
  if (used + more <= *room) return true;
  size_t larger = *room * 2 > used + more ? *room * 2 : used + more + 1024;
  void **pointer = block, *moved = realloc(*pointer, larger * size);
  if (!moved) return false;
  *pointer = moved;
  *room = larger;
  return true;
}

static bool keep_bytes(struct sql_panel *p, struct sql_value *value, const void *bytes, int length, int most) {
  int kept = bytes ? length < most ? length : most : 0;
  if (!grow(&p->bytes, &p->bytes_room, p->bytes_used, (size_t)kept + 1, 1)) return false;
  value->bytes.at = p->bytes_used;
  value->bytes.kept = kept;
  value->bytes.length = length;
  if (kept) memcpy(p->bytes + p->bytes_used, bytes, (size_t)kept);
  p->bytes_used += (size_t)kept;
  return true;
}

static bool take_value(struct sql_panel *p, sqlite3_stmt *s, int c, struct sql_value *value) {
  *value = (struct sql_value){.type = SQL_NULL};
  switch (sqlite3_column_type(s, c)) {
  case SQLITE_INTEGER:
    value->type = SQL_INTEGER;
    value->integer = sqlite3_column_int64(s, c);
    return true;
  case SQLITE_FLOAT:
    value->type = SQL_REAL;
    value->real = sqlite3_column_double(s, c);
    return true;
  case SQLITE_TEXT: {
    value->type = SQL_TEXT;
    const void *text = sqlite3_column_text(s, c);
    return keep_bytes(p, value, text, sqlite3_column_bytes(s, c), KEPT_TEXT);
  }
  case SQLITE_BLOB: {
    value->type = SQL_BLOB;
    const void *blob = sqlite3_column_blob(s, c);
    return keep_bytes(p, value, blob, sqlite3_column_bytes(s, c), KEPT_BLOB);
  }
  default:
    return true;
  }
}

/* How many decimals a real needs to six digits; 0 for one that is written with an exponent. */
static int decimals_of(double real) {
  char text[32];
  snprintf(text, sizeof text, "%.6g", real);
  const char *point = strchr(text, '.');
  if (!point || strchr(text, 'e')) return 0;
  return (int)strlen(point + 1) < DECIMALS ? (int)strlen(point + 1) : DECIMALS;
}

static void widen(struct sql_column *column, const char *text) {
  int width = text_columns(text);
  if (width > SQL_WIDTH_MOST) width = SQL_WIDTH_MOST;
  if (width > column->width) column->width = width;
}

static bool take_row(struct sql_panel *p, sqlite3_stmt *s) {
  size_t used = (size_t)p->rows * (size_t)p->columns;
  if (!grow(&p->value, &p->value_room, used, (size_t)p->columns, sizeof *p->value)) return false;
  for (int c = 0; c < p->columns; c++) {
    struct sql_value *value = p->value + used + c;
    struct sql_column *column = p->column + c;
    if (!take_value(p, s, c, value)) return false;
    if (value->type == SQL_TEXT || value->type == SQL_BLOB) column->number = false;
    int decimals = value->type == SQL_REAL ? decimals_of(value->real) : 0;
    if (decimals > column->decimals) column->decimals = decimals;
  }
  p->rows++;
  return true;
}

static bool take_header(struct sql_panel *p, sqlite3_stmt *s) {
  forget_rows(p);
  int columns = sqlite3_column_count(s);
  p->column = calloc((size_t)columns + 1, sizeof *p->column);
  if (!p->column) return false;
  p->columns = columns;
  for (int c = 0; c < columns; c++) {
    const char *name = sqlite3_column_name(s, c);
    snprintf(p->column[c].name, sizeof p->column[c].name, "%s", name ? name : "?");
    p->column[c].number = true;
    widen(&p->column[c], p->column[c].name);
  }
  return true;
}

/* All rows of one statement, or as many as are kept. Returns SQLite's code; SQLITE_DONE also when it was cut short. */
static int take_rows(struct sql_panel *p, sqlite3_stmt *s) {
  if (!take_header(p, s)) return SQLITE_NOMEM;
  int result;
  while ((result = sqlite3_step(s)) == SQLITE_ROW) {
    size_t memory = p->bytes_used + (size_t)p->rows * (size_t)p->columns * sizeof *p->value;
    if (p->rows == SQL_ROWS_MOST || memory > MEMORY) {
      p->ending = p->rows == SQL_ROWS_MOST ? SQL_AT_MOST : SQL_FULL;
      return SQLITE_DONE;
    }
    if (!take_row(p, s)) return SQLITE_NOMEM;
  }
  if (result == SQLITE_INTERRUPT) {
    p->ending = SQL_STOPPED;
    return SQLITE_DONE;
  }
  return result;
}

/* ---- asking --------------------------------------------------------------------------------------------------------- */

/* Words for what SQLite answered; `begin` is where in the query the statement stands. */
static void fail(struct sql_panel *p, int result, int begin) {
  int offset = sqlite3_error_offset(p->db);
  const char *said = sqlite3_errmsg(p->db);
  if (result == SQLITE_READONLY) {
    said = "a trace is only read here, and this statement writes; work on a copy with sqlite3";
    offset = 0;
  } else if (result == SQLITE_NOMEM) {
    said = "out of memory";
  } else if (result == SQLITE_INTERRUPT) {
    said = "stopped";
  } else if (result == SQLITE_ERROR && strcmp(said, "incomplete input") == 0) {
    offset = (int)strlen(p->query) - begin; /* SQLite gives no place for the end */
  }
  snprintf(p->error, sizeof p->error, "%s", said);
  bool within = offset >= 0 && (size_t)(begin + offset) <= strlen(p->query);
  p->error_offset = within ? begin + offset : -1;
  forget_rows(p);
  p->outcome = SQL_FAILED;
}

static bool run_statement(struct sql_panel *p, const char *sql, const char **rest, bool *any) {
  sqlite3_stmt *statement = NULL;
  int begin = (int)(sql - p->query);
  int result = sqlite3_prepare_v2(p->db, sql, -1, &statement, rest);
  if (result != SQLITE_OK) {
    fail(p, result, begin);
    return false;
  }
  if (!statement) return true; /* blanks or a comment */
  *any = true;
  result = sqlite3_stmt_readonly(statement) ? take_rows(p, statement) : SQLITE_READONLY;
  if (result != SQLITE_DONE) fail(p, result, begin + (int)strspn(sql, " \t\n"));
  sqlite3_finalize(statement);
  return result == SQLITE_DONE && p->ending != SQL_STOPPED;
}

/* All rows are there: the order in which they came, and how wide each column is. */
static void lay_out(struct sql_panel *p) {
  p->order = malloc(((size_t)p->rows + 1) * sizeof *p->order);
  if (!p->order) {
    fail(p, SQLITE_NOMEM, 0);
    return;
  }
  for (int row = 0; row < p->rows; row++) {
    p->order[row] = row;
    for (int c = 0; c < p->columns; c++) {
      char text[4 * SQL_WIDTH_MOST + 8];
      sql_panel_text(p, row, c, text, sizeof text);
      widen(&p->column[c], text);
    }
  }
}

static void run_query(struct sql_panel *p) {
  bool any = false;
  p->outcome = SQL_ANSWERED;
  for (const char *sql = p->query, *rest; *sql; sql = rest) {
    if (!run_statement(p, sql, &rest, &any)) break;
    if (rest == sql) break;
  }
  if (!any && p->outcome == SQL_ANSWERED) p->outcome = SQL_NOTHING_ASKED;
  if (p->outcome == SQL_ANSWERED) lay_out(p);
}

static void remember(struct sql_panel *p, const char *query) {
  if (!query[strspn(query, " \t\n")]) return;
  if (p->asked > 0 && strcmp(p->history[0], query) == 0) return;
  char *copy = strdup(query);
  if (!copy) return;
  if (p->asked == SQL_HISTORY) free(p->history[--p->asked]);
  memmove(p->history + 1, p->history, (size_t)p->asked * sizeof *p->history);
  p->history[0] = copy;
  p->asked++;
}

static int poll_interrupted(void *context) {
  struct sql_panel *p = context;
  return p->interrupted && p->interrupted(p->context);
}

void sql_panel_ask(struct sql_panel *p, const char *query) {
  remember(p, query);
  forget_rows(p);
  free(p->query);
  p->query = strdup(query);
  p->error[0] = '\0';
  p->error_offset = -1;
  p->outcome = SQL_FAILED;
  if (!p->query) {
    snprintf(p->error, sizeof p->error, "out of memory");
    return;
  }
  double began = kvs_now();
  int longest = sqlite3_limit(p->db, SQLITE_LIMIT_LENGTH, LONGEST_VALUE);
  sqlite3_progress_handler(p->db, SQL_POLL_EVERY, poll_interrupted, p);
  run_query(p);
  sqlite3_progress_handler(p->db, 0, NULL, NULL);
  sqlite3_limit(p->db, SQLITE_LIMIT_LENGTH, longest);
  /* A BEGIN that stayed open would show the trace as it was then for ever. */
  if (!sqlite3_get_autocommit(p->db)) sqlite3_exec(p->db, "ROLLBACK", NULL, NULL, NULL);
  p->seconds = kvs_now() - began;
}

/* ---- history -------------------------------------------------------------------------------------------------------- */

const char *sql_panel_recall(const struct sql_panel *p, int at) {
  if (at == 0) return p->draft ? p->draft : "";
  return at > 0 && at <= p->asked ? p->history[at - 1] : NULL;
}

void sql_panel_keep_draft(struct sql_panel *p, const char *line) {
  free(p->draft);
  p->draft = strdup(line);
}
