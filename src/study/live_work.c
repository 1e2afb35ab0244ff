/* live_work.c: one order, done on the session's thread: the engine steps, the writer commits, who looks is told. */
#include "study/live_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A model with fewer weights is not worth a second thread. */
#define FEW_PARAMETERS 4000000

/* ---- what the engine reports: to the trace, and how far it has come --------------------------------------------------- */

static kvs_status on_moment(void *context, const kvs_moment *moment, kvs_error *err) {
  struct live *live = context;
  return live->log.moment(live->log.context, moment, err);
}

static kvs_status on_step_end(void *context, const kvs_step *step, kvs_error *err) {
  struct live *live = context;
  live->engine_steps = step->step + 1;
  return live->log.step_end(live->log.context, step, err);
}

/* The step is in the file: whoever looks can read it. */
static kvs_status on_settled(void *context, kvs_error *err) {
  struct live *live = context;
  kvs_status status = live->log.settled(live->log.context, err);
  if (status != KVS_OK) return status;
  live->now.steps = live->engine_steps;
  live_tell(live, &live->now);
  return KVS_OK;
}

static void log_steps(struct live *live) {
  live->log = kvs_trace_observer(live->trace);
  const kvs_observer observer = {.context = live, .moment = on_moment, .step_end = on_step_end, .settled = on_settled};
  kvs_engine_observe(live->engine, &observer);
}

/* ---- getting ready ---------------------------------------------------------------------------------------------------- */

static kvs_status check_stop(struct live *live, kvs_error *err) {
  return atomic_load(&live->stop) ? kvs_fail(err, KVS_ERR_CANCELLED, "stopped") : KVS_OK;
}

/* SQLite would make a new file in the place of one that is gone. */
static kvs_status check_file(const struct live *live, kvs_error *err) {
  struct stat held, there;
  if (fstat(live->file, &held) == 0 && stat(live->path, &there) == 0 && held.st_dev == there.st_dev &&
      held.st_ino == there.st_ino)
    return KVS_OK;
  return kvs_fail(err, KVS_ERR_IO,
                  "%s: deleted or replaced by another file, so nothing can be added to it; open it again", live->path);
}

/* An engine with an empty cache, this fault and a fresh sampler. */
static kvs_status start_engine(struct live *live, const kvs_fault *fault, int from_step, const kvs_sampling *sampling,
                               kvs_error *err) {
  live->engine_run = live->engine_steps = 0;
  if (!live->engine) {
    kvs_engine *engine;
    const kvs_engine_options options = {.threads = kvs_model_parameters(live->model) < FEW_PARAMETERS};
    kvs_status status = kvs_engine_create(live->model, &options, &engine, err);
    if (status != KVS_OK) return status;
    pthread_mutex_lock(&live->mutex);
    live->engine = engine;
    pthread_mutex_unlock(&live->mutex);
  }
  kvs_sampler_free(live->sampler);
  kvs_status status = kvs_sampler_create(sampling, kvs_model_config(live->model)->n_vocab, &live->sampler, err);
  kvs_engine_observe(live->engine, NULL);
  kvs_engine_fault(live->engine, fault, from_step);
  kvs_engine_reset(live->engine); /* forgets a stop too: from here on it is asked for before each step */
  return status == KVS_OK ? check_stop(live, err) : status;
}

static kvs_status feed(struct live *live, const int *tokens, int count, kvs_source source, kvs_error *err) {
  kvs_status status = check_stop(live, err);
  return status == KVS_OK ? kvs_engine_prefill(live->engine, tokens, count, source, err) : status;
}

static kvs_status feed_one(struct live *live, int token, kvs_source source, kvs_error *err) {
  kvs_status status = check_stop(live, err);
  return status == KVS_OK ? kvs_engine_decode(live->engine, token, source, err) : status;
}

/* ---- a run that is there: its cache once more ---------------------------------------------------------------------- */

/* In a batch the bits are the same, and it is faster; a fault may look at how its tokens came. */
static bool in_batch(const struct live_past *past, int step) {
  return !past->fault || step < past->fault_from_step || past->fed[step].mode == KVS_PREFILL;
}

