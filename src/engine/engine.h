/* engine.h (private): the engine's state, shared by the decode step, the prefill and the operations they are made of. */
#ifndef KVS_ENGINE_ENGINE_H
#define KVS_ENGINE_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "kvstep/engine.h"
#include "engine/cache.h"
#include "engine/kernels.h"
#include "engine/plan.h"
#include "engine/pool.h"
#include "model/model.h"

/* Tokens of a batch whose attention and logits are worked out, and reported, at a time. */
#define KVS_CHUNK 16

/* Working memory for `rows` tokens at once: [rows][…], grown by kvs_scratch_grow. */
typedef struct kvs_scratch {
  int rows;
  float *wte, *wpe, *x;    /* [rows][n_embd] embedding parts; x is the residual stream as it enters a layer */
  float *norm;             /* [rows][n_embd] after ln_1, ln_2 or ln_f */
  float *qkv;              /* [rows][3·n_embd]: q | k | v */
  float *out;              /* [rows][n_embd] heads side by side */
  float *attn_out, *x_mid; /* [rows][n_embd] */
  float *hidden;           /* [rows][n_inner] */
  float *mlp_out, *x_out;  /* [rows][n_embd] */
  float *scores, *weights; /* [KVS_CHUNK][n_head][n_ctx], the last stride being the rows attended */
  float *logits;           /* [KVS_CHUNK][n_vocab] */
  float *pack;             /* [threads][KVS_PACK_FLOATS] */
} kvs_scratch;

struct kvs_engine {
  const kvs_model *model;
  const kvs_kernels *kernels;
  kvs_pool *pool;
  kvs_cache cache;
  kvs_scratch s;
  kvs_observer observer;
  bool observed;
  const kvs_fault *fault;
  int fault_from_step;
  int steps;   /* tokens fed so far */
  bool broken; /* a step was cut short: reset before going on */
  atomic_bool cancelled;
  float *last_logits; /* [n_vocab] of the last token fed */
  bool has_logits;
  double observer_seconds; /* spent in the observer during this call: not the engine's time */
};

/* Attention of one token in one layer: its q, how far it sees, and where the results go. */
typedef struct kvs_attend {
  const float *q; /* [n_embd] */
  int rows;       /* attends to cache rows 0 .. rows-1 */
  float scale;
  float *scores;  /* [n_head][rows] */
  float *weights; /* [n_head][rows] */
  float *out;     /* [n_head][head_dim] */
} kvs_attend;

/* ---- operations, shared among the pool's threads; ops.c ---------------------------------------------------------- */

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
/* For `count` tokens of one layer, heads shared among the threads. */
void kvs_op_score(kvs_engine *e, int layer, const kvs_attend *tokens, int count);
void kvs_op_softmax(kvs_engine *e, int layer, const kvs_attend *tokens, int count);
void kvs_op_mix(kvs_engine *e, int layer, const kvs_attend *tokens, int count);

/* ---- what decode and prefill share; engine.c ----------------------------------------------------------------------- */

kvs_status kvs_scratch_grow(kvs_engine *e, int rows, kvs_error *err);

/* The plan of step `step`, bent if a fault is on from there, and checked. */
kvs_status kvs_engine_plan(kvs_engine *e, int step, kvs_mode mode, int cache_length, kvs_step_plan *plan,
                           kvs_error *err);

/* wte [n_embd] = wte[token], wpe [n_embd] = wpe[position], x = their sum (wte alone where the plan adds no wpe). */
void kvs_embed(kvs_engine *e, int token, const kvs_step_plan *plan, float *wte, float *wpe, float *x);

/* The factor on q·K in this layer: the plan's, and 1/(layer + 1) where the model's config asks for it. */
float kvs_layer_scale(const kvs_engine *e, const kvs_step_plan *plan, int layer);

/* Tells the observer of a phase; nothing when there is none. Also the place where a cancelled step stops. */
kvs_status kvs_report(kvs_engine *e, kvs_moment *moment, kvs_phase phase, int layer, int cache_length, kvs_error *err);

/* Seconds since `start`, the observer's own time left out. */
double kvs_now(void);

kvs_status kvs_decode_step(kvs_engine *e, int token, kvs_source source, kvs_error *err);
kvs_status kvs_prefill_batch(kvs_engine *e, const int *tokens, int count, kvs_source source, kvs_error *err);

#endif
