/* growth.c: how the cost of a decode step grows with the cache's length, with layers and with heads. Shapes are small enough to be
 * quick and large enough that weights do not fit the first caches. */
#include "tests/bench/bench.h"

#include <math.h>
#include <stdlib.h>

#include "engine/share.h"
#include "model/weights.h"
#include "tests/support/memory_model.h"

enum { ROUNDS = 25 };

/* One thread, and the fastest round: what a step costs when nothing disturbs it. */
static void measure(const char *axis, int value, int layers, int heads, int n_embd, int cached) {
  kvs_error err;
  kvs_engine *engine;
  const kvs_config shape = {.n_layer = layers,
                            .n_head = heads,
                            .n_embd = n_embd,
                            .n_ctx = 1024,
                            .n_vocab = 5000,
                            .tied = true,
                            .scale_attn_weights = true};
  kvs_model *model = memory_model(shape, KVS_F32, 1);
  int tokens[1024] = {0};
  double seconds[ROUNDS];
  bench_must(kvs_engine_create(model, &(kvs_engine_options){1, NULL}, &engine, &err), &err);
  bench_must(kvs_engine_prefill(engine, tokens, cached, KVS_PROMPT, &err), &err);
  for (int r = -3; r < ROUNDS; r++) {
    double start = kvs_now();
    bench_must(kvs_engine_decode(engine, 1, KVS_FORCED, &err), &err);
    if (r >= 0) seconds[r] = kvs_now() - start;
  }
  bench_result result = bench_alone("growth", seconds, ROUNDS, 1e3, "ms/token");
  for (int r = 0; r < ROUNDS; r++) result.ours = fmin(result.ours, 1e3 * seconds[r]);
  result.low = result.ours;
  snprintf(result.what, sizeof result.what, "%s %d", axis, value);
  snprintf(result.bound, sizeof result.bound, "%d layers, %d heads, %d wide", layers, heads, n_embd);
  bench_add(&result);
  kvs_engine_free(engine);
  memory_model_free(model);
}

void bench_growth(void) {
  static const int lengths[] = {1, 128, 256, 384, 512, 640, 768, 896, 1000}, layers[] = {1, 2, 4, 6, 8, 10, 12},
                   heads[] = {1, 2, 3, 4, 6, 8, 12};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) measure("cache", lengths[i], 12, 12, 768, lengths[i]);
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) measure("layers", layers[i], layers[i], 12, 768, 512);
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) measure("heads", heads[i], 12, heads[i], 768, 512);
}