static kvs_status feed_again(struct live *live, const struct live_past *past, kvs_error *err) {
  int tokens[256], count = 0;
  kvs_status status = KVS_OK;
  for (int step = 0; step < past->count && status == KVS_OK; step++) {
    bool batch = in_batch(past, step), more = step + 1 < past->count && in_batch(past, step + 1);
    tokens[count++] = past->fed[step].token;
    if (!batch)
      status = feed_one(live, tokens[0], past->fed[step].source, err);
    else if (more && count < (int)(sizeof tokens / sizeof *tokens))
      continue;
    else
      status = feed(live, tokens, count, past->fed[step].source, err);
    count = 0;
    live->now.fed = step + 1;
    live_tell(live, &live->now);
  }
  return status;
}

/* The very bits that the trace has, or nothing is added to it. */
static kvs_status check_same(struct live *live, const struct live_past *past, kvs_error *err) {
  int length = past->fed[past->count - 1].length_after, vocabulary = kvs_model_config(live->model)->n_vocab;
  bool same = length < 0 || length == kvs_engine_cache_length(live->engine);
  if (past->top_token >= 0)
    same = same && past->top_token < vocabulary &&
           (double)kvs_engine_logits(live->engine)[past->top_token] == past->top_logit;
  if (same) return KVS_OK;
  return kvs_fail(
      err, KVS_ERR_INPUT,
      "run %d cannot be gone on with: its tokens, decoded again, do not give the numbers that the trace has; f "
      "decodes them as a run of its own, which then goes on",
      past->run);
}

static kvs_status catch_up(struct live *live, const struct live_past *past, kvs_error *err) {
  live->now.catching_up = true;
  live_tell(live, &live->now);
  kvs_status status = start_engine(live, past->fault, past->fault_from_step, &past->sampling, err);
  if (status == KVS_OK) status = feed_again(live, past, err);
  if (status == KVS_OK) status = check_same(live, past, err);
  live->now.catching_up = false;
  if (status != KVS_OK) return status;
  /* Each token that was sampled took one random number, whatever the logits were. */
  for (int step = 0; past->sampling.temperature > 0 && step < past->count; step++)
    if (past->fed[step].source == KVS_SAMPLED) kvs_sampler_next(live->sampler, kvs_engine_logits(live->engine));
  live->engine_run = past->run;
  live->engine_steps = past->count;
  return KVS_OK;
}

/* ---- the orders -------------------------------------------------------------------------------------------------------- */

static kvs_status generate(struct live *live, int tokens, kvs_error *err) {
  int end_token = kvs_model_config(live->model)->eos_token;
  live->now.end = LIVE_DONE;
  for (int i = 0; i < tokens; i++) {
    int token = kvs_sampler_next(live->sampler, kvs_engine_logits(live->engine));
    kvs_status status = feed_one(live, token, KVS_SAMPLED, err);
    if (status != KVS_OK) return status;
    if (token != end_token) continue;
    live->now.end = LIVE_END_TOKEN;
    break;
  }
  return KVS_OK;
}

static kvs_status go_on(struct live *live, const struct live_job *job, kvs_error *err) {
  const struct live_past *past = &job->past;
  bool there = live->engine_run == past->run && live->engine_steps == past->count;
  kvs_status status = there ? KVS_OK : catch_up(live, past, err);
  if (status == KVS_OK)
    status = kvs_trace_resume_run(live->trace, live->model, live->tokenizer, past->run, &past->log, err);
  if (status != KVS_OK) return status;
  log_steps(live);
  return generate(live, job->tokens, err);
}

/* A new run, with nothing fed. */
static kvs_status begin(struct live *live, const struct live_job *job, const kvs_run_info *info, kvs_error *err) {
  int run;
  kvs_status status = start_engine(live, info->fault, info->fault_from_step, &info->sampling, err);
  if (status == KVS_OK)
    status = kvs_trace_begin_run(live->trace, live->model, live->tokenizer, info, &job->past.log, &run, err);
  if (status != KVS_OK) return status;
  live->engine_run = live->now.run = run;
  live_tell(live, &live->now);
  log_steps(live);
  return KVS_OK;
}

