/* cache.c: the KV cache's memory. */
#include "engine/cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

kvs_status kvs_cache_create(kvs_cache *cache, const kvs_config *config, kvs_error *err) {
  *cache = (kvs_cache){.n_layer = config->n_layer, .n_ctx = config->n_ctx, .n_embd = config->n_embd};
  size_t rows = (size_t)config->n_layer * (size_t)config->n_ctx;
  /* calloc of this size maps zero pages: memory is spent as rows are written. */
  cache->k = calloc(rows, (size_t)config->n_embd * sizeof(float));
  cache->v = calloc(rows, (size_t)config->n_embd * sizeof(float));
  cache->length = calloc((size_t)config->n_layer, sizeof *cache->length);
  cache->used = calloc((size_t)config->n_layer, sizeof *cache->used);
  if (cache->k && cache->v && cache->length && cache->used) return KVS_OK;
  kvs_cache_free(cache);
  return kvs_fail_memory(err, "reserving the KV cache");
}

void kvs_cache_free(kvs_cache *cache) {
  free(cache->k);
  free(cache->v);
  free(cache->length);
  free(cache->used);
  *cache = (kvs_cache){0};
}

static size_t offset(const kvs_cache *cache, int layer, int row) {
  assert(layer >= 0 && layer < cache->n_layer && row >= 0 && row < cache->n_ctx);
  return ((size_t)layer * (size_t)cache->n_ctx + (size_t)row) * (size_t)cache->n_embd;
}

float *kvs_cache_k(const kvs_cache *cache, int layer, int row) { return cache->k + offset(cache, layer, row); }
float *kvs_cache_v(const kvs_cache *cache, int layer, int row) { return cache->v + offset(cache, layer, row); }

void kvs_cache_clear(kvs_cache *cache) {
  for (int layer = 0; layer < cache->n_layer; layer++) {
    size_t bytes = (size_t)cache->used[layer] * (size_t)cache->n_embd * sizeof(float);
    memset(kvs_cache_k(cache, layer, 0), 0, bytes);
    memset(kvs_cache_v(cache, layer, 0), 0, bytes);
    cache->length[layer] = cache->used[layer] = 0;
  }
}

void kvs_cache_append(kvs_cache *cache, int layer, int row, int length_after, const float *k, const float *v) {
  if (k) memcpy(kvs_cache_k(cache, layer, row), k, (size_t)cache->n_embd * sizeof(float));
  if (v) memcpy(kvs_cache_v(cache, layer, row), v, (size_t)cache->n_embd * sizeof(float));
  cache->length[layer] = length_after;
  if (cache->used[layer] <= row) cache->used[layer] = row + 1;
}

void kvs_cache_drop_oldest(kvs_cache *cache, int layer) {
  size_t bytes = (size_t)(cache->n_ctx - 1) * (size_t)cache->n_embd * sizeof(float);
  if (cache->n_ctx == 1) return;
  memmove(kvs_cache_k(cache, layer, 0), kvs_cache_k(cache, layer, 1), bytes);
  memmove(kvs_cache_v(cache, layer, 0), kvs_cache_v(cache, layer, 1), bytes);
}
