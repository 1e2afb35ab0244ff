/* reader.c: opening a trace to read. The file is never written. */
#include "trace/store.h"

#include <stdlib.h>
#include <string.h>

#include "trace/sql/init.h"

/* The tables that the fast views and kvstep's own queries read, and that a run is written to. A recorder may have made these
 * alone: the views in the file are for other readers. */
static const char *const names[] = {"run",       "token",      "step",        "event",     "kv_row",
                                    "head_step", "layer_step", "step_vector", "top_token", "divergence",
                                    "head_stat", "step_stat",  "number"};

/* Nothing that opening a trace asks needs a hundredth of these instructions, but for a list of tables on pages that lead to
 * each other. */
enum { OPENING_AT_MOST = 1000000 };
static int too_long(void *nothing) {
  (void)nothing;
  return 1;
}

void kvs_trace_bound_opening(sqlite3 *db, bool bound) {
  sqlite3_progress_handler(db, bound ? OPENING_AT_MOST : 0, bound ? too_long : NULL, NULL);
}

kvs_status kvs_trace_fail_endless(const char *path, kvs_error *err) {
  return kvs_fail(err, KVS_ERR_INPUT, "%s: damaged: its list of tables has no end; take another copy of the file",
                  path);
}

static kvs_status explain(sqlite3 *db, const char *path, int rc, kvs_error *err) {
  const char *said = db ? sqlite3_errmsg(db) : sqlite3_errstr(rc);
  switch (rc & 0xFF) {
  case SQLITE_NOMEM:
    return kvs_fail_memory(err, "opening a trace");
  case SQLITE_NOTADB:
    return kvs_fail(err, KVS_ERR_INPUT, "%s: not an SQLite file, so not a trace; was another file meant?", path);
  case SQLITE_CORRUPT:
    return kvs_fail(err, KVS_ERR_INPUT, "%s: damaged (%s); take another copy, or try `sqlite3 %s .recover`", path, said,
                    path);
  case SQLITE_BUSY:
  case SQLITE_LOCKED:
    return kvs_fail(err, KVS_ERR_IO, "%s: locked by another program; try again when it has closed the file", path);
  case SQLITE_INTERRUPT:
    return kvs_trace_fail_endless(path, err);
  default:
    return kvs_fail(err, KVS_ERR_IO, "%s: cannot be read: %s", path, said);
  }
}

/* One number that a pragma or a query answers with. */
static int pragma(sqlite3 *db, const char *sql, sqlite3_int64 *value) {
  sqlite3_stmt *statement = NULL;
  int rc = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
  if (rc != SQLITE_OK) return rc;
  if (sqlite3_step(statement) == SQLITE_ROW) *value = sqlite3_column_int64(statement, 0);
  return sqlite3_finalize(statement);
}

/* What the header in the file could not say when there is a log beside it. */
static kvs_status check_identity(sqlite3 *db, const char *path, kvs_error *err) {
  sqlite3_int64 id = 0, version = 0, objects = 0;
  int rc = pragma(db, "PRAGMA application_id", &id);
  if (rc == SQLITE_OK) rc = pragma(db, "PRAGMA user_version", &version);
  if (rc == SQLITE_OK && id == 0 && version == 0)
    rc = pragma(db, "SELECT EXISTS (SELECT 1 FROM sqlite_schema)", &objects);
  if (rc != SQLITE_OK) return explain(db, path, rc, err);
  if (id == 0 && version == 0 && objects == 0) return kvs_trace_is_empty(path, err);
  if (id != KVS_TRACE_APPLICATION_ID)
    return kvs_fail(err, KVS_ERR_INPUT,
                    "%s: an SQLite file, but not a kvstep trace: its application_id is 0x%08X, not 0x%08X ('KVST')",
                    path, (unsigned)id, (unsigned)KVS_TRACE_APPLICATION_ID);
  if (version != KVS_TRACE_VERSION)
    return kvs_fail(err, KVS_ERR_INPUT, "%s: a trace of version %lld, and this kvstep reads version %d; %s", path,
                    (long long)version, KVS_TRACE_VERSION,
                    version > KVS_TRACE_VERSION ? "a newer kvstep is needed" : "run schema.sql on a new file");
  return KVS_OK;
}

