/* threads.c: what the threads cost beside their work: a round, the wait until another thread has come, the sleep when there is nothing
 * to do; and what becomes of two programs that want the same cores. */
#include "tests/bench/bench.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/pool.h"
#include "engine/share.h"
#include "tests/support/memory_model.h"

enum { ROUNDS = 25, TIMES = 1000 };

/* ---- rounds -------------------------------------------------------------------------------------------------------- */

static void nothing(void *context, int thread, int begin, int end) {
  (void)context, (void)thread, (void)begin, (void)end;
}

/* Each part waits until all parts have begun, so each thread does one. */
static void meet(void *context, int thread, int begin, int end) {
  atomic_int *missing = context;
  (void)thread;
  atomic_fetch_sub(missing, end - begin);
  while (atomic_load(missing) > 0) continue;
}

/* Seconds for one round. */
static double round_of(kvs_pool *pool, kvs_pool_work work) {
  int threads = kvs_pool_threads(pool);
  double start = kvs_now();
  for (int i = 0; i < TIMES; i++) {
    atomic_int missing = threads;
    kvs_pool_run(pool, (kvs_pool_range){threads, 1, 0}, work, &missing);
  }
  return (kvs_now() - start) / TIMES;
}

static void measure_rounds(kvs_pool *pool, const char *what, kvs_pool_work work) {
  double seconds[ROUNDS];
  round_of(pool, work);
  for (int r = 0; r < ROUNDS; r++) seconds[r] = round_of(pool, work);
  bench_result result = bench_alone("threads", seconds, ROUNDS, 1e6, "us");
  snprintf(result.what, sizeof result.what, "%s, %d threads", what, kvs_pool_threads(pool));
  bench_add(&result);
}

/* Seconds of CPU that this process has had. */
static double cpu(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void measure_sleep(kvs_pool *pool) {
  round_of(pool, nothing);
  usleep(20000); /* it may spin for a moment; and what a running thread has used is told only now and then */
  double before = cpu();
  sleep(1);
  double used = cpu() - before;
  bench_result result = bench_alone("threads", &used, 1, 1e3, "ms of CPU");
  snprintf(result.what, sizeof result.what, "one second with nothing to do, %d threads", kvs_pool_threads(pool));
  snprintf(result.bound, sizeof result.bound, "at most 1 ms");
  bench_add(&result);
}

/* ---- two programs at once -------------------------------------------------------------------------------------------- */

/* Decodes from `begin` on for `seconds`; tokens per second. */
static double tokens_per_second(const kvs_model *model, double begin, double seconds) {
  kvs_error err;
  kvs_engine *engine;
  bench_must(kvs_engine_create(model, NULL, &engine, &err), &err);
  for (int i = 0; i < 4; i++) bench_must(kvs_engine_decode(engine, i, KVS_FORCED, &err), &err);
  while (kvs_now() < begin) usleep(100);
  double start = kvs_now(), now = start;
  int tokens = 0;
  for (; now < start + seconds; tokens++, now = kvs_now()) {
    if (engine->cache.length[0] == 100) kvs_engine_reset(engine);
    bench_must(kvs_engine_decode(engine, tokens % model->config.n_vocab, KVS_FORCED, &err), &err);
  }
  kvs_engine_free(engine);
  return tokens / (now - start);
}

/* The fewest tokens per second of so many processes, each with the default number of threads. */
static double slowest_of(const kvs_model *model, int processes) {
  int ends[2];
  if (pipe(ends) != 0) abort();
  double begin = kvs_now() + 0.4, slowest = INFINITY;
  for (int p = 0; p < processes; p++) {
    pid_t child = fork();
    if (child < 0) abort();
    if (child > 0) continue;
    double rate = tokens_per_second(model, begin, 1.0);
    _exit(write(ends[1], &rate, sizeof rate) == sizeof rate ? 0 : 1);
  }
  for (int p = 0; p < processes; p++) {
    double rate;
    int status;
    if (wait(&status) < 0 || status != 0 || read(ends[0], &rate, sizeof rate) != sizeof rate) abort();
    slowest = fmin(slowest, rate);
  }
  close(ends[0]), close(ends[1]);
  return slowest;
}

static void measure_two(const kvs_model *model, const char *name) {
  enum { TURNS = 5 };
  double alone[TURNS], both[TURNS];
  for (int r = 0; r < TURNS; r++) alone[r] = 1 / slowest_of(model, 1), both[r] = 1 / slowest_of(model, 2);
  bench_result result = bench_pair("threads", both, alone, TURNS, 1e3, "ms/token");
  snprintf(result.what, sizeof result.what, "%s, the slower of two programs at once", name);
  snprintf(result.bound, sizeof result.bound, "one alone %.3g ms/token", 1e3 * bench_median(alone, TURNS));
  result.target = 0.45;
  bench_add(&result);
}

void bench_threads(void) {
  kvs_error err;
  kvs_pool *pool;
  int threads = kvs_pool_default_threads();
  if (threads > 1) {
    bench_must(kvs_pool_create(threads, &pool, &err), &err);
    measure_rounds(pool, "a round of nothing", nothing);
    measure_rounds(pool, "a round in which all threads meet", meet);
    measure_sleep(pool);
    kvs_pool_free(pool);
  }
  kvs_model *small;
  bench_must(kvs_model_open("austen", &small, &err), &err);
  measure_two(small, "austen");
  kvs_model_free(small);
  kvs_model *large = bench_model_124m(KVS_F32);
  measure_two(large, "124M F32");
  memory_model_free(large);
}
