/* store.h: what the files of src/trace share: the trace that is being written, and its SQLite errors told to a person. */
#ifndef KVS_TRACE_STORE_H
#define KVS_TRACE_STORE_H

#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvstep/trace.h"
#include "trace/mover.h"
#include "trace/tape.h"

/* The statements that a run keeps prepared. */
typedef enum kvs_trace_insert {
  KVS_INSERT_STEP,
  KVS_INSERT_EVENT,
  KVS_INSERT_KV_ROW,
  KVS_INSERT_HEAD_STEP,
  KVS_INSERT_HEAD_STAT,
  KVS_INSERT_LAYER_STEP,
  KVS_INSERT_STEP_VECTOR,
  KVS_INSERT_STEP_STAT,
  KVS_INSERT_TOP_TOKEN,
  KVS_INSERT_COUNT
} kvs_trace_insert;

/* What a step put in at the bottom, kept from `embed` to `logits`. */
typedef struct kvs_trace_input {
  int step;
  bool has[3], written;
  float *vectors; /* [3][n_embd]: wte, wpe, x */
} kvs_trace_input;

/* What may be wrong with a file for longer than one call. */
enum { KVS_TOLD_LOCKED = 1, KVS_TOLD_FULL = 2, KVS_TOLD_MOVED = 4 };

/* How far the tape is that is not being filled. */
typedef enum kvs_tape_state { KVS_TAPE_WRITTEN, KVS_TAPE_WAITING, KVS_TAPE_TAKEN } kvs_tape_state;

/* While a tape is taken, all that has to do with the file and with the run's rows belongs to the thread that took it; else to the
 * thread that calls. */
struct kvs_trace {
  char *path; /* as the caller gave it, for messages */
  char *file; /* the same, so that SQLite takes it for a file's name and nothing else */
  kvs_trace_open_mode mode;
  sqlite3 *db;            /* NULL before the first run */
  bool whole;             /* a run is one transaction and has no events: it is brought in from elsewhere */
  bool inspected;         /* the file that is there now was looked at in kvs_trace_create */
  uint64_t device, inode; /* it is this one */
  bool checked;           /* the file is of the model and the vocabulary that are being written */
  bool stat_is_real;      /* its head_stat is of an earlier schema.sql, which has a REAL for each number */
  bool made_file;         /* this trace created the file, and no step and no run's end has come of it yet */
  bool committed;         /* this trace has committed something */
  unsigned told;          /* KVS_TOLD_…: what is wrong with the file, told since the last commit; it is told once */
  int left_run;           /* a run without a step that was left and could not be taken out again; 0: none */
  int wal_pages;          /* pages in the write-ahead log after the last commit */
  int wal_moved;          /* how many of them the mover was last asked to move into the file */
  int wal_step;           /* how many more there must be before it is asked again */
  int wal_limit;          /* from how many on it is asked after each commit, so that the log begins anew */
  kvs_mover *mover;       /* NULL: not needed yet */
  const volatile sig_atomic_t *interrupted; /* not 0: locks are not waited for any more; NULL: nobody says so */

  int run; /* 0: no run is open */
  kvs_config config;
  kvs_trace_source source;
  kvs_log_level level;
  int first_step, last_step;
  bool *layers, *heads; /* [n_layer], [n_head] */
  sqlite3_stmt *insert[KVS_INSERT_COUNT];
  bool in_transaction;
  bool reopens; /* the run was finished, and is not with the first step that is added */
  int64_t seq;
  int last_step_reported, last_step_kept; /* -1: none */
  kvs_trace_input *inputs;
  size_t input_count, input_room;

  kvs_tape tapes[2];
  int filling;           /* which of them; changed under the mutex, when the other one is written */
  double handed_over;    /* when that was, as kvs_now() tells it */
  int together;          /* steps and batches settled since */
  bool has_pieces;       /* the batch that is being told is so long that some of it is in the open transaction */
  pthread_mutex_t mutex; /* over all that follows */
  pthread_cond_t written;
  kvs_tape_state other;
  kvs_error late; /* what went wrong behind a step and was not told yet; status KVS_OK: nothing */
  bool failed;    /* a step was rolled back: nothing more may follow it in this run */
};

/* schema.sql. */
const char *kvs_trace_schema(void);

/* Runs SQL; on an error fills *err as kvs_trace_fail does. */
kvs_status kvs_trace_exec(kvs_trace *trace, const char *sql, kvs_error *err);

/* Prepares one statement. */
kvs_status kvs_trace_prepare(kvs_trace *trace, const char *sql, sqlite3_stmt **out, kvs_error *err);

/* Steps a statement that returns no rows and resets it. */
kvs_status kvs_trace_run(kvs_trace *trace, sqlite3_stmt *statement, kvs_error *err);

