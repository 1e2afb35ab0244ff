/* engine.c: creating an engine, its memory, and the doors to the decode step and the prefill. */
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_THREADS 256

/* ---- memory -------------------------------------------------------------------------------------------------------- */

static float *floats(size_t rows, size_t columns) { return calloc(rows, columns * sizeof(float)); }

static void scratch_free(kvs_scratch *s) {
  float *all[] = {s->wte,      s->wpe,   s->x,      s->norm,    s->qkv,  s->out,
                  s->attn_out, s->x_mid, s->hidden, s->mlp_out, s->x_out};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  s->wte = s->wpe = s->x = s->norm = s->qkv = s->out = s->attn_out = s->x_mid = s->hidden = s->mlp_out = s->x_out =
      NULL;
  s->rows = 0;
}

kvs_status kvs_scratch_grow(kvs_engine *e, int count, kvs_error *err) {
  kvs_scratch *s = &e->s;
  if (s->rows >= count) return KVS_OK;
  scratch_free(s);
  size_t rows = (size_t)count, n_embd = (size_t)e->model->config.n_embd, n_inner = (size_t)e->model->config.n_inner;
  float **narrow[] = {&s->wte, &s->wpe, &s->x, &s->norm, &s->out, &s->attn_out, &s->x_mid, &s->mlp_out, &s->x_out};
  bool complete = true;
  for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++) complete &= (*narrow[i] = floats(rows, n_embd)) != NULL;
  complete &= (s->qkv = floats(rows, 3 * n_embd)) != NULL;
  complete &= (s->hidden = floats(rows, n_inner)) != NULL;
  if (!complete) {
    scratch_free(s);
    e->broken = true; /* there is no working memory left, not even for one token */
    return kvs_fail_memory(err, "making room for a batch of tokens");
  }
  s->rows = count;
  return KVS_OK;
}

static kvs_status allocate(kvs_engine *e, kvs_error *err) {
  const kvs_config *c = &e->model->config;
  size_t attention = (size_t)c->n_head * (size_t)c->n_ctx;
  if (kvs_cache_create(&e->cache, c, err)) return KVS_ERR_MEMORY;
  e->s.scores = floats(KVS_CHUNK, attention);
  e->s.weights = floats(KVS_CHUNK, attention);
  e->s.logits = floats(KVS_CHUNK, (size_t)c->n_vocab);
  e->s.pack = floats((size_t)kvs_pool_threads(e->pool), KVS_PACK_FLOATS);
  e->last_logits = floats(1, (size_t)c->n_vocab);
  if (!e->s.scores || !e->s.weights || !e->s.logits || !e->s.pack || !e->last_logits)
    return kvs_fail_memory(err, "creating the engine");
  return kvs_scratch_grow(e, 1, err);
}

kvs_status kvs_engine_create(const kvs_model *model, const kvs_engine_options *options, kvs_engine **out,
                             kvs_error *err) {
  *out = NULL;
  kvs_engine_options given = options ? *options : (kvs_engine_options){0};
  const kvs_kernels *kernels = kvs_kernels_find(given.kernel);
  if (!kernels)
    return kvs_fail(err, KVS_ERR_USAGE, "no kernel '%s' on this CPU; the fastest it has is '%s'", given.kernel,
                    kvs_kernel_name(0));
  if (given.threads < 0 || given.threads > MAX_THREADS)
    return kvs_fail(err, KVS_ERR_USAGE, "%d threads: give 1 to %d, or 0 for as many as there are cores", given.threads,
                    MAX_THREADS);
  kvs_engine *e = calloc(1, sizeof *e);
  if (!e) return kvs_fail_memory(err, "creating the engine");
  e->model = model;
  e->kernels = kernels;
  kvs_status status = kvs_pool_create(given.threads ? given.threads : kvs_pool_default_threads(), &e->pool, err);
  if (!status) status = allocate(e, err);
  if (status) {
    kvs_engine_free(e);
    return status;
  }
  *out = e;
  return KVS_OK;
}

void kvs_engine_free(kvs_engine *e) {
  if (!e) return;
  kvs_pool_free(e->pool);
  kvs_cache_free(&e->cache);
  scratch_free(&e->s);
  free(e->s.scores);
  free(e->s.weights);
  free(e->s.logits);
  free(e->s.pack);
  free(e->last_logits);
  free(e);
}

void kvs_engine_reset(kvs_engine *e) {
  kvs_cache_clear(&e->cache);
  e->steps = 0;
  e->has_logits = false;
  e->broken = e->s.rows == 0;
  atomic_store(&e->cancelled, false);
}

/* ---- settings and looking ------------------------------------------------------------------------------------------- */

void kvs_engine_observe(kvs_engine *e, const kvs_observer *observer) {
  e->observed = observer != NULL;
  e->observer = observer ? *observer : (kvs_observer){0};
}

void kvs_engine_fault(kvs_engine *e, const kvs_fault *fault, int from_step) {
  e->fault = fault;
  e->fault_from_step = from_step;
}

const float *kvs_engine_logits(const kvs_engine *e) { return e->has_logits ? e->last_logits : NULL; }
int kvs_engine_cache_length(const kvs_engine *e) { return e->cache.length[0]; }
int kvs_engine_threads(const kvs_engine *e) { return kvs_pool_threads(e->pool); }
const char *kvs_engine_kernel(const kvs_engine *e) { return e->kernels->name; }

