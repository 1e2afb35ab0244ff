/* trace_maker.h: made-up moments for the trace tests, so that they need no engine and know every number. */
#ifndef KVS_TESTS_TRACE_MAKER_H
#define KVS_TESTS_TRACE_MAKER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kvstep/kvstep.h"
#include "tests/database.h"
#include "tests/support/scratch.h"
#include "trace/store.h"

#define UNUSED __attribute__((unused))

static const kvs_config small_config = {
    .n_layer = 2, .n_head = 2, .n_embd = 8, .head_dim = 4, .n_ctx = 64, .n_vocab = 30, .n_inner = 32};

/* Token i is the letter 'a' + i; the last ids have no token. */
static UNUSED const unsigned char *letters(const void *context, int token, size_t *length) {
  (void)context;
  static const unsigned char all[] = "abcdefghijklmnopqrstuvwxyz";
  *length = token < 26 ? 1 : 0;
  return token < 26 ? all + token : NULL;
}

static UNUSED kvs_trace_source made_source(const kvs_config *config) {
  return (kvs_trace_source){.config = config, .model = "made-up", .sha256 = "00ff", .tokens = 26, .bytes = letters};
}

/* A number in -1 .. 1 that depends on its place alone. */
static UNUSED float made(int kind, int step, int layer, int i) {
  uint64_t x = (uint64_t)kind * 0x9E3779B97F4A7C15u + (uint64_t)step * 0xBF58476D1CE4E5B9u +
               (uint64_t)layer * 0x94D049BB133111EBu + (uint64_t)i * 0xD6E8FEB86659FD93u;
  x ^= x >> 31, x *= 0xBF58476D1CE4E5B9u, x ^= x >> 29, x *= 0x94D049BB133111EBu, x ^= x >> 32;
  return (float)((double)(x >> 11) / 4503599627370496.0 - 1);
}

static UNUSED float *fill(int kind, int step, int layer, int count) {
  float *values = malloc((size_t)count * sizeof *values);
  assert_non_null(values);
  for (int i = 0; i < count; i++) values[i] = made(kind, step, layer, i);
  return values;
}

/* The kinds of vector; `made` tells them apart. */
enum { WTE, WPE, X, Q, K, V, SCORES, OUT, X_IN, ATTN_OUT, X_MID, MLP_OUT, X_OUT, LOGITS, KINDS };

static UNUSED void softmax_rows(const float *scores, float *weights, int heads, int rows) {
  for (int h = 0; h < heads; h++) {
    double sum = 0;
    for (int r = 0; r < rows; r++) sum += exp((double)scores[h * rows + r]);
    for (int r = 0; r < rows; r++) weights[h * rows + r] = (float)(exp((double)scores[h * rows + r]) / sum);
  }
}

static UNUSED kvs_step made_step(int step, kvs_mode mode) {
  return (kvs_step){.step = step,
                    .mode = mode,
                    .token = step % 26,
                    .source = mode == KVS_DECODE ? KVS_SAMPLED : KVS_PROMPT,
                    .cache_length_before = step,
                    .position = step,
                    .cache_length_after = step + 1,
                    .logprob = step ? -0.5 * step : NAN,
                    .seconds = 0.25};
}

static UNUSED kvs_status tell(const kvs_observer *o, kvs_moment *m, kvs_phase phase, int layer, int length,
                              kvs_error *err) {
  m->phase = phase, m->layer = layer, m->cache_length = length;
  return o->moment(o->context, m, err);
}

