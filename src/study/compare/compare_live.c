/* compare_live.c: teacher-forced comparison: the correct model's own tokens through the faulty one, and what differs in each step. */
#include "study/compare/compare_live.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "study/compare/compare_parts.h"
#include "study/compare/diverge.h"

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
  c->call_now =
      !fault && reference_windowed(r, live->config, c->call) ? c->call : 0; /* such a call needs none before it */
  for (; status == KVS_OK && c->call_now <= c->call; c->call_now++)
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
  const struct record *a = reference_record(r, i);
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
  for (int call = 0; status == KVS_OK && call < reference_calls(r); call++) {
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
