/* bench.c: how near decoding comes to what the memory delivers. Machines are noisy, so everything is measured in turn in
 * one run and the figures to quote are the ratios' medians.
 *
 * The model has GPT-2 small's shape (12 layers × 12 heads × 64, 124 M parameters) and random weights made here. One decode
 * step reads every weight once: 494.6 MB in float32. Beside each step the same number of bytes is read by a plain loop on as
 * many threads; their ratio says how much of the memory's speed the step uses.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/share.h"
#include "tests/support/memory_model.h"

#define ROUNDS 9

typedef struct read_job {
  const uint64_t *data;
  size_t words;
  volatile uint64_t sink[64];
} read_job;

/* Sums its share in eight lanes: enough to keep the loads coming. */
static void read_share(void *context, int thread, int threads) {
  read_job *job = context;
  size_t begin = job->words / (size_t)threads * (size_t)thread, end = begin + job->words / (size_t)threads;
  uint64_t sum[8] = {0};
  for (size_t i = begin; i + 8 <= end; i += 8)
    for (int l = 0; l < 8; l++) sum[l] += job->data[i + (size_t)l];
  job->sink[thread] = sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double median(double *values, int n) {
  qsort(values, (size_t)n, sizeof *values, by_value);
  return values[n / 2];
}

static void must(kvs_status status, const kvs_error *err) {
  if (!status) return;
  fprintf(stderr, "bench: %s\n", err->message);
  exit(1);
}

static size_t bytes_per_step(const kvs_config *c) {
  size_t n = (size_t)c->n_embd, inner = (size_t)c->n_inner;
  return 4 * ((size_t)c->n_layer * (n * 3 * n + n * n + 2 * n * inner) + (size_t)c->n_vocab * n);
}

/* Decode at about `length` cached rows, a read of as many bytes before each step. */
static void bench_decode(const kvs_model *model, int threads, int length) {
  kvs_error err;
  kvs_engine *engine;
  must(kvs_engine_create(model, &(kvs_engine_options){threads, NULL}, &engine, &err), &err);
  int *tokens = calloc((size_t)length, sizeof *tokens);
  size_t bytes = bytes_per_step(&model->config);
  uint64_t *other = malloc(bytes); /* as much memory as the weights take, but not them */
  if (!tokens || !other) exit(1);
  memset(other, 1, bytes);
  for (int i = 0; i < length; i++) tokens[i] = i * 37 % model->config.n_vocab;
  must(kvs_engine_prefill(engine, tokens, length, KVS_PROMPT, &err), &err);
  read_job job = {other, bytes / 8, {0}};
  double step[ROUNDS], read[ROUNDS], ratio[ROUNDS];
  for (int r = -1; r < ROUNDS; r++) {
    double start = kvs_now();
    kvs_pool_run(engine->pool, read_share, &job);
    double middle = kvs_now();
    must(kvs_engine_decode(engine, tokens[0], KVS_FORCED, &err), &err);
    double end = kvs_now();
    if (r < 0) continue; /* the first touches pages */
    read[r] = middle - start, step[r] = end - middle, ratio[r] = read[r] / step[r];
  }
  double spread = median(ratio, ROUNDS); /* sorts */
  printf("decode   %d thread%s cache %4d  %6.2f ms/token %7.1f GB/s read %7.1f GB/s  ratio %.2f (%.2f to %.2f)\n",
         threads, threads == 1 ? ", " : "s,", length, 1e3 * median(step, ROUNDS),
         (double)bytes / median(step, ROUNDS) / 1e9, (double)bytes / median(read, ROUNDS) / 1e9, spread, ratio[0],
         ratio[ROUNDS - 1]);
  free(tokens), free(other);
  kvs_engine_free(engine);
}

static void bench_prefill(const kvs_model *model, int threads, int length) {
  kvs_error err;
  kvs_engine *engine;
  must(kvs_engine_create(model, &(kvs_engine_options){threads, NULL}, &engine, &err), &err);
  int *tokens = calloc((size_t)length, sizeof *tokens);
  if (!tokens) exit(1);
  double seconds[3];
  for (int r = 0; r < 3; r++) {
    kvs_engine_reset(engine);
    double start = kvs_now();
    must(kvs_engine_prefill(engine, tokens, length, KVS_PROMPT, &err), &err);
    seconds[r] = kvs_now() - start;
  }
  const kvs_config *c = &model->config;
  double multiply_adds = (double)(bytes_per_step(c) / 4 - (size_t)c->n_vocab * (size_t)c->n_embd) * length;
  double s = median(seconds, 3);
  printf("prefill  %d thread%s %4d tokens  %6.3f s  %7.0f tokens/s  %6.1f GFLOP/s in the matrix products\n", threads,
         threads == 1 ? ", " : "s,", length, s, length / s, 2 * multiply_adds / s / 1e9);
  free(tokens);
  kvs_engine_free(engine);
}

int main(void) {
  const kvs_config shape = {.n_layer = 12,
                            .n_head = 12,
                            .n_embd = 768,
                            .n_ctx = 1024,
                            .n_vocab = 50257,
                            .tied = true,
                            .scale_attn_weights = true};
  kvs_model *model = memory_model(shape, KVS_F32, 1);
  int most = kvs_pool_default_threads();
  printf("124M shape, float32, kernel %s, medians of %d rounds\n", kvs_kernel_name(0), ROUNDS);
  for (int threads = 1; threads <= most; threads = threads == most ? most + 1 : most) {
    bench_decode(model, threads, 64);
    bench_decode(model, threads, 1000);
    bench_prefill(model, threads, 512);
  }
  memory_model_free(model);
  return 0;
}
