/* trace.h: writing a decode to a SQLite trace, and opening one to read. docs/trace-schema.md documents the file. */
#ifndef KVSTEP_TRACE_H
#define KVSTEP_TRACE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "kvstep/engine.h"
#include "kvstep/error.h"
#include "kvstep/model.h"
#include "kvstep/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sqlite3;

#define KVS_TRACE_APPLICATION_ID 0x4B565354 /* 'KVST' */
#define KVS_TRACE_VERSION 1
#define KVS_TOP_TOKENS 20 /* ranks stored per step in top_token */

typedef struct kvs_trace kvs_trace;

/* What to do when the path exists. */
typedef enum kvs_trace_open_mode {
  KVS_TRACE_NEW,     /* refuse */
  KVS_TRACE_REPLACE, /* replace it, once the first run begins */
  KVS_TRACE_APPEND   /* add a run to it; create it if it is not there */
} kvs_trace_open_mode;

/* How much is logged. */
typedef enum kvs_log_level {
  KVS_LOG_STEPS,     /* run, token, step, event, top_token */
  KVS_LOG_ATTENTION, /* … and kv_row, head_step, step_vector */
  KVS_LOG_FULL       /* … and layer_step */
} kvs_log_level;

typedef struct kvs_log {
  kvs_log_level level;
  const bool *layers; /* [n_layer] which layers' kv_row, head_step, layer_step are logged; NULL: all */
  const bool *heads;  /* [n_head] which heads' head_step are logged; NULL: all */
  int first_step;     /* steps outside first_step..last_step get only what KVS_LOG_STEPS logs */
  int last_step;      /* -1: no end */
} kvs_log;

/* What the `run` table says of a run beyond the model. Strings may be NULL (stored as NULL). */
typedef struct kvs_run_info {
  const char *command;
  const kvs_fault *fault; /* NULL: "none" */
  int fault_from_step;
  kvs_sampling sampling; /* as the tokens were really chosen; greedy is temperature 0, top_p 1 */
  const char *prompt;    /* prompt_length bytes; stored as TEXT if it is UTF-8 without NUL, else as BLOB */
  size_t prompt_length;
} kvs_run_info;

/* Where a run comes from, in plain data: for an engine that is not kvstep's. */
typedef struct kvs_trace_source {
  const kvs_config *config; /* n_layer, n_head, n_embd, head_dim, n_ctx and n_vocab are used */
  const char *model;        /* a name to show; NULL: not known */
  const char *sha256;       /* of the weights, lower-case hexadecimal (kvs_model_sha256); NULL: not known */
  int tokens;               /* how many ids the vocabulary has */
  /* The vocabulary has ids 0 … tokens - 1, each with its bytes. NULL: an id without a token. Called by the functions of this header
   * and of the observer, `behind` as well: on the thread that calls them. */
  const unsigned char *(*bytes)(const void *context, int token, size_t *length);
  const void *context;
  const char *engine, *engine_version; /* who decoded. engine NULL: kvstep, in its own version; else the run's fault is
                                          NULL (not known) if `info` has none, and so is the sampling if top_p is 0 */
} kvs_trace_source;

/* Opens a trace for writing. Nothing existing is touched before kvs_trace_begin_run. *out is freed by kvs_trace_close.
 * Errors: KVS_ERR_IO (a folder, no permission, no such folder, exists already), KVS_ERR_INPUT (APPEND to a file that
 * is not a trace, or of a newer version). */
KVS_API kvs_status kvs_trace_create(const char *path, kvs_trace_open_mode mode, kvs_trace **out, kvs_error *err);

/* While *flag is not 0, as a signal handler may set it, no call waits for another program's lock on the file: it fails at once
 * (KVS_ERR_IO), and not after five seconds. The flag must outlive the trace; NULL: there is none. */
KVS_API void kvs_trace_interrupted_by(kvs_trace *trace, const volatile sig_atomic_t *flag);

/* Begins a run; *run (may be NULL) gets its number, from 1. Model and tokenizer must outlive the run; `info` (may be NULL) and
 * `log` (NULL: KVS_LOG_ATTENTION of all layers, heads and steps) are copied.
 * Errors: KVS_ERR_INPUT (the file holds runs of another model or tokenizer), KVS_ERR_IO (as above; a file to be replaced is
 * being written by another process). */
KVS_API kvs_status kvs_trace_begin_run(kvs_trace *trace, kvs_model *model, const kvs_tokenizer *tokenizer,
                                       const kvs_run_info *info, const kvs_log *log, int *run, kvs_error *err);

