/* look.c: opening a look into a trace, asking SQLite, remembering what it refused, and noticing that the trace has changed. */
#include "study/look/look_parts.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Longer than this nobody is kept waiting by another program's lock: not for each question, but for all of them together. */
#define BUSY_MILLISECONDS 100
#define BUSY_PART 10
/* No vector of a model is longer; a broken or hostile file must not fill the memory. */
#define LONGEST_VALUE (32 << 20)

/* ---- failures ---- */

static void describe(struct look *look, int code) {
  const char *said = sqlite3_errmsg(look->db);
  look->failed = true;
  switch (code & 0xFF) {
  case SQLITE_NOMEM:
    kvs_fail_memory(&look->error, "reading the trace");
    return;
  case SQLITE_BUSY:
  case SQLITE_LOCKED:
    kvs_fail(&look->error, KVS_ERR_IO, "the trace is locked by another program; it is read when that has finished");
    return;
  case SQLITE_CORRUPT:
  case SQLITE_NOTADB:
    kvs_fail(&look->error, KVS_ERR_INPUT, "the trace is damaged or was cut short (%s); take another copy", said);
    return;
  case SQLITE_IOERR:
  case SQLITE_CANTOPEN:
    kvs_fail(&look->error, KVS_ERR_IO, "the trace cannot be read any more: %s", said);
    return;
  default:
    kvs_fail(&look->error, KVS_ERR_INPUT, "the trace cannot be read: %s; `kvstep info` shows what is in it", said);
  }
}

void look_no_memory(struct look *look) {
  look->failed = true;
  kvs_fail_memory(&look->error, "reading the trace");
}

const char *look_error(struct look *look) {
  if (!look->failed) return NULL;
  look->failed = false;
  memcpy(look->told, look->error.message, sizeof look->told);
  return look->told;
}

/* ---- asking ---- */

bool look_ask(struct look *look, enum look_query query, const int *parameters, int count, bool *row) {
  sqlite3_stmt **statement = &look->statements[query];
  *row = false;
  int code = SQLITE_OK;
  if (!*statement) code = sqlite3_prepare_v3(look->db, look_sql[query], -1, SQLITE_PREPARE_PERSISTENT, statement, NULL);
  for (int i = 0; code == SQLITE_OK && i < count; i++) code = sqlite3_bind_int(*statement, i + 1, parameters[i]);
  if (code == SQLITE_OK) return look_ask_more(look, query, row);
  describe(look, code);
  return false;
}

bool look_ask_more(struct look *look, enum look_query query, bool *row) {
  int code = sqlite3_step(look->statements[query]);
  *row = code == SQLITE_ROW;
  if (code == SQLITE_ROW || code == SQLITE_DONE) {
    look->locked_out = false;
    return true;
  }
  describe(look, code);
  sqlite3_reset(look->statements[query]); /* says the same once more */
  return false;
}

void look_done(struct look *look, enum look_query query) {
  int code = sqlite3_reset(look->statements[query]);
  if (code != SQLITE_OK) describe(look, code);
}

int look_int(sqlite3_stmt *statement, int column) {
  if (sqlite3_column_type(statement, column) != SQLITE_INTEGER) return LOOK_NONE;
  sqlite3_int64 value = sqlite3_column_int64(statement, column);
  return value < 0 || value > LOOK_LARGEST ? LOOK_NONE : (int)value;
}

void look_text(sqlite3_stmt *statement, int column, char *text, size_t size) {
  const unsigned char *from = sqlite3_column_text(statement, column);
  size_t length = from ? (size_t)sqlite3_column_bytes(statement, column) : 0;
  if (length >= size) {
    length = size - 1;
    while (length > 0 && (from[length] & 0xC0) == 0x80) length--;
  }
  for (size_t i = 0; i < length; i++) text[i] = from[i] < 0x20 || from[i] == 0x7F ? '?' : (char)from[i];
  text[length] = '\0';
}

/* ---- noticing changes ---- */

/* One number; `missing` where there is none. */
static bool ask_number(struct look *look, enum look_query query, int parameter, long long missing, long long *number) {
  bool row;
  *number = missing;
  if (!look_ask(look, query, &parameter, query == ASK_LAST_STEP ? 1 : 0, &row)) return false;
  sqlite3_stmt *statement = look->statements[query];
  if (row && sqlite3_column_type(statement, 0) != SQLITE_NULL) *number = sqlite3_column_int64(statement, 0);
  look_done(look, query);
  return true;
}

struct seen {
  long long version, runs, newest_step;
};

static bool see(struct look *look, struct seen *seen) {
  if (!ask_number(look, ASK_VERSION, 0, 0, &seen->version) || !ask_number(look, ASK_LAST_RUN, 0, 0, &seen->runs))
    return false;
  if (seen->runs < 0) seen->runs = 0;
  if (seen->runs >= INT_MAX) seen->runs = INT_MAX - 1;
  if (!ask_number(look, ASK_LAST_STEP, (int)seen->runs, LOOK_NONE, &seen->newest_step)) return false;
  if (seen->newest_step >= INT_MAX) seen->newest_step = INT_MAX - 1;
  return true;
}

/* True if the file has become shorter. That it is gone, or another lies in its place, is remembered, once: what was open
 * can still be read. */
