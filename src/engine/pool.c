/* pool.c: threads that wake in microseconds while there is work and sleep when there is none.
 *
 * A worker spins for a moment after each piece of work, since in a decode step the next one comes at once, and then
 * waits on a condition variable, so that an idle program takes no CPU. Who comes late to a round finds it closed: nobody waits
 * for a thread that has taken nothing. Where other programs want the cores, rounds go on with fewer threads for a while: a thread
 * that gets no core does no work, and takes one from others while it waits for some.
 */
#include "engine/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/signals.h"

#define SPINS 2000 /* pauses before a thread goes to sleep: a few tens of microseconds */

/* A thread is missed that has been waited for so many seconds, or has not come to so many rounds, one after another, in that time:
 * more than it takes to wake up. */
#define MISSED_SECONDS 0.5e-3
#define MISSED_ROUNDS 20

/* For how many seconds a thread then rests: twice as long each time that it was tried again and was missed within TRY. */
#define FIRST_REST 1e-3
#define LONGEST_REST 20e-3
#define TRY 5e-3

/* A round of work in one word, so that a worker joins it or finds it closed, and nothing between: how many workers are inside, how many
 * have come, whether more may come, and the round's number. */
#define INSIDE UINT64_C(0xFFFF)
#define CAME UINT64_C(0x10000)
#define OPEN UINT64_C(0x100000000)
#define NUMBER UINT64_C(0x200000000)

typedef enum behind_state { NOTHING_BEHIND, BEHIND_WAITS, BEHIND_RUNS } behind_state;

/* A thread's share of the range. On a line of its own, since others look at it only when they are done with theirs. */
typedef struct share {
  atomic_int next; /* the first that nobody has taken */
  int end;
  char rest[64 - 2 * sizeof(int)];
} share;

struct kvs_pool {
  int threads;
  int started;
  atomic_bool spare; /* the last one that was started is one more, for what is done behind alone */
  bool spare_tried;
  pthread_t *thread;
  pthread_mutex_t mutex;
  pthread_cond_t wake, wake_resting;
  atomic_int sleeping,
      resting; /* workers that the next round wakes, and those that take no part in it; changed under mutex */
  pthread_cond_t done;
  atomic_bool caller_sleeps; /* changed under mutex */
  atomic_bool stop;
  atomic_int next_index;

  atomic_int active; /* threads that take part; changed between rounds */
  atomic_uint_fast64_t round;
  kvs_pool_range range;
  share *share; /* [threads] */
  kvs_pool_work work;
  void *context;

  atomic_int behind; /* behind_state */
  void (*job)(void *context);
  void *job_context;

  /* The caller's own. It writes here in each round, so it lies apart from what the workers watch. */
  char apart[64];
  int missed; /* rounds one after another that an active thread has not come to … */
  double missed_from;
  double rest, rest_begins, rest_ends; /* rest_ends 0: all are active */
};

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/* ---- a round ------------------------------------------------------------------------------------------------------- */

/* Each thread has the same share each time, so that what it reads stays in its core's caches where it fits. */
static void share_out(kvs_pool *pool, kvs_pool_range range, int threads) {
  int unit = range.whole && range.count / range.whole >= threads ? range.whole : range.grain;
  long units = (range.count + unit - 1) / unit;
  pool->range = range;
  for (int t = 0; t < threads; t++) {
    long begin = units * t / threads * unit, end = units * (t + 1) / threads * unit;
    atomic_store_explicit(&pool->share[t].next, (int)begin, memory_order_relaxed);
    pool->share[t].end = (int)(end < range.count ? end : range.count);
  }
}

/* Takes half of what is left of a share. */
static bool take(const kvs_pool_range *range, share *of, int *begin, int *end) {
  int from = atomic_load_explicit(&of->next, memory_order_relaxed), n;
  do {
    int left = of->end - from;
    if (left <= 0) return false;
    n = left / 2 - left / 2 % range->grain;
    if (range->whole && n > range->whole) n -= (from + n) % range->whole;
    if (n < range->grain) n = range->grain;
    if (n > left) n = left;
  } while (
      !atomic_compare_exchange_weak_explicit(&of->next, &from, from + n, memory_order_relaxed, memory_order_relaxed));
  *begin = from, *end = from + n;
  return true;
}

/* The thread's own share first, in parts that get smaller, so that something is left for others if it is slow; then what is left of
 * the others'. */
static void work_off(kvs_pool *pool, int thread) {
  int threads = atomic_load_explicit(&pool->active, memory_order_relaxed);
  for (int i = 0; i < threads; i++) {
    share *from = &pool->share[(thread + i) % threads];
    for (int begin, end; take(&pool->range, from, &begin, &end);) pool->work(pool->context, thread, begin, end);
  }
}

/* Joins the round if it is still open, and if it is not the one `seen` last. */
static bool join(kvs_pool *pool, uint64_t *seen) {
  uint_fast64_t round = atomic_load_explicit(&pool->round, memory_order_acquire);
  do {
    if (!(round & OPEN) || round / NUMBER == *seen) return false;
  } while (!atomic_compare_exchange_weak_explicit(&pool->round, &round, round + CAME + 1, memory_order_acquire,
                                                  memory_order_acquire));
  *seen = round / NUMBER;
  return true;
}

