/* pool.c: threads that wake in microseconds while there is work and sleep when there is none.
 *
 * A worker spins for a moment after each piece of work, since in a decode step the next one comes at once, and then
 * waits on a condition variable, so that an idle program takes no CPU.
 */
#include "engine/pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SPINS 2000 /* pauses before a worker goes to sleep or the caller yields: a few tens of microseconds */

struct kvs_pool {
  int threads;
  int started;
  pthread_t *thread;
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  int sleeping;      /* under mutex */
  atomic_uint round; /* counts pieces of work; a change is the signal to start */
  atomic_int running;
  atomic_bool stop;
  atomic_int next_index;
  kvs_pool_work work;
  void *context;
};

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/* Waits until the round is no longer `seen`. */
static void await_round(kvs_pool *pool, unsigned seen) {
  for (int i = 0; i < SPINS; i++) {
    if (atomic_load_explicit(&pool->round, memory_order_acquire) != seen) return;
    relax();
  }
  pthread_mutex_lock(&pool->mutex);
  pool->sleeping++;
  while (atomic_load(&pool->round) == seen) pthread_cond_wait(&pool->wake, &pool->mutex);
  pool->sleeping--;
  pthread_mutex_unlock(&pool->mutex);
}

static void *worker(void *argument) {
  kvs_pool *pool = argument;
  int index = atomic_fetch_add(&pool->next_index, 1);
  unsigned seen = 0;
  for (;;) {
    await_round(pool, seen);
    seen++;
    if (atomic_load(&pool->stop)) return NULL;
    pool->work(pool->context, index, pool->threads);
    atomic_fetch_sub_explicit(&pool->running, 1, memory_order_release);
  }
}

/* The round changes under the mutex, so a worker that is about to sleep either sees it or is woken. */
static void start_round(kvs_pool *pool) {
  pthread_mutex_lock(&pool->mutex);
  atomic_fetch_add(&pool->round, 1);
  if (pool->sleeping) pthread_cond_broadcast(&pool->wake);
  pthread_mutex_unlock(&pool->mutex);
}

kvs_status kvs_pool_create(int threads, kvs_pool **out, kvs_error *err) {
  *out = NULL;
  kvs_pool *pool = calloc(1, sizeof *pool);
  if (!pool) return kvs_fail_memory(err, "starting threads");
  pool->threads = threads;
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->wake, NULL);
  atomic_store(&pool->next_index, 1);
  pool->thread = calloc((size_t)threads, sizeof *pool->thread);
  if (!pool->thread) {
    kvs_pool_free(pool);
    return kvs_fail_memory(err, "starting threads");
  }
  /* Signals are the caller's business: the workers block them all. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = 0;
  for (; pool->started < threads - 1 && !failed; pool->started += !failed)
    failed = pthread_create(&pool->thread[pool->started], NULL, worker, pool);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (failed) {
    kvs_pool_free(pool);
    return kvs_fail(err, KVS_ERR_MEMORY, "cannot start %d threads; use fewer (--threads)", threads);
  }
  *out = pool;
  return KVS_OK;
}

void kvs_pool_free(kvs_pool *pool) {
  if (!pool) return;
  atomic_store(&pool->stop, true);
  start_round(pool);
  for (int i = 0; i < pool->started; i++) pthread_join(pool->thread[i], NULL);
  pthread_mutex_destroy(&pool->mutex);
  pthread_cond_destroy(&pool->wake);
  free(pool->thread);
  free(pool);
}

int kvs_pool_threads(const kvs_pool *pool) { return pool->threads; }

void kvs_pool_run(kvs_pool *pool, kvs_pool_work work, void *context) {
  if (pool->threads == 1) {
    work(context, 0, 1);
    return;
  }
  pool->work = work;
  pool->context = context;
  atomic_store(&pool->running, pool->threads - 1);
  start_round(pool);
  work(context, 0, pool->threads);
  for (int i = 0; atomic_load_explicit(&pool->running, memory_order_acquire) > 0; i++) {
    if (i < SPINS)
      relax();
    else
      sched_yield(); /* another process has the worker's core */
  }
}

void kvs_pool_share(int n, int unit, int thread, int threads, int *begin, int *end) {
  long units = ((long)n + unit - 1) / unit;
  long from = units * thread / threads * unit, to = units * (thread + 1) / threads * unit;
  *begin = (int)(from < n ? from : n);
  *end = (int)(to < n ? to : n);
}

#ifdef __linux__
/* Reads whole numbers, at most two, from a file; returns how many there were. */
static int read_numbers(const char *path, long *a, long *b) {
  FILE *file = fopen(path, "r");
  if (!file) return 0;
  int found = fscanf(file, "%ld %ld", a, b);
  fclose(file);
  return found < 0 ? 0 : found;
}

static int fewer(int cores, long quota, long period) {
  if (quota <= 0 || period <= 0) return cores;
  long allowed = (quota + period - 1) / period;
  return cores == 0 || allowed < cores ? (int)allowed : cores;
}

/* cgroup v2: the limits of the group that /proc/self/cgroup names, and of all above it. */
static int cgroup2_cores(int cores) {
  char group[512] = "", path[600];
  FILE *file = fopen("/proc/self/cgroup", "r");
  for (char line[512]; file && fgets(line, sizeof line, file);)
    if (sscanf(line, "0::%511[^\n]", group) == 1) break;
  if (file) fclose(file);
  for (;;) {
    long quota = 0, period = 0;
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
    if (read_numbers(path, &quota, &period) == 2) cores = fewer(cores, quota, period);
    char *slash = strrchr(group, '/');
    if (!slash) return cores;
    *slash = '\0';
  }
}

/* CPU time this process may use, in cores rounded up; 0 when there is no limit. */
static int cgroup_cores(void) {
  long quota = 0, period = 0, none = 0;
  int cores = cgroup2_cores(0);
  if (read_numbers("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", &quota, &none) >= 1 && /* cgroup v1 */
      read_numbers("/sys/fs/cgroup/cpu/cpu.cfs_period_us", &period, &none) >= 1)
    cores = fewer(cores, quota, period);
  return cores;
}

/* Whether `cpu` is the first of its core's hyper-threads among those allowed. */
static bool first_of_core(int cpu, const cpu_set_t *allowed) {
  char path[96];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
  FILE *file = fopen(path, "r");
  if (!file) return true;
  int first = cpu, sibling;
  for (char separator; fscanf(file, "%d", &sibling) == 1;) {
    if (sibling >= 0 && sibling < first && sibling < CPU_SETSIZE && CPU_ISSET(sibling, allowed)) first = sibling;
    if (fscanf(file, "%c", &separator) != 1) break;
    if (separator == '-') { /* "0-1": the range's lower end was just read */
      if (fscanf(file, "%d%c", &sibling, &separator) < 1) break;
    }
  }
  fclose(file);
  return first == cpu;
}

int kvs_pool_default_threads(void) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  int cores = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &allowed) && first_of_core(cpu, &allowed)) cores++;
  int limit = cgroup_cores();
  if (limit && limit < cores) cores = limit;
  return cores < 1 ? 1 : cores;
}
#else
int kvs_pool_default_threads(void) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return cores < 1 ? 1 : (int)cores;
}
#endif