static kvs_status from_prompt(struct live *live, const struct live_job *job, kvs_error *err) {
  const kvs_run_info info = {.command = "kvstep view: a prompt that was typed",
                             .fault = job->fault,
                             .fault_from_step = job->prompt_count,
                             .sampling = job->past.sampling,
                             .prompt = job->text,
                             .prompt_length = job->text_length};
  kvs_status status = begin(live, job, &info, err);
  if (status == KVS_OK) status = feed(live, job->prompt, job->prompt_count, KVS_PROMPT, err);
  return status == KVS_OK ? generate(live, job->tokens, err) : status;
}

/* The prompt's tokens; where another engine does not say which they are, the first. */
static int prompt_tokens(const struct live_past *past) {
  int count = 0;
  while (count < past->count && past->fed[count].source == KVS_PROMPT) count++;
  return count ? count : 1;
}

static kvs_status feed_prompt_again(struct live *live, const struct live_past *past, int count, kvs_error *err) {
  int *tokens = malloc((size_t)count * sizeof *tokens);
  if (!tokens) return kvs_fail_memory(err, "feeding the prompt");
  for (int i = 0; i < count; i++) tokens[i] = past->fed[i].token;
  kvs_status status = feed(live, tokens, count, KVS_PROMPT, err);
  free(tokens);
  return status;
}

static kvs_status once_more(struct live *live, const struct live_job *job, kvs_error *err) {
  const struct live_past *past = &job->past;
  char command[64];
  int prompt = prompt_tokens(past);
  snprintf(command, sizeof command, "kvstep view: the tokens of run %d once more", past->run);
  const kvs_run_info info = {.command = command,
                             .fault = job->fault,
                             .fault_from_step = prompt,
                             .sampling = past->sampling,
                             .prompt = past->prompt,
                             .prompt_length = past->prompt_length};
  kvs_status status = begin(live, job, &info, err);
  if (status == KVS_OK) status = feed_prompt_again(live, past, prompt, err);
  for (int i = prompt; i < past->count && status == KVS_OK; i++)
    status = feed_one(live, past->fed[i].token, KVS_FORCED, err);
  return status == KVS_OK ? generate(live, job->tokens, err) : status;
}

/* A run that went as far as it could is finished; one that was stopped or failed says that it is not. */
static kvs_status end_run(struct live *live, const struct live_job *job, kvs_status status, kvs_error *err) {
  int before = job->kind == LIVE_GO_ON ? job->past.count : 0;
  bool ended = status == KVS_OK || status == KVS_ERR_CONTEXT;
  if (!ended) live->engine_run = 0; /* half a step may be in the cache */
  if (!ended || live->now.steps == before) {
    kvs_trace_leave_run(live->trace);
    return status;
  }
  kvs_error end_err;
  if (kvs_trace_end_run(live->trace, &end_err) == KVS_OK) return status;
  kvs_trace_leave_run(live->trace);
  *err = end_err;
  return end_err.status;
}

void live_work(struct live *live, const struct live_job *job) {
  kvs_error err = {KVS_OK, ""};
  live_status(live, &live->now);
  kvs_status status = check_file(live, &err);
  if (status == KVS_OK && job->kind == LIVE_GO_ON) status = go_on(live, job, &err);
  if (status == KVS_OK && job->kind == LIVE_PROMPT) status = from_prompt(live, job, &err);
  if (status == KVS_OK && job->kind == LIVE_AGAIN) status = once_more(live, job, &err);
  status = end_run(live, job, status, &err);
  if (status == KVS_ERR_CONTEXT) live->now.end = LIVE_CONTEXT;
  if (status == KVS_ERR_CANCELLED) live->now.end = LIVE_STOPPED;
  if (status != KVS_OK && status != KVS_ERR_CONTEXT && status != KVS_ERR_CANCELLED) live->now.end = LIVE_FAILED;
  if (status != KVS_OK) snprintf(live->now.text, sizeof live->now.text, "%s", err.message);
  live_tell(live, &live->now);
}
