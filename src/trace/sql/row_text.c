/* row_text.c: which token each cache row came from: that of the step that last wrote the row in kv_row, or, if that is not logged, of the
 * step whose cache_length_before was the row. Many rows are read by one pass over the index, where a view in SQL looks for
 * each of them in three tables. */
#include "trace/sql/row_text.h"

#include <string.h>

SQLITE_EXTENSION_INIT3

const char kvs_row_text_logged[] = "SELECT k.row, k.step, t.text FROM \"%w\".kv_row AS k LEFT JOIN \"%w\".step AS s ON "
                                   "s.run = k.run AND s.step = k.step "
                                   "LEFT JOIN \"%w\".token AS t ON t.token = s.token "
                                   "WHERE k.run = ?1 AND k.layer = ?2 AND k.row BETWEEN ?3 AND ?4 AND k.step <= ?5";

/* The plus keeps SQLite from looking through all steps in the order of the key. */
const char kvs_row_text_by_length[] =
    "SELECT s.cache_length_before, s.step, t.text FROM \"%w\".step AS s LEFT JOIN \"%w\".token AS t ON t.token = "
    "s.token WHERE s.run = ?1 AND ?2 IS NOT NULL AND s.cache_length_before BETWEEN ?3 AND ?4 AND +s.step <= ?5";

void kvs_row_source_forget(kvs_row_source *source) {
  sqlite3_finalize(source->logged);
  sqlite3_finalize(source->by_length);
  sqlite3_free(source->schema);
  source->logged = source->by_length = NULL;
  source->schema = NULL;
}

void kvs_row_texts_forget(kvs_row_texts *texts) {
  for (int i = 0; i < texts->count; i++) sqlite3_value_free(texts->text[i]);
  texts->count = 0;
}

static int prepare(sqlite3 *db, const char *text, const char *schema, sqlite3_stmt **statement) {
  char *sql = sqlite3_mprintf(text, schema, schema, schema);
  if (!sql) return SQLITE_NOMEM;
  int rc = sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, statement, NULL);
  sqlite3_free(sql);
  return rc;
}

/* Makes the statements, if those that are kept are for another schema. */
static int prepare_for(kvs_row_source *source, const char *schema) {
  if (!schema) return SQLITE_MISUSE;
  if (source->schema && strcmp(source->schema, schema) == 0) return SQLITE_OK;
  kvs_row_source_forget(source);
  int rc = prepare(source->db, kvs_row_text_logged, schema, &source->logged);
  if (rc == SQLITE_OK) rc = prepare(source->db, kvs_row_text_by_length, schema, &source->by_length);
  if (rc == SQLITE_OK && !(source->schema = sqlite3_mprintf("%s", schema))) rc = SQLITE_NOMEM;
  if (rc != SQLITE_OK) kvs_row_source_forget(source);
  return rc;
}

/* Keeps the text of one line, if none is known from a later step; `known`: those texts stay as they are. */
static int keep(kvs_row_texts *texts, sqlite3_stmt *line, const char *known) {
  if (sqlite3_column_type(line, 0) != SQLITE_INTEGER) return SQLITE_OK; /* a row that no index of a vector is */
  sqlite3_int64 row = sqlite3_column_int64(line, 0), i = row - texts->first, step = sqlite3_column_int64(line, 1);
  if (row < texts->first || i >= texts->count) return SQLITE_OK; /* out of a damaged index may come any */
  if (known[i] || (texts->text[i] && texts->step[i] > step)) return SQLITE_OK;
  sqlite3_value_free(texts->text[i]);
  texts->text[i] = sqlite3_value_dup(sqlite3_column_value(line, 2));
  texts->step[i] = step;
  return texts->text[i] ? SQLITE_OK : SQLITE_NOMEM;
}

static int read_lines(kvs_row_texts *texts, sqlite3_stmt *statement, sqlite3_value *const of[KVS_OF_COUNT]) {
  char known[KVS_ROW_TEXTS];
  for (int i = 0; i < texts->count; i++) known[i] = texts->text[i] != NULL;
  int rc = sqlite3_bind_value(statement, 1, of[KVS_OF_RUN]);
  if (rc == SQLITE_OK) rc = sqlite3_bind_value(statement, 2, of[KVS_OF_LAYER]);
  if (rc == SQLITE_OK) rc = sqlite3_bind_int64(statement, 3, texts->first);
  if (rc == SQLITE_OK) rc = sqlite3_bind_int64(statement, 4, texts->first + texts->count - 1);
  if (rc == SQLITE_OK) rc = sqlite3_bind_value(statement, 5, of[KVS_OF_STEP]);
  while (rc == SQLITE_OK && (rc = sqlite3_step(statement)) == SQLITE_ROW) rc = keep(texts, statement, known);
  int reset = sqlite3_reset(statement);
  return rc == SQLITE_DONE ? reset : rc;
}

int kvs_row_texts_fill(kvs_row_texts *texts, kvs_row_source *source, sqlite3_value *const of[KVS_OF_COUNT],
                       sqlite3_int64 first, sqlite3_int64 end) {
  kvs_row_texts_forget(texts);
  int rc = prepare_for(source, (const char *)sqlite3_value_text(of[KVS_OF_SCHEMA]));
  if (rc != SQLITE_OK) return rc;
  texts->first = first;
  texts->count = end - first < KVS_ROW_TEXTS ? (int)(end - first) : KVS_ROW_TEXTS;
  memset(texts->text, 0, (size_t)texts->count * sizeof(texts->text[0]));
  rc = read_lines(texts, source->logged, of);
  int missing = 0;
  for (int i = 0; i < texts->count; i++) missing += !texts->text[i];
  if (rc == SQLITE_OK && missing) rc = read_lines(texts, source->by_length, of);
  if (rc != SQLITE_OK) kvs_row_texts_forget(texts);
  return rc;
}