static UNUSED kvs_status feed_layer(const kvs_observer *o, const kvs_config *c, const kvs_step *s, int layer,
                                    kvs_error *err) {
  int rows = s->cache_length_before + 1, P = s->cache_length_before;
  float *v[KINDS] = {NULL};
  for (int kind = Q; kind < LOGITS; kind++)
    v[kind] = fill(kind, s->step, layer, kind == SCORES ? c->n_head * rows : c->n_embd);
  float *weights = malloc((size_t)(c->n_head * rows) * sizeof *weights);
  assert_non_null(weights);
  softmax_rows(v[SCORES], weights, c->n_head, rows);
  kvs_moment m = {.step = s, .q = v[Q], .k = v[K], .v = v[V], .x_in = v[X_IN], .row = -1};
  kvs_status status = tell(o, &m, KVS_PROJECT, layer, P, err);
  m.row = P, m.row_k = v[K], m.row_v = v[V];
  if (status == KVS_OK) status = tell(o, &m, KVS_APPEND, layer, P + 1, err);
  m.rows = rows, m.scores = v[SCORES];
  if (status == KVS_OK) status = tell(o, &m, KVS_SCORE, layer, P + 1, err);
  m.weights = weights;
  if (status == KVS_OK) status = tell(o, &m, KVS_SOFTMAX, layer, P + 1, err);
  m.out = v[OUT];
  if (status == KVS_OK) status = tell(o, &m, KVS_MIX, layer, P + 1, err);
  m.attn_out = v[ATTN_OUT], m.x_mid = v[X_MID];
  if (status == KVS_OK) status = tell(o, &m, KVS_OUTPUT, layer, P + 1, err);
  m.mlp_out = v[MLP_OUT], m.x_out = v[X_OUT];
  if (status == KVS_OK) status = tell(o, &m, KVS_MLP, layer, P + 1, err);
  for (int kind = 0; kind < KINDS; kind++) free(v[kind]);
  free(weights);
  return status;
}

/* One whole step, not settled. */
static UNUSED kvs_status feed_unsettled(const kvs_observer *o, const kvs_config *c, const kvs_step *s, kvs_error *err) {
  float *wte = fill(WTE, s->step, 0, c->n_embd), *wpe = fill(WPE, s->step, 0, c->n_embd),
        *x = fill(X, s->step, 0, c->n_embd);
  float *logits = fill(LOGITS, s->step, 0, c->n_vocab);
  kvs_moment m = {.step = s, .row = -1};
  kvs_status status = tell(o, &m, KVS_READ_LENGTH, -1, s->cache_length_before, err);
  m.wte = wte, m.wpe = s->position < 0 ? NULL : wpe, m.x = x;
  if (status == KVS_OK) status = tell(o, &m, KVS_EMBED, -1, s->cache_length_before, err);
  for (int layer = 0; status == KVS_OK && layer < c->n_layer; layer++) status = feed_layer(o, c, s, layer, err);
  kvs_moment last = {.step = s, .row = -1, .logits = logits};
  if (status == KVS_OK) status = tell(o, &last, KVS_LOGITS, -1, s->cache_length_after, err);
  if (status == KVS_OK) status = o->step_end(o->context, s, err);
  free(wte), free(wpe), free(x), free(logits);
  return status;
}

static UNUSED kvs_status feed(const kvs_observer *o, const kvs_config *c, int step, kvs_error *err) {
  kvs_step s = made_step(step, KVS_DECODE);
  kvs_status status = feed_unsettled(o, c, &s, err);
  return status == KVS_OK ? o->settled(o->context, err) : status;
}

#define ok(call) assert_status((call), KVS_OK, __LINE__)
static kvs_error error;
static UNUSED void assert_status(kvs_status got, kvs_status wanted, int line) {
  if (got != wanted) fail_msg("line %d: status %d, not %d: %s", line, (int)got, (int)wanted, error.message);
}
static UNUSED void assert_says(const char *words) {
  if (!strstr(error.message, words)) fail_msg("the message \"%s\" does not say \"%s\"", error.message, words);
}

/* A trace of `steps` decode steps of the small model. */
static UNUSED void make_trace(const char *path, int steps, const kvs_log *log) {
  kvs_trace *trace;
  kvs_trace_source source = made_source(&small_config);
  ok(kvs_trace_create(path, KVS_TRACE_APPEND, &trace, &error));
  ok(kvs_trace_begin_run_from(trace, &source, NULL, log, NULL, &error));
  kvs_observer observer = kvs_trace_observer(trace);
  for (int i = 0; i < steps; i++) ok(feed(&observer, &small_config, i, &error));
  ok(kvs_trace_end_run(trace, &error));
  ok(kvs_trace_close(trace, &error));
}

static UNUSED void assert_close(double got, double wanted, double within, int line) {
  if (!(fabs(got - wanted) <= within)) fail_msg("line %d: %.17g, not %.17g", line, got, wanted);
}

static UNUSED bool exists(const char *path, const char *end) {
  char name[160];
  struct stat st;
  snprintf(name, sizeof name, "%s%s", path, end);
  return stat(name, &st) == 0;
}

static UNUSED void assert_one_file(const char *path) {
  assert_true(exists(path, ""));
  assert_false(exists(path, "-wal"));
  assert_false(exists(path, "-shm"));
  assert_false(exists(path, "-journal"));
}

#endif
