/* pool.h: a few threads that share the columns of a matrix or the heads of a layer. */
#ifndef KVS_ENGINE_POOL_H
#define KVS_ENGINE_POOL_H

#include "kvstep/error.h"

#define KVS_MOST_THREADS 256

typedef struct kvs_pool kvs_pool;

/* Does part `thread` of `threads` parts. */
typedef void (*kvs_pool_work)(void *context, int thread, int threads);

/* `threads` ≥ 1, the caller's own counted: threads − 1 are started. */
kvs_status kvs_pool_create(int threads, kvs_pool **out, kvs_error *err);
void kvs_pool_free(kvs_pool *pool);
int kvs_pool_threads(const kvs_pool *pool);

/* Runs all parts and returns when all are done. One caller at a time. */
void kvs_pool_run(kvs_pool *pool, kvs_pool_work work, void *context);

/* Physical cores that this process may use: affinity and cgroup quota respected, hyper-threads counted once. */
int kvs_pool_default_threads(void);

/* Part `thread` of 0..n in `threads` parts, each a multiple of `unit` but for the last: begin ≤ j < end. */
void kvs_pool_share(int n, int unit, int thread, int threads, int *begin, int *end);

#endif
