/* cache.h: the KV cache: for each layer, n_ctx rows of K and of V, and how many of them are filled. */
#ifndef KVS_ENGINE_CACHE_H
#define KVS_ENGINE_CACHE_H

#include "kvstep/error.h"
#include "kvstep/model.h"

typedef struct kvs_cache {
  int n_layer, n_ctx, n_embd;
  float *k;    /* [n_layer][n_ctx][n_embd] */
  float *v;    /* [n_layer][n_ctx][n_embd] */
  int *length; /* [n_layer] rows filled */
  int *used;   /* [n_layer] rows written since the cache was cleared, holes included */
} kvs_cache;

/* Reserves the cache of a model; its pages are touched only as rows are written. */
kvs_status kvs_cache_create(kvs_cache *cache, const kvs_config *config, kvs_error *err);
void kvs_cache_free(kvs_cache *cache);
/* Rows that were written become zero again, so that what a fault reads there is the same in every run. */
void kvs_cache_clear(kvs_cache *cache);

/* Row `row` of one layer, [n_embd]. */
float *kvs_cache_k(const kvs_cache *cache, int layer, int row);
float *kvs_cache_v(const kvs_cache *cache, int layer, int row);

/* Copies k and v [n_embd] (NULL: leaves what is there) to `row` of `layer`, which then holds `length_after` rows. */
void kvs_cache_append(kvs_cache *cache, int layer, int row, int length_after, const float *k, const float *v);

/* Throws row 0 of a layer away; all others move down by one, the length stays. */
void kvs_cache_drop_oldest(kvs_cache *cache, int layer);

#endif
