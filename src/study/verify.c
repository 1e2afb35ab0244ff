/* verify.c: runs a cached and an uncached engine side by side and compares their numbers. */
#include "study/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void compare_vectors(kvs_verify_difference *d, const float *a, const float *b, int n, int layer, int row) {
  if (memcmp(a, b, (size_t)n * sizeof *a) == 0) return;
  if (d->identical) {
    d->identical = false;
    d->layer = layer;
    d->row = row;
  }
  for (int i = 0; i < n; i++) {
    if (memcmp(&a[i], &b[i], sizeof *a) == 0) continue; /* equal infinities and NaNs differ by nothing */
    double delta = fabs((double)a[i] - (double)b[i]);
    if (isnan(delta) || delta > d->largest) d->largest = delta; /* once NaN it stays: no comparison holds */
  }
}

/* Rows that only one side has make the difference infinite. */
static void compare_rows(kvs_verify_difference *d, const kvs_config *config, const kvs_engine *cached,
                         const kvs_engine *scratch, int rows,
                         const float *(*row_of)(const kvs_engine *engine, int layer, int row)) {
  for (int layer = 0; layer < config->n_layer; layer++)
    for (int row = 0; row < rows; row++) {
      const float *a = row_of(cached, layer, row), *b = row_of(scratch, layer, row);
      if (a && b) {
        compare_vectors(d, a, b, config->n_embd, layer, row);
      } else if (a || b) {
        if (d->identical) {
          d->layer = layer;
          d->row = row;
        }
        d->identical = false;
        d->largest = INFINITY;
      }
    }
}

static kvs_verify_step compare_engines(const kvs_config *config, const kvs_engine *cached, const kvs_engine *scratch) {
  const kvs_verify_difference same = {.identical = true, .layer = -1, .row = -1};
  kvs_verify_step step = {.logits = same, .k = same, .v = same};
  step.cached_length = kvs_engine_cache_length(cached);
  step.scratch_length = kvs_engine_cache_length(scratch);
  int rows = step.cached_length > step.scratch_length ? step.cached_length : step.scratch_length;
  compare_vectors(&step.logits, kvs_engine_logits(cached), kvs_engine_logits(scratch), config->n_vocab, -1, -1);
  compare_rows(&step.k, config, cached, scratch, rows, kvs_engine_k);
  compare_rows(&step.v, config, cached, scratch, rows, kvs_engine_v);
  step.identical =
      step.logits.identical && step.k.identical && step.v.identical && step.cached_length == step.scratch_length;
  return step;
}

/* The largest logit's token; the lowest id among equals. */
static int greedy(const float *logits, int n_vocab) {
  int best = 0;
  for (int i = 1; i < n_vocab; i++)
    if (logits[i] > logits[best]) best = i;
  return best;
}

/* The two engines and the tokens fed so far. */
struct pair {
  kvs_engine *cached, *scratch;
  int *tokens;
};

static kvs_status run_pair(struct pair *p, const kvs_model *model, const kvs_verify_options *options,
                           kvs_status (*report)(void *context, const kvs_verify_step *step, kvs_error *err),
                           void *context, kvs_error *err) {
  const kvs_config *config = kvs_model_config(model);
  int count = options->token_count + options->generate;
  for (int i = 0; i < count; i++) {
    bool prompt = i < options->token_count;
    p->tokens[i] = prompt ? options->tokens[i] : greedy(kvs_engine_logits(p->cached), config->n_vocab);
    kvs_status status = kvs_engine_decode(p->cached, p->tokens[i], prompt ? KVS_PROMPT : KVS_SAMPLED, err);
    if (status != KVS_OK) return status;
    kvs_engine_reset(p->scratch);
    status = kvs_engine_prefill(p->scratch, p->tokens, i + 1, KVS_FORCED, err);
    if (status != KVS_OK) return status;
    kvs_verify_step step = compare_engines(config, p->cached, p->scratch);
    step.step = i;
    step.token = p->tokens[i];
    status = report(context, &step, err);
    if (status != KVS_OK) return status;
    if (!prompt && step.token == config->eos_token) break;
  }
  return KVS_OK;
}

kvs_status kvs_verify(const kvs_model *model, const kvs_verify_options *options,
                      kvs_status (*report)(void *context, const kvs_verify_step *step, kvs_error *err), void *context,
                      kvs_error *err) {
  if (options->token_count < 1 || options->generate < 0)
    return kvs_fail(err, KVS_ERR_USAGE, "verify needs at least one token, and no negative number of new ones");
  struct pair p = {0};
  const kvs_engine_options engine_options = {.threads = options->threads};
  p.tokens = malloc(((size_t)options->token_count + (size_t)options->generate) * sizeof *p.tokens);
  kvs_status status = p.tokens ? KVS_OK : kvs_fail_memory(err, "verifying");
  if (status == KVS_OK) status = kvs_engine_create(model, &engine_options, &p.cached, err);
  if (status == KVS_OK) status = kvs_engine_create(model, &engine_options, &p.scratch, err);
  if (status == KVS_OK) {
    kvs_engine_fault(p.cached, options->fault, options->fault_from);
    status = run_pair(&p, model, options, report, context, err);
  }
  if (p.cached) kvs_engine_free(p.cached);
  if (p.scratch) kvs_engine_free(p.scratch);
  free(p.tokens);
  return status;
}
