/* pool.h: a few threads that share the columns of a matrix or the heads of a layer. */
#ifndef KVS_ENGINE_POOL_H
#define KVS_ENGINE_POOL_H

#include "kvstep/error.h"

typedef struct kvs_pool kvs_pool;

/* What is to be done: 0 … count. It is taken in parts that begin at multiples of `grain`; a part larger than `whole` ends at a
 * multiple of `whole` (0: no matter). */
typedef struct kvs_pool_range {
  int count, grain, whole;
} kvs_pool_range;

/* Does begin … end. `thread` < threads is this thread's own number: for working memory. */
typedef void (*kvs_pool_work)(void *context, int thread, int begin, int end);

/* `threads` ≥ 1, the caller's own counted: threads − 1 are started. */
kvs_status kvs_pool_create(int threads, kvs_pool **out, kvs_error *err);
void kvs_pool_free(kvs_pool *pool);
int kvs_pool_threads(const kvs_pool *pool);

/* Does the whole range and returns when it is done. The threads take parts as they get done; one that is asleep, or busy behind, is
 * not waited for, and one that other programs leave no core is not counted on for some milliseconds. One caller at a time, also of the
 * functions below. */
void kvs_pool_run(kvs_pool *pool, kvs_pool_range range, kvs_pool_work work, void *context);

/* Has `job` done while rounds go on without it: on a thread of its own where there are more cores than threads, else on one of the
 * threads, or, with one core, at once. Waits for the one before. */
void kvs_pool_behind(kvs_pool *pool, void (*job)(void *context), void *context);

/* Returns when nothing is being done behind any more. */
void kvs_pool_settle(kvs_pool *pool);

/* Physical cores that this process may use: affinity and cgroup quota respected, hyper-threads counted once. cores.c. */
int kvs_pool_default_threads(void);

/* The cores, rounded up, that control groups leave a process of which `groups` tells (/proc/self/cgroup), in the tree at `mount`
 * (/sys/fs/cgroup); 0 if they set no limit. cores.c. */
int kvs_pool_quota(const char *groups, const char *mount);

#endif
