/* live_parts.h (private): what the files of live share: the session, a job, and what a run was fed. */
#ifndef KVS_STUDY_LIVE_PARTS_H
#define KVS_STUDY_LIVE_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "study/live/live.h"

/* One step as the trace has it. */
struct live_fed {
  int token, length_after; /* -1: not known */
  kvs_mode mode;
  kvs_source source;
};

/* What the trace says of a run: enough to decode it once more, or on. live_read.c. */
struct live_past {
  int run;
  bool own, finished; /* by kvstep; finished_at is set */
  char engine[64];
  struct live_fed *fed; /* [count], step by step */
  int count;
  const kvs_fault *fault;
  int fault_from_step;
  kvs_sampling sampling;
  char *prompt; /* prompt_length bytes; NULL: none is stored */
  size_t prompt_length;
  kvs_log log;
  bool *layers, *heads; /* the log's, [n_layer] and [n_head] */
  int top_token;        /* after the last step; -1: not known */
  double top_logit;
};

/* Errors: KVS_ERR_INPUT (no such run; steps that do not follow one another; a fault that this kvstep does not have), KVS_ERR_IO,
 * KVS_ERR_MEMORY. Free it with live_past_free, also after a failure. */
kvs_status live_past_read(struct sqlite3 *db, int run, const kvs_config *config, struct live_past *past,
                          kvs_error *err);
void live_past_free(struct live_past *past);

/* What the thread does next. */
struct live_job {
  enum live_kind kind;
  int tokens;
  const kvs_fault *fault; /* of the new run */
  struct live_past past;  /* of the order's run */
  int *prompt;            /* LIVE_PROMPT: [prompt_count] */
  int prompt_count;
  char *text; /* LIVE_PROMPT: [text_length], what was typed */
  size_t text_length;
};

struct live {
  char *path;
  int file; /* held open until the end: closing one would drop SQLite's locks on it (fcntl(2)) */
  kvs_model *model;
  const kvs_tokenizer *tokenizer;
  int wake[2];
  pthread_t thread;
  bool started;

  pthread_mutex_t mutex; /* over all that follows */
  pthread_cond_t change;
  bool quit;
  struct live_job *job; /* ordered, and not yet done */
  struct live_status status;
  kvs_engine *engine; /* set under the mutex, for live_stop; else the thread's */
  atomic_bool stop;   /* the job under way is to end */

  /* the thread's own */
  kvs_trace *trace;
  kvs_sampler *sampler;
  kvs_observer log;       /* the trace's */
  struct live_status now; /* as it will be told next */
  int engine_run;         /* the run whose cache the engine has, at its last step; 0: none */
  int engine_steps;       /* that it has */
};

/* ---- live_feed.c ---- */

/* What a run was given, token by token; the first `prompt` of them in one batch. */
struct live_calls {
  int *token;
  kvs_source *source;
  int count, room, prompt;
};
void live_calls_free(struct live_calls *calls);

/* KVS_ERR_CANCELLED if the job is to end. */
kvs_status live_check_stop(struct live *live, kvs_error *err);

/* Feeds a batch, or decodes one token, unless the job is to end. */
kvs_status live_feed(struct live *live, const int *tokens, int count, kvs_source source, kvs_error *err);
kvs_status live_feed_one(struct live *live, int token, kvs_source source, kvs_error *err);

/* Feeds all that the run was given, unlogged: then the engine has its cache, and the sampler its random numbers. `calls` is for
 * live_calls_free, also after a failure. Errors: KVS_ERR_INPUT (it does not give the bits that the trace has), the engine's. */
kvs_status live_catch_up(struct live *live, const struct live_past *past, struct live_calls *calls, kvs_error *err);

/* What the run was given: from its steps, or where its fault fed more or less than that by making it once more. */
kvs_status live_find_calls(struct live *live, const struct live_past *past, struct live_calls *calls, kvs_error *err);

/* ---- live_work.c ---- */

/* An engine with an empty cache, this fault and a fresh sampler; watched by nobody. */
kvs_status live_start_engine(struct live *live, const kvs_fault *fault, int from_step, const kvs_sampling *sampling,
                             kvs_error *err);

/* Does the job; live->status holds the end when it returns. live_work.c. */
void live_work(struct live *live, const struct live_job *job);

/* Changes the status and wakes who looks. */
void live_tell(struct live *live, const struct live_status *status);

#endif
