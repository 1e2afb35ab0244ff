/* extension.h: the SQL functions and fast views, shared by the library and the loadable extension. */
#ifndef KVS_TRACE_SQL_EXTENSION_H
#define KVS_TRACE_SQL_EXTENSION_H

#include <sqlite3ext.h>

#include "trace/sql/init.h"

#define KVS_SQL_TRACE_ID                                                                                               \
  0x4B565354 /* PRAGMA application_id of a trace; as in kvstep/trace.h, which needs the library */

/* Each registers its part on `db` and returns an SQLite result code. */
int kvs_sql_scalars(sqlite3 *db);
int kvs_sql_floats(sqlite3 *db);
int kvs_sql_views(sqlite3 *db);

/* Makes the fast TEMP views over the trace that is attached as `schema`. On an error *message is set if it is more than
 * the code says, and is freed by the caller with sqlite3_free. */
int kvs_sql_make_views(sqlite3 *db, const char *schema, char **message);

/* True if `schema` is a trace; an SQLite result code says whether that could be found out. */
int kvs_sql_is_trace(sqlite3 *db, const char *schema, int *yes, char **message);

#endif