/* Tells what SQLite just refused: disk full, locked, read-only … and which steps are kept. */
kvs_status kvs_trace_fail(kvs_trace *trace, int rc, kvs_error *err);

/* The first column of the first row. */
kvs_status kvs_trace_value(kvs_trace *trace, const char *sql, int64_t *value, kvs_error *err);

/* Which KVS_TOLD_… SQLite's code says; 0: none. */
unsigned kvs_trace_told_by(const kvs_trace *trace, int rc);

/* Whether the file is not what its name says any more: deleted, moved, or replaced by another one. */
bool kvs_trace_is_moved(const kvs_trace *trace);

/* Fails if the file has been moved: what is written to it now would be found by nobody. */
kvs_status kvs_trace_begin(kvs_trace *trace, kvs_error *err);
kvs_status kvs_trace_commit(kvs_trace *trace, kvs_error *err);
void kvs_trace_rollback(kvs_trace *trace);

/* Counts the log's pages, of `page` bytes, after each commit, in the place of SQLite's automatic checkpoint. */
void kvs_trace_watch_wal(kvs_trace *trace, int page);

/* Opens the file for the first run: creates or replaces it, or appends to it. */
kvs_status kvs_trace_open(kvs_trace *trace, const kvs_config *config, kvs_error *err);

/* Removes what a writer may have left beside the file; `file_too`: and then the file. */
kvs_status kvs_trace_remove_files(kvs_trace *trace, bool file_too, kvs_error *err);

void kvs_trace_free(kvs_trace *trace);

/* Within the transaction of the first step that is added to a finished run: it is finished no more. */
kvs_status kvs_trace_reopen_run(kvs_trace *trace, kvs_error *err);

/* What a run takes from its model and tokenizer. */
kvs_status kvs_trace_source_of(kvs_model *model, const kvs_tokenizer *tokenizer, kvs_trace_source *source,
                               kvs_error *err);

/* Inside the transaction that begins a run: a new file's schema and vocabulary, or an old file's check. */
kvs_status kvs_trace_prepare_file(kvs_trace *trace, const kvs_trace_source *source, kvs_error *err);

/* What is logged of the run. */
kvs_status kvs_trace_set_log(kvs_trace *trace, const kvs_log *log, kvs_error *err);

/* Frees what belongs to the open run. */
void kvs_trace_forget_run(kvs_trace *trace);

/* ---- writer.c: a run's rows ---- */

/* Its statements. */
kvs_status kvs_trace_prepare_inserts(kvs_trace *trace, kvs_error *err);

/* Does the log want the arrays of this moment? Its event is written in any case. */
bool kvs_trace_wants(const kvs_trace *trace, const kvs_moment *moment);
kvs_status kvs_trace_write_moment(kvs_trace *trace, const kvs_moment *moment, kvs_error *err);
kvs_status kvs_trace_write_step(kvs_trace *trace, const kvs_step *step, kvs_error *err);

/* The step's input vectors that wait for their row. */
void kvs_trace_forget_inputs(kvs_trace *trace);

/* ---- observer.c: what was told and is not written yet. Each must come before the file is used for anything else. ---- */

/* Waits until what is settled is in the file; writes it, if nobody has begun to. */
void kvs_trace_drain(kvs_trace *trace);

/* The same, and tells what went wrong with it or before, if that was not told yet. */
kvs_status kvs_trace_finish_writing(kvs_trace *trace, kvs_error *err);

/* After that: takes back what was told and is not settled. */
void kvs_trace_take_back(kvs_trace *trace);

/* A path that SQLite takes for a file's name and nothing else ("./" before "file:…" and ":memory:"); free() it. */
char *kvs_trace_file_name(const char *path);

/* How a token is shown, in text that the caller frees with free(); NULL if there is no memory. */
char *kvs_trace_token_text(const unsigned char *bytes, size_t length, int token);

/* Looks at an existing file before SQLite does: a folder, no permission, empty, no SQLite file, another application's,
 * another version, truncated. Reads only. */
kvs_status kvs_trace_inspect(const char *path, kvs_error *err);

/* Whether all tables of schema.sql are there and hold plain rows. A view in a table's place may have no end. */
kvs_status kvs_trace_check_tables(sqlite3 *db, const char *path, kvs_error *err);

/* While a file is opened that may come from anybody: SQLite gives up with SQLITE_INTERRUPT where its list of tables has no
 * end. */
void kvs_trace_bound_opening(sqlite3 *db, bool bound);

/* The error for that. */
kvs_status kvs_trace_fail_endless(const char *path, kvs_error *err);

/* The error for a file that a writer has made and never committed to. */
kvs_status kvs_trace_is_empty(const char *path, kvs_error *err);

/* True if a write-ahead log with something in it lies beside the file. */
bool kvs_trace_has_wal(const char *path);

#endif
