/* cache.c: the KV cache's memory. */
#include "engine/cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

kvs_status kvs_cache_create(kvs_cache *cache, const kvs_config *config, kvs_error *err) {
  *cache = (kvs_cache){
      .n_layer = config->n_layer, .n_ctx = config->n_ctx, .n_head = config->n_head, .head_dim = config->head_dim};
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

/* Bytes of `rows` rows of one head. */
static size_t row_bytes(const kvs_cache *cache, int rows) {
  return (size_t)rows * (size_t)cache->head_dim * sizeof(float);
}

float *kvs_cache_rows(const kvs_cache *cache, float *part, int layer, int head) {
  assert(layer >= 0 && layer < cache->n_layer && head >= 0 && head < cache->n_head);
  size_t heads = (size_t)layer * (size_t)cache->n_head + (size_t)head;
  return part + heads * (size_t)cache->n_ctx * (size_t)cache->head_dim;
}

void kvs_cache_read(const kvs_cache *cache, float *part, int layer, int row, float *to) {
  assert(row >= 0 && row < cache->n_ctx);
  for (int head = 0; head < cache->n_head; head++)
    memcpy(to + head * cache->head_dim, kvs_cache_rows(cache, part, layer, head) + row * cache->head_dim,
           row_bytes(cache, 1));
}

void kvs_cache_write(const kvs_cache *cache, float *part, int layer, int row, const float *from) {
  assert(row >= 0 && row < cache->n_ctx);
  for (int head = 0; head < cache->n_head; head++) {
    float *to = kvs_cache_rows(cache, part, layer, head) + row * cache->head_dim;
    if (from)
      memcpy(to, from + head * cache->head_dim, row_bytes(cache, 1));
    else
      memset(to, 0, row_bytes(cache, 1));
  }
}

void kvs_cache_clear(kvs_cache *cache) {
  for (int layer = 0; layer < cache->n_layer; layer++) {
    for (int head = 0; head < cache->n_head; head++) {
      memset(kvs_cache_rows(cache, cache->k, layer, head), 0, row_bytes(cache, cache->used[layer]));
      memset(kvs_cache_rows(cache, cache->v, layer, head), 0, row_bytes(cache, cache->used[layer]));
    }
    cache->length[layer] = cache->used[layer] = 0;
  }
}

void kvs_cache_append(kvs_cache *cache, int layer, int row, int length_after, const float *k, const float *v) {
  if (k) kvs_cache_write(cache, cache->k, layer, row, k);
  if (v) kvs_cache_write(cache, cache->v, layer, row, v);
  cache->length[layer] = length_after;
  if (cache->used[layer] <= row) cache->used[layer] = row + 1;
}

void kvs_cache_drop_oldest(kvs_cache *cache, int layer) {
  for (int head = 0; head < cache->n_head; head++) {
    float *k = kvs_cache_rows(cache, cache->k, layer, head), *v = kvs_cache_rows(cache, cache->v, layer, head);
    memmove(k, k + cache->head_dim, row_bytes(cache, cache->n_ctx - 1));
    memmove(v, v + cache->head_dim, row_bytes(cache, cache->n_ctx - 1));
  }
}
