/* query.c: preparing, stepping and reading columns, with kvstep's errors. */
#include "trace/query.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/signals.h"

void vector_free(struct vector *vector) {
  free(vector->values);
  *vector = (struct vector){0};
}

static kvs_status query_failed(sqlite3 *db, kvs_error *err) {
  if (sqlite3_errcode(db) == SQLITE_INTERRUPT)
    return kvs_fail(
        err, KVS_ERR_INPUT,
        "the trace is damaged: it seems to have more rows than a file of its size can have; take another copy");
  return kvs_fail(err, sqlite3_errcode(db) == SQLITE_NOMEM ? KVS_ERR_MEMORY : KVS_ERR_INPUT,
                  "the trace cannot be read: %s; `kvstep info` shows what is in it", sqlite3_errmsg(db));
}

kvs_status query_prepare(sqlite3 *db, const char *sql, const int *parameters, int count, sqlite3_stmt **statement,
                         kvs_error *err) {
  if (sqlite3_prepare_v2(db, sql, -1, statement, NULL) != SQLITE_OK) return query_failed(db, err);
  for (int i = 0; i < count; i++)
    if (sqlite3_bind_int(*statement, i + 1, parameters[i]) != SQLITE_OK) return query_failed(db, err);
  return KVS_OK;
}

kvs_status query_step(sqlite3_stmt *statement, bool *row, kvs_error *err) {
  int result = sqlite3_step(statement);
  *row = result == SQLITE_ROW;
  if (result == SQLITE_ROW || result == SQLITE_DONE) return KVS_OK;
  return query_failed(sqlite3_db_handle(statement), err);
}

kvs_status query_number(sqlite3 *db, const char *sql, const int *parameters, int count, long long missing,
                        long long *number, kvs_error *err) {
  sqlite3_stmt *statement = NULL;
  bool row = false;
  *number = missing;
  kvs_status status = query_prepare(db, sql, parameters, count, &statement, err);
  if (status == KVS_OK) status = query_step(statement, &row, err);
  if (row && sqlite3_column_type(statement, 0) != SQLITE_NULL) *number = sqlite3_column_int64(statement, 0);
  sqlite3_finalize(statement);
  return status;
}

static int spend(void *context) {
  struct query_budget *budget = context;
  return --budget->left < 0;
}

void query_limit(sqlite3 *db, struct query_budget *budget) {
  enum { EACH = 1000000, AT_LEAST = 100, BYTES_PER_CALL = 10000 };
  long long pages = 0, size = 0;
  sqlite3_progress_handler(db, 0, NULL, NULL);
  if (!budget) return;
  query_number(db, "PRAGMA main.page_count", NULL, 0, 0, &pages, NULL);
  query_number(db, "PRAGMA main.page_size", NULL, 0, 0, &size, NULL);
  budget->left = AT_LEAST + pages * size / BYTES_PER_CALL;
  sqlite3_progress_handler(db, EACH, spend, budget);
}

/* A thread that interrupts what `db` does if it is not done in time. */
struct watch {
  sqlite3 *db;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool done; /* under mutex */
};

static void *interrupt_late(void *argument) {
  struct watch *watch = argument;
  double end = kvs_now() + 2;
  pthread_mutex_lock(&watch->mutex);
  while (!watch->done && kvs_cond_wait_until(&watch->changed, &watch->mutex, end)) {}
  if (!watch->done) sqlite3_interrupt(watch->db);
  pthread_mutex_unlock(&watch->mutex);
  return NULL;
}

/* Steps `count`, watched: SQLite's result, SQLITE_INTERRUPT too where nobody can watch. */
static int step_watched(sqlite3_stmt *count) {
  struct watch watch = {.db = sqlite3_db_handle(count), .mutex = PTHREAD_MUTEX_INITIALIZER};
  pthread_t thread;
  sigset_t before;
  kvs_cond_init(&watch.changed);
  kvs_signals_block(&before);
  bool watched = pthread_create(&thread, NULL, interrupt_late, &watch) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  int result = watched ? sqlite3_step(count) : SQLITE_INTERRUPT;
  if (watched) {
    pthread_mutex_lock(&watch.mutex);
    watch.done = true;
    pthread_cond_signal(&watch.changed);
    pthread_mutex_unlock(&watch.mutex);
    pthread_join(thread, NULL);
  }
  pthread_cond_destroy(&watch.changed);
  return result;
}

kvs_status query_rows(sqlite3 *db, const char *table, long long *rows, kvs_error *err) {
  char sql[100];
  sqlite3_stmt *count = NULL;
  *rows = -1;
  snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", table);
  kvs_status status = query_prepare(db, sql, NULL, 0, &count, err);
  if (status != KVS_OK) return status;
  int result = step_watched(count);
  if (result == SQLITE_ROW)
    *rows = sqlite3_column_int64(count, 0);
  else if (result != SQLITE_INTERRUPT)
    status = query_failed(db, err);
  sqlite3_finalize(count);
  return status;
}

int column_int(sqlite3_stmt *statement, int column, int missing) {
  if (sqlite3_column_type(statement, column) == SQLITE_NULL) return missing;
  sqlite3_int64 number = sqlite3_column_int64(statement, column);
  return number > COLUMN_MOST ? COLUMN_MOST : number < -COLUMN_MOST ? -COLUMN_MOST : (int)number;
}

double column_real(sqlite3_stmt *statement, int column) {
  return sqlite3_column_type(statement, column) == SQLITE_NULL ? (double)NAN : sqlite3_column_double(statement, column);
}

kvs_status column_text(sqlite3_stmt *statement, int column, char **text, kvs_error *err) {
  free(*text);
  *text = NULL;
  const char *found = (const char *)sqlite3_column_text(statement, column);
  if (!found) return KVS_OK;
  *text = strdup(found);
  return *text ? KVS_OK : kvs_fail_memory(err, "reading the trace");
}

/* The file's floats are little-endian, whatever this machine is. */
kvs_status column_vector(sqlite3_stmt *statement, int column, struct vector *vector, kvs_error *err) {
  vector_free(vector);
  const unsigned char *bytes = sqlite3_column_blob(statement, column);
  int count = sqlite3_column_bytes(statement, column) / 4;
  if (!bytes || count == 0) return KVS_OK;
  vector->values = malloc((size_t)count * sizeof *vector->values);
  if (!vector->values) return kvs_fail_memory(err, "reading the trace");
  for (int i = 0; i < count; i++, bytes += 4) {
    unsigned int bits = bytes[0] | (unsigned)bytes[1] << 8 | (unsigned)bytes[2] << 16 | (unsigned)bytes[3] << 24;
    memcpy(&vector->values[i], &bits, 4);
  }
  vector->count = count;
  return KVS_OK;
}
