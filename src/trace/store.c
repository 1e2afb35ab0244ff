/* store.c: SQL put to a trace that is being written: what went wrong with it, transactions, and the write-ahead log. */
#include "trace/store.h"

#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { WAL_STEP = 8 << 20, WAL_LIMIT = 64 << 20 };

/* ---- what SQLite says ------------------------------------------------------------------------------------------ */

/* "steps 0..41 of run 2 are kept", for the end of a message. `in_two`: what was committed may lie in the log for longer. */
static const char *kept(const kvs_trace *trace, bool in_two, char *text, size_t size) {
  if (trace->run == 0)
    snprintf(text, size, trace->checked && !trace->made_file ? "nothing more was written" : "nothing was written");
  else if (trace->last_step_kept < 0)
    snprintf(text, size, "no step of run %d is kept", trace->run);
  else
    snprintf(text, size, "steps 0..%d of run %d are kept%s", trace->last_step_kept, trace->run,
             in_two ? " (if there is a -wal file beside the trace, keep that too)" : "");
  return text;
}

bool kvs_trace_is_moved(const kvs_trace *trace) {
  int moved = 0; /* one stat(2); by the path from the root, so that a chdir moves nothing */
  return sqlite3_file_control(trace->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK && moved;
}

static kvs_status fail_moved(kvs_trace *trace, kvs_error *err) {
  char what[80] = "what was written is kept";
  if (trace->run != 0) kept(trace, false, what, sizeof what);
  bool any = trace->run == 0 || trace->last_step_kept >= 0;
  return kvs_fail(
      err, KVS_ERR_IO,
      "%s: deleted, moved or replaced while it was being written; %s%s; run it again, and leave the file in "
      "its place",
      trace->path, what, any ? " in the file that was there, and lost with it if it was deleted" : "");
}

/* Is the file or its log as long as this process may make one? */
static bool at_size_limit(const kvs_trace *trace) {
  enum { ONE_WRITE = 65536 + 64 };
  struct rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  static const char *const ends[] = {"", "-wal"};
  for (int i = 0; i < 2; i++) {
    struct stat st;
    char *name = sqlite3_mprintf("%s%s", sqlite3_db_filename(trace->db, "main"), ends[i]);
    bool reached = name && stat(name, &st) == 0 && (uint64_t)st.st_size + ONE_WRITE > (uint64_t)limit.rlim_cur;
    sqlite3_free(name);
    if (reached) return true;
  }
  return false;
}

/* SQLite says SQLITE_FULL for ENOSPC alone; a quota and a limit on the size of files are write errors like any other,
 * and their errno is often lost by the time it can be asked for. */
static bool is_full(const kvs_trace *trace, int rc) {
  if ((rc & 0xFF) == SQLITE_FULL) return true;
  if ((rc & 0xFF) != SQLITE_IOERR || !trace->db) return false;
  int system = sqlite3_system_errno(trace->db);
  return system == ENOSPC || system == EFBIG || system == EDQUOT || at_size_limit(trace);
}

unsigned kvs_trace_told_by(const kvs_trace *trace, int rc) {
  if (rc == SQLITE_READONLY_DBMOVED) return KVS_TOLD_MOVED;
  if ((rc & 0xFF) == SQLITE_BUSY || (rc & 0xFF) == SQLITE_LOCKED) return KVS_TOLD_LOCKED;
  return is_full(trace, rc) ? KVS_TOLD_FULL : 0;
}

kvs_status kvs_trace_fail(kvs_trace *trace, int rc, kvs_error *err) {
  const char *path = trace->path;
  char end[160];
  unsigned told = kvs_trace_told_by(trace, rc);
  kept(trace, told & (KVS_TOLD_FULL | KVS_TOLD_LOCKED), end, sizeof end);
  if (err) trace->told |= told;
  bool own = trace->db && (sqlite3_errcode(trace->db) & 0xFF) == (rc & 0xFF); /* else it is the mover's */
  const char *said = own ? sqlite3_errmsg(trace->db) : sqlite3_errstr(rc);
  if (told & KVS_TOLD_FULL)
    return kvs_fail(err, KVS_ERR_IO, "%s: disk full; %s; free some space, or log less", path, end);
  if (told & KVS_TOLD_MOVED) return fail_moved(trace, err);
  switch (rc & 0xFF) {
  case SQLITE_NOMEM:
    return kvs_fail_memory(err, "writing a trace");
  case SQLITE_BUSY:
  case SQLITE_LOCKED:
    return kvs_fail(err, KVS_ERR_IO, "%s: locked by another program; %s; try again when it has closed the file", path,
                    end);
  case SQLITE_READONLY:
  case SQLITE_PERM:
  case SQLITE_CANTOPEN:
    if (trace->db && sqlite3_system_errno(trace->db) == EMFILE)
      return kvs_fail(err, KVS_ERR_IO, "%s: too many open files; %s; raise the limit (ulimit -n)", path, end);
    return kvs_fail(err, KVS_ERR_IO, "%s: cannot be written (%s); %s; choose another folder, or chmod this one", path,
                    said, end);
  case SQLITE_INTERRUPT:
    return kvs_trace_fail_endless(path, err);
  case SQLITE_NOTADB:
  case SQLITE_CORRUPT:
    return kvs_fail(err, KVS_ERR_INPUT, "%s: damaged (%s); %s; write to another file", path, said, end);
  case SQLITE_CONSTRAINT:
    if (trace->reopens) /* of a run that is gone on with, the engine is where its last step was */
      return kvs_fail(
          err, KVS_ERR_IO,
          "%s: another program has added steps to run %d meanwhile; %s; it can go on from what is there now", path,
          trace->run, end);
    return kvs_fail(err, KVS_ERR_USAGE,
                    "%s: %s; %s; after a reset of the engine begin a new run, or if its tables are not those of "
                    "schema.sql, write to another file",
                    path, said, end);
  case SQLITE_ERROR:
    return kvs_fail(err, KVS_ERR_INPUT, "%s: its tables are not those of schema.sql (%s); %s; write to another file",
                    path, said, end);
  default:
    return kvs_fail(err, KVS_ERR_IO, "%s: cannot be written: %s; %s", path, said, end);
  }
}

kvs_status kvs_trace_exec(kvs_trace *trace, const char *sql, kvs_error *err) {
  int rc = sqlite3_exec(trace->db, sql, NULL, NULL, NULL);
  return rc == SQLITE_OK ? KVS_OK : kvs_trace_fail(trace, rc, err);
}

kvs_status kvs_trace_prepare(kvs_trace *trace, const char *sql, sqlite3_stmt **out, kvs_error *err) {
  int rc = sqlite3_prepare_v3(trace->db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
  return rc == SQLITE_OK ? KVS_OK : kvs_trace_fail(trace, rc, err);
}

kvs_status kvs_trace_run(kvs_trace *trace, sqlite3_stmt *statement, kvs_error *err) {
  int rc = sqlite3_step(statement);
  kvs_status status = rc == SQLITE_DONE || rc == SQLITE_ROW ? KVS_OK : kvs_trace_fail(trace, rc, err);
  sqlite3_reset(statement); /* repeats step's error, which was told */
  sqlite3_clear_bindings(statement);
  return status;
}

kvs_status kvs_trace_value(kvs_trace *trace, const char *sql, int64_t *value, kvs_error *err) {
  sqlite3_stmt *statement;
  kvs_status status = kvs_trace_prepare(trace, sql, &statement, err);
  if (status != KVS_OK) return status;
  int rc = sqlite3_step(statement);
  if (rc == SQLITE_ROW)
    *value = sqlite3_column_int64(statement, 0);
  else
    status = kvs_trace_fail(trace, rc, err);
  sqlite3_finalize(statement);
  return status;
}

/* ---- transactions ---------------------------------------------------------------------------------------------- */

kvs_status kvs_trace_begin(kvs_trace *trace, kvs_error *err) {
  if (kvs_trace_is_moved(trace)) return kvs_trace_fail(trace, SQLITE_READONLY_DBMOVED, err);
  kvs_status status = kvs_trace_exec(trace, "BEGIN IMMEDIATE", err);
  trace->in_transaction = status == KVS_OK;
  return status;
}

void kvs_trace_rollback(kvs_trace *trace) {
  /* SQLite has rolled back by itself where it had to; what is left cannot fail in a way that matters. */
  if (trace->db && !sqlite3_get_autocommit(trace->db)) sqlite3_exec(trace->db, "ROLLBACK", NULL, NULL, NULL);
  trace->in_transaction = false;
}

static int count_wal(void *context, sqlite3 *db, const char *schema, int pages) {
  (void)db, (void)schema;
  ((kvs_trace *)context)->wal_pages = pages;
  return SQLITE_OK;
}

void kvs_trace_watch_wal(kvs_trace *trace, int page) {
  trace->wal_step = WAL_STEP / page;
  trace->wal_limit = WAL_LIMIT / page;
  sqlite3_wal_hook(trace->db, count_wal, trace);
}

/* Moves the log into the file here and now; the next step then begins it anew. */
static kvs_status move_now(kvs_trace *trace, kvs_error *err) {
  trace->wal_moved = 0;
  int rc = sqlite3_wal_checkpoint_v2(trace->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
  return rc == SQLITE_OK || (rc & 0xFF) == SQLITE_BUSY ? KVS_OK : kvs_trace_fail(trace, rc, err);
}

/* SQLite's own checkpoint after a commit would make the commit look failed when only the checkpoint was. So the mover does the
 * work beside the run. The log begins anew when all of it is in the file before the next step is written. So from wal_limit on
 * the mover is asked after each commit, and has little to move; if it is too slow for that, at twice as much, the rest is moved
 * here, however much it is: a log that grows faster than it is moved would have no end. */
static kvs_status move_wal(kvs_trace *trace, kvs_error *err) {
  if (trace->run == 0) return KVS_OK; /* a run that begins is in the file by now: its first step tells */
  int rc = SQLITE_OK, since = trace->wal_pages - trace->wal_moved;
  if (since < 0) since = trace->wal_pages, trace->wal_moved = 0; /* it has begun anew */
  if (since < trace->wal_step && trace->wal_pages < trace->wal_limit) return KVS_OK;
  if (!trace->mover) trace->mover = kvs_mover_start(sqlite3_db_filename(trace->db, "main"));
  if (!trace->mover) return move_now(trace, err);
  bool idle = kvs_mover_idle(trace->mover, &rc);
  if (rc != SQLITE_OK) return kvs_trace_fail(trace, rc, err);
  if (!idle) return KVS_OK;
  if (trace->wal_pages >= 2 * trace->wal_limit && trace->wal_moved > 0) return move_now(trace, err);
  trace->wal_moved = trace->wal_pages;
  kvs_mover_ask(trace->mover);
  return KVS_OK;
}

kvs_status kvs_trace_commit(kvs_trace *trace, kvs_error *err) {
  kvs_status status = kvs_trace_exec(trace, "COMMIT", err);
  if (status != KVS_OK) {
    kvs_trace_rollback(trace);
    return status;
  }
  trace->in_transaction = false;
  trace->reopens = false;
  trace->committed = true;
  trace->told = 0;
  trace->last_step_kept = trace->last_step_reported;
  if (trace->last_step_kept >= 0) trace->made_file = false;
  return move_wal(trace, err);
}
