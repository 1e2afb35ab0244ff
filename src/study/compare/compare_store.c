/* compare_store.c: a comparison's steps in the trace's table `divergence`. */
#include "study/compare/compare_trace.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include "trace/store.h"

static kvs_status fail(sqlite3 *db, const char *path, kvs_error *err) {
  int rc = sqlite3_errcode(db) & 0xFF;
  const char *said = sqlite3_errmsg(db);
  if (rc == SQLITE_NOMEM) return kvs_fail_memory(err, "storing a comparison");
  if (rc == SQLITE_BUSY || rc == SQLITE_LOCKED)
    return kvs_fail(err, KVS_ERR_IO, "%s: locked by another program; try again when it has closed the file", path);
  return kvs_fail(err, KVS_ERR_IO, "%s: the comparison cannot be stored: %s", path, said);
}

/* A view of that name would send the rows elsewhere. */
static kvs_status check_table(sqlite3 *db, const char *path, kvs_error *err) {
  static const char sql[] = "SELECT type FROM main.sqlite_schema WHERE name = 'divergence'";
  sqlite3_stmt *statement = NULL;
  if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) != SQLITE_OK) return fail(db, path, err);
  bool row = sqlite3_step(statement) == SQLITE_ROW;
  const char *type = row ? (const char *)sqlite3_column_text(statement, 0) : NULL;
  bool table = type && strcmp(type, "table") == 0;
  sqlite3_finalize(statement);
  return table ? KVS_OK
               : kvs_fail(err, KVS_ERR_INPUT, "%s: has no table `divergence` to store the comparison in", path);
}

/* NaN is bound as NULL by SQLite itself. */
static kvs_status store_step(sqlite3 *db, const char *path, sqlite3_stmt *insert, const struct comparison *c,
                             const struct compare_step *s, kvs_error *err) {
  sqlite3_bind_int(insert, 1, c->run_a);
  sqlite3_bind_int(insert, 2, c->run_b);
  sqlite3_bind_int(insert, 3, s->step);
  sqlite3_bind_double(insert, 4, s->kl);
  sqlite3_bind_double(insert, 5, s->max_abs_logit);
  if (s->top1_same != LOOK_NONE)
    sqlite3_bind_int(insert, 6, s->top1_same);
  else
    sqlite3_bind_null(insert, 6);
  sqlite3_bind_double(insert, 7, s->logprob_a);
  sqlite3_bind_double(insert, 8, s->logprob_b);
  sqlite3_bind_double(insert, 9, s->attention_distance);
  int rc = sqlite3_step(insert);
  kvs_status status = rc == SQLITE_DONE ? KVS_OK : fail(db, path, err);
  sqlite3_reset(insert);
  return status;
}

static kvs_status store_all(sqlite3 *db, const char *path, const struct comparison *comparisons, int count,
                            kvs_error *err) {
  static const char remove_sql[] = "DELETE FROM main.divergence WHERE run_a = ?1 AND run_b = ?2";
  static const char insert_sql[] =
      "INSERT INTO main.divergence (run_a, run_b, step, kl, max_abs_logit, top1_same, logprob_a, logprob_b,"
      " attention_distance) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
  sqlite3_stmt *remove = NULL, *insert = NULL;
  kvs_status status = KVS_OK;
  if (sqlite3_prepare_v2(db, remove_sql, -1, &remove, NULL) != SQLITE_OK ||
      sqlite3_prepare_v2(db, insert_sql, -1, &insert, NULL) != SQLITE_OK)
    status = fail(db, path, err);
  for (int i = 0; status == KVS_OK && i < count; i++) {
    sqlite3_bind_int(remove, 1, comparisons[i].run_a);
    sqlite3_bind_int(remove, 2, comparisons[i].run_b);
    if (sqlite3_step(remove) != SQLITE_DONE) status = fail(db, path, err);
    sqlite3_reset(remove);
    for (int k = 0; status == KVS_OK && k < comparisons[i].count; k++)
      status = store_step(db, path, insert, &comparisons[i], &comparisons[i].steps[k], err);
  }
  sqlite3_finalize(remove);
  sqlite3_finalize(insert);
  return status;
}

kvs_status compare_store(const char *path, const struct comparison *comparisons, int count, kvs_error *err) {
  if (access(path, W_OK) != 0) return kvs_fail(err, KVS_ERR_IO, "%s: is read-only", path);
  char *file = kvs_trace_file_name(path);
  if (!file) return kvs_fail_memory(err, "storing a comparison");
  sqlite3 *db = NULL;
  int rc = sqlite3_open_v2(file, &db, SQLITE_OPEN_READWRITE, NULL);
  free(file);
  kvs_status status = rc == SQLITE_OK ? KVS_OK
                      : db            ? fail(db, path, err)
                                      : kvs_fail_memory(err, "storing a comparison");
  if (status == KVS_OK) {
    sqlite3_busy_timeout(db, 5000);
    /* A trace may come from anybody: none of its triggers, and no function of consequence in its schema. */
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, (int *)NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, (int *)NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, (int *)NULL);
    status = check_table(db, path, err);
  }
  if (status == KVS_OK && sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
    status = fail(db, path, err);
  if (status == KVS_OK) status = store_all(db, path, comparisons, count, err);
  if (status == KVS_OK && sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK) status = fail(db, path, err);
  sqlite3_close(db); /* rolls back what was not committed */
  return status;
}
