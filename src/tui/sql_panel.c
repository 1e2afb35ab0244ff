/* sql_panel.c: asks the trace a question in SQL and keeps the answer. */
#include "tui/sql_panel.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <sqlite3.h>

#include "tui/cells.h"

/* A single instruction cannot be interrupted, so no value may be so long that one takes noticeable time. The longest BLOB of a
 * trace, logits over a large vocabulary, has half a mebibyte. */
#define LONGEST_VALUE (4 << 20)

#define KEPT_TEXT 512 /* bytes of a text */
#define KEPT_BLOB 64  /* and of a BLOB */
#define BLOB_SHOWN 8  /* as `kvstep sql` does */
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

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

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
  double began = now();
  int longest = sqlite3_limit(p->db, SQLITE_LIMIT_LENGTH, LONGEST_VALUE);
  sqlite3_progress_handler(p->db, SQL_POLL_EVERY, poll_interrupted, p);
  run_query(p);
  sqlite3_progress_handler(p->db, 0, NULL, NULL);
  sqlite3_limit(p->db, SQLITE_LIMIT_LENGTH, longest);
  /* A BEGIN that stayed open would show the trace as it was then for ever. */
  if (!sqlite3_get_autocommit(p->db)) sqlite3_exec(p->db, "ROLLBACK", NULL, NULL, NULL);
  p->seconds = now() - began;
}

/* ---- values --------------------------------------------------------------------------------------------------------- */

const struct sql_value *sql_panel_value(const struct sql_panel *p, int row, int column) {
  return p->value + (size_t)p->order[row] * (size_t)p->columns + column;
}

/* What does not fit is cut at a character and ends in `…`. */
static void text_of_bytes(const struct sql_panel *p, const struct sql_value *value, char *text, size_t size) {
  const char *bytes = p->bytes + value->bytes.at;
  size_t used = 0;
  int i = 0;
  for (; i < value->bytes.kept && used + 6 < size; i++) {
    const char *escape = bytes[i] == '\n' ? "\\n" : bytes[i] == '\t' ? "\\t" : bytes[i] == '\0' ? "\\0" : NULL;
    if (escape)
      used += (size_t)snprintf(text + used, size - used, "%s", escape);
    else
      text[used++] = bytes[i];
  }
  bool cut = i < value->bytes.length;
  bool within = cut && i > 0 && ((unsigned char)bytes[i - 1] & 0x80) &&
                (i == value->bytes.kept || ((unsigned char)bytes[i] & 0xC0) == 0x80);
  if (within) { /* back to the beginning of the last character */
    while (used > 0 && ((unsigned char)text[used - 1] & 0xC0) == 0x80) used--;
    used -= used > 0;
  }
  snprintf(text + used, size - used, "%s", cut ? "…" : "");
}

/* As long as the column's decimals leave a number its digits. */
static void text_of_real(double real, int decimals, char *text, size_t size) {
  snprintf(text, size, "%.6g", real);
  if (decimals > 0 && isfinite(real) && !strchr(text, 'e')) snprintf(text, size, "%.*f", decimals, real);
}

void sql_panel_text(const struct sql_panel *p, int row, int column, char *text, size_t size) {
  const struct sql_value *value = sql_panel_value(p, row, column);
  int used;
  switch (value->type) {
  case SQL_NULL:
    snprintf(text, size, "NULL");
    break;
  case SQL_INTEGER:
    snprintf(text, size, "%lld", value->integer);
    break;
  case SQL_REAL:
    text_of_real(value->real, p->column[column].decimals, text, size);
    break;
  case SQL_TEXT:
    text_of_bytes(p, value, text, size);
    break;
  case SQL_BLOB:
    used = snprintf(text, size, "x'");
    for (int i = 0; i < value->bytes.kept && i < BLOB_SHOWN; i++)
      used += snprintf(text + used, size - (size_t)used, "%02x", (unsigned char)p->bytes[value->bytes.at + (size_t)i]);
    snprintf(text + used, size - (size_t)used, value->bytes.length > BLOB_SHOWN ? "…' %d bytes" : "'",
             value->bytes.length);
    break;
  }
}

bool sql_panel_dial(const struct sql_panel *p, int row, const char *name, int *number) {
  for (int c = 0; row < p->rows && c < p->columns; c++) {
    if (strcasecmp(p->column[c].name, name) != 0) continue;
    const struct sql_value *value = sql_panel_value(p, row, c);
    if (value->type != SQL_INTEGER) return false;
    long long whole = value->integer;
    *number = whole > INT_MAX ? INT_MAX : whole < INT_MIN ? INT_MIN : (int)whole;
    return true;
  }
  return false;
}

/* ---- order ---------------------------------------------------------------------------------------------------------- */

struct sorting {
  const struct sql_panel *panel;
  const int *place; /* where a row was before */
  int column;
  bool down;
};

static int kind_of(const struct sql_value *value) { return value->type == SQL_REAL ? SQL_INTEGER : (int)value->type; }

static int compare_bytes(const struct sql_panel *p, const struct sql_value *a, const struct sql_value *b) {
  int shorter = a->bytes.kept < b->bytes.kept ? a->bytes.kept : b->bytes.kept;
  int result = memcmp(p->bytes + a->bytes.at, p->bytes + b->bytes.at, (size_t)shorter);
  return result ? result : (a->bytes.length > b->bytes.length) - (a->bytes.length < b->bytes.length);
}

/* Two that are not NULL. */
static int compare(const struct sql_panel *p, const struct sql_value *a, const struct sql_value *b) {
  if (kind_of(a) != kind_of(b)) return kind_of(a) < kind_of(b) ? -1 : 1;
  if (a->type == SQL_TEXT || a->type == SQL_BLOB) return compare_bytes(p, a, b);
  if (a->type == SQL_INTEGER && b->type == SQL_INTEGER) return (a->integer > b->integer) - (a->integer < b->integer);
  double x = a->type == SQL_REAL ? a->real : (double)a->integer;
  double y = b->type == SQL_REAL ? b->real : (double)b->integer;
  return (x > y) - (x < y);
}

static int compare_rows(const void *left, const void *right, void *context) {
  const struct sorting *sorting = context;
  const struct sql_panel *p = sorting->panel;
  int i = *(const int *)left, j = *(const int *)right;
  const struct sql_value *a = p->value + (size_t)i * (size_t)p->columns + sorting->column;
  const struct sql_value *b = p->value + (size_t)j * (size_t)p->columns + sorting->column;
  int result;
  if (a->type == SQL_NULL || b->type == SQL_NULL)
    result = (a->type == SQL_NULL) - (b->type == SQL_NULL);
  else
    result = sorting->down ? compare(p, b, a) : compare(p, a, b);
  return result ? result : sorting->place[i] - sorting->place[j]; /* qsort_r alone is not stable */
}

bool sql_panel_sort(struct sql_panel *p, int column, bool down) {
  if (column < 0 || column >= p->columns || p->rows == 0) return true;
  int *place = malloc((size_t)p->rows * sizeof *place);
  if (!place) return false;
  for (int i = 0; i < p->rows; i++) place[p->order[i]] = i;
  struct sorting sorting = {p, place, column, down};
  qsort_r(p->order, (size_t)p->rows, sizeof *p->order, compare_rows, &sorting);
  free(place);
  return true;
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
