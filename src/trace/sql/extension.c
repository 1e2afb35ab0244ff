/* extension.c: entry point of the SQL functions, linked into libkvstep and loadable as build/kvstep.so.
 *
 *   sqlite> .load build/kvstep
 *   sqlite> SELECT row, weight FROM attention WHERE run = 1 AND step = 9 AND layer = 0 AND head = 2;
 *
 * If the main database is a trace, its views are shadowed by TEMP views of the same names, columns and values that
 * decode the vectors in C. Nothing is written to the file.
 */
#include "trace/sql/extension.h"

SQLITE_EXTENSION_INIT1

/* Seen from outside the loadable extension, where SQLite looks for it; inside libkvstep it is one more private function. */
#if defined(__GNUC__) && !defined(SQLITE_CORE)
__attribute__((visibility("default")))
#endif
int sqlite3_kvstep_init(sqlite3 *db, char **message, const sqlite3_api_routines *api) {
  SQLITE_EXTENSION_INIT2(api);
  (void)api;
  int rc = kvs_sql_scalars(db);
  if (rc == SQLITE_OK) rc = kvs_sql_floats(db);
  if (rc == SQLITE_OK) rc = kvs_sql_views(db);
  int yes = 0;
  if (rc == SQLITE_OK) rc = kvs_sql_is_trace(db, "main", &yes, message);
  if (rc == SQLITE_OK && yes) rc = kvs_sql_make_views(db, "main", message);
  return rc;
}
