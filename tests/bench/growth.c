/* growth.c: how the cost of a decode step grows with the cache's length, with layers and with heads. All points share one model's
 * weights, each with its own layers, heads and cache, and are measured in turn, round by round. One thread, and the fastest
 * round: what a step costs when nothing disturbs it. */
#include "tests/bench/bench.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/share.h"
#include "model/weights.h"
#include "tests/support/memory_model.h"

enum { ROUNDS = 25, LAYERS = 12, HEADS = 12 };

typedef struct point {
  const char *axis;
  int value, layers, heads, cached;
  kvs_model model; /* the shared weights in this point's shape */
  kvs_engine *engine;
  double seconds[ROUNDS];
} point;

static void start(point *p, const kvs_model *weights) {
  kvs_error err;
  int tokens[1024] = {0};
  p->model = *weights;
  p->model.config.n_layer = p->layers;
  p->model.config.n_head = p->heads;
  p->model.config.head_dim = weights->config.n_embd / p->heads;
  bench_must(kvs_engine_create(&p->model, &(kvs_engine_options){1, NULL}, &p->engine, &err), &err);
  bench_must(kvs_engine_prefill(p->engine, tokens, p->cached, KVS_PROMPT, &err), &err);
}

static void finish(point *p) {
  bench_result result = bench_alone("growth", p->seconds, ROUNDS, 1e3, "ms/token");
  for (int r = 0; r < ROUNDS; r++) result.ours = fmin(result.ours, 1e3 * p->seconds[r]);
  snprintf(result.what, sizeof result.what, "%s %d", p->axis, p->value);
  snprintf(result.bound, sizeof result.bound, "%d layers, %d heads, %d rows", p->layers, p->heads, p->cached);
  bench_add(&result);
  kvs_engine_free(p->engine);
}

void bench_growth(void) {
  static const int lengths[] = {1, 128, 256, 384, 512, 640, 768, 896, 990}, layers[] = {1, 2, 4, 6, 8, 10, 12},
                   heads[] = {1, 2, 3, 4, 6, 8, 12};
  static point points[23];
  int count = 0;
  for (int i = 0; i < 9; i++) points[count++] = (point){"cache", lengths[i], LAYERS, HEADS, lengths[i], .engine = NULL};
  for (int i = 0; i < 7; i++) points[count++] = (point){"layers", layers[i], layers[i], HEADS, 512, .engine = NULL};
  for (int i = 0; i < 7; i++) points[count++] = (point){"heads", heads[i], LAYERS, heads[i], 512, .engine = NULL};
  const kvs_config shape = {.n_layer = LAYERS,
                            .n_head = HEADS,
                            .n_embd = 768,
                            .n_ctx = 1024,
                            .n_vocab = 5000,
                            .tied = true,
                            .scale_attn_weights = true};
  kvs_model *weights = memory_model(shape, KVS_F32, 1);
  for (int i = 0; i < count; i++) start(&points[i], weights);
  for (int r = -1; r < ROUNDS; r++)
    for (int i = 0; i < count; i++) {
      kvs_error err;
      double begin = kvs_now();
      bench_must(kvs_engine_decode(points[i].engine, 1, KVS_FORCED, &err), &err);
      if (r >= 0) points[i].seconds[r] = kvs_now() - begin;
    }
  for (int i = 0; i < count; i++) finish(&points[i]);
  memory_model_free(weights);
}