static bool watch_file(struct look *look) {
  struct stat st;
  if (!look->has_file || look->told_gone) return false;
  bool there = stat(sqlite3_db_filename(look->db, "main"), &st) == 0;
  if (!there || st.st_dev != look->device || st.st_ino != look->inode) {
    look->told_gone = look->failed = true;
    kvs_fail(&look->error, KVS_ERR_IO,
             there ? "the trace was replaced by another file; what is shown is the old one, so open it again"
                   : "the trace was deleted or moved away; what is shown is still open here, until this ends");
    return false;
  }
  bool shorter = st.st_size < look->size;
  look->size = st.st_size;
  return shorter;
}

static bool all_stale(const struct look_entry *entry, const int *context) {
  (void)entry, (void)context;
  return true;
}

/* What was not there may be there now, and another engine may have been in the midst of its newest step. */
static bool maybe_stale(const struct look_entry *entry, const int *newest) {
  return !entry->value || entry->key[0] > newest[0] || (entry->key[0] == newest[0] && entry->key[1] >= newest[1]);
}

static void drop(struct look *look, bool grown) {
  const int newest[] = {look->runs, look->newest_step};
  for (int kind = 0; kind < LOOK_KINDS; kind++) {
    bool whole_steps = kind == HEADS || kind == ROWS || kind == VECTORS || kind == LAYERS || kind == TOPS ||
                       kind == SUMMARIES || kind == APPENDS; /* a step that was written stays as it is */
    look_cache_drop(&look->caches[kind], grown && whole_steps ? maybe_stale : all_stale, newest);
  }
}

kvs_status look_refresh(struct look *look, bool *changed, kvs_error *err) {
  struct seen seen;
  *changed = false;
  bool shorter = watch_file(look);
  if (!see(look, &seen)) {
    look->failed = false; /* told here */
    return kvs_fail(err, look->error.status, "%s", look->error.message);
  }
  bool more = seen.runs > look->runs || (seen.runs == look->runs && seen.newest_step > look->newest_step);
  bool same = seen.version == look->version && seen.runs == look->runs && seen.newest_step == look->newest_step;
  *changed = shorter || !same;
  if (*changed) drop(look, more && !shorter);
  look->version = seen.version;
  look->runs = (int)seen.runs;
  look->newest_step = (int)seen.newest_step;
  return KVS_OK;
}

/* ---- opening and closing ---- */

static kvs_status create_caches(struct look *look, kvs_error *err) {
  /* Small values are many on a screen: the heads of all layers, the steps of a map. The others are a few and large. `kept` is
   * what the contract promises, and one more for the entry that is being put. */
  static const struct {
    int capacity, kept;
    size_t budget;
  } sizes[LOOK_KINDS] = {
      [RUNS] = {128, 65, 1 << 20},  [STEPS] = {128, 65, 2 << 20},      [HEADS] = {1024, 65, 12 << 20},
      [ROWS] = {1024, 65, 8 << 20}, [VECTORS] = {128, 65, 12 << 20},   [LAYERS] = {128, 65, 4 << 20},
      [TOPS] = {128, 65, 1 << 20},  [SUMMARIES] = {2048, 65, 1 << 20}, [WRITERS] = {64, 2, 4 << 20},
      [LENGTHS] = {64, 2, 2 << 20}, [APPENDS] = {2048, 65, 1 << 20},   [TOKENS] = {1024, 65, 1 << 20}};
  kvs_status status = KVS_OK;
  for (int kind = 0; status == KVS_OK && kind < LOOK_KINDS; kind++)
    status = look_cache_create(&look->caches[kind], sizes[kind].capacity, sizes[kind].kept, sizes[kind].budget, err);
  return status;
}

/* SQLite asks whether to try once more. */
static int wait_for_lock(void *context, int times) {
  struct look *look = context;
  look->locked_out |= times * BUSY_PART >= BUSY_MILLISECONDS;
  if (look->locked_out) return 0;
  sqlite3_sleep(BUSY_PART);
  return 1;
}

kvs_status look_open(sqlite3 *db, struct look **out, kvs_error *err) {
  *out = NULL;
  struct look *look = calloc(1, sizeof *look);
  if (!look) {
    sqlite3_close(db);
    return kvs_fail_memory(err, "opening a trace");
  }
  static unsigned long opened;
  look->id = ++opened;
  look->db = db;
  look->newest_step = LOOK_NONE;
  sqlite3_busy_handler(db, wait_for_lock, look);
  sqlite3_limit(db, SQLITE_LIMIT_LENGTH, LONGEST_VALUE);
  struct stat st;
  const char *file = sqlite3_db_filename(db, "main");
  if (file && *file && stat(file, &st) == 0) {
    look->has_file = true;
    look->device = st.st_dev, look->inode = st.st_ino, look->size = st.st_size;
  }
  bool changed;
  kvs_status status = create_caches(look, err);
  if (status == KVS_OK) status = look_refresh(look, &changed, err);
  if (status == KVS_OK)
    *out = look;
  else
    look_close(look);
  return status;
}

void look_close(struct look *look) {
  if (!look) return;
  for (int i = 0; i < ASK_COUNT; i++) sqlite3_finalize(look->statements[i]);
  for (int kind = 0; kind < LOOK_KINDS; kind++) look_cache_free(&look->caches[kind]);
  sqlite3_close_v2(look->db); /* the SQL view may have a statement of its own left */
  free(look);
}

int look_runs(struct look *look) { return look->runs; }

sqlite3 *look_db(struct look *look) { return look->db; }

unsigned long look_id(const struct look *look) { return look->id; }
