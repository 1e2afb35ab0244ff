/* plan.h: what one step is going to do, decided before it does anything. The correct plan states the rule; a fault is a
 * function that bends it, so the step itself never asks whether a fault is on. */
#ifndef KVS_ENGINE_PLAN_H
#define KVS_ENGINE_PLAN_H

#include "kvstep/engine.h"

#define KVS_NO_POSITION (-1)

typedef struct kvs_step_plan {
  int position;     /* the row of wpe that is added to wte[token]; KVS_NO_POSITION: none */
  int write_row;    /* the cache row that this token's k and v go to */
  int length_after; /* rows that the cache holds afterwards */
  int rows;         /* rows attended: 0 .. rows-1 */
  float scale;      /* scores = scale · q·K[row] */
} kvs_step_plan;

/* What a fault may look at when it bends a plan. */
typedef struct kvs_situation {
  const kvs_config *config;
  int step;
  kvs_mode mode;
  int cache_length; /* rows in the cache before this step appends: P */
} kvs_situation;

/* The plan of a correct step. */
kvs_step_plan kvs_plan_correct(const kvs_situation *situation);

/* The correct plan, bent by `fault` if it is not NULL. */
kvs_step_plan kvs_plan(const kvs_situation *situation, const kvs_fault *fault);

/* KVS_ERR_CONTEXT, in words, when the plan needs a cache row or a row of wpe that does not exist. */
kvs_status kvs_plan_check(const kvs_step_plan *plan, const kvs_situation *situation, const kvs_fault *fault,
                          kvs_error *err);

#endif
