/* models.c: the model that is measured, and what its shape costs. */
#include "tests/bench/bench.h"

#include "model/weights.h"
#include "tests/support/memory_model.h"

kvs_model *bench_model_124m(kvs_dtype dtype) {
  const kvs_config shape = {.n_layer = 12,
                            .n_head = 12,
                            .n_embd = 768,
                            .n_ctx = 1024,
                            .n_vocab = 50257,
                            .tied = true,
                            .scale_attn_weights = true};
  return memory_model(shape, dtype, 1);
}

double bench_layer_products(const kvs_model *model) {
  const kvs_config *c = &model->config;
  double n = c->n_embd, inner = c->n_inner;
  return c->n_layer * (n * 3 * n + n * n + 2 * n * inner);
}

size_t bench_step_bytes(const kvs_model *model, int cached) {
  const kvs_config *c = &model->config;
  double weights = bench_layer_products(model) + (double)c->n_vocab * c->n_embd;
  double cache = 2.0 * c->n_layer * cached * c->n_embd;
  return (size_t)(weights * (model->wte.dtype == KVS_F32 ? 4 : 2) + cache * 4);
}
