/* floats.c: floats(blob), a table-valued function that makes lines out of a BLOB of little-endian float32.
 *
 *   SELECT i, value FROM floats(X'0000803F0000C03F');            (0, 1.0), (1, 1.5)
 *   SELECT i, value, second FROM floats(scores, weights);        two vectors side by side; the shorter ends in NULLs
 *   SELECT h.step, f.value FROM head_step AS h, floats(h.weights) AS f WHERE f.i = 0;
 *
 * Lines come in order of i, so ORDER BY i costs nothing, and `i = …` goes straight to its line. NaN comes out as NULL.
 *
 * kvstep_attended(scores, weights, schema, run, layer, step) is the same for the fast view `attention`, with one column more:
 * token_text, of the token that cache row i came from. It is looked up only where it is asked for.
 */
#include "trace/sql/row_text.h"

#include <stdint.h>
#include <string.h>

SQLITE_EXTENSION_INIT3

enum { COLUMN_I, COLUMN_VALUE, COLUMN_SECOND, COLUMN_A, COLUMN_B, COLUMN_OF, COLUMN_TEXT = COLUMN_OF + KVS_OF_COUNT };
enum { PLAN_B = 1, PLAN_I = 2, PLAN_OF = 4 }; /* bits of idxNum: the arguments after the first that xFilter gets */

typedef struct table {
  sqlite3_vtab base;
  int attended; /* this is kvstep_attended */
  kvs_row_source source;
} table;

typedef struct cursor {
  sqlite3_vtab_cursor base;
  sqlite3_value *a, *b; /* our copies: the arguments live only during xFilter */
  const unsigned char *bytes_a, *bytes_b;
  sqlite3_int64 count_a, count_b, i, end;
  sqlite3_value *of[KVS_OF_COUNT];
  kvs_row_texts *texts;
} cursor;

/* data: not NULL for kvstep_attended. */
static int connect(sqlite3 *db, void *data, int argc, const char *const *argv, sqlite3_vtab **out, char **message) {
  (void)argc, (void)argv, (void)message;
  int rc = sqlite3_declare_vtab(
      db, data ? "CREATE TABLE attended (i INTEGER, value REAL, second REAL, a HIDDEN, b HIDDEN, schema HIDDEN, "
                 "run HIDDEN, layer HIDDEN, step HIDDEN, token_text)"
               : "CREATE TABLE floats (i INTEGER, value REAL, second REAL, a HIDDEN, b HIDDEN)");
  if (rc != SQLITE_OK) return rc;
  rc = sqlite3_vtab_config(db, SQLITE_VTAB_INNOCUOUS);
  if (rc != SQLITE_OK) return rc;
  table *t = sqlite3_malloc(sizeof *t);
  if (!t) return SQLITE_NOMEM;
  memset(t, 0, sizeof *t);
  t->attended = data != NULL;
  t->source.db = db;
  *out = &t->base;
  return SQLITE_OK;
}

static int disconnect(sqlite3_vtab *base) {
  kvs_row_source_forget(&((table *)base)->source);
  sqlite3_free(base);
  return SQLITE_OK;
}

