/* store.c: the file of a trace that is being written: opened, committed to, closed, and what went wrong with it. */
#include "trace/store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUSY_MILLISECONDS = 5000, LEAVE_MILLISECONDS = 100, WAL_STEP = 8 << 20, WAL_LIMIT = 128 << 20 };

char *kvs_trace_file_name(const char *path) {
  size_t length = strlen(path);
  bool absolute = path[0] == '/';
  char *name = malloc(length + 3);
  if (!name) return NULL;
  memcpy(name, "./", 2);
  memcpy(name + (absolute ? 0 : 2), path, length + 1);
  return name;
}

/* ---- what SQLite says ------------------------------------------------------------------------------------------ */

/* "steps 0..41 of run 2 are kept", for the end of a message. */
static const char *kept(const kvs_trace *trace, char *text, size_t size) {
  if (trace->run == 0)
    snprintf(text, size, "nothing was written");
  else if (trace->last_step_kept < 0)
    snprintf(text, size, "no step of run %d is kept", trace->run);
  else
    snprintf(text, size, "steps 0..%d of run %d are kept", trace->last_step_kept, trace->run);
  return text;
}

/* Is the file or its log as long as this process may make one? */
static bool at_size_limit(const kvs_trace *trace) {
  enum { ONE_WRITE = 65536 + 64 };
  struct rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  static const char *const ends[] = {"", "-wal"};
  for (int i = 0; i < 2; i++) {
    struct stat st;
    char *name = sqlite3_mprintf("%s%s", trace->file, ends[i]);
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

kvs_status kvs_trace_fail(kvs_trace *trace, int rc, kvs_error *err) {
  const char *path = trace->path;
  char end[80];
  kept(trace, end, sizeof end);
  const char *said = trace->db ? sqlite3_errmsg(trace->db) : sqlite3_errstr(rc);
  if (is_full(trace, rc))
    return kvs_fail(err, KVS_ERR_IO, "%s: disk full; %s; free some space, or log less", path, end);
  if (rc == SQLITE_READONLY_DBMOVED)
    return kvs_fail(
        err, KVS_ERR_IO,
        "%s: deleted, moved or replaced by another program while it was being written; the run's steps went "
        "to the file that was there before; run it again",
        path);
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

/* ---- transactions ---------------------------------------------------------------------------------------------- */

kvs_status kvs_trace_begin(kvs_trace *trace, kvs_error *err) {
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

/* Moves the log into the file here and now; the next step then begins it anew. */
static kvs_status move_now(kvs_trace *trace, kvs_error *err) {
  trace->wal_moved = 0;
  int rc = sqlite3_wal_checkpoint_v2(trace->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
  return rc == SQLITE_OK || (rc & 0xFF) == SQLITE_BUSY ? KVS_OK : kvs_trace_fail(trace, rc, err);
}

/* SQLite's own checkpoint after a commit would make the commit look failed when only the checkpoint was. The mover does most of
 * the work beside the run. The log can begin anew only when all of it is in the file and nobody adds to it: so when it has grown
 * long, the few steps since the mover was last asked are moved here. */
static kvs_status move_wal(kvs_trace *trace, kvs_error *err) {
  int rc = SQLITE_OK, since = trace->wal_pages - trace->wal_moved;
  if (since < 0) since = trace->wal_pages, trace->wal_moved = 0; /* it has begun anew */
  if (since < trace->wal_step && trace->wal_pages < trace->wal_limit) return KVS_OK;
  if (!trace->mover) trace->mover = kvs_mover_start(trace->file);
  if (!trace->mover) return move_now(trace, err);
  bool idle = kvs_mover_idle(trace->mover, &rc);
  if (rc != SQLITE_OK) return kvs_trace_fail(trace, rc, err);
  if (!idle) return KVS_OK;
  if (trace->wal_pages >= trace->wal_limit && since < trace->wal_step) return move_now(trace, err);
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
  trace->made_file = trace->reopens = false;
  trace->last_step_kept = trace->last_step_reported;
  return move_wal(trace, err);
}

/* ---- opening --------------------------------------------------------------------------------------------------- */

/* The folder that `path` is in. */
static kvs_status check_folder(const char *path, kvs_error *err) {
  char *folder = strdup(path);
  if (!folder) return kvs_fail_memory(err, "opening a trace");
  char *slash = strrchr(folder, '/');
  if (slash == folder)
    slash[1] = '\0';
  else if (slash)
    *slash = '\0';
  const char *name = slash ? folder : ".";
  struct stat st;
  kvs_status status = KVS_OK;
  if (stat(name, &st) != 0 && (errno == ENOENT || errno == ENOTDIR))
    status = kvs_fail(err, KVS_ERR_IO, "%s: the folder %s does not exist; make it with mkdir -p", path, name);
  else if (access(name, W_OK | X_OK) != 0)
    status = kvs_fail(err, KVS_ERR_IO, "%s: the folder %s cannot be written (%s); choose another, or chmod it", path,
                      name, strerror(errno));
  else if (!S_ISDIR(st.st_mode))
    status = kvs_fail(err, KVS_ERR_IO, "%s: %s is not a folder; name a file in one", path, name);
  free(folder);
  return status;
}

/* Whether this is the file that kvs_trace_create has inspected. Looking into it again would be worse than useless: closing any
 * descriptor of a file drops this process's locks on it (fcntl(2)), also those of an SQLite connection that reads it. */
static bool is_inspected(const kvs_trace *trace, const struct stat *st) {
  return trace && trace->inspected && trace->device == (uint64_t)st->st_dev && trace->inode == (uint64_t)st->st_ino;
}

/* `trace` NULL: it is being created. */
static kvs_status check_path(const kvs_trace *trace, const char *path, kvs_trace_open_mode mode, kvs_error *err) {
  if (!*path) return kvs_fail(err, KVS_ERR_IO, "the trace's file name is empty; name a file");
  const char *slash = strrchr(path, '/');
  size_t most = NAME_MAX - strlen("-journal"); /* SQLite puts its log and its journal beside the file */
  if (strlen(slash ? slash + 1 : path) > most)
    return kvs_fail(err, KVS_ERR_IO, "a trace's file name has at most %zu bytes, and this one is longer: %s", most,
                    path);
  struct stat st;
  if (lstat(path, &st) != 0) {
    if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
      return kvs_fail(err, KVS_ERR_IO, "%s: %s", path, strerror(errno));
    return check_folder(path, err);
  }
  if (stat(path, &st) != 0) return kvs_fail(err, KVS_ERR_IO, "%s: a link that leads nowhere; remove it", path);
  if (S_ISDIR(st.st_mode)) return kvs_fail(err, KVS_ERR_IO, "%s: a folder; name a file in it", path);
  if (!S_ISREG(st.st_mode)) return kvs_fail(err, KVS_ERR_IO, "%s: not a regular file; a trace must be one", path);
  if (mode == KVS_TRACE_NEW)
    return kvs_fail(err, KVS_ERR_IO,
                    "%s: exists already; add a run to it (--append), replace it (--force), or choose another name",
                    path);
  if (mode == KVS_TRACE_APPEND) {
    kvs_status status = is_inspected(trace, &st) ? KVS_OK : kvs_trace_inspect(path, err);
    if (status != KVS_OK) return status;
    if (access(path, W_OK) != 0)
      return kvs_fail(err, KVS_ERR_IO, "%s: cannot be written (%s); chmod or copy it", path, strerror(errno));
  }
  return check_folder(path, err);
}

static void free_trace(kvs_trace *trace) {
  for (int i = 0; i < 2; i++) kvs_tape_free(&trace->tapes[i]);
  pthread_cond_destroy(&trace->written);
  pthread_mutex_destroy(&trace->mutex);
  free(trace->path);
  free(trace->file);
  free(trace);
}

kvs_status kvs_trace_create(const char *path, kvs_trace_open_mode mode, kvs_trace **out, kvs_error *err) {
  *out = NULL;
  kvs_status status = check_path(NULL, path, mode, err);
  if (status != KVS_OK) return status;
  struct stat st;
  kvs_trace *trace = calloc(1, sizeof *trace);
  if (trace) {
    trace->mode = mode;
    trace->path = strdup(path);
    trace->file = kvs_trace_file_name(path);
    trace->last_step_reported = trace->last_step_kept = -1;
    pthread_mutex_init(&trace->mutex, NULL);
    pthread_cond_init(&trace->written, NULL);
    trace->inspected = mode == KVS_TRACE_APPEND && stat(path, &st) == 0;
    if (trace->inspected) trace->device = (uint64_t)st.st_dev, trace->inode = (uint64_t)st.st_ino;
  }
  if (!trace || !trace->path || !trace->file) {
    if (trace) free_trace(trace);
    return kvs_fail_memory(err, "opening a trace");
  }
  *out = trace;
  return KVS_OK;
}

/* Who writes to a database in WAL mode holds a lock on its file all the while. If the file were replaced under them, they
 * would remove the new one's log when they close theirs, since that goes by its name. */
static kvs_status check_unused(const kvs_trace *trace, kvs_error *err) {
  int file = open(trace->file, O_RDWR | O_CLOEXEC);
  if (file < 0) return KVS_OK; /* what that means is told by who makes the file */
  /* SQLite's lock bytes: https://www.sqlite.org/fileformat.html#the_lock_byte_page */
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1 << 30, .l_len = 512};
  bool used = fcntl(file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  close(file);
  if (!used) return KVS_OK;
  return kvs_fail(
      err, KVS_ERR_IO,
      "%s: in use by another program (process %ld), so it is not replaced; end that, or choose another name",
      trace->path, (long)lock.l_pid);
}

/* Removes the old trace with what a crash may have left beside it. */
static kvs_status remove_old(kvs_trace *trace, kvs_error *err) {
  static const char *const ends[] = {"-wal", "-shm", "-journal", ""};
  for (int i = 0; i < 4; i++) {
    char *name = sqlite3_mprintf("%s%s", trace->file, ends[i]);
    if (!name) return kvs_fail_memory(err, "replacing a trace");
    int failed = unlink(name) == 0 || errno == ENOENT ? 0 : errno;
    sqlite3_free(name);
    if (failed)
      return kvs_fail(err, KVS_ERR_IO, "%s: cannot be replaced: %s; remove it, or choose another name", trace->path,
                      strerror(failed));
  }
  return KVS_OK;
}

/* Makes the file, so that two writers cannot both believe they did. */
static kvs_status make_file(kvs_trace *trace, kvs_error *err) {
  int file = open(trace->file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0)
    return errno == EEXIST
               ? kvs_fail(
                     err, KVS_ERR_IO,
                     "%s: exists already; add a run to it (--append), replace it (--force), or choose another name",
                     trace->path)
               : kvs_fail(err, KVS_ERR_IO, "%s: cannot be made: %s; choose another folder, or chmod this one",
                          trace->path, strerror(errno));
  close(file);
  trace->made_file = true;
  return KVS_OK;
}

static kvs_status connect_file(kvs_trace *trace, const kvs_config *config, kvs_error *err) {
  /* One thread at a time uses it: see struct kvs_trace. */
  int rc = sqlite3_open_v2(trace->file, &trace->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
  if (rc != SQLITE_OK) return kvs_trace_fail(trace, rc, err);
  sqlite3_extended_result_codes(trace->db, 1);
  sqlite3_busy_timeout(trace->db, BUSY_MILLISECONDS);
  /* A trace has no triggers. Those of a file that somebody else made could change what is appended, or never end. */
  sqlite3_db_config(trace->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, (int *)NULL);
  sqlite3_db_config(trace->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, (int *)NULL);
  /* Rows of wide models fill 64 KiB pages well; 4 KiB pages waste less in a small trace. */
  int page = config->n_embd >= 512 ? 65536 : 4096;
  char sql[96];
  snprintf(sql, sizeof sql, "PRAGMA page_size = %d", page);
  kvs_status status = trace->made_file ? kvs_trace_exec(trace, sql, err) : KVS_OK;
  /* A file that holds nothing yet has nothing to lose: its first page need not wait for the disk. */
  if (status == KVS_OK && trace->made_file) status = kvs_trace_exec(trace, "PRAGMA synchronous = OFF", err);
  if (status == KVS_OK) status = kvs_trace_exec(trace, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL", err);
  /* What a step writes stays in memory until it is committed: else SQLite puts it into the log and reads it back. */
  if (status == KVS_OK) status = kvs_trace_exec(trace, "PRAGMA cache_size = -4000", err);
  /* What the engine logs is as the constraints want it. */
  if (status == KVS_OK && !trace->whole) status = kvs_trace_exec(trace, "PRAGMA ignore_check_constraints = ON", err);
  if (status != KVS_OK) return status;
  trace->wal_step = WAL_STEP / page;
  trace->wal_limit = WAL_LIMIT / page;
  sqlite3_wal_hook(trace->db, count_wal, trace); /* replaces SQLite's automatic checkpoint */
  return KVS_OK;
}

kvs_status kvs_trace_open(kvs_trace *trace, const kvs_config *config, kvs_error *err) {
  if (trace->db) return KVS_OK;
  kvs_status status = check_path(trace, trace->path, trace->mode, err); /* it may have changed since kvs_trace_create */
  if (status != KVS_OK) return status;
  bool appending = trace->mode == KVS_TRACE_APPEND && access(trace->file, F_OK) == 0;
  if (trace->mode == KVS_TRACE_REPLACE) status = check_unused(trace, err);
  if (status == KVS_OK && trace->mode == KVS_TRACE_REPLACE) status = remove_old(trace, err);
  if (status == KVS_OK && !appending) status = make_file(trace, err);
  if (status == KVS_OK) status = connect_file(trace, config, err);
  return status;
}

/* ---- closing --------------------------------------------------------------------------------------------------- */

/* Moves the log into the file, so that one file is left. */
static kvs_status make_one_file(kvs_trace *trace, kvs_error *err) {
  if (trace->lost)
    sqlite3_busy_timeout(trace->db, LEAVE_MILLISECONDS); /* what holds it has been waited for, and told */
  int rc = sqlite3_wal_checkpoint_v2(trace->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
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
  if ((rc & 0xFF) == SQLITE_BUSY || (rc & 0xFF) == SQLITE_LOCKED)
    return kvs_fail(err, KVS_ERR_IO,
                    "%s: %sstill open in another program, so %s-wal stays; keep both files until it closes",
                    trace->path, trace->lost ? "" : "complete, but ", trace->path);
  if (is_full(trace, rc))
    return kvs_fail(err, KVS_ERR_IO,
                    "%s: disk full; what is kept lies in it and in %s-wal: keep both files, and free some space before "
                    "opening them",
                    trace->path, trace->path);
  return kvs_trace_fail(trace, rc, err);
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
  if (trace->db && !trace->made_file) {
    /* A file that was refused, and to which nothing was added, is none of ours to tidy up; why, was told. */
    kvs_status made = make_one_file(trace, status == KVS_OK && trace->checked ? err : &later);
    if (status == KVS_OK && trace->checked) status = made;
  }
  int rc = sqlite3_close(trace->db);
  if (rc != SQLITE_OK && status == KVS_OK)
    status = kvs_fail(err, KVS_ERR_IO, "%s: cannot be closed: %s", trace->path, sqlite3_errstr(rc));
  trace->db = NULL;
  if (trace->made_file) { /* nothing was committed: leave nothing */
    kvs_status removed = remove_old(trace, status == KVS_OK ? err : &later);
    if (status == KVS_OK) status = removed;
  }
  free_trace(trace);
  return status;
}
