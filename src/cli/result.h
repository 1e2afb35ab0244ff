/* result.h: printing the rows of a query as a table, CSV or JSON. */
#ifndef KVS_CLI_RESULT_H
#define KVS_CLI_RESULT_H

#include <sqlite3.h>

#include "cli/out.h"

enum result_format { RESULT_TABLE, RESULT_CSV, RESULT_JSON };

/* Steps the statement to its end and prints its rows on stdout. Returns SQLite's result code, SQLITE_DONE when all
 * went well; SQLITE_NOMEM also for memory of ours. A statement without columns prints nothing. */
int result_print(sqlite3_stmt *statement, enum result_format format, struct style style);

#endif