kvs_status kvs_trace_check_tables(sqlite3 *db, const char *path, kvs_error *err) {
  sqlite3_stmt *statement = NULL;
  /* A table of rows, not one that a module or an expression makes up: a trace may come from anybody. */
  int rc =
      sqlite3_prepare_v2(db,
                         "SELECT 1 FROM main.sqlite_schema WHERE name = ?1 AND type = 'table' AND rootpage > 0 AND "
                         "NOT EXISTS (SELECT 1 FROM pragma_table_xinfo(?1, 'main') WHERE hidden > 0)",
                         -1, &statement, NULL);
  const char *missing = NULL;
  for (size_t i = 0; rc == SQLITE_OK && !missing && i < sizeof names / sizeof *names; i++) {
    sqlite3_bind_text(statement, 1, names[i], -1, SQLITE_STATIC);
    int got = sqlite3_step(statement);
    if (got == SQLITE_DONE) missing = names[i];
    rc = sqlite3_reset(statement);
  }
  int finalized = sqlite3_finalize(statement);
  if (rc == SQLITE_OK) rc = finalized;
  if (rc != SQLITE_OK) return explain(db, path, rc, err);
  if (missing)
    return kvs_fail(
        err, KVS_ERR_INPUT,
        "%s: the table `%s` is missing, or is none of plain rows: a trace is made with all tables of schema.sql", path,
        missing);
  return KVS_OK;
}

/* "file:<path>?mode=ro…" with everything quoted that a URI reads otherwise. */
static char *uri(const char *file, const char *options) {
  sqlite3_str *text = sqlite3_str_new(NULL);
  sqlite3_str_appendall(text, "file:");
  for (const char *c = file; *c; c++)
    if (strchr("%?#", *c))
      sqlite3_str_appendf(text, "%%%02X", *c);
    else
      sqlite3_str_appendchar(text, 1, *c);
  sqlite3_str_appendf(text, "?mode=ro%s", options);
  return sqlite3_str_finish(text);
}

/* Opens and reads the first page. */
static int try_open(const char *file, const char *options, sqlite3 **db) {
  char *name = uri(file, options);
  if (!name) return SQLITE_NOMEM;
  int rc = sqlite3_open_v2(name, db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL);
  sqlite3_free(name);
  if (rc != SQLITE_OK) return rc;
  sqlite3_busy_timeout(*db, 5000);
  sqlite3_int64 version;
  return pragma(*db, "PRAGMA schema_version", &version);
}

static kvs_status set_up(sqlite3 *db, const char *path, kvs_error *err) {
  sqlite3_extended_result_codes(db, 1);
  kvs_status status = check_identity(db, path, err);
  if (status == KVS_OK) status = kvs_trace_check_tables(db, path, err);
  if (status != KVS_OK) return status;
  /* A trace may come from anybody: its views may call only what is harmless, and nothing may reach into its schema. */
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, (int *)NULL);
  sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, (int *)NULL);
  char *message = NULL;
  int rc = sqlite3_kvstep_init(db, &message, NULL);
  if (rc != SQLITE_OK)
    status = message ? kvs_fail(err, KVS_ERR_INPUT, "%s: its views cannot be made: %s", path, message)
                     : explain(db, path, rc, err);
  sqlite3_free(message);
  return status;
}

kvs_status kvs_trace_read(const char *path, sqlite3 **db, kvs_error *err) {
  *db = NULL;
  kvs_status status = kvs_trace_inspect(path, err);
  if (status != KVS_OK) return status;
  char *file = kvs_trace_file_name(path);
  if (!file) return kvs_fail_memory(err, "opening a trace");
  int rc = try_open(file, "", db);
  bool shut = (rc & 0xFF) == SQLITE_CANTOPEN || (rc & 0xFF) == SQLITE_READONLY;
  if (shut && kvs_trace_has_wal(path)) {
    status =
        kvs_fail(err, KVS_ERR_IO,
                 "%s: its last steps are still in %s-wal, which can be read only where a file can be made beside it; "
                 "copy both files to such a folder",
                 path, path);
  } else if (shut) {
    /* A file that was left in WAL mode, in a folder where no -shm can be made: then nobody is writing it either. */
    sqlite3_close(*db);
    *db = NULL;
    rc = try_open(file, "&immutable=1", db);
  }
  free(file);
  if (status == KVS_OK && rc == SQLITE_OK) kvs_trace_bound_opening(*db, true);
  if (status == KVS_OK) status = rc == SQLITE_OK ? set_up(*db, path, err) : explain(*db, path, rc, err);
  if (status == KVS_OK) kvs_trace_bound_opening(*db, false);
  if (status != KVS_OK) {
    sqlite3_close(*db);
    *db = NULL;
  }
  return status;
}
