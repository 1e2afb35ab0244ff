/* state.c: creating an engine, its memory, its settings, and looking into it. */
#include "engine/state.h"

#include <stdlib.h>

#include "engine/numeric.h"

#define MAX_THREADS 256

/* ---- memory -------------------------------------------------------------------------------------------------------- */

static float *floats(size_t rows, size_t columns) { return calloc(rows, columns * sizeof(float)); }

static void scratch_free(kvs_scratch *s) {
  float *all[] = {s->wte,   s->wpe,    s->x,       s->norm,  s->qkv,   s->out,  s->attn_out,
                  s->x_mid, s->hidden, s->mlp_out, s->x_out, s->row_k, s->row_v};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  s->wte = s->wpe = s->x = s->norm = s->qkv = s->out = s->attn_out = s->x_mid = s->hidden = s->mlp_out = s->x_out =
      s->row_k = s->row_v = NULL;
  s->rows = 0;
}

kvs_status kvs_scratch_grow(kvs_engine *e, int count, kvs_error *err) {
  kvs_scratch *s = &e->s;
  if (s->rows >= count) return KVS_OK;
  scratch_free(s);
  size_t rows = (size_t)count, n_embd = (size_t)e->model->config.n_embd, n_inner = (size_t)e->model->config.n_inner;
  float **narrow[] = {&s->wte,   &s->wpe,     &s->x,     &s->norm,  &s->out,  &s->attn_out,
                      &s->x_mid, &s->mlp_out, &s->x_out, &s->row_k, &s->row_v};
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

static size_t blocks_of(size_t rows) { return (rows + KVS_BLOCK - 1) / KVS_BLOCK; }

static kvs_status allocate(kvs_engine *e, kvs_error *err) {
  const kvs_config *c = &e->model->config;
  size_t attention = (size_t)c->n_head * (size_t)c->n_ctx;
  if (kvs_cache_create(&e->cache, c, err)) return KVS_ERR_MEMORY;
  e->s.scores = floats(KVS_CHUNK, attention);
  e->s.weights = floats(KVS_CHUNK, attention);
  e->s.logits = floats(KVS_CHUNK, (size_t)c->n_vocab);
  e->s.pack = floats((size_t)kvs_pool_threads(e->pool), KVS_PACK_FLOATS);
  e->s.head_rows =
      floats((size_t)kvs_pool_threads(e->pool), (size_t)c->n_ctx * (size_t)c->head_dim + 2 * (size_t)c->n_head);
  e->s.q_cut = floats(1, (size_t)c->n_embd);
  e->s.joined = floats(1, (size_t)c->n_embd);
  size_t inner = (size_t)c->n_inner, n_embd = (size_t)c->n_embd, widest = inner > 3 * n_embd ? inner : 3 * n_embd;
  size_t in_rows = blocks_of(n_embd) * widest, in_inner = blocks_of(inner) * n_embd;
  e->s.sums = floats(1, in_rows > in_inner ? in_rows : in_inner);
  e->last_logits = floats(1, (size_t)c->n_vocab);
  e->shown_k = floats(1, (size_t)c->n_embd);
  e->shown_v = floats(1, (size_t)c->n_embd);
  e->prompt = calloc((size_t)c->n_ctx, sizeof *e->prompt);
  if (!e->s.head_rows || !e->s.q_cut || !e->s.joined || !e->prompt || !e->s.scores || !e->s.weights || !e->s.logits ||
      !e->s.pack || !e->s.sums || !e->last_logits || !e->shown_k || !e->shown_v)
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
  /* Nobody asked for so many; one gives the same bits. */
  if (status == KVS_ERR_MEMORY && given.threads == 0) status = kvs_pool_create(1, &e->pool, err);
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
  free(e->s.sums);
  free(e->s.head_rows);
  free(e->s.q_cut);
  free(e->s.joined);
  free(e->prompt);
  free(e->last_logits);
  free(e->shown_k);
  free(e->shown_v);
  free(e);
}

void kvs_engine_reset(kvs_engine *e) {
  kvs_engine_settle(e);
  kvs_cache_clear(&e->cache);
  e->steps = e->prompt_length = 0;
  e->detour_taken = false;
  e->has_logits = false;
  e->broken = e->s.rows == 0;
  atomic_store(&e->cancelled, false);
}

/* ---- settings and looking ------------------------------------------------------------------------------------------- */

void kvs_engine_settle(kvs_engine *e) { kvs_pool_settle(e->pool); }

void kvs_engine_observe(kvs_engine *e, const kvs_observer *observer) {
  kvs_engine_settle(e);
  e->observed = observer != NULL;
  e->observer = observer ? *observer : (kvs_observer){0};
}

void kvs_engine_fault(kvs_engine *e, const kvs_fault *fault, int from_step) {
  e->fault = fault;
  e->fault_from_step = from_step;
  e->detour_taken = false;
}

const float *kvs_engine_logits(const kvs_engine *e) { return e->has_logits ? e->last_logits : NULL; }
int kvs_engine_cache_length(const kvs_engine *e) { return e->cache.length[0]; }
int kvs_engine_threads(const kvs_engine *e) { return kvs_pool_threads(e->pool); }
const char *kvs_engine_kernel(const kvs_engine *e) { return e->kernels->name; }

static bool has_row(const kvs_engine *e, int layer, int row) {
  return layer >= 0 && layer < e->cache.n_layer && row >= 0 && row < e->cache.length[layer];
}

const float *kvs_engine_k(const kvs_engine *e, int layer, int row) {
  if (!has_row(e, layer, row)) return NULL;
  kvs_cache_read(&e->cache, e->cache.k, layer, row, e->shown_k);
  return e->shown_k;
}

const float *kvs_engine_v(const kvs_engine *e, int layer, int row) {
  if (!has_row(e, layer, row)) return NULL;
  kvs_cache_read(&e->cache, e->cache.v, layer, row, e->shown_v);
  return e->shown_v;
}

void kvs_engine_cancel(kvs_engine *e) { atomic_store(&e->cancelled, true); }
