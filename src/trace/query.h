/* query.h (private): small queries on a trace, for whatever reads one. */
#ifndef KVS_TRACE_QUERY_H
#define KVS_TRACE_QUERY_H

#include <stdbool.h>

#include <sqlite3.h>

#include "kvstep/error.h"

/* A vector read from a BLOB of float32; values is NULL if it was not logged. */
struct vector {
  float *values;
  int count;
};
void vector_free(struct vector *vector);

/* Prepares `sql` and binds the integers to ?1, ?2, …. The caller finalizes *statement. */
kvs_status query_prepare(sqlite3 *db, const char *sql, const int *parameters, int count, sqlite3_stmt **statement,
                         kvs_error *err);

/* Steps: *row says whether there is one. */
kvs_status query_step(sqlite3_stmt *statement, bool *row, kvs_error *err);

/* For questions about whole tables: a damaged tree whose branches meet again has more rows than anybody can wait for. From here on
 * all questions to `db` together take no more of SQLite's instructions than a file of its size needs many times over; then they
 * end, and query_step says why. *budget must live as long as it is in force; NULL lifts it. */
struct query_budget {
  long long left; /* in calls of SQLite's progress handler */
};
void query_limit(sqlite3 *db, struct query_budget *budget);

/* The first column of the first row as a number; `missing` if there is no row or it is NULL. */
kvs_status query_number(sqlite3 *db, const char *sql, const int *parameters, int count, long long missing,
                        long long *number, kvs_error *err);

/* How many rows a table has, told by its pages: many times as fast as one by one, but in one of SQLite's instructions, which
 * query_limit does not end. So it is given up after two seconds, be the tree damaged or its disk slow: *rows is then -1, and the
 * rows are to be counted one by one, in the limit. */
kvs_status query_rows(sqlite3 *db, const char *table, long long *rows, kvs_error *err);

/* A column of the current row: as an int (`missing` if NULL; COLUMN_MOST is the most either way, so that sums of a few
 * cannot overflow), a double (NaN), a copied string (NULL), a vector. */
enum { COLUMN_MOST = 1 << 29 };
int column_int(sqlite3_stmt *statement, int column, int missing);
double column_real(sqlite3_stmt *statement, int column);
kvs_status column_text(sqlite3_stmt *statement, int column, char **text, kvs_error *err);
kvs_status column_vector(sqlite3_stmt *statement, int column, struct vector *vector, kvs_error *err);

#endif
