/* compare_live.c: teacher-forced comparison: the correct model's own tokens through the faulty one, and what differs in each step. */
#include "study/compare_live.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "study/compare_parts.h"
#include "study/diverge.h"

/* ---- feeding ------------------------------------------------------------------------------------------------------ */

/* Call 0 feeds the prompt, call i the i-th token after it. Past the context's end the correct model reads its last n_ctx tokens anew: with a
 * learned table of positions there is no other right way. */
kvs_status reference_feed(kvs_engine *engine, const kvs_config *config, const struct reference *r, int call,
                          bool correct, kvs_error *err) {
  if (call == 0) return kvs_engine_prefill(engine, r->tokens, r->prompt, KVS_PROMPT, err);
  int token = r->tokens[r->prompt + call - 1], fed = r->prompt + call;
  if (!correct || !r->fills_context || fed <= config->n_ctx) return kvs_engine_decode(engine, token, KVS_FORCED, err);
  kvs_engine_reset(engine);
  return kvs_engine_prefill(engine, r->tokens + fed - config->n_ctx, config->n_ctx, KVS_FORCED, err);
}

static int calls_of(const struct reference *r) { return 1 + r->count - r->prompt; }

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

/* The record of the i-th token fed: one each in the order fed, but of a window read anew the last. */
static const struct record *reference_record(const struct reference *r, const kvs_config *config, int i) {
  const struct records *all = &r->records;
  if (i < config->n_ctx) return i < all->count ? &all->at[i] : NULL;
  int call = i - r->prompt + 1;
  for (int k = all->count - 1; k >= 0; k--)
    if (all->at[k].call == call) return &all->at[k];
  return NULL;
}

/* ---- the first number that differs --------------------------------------------------------------------------------- */

struct capture {
  const kvs_config *config;
  int call, step, call_now;
  enum compare_field field;
  int layer, count;
  float *values;
};

/* Ends the run with KVS_ERR_CANCELLED once the vector is there. */
static kvs_status take(void *context, const kvs_moment *m, kvs_error *err) {
  struct capture *c = context;
  if (c->call_now != c->call || m->step->step != c->step || m->phase != compare_field_phase(c->field)) return KVS_OK;
  if (m->layer != c->layer) return KVS_OK;
  float scalar;
  const float *values = moment_field(c->config, m, c->field, &scalar, &c->count);
  c->values = values ? malloc(((size_t)c->count + 1) * sizeof *c->values) : NULL;
  if (!c->values) return kvs_fail_memory(err, "comparing two runs");
  memcpy(c->values, values, (size_t)c->count * sizeof *c->values);
  return kvs_fail(err, KVS_ERR_CANCELLED, "taken");
}

static kvs_status capture(struct compare_live *live, const struct reference *r, const kvs_fault *fault,
                          struct capture *c, kvs_error *err) {
  kvs_observer observer = {.context = c, .moment = take};
  kvs_status status = KVS_OK;
  live_start(live, fault, compare_live_from(live, fault, r->prompt), &observer);
  for (c->call_now = 0; status == KVS_OK && c->call_now <= c->call; c->call_now++)
    status = reference_feed(live->engine, live->config, r, c->call_now, !fault, err);
  kvs_engine_observe(live->engine, NULL);
  return status == KVS_ERR_CANCELLED && c->values ? KVS_OK : status;
}

/* Both runs once more, up to the vector whose digests differ. */
static kvs_status fetch_first(struct compare_live *live, const struct reference *r, const kvs_fault *fault,
                              struct compare_first *first, const struct place *place, kvs_error *err) {
  const kvs_config *config = live->config;
  struct capture a = {.config = config, .call = place->call_a, .step = place->step_a};
  struct capture b = {.config = config, .call = place->call_b, .step = place->step_b};
  a.field = b.field = place->field, a.layer = b.layer = place->layer;
  kvs_status status = capture(live, r, NULL, &a, err);
  if (status == KVS_OK) status = capture(live, r, fault, &b, err);
  if (status == KVS_OK) {
    enum compare_scope scope = compare_field_scope(place->field);
    int per_head = scope == COMPARE_HEADS || scope == COMPARE_HEAD ? a.count / config->n_head : 0;
    if (a.count != b.count && per_head) { /* rows attended: per_head differs */
      first->what = COMPARE_COUNT;
      first->field = place->field, first->layer = place->layer, first->head = first->index = LOOK_NONE;
      first->value_a = a.count / config->n_head, first->value_b = b.count / config->n_head;
    } else {
      compare_vectors(first, place->field, place->layer, LOOK_NONE, per_head, a.values, a.count, b.values, b.count);
    }
    bool scalar = a.count == 1 &&
                  (place->field == COMPARE_LENGTH || place->field == COMPARE_POSITION || place->field == COMPARE_ROW);
    if (scalar) first->index = LOOK_NONE;
  }
  free(a.values);
  free(b.values);
  return status;
}

