/* views.c: the fast views, and kvstep_views(schema), which makes them for a trace that was ATTACHed.
 *
 *   ATTACH 'other.db' AS other;
 *   SELECT kvstep_views('other');      from here on `attention` … read other; main.attention is still there
 *   SELECT kvstep_views('main');       and back
 */
#include "trace/sql/extension.h"
#include "base/embed.h"

#include <stdbool.h>
#include <string.h>

SQLITE_EXTENSION_INIT3

KVS_EMBED(kvs_fast_views, "src/trace/sql/views.sql");

int kvs_sql_is_trace(sqlite3 *db, const char *schema, int *yes, char **message) {
  *yes = 0;
  char *sql = sqlite3_mprintf("PRAGMA \"%w\".application_id", schema);
  if (!sql) return SQLITE_NOMEM;
  sqlite3_stmt *statement = NULL;
  int rc = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
  sqlite3_free(sql);
  if (rc == SQLITE_OK) {
    rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW) *yes = sqlite3_column_int64(statement, 0) == KVS_SQL_TRACE_ID;
    rc = rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
  }
  if (rc != SQLITE_OK && message) *message = sqlite3_mprintf("%s: %s", schema, sqlite3_errmsg(db));
  int finalized = sqlite3_finalize(statement);
  return rc != SQLITE_OK ? rc : finalized;
}

/* The views' text with the schema's name for every `main.` and 'main'; the caller frees it with sqlite3_free. */
static char *text_for(sqlite3 *db, const char *schema) {
  sqlite3_str *text = sqlite3_str_new(db);
  const char *from = (const char *)kvs_fast_views, *end = (const char *)kvs_fast_views_end;
  for (const char *at; (at = strstr(from, "main"));
       from = at + 5) { /* the text ends in a NUL: KVS_EMBED puts one there */
    bool string = at[-1] == '\'';
    sqlite3_str_append(text, from, (int)(at - string - from));
    sqlite3_str_appendf(text, string ? "%Q" : "\"%w\".", schema);
  }
  sqlite3_str_append(text, from, (int)(end - from));
  return sqlite3_str_finish(text);
}

int kvs_sql_make_views(sqlite3 *db, const char *schema, char **message) {
  char *sql = text_for(db, schema);
  if (!sql) return SQLITE_NOMEM;
  int rc = sqlite3_exec(db, sql, NULL, NULL, message);
  sqlite3_free(sql);
  return rc;
}

static void kvstep_views(sqlite3_context *context, int argc, sqlite3_value **argv) {
  (void)argc;
  sqlite3 *db = sqlite3_context_db_handle(context);
  const char *schema = (const char *)sqlite3_value_text(argv[0]);
  char *message = NULL;
  int yes = 0, rc = SQLITE_OK;
  if (schema) rc = kvs_sql_is_trace(db, schema, &yes, &message);
  if (rc == SQLITE_OK && !yes) {
    message = sqlite3_mprintf("kvstep_views: %s is not a kvstep trace", schema ? schema : "NULL");
    rc = SQLITE_ERROR;
  }
  if (rc == SQLITE_OK) rc = kvs_sql_make_views(db, schema, &message);
  if (rc == SQLITE_OK)
    sqlite3_result_text(context, schema, -1, SQLITE_TRANSIENT);
  else if (message)
    sqlite3_result_error(context, message, -1);
  else
    sqlite3_result_error_code(context, rc);
  sqlite3_free(message);
}

int kvs_sql_views(sqlite3 *db) {
  /* DIRECTONLY: no view or trigger of a file from elsewhere may call it. */
  return sqlite3_create_function_v2(db, "kvstep_views", 1, SQLITE_UTF8 | SQLITE_DIRECTONLY, NULL, kvstep_views, NULL,
                                    NULL, NULL);
}
