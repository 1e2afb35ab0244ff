/* live.c: the session: its thread, what it is told and what it tells. The decoding itself is in live_work.c. */
#include "study/live/live_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/signals.h"

/* ---- telling -------------------------------------------------------------------------------------------------------- */

static void wake(struct live *live) {
  ssize_t written = write(live->wake[1], "", 1);
  (void)written; /* full: who looks will wake anyhow */
}

void live_tell(struct live *live, const struct live_status *status) {
  pthread_mutex_lock(&live->mutex);
  live->status = *status;
  pthread_mutex_unlock(&live->mutex);
  wake(live);
}

void live_status(struct live *live, struct live_status *status) {
  pthread_mutex_lock(&live->mutex);
  *status = live->status;
  pthread_mutex_unlock(&live->mutex);
}

int live_wake_fd(const struct live *live) { return live->wake[0]; }

void live_woken(struct live *live) {
  char bytes[256];
  while (read(live->wake[0], bytes, sizeof bytes) > 0) continue;
}

int live_end_token(const struct live *live) { return kvs_model_config(live->model)->eos_token; }

void live_stop(struct live *live) {
  pthread_mutex_lock(&live->mutex);
  if (live->status.working) {
    atomic_store(&live->stop, true);
    if (live->engine) kvs_engine_cancel(live->engine);
  }
  pthread_mutex_unlock(&live->mutex);
}

void live_wait(struct live *live) {
  pthread_mutex_lock(&live->mutex);
  while (live->status.working) pthread_cond_wait(&live->change, &live->mutex);
  pthread_mutex_unlock(&live->mutex);
}

/* ---- the thread ------------------------------------------------------------------------------------------------------ */

static void free_job(struct live_job *job) {
  if (!job) return;
  live_past_free(&job->past);
  free(job->prompt);
  free(job->text);
  free(job);
}

static void *work(void *context) {
  struct live *live = context;
  pthread_mutex_lock(&live->mutex);
  for (;;) {
    while (!live->job && !live->quit) pthread_cond_wait(&live->change, &live->mutex);
    if (live->quit) break;
    struct live_job *job = live->job;
    pthread_mutex_unlock(&live->mutex);
    live_work(live, job);
    free_job(job);
    pthread_mutex_lock(&live->mutex);
    /* A stop that came too late for this job must not meet the next one's first step. */
    if (atomic_load(&live->stop)) live->engine_run = 0;
    live->job = NULL;
    live->status.working = false;
    pthread_cond_broadcast(&live->change);
    wake(live);
  }
  pthread_mutex_unlock(&live->mutex);
  return NULL;
}

/* Signals from outside belong to the thread that has the terminal. */
static int start_thread(struct live *live) {
  sigset_t before;
  kvs_signals_block(&before);
  int failed = pthread_create(&live->thread, NULL, work, live);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  live->started = failed == 0;
  return failed;
}

/* ---- opening and closing ---------------------------------------------------------------------------------------------- */

static kvs_status open_pipe(struct live *live, kvs_error *err) {
  if (pipe(live->wake) != 0) return kvs_fail(err, KVS_ERR_IO, "no pipe can be made: %s", strerror(errno));
  for (int i = 0; i < 2; i++) {
    fcntl(live->wake[i], F_SETFL, O_NONBLOCK);
    fcntl(live->wake[i], F_SETFD, FD_CLOEXEC);
  }
  return KVS_OK;
}