/* ---- the faulty part ---------------------------------------------------------------------------------------------- */

struct run {
  struct compare_live *live;
  const struct reference *reference;
  const kvs_fault *fault;
  struct comparison *c;
  struct records records; /* of the call under way */
  int *head_count;
  int pending;        /* extra steps after the last token of the call before */
  struct place place; /* of the first number that differs */
};

static void compare_attention(const struct run *run, struct compare_step *s, const struct record *a,
                              const struct record *b, bool summed) {
  const kvs_config *config = run->live->config;
  double sum = 0;
  int count = 0;
  for (int layer = 0; layer < config->n_layer; layer++) {
    if (!a->attention[layer].weights || !b->attention[layer].weights) continue;
    int rows_a = a->attention[layer].rows, rows_b = b->attention[layer].rows;
    for (int head = 0; head < config->n_head; head++) {
      double distance = diverge_attention(a->attention[layer].weights + (size_t)head * (size_t)rows_a, rows_a,
                                          b->attention[layer].weights + (size_t)head * (size_t)rows_b, rows_b);
      if (isnan(distance)) continue;
      sum += distance;
      count++;
      if (!summed) continue;
      run->c->head_distance[layer * config->n_head + head] += distance;
      run->head_count[layer * config->n_head + head]++;
    }
  }
  if (count) s->attention_distance = sum / count;
}

static void find_place(struct run *run, const struct compare_step *s, const struct record *a, const struct record *b) {
  struct comparison *c = run->c;
  struct compare_first first = {.step = s->step, .step_b = s->step_b, .layer = LOOK_NONE};
  if (!c->same) return;
  first.head = first.index = LOOK_NONE;
  if (s->extra) {
    first.what = COMPARE_EXTRA;
    first.value_b = s->extra;
  } else if (!b) {
    first.what = COMPARE_MISSING;
  } else {
    bool windowed = s->step >= run->live->config->n_ctx;
    if (!record_first(run->live->config, a, b, windowed, &run->place.field, &run->place.layer)) return;
    first.what = COMPARE_NUMBER;
    run->place.call_a = a->call, run->place.step_a = a->step;
    run->place.call_b = b->call, run->place.step_b = b->step;
  }
  c->first = first;
  c->same = false;
}

/* The i-th token fed; b NULL: the faulty model made no step for it, but has logits. */
static kvs_status compare_token(struct run *run, int i, const struct record *b, int extra, kvs_error *err) {
  const struct reference *r = run->reference;
  const struct record *a = reference_record(r, run->live->config, i);
  struct compare_step *s = compare_add_step(run->c, err);
  if (!s || !a) return s ? kvs_fail(err, KVS_ERR_USAGE, "a step of the correct run is missing") : KVS_ERR_MEMORY;
  s->step = i;
  s->step_b = b ? b->step : LOOK_NONE;
  s->extra = extra;
  s->token = r->tokens[i];
  int next = i + 1 < r->count ? r->tokens[i + 1] : LOOK_NONE;
  compare_logits(s, a->logits, b ? b->logits : kvs_engine_logits(run->live->engine), run->live->config->n_vocab, next);
  if (b) compare_attention(run, s, a, b, i >= r->prompt);
  find_place(run, s, a, b);
  return KVS_OK;
}

/* Which of the call's steps fed its last token: the one whose logits are used from here on. */
static int last_of_call(const struct run *run, int token) {
  const struct records *records = &run->records;
  const float *logits = kvs_engine_logits(run->live->engine);
  size_t bytes = (size_t)run->live->config->n_vocab * sizeof *logits;
  for (int k = records->count - 1; k >= 0; k--)
    if (records->at[k].token == token && memcmp(records->at[k].logits, logits, bytes) == 0) return k;
  return -1;
}

/* Pairs the tokens first .. last with the steps that the faulty model made in this call, from the last backwards; steps that fit
 * nowhere are its own. */