static int best_index(sqlite3_vtab *base, sqlite3_index_info *info) {
  int at[COLUMN_TEXT];
  for (int c = 0; c < COLUMN_TEXT; c++) at[c] = -1;
  for (int k = 0; k < info->nConstraint; k++) {
    const struct sqlite3_index_constraint *constraint = &info->aConstraint[k];
    int column = constraint->iColumn;
    if (constraint->op != SQLITE_INDEX_CONSTRAINT_EQ || column < 0 || column >= COLUMN_TEXT) continue;
    if (constraint->usable)
      at[column] = k;
    else if (column >= COLUMN_A)
      return SQLITE_CONSTRAINT; /* the arguments must be known before the loop begins */
  }
  int needed = ((table *)base)->attended ? COLUMN_TEXT - 1 : COLUMN_A;
  for (int c = COLUMN_A; c <= needed; c++)
    if (at[c] < 0) {
      base->zErrMsg = needed == COLUMN_A ? sqlite3_mprintf("floats() needs a BLOB: floats(blob) or floats(blob, blob)")
                                         : sqlite3_mprintf("kvstep_attended() needs six arguments");
      return SQLITE_ERROR;
    }
  int arguments = 0;
  info->idxNum = 0;
  static const struct {
    int column, plan;
  } order[] = {{COLUMN_A, 0},
               {COLUMN_B, PLAN_B},
               {COLUMN_OF + KVS_OF_SCHEMA, PLAN_OF},
               {COLUMN_OF + KVS_OF_RUN, PLAN_OF},
               {COLUMN_OF + KVS_OF_LAYER, PLAN_OF},
               {COLUMN_OF + KVS_OF_STEP, PLAN_OF},
               {COLUMN_I, PLAN_I}};
  for (size_t k = 0; k < sizeof order / sizeof *order; k++) {
    int c = at[order[k].column];
    if (c < 0) continue;
    info->aConstraintUsage[c].argvIndex = ++arguments;
    info->aConstraintUsage[c].omit = order[k].column != COLUMN_I; /* i = '3' is compared once more by SQLite's rules */
    info->idxNum |= order[k].plan;
  }
  info->estimatedRows = info->idxNum & PLAN_I ? 1 : 256;
  info->estimatedCost = info->idxNum & PLAN_I ? 1 : 256;
  if (info->nOrderBy == 1 && info->aOrderBy[0].iColumn == COLUMN_I && !info->aOrderBy[0].desc)
    info->orderByConsumed = 1;
  return SQLITE_OK;
}

static int open(sqlite3_vtab *base, sqlite3_vtab_cursor **out) {
  (void)base;
  cursor *c = sqlite3_malloc(sizeof *c);
  if (!c) return SQLITE_NOMEM;
  memset(c, 0, sizeof *c);
  *out = &c->base;
  return SQLITE_OK;
}

static void forget(cursor *c) {
  sqlite3_value_free(c->a);
  sqlite3_value_free(c->b);
  c->a = c->b = NULL;
  for (int i = 0; i < KVS_OF_COUNT; i++) {
    sqlite3_value_free(c->of[i]);
    c->of[i] = NULL;
  }
  if (c->texts) kvs_row_texts_forget(c->texts);
  c->bytes_a = c->bytes_b = NULL;
  c->count_a = c->count_b = c->i = c->end = 0;
}

static int close(sqlite3_vtab_cursor *base) {
  cursor *c = (cursor *)base;
  forget(c);
  sqlite3_free(c->texts);
  sqlite3_free(c);
  return SQLITE_OK;
}

/* Keeps a copy of one argument. NULL is an empty vector; what is neither NULL nor BLOB is an error. */
static int take(cursor *c, sqlite3_value *argument, sqlite3_value **copy, const unsigned char **bytes,
                sqlite3_int64 *count) {
  int type = sqlite3_value_type(argument);
  if (type == SQLITE_NULL) return SQLITE_OK;
  if (type != SQLITE_BLOB) {
    sqlite3_free(c->base.pVtab->zErrMsg);
    c->base.pVtab->zErrMsg = sqlite3_mprintf("floats() needs a BLOB of float32 numbers");
    return SQLITE_ERROR;
  }
  *copy = sqlite3_value_dup(argument);
  if (!*copy) return SQLITE_NOMEM;
  *bytes = sqlite3_value_blob(*copy);
  *count = sqlite3_value_bytes(*copy) / 4;
  return *bytes || *count == 0 ? SQLITE_OK : SQLITE_NOMEM;
}

