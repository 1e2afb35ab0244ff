/* share.c: planning, embedding and reporting, the same in decode and in prefill. */
#include "engine/share.h"

#include "engine/ops.h"

#include <string.h>
#include <time.h>

double kvs_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

kvs_status kvs_engine_plan(kvs_engine *e, int step, kvs_mode mode, int cache_length, kvs_step_plan *plan,
                           kvs_error *err) {
  kvs_situation situation = {&e->model->config, step, mode, cache_length};
  const kvs_fault *fault = step >= e->fault_from_step ? e->fault : NULL;
  *plan = kvs_plan(&situation, fault);
  return kvs_plan_check(plan, &situation, fault, err);
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
