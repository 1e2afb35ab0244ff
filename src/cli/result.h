/* result.h: printing the rows of a query as a table, CSV or JSON. */
#ifndef KVS_CLI_RESULT_H
#define KVS_CLI_RESULT_H

#include <sqlite3.h>
#include <stddef.h>

#include "cli/options.h"
#include "cli/out.h"

enum result_format { RESULT_TABLE, RESULT_CSV, RESULT_JSON };

/* A row of an option table that chooses one of them. The command's `struct values` has `int format`. */
#define RESULT_FORMAT_OPTION                                                                                           \
  {                                                                                                                    \
    .name = "output", .letter = 'o', .kind = OPTION_CHOICE, .argument = "FORMAT",                                      \
    .offset = offsetof(struct values, format), .choices = result_formats, .help = "table (default), csv or json"       \
  }
extern const char *const result_formats[]; /* their names */

/* Steps the statement to its end and prints its rows on stdout. Returns SQLite's result code, SQLITE_DONE when all
 * went well; SQLITE_NOMEM also for memory of ours. A statement without columns prints nothing. */
int result_print(sqlite3_stmt *statement, enum result_format format, struct style style);

#endif