static int filter(sqlite3_vtab_cursor *base, int plan, const char *text, int argc, sqlite3_value **argv) {
  (void)text, (void)argc;
  cursor *c = (cursor *)base;
  forget(c);
  int next = 0;
  int rc = take(c, argv[next++], &c->a, &c->bytes_a, &c->count_a);
  if (rc == SQLITE_OK && plan & PLAN_B) rc = take(c, argv[next++], &c->b, &c->bytes_b, &c->count_b);
  if (rc != SQLITE_OK) return rc;
  for (int i = 0; i < KVS_OF_COUNT && plan & PLAN_OF; i++)
    if (!(c->of[i] = sqlite3_value_dup(argv[next++]))) return SQLITE_NOMEM;
  c->end = c->count_a > c->count_b ? c->count_a : c->count_b;
  if (plan & PLAN_I) {
    sqlite3_value *wanted = argv[next];
    sqlite3_int64 i = sqlite3_value_int64(wanted);
    if (sqlite3_value_type(wanted) == SQLITE_NULL || i < 0 || i >= c->end)
      i = c->end;
    else
      c->end = i + 1;
    c->i = i;
  }
  return SQLITE_OK;
}

static int next(sqlite3_vtab_cursor *base) {
  ((cursor *)base)->i++;
  return SQLITE_OK;
}

static int eof(sqlite3_vtab_cursor *base) {
  const cursor *c = (const cursor *)base;
  return c->i >= c->end;
}

static void result_float(sqlite3_context *context, const unsigned char *bytes, sqlite3_int64 count, sqlite3_int64 i) {
  if (i >= count) return;
  const unsigned char *b = bytes + 4 * i;
  uint32_t bits = (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
  float value;
  memcpy(&value, &bits, sizeof value);
  sqlite3_result_double(context, value); /* makes NULL of a NaN */
}

static int result_text(sqlite3_context *context, cursor *c) {
  kvs_row_texts *texts = c->texts;
  if (!texts) {
    texts = c->texts = sqlite3_malloc(sizeof *texts);
    if (!texts) return SQLITE_NOMEM;
    texts->count = 0;
  }
  if (c->i < texts->first || c->i >= texts->first + texts->count) {
    table *t = (table *)c->base.pVtab;
    int rc = kvs_row_texts_fill(texts, &t->source, c->of, c->i, c->end);
    if (rc != SQLITE_OK) {
      sqlite3_free(t->base.zErrMsg);
      t->base.zErrMsg = sqlite3_mprintf("%s", sqlite3_errmsg(t->source.db));
      return rc;
    }
  }
  if (texts->text[c->i - texts->first]) sqlite3_result_value(context, texts->text[c->i - texts->first]);
  return SQLITE_OK;
}

static int column(sqlite3_vtab_cursor *base, sqlite3_context *context, int which) {
  cursor *c = (cursor *)base;
  switch (which) {
  case COLUMN_I:
    sqlite3_result_int64(context, c->i);
    break;
  case COLUMN_VALUE:
    result_float(context, c->bytes_a, c->count_a, c->i);
    break;
  case COLUMN_SECOND:
    result_float(context, c->bytes_b, c->count_b, c->i);
    break;
  case COLUMN_A:
    if (c->a) sqlite3_result_value(context, c->a);
    break;
  case COLUMN_B:
    if (c->b) sqlite3_result_value(context, c->b);
    break;
  case COLUMN_TEXT:
    return result_text(context, c);
  default:
    if (c->of[which - COLUMN_OF]) sqlite3_result_value(context, c->of[which - COLUMN_OF]);
  }
  return SQLITE_OK;
}

static int rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *id) {
  *id = ((const cursor *)base)->i;
  return SQLITE_OK;
}

int kvs_sql_floats(sqlite3 *db) {
  /* Without xCreate the module is a function only: no CREATE VIRTUAL TABLE. */
  static const sqlite3_module module = {
      .xConnect = connect,
      .xBestIndex = best_index,
      .xDisconnect = disconnect,
      .xOpen = open,
      .xClose = close,
      .xFilter = filter,
      .xNext = next,
      .xEof = eof,
      .xColumn = column,
      .xRowid = rowid,
  };
  static char attended;
  int rc = sqlite3_create_module_v2(db, "floats", &module, NULL, NULL);
  return rc == SQLITE_OK ? sqlite3_create_module_v2(db, "kvstep_attended", &module, &attended, NULL) : rc;
}