static kvs_status open_file(struct live *live, const char *path, kvs_error *err) {
  live->path = strdup(path);
  if (!live->path) return kvs_fail_memory(err, "opening a trace");
  kvs_status status = kvs_trace_create(path, KVS_TRACE_APPEND, &live->trace, err);
  if (status != KVS_OK) return status;
  live->file = open(path, O_RDWR | O_CLOEXEC);
  if (live->file < 0) return kvs_fail(err, KVS_ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
  return KVS_OK;
}

kvs_status live_open(const char *path, kvs_model *model, const kvs_tokenizer *tokenizer, struct live **out,
                     kvs_error *err) {
  *out = NULL;
  struct live *live = calloc(1, sizeof *live);
  if (!live) return kvs_fail_memory(err, "getting ready to decode");
  live->model = model;
  live->tokenizer = tokenizer;
  live->file = live->wake[0] = live->wake[1] = -1;
  pthread_mutex_init(&live->mutex, NULL);
  pthread_cond_init(&live->change, NULL);
  const char *sha256;
  kvs_status status = kvs_model_sha256(model, &sha256, err); /* here, where only one thread asks for it */
  if (status == KVS_OK) status = open_file(live, path, err);
  if (status == KVS_OK) status = open_pipe(live, err);
  int failed = status == KVS_OK ? start_thread(live) : 0;
  if (failed) status = kvs_fail(err, KVS_ERR_MEMORY, "no thread to decode on can be made: %s", strerror(failed));
  if (status == KVS_OK)
    *out = live;
  else
    live_close(live, NULL);
  return status;
}

kvs_status live_close(struct live *live, kvs_error *err) {
  if (!live) return KVS_OK;
  live_stop(live);
  if (live->started) {
    pthread_mutex_lock(&live->mutex);
    live->quit = true;
    pthread_cond_broadcast(&live->change);
    pthread_mutex_unlock(&live->mutex);
    pthread_join(live->thread, NULL);
  }
  kvs_status status = kvs_trace_close(live->trace, err);
  if (live->file >= 0) close(live->file);
  for (int i = 0; i < 2; i++)
    if (live->wake[i] >= 0) close(live->wake[i]);
  kvs_engine_free(live->engine);
  kvs_sampler_free(live->sampler);
  pthread_cond_destroy(&live->change);
  pthread_mutex_destroy(&live->mutex);
  free(live->path);
  free(live);
  return status;
}

/* ---- ordering -------------------------------------------------------------------------------------------------------- */

/* The process that has the trace open in a way that it may be writing it; 0: none. Of our own locks nothing is said. */
static long other_user(const struct live *live) {
  /* SQLite's shared lock: https://www.sqlite.org/fileformat.html#the_lock_byte_page */
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1 << 30, .l_len = 512};
  return fcntl(live->file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? (long)lock.l_pid : 0;
}

static kvs_status may_go_on(const struct live *live, const struct live_past *past, kvs_error *err) {
  long user = past->finished ? 0 : other_user(live);
  if (!past->own)
    return kvs_fail(
        err, KVS_ERR_INPUT,
        "run %d was decoded by another engine (%.60s), and this one's steps are not mixed into it; f decodes "
        "its tokens once more as a run of its own, which then goes on",
        past->run, past->engine);
  if (user)
    return kvs_fail(err, KVS_ERR_IO,
                    "run %d is not finished, and another program (process %ld) has the trace open: it "
                    "may be writing it; G follows what comes",
                    past->run, user);
  return KVS_OK;
}

static kvs_status encode(const struct live *live, const struct live_order *order, struct live_job *job,
                         kvs_error *err) {
  size_t count, n_ctx = (size_t)kvs_model_config(live->model)->n_ctx;
  job->text = malloc(order->prompt_length + 1);
  if (!job->text) return kvs_fail_memory(err, "reading the prompt");
  memcpy(job->text, order->prompt, order->prompt_length);
  job->text[order->prompt_length] = '\0';
  job->text_length = order->prompt_length;
  if (order->prompt_length == 0)
    return kvs_fail(err, KVS_ERR_INPUT,
                    "the prompt is empty: the first step needs a token; type at least one character");
  kvs_status status =
      kvs_tokenizer_encode(live->tokenizer, order->prompt, order->prompt_length, false, &job->prompt, &count, err);
  if (status != KVS_OK) return status;
  if (count > n_ctx)
    return kvs_fail(err, KVS_ERR_INPUT, "the prompt has %zu tokens, and the context of %s holds %zu; shorten it", count,
                    kvs_model_name(live->model), n_ctx);
  job->prompt_count = (int)count;
  return KVS_OK;
}

static kvs_status make_job(struct live *live, struct sqlite3 *db, const struct live_order *order, struct live_job *job,
                           kvs_error *err) {
  job->kind = order->kind;
  job->tokens = order->tokens;
  kvs_status status = live_past_read(db, order->run, kvs_model_config(live->model), &job->past, err);
  if (status != KVS_OK) return status;
  job->fault = order->kind == LIVE_AGAIN ? order->fault : job->past.fault;
  if (order->kind == LIVE_PROMPT) return encode(live, order, job, err);
  if (job->past.count == 0)
    return kvs_fail(err, KVS_ERR_INPUT, "run %d has no step yet, so no token to decode after; e gives it a prompt",
                    order->run);
  return order->kind == LIVE_GO_ON ? may_go_on(live, &job->past, err) : KVS_OK;
}

kvs_status live_ask(struct live *live, struct sqlite3 *db, const struct live_order *order, kvs_error *err) {
  struct live_status status;
  live_status(live, &status);
  if (status.working) return kvs_fail(err, KVS_ERR_USAGE, "still decoding; ^C stops it");
  struct live_job *job = calloc(1, sizeof *job);
  if (!job) return kvs_fail_memory(err, "getting ready to decode");
  kvs_status made = make_job(live, db, order, job, err);
  if (made != KVS_OK) {
    free_job(job);
    return made;
  }
  pthread_mutex_lock(&live->mutex);
  live->job = job;
  live->status = (struct live_status){.working = true, .run = order->kind == LIVE_GO_ON ? order->run : 0};
  if (order->kind == LIVE_GO_ON) live->status.steps = job->past.count;
  atomic_store(&live->stop, false);
  pthread_cond_broadcast(&live->change);
  pthread_mutex_unlock(&live->mutex);
  return KVS_OK;
}
