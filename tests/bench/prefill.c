/* prefill.c: a prompt in one batch: matrix products, measured beside OpenBLAS's on the same shapes and beside the most
 * multiply-adds the CPU can do. */
#include "tests/bench/bench.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/ops.h"
#include "engine/share.h"
#include "model/weights.h"
#include "tests/support/memory_model.h"

enum { ROUNDS = 9, TOKENS = 512 };

typedef struct products {
  kvs_engine *engine;
  const kvs_layer *layer;
  float *x, *y;
  bench_sgemm sgemm;
} products;

/* The four products of one layer for all tokens, in seconds: ours, then theirs. */
static double ours_once(const products *p) {
  const kvs_linear *all[] = {&p->layer->c_attn, &p->layer->c_proj, &p->layer->mlp_c_fc, &p->layer->mlp_c_proj};
  double start = kvs_now();
  for (int i = 0; i < 4; i++) kvs_op_linear(p->engine, p->y, p->x, TOKENS, all[i]);
  return kvs_now() - start;
}

static double theirs_once(const products *p) {
  const kvs_linear *all[] = {&p->layer->c_attn, &p->layer->c_proj, &p->layer->mlp_c_fc, &p->layer->mlp_c_proj};
  double start = kvs_now();
  for (int i = 0; i < 4; i++) p->sgemm(TOKENS, all[i]->w.cols, all[i]->w.rows, p->x, all[i]->w.data, p->y);
  return kvs_now() - start;
}

static void measure_products(const kvs_model *model, kvs_engine *engine, int threads) {
  const kvs_config *c = &model->config;
  size_t room = (size_t)TOKENS * (size_t)c->n_inner;
  products p = {engine, NULL, malloc(room * sizeof(float)), malloc(room * sizeof(float)), bench_openblas(threads)};
  if (!p.x || !p.y) abort();
  for (size_t i = 0; i < room; i++) p.x[i] = (float)(i % 37) - 18.0f;
  double work = bench_layer_products(model) / c->n_layer * TOKENS;
  enum { TURNS = 5 * ROUNDS };
  double ours[TURNS], theirs[TURNS], peak[TURNS];
  for (int r = -2; r < TURNS; r++) {
    p.layer = &model->layer[(r + 12) % c->n_layer];
    double before = bench_fma_peak(threads), seconds = ours_once(&p), after = bench_fma_peak(threads);
    double other = p.sgemm ? theirs_once(&p) : 0;
    if (p.sgemm) usleep(50000); /* OpenBLAS's threads go on spinning for a while, on our cores */
    if (r >= 0) ours[r] = seconds, theirs[r] = other, peak[r] = work / ((before + after) / 2);
  }
  bench_result result = bench_pair("prefill", ours, peak, TURNS, 1e3, "ms/layer");
  snprintf(result.what, sizeof result.what, "124M F32 products, %d thread%s, %d tokens", threads,
           threads > 1 ? "s" : "", TOKENS);
  snprintf(result.bound, sizeof result.bound, "FMA peak %.0f GFLOP/s", 2 * work / bench_median(peak, TURNS) / 1e9);
  result.target = 0.70;
  bench_add(&result);
  if (p.sgemm) {
    bench_result beside = bench_pair("prefill", ours, theirs, TURNS, 1e3, "ms/layer");
    snprintf(beside.what, sizeof beside.what, "%s", result.what);
    snprintf(beside.bound, sizeof beside.bound, "OpenBLAS %.0f GFLOP/s", 2 * work / bench_median(theirs, TURNS) / 1e9);
    beside.target = 0.88;
    bench_add(&beside);
  }
  free(p.x), free(p.y);
}

static void measure_whole(const kvs_model *model, kvs_engine *engine, int threads) {
  kvs_error err;
  int tokens[TOKENS];
  for (int i = 0; i < TOKENS; i++) tokens[i] = i * 37 % model->config.n_vocab;
  double ours[ROUNDS], peak[ROUNDS], work = bench_layer_products(model) * TOKENS;
  for (int r = -1; r < ROUNDS; r++) {
    kvs_engine_reset(engine);
    double before = bench_fma_peak(threads), start = kvs_now();
    bench_must(kvs_engine_prefill(engine, tokens, TOKENS, KVS_PROMPT, &err), &err);
    double seconds = kvs_now() - start;
    if (r >= 0) ours[r] = seconds, peak[r] = work / ((before + bench_fma_peak(threads)) / 2);
  }
  bench_result result = bench_pair("prefill", ours, peak, ROUNDS, 1, "s");
  snprintf(result.what, sizeof result.what, "124M F32 whole, %d thread%s, %d tokens", threads, threads > 1 ? "s" : "",
           TOKENS);
  snprintf(result.bound, sizeof result.bound, "FMA peak %.0f GFLOP/s", 2 * work / bench_median(peak, ROUNDS) / 1e9);
  bench_add(&result);
}

void bench_prefill(void) {
  kvs_model *model = bench_model_124m(KVS_F32);
  int most = kvs_pool_default_threads();
  for (int threads = 1; threads <= most; threads = threads == most ? most + 1 : most) {
    kvs_error err;
    kvs_engine *engine;
    bench_must(kvs_engine_create(model, &(kvs_engine_options){threads, NULL}, &engine, &err), &err);
    measure_products(model, engine, threads);
    measure_whole(model, engine, threads);
    kvs_engine_free(engine);
  }
  memory_model_free(model);
}
