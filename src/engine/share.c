/* share.c: planning, embedding and reporting, the same in decode and in prefill. */
#include "engine/share.h"

#include "base/clock.h"
#include "engine/ops.h"

#include <string.h>

static kvs_situation situation_at(const kvs_engine *e, const kvs_place *p, int layer) {
  return (kvs_situation){.config = &e->model->config,
                         .step = p->step,
                         .mode = p->mode,
                         .layer = layer,
                         .cache_length = p->cache_length,
                         .batch_end = p->batch_end,
                         .prompt_length = p->prompt_length};
}

static const kvs_fault *fault_at_step(const kvs_engine *e, int step) {
  return step >= e->fault_from_step ? e->fault : NULL;
}

kvs_step_plan kvs_engine_plan(const kvs_engine *e, const kvs_place *place, int layer) {
  kvs_situation situation = situation_at(e, place, layer);
  return kvs_plan(&situation, fault_at_step(e, place->step));
}

kvs_status kvs_engine_check(const kvs_engine *e, const kvs_place *place, kvs_error *err) {
  for (int layer = 0; layer < e->model->config.n_layer; layer++) {
    kvs_situation situation = situation_at(e, place, layer);
    kvs_step_plan plan = kvs_plan(&situation, fault_at_step(e, place->step));
    if (kvs_plan_check(&plan, &situation, fault_at_step(e, place->step), err)) return KVS_ERR_CONTEXT;
  }
  return KVS_OK;
}

void kvs_append(kvs_engine *e, const kvs_step_plan *plan, int token, const float *k, const float *v, kvs_moment *m) {
  int layer = plan->cache_layer, row = plan->write_row;
  float *row_k = e->s.row_k + (size_t)token * (size_t)e->model->config.n_embd;
  float *row_v = e->s.row_v + (size_t)token * (size_t)e->model->config.n_embd;
  if (plan->drop_oldest) kvs_cache_drop_oldest(&e->cache, layer);
  kvs_cache_append(&e->cache, layer, row, plan->length_after, plan->write_k ? k : NULL, plan->write_v ? v : NULL);
  m->row = row;
  kvs_cache_read(&e->cache, e->cache.k, layer, row, row_k);
  kvs_cache_read(&e->cache, e->cache.v, layer, row, row_v);
  m->row_k = row_k, m->row_v = row_v;
}

static const void *tensor_row(const kvs_tensor *t, int row) {
  size_t width = t->dtype == KVS_F32 ? 4 : 2;
  return (const char *)t->data + (size_t)row * (size_t)t->cols * width;
}

void kvs_embed(kvs_engine *e, int token, const kvs_step_plan *plan, float *wte, float *wpe, float *x) {
  const kvs_model *model = e->model;
  int n_embd = model->config.n_embd;
  e->kernels->widen(wte, tensor_row(&model->wte, token), model->wte.dtype, n_embd);
  if (plan->position == KVS_NO_POSITION) {
    memcpy(x, wte, (size_t)n_embd * sizeof(float));
    return;
  }
  e->kernels->widen(wpe, tensor_row(&model->wpe, plan->position), model->wpe.dtype, n_embd);
  kvs_op_add(x, wte, wpe, (size_t)n_embd);
}

float kvs_layer_scale(const kvs_engine *e, const kvs_step_plan *plan, int layer) {
  return e->model->config.scale_attn_by_inverse_layer_idx ? plan->scale / (float)(layer + 1) : plan->scale;
}

kvs_status kvs_report(kvs_engine *e, kvs_moment *moment, kvs_phase phase, int layer, int cache_length, kvs_error *err) {
  if (atomic_load_explicit(&e->cancelled, memory_order_relaxed))
    return kvs_fail(err, KVS_ERR_CANCELLED, "stopped in step %d", moment->step->step);
  if (!e->observer.moment) return KVS_OK;
  moment->phase = phase;
  moment->layer = layer;
  moment->cache_length = cache_length;
  double start = kvs_now();
  kvs_status status = e->observer.moment(e->observer.context, moment, err);
  e->observer_seconds += kvs_now() - start;
  return status;
}

void kvs_count_fed(kvs_engine *e, const int *tokens, int count, kvs_source source) {
  e->steps += count;
  for (int i = 0; i < count && source == KVS_PROMPT && e->prompt_length < e->model->config.n_ctx; i++)
    e->prompt[e->prompt_length++] = tokens[i];
}