/* After a change that the caller may be waiting for. It says that it sleeps before it looks for the last time, so it either sees the
 * change or is seen here. */
static void wake_caller(kvs_pool *pool) {
  if (!atomic_load(&pool->caller_sleeps)) return;
  pthread_mutex_lock(&pool->mutex);
  pthread_cond_signal(&pool->done);
  pthread_mutex_unlock(&pool->mutex);
}

static void leave(kvs_pool *pool) {
  atomic_fetch_sub(&pool->round, 1);
  wake_caller(pool);
}

/* ---- what is done behind the rounds ---------------------------------------------------------------------------------- */

static bool does_behind(const kvs_pool *pool, int thread) {
  return !atomic_load(&pool->spare) || thread == pool->threads;
}

static bool do_behind(kvs_pool *pool) {
  int waits = BEHIND_WAITS;
  if (!atomic_compare_exchange_strong(&pool->behind, &waits, BEHIND_RUNS)) return false;
  pool->job(pool->job_context);
  atomic_store(&pool->behind, NOTHING_BEHIND);
  wake_caller(pool);
  return true;
}

/* ---- workers ------------------------------------------------------------------------------------------------------- */

static bool is_awaited(const kvs_pool *pool, int thread, uint64_t seen) {
  uint_fast64_t round = atomic_load(&pool->round);
  if ((round & OPEN) && round / NUMBER != seen && thread < atomic_load(&pool->active)) return true;
  return (does_behind(pool, thread) && atomic_load(&pool->behind) == BEHIND_WAITS) || atomic_load(&pool->stop);
}

static void await(kvs_pool *pool, int thread, uint64_t seen) {
  for (int i = 0; i < SPINS; i++) {
    if (is_awaited(pool, thread, seen)) return;
    relax();
  }
  pthread_mutex_lock(&pool->mutex);
  while (!is_awaited(pool, thread, seen)) {
    bool rests = thread >= atomic_load(&pool->active);
    atomic_int *asleep = rests ? &pool->resting : &pool->sleeping;
    atomic_fetch_add(asleep, 1);
    if (!is_awaited(pool, thread, seen) && rests == (thread >= atomic_load(&pool->active)))
      pthread_cond_wait(rests ? &pool->wake_resting : &pool->wake, &pool->mutex);
    atomic_fetch_sub(asleep, 1);
  }
  pthread_mutex_unlock(&pool->mutex);
}

static void *worker(void *argument) {
  kvs_pool *pool = argument;
  int index = atomic_fetch_add(&pool->next_index, 1);
  uint64_t seen = 0;
  for (;;) {
    await(pool, index, seen);
    if (atomic_load(&pool->stop)) return NULL;
    if (does_behind(pool, index) && do_behind(pool)) continue;
    if (index >= atomic_load(&pool->active) || !join(pool, &seen)) continue;
    work_off(pool, index);
    leave(pool);
  }
}

/* After a change that is_awaited sees. A worker counts itself among the sleeping before it looks for the last time, so it either
 * sees the change or is counted here. */
static void wake(kvs_pool *pool, const atomic_int *asleep, pthread_cond_t *condition) {
  if (atomic_load(asleep) == 0) return;
  pthread_mutex_lock(&pool->mutex);
  pthread_cond_broadcast(condition);
  pthread_mutex_unlock(&pool->mutex);
}

static void wake_for_round(kvs_pool *pool) { wake(pool, &pool->sleeping, &pool->wake); }

static void wake_all(kvs_pool *pool) {
  wake_for_round(pool);
  wake(pool, &pool->resting, &pool->wake_resting);
}

/* ---- creating and freeing -------------------------------------------------------------------------------------------- */

static int start_thread(kvs_pool *pool) {
  sigset_t before;
  kvs_signals_block(&before);
  int failed = pthread_create(&pool->thread[pool->started], NULL, worker, pool);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pool->started += !failed;
  return failed;
}

/* Where fewer threads decode than there are cores, what is done behind need not take one of theirs. */
static void start_spare(kvs_pool *pool) {
  pool->spare_tried = true;
  if (pool->threads < kvs_pool_default_threads() && start_thread(pool) == 0) atomic_store(&pool->spare, true);
}

kvs_status kvs_pool_create(int threads, kvs_pool **out, kvs_error *err) {
  *out = NULL;
  kvs_pool *pool = calloc(1, sizeof *pool);
  if (!pool) return kvs_fail_memory(err, "starting threads");
  pool->threads = threads;
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->wake, NULL);
  pthread_cond_init(&pool->wake_resting, NULL);
  pthread_cond_init(&pool->done, NULL);
  atomic_store(&pool->next_index, 1);
  atomic_store(&pool->active, threads);
  pool->thread =
      calloc((size_t)threads, sizeof *pool->thread); /* the caller's is not among them, and a spare one may be */
  pool->share = calloc((size_t)threads, sizeof *pool->share);
  if (!pool->thread || !pool->share) {
    kvs_pool_free(pool);
    return kvs_fail_memory(err, "starting threads");
  }
  int failed = 0;
  while (pool->started < threads - 1 && !failed) failed = start_thread(pool);
  if (failed) {
    kvs_pool_free(pool);
    return kvs_fail(err, KVS_ERR_MEMORY, "cannot start %d threads; use fewer (--threads)", threads);
  }
  *out = pool;
  return KVS_OK;
}

