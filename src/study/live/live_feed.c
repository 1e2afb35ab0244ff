/* live_feed.c: feeding; and a run that is in the trace fed once more, unlogged, so that its cache is there again. */
#include "study/live/live_parts.h"

#include <stdlib.h>

kvs_status live_check_stop(struct live *live, kvs_error *err) {
  return atomic_load(&live->stop) ? kvs_fail(err, KVS_ERR_CANCELLED, "stopped") : KVS_OK;
}

kvs_status live_feed(struct live *live, const int *tokens, int count, kvs_source source, kvs_error *err) {
  kvs_status status = live_check_stop(live, err);
  return status == KVS_OK ? kvs_engine_prefill(live->engine, tokens, count, source, err) : status;
}

kvs_status live_feed_one(struct live *live, int token, kvs_source source, kvs_error *err) {
  kvs_status status = live_check_stop(live, err);
  return status == KVS_OK ? kvs_engine_decode(live->engine, token, source, err) : status;
}

/* Some faults feed tokens that nobody gave them, or swallow one: then the trace's steps are not what was given. */
static bool bends_the_stream(const kvs_fault *fault) { return fault && (fault->before || fault->after); }

static kvs_status refuse(const struct live_past *past, kvs_error *err) {
  return kvs_fail(
      err, KVS_ERR_INPUT,
      "run %d cannot be decoded once more: its tokens do not give the numbers that the trace has; e decodes its prompt "
      "as a run of its own",
      past->run);
}

/* ---- what was given ---------------------------------------------------------------------------------------------------- */

void live_calls_free(struct live_calls *calls) {
  free(calls->token);
  free(calls->source);
  *calls = (struct live_calls){0};
}

static kvs_status add_call(struct live_calls *calls, int token, kvs_source source, kvs_error *err) {
  if (calls->count == calls->room) {
    int room = calls->room ? 2 * calls->room : 64;
    int *tokens = realloc(calls->token, (size_t)room * sizeof *tokens);
    if (tokens) calls->token = tokens;
    kvs_source *sources = tokens ? realloc(calls->source, (size_t)room * sizeof *sources) : NULL;
    if (sources) calls->source = sources;
    if (!tokens || !sources) return kvs_fail_memory(err, "feeding a run again");
    calls->room = room;
  }
  calls->token[calls->count] = token;
  calls->source[calls->count++] = source;
  return KVS_OK;
}

/* Where each step is a token that was given. The prompt ends where it does; where another engine does not say, after the first. */
static kvs_status calls_of_steps(const struct live_past *past, struct live_calls *calls, kvs_error *err) {
  kvs_status status = KVS_OK;
  for (int i = 0; i < past->count && status == KVS_OK; i++)
    status = add_call(calls, past->fed[i].token, past->fed[i].source, err);
  while (calls->prompt < past->count && past->fed[calls->prompt].source == KVS_PROMPT) calls->prompt++;
  if (calls->prompt == 0) calls->prompt = 1;
  return status;
}

/* ---- each step a token -------------------------------------------------------------------------------------------------- */

/* Without a fault the bits are the same in a batch, and it is faster; a fault may look at how its tokens came. */
static bool in_batch(const struct live_past *past, int step) {
  return !past->fault || past->fed[step].mode == KVS_PREFILL;
}

#define BATCH 256 /* tokens at once, where it does not matter: a stop is heeded between two layers */

static void tell_fed(struct live *live, int fed) {
  live->now.fed = fed;
  live_tell(live, &live->now);
}

static kvs_status feed_steps(struct live *live, const struct live_past *past, const struct live_calls *calls,
                             kvs_error *err) {
  int most = past->fault ? past->count : BATCH;
  kvs_status status = KVS_OK;
  for (int step = 0, end; step < past->count && status == KVS_OK; step = end) {
    for (end = step + 1; in_batch(past, step) && end < past->count && end - step < most && in_batch(past, end);) end++;
    status = in_batch(past, step) ? live_feed(live, calls->token + step, end - step, calls->source[step], err)
                                  : live_feed_one(live, calls->token[step], calls->source[step], err);
    tell_fed(live, end);
  }
  /* Each token that was sampled took one random number, whatever the logits were. */
  for (int step = 0; status == KVS_OK && past->sampling.temperature > 0 && step < past->count; step++)
    if (past->fed[step].source == KVS_SAMPLED) kvs_sampler_next(live->sampler, kvs_engine_logits(live->engine));
  live->engine_steps = past->count;
  return status;
}

