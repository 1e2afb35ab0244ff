/* open.c: the file of a trace that is to be written: may it be, and is it made or added to? */
#include "trace/store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUSY_MILLISECONDS = 5000, BUSY_PART = 10, BUSY_FIRST = 10 };

char *kvs_trace_file_name(const char *path) {
  size_t length = strlen(path);
  bool absolute = path[0] == '/';
  char *name = malloc(length + 3);
  if (!name) return NULL;
  memcpy(name, "./", 2);
  memcpy(name + (absolute ? 0 : 2), path, length + 1);
  return name;
}

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

void kvs_trace_free(kvs_trace *trace) {
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
    if (trace) kvs_trace_free(trace);
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

kvs_status kvs_trace_remove_files(kvs_trace *trace, bool file_too, kvs_error *err) {
  static const char *const ends[] = {"-wal", "-shm", "-journal", ""};
  const char *file = trace->db ? sqlite3_db_filename(trace->db, "main") : trace->file; /* by its path from the root */
  for (int i = 0; i < 3 + file_too; i++) {
    char *name = sqlite3_mprintf("%s%s", file, ends[i]);
    if (!name) return kvs_fail_memory(err, "removing a trace");
    int failed = unlink(name) == 0 || errno == ENOENT ? 0 : errno;
    sqlite3_free(name);
    if (failed)
      return kvs_fail(err, KVS_ERR_IO, "%s%s: cannot be removed: %s; remove it, or choose another name", trace->path,
                      ends[i], strerror(failed));
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
  /* A log of a file that was there before is none of this one's; a writer that still has it open must not share it. */
  return kvs_trace_remove_files(trace, false, err);
}

void kvs_trace_interrupted_by(kvs_trace *trace, const volatile sig_atomic_t *flag) { trace->interrupted = flag; }

/* SQLite asks whether to try once more. Most locks are short: the first ten waits are of a millisecond. */
static int wait_for_lock(void *context, int times) {
  const kvs_trace *trace = context;
  bool interrupted = trace->interrupted && *trace->interrupted != 0;
  if (interrupted || times >= BUSY_FIRST + BUSY_MILLISECONDS / BUSY_PART) return 0;
  sqlite3_sleep(times < BUSY_FIRST ? 1 : BUSY_PART);
  return 1;
}

static kvs_status connect_file(kvs_trace *trace, const kvs_config *config, kvs_error *err) {
  /* One thread at a time uses it: see struct kvs_trace. */
  int rc = sqlite3_open_v2(trace->file, &trace->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
  if (rc != SQLITE_OK) return kvs_trace_fail(trace, rc, err);
  sqlite3_extended_result_codes(trace->db, 1);
  sqlite3_busy_handler(trace->db, wait_for_lock, trace);
  /* A trace has no triggers. Those of a file that somebody else made could change what is appended, or never end. */
  sqlite3_db_config(trace->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, (int *)NULL);
  sqlite3_db_config(trace->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, (int *)NULL);
  /* Rows of wide models fill 64 KiB pages well; 4 KiB pages waste less in a small trace. */
  int page = config->n_embd >= 512 ? 65536 : 4096;
  char sql[96];
  snprintf(sql, sizeof sql, "PRAGMA page_size = %d", page);
  kvs_trace_bound_opening(trace->db, true);
  kvs_status status = trace->made_file ? kvs_trace_exec(trace, sql, err) : KVS_OK;
  /* A file that holds nothing yet has nothing to lose: its first page need not wait for the disk. */
  if (status == KVS_OK && trace->made_file) status = kvs_trace_exec(trace, "PRAGMA synchronous = OFF", err);
  if (status == KVS_OK) status = kvs_trace_exec(trace, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL", err);
  kvs_trace_bound_opening(trace->db, false);
  /* What a step writes stays in memory until it is committed: else SQLite puts it into the log and reads it back. */
  if (status == KVS_OK) status = kvs_trace_exec(trace, "PRAGMA cache_size = -8000", err);
  /* What the engine logs is as the constraints want it. */
  if (status == KVS_OK && !trace->whole) status = kvs_trace_exec(trace, "PRAGMA ignore_check_constraints = ON", err);
  if (status != KVS_OK) return status;
  kvs_trace_watch_wal(trace, page);
  return KVS_OK;
}

kvs_status kvs_trace_open(kvs_trace *trace, const kvs_config *config, kvs_error *err) {
  if (trace->db) return KVS_OK;
  kvs_status status = check_path(trace, trace->path, trace->mode, err); /* it may have changed since kvs_trace_create */
  if (status != KVS_OK) return status;
  bool appending = trace->mode == KVS_TRACE_APPEND && access(trace->file, F_OK) == 0;
  if (trace->mode == KVS_TRACE_REPLACE) status = check_unused(trace, err);
  if (status == KVS_OK && trace->mode == KVS_TRACE_REPLACE) status = kvs_trace_remove_files(trace, true, err);
  if (status == KVS_OK && !appending) status = make_file(trace, err);
  if (status == KVS_OK) status = connect_file(trace, config, err);
  return status;
}
