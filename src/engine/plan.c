/* plan.c: the rule. */
#include "engine/plan.h"

#include <assert.h>
#include <math.h>

/* A correct step: the same in every layer. */
static kvs_step_plan correct(const kvs_situation *s) {
  int P = s->cache_length; /* read BEFORE the append */
  return (kvs_step_plan){
      .position = P,           /* this token is number P: rows 0 .. P-1 are its past */
      .cache_layer = s->layer, /* every layer has a cache of its own */
      .write_row = P,          /* the first free row */
      .write_k = true,         /* both of them */
      .write_v = true,
      .length_after = P + 1, /* appended to, once */
      .rows = P + 1,         /* its past and itself */
      .visible = P + 1,      /* nothing to mask */
      .scale = s->config->scale_attn_weights ? 1.0f / sqrtf((float)s->config->head_dim) : 1.0f,
  };
}

kvs_step_plan kvs_plan(const kvs_situation *s, const kvs_fault *fault) {
  kvs_step_plan plan = correct(s);
  if (fault && fault->bend) fault->bend(&plan, s);
  return plan;
}

/* What the rest of the engine may take for granted of a plan, however a fault bent it. */
static void assert_sane(const kvs_step_plan *plan, const kvs_situation *s) {
  assert(plan->write_row >= 0 && plan->length_after >= 0 && plan->rows >= 1);
  assert(plan->visible >= 1 && plan->visible <= plan->rows);
  assert(plan->cache_layer >= 0 && plan->cache_layer < s->config->n_layer);
  (void)plan;
  (void)s;
}

kvs_status kvs_plan_check(const kvs_step_plan *plan, const kvs_situation *s, const kvs_fault *fault, kvs_error *err) {
  int n_ctx = s->config->n_ctx;
  assert_sane(plan, s);
  if (plan->write_row >= n_ctx || plan->length_after > n_ctx || plan->rows > n_ctx)
    return kvs_fail(err, KVS_ERR_CONTEXT,
                    "the context is full: step %d would be position %d, and this model has positions 0 to %d (n_ctx = "
                    "%d); start a new run with a shorter prompt",
                    s->step, s->cache_length, n_ctx - 1, n_ctx);
  if (plan->position != KVS_NO_POSITION && (plan->position < 0 || plan->position >= n_ctx))
    return kvs_fail(err, KVS_ERR_CONTEXT,
                    "step %d would use wpe[%d] under the fault %s, and the table's last row is wpe[%d] (right is "
                    "wpe[%d]); the run stops here",
                    s->step, plan->position, fault ? fault->name : "none", n_ctx - 1, s->cache_length);
  return KVS_OK;
}
