/* init.h: the entry point of the SQL functions, for who links them in. */
#ifndef KVS_TRACE_SQL_INIT_H
#define KVS_TRACE_SQL_INIT_H

#include <sqlite3.h>

struct sqlite3_api_routines;

/* Registers the functions and, if the main database is a trace, makes the fast views. *message, if it is set on an
 * error, is freed by the caller with sqlite3_free. Inside the library `api` is not used. */
int sqlite3_kvstep_init(sqlite3 *db, char **message, const struct sqlite3_api_routines *api);

#endif
