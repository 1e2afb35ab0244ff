/* reference.c: the correct model's part in a live comparison: what it was fed and what it made of it; and feeding it again. */
#include "study/compare/compare_parts.h"

#include <stdlib.h>

#include "study/compare/diverge.h"

/* ---- feeding ------------------------------------------------------------------------------------------------------ */

bool reference_windowed(const struct reference *r, const kvs_config *config, int call) {
  return call > 0 && r->fills_context && r->prompt + call > config->n_ctx;
}

/* Call 0 feeds the prompt, call i the i-th token after it. Past the context's end the correct model reads its last n_ctx tokens anew: with a
 * learned table of positions there is no other right way. */
kvs_status reference_feed(kvs_engine *engine, const kvs_config *config, const struct reference *r, int call,
                          bool correct, kvs_error *err) {
  if (call == 0) return kvs_engine_prefill(engine, r->tokens, r->prompt, KVS_PROMPT, err);
  int token = r->tokens[r->prompt + call - 1], fed = r->prompt + call;
  if (!correct || !reference_windowed(r, config, call)) return kvs_engine_decode(engine, token, KVS_FORCED, err);
  kvs_engine_reset(engine);
  return kvs_engine_prefill(engine, r->tokens + fed - config->n_ctx, config->n_ctx, KVS_FORCED, err);
}

int reference_calls(const struct reference *r) { return 1 + r->count - r->prompt; }

void live_start(struct compare_live *live, const kvs_fault *fault, int from, const kvs_observer *observer) {
  kvs_engine_reset(live->engine);
  kvs_engine_fault(live->engine, fault, from);
  kvs_engine_observe(live->engine, observer);
}

int compare_live_from(const struct compare_live *live, const kvs_fault *fault, int prompt) {
  int from = live->options->fault_from;
  return from == LOOK_NONE ? kvs_fault_usual_start(fault, prompt) : from;
}

/* ---- the correct part --------------------------------------------------------------------------------------------- */

static kvs_status make_prompt(struct compare_live *live, struct reference *r, const kvs_fault *fault, kvs_error *err) {
  const struct compare_live_options *o = live->options;
  r->prompt = kvs_fault_prompt_length(fault, live->config, o->token_count);
  r->tokens = malloc(((size_t)r->prompt + (size_t)o->generate) * sizeof *r->tokens);
  if (!r->tokens) return kvs_fail_memory(err, "comparing with the correct run");
  for (int i = 0; i < r->prompt; i++) r->tokens[i] = o->tokens[i % o->token_count];
  r->count = r->prompt;
  r->records.config = live->config;
  return KVS_OK;
}

/* Greedy: what it chooses is what it is fed next. Ends with the token that ends a text, and where the context does. */
static kvs_status make_reference(struct compare_live *live, struct reference *r, kvs_error *err) {
  kvs_observer observer = records_observer(&r->records);
  live_start(live, NULL, 0, &observer);
  kvs_status status = reference_feed(live->engine, live->config, r, 0, true, err);
  for (int i = 1; status == KVS_OK && i <= live->options->generate; i++) {
    int token = diverge_top(kvs_engine_logits(live->engine), live->config->n_vocab);
    r->tokens[r->count] = token < 0 ? 0 : token;
    records_begin(&r->records, i);
    r->count++;
    if (reference_windowed(r, live->config, i)) r->records.first_step = live->config->n_ctx - 1; /* the newest alone */
    status = reference_feed(live->engine, live->config, r, i, true, err);
    if (status == KVS_ERR_CONTEXT) {
      r->count--;
      status = KVS_OK;
      break;
    }
    if (status == KVS_OK && token == live->config->eos_token) break;
  }
  kvs_engine_observe(live->engine, NULL);
  r->made = status == KVS_OK;
  return status;
}

kvs_status live_reference(struct compare_live *live, const kvs_fault *fault, struct reference **out, kvs_error *err) {
  struct reference *r = &live->reference[fault && fault->fills_context];
  *out = r;
  if (r->made) return KVS_OK;
  r->fills_context = fault && fault->fills_context;
  records_clear(&r->records);
  free(r->tokens);
  r->tokens = NULL;
  kvs_status status = make_prompt(live, r, fault, err);
  return status == KVS_OK ? make_reference(live, r, err) : status;
}

/* One each in the order fed. */
const struct record *reference_record(const struct reference *r, int i) {
  return i < r->records.count ? &r->records.at[i] : NULL;
}

/* ---- opening, and running again ------------------------------------------------------------------------------------ */

kvs_status compare_live_open(const kvs_model *model, const kvs_tokenizer *tokenizer,
                             const struct compare_live_options *options, struct compare_live **out, kvs_error *err) {
  const kvs_engine_options engine_options = {.threads = options->threads};
  struct reference *ignored;
  struct compare_live *live = calloc(1, sizeof *live);
  *out = live;
  if (!live) return kvs_fail_memory(err, "comparing two runs");
  live->config = kvs_model_config(model);
  live->tokenizer = tokenizer;
  live->options = options;
  live->reference[0].records.config = live->reference[1].records.config = live->config;
  kvs_status status = kvs_engine_create(model, &engine_options, &live->engine, err);
  if (status == KVS_OK) status = live_reference(live, NULL, &ignored, err);
  if (status == KVS_OK) return KVS_OK;
  compare_live_close(live);
  *out = NULL;
  return status;
}

void compare_live_close(struct compare_live *live) {
  if (!live) return;
  for (int i = 0; i < 2; i++) {
    records_clear(&live->reference[i].records);
    free(live->reference[i].tokens);
  }
  free(live->text_logprob);
  if (live->engine) kvs_engine_free(live->engine);
  free(live);
}

kvs_status compare_live_tokens(struct compare_live *live, const kvs_fault *fault, const int **tokens, int *prompt,
                               int *count, kvs_error *err) {
  struct reference *r;
  kvs_status status = live_reference(live, fault, &r, err);
  if (status != KVS_OK) return status;
  *tokens = r->tokens;
  *prompt = r->prompt;
  *count = r->count;
  return KVS_OK;
}

kvs_status compare_live_replay(struct compare_live *live, const kvs_fault *fault, const kvs_fault *prompt_of,
                               const kvs_observer *observer, kvs_error *err) {
  struct reference *r;
  kvs_status status = live_reference(live, prompt_of, &r, err);
  if (status != KVS_OK) return status;
  live_start(live, fault, fault ? compare_live_from(live, fault, r->prompt) : 0, observer);
  for (int call = 0; status == KVS_OK && call < reference_calls(r); call++)
    status = reference_feed(live->engine, live->config, r, call, false, err);
  kvs_engine_observe(live->engine, NULL);
  return status == KVS_ERR_CONTEXT ? KVS_OK : status;
}