void kvs_pool_free(kvs_pool *pool) {
  if (!pool) return;
  kvs_pool_settle(pool);
  atomic_store(&pool->stop, true);
  wake_all(pool);
  for (int i = 0; i < pool->started; i++) pthread_join(pool->thread[i], NULL);
  pthread_mutex_destroy(&pool->mutex);
  pthread_cond_destroy(&pool->wake);
  pthread_cond_destroy(&pool->wake_resting);
  pthread_cond_destroy(&pool->done);
  free(pool->thread);
  free(pool->share);
  free(pool);
}

int kvs_pool_threads(const kvs_pool *pool) { return pool->threads; }

/* ---- the caller's side ----------------------------------------------------------------------------------------------- */

static bool is_empty(const kvs_pool *pool) { return !(atomic_load(&pool->round) & INSIDE); }
static bool is_settled(const kvs_pool *pool) { return atomic_load(&pool->behind) == NOTHING_BEHIND; }

/* The caller's waiting. If it takes long, another program has the core of the thread that is waited for: asleep, the caller leaves
 * it its own. Returns when it went to sleep; 0: it did not. */
static double await_done(kvs_pool *pool, bool (*is_done)(const kvs_pool *pool)) {
  for (int i = 0; i < SPINS; i++) {
    if (is_done(pool)) return 0;
    relax();
  }
  double slept = kvs_now();
  pthread_mutex_lock(&pool->mutex);
  atomic_store(&pool->caller_sleeps, true);
  while (!is_done(pool)) pthread_cond_wait(&pool->done, &pool->mutex);
  atomic_store(&pool->caller_sleeps, false);
  pthread_mutex_unlock(&pool->mutex);
  return slept;
}

/* Does a thread get no core? `start` and `slept`: when this round began, and when its caller went to sleep over it (0: it did not). */
static bool is_missed(kvs_pool *pool, int threads, double start, double slept) {
  /* It lost its core with work in its hands, and waiting for it took longer than the work; */
  double waited = slept > 0 ? kvs_now() - slept : 0;
  if (waited > MISSED_SECONDS && waited > slept - start) return true;
  /* or it does not come at all, although nothing else is asked of it. */
  bool absent = atomic_load(&pool->round) / CAME % CAME < (uint64_t)threads - 1 && is_settled(pool);
  pool->missed = absent ? pool->missed + 1 : 0;
  if (pool->missed == 1) pool->missed_from = start;
  return pool->missed >= MISSED_ROUNDS && start - pool->missed_from > MISSED_SECONDS;
}

/* One thread fewer takes part for a while. */
static void give_way(kvs_pool *pool, int threads) {
  double now = kvs_now();
  bool again = now - pool->rest_begins < pool->rest + TRY;
  pool->rest = !again ? FIRST_REST : pool->rest < LONGEST_REST ? 2 * pool->rest : pool->rest;
  pool->rest_begins = now;
  pool->rest_ends = now + pool->rest;
  pool->missed = 0;
  atomic_store(&pool->active, threads - 1);
}

/* How many threads this round is for. */
static int active_now(kvs_pool *pool) {
  if (pool->rest_ends > 0 && kvs_now() >= pool->rest_ends) {
    pool->rest_ends = 0;
    atomic_store(&pool->active, pool->threads);
    wake_all(pool);
  }
  return atomic_load(&pool->active);
}

void kvs_pool_run(kvs_pool *pool, kvs_pool_range range, kvs_pool_work work, void *context) {
  if (range.count <= 0) return;
  int threads = active_now(pool);
  if (threads == 1) {
    work(context, 0, 0, range.count);
    return;
  }
  share_out(pool, range, threads);
  pool->work = work;
  pool->context = context;
  uint_fast64_t number = atomic_load(&pool->round) / NUMBER + 1;
  double start = kvs_now();
  atomic_store(&pool->round, number * NUMBER + OPEN);
  wake_for_round(pool);
  work_off(pool, 0);
  atomic_fetch_and(&pool->round, ~OPEN);
  double slept = await_done(pool, is_empty);
  if (is_missed(pool, threads, start, slept)) give_way(pool, threads);
}

void kvs_pool_behind(kvs_pool *pool, void (*job)(void *context), void *context) {
  kvs_pool_settle(pool);
  if (!pool->spare_tried) start_spare(pool);
  if (pool->started == 0) {
    job(context);
    return;
  }
  pool->job = job;
  pool->job_context = context;
  atomic_store(&pool->behind, BEHIND_WAITS);
  wake_all(pool);
}

void kvs_pool_settle(kvs_pool *pool) {
  if (!do_behind(pool)) await_done(pool, is_settled); /* if no worker has begun it, the caller's thread is as good */
}
