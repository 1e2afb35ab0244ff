/* limits.c: what this machine can do at best: read memory, multiply and add, and multiply matrices with OpenBLAS. */
#include "tests/bench/bench.h"

#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/pool.h"
#include "engine/share.h"
#include "tests/support/memory_model.h"

#if defined(__x86_64__)
#define FASTEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FASTEST
#endif

typedef float floats16 __attribute__((vector_size(64), aligned(4)));
typedef uint64_t words8 __attribute__((vector_size(64)));

/* ---- reading ------------------------------------------------------------------------------------------------------- */

#define STREAMS_MOST 8

struct bench_reader {
  kvs_pool *pool;
  const char *data;
  size_t bytes, now; /* all, and those to be read this time */
  int streams;       /* how many places are read from in turn: whatever is fastest here */
  volatile uint64_t sink[256];
};

/* `streams` places that lie `apart` bytes from each other, each to be read for that long. */
FASTEST static uint64_t read_streams(const char *data, size_t apart, int streams) {
  words8 sum[STREAMS_MOST] = {0};
  for (size_t i = 0; i + 128 <= apart; i += 128)
    for (int s = 0; s < streams; s++) {
      const words8 *line = (const words8 *)(data + (size_t)s * apart + i);
      sum[s] ^= line[0] ^ line[1];
    }
  uint64_t all = 0;
  for (int s = 0; s < streams; s++)
    for (int l = 0; l < 8; l++) all ^= sum[s][l];
  return all;
}

/* Shares begin … end of as many as there are threads. */
static void read_share(void *context, int thread, int begin, int end) {
  bench_reader *reader = context;
  size_t share = reader->now / (size_t)kvs_pool_threads(reader->pool),
         apart = share / (size_t)reader->streams / 128 * 128;
  for (int s = begin; s < end; s++)
    reader->sink[thread] = read_streams(reader->data + (size_t)s * (share / 128 * 128), apart, reader->streams);
}

double bench_read(bench_reader *reader, size_t bytes) {
  reader->now = bytes ? bytes : reader->bytes;
  double start = kvs_now();
  kvs_pool_run(reader->pool, (kvs_pool_range){kvs_pool_threads(reader->pool), 1, 0}, read_share, reader);
  return kvs_now() - start;
}

bench_reader *bench_reader_new(size_t bytes, int threads) {
  kvs_error err;
  bench_reader *reader = calloc(1, sizeof *reader);
  char *data = memory_large(bytes);
  if (!reader) abort();
  memset(data, 1, bytes);
  reader->data = data, reader->bytes = bytes;
  bench_must(kvs_pool_create(threads, &reader->pool, &err), &err);
  double best = INFINITY;
  int fastest = 1;
  for (int streams = 1; streams <= STREAMS_MOST; streams *= 2) {
    double seconds[5];
    reader->streams = streams;
    for (int r = 0; r < 5; r++) seconds[r] = bench_read(reader, 0);
    if (bench_median(seconds, 5) < best) best = bench_median(seconds, 5), fastest = streams;
  }
  reader->streams = fastest;
  return reader;
}

void bench_reader_free(bench_reader *reader) {
  kvs_pool_free(reader->pool);
  free((void *)reader->data);
  free(reader);
}

/* ---- multiplying and adding ---------------------------------------------------------------------------------------- */

typedef struct fma_job {
  long turns;
  volatile float sink[256];
} fma_job;

/* Sixteen chains of sixteen lanes: nothing waits for anything but the units themselves. */
FASTEST static float fma_chains(long turns) {
  floats16 sum[16], a, b;
  for (int l = 0; l < 16; l++) a[l] = 0.999f + 1e-5f * (float)l, b[l] = 1e-3f;
  for (int s = 0; s < 16; s++) sum[s] = b + (float)s;
  for (long t = 0; t < turns; t++)
#pragma GCC unroll 16
    for (int s = 0; s < 16; s++) sum[s] = sum[s] * a + b;
  float all = 0;
  for (int s = 0; s < 16; s++)
    for (int l = 0; l < 16; l++) all += sum[s][l];
  return all;
}

static void fma_share(void *context, int thread, int begin, int end) {
  fma_job *job = context;
  for (; begin < end; begin++) job->sink[thread] = fma_chains(job->turns);
}

double bench_fma_peak(int threads) {
  static kvs_pool *pool;
  static int pool_threads;
  kvs_error err;
  if (pool_threads != threads) {
    kvs_pool_free(pool);
    bench_must(kvs_pool_create(threads, &pool, &err), &err);
    pool_threads = threads;
  }
  /* As long as what it is compared with: where other programs run too, a short burst would be spared. */
  double start = kvs_now(), seconds = 0;
  long turns = 0;
  for (fma_job job = {.turns = 200000}; seconds < 0.03; seconds = kvs_now() - start, turns += job.turns)
    kvs_pool_run(pool, (kvs_pool_range){threads, 1, 0}, fma_share, &job);
  return 256.0 * (double)turns * threads / seconds;
}

/* ---- OpenBLAS ------------------------------------------------------------------------------------------------------ */

static void (*cblas_sgemm)(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *,
                           int);

static void openblas(int m, int n, int k, const float *a, const float *b, float *c) {
  cblas_sgemm(101, 111, 111, m, n, k, 1.0f, a, k, b, n, 0.0f, c, n); /* row-major, nothing transposed */
}

bench_sgemm bench_openblas(int threads) {
  static void *library;
  if (!library) library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (!library) return NULL;
  void (*set_threads)(int) = NULL;
  *(void **)&cblas_sgemm = dlsym(library, "cblas_sgemm");
  *(void **)&set_threads = dlsym(library, "openblas_set_num_threads");
  if (!cblas_sgemm || !set_threads) return NULL;
  set_threads(threads);
  return openblas;
}
