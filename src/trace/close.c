/* close.c: a trace that was written becomes one file, or none if nothing came of it. */
#include "trace/store.h"

#include <stdio.h>
#include <unistd.h>

enum { LEAVE_MILLISECONDS = 100 };

/* All is in the file, wherever it is now; it stays in WAL mode, since leaving that would remove a log by its name, which may be
 * that of another file by now. */
static kvs_status leave_moved(kvs_trace *trace, kvs_error *err) {
  if (access(sqlite3_db_filename(trace->db, "main"), F_OK) != 0) kvs_trace_remove_files(trace, false, NULL);
  return trace->told & KVS_TOLD_MOVED ? KVS_OK : kvs_trace_fail(trace, SQLITE_READONLY_DBMOVED, err);
}

/* Moves the log into the file, so that one file is left. */
static kvs_status make_one_file(kvs_trace *trace, kvs_error *err) {
  kvs_trace_bound_opening(trace->db, true); /* a file that was refused may have its list of tables read once more */
  if (trace->told & KVS_TOLD_LOCKED)
    sqlite3_busy_timeout(trace->db, LEAVE_MILLISECONDS); /* what holds it has been waited for, and told */
  int rc = sqlite3_wal_checkpoint_v2(trace->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
  if (rc == SQLITE_OK && kvs_trace_is_moved(trace)) return leave_moved(trace, err);
  if (rc == SQLITE_OK) {
    /* All is in the file now. Leaving WAL mode takes the file for itself: with a reader on it (a screen that follows the run, say)
     * the file stays as it is, complete, with an empty log beside it, until it is next opened for writing. */
    sqlite3_busy_timeout(trace->db, LEAVE_MILLISECONDS);
    /* It changes two bytes of a file that is on the disk already, so it need not wait for the disk again: before or after it, the
     * file is whole. */
    rc = sqlite3_exec(trace->db, "PRAGMA synchronous = OFF; PRAGMA journal_mode = DELETE", NULL, NULL, NULL);
    if ((rc & 0xFF) == SQLITE_BUSY || (rc & 0xFF) == SQLITE_LOCKED) rc = SQLITE_OK;
  }
  if (rc == SQLITE_OK) return KVS_OK;
  unsigned why = kvs_trace_told_by(trace, rc);
  if (why & trace->told) return KVS_OK; /* with what it means for the log */
  if (why == KVS_TOLD_LOCKED)
    return kvs_fail(err, KVS_ERR_IO,
                    "%s: still open in another program; what was written is kept in it and in %s-wal: keep both files "
                    "until that has closed it",
                    trace->path, trace->path);
  if (why == KVS_TOLD_FULL)
    return kvs_fail(err, KVS_ERR_IO,
                    "%s: disk full; what is kept lies in it and in %s-wal: keep both files, and free some space before "
                    "opening them",
                    trace->path, trace->path);
  return kvs_trace_fail(trace, rc, err);
}

/* Has this trace made a file in which there is nothing that is worth keeping? It leaves a transaction open: nobody
 * else can begin a run in the file before the connection is closed, and who tries afterwards finds that it is gone. */
static bool came_to_nothing(kvs_trace *trace) {
  int64_t objects = 0, runs = 0;
  char sql[64];
  if (!trace->made_file) return false;
  if (!trace->db || !trace->committed) return true; /* nobody else has seen anything in it */
  snprintf(sql, sizeof sql, "SELECT count(*) FROM run WHERE run <> %d", trace->left_run);
  return kvs_trace_begin(trace, NULL) == KVS_OK &&
         kvs_trace_value(trace, "SELECT count(*) FROM sqlite_schema", &objects, NULL) == KVS_OK &&
         (objects == 0 || kvs_trace_value(trace, sql, &runs, NULL) == KVS_OK) && runs == 0;
}

kvs_status kvs_trace_close(kvs_trace *trace, kvs_error *err) {
  if (!trace) return KVS_OK;
  kvs_error later; /* the first error is told */
  kvs_status status = kvs_trace_finish_writing(trace, err);
  kvs_trace_take_back(trace);
  kvs_mover_stop(trace->mover);
  trace->mover = NULL;
  int run = trace->run, last = trace->last_step_kept;
  kvs_trace_forget_run(trace);
  trace->run = run, trace->last_step_kept = last;
  bool nothing = came_to_nothing(trace);
  kvs_status left = KVS_OK;
  if (nothing)
    left = kvs_trace_remove_files(trace, true, status == KVS_OK ? err : &later);
  else if (trace->db)
    kvs_trace_rollback(trace), left = make_one_file(trace, status == KVS_OK && trace->checked ? err : &later);
  /* A file that was refused, and to which nothing was added, is none of ours to tidy up; why, was told. */
  if (status == KVS_OK && (nothing || trace->checked)) status = left;
  int rc = sqlite3_close(trace->db);
  if (rc != SQLITE_OK && status == KVS_OK)
    status = kvs_fail(err, KVS_ERR_IO, "%s: cannot be closed: %s", trace->path, sqlite3_errstr(rc));
  kvs_trace_free(trace);
  return status;
}