static bool has_row(const kvs_engine *e, int layer, int row) {
  return layer >= 0 && layer < e->cache.n_layer && row >= 0 && row < e->cache.length[layer];
}

const float *kvs_engine_k(const kvs_engine *e, int layer, int row) {
  return has_row(e, layer, row) ? kvs_cache_k(&e->cache, layer, row) : NULL;
}

const float *kvs_engine_v(const kvs_engine *e, int layer, int row) {
  return has_row(e, layer, row) ? kvs_cache_v(&e->cache, layer, row) : NULL;
}

void kvs_engine_cancel(kvs_engine *e) { atomic_store(&e->cancelled, true); }

/* ---- what decode and prefill share ---------------------------------------------------------------------------------- */

double kvs_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

kvs_status kvs_engine_plan(kvs_engine *e, int step, kvs_mode mode, int cache_length, kvs_step_plan *plan,
                           kvs_error *err) {
  kvs_situation situation = {&e->model->config, step, mode, cache_length};
  const kvs_fault *fault = step >= e->fault_from_step ? e->fault : NULL;
  *plan = kvs_plan(&situation, fault);
  return kvs_plan_check(plan, &situation, fault, err);
}

static const void *tensor_row(const kvs_tensor *t, int row) {
  size_t width = t->dtype == KVS_F32 ? 4 : 2;
  return (const char *)t->data + (size_t)row * (size_t)t->cols * width;
}

void kvs_embed(kvs_engine *e, int token, const kvs_step_plan *plan, float *wte, float *wpe, float *x) {
  const kvs_model *model = e->model;
  int n_embd = model->config.n_embd;
  e->kernels->widen(wte, tensor_row(&model->wte, token), model->wte.dtype, n_embd);
  if (plan->position == KVS_NO_POSITION) {
    memcpy(x, wte, (size_t)n_embd * sizeof(float));
    return;
  }
  e->kernels->widen(wpe, tensor_row(&model->wpe, plan->position), model->wpe.dtype, n_embd);
  kvs_op_add(x, wte, wpe, (size_t)n_embd);
}

float kvs_layer_scale(const kvs_engine *e, const kvs_step_plan *plan, int layer) {
  return e->model->config.scale_attn_by_inverse_layer_idx ? plan->scale / (float)(layer + 1) : plan->scale;
}

kvs_status kvs_report(kvs_engine *e, kvs_moment *moment, kvs_phase phase, int layer, int cache_length, kvs_error *err) {
  if (atomic_load_explicit(&e->cancelled, memory_order_relaxed))
    return kvs_fail(err, KVS_ERR_CANCELLED, "stopped in step %d", moment->step->step);
  if (!e->observer.moment) return KVS_OK;
  moment->phase = phase;
  moment->layer = layer;
  moment->cache_length = cache_length;
  double start = kvs_now();
  kvs_status status = e->observer.moment(e->observer.context, moment, err);
  e->observer_seconds += kvs_now() - start;
  return status;
}

static kvs_status may_feed(const kvs_engine *e, const int *tokens, int count, kvs_error *err) {
  if (e->broken) return kvs_fail(err, KVS_ERR_USAGE, "an earlier step was cut short; reset the engine first");
  if (count < 1) return kvs_fail(err, KVS_ERR_USAGE, "no tokens to feed; give at least one");
  int n_vocab = e->model->config.n_vocab;
  for (int i = 0; i < count; i++)
    if (tokens[i] < 0 || tokens[i] >= n_vocab)
      return kvs_fail(err, KVS_ERR_USAGE, "token %d is not in the vocabulary; ids run from 0 to %d", tokens[i],
                      n_vocab - 1);
  return KVS_OK;
}

kvs_status kvs_engine_prefill(kvs_engine *e, const int *tokens, int count, kvs_source source, kvs_error *err) {
  kvs_error local;
  if (!err) err = &local; /* below, err->status carries the status */
  if (may_feed(e, tokens, count, err)) return err->status;
  int room = e->model->config.n_ctx - e->cache.length[0];
  if (count > room)
    return kvs_fail(err, KVS_ERR_CONTEXT,
                    "%d tokens do not fit: the context has room for %d more (n_ctx = %d, %d used)", count, room,
                    e->model->config.n_ctx, e->cache.length[0]);
  e->observer_seconds = 0;
  kvs_status status = kvs_prefill_batch(e, tokens, count, source, err);
  if (!status && e->observer.settled) status = e->observer.settled(e->observer.context, err);
  return status;
}

kvs_status kvs_engine_decode(kvs_engine *e, int token, kvs_source source, kvs_error *err) {
  kvs_error local;
  if (!err) err = &local;
  if (may_feed(e, &token, 1, err)) return err->status;
  e->observer_seconds = 0;
  int steps = e->steps;
  kvs_status status = kvs_decode_step(e, token, source, err);
  /* The context's end is found before anything is touched; any other failure leaves half a step behind. */
  if (status && !(status == KVS_ERR_CONTEXT && e->steps == steps)) e->broken = true;
  if (!status && e->observer.settled) status = e->observer.settled(e->observer.context, err);
  return status;
}
