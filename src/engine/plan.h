/* plan.h: what one step is going to do in one layer, decided before it does anything. The correct plan states the rule; a fault is
 * a function that bends it, so the step itself never asks whether a fault is on. */
#ifndef KVS_ENGINE_PLAN_H
#define KVS_ENGINE_PLAN_H

#include "kvstep/engine.h"

#define KVS_NO_POSITION (-1)

typedef struct kvs_step_plan {
  int position;          /* the row of wpe that is added to wte[token]; KVS_NO_POSITION: none. Layer 0's plan counts */
  int cache_layer;       /* whose K and V are written and read: this layer's own */
  bool drop_oldest;      /* before the append row 0 is thrown away and all others move down by one */
  int write_row;         /* the cache row that this token's k and v go to */
  bool write_k, write_v; /* whether they do: the row stays as it was where not */
  int length_after;      /* rows that the cache holds afterwards */
  int rows;              /* rows that get a score: 0 .. rows-1 */
  int visible;           /* rows that get a weight: 0 .. visible-1; the others weigh exactly 0 */
  float scale;           /* scores = scale · q·K[row] */
  bool
      interleaved; /* head h takes the dimensions h, h+n_head, h+2·n_head …, not its head_dim in a row; in decode only */
  bool across_heads; /* softmax runs over the heads of one row, not over the rows of one head; in decode only */
} kvs_step_plan;

/* What a fault may look at when it bends a plan. */
typedef struct kvs_situation {
  const kvs_config *config;
  int step;
  kvs_mode mode;
  int layer;
  int cache_length;  /* rows in layer 0's cache before this step appends: P */
  int batch_end;     /* rows in it when the whole batch is appended: P+1 in decode */
  int prompt_length; /* tokens of the prompt fed up to now, the batch's included */
} kvs_situation;

/* The plan of a correct step, bent by `fault` if it is not NULL. */
kvs_step_plan kvs_plan(const kvs_situation *situation, const kvs_fault *fault);

/* KVS_ERR_CONTEXT, in words, when the plan needs a cache row or a row of wpe that does not exist. */
kvs_status kvs_plan_check(const kvs_step_plan *plan, const kvs_situation *situation, const kvs_fault *fault,
                          kvs_error *err);

#endif
