/* cache.h: the KV cache: for each layer, n_ctx rows of K and of V, and how many of them are filled. A head reads all rows of
 * its own part of K and V, so these lie one after the other: [layer][head][row][head_dim]. */
#ifndef KVS_ENGINE_CACHE_H
#define KVS_ENGINE_CACHE_H

#include "kvstep/error.h"
#include "kvstep/model.h"

typedef struct kvs_cache {
  int n_layer, n_ctx, n_head, head_dim;
  float *k;    /* [n_layer][n_head][n_ctx][head_dim] */
  float *v;    /* [n_layer][n_head][n_ctx][head_dim] */
  int *length; /* [n_layer] rows filled */
  int *used;   /* [n_layer] rows written since the cache was cleared, holes included */
} kvs_cache;

/* Reserves the cache of a model; its pages are touched only as rows are written. */
kvs_status kvs_cache_create(kvs_cache *cache, const kvs_config *config, kvs_error *err);
void kvs_cache_free(kvs_cache *cache);
/* Rows that were written become zero again, so that what a fault reads there is the same in every run. */
void kvs_cache_clear(kvs_cache *cache);

/* One head's rows [n_ctx][head_dim] of `part`, which is cache->k or cache->v. */
float *kvs_cache_rows(const kvs_cache *cache, float *part, int layer, int head);

/* Copies row `row` of a layer, all heads side by side [n_embd], out of `part`. */
void kvs_cache_read(const kvs_cache *cache, float *part, int layer, int row, float *to);

/* The other way round; `from` NULL: zeros. */
void kvs_cache_write(const kvs_cache *cache, float *part, int layer, int row, const float *from);

/* Copies k and v [n_embd] (NULL: leaves what is there) to `row` of `layer`, which then holds `length_after` rows. */
void kvs_cache_append(kvs_cache *cache, int layer, int row, int length_after, const float *k, const float *v);

/* Throws row 0 of a layer away; all others move down by one, the length stays. */
void kvs_cache_drop_oldest(kvs_cache *cache, int layer);

#endif
