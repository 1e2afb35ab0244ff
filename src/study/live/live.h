/* live.h: decoding while somebody looks: a model, an engine and a trace writer on a thread of their own. Whoever looks reads
 * the trace, as always; here work is ordered, watched and stopped. Nothing that is in the trace is ever changed: steps are added to a
 * run, or runs to the file.
 *
 * All functions are for ONE thread, the one that looks. live_ask reads the trace, the thread behind it writes it.
 */
#ifndef KVS_STUDY_LIVE_H
#define KVS_STUDY_LIVE_H

#include <stdbool.h>
#include <stddef.h>

#include "kvstep/engine.h"
#include "kvstep/tokenizer.h"
#include "kvstep/trace.h"

struct sqlite3;
struct live;

/* What is to be decoded. */
enum live_kind {
  LIVE_GO_ON,  /* more tokens of `run`, as it samples and with its fault */
  LIVE_PROMPT, /* a new run of `prompt`; all else as in `run` */
  LIVE_AGAIN   /* a new run of the very tokens of `run`, each forced, under `fault` from the first decode step on */
};

struct live_order {
  enum live_kind kind;
  int run;
  int tokens;             /* to generate: fewer if the text or the context ends before */
  const char *prompt;     /* LIVE_PROMPT: [prompt_length], copied */
  size_t prompt_length;   /* ≥ 1 */
  const kvs_fault *fault; /* LIVE_AGAIN; NULL: none */
};

enum live_end {
  LIVE_NOT_YET,   /* nothing was ordered */
  LIVE_DONE,      /* as many tokens as ordered */
  LIVE_END_TOKEN, /* the last one is the model's end of text */
  LIVE_CONTEXT,   /* no position or row is left: `text` has the engine's words */
  LIVE_STOPPED,   /* by live_stop: the step under way is not in the trace */
  LIVE_FAILED     /* `text` has the reason */
};

/* How the order under way is getting on; or, when nothing is, how the last one ended. */
struct live_status {
  bool working;
  bool catching_up; /* feeding what the run was fed before, to have its cache again; nothing is logged yet */
  int run;          /* 0: it has not begun */
  int steps;        /* that the run has in the trace */
  int fed;          /* tokens fed while catching up */
  enum live_end end;
  char text[1024]; /* as a kvs_error has */
};

/* Opens a session that adds to the trace at `path`. Model and tokenizer must outlive it; others may read the weights meanwhile. Opens
 * nothing for writing before something is ordered. Call it before the trace is opened to be read, and live_close after that is
 * closed: the file is then left in one piece. Errors: KVS_ERR_IO (the trace or its folder cannot be written), KVS_ERR_INPUT (no
 * trace), KVS_ERR_MEMORY. */
kvs_status live_open(const char *path, kvs_model *model, const kvs_tokenizer *tokenizer, struct live **out,
                     kvs_error *err);

/* Stops, waits for the thread, closes the trace. The error is the trace's: what could not be written. NULL is allowed. */
kvs_status live_close(struct live *live, kvs_error *err);

/* Orders work and returns at once. `db` reads the same trace (look_db).
 * Errors: KVS_ERR_USAGE (still at work), KVS_ERR_INPUT (a run that cannot be gone on with, a prompt that cannot be encoded or is
 * too long), KVS_ERR_IO (the trace cannot be read, or another program is writing this run). */
kvs_status live_ask(struct live *live, struct sqlite3 *db, const struct live_order *order, kvs_error *err);

/* Asks the work under way to stop soon: between two layers. Harmless when there is none. */
void live_stop(struct live *live);

void live_status(struct live *live, struct live_status *status);

/* Waits until nothing is under way. */
void live_wait(struct live *live);

/* Becomes readable (poll) when the status has changed. live_woken empties it. */
int live_wake_fd(const struct live *live);
void live_woken(struct live *live);

/* The model's end-of-text token, or -1. */
int live_end_token(const struct live *live);

/* The prompt of a run: *length bytes and a NUL, freed by the caller; NULL where none is stored. Errors: KVS_ERR_INPUT (no such run),
 * KVS_ERR_IO, KVS_ERR_MEMORY. */
kvs_status live_prompt(struct sqlite3 *db, int run, char **prompt, size_t *length, kvs_error *err);

/* Whether every run of the trace was decoded by this model, by its weights' SHA-256. Errors: KVS_ERR_INPUT (one was not, or does not
 * say; there is none), KVS_ERR_IO. */
kvs_status live_fits(struct sqlite3 *db, const char *path, kvs_model *model, kvs_error *err);

#endif
