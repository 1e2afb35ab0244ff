/* database.h: what the tests ask of a database, and how they change one behind a trace's back. A failure is the test's. */
#ifndef KVS_TESTS_DATABASE_H
#define KVS_TESTS_DATABASE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sqlite3.h>

static inline void execute(sqlite3 *db, const char *sql) {
  char *message = NULL;
  if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK) fail_msg("%.200s: %s", sql, message);
}

/* The same to a file that nobody has open. */
static inline void alter(const char *path, const char *sql) {
  sqlite3 *db;
  assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
  execute(db, sql);
  assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* The first row of a query's answer. */
static inline sqlite3_stmt *first_row(sqlite3 *db, const char *sql) {
  sqlite3_stmt *statement;
  if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) != SQLITE_OK) fail_msg("%s: %s", sql, sqlite3_errmsg(db));
  int rc = sqlite3_step(statement);
  if (rc != SQLITE_ROW) fail_msg("%s: %s", sql, rc == SQLITE_DONE ? "no row" : sqlite3_errmsg(db));
  return statement;
}

/* The one number that a query answers with; NaN for NULL. */
static inline double number(sqlite3 *db, const char *sql) {
  sqlite3_stmt *statement = first_row(db, sql);
  double value = sqlite3_column_type(statement, 0) == SQLITE_NULL ? NAN : sqlite3_column_double(statement, 0);
  sqlite3_finalize(statement);
  return value;
}

/* The first column of the first row as text, to be freed; "" for NULL. */
static inline char *text(sqlite3 *db, const char *sql) {
  sqlite3_stmt *statement = first_row(db, sql);
  const char *value = (const char *)sqlite3_column_text(statement, 0);
  char *copy = strdup(value ? value : "");
  sqlite3_finalize(statement);
  return copy;
}

static inline void assert_text(sqlite3 *db, const char *sql, const char *wanted) {
  char *got = text(db, sql);
  if (strcmp(got, wanted)) fail_msg("%s: \"%s\", not \"%s\"", sql, got, wanted);
  free(got);
}

#endif
