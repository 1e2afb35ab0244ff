/* live_work.c: one order, done on the session's thread: the engine steps, the writer commits, who looks is told. */
#include "study/live/live_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A model with fewer weights is not worth a second thread. */
#define FEW_PARAMETERS 4000000

/* Tokens that are generated at the context's end, where a fault shows only there. */
#define LEAST_AT_THE_END 4

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

/* The step is put into the file now, not behind the next one: whoever looks reads it there. */
static kvs_status on_settled(void *context, kvs_error *err) {
  struct live *live = context;
  kvs_status status = live->log.settled(live->log.context, err);
  if (status == KVS_OK) status = kvs_trace_settle(live->trace, err);
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
kvs_status live_start_engine(struct live *live, const kvs_fault *fault, int from_step, const kvs_sampling *sampling,
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
  return status == KVS_OK ? live_check_stop(live, err) : status;
}

/* ---- the orders -------------------------------------------------------------------------------------------------------- */

static kvs_status generate(struct live *live, int tokens, kvs_error *err) {
  int end_token = kvs_model_config(live->model)->eos_token;
  live->now.end = LIVE_DONE;
  for (int i = 0; i < tokens;) {
    int token = kvs_sampler_next(live->sampler, kvs_engine_logits(live->engine)), before = live->engine_steps;
    kvs_status status = live_feed_one(live, token, KVS_SAMPLED, err);
    if (status != KVS_OK) return status;
    i += live->engine_steps > before; /* a fault may swallow one */
    if (token != end_token) continue;
    live->now.end = LIVE_END_TOKEN;
    break;
  }
  return KVS_OK;
}

static kvs_status go_on(struct live *live, const struct live_job *job, kvs_error *err) {
  const struct live_past *past = &job->past;
  struct live_calls calls = {0};
  bool there = live->engine_run == past->run && live->engine_steps == past->count;
  kvs_status status = there ? KVS_OK : live_catch_up(live, past, &calls, err);
  live_calls_free(&calls);
  if (status == KVS_OK)
    status = kvs_trace_resume_run(live->trace, live->model, live->tokenizer, past->run, &past->log, err);
  if (status != KVS_OK) return status;
  log_steps(live);
  return generate(live, job->tokens, err);
}

/* A new run, with nothing fed. */
static kvs_status begin(struct live *live, const struct live_job *job, const kvs_run_info *info, kvs_error *err) {
  int run;
  kvs_status status = live_start_engine(live, info->fault, info->fault_from_step, &info->sampling, err);
  if (status == KVS_OK)
    status = kvs_trace_begin_run(live->trace, live->model, live->tokenizer, info, &job->past.log, &run, err);
  if (status != KVS_OK) return status;
  live->engine_run = live->now.run = run;
  live_tell(live, &live->now);
  log_steps(live);
  return KVS_OK;
}

/* The prompt's tokens, repeated from their start where the fault shows only at the context's end; and its text. */
struct prompt {
  int *tokens, count;
  char *text;
  size_t length;
};

static void prompt_free(struct prompt *prompt) {
  free(prompt->tokens);
  free(prompt->text);
}

/* The text of the tokens, from their bytes. */
static kvs_status spell(const struct live *live, struct prompt *prompt, kvs_error *err) {
  size_t room = 1, bytes;
  for (int i = 0; i < prompt->count; i++)
    if (kvs_tokenizer_bytes(live->tokenizer, prompt->tokens[i], &bytes)) room += bytes;
  prompt->text = malloc(room);
  if (!prompt->text) return kvs_fail_memory(err, "repeating the prompt");
  for (int i = 0; i < prompt->count; i++) {
    const unsigned char *token = kvs_tokenizer_bytes(live->tokenizer, prompt->tokens[i], &bytes);
    if (token) memcpy(prompt->text + prompt->length, token, bytes);
    if (token) prompt->length += bytes;
  }
  prompt->text[prompt->length] = '\0';
  return KVS_OK;
}

static kvs_status make_prompt(const struct live *live, const kvs_fault *fault, const int *tokens, int count,
                              const char *text, size_t length, struct prompt *prompt, kvs_error *err) {
  *prompt = (struct prompt){.count = kvs_fault_prompt_length(fault, kvs_model_config(live->model), count)};
  prompt->tokens = malloc((size_t)prompt->count * sizeof *prompt->tokens);
  if (!prompt->tokens) return kvs_fail_memory(err, "feeding the prompt");
  for (int i = 0; i < prompt->count; i++) prompt->tokens[i] = i < count ? tokens[i] : prompt->tokens[i - count];
  if (prompt->count > count) return spell(live, prompt, err);
  prompt->text = text ? malloc(length + 1) : NULL;
  if (text && !prompt->text) return kvs_fail_memory(err, "feeding the prompt");
  if (text) memcpy(prompt->text, text, length), prompt->text[length] = '\0';
  prompt->length = length;
  return KVS_OK;
}

/* A new run of this prompt: all of it is fed. */
static kvs_status begin_with(struct live *live, const struct live_job *job, const struct prompt *prompt,
                             const char *command, kvs_error *err) {
  const kvs_run_info info = {.command = command,
                             .fault = job->fault,
                             .fault_from_step = kvs_fault_usual_start(job->fault, prompt->count),
                             .sampling = job->past.sampling,
                             .prompt = prompt->text,
                             .prompt_length = prompt->length};
  kvs_status status = begin(live, job, &info, err);
  return status == KVS_OK ? live_feed(live, prompt->tokens, prompt->count, KVS_PROMPT, err) : status;
}

static kvs_status from_prompt(struct live *live, const struct live_job *job, kvs_error *err) {
  struct prompt prompt;
  kvs_status status =
      make_prompt(live, job->fault, job->prompt, job->prompt_count, job->text, job->text_length, &prompt, err);
  if (status == KVS_OK) status = begin_with(live, job, &prompt, "kvstep view: a prompt that was typed", err);
  prompt_free(&prompt);
  return status == KVS_OK ? generate(live, job->tokens, err) : status;
}

/* After the prompt: the very tokens; or where the prompt had to be made longer, as many new ones. */
static kvs_status feed_rest(struct live *live, const struct live_calls *calls, bool longer, kvs_error *err) {
  int rest = calls->count - calls->prompt;
  if (longer) return generate(live, rest > LEAST_AT_THE_END ? rest : LEAST_AT_THE_END, err);
  kvs_status status = KVS_OK;
  for (int i = calls->prompt; i < calls->count && status == KVS_OK; i++)
    status = live_feed_one(live, calls->token[i], KVS_FORCED, err);
  return status;
}

static kvs_status once_more(struct live *live, const struct live_job *job, kvs_error *err) {
  const struct live_past *past = &job->past;
  struct live_calls calls;
  struct prompt prompt = {0};
  char command[64];
  snprintf(command, sizeof command, "kvstep view: the tokens of run %d once more", past->run);
  kvs_status status = live_find_calls(live, past, &calls, err);
  if (status == KVS_OK)
    status = make_prompt(live, job->fault, calls.token, calls.prompt, past->prompt, past->prompt_length, &prompt, err);
  if (status == KVS_OK) status = begin_with(live, job, &prompt, command, err);
  if (status == KVS_OK) status = feed_rest(live, &calls, prompt.count > calls.prompt, err);
  if (status == KVS_OK) status = generate(live, job->tokens, err);
  prompt_free(&prompt);
  live_calls_free(&calls);
  return status;
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