static kvs_status compare_call(struct run *run, int first, int last, kvs_error *err) {
  int count = last - first + 1, k = last_of_call(run, run->reference->tokens[last]);
  int after = run->records.count - 1 - k, *pair = malloc((size_t)count * sizeof *pair);
  if (!pair) return kvs_fail_memory(err, "comparing two runs");
  if (k < 0) after = 0;
  for (int i = last; i >= first; i--) {
    while (k >= 0 && run->records.at[k].token != run->reference->tokens[i]) k--;
    pair[i - first] = k >= 0 ? k-- : -1;
  }
  kvs_status status = KVS_OK;
  int expected = 0;
  for (int i = first; status == KVS_OK && i <= last; i++) {
    int at = pair[i - first], extra = run->pending + (at >= 0 ? at - expected : 0);
    status = compare_token(run, i, at >= 0 ? &run->records.at[at] : NULL, extra, err);
    run->pending = 0;
    if (at >= 0) expected = at + 1;
  }
  run->pending += after;
  free(pair);
  return status;
}

static kvs_status run_forced(struct run *run, kvs_error *err) {
  struct compare_live *live = run->live;
  const struct reference *r = run->reference;
  kvs_observer observer = records_observer(&run->records);
  kvs_status status = KVS_OK;
  live_start(live, run->fault, compare_live_from(live, run->fault, r->prompt), &observer);
  for (int call = 0; status == KVS_OK && call < calls_of(r); call++) {
    records_clear(&run->records);
    records_begin(&run->records, call);
    status = reference_feed(live->engine, live->config, r, call, false, err);
    int last = r->prompt + call - 1;
    if (status == KVS_OK) status = compare_call(run, call ? last : 0, last, err);
  }
  kvs_engine_observe(live->engine, NULL);
  records_clear(&run->records);
  if (status != KVS_ERR_CONTEXT) return status;
  run->c->ended_b = true;
  if (run->c->same)
    run->c->first = (struct compare_first){.what = COMPARE_ENDED, .step = run->c->count, .step_b = run->c->count};
  run->c->same = false;
  return KVS_OK;
}

static kvs_status compare_forced(struct run *run, kvs_error *err) {
  struct comparison *c = run->c;
  size_t heads = (size_t)c->n_layer * (size_t)c->n_head;
  c->head_distance = calloc(heads, sizeof *c->head_distance);
  run->head_count = calloc(heads, sizeof *run->head_count);
  if (!c->head_distance || !run->head_count) return kvs_fail_memory(err, "comparing two runs");
  kvs_status status = run_forced(run, err);
  if (status == KVS_OK && run->pending && c->same) {
    c->first =
        (struct compare_first){.what = COMPARE_EXTRA, .step = c->count, .step_b = c->count, .value_b = run->pending};
    c->same = false;
  }
  if (status == KVS_OK && c->first.what == COMPARE_NUMBER)
    status = fetch_first(run->live, run->reference, run->fault, &c->first, &run->place, err);
  if (status == KVS_OK) compare_sum_up(c, run->head_count);
  return status;
}

kvs_status compare_live_fault(struct compare_live *live, const kvs_fault *fault, struct comparison *out,
                              kvs_error *err) {
  struct reference *r;
  *out = (struct comparison){.same = true, .parted = LOOK_NONE};
  kvs_status status = live_reference(live, fault, &r, err);
  if (status != KVS_OK) return status;
  out->n_layer = live->config->n_layer, out->n_head = live->config->n_head;
  out->prompt_steps = r->prompt;
  snprintf(out->name_a, sizeof out->name_a, "correct");
  snprintf(out->name_b, sizeof out->name_b, "%s", fault->name);
  struct run run = {.live = live, .reference = r, .fault = fault, .c = out, .records = {.config = live->config}};
  status = compare_forced(&run, err);
  free(run.head_count);
  if (status == KVS_OK) status = live_free_running(live, r, fault, out, err);
  if (status == KVS_OK) status = live_text(live, fault, out, err);
  if (status == KVS_OK) status = live_answers(live, fault, out, err);
  return status;
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
  for (int call = 0; status == KVS_OK && call < calls_of(r); call++)
    status = reference_feed(live->engine, live->config, r, call, false, err);
  kvs_engine_observe(live->engine, NULL);
  return status == KVS_ERR_CONTEXT ? KVS_OK : status;
}
