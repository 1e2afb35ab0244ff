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
  if (cache->k && cache->v && cache->length) return KVS_OK;
  kvs_cache_free(cache);
  return kvs_fail_memory(err, "reserving the KV cache");
}

void kvs_cache_free(kvs_cache *cache) {
  free(cache->k);
  free(cache->v);
  free(cache->length);
  *cache = (kvs_cache){0};
}

void kvs_cache_clear(kvs_cache *cache) { memset(cache->length, 0, (size_t)cache->n_layer * sizeof *cache->length); }

static size_t offset(const kvs_cache *cache, int layer, int row) {
  assert(layer >= 0 && layer < cache->n_layer && row >= 0 && row < cache->n_ctx);
  return ((size_t)layer * (size_t)cache->n_ctx + (size_t)row) * (size_t)cache->n_embd;
}

float *kvs_cache_k(const kvs_cache *cache, int layer, int row) { return cache->k + offset(cache, layer, row); }
float *kvs_cache_v(const kvs_cache *cache, int layer, int row) { return cache->v + offset(cache, layer, row); }

void kvs_cache_append(kvs_cache *cache, int layer, int row, int length_after, const float *k, const float *v) {
  memcpy(kvs_cache_k(cache, layer, row), k, (size_t)cache->n_embd * sizeof(float));
  memcpy(kvs_cache_v(cache, layer, row), v, (size_t)cache->n_embd * sizeof(float));
  cache->length[layer] = length_after;
}