/* The same for an engine of your own. It then calls the functions of kvs_trace_observer itself, in this order: for each step
 * `moment` with READ_LENGTH, EMBED, for each layer PROJECT … MLP, then LOGITS, and `step_end`; after each decode step, and
 * once after a batch, `settled`. In a batch the moments of its steps may be interleaved as they happen. A phase that the engine
 * does not have is left out, and so is each array that it cannot show (NULL). What a phase is written from: EMBED wte, wpe, x;
 * APPEND row, row_k, row_v; MIX q, rows, scores, weights, out; MLP x_in, attn_out, x_mid, mlp_out, x_out (KVS_LOG_FULL);
 * LOGITS logits. A kvs_step's logprob and seconds are NaN where they are not known: 0 would be a probability of 1.
 * docs/recording.md has an example. `source` is copied; what it points to must outlive the run. `info` may be NULL.
 * Errors: as for kvs_trace_begin_run; KVS_ERR_USAGE (a shape that is none). */
KVS_API kvs_status kvs_trace_begin_run_from(kvs_trace *trace, const kvs_trace_source *source, const kvs_run_info *info,
                                            const kvs_log *log, int *run, kvs_error *err);

/* Opens run number `run` of an existing file again, so that more steps follow its last one; `log` says how those are logged.
 * Before the first of them the engine must have been fed what the run was fed, unobserved, with the same fault. finished_at
 * is NULL from the first new step on; before it nothing in the file changes.
 * Errors: as for kvs_trace_begin_run; KVS_ERR_INPUT (no such run, or another engine's). */
KVS_API kvs_status kvs_trace_resume_run(kvs_trace *trace, kvs_model *model, const kvs_tokenizer *tokenizer, int run,
                                        const kvs_log *log, kvs_error *err);

/* The observer to hand to kvs_engine_observe. What is told is copied. A transaction holds whole steps: one decode step or one
 * prefill batch, or up to four of them that were settled within 0.1 s. `behind` writes them, beside the next step if the engine
 * has a thread to spare, and if nobody calls it a later `settled` does. A program that is killed loses seven at most; none after
 * kvs_trace_settle. An error in writing (KVS_ERR_IO: disk full, locked, the file not in its place any more) rolls that
 * transaction back; every earlier one stays in the file. The next call that returns a status tells it, once. Let the engine be
 * done with the trace (kvs_engine_settle, or kvs_engine_observe with NULL) before kvs_trace_close. */
KVS_API kvs_observer kvs_trace_observer(kvs_trace *trace);

/* Waits until every step and batch that is settled is in the file, where another connection sees it. Errors: what went wrong with
 * writing them (KVS_ERR_IO, as above); KVS_ERR_USAGE (a step of the open run was lost, and that was told before). */
KVS_API kvs_status kvs_trace_settle(kvs_trace *trace, kvs_error *err);

/* Sets run.finished_at. Errors: KVS_ERR_IO (as for kvs_trace_settle: the run is then not finished, and still open; if all its
 * steps are in the file, and only the end found it locked, the call may be made again), KVS_ERR_USAGE (no run is open). */
KVS_API kvs_status kvs_trace_end_run(kvs_trace *trace, kvs_error *err);

/* Leaves the open run without ending it: half a step is taken back, every whole one stays, and another process may write. A
 * run that has no step is taken out again. Returns how many steps of it are in the file. Call it when a step was cancelled or has
 * failed. Harmless when no run is open. What went wrong with the last step is told by the next call that returns a status; call
 * kvs_trace_settle first to know it. */
KVS_API int kvs_trace_leave_run(kvs_trace *trace);

/* Leaves ONE file in DELETE journal mode and frees the trace, also on failure. (While another program reads it, the file is
 * complete too, but stays in WAL mode with an empty -wal beside it until it is next written to.) A run that was not ended stays
 * without finished_at. A file that was made here and holds no run, since those that were begun were left without a step, is removed again.
 * Nobody may call the trace's observer any more. NULL is allowed. Errors: as for kvs_trace_settle; KVS_ERR_IO (the file cannot be
 * closed, or what stands in the way of that one file: another program, a full disk, a file that is not in its place any more; not
 * what has been told already). */
KVS_API kvs_status kvs_trace_close(kvs_trace *trace, kvs_error *err);

/* Opens a trace to read, with the SQL functions and the fast views of the extension. The file is never written: it may be on
 * read-only media, and may be growing. The caller closes *db with sqlite3_close.
 * Errors: KVS_ERR_IO, KVS_ERR_INPUT (no SQLite file, another application's, a newer version, truncated: each its own message). */
KVS_API kvs_status kvs_trace_read(const char *path, struct sqlite3 **db, kvs_error *err);

#ifdef __cplusplus
}
#endif

#endif
