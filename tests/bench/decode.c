/* decode.c: one token at a time. A step reads every weight once and every cached K and V row: as many bytes are read by
 * a plain loop beside each step, on as many threads. */
#include "tests/bench/bench.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/share.h"
#include "model/weights.h"
#include "tests/support/memory_model.h"

enum { ROUNDS = 25 };

static void measure(const kvs_model *model, const char *kind, int threads, int cached, double target) {
  kvs_error err;
  kvs_engine *engine;
  int tokens[1024];
  for (int i = 0; i < cached; i++) tokens[i] = i * 37 % model->config.n_vocab;
  bench_must(kvs_engine_create(model, &(kvs_engine_options){threads, NULL}, &engine, &err), &err);
  bench_must(kvs_engine_prefill(engine, tokens, cached, KVS_PROMPT, &err), &err);
  size_t bytes = bench_step_bytes(model, cached);
  bench_reader *reader = bench_reader_new(bytes, threads);
  double ours[ROUNDS], read[ROUNDS];
  for (int r = -2; r < ROUNDS; r++) {
    double before = bench_read(reader, 0), start = kvs_now();
    bench_must(kvs_engine_decode(engine, tokens[0], KVS_FORCED, &err), &err);
    double seconds = kvs_now() - start;
    if (engine->cache.length[0] > cached + 20) { /* the cache stays about as long */
      kvs_engine_reset(engine);
      bench_must(kvs_engine_prefill(engine, tokens, cached, KVS_PROMPT, &err), &err);
    }
    double after = bench_read(reader, 0);
    if (r >= 0) ours[r] = seconds, read[r] = (before + after) / 2;
  }
  bench_result result = bench_pair("decode", ours, read, ROUNDS, 1e3, "ms/token");
  snprintf(result.what, sizeof result.what, "124M %s, %d thread%s, cache %d", kind, threads, threads > 1 ? "s" : "",
           cached);
  snprintf(result.bound, sizeof result.bound, "read %.1f GB/s", (double)bytes / bench_median(read, ROUNDS) / 1e9);
  result.target = target;
  bench_add(&result);
  bench_reader_free(reader);
  kvs_engine_free(engine);
}

/* The built-in model lies in the CPU's cache, and so do the bytes that are read beside it. Some tokens to a round: one takes no
 * longer than a clock is to be trusted. */
static void measure_builtin(const kvs_model *model, int threads) {
  enum { CACHED = 64, TOKENS = 16 };
  kvs_error err;
  kvs_engine *engine;
  int tokens[CACHED];
  for (int i = 0; i < CACHED; i++) tokens[i] = i * 37 % model->config.n_vocab;
  bench_must(kvs_engine_create(model, &(kvs_engine_options){threads, NULL}, &engine, &err), &err);
  size_t bytes = bench_step_bytes(model, CACHED);
  bench_reader *reader = bench_reader_new(bytes, threads);
  double ours[ROUNDS], read[ROUNDS];
  for (int r = -2; r < ROUNDS; r++) {
    double start, seconds = 0, floor = 0;
    kvs_engine_reset(engine);
    bench_must(kvs_engine_prefill(engine, tokens, CACHED - TOKENS / 2, KVS_PROMPT, &err), &err);
    for (int i = -1; i < TOKENS; i++) { /* the first finds other things in the cache */
      start = kvs_now();
      bench_must(kvs_engine_decode(engine, tokens[i + 1], KVS_FORCED, &err), &err);
      if (i >= 0) seconds += kvs_now() - start;
    }
    for (int i = -1; i < TOKENS; i++) {
      double once = bench_read(reader, 0);
      if (i >= 0) floor += once;
    }
    if (r >= 0) ours[r] = seconds / TOKENS, read[r] = floor / TOKENS;
  }
  bench_result result = bench_pair("decode", ours, read, ROUNDS, 1e6, "us/token");
  snprintf(result.what, sizeof result.what, "austen, %d thread%s, cache %d", threads, threads > 1 ? "s" : "", CACHED);
  snprintf(result.bound, sizeof result.bound, "read %.1f MB, %.1f GB/s", (double)bytes / 1e6,
           (double)bytes / bench_median(read, ROUNDS) / 1e9);
  result.target = 0.40;
  bench_add(&result);
  bench_reader_free(reader);
  kvs_engine_free(engine);
}

void bench_decode(void) {
  static const struct {
    kvs_dtype dtype;
    const char *name;
  } kinds[] = {{KVS_F32, "F32"}, {KVS_F16, "F16"}, {KVS_BF16, "BF16"}};
  int most = kvs_pool_default_threads();
  kvs_error err;
  kvs_model *builtin;
  bench_must(kvs_model_open("austen", &builtin, &err), &err);
  for (int threads = 1; threads <= most; threads = threads == most ? most + 1 : most) measure_builtin(builtin, threads);
  kvs_model_free(builtin);
  for (int k = 0; k < 3; k++) {
    kvs_model *model = bench_model_124m(kinds[k].dtype);
    for (int threads = 1; threads <= most; threads = threads == most ? most + 1 : most) {
      double target = kinds[k].dtype != KVS_F32 ? 0.85 : threads > 1 ? 0.92 : 0.90;
      measure(model, kinds[k].name, threads, 64, target);
      if (kinds[k].dtype == KVS_F32) measure(model, kinds[k].name, threads, 1000, target);
    }
    memory_model_free(model);
  }
}
