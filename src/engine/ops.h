/* ops.h (private): a step's operations, shared among the pool's threads. */
#ifndef KVS_ENGINE_OPS_H
#define KVS_ENGINE_OPS_H

#include "engine/state.h"

/* Attention of one token in one layer: its q, how far it sees, and where the results go. */
typedef struct kvs_attend {
  const kvs_step_plan *plan; /* which rows, of which layer's cache */
  const float *q;            /* [n_head][head_dim] */
  float scale;
  float *scores;  /* [n_head][rows] */
  float *weights; /* [n_head][rows] */
  float *out;     /* [n_head][head_dim] */
} kvs_attend;

/* y [rows][n_embd] = LayerNorm of each row of x. */
void kvs_op_layer_norm(kvs_engine *e, float *y, const float *x, int rows, const kvs_norm *norm);
/* y [rows][out] = x [rows][in] · w + b. */
void kvs_op_linear(kvs_engine *e, float *y, const float *x, int rows, const kvs_linear *linear);
/* x [rows][n_inner], the model's activation in place. */
void kvs_op_activate(kvs_engine *e, float *x, int rows);
/* sum [n] = a + b, element by element. */
void kvs_op_add(float *sum, const float *a, const float *b, size_t n);
/* logits [rows][n_vocab] = x [rows][n_embd] · lm_headᵀ. */
void kvs_op_lm_head(kvs_engine *e, float *logits, const float *x, int rows);
/* For `count` tokens of one layer of one cache, heads shared among the threads. */
void kvs_op_score(kvs_engine *e, const kvs_attend *tokens, int count);
void kvs_op_softmax(kvs_engine *e, const kvs_attend *tokens, int count);
void kvs_op_mix(kvs_engine *e, const kvs_attend *tokens, int count);

/* A vector [n_embd] as [n_head][head_dim], and back. They are the same numbers in the same order, and `from` is returned, unless
 * the plan interleaves the heads: then they are put in that order into `to`. */
const float *kvs_op_cut_heads(const kvs_engine *e, const kvs_step_plan *plan, float *to, const float *from);
const float *kvs_op_join_heads(const kvs_engine *e, const kvs_step_plan *plan, float *to, const float *from);

#endif