/* The very bits that the trace has. */
static bool gave_the_same(const struct live *live, const struct live_past *past) {
  int length = past->fed[past->count - 1].length_after, top = past->top_token;
  if (length >= 0 && length != kvs_engine_cache_length(live->engine)) return false;
  return top < 0 || (top < kvs_model_config(live->model)->n_vocab &&
                     (double)kvs_engine_logits(live->engine)[top] == past->top_logit);
}

/* ---- a fault that bends the stream: the run is made once more, with its prompt and its random numbers ---------------------- */

struct check {
  struct live *live;
  const struct live_past *past;
};

static kvs_status check_moment(void *context, const kvs_moment *m, kvs_error *err) {
  const struct check *c = context;
  const struct live_past *past = c->past;
  if (m->phase != KVS_LOGITS || m->step->step != past->count - 1 || past->top_token < 0) return KVS_OK;
  bool same = past->top_token < kvs_model_config(c->live->model)->n_vocab &&
              (double)m->logits[past->top_token] == past->top_logit;
  return same ? KVS_OK : refuse(past, err);
}

static kvs_status check_step(void *context, const kvs_step *step, kvs_error *err) {
  const struct check *c = context;
  bool same = step->step < c->past->count && step->token == c->past->fed[step->step].token;
  c->live->engine_steps = step->step + 1;
  return same ? KVS_OK : refuse(c->past, err);
}

static kvs_status find_prompt(struct live *live, const struct live_past *past, struct live_calls *calls,
                              kvs_error *err) {
  for (int special = 0; special < 2; special++) {
    int *tokens;
    size_t count, same = 0;
    kvs_status status =
        kvs_tokenizer_encode(live->tokenizer, past->prompt, past->prompt_length, special, &tokens, &count, err);
    if (status != KVS_OK) return status;
    while (same < count && same < (size_t)past->count && past->fed[same].token == tokens[same]) same++;
    bool found = count > 0 && same == count;
    for (size_t i = 0; found && i < count && status == KVS_OK; i++)
      status = add_call(calls, tokens[i], KVS_PROMPT, err);
    free(tokens);
    if (!found) continue;
    calls->prompt = (int)count;
    return status;
  }
  return refuse(past, err);
}

static kvs_status make_again(struct live *live, const struct live_past *past, struct live_calls *calls,
                             kvs_error *err) {
  struct check check = {live, past};
  const kvs_observer observer = {.context = &check, .moment = check_moment, .step_end = check_step};
  kvs_status status = past->prompt ? find_prompt(live, past, calls, err) : refuse(past, err);
  if (status != KVS_OK) return status;
  kvs_engine_observe(live->engine, &observer);
  status = live_feed(live, calls->token, calls->prompt, KVS_PROMPT, err);
  for (int forced = 0; status == KVS_OK && live->engine_steps < past->count;) {
    while (forced < past->count && past->fed[forced].source != KVS_FORCED) forced++;
    kvs_source source = forced < past->count ? KVS_FORCED : KVS_SAMPLED;
    int token = source == KVS_FORCED ? past->fed[forced++].token
                                     : kvs_sampler_next(live->sampler, kvs_engine_logits(live->engine));
    status = add_call(calls, token, source, err);
    if (status == KVS_OK) status = live_feed_one(live, token, source, err);
    tell_fed(live, live->engine_steps);
  }
  kvs_engine_observe(live->engine, NULL);
  return status;
}

/* ---- both ---------------------------------------------------------------------------------------------------------------- */

kvs_status live_catch_up(struct live *live, const struct live_past *past, struct live_calls *calls, kvs_error *err) {
  *calls = (struct live_calls){0};
  live->now.catching_up = true;
  live_tell(live, &live->now);
  kvs_status status = live_start_engine(live, past->fault, past->fault_from_step, &past->sampling, err);
  if (status == KVS_OK && bends_the_stream(past->fault)) {
    status = make_again(live, past, calls, err);
  } else if (status == KVS_OK) {
    status = calls_of_steps(past, calls, err);
    if (status == KVS_OK) status = feed_steps(live, past, calls, err);
    if (status == KVS_OK && !gave_the_same(live, past)) status = refuse(past, err);
  }
  live->now.catching_up = false;
  if (status == KVS_OK) live->engine_run = past->run;
  return status;
}

kvs_status live_find_calls(struct live *live, const struct live_past *past, struct live_calls *calls, kvs_error *err) {
  *calls = (struct live_calls){0};
  return bends_the_stream(past->fault) ? live_catch_up(live, past, calls, err) : calls_of_steps(past, calls, err);
}
