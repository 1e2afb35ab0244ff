/* bits.c: the equalities that speed must not cost: whatever way a text is decoded, memcmp finds the same logits, K and V. */
#include "tests/bench/bench.h"

#include <stdlib.h>
#include <string.h>

#include "kvstep/engine.h"
#include "model/weights.h"
#include "tests/support/memory_model.h"

enum { TOKENS = 70 };

typedef struct way {
  int threads, prefill; /* tokens in the first batch; the others one by one */
  const char *kernel;
  bool watched;
} way;

/* The last logits, and all of K and V. */
static float *decode(const kvs_model *model, way how, size_t *size) {
  const kvs_config *c = &model->config;
  kvs_error err;
  kvs_engine *engine;
  int tokens[TOKENS];
  const kvs_observer nobody = {0};
  for (int i = 0; i < TOKENS; i++) tokens[i] = i * 37 % c->n_vocab;
  bench_must(kvs_engine_create(model, &(kvs_engine_options){how.threads, how.kernel}, &engine, &err), &err);
  if (how.watched) kvs_engine_observe(engine, &nobody);
  if (how.prefill > 0) bench_must(kvs_engine_prefill(engine, tokens, how.prefill, KVS_PROMPT, &err), &err);
  for (int i = how.prefill; i < TOKENS; i++) bench_must(kvs_engine_decode(engine, tokens[i], KVS_FORCED, &err), &err);
  size_t n = (size_t)c->n_embd, vocabulary = (size_t)c->n_vocab;
  *size = vocabulary + 2 * (size_t)c->n_layer * TOKENS * n;
  float *all = malloc(*size * sizeof *all), *to = all + vocabulary;
  if (!all) abort();
  memcpy(all, kvs_engine_logits(engine), vocabulary * sizeof *all);
  for (int layer = 0; layer < c->n_layer; layer++)
    for (int row = 0; row < TOKENS; row++, to += 2 * n) {
      memcpy(to, kvs_engine_k(engine, layer, row), n * sizeof *all);
      memcpy(to + n, kvs_engine_v(engine, layer, row), n * sizeof *all);
    }
  kvs_engine_free(engine);
  return all;
}

void bench_bits(void) {
  const kvs_config shape = {
      .n_layer = 3, .n_head = 4, .n_embd = 256, .n_ctx = 96, .n_vocab = 1000, .tied = true, .scale_attn_weights = true};
  double compared = 0;
  for (kvs_dtype dtype = KVS_F32; dtype <= KVS_BF16; dtype++) {
    kvs_model *model = memory_model(shape, dtype, 3);
    size_t size;
    float *first = decode(model, (way){1, 0, "reference", false}, &size);
    for (int k = 0; kvs_kernel_name(k); k++)
      for (int threads = 1; threads <= 3; threads++)
        for (int prefill = 0; prefill <= TOKENS; prefill += TOKENS / 2) {
          const way how = {threads, prefill, kvs_kernel_name(k), threads % 2 == 0};
          float *other = decode(model, how, &size);
          if (memcmp(first, other, size * sizeof *first) != 0) {
            bench_say("bench: OTHER BITS: kernel %s, %d threads, %d tokens in a batch", how.kernel, threads, prefill);
            exit(1);
          }
          compared++;
          free(other);
        }
    free(first);
    memory_model_free(model);
  }
  bench_result result = bench_alone("bits", &compared, 1, 1, "equal");
  snprintf(result.what, sizeof result.what, "kernels x threads x batch sizes x F32, F16, BF16");
  snprintf(result.bound, sizeof result.bound, "memcmp: all the same");
  bench_add(&result);
}
