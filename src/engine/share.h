/* share.h (private): what the decode step and the prefill have in common beside the operations. */
#ifndef KVS_ENGINE_SHARE_H
#define KVS_ENGINE_SHARE_H

#include "engine/plan.h"
#include "engine/state.h"

/* One token of a step or batch that is about to be fed. */
typedef struct kvs_place {
  int step;
  kvs_mode mode;
  int cache_length, batch_end, prompt_length; /* as in kvs_situation */
} kvs_place;

/* What that token will do in this layer: the plan, bent if a fault is on by then. */
kvs_step_plan kvs_engine_plan(const kvs_engine *e, const kvs_place *place, int layer);
/* KVS_ERR_CONTEXT if one of its layers' plans asks for what is not there. */
kvs_status kvs_engine_check(const kvs_engine *e, const kvs_place *place, kvs_error *err);

/* wte [n_embd] = wte[token], wpe [n_embd] = wpe[position], x = their sum (wte alone where the plan adds no wpe). */
void kvs_embed(kvs_engine *e, int token, const kvs_step_plan *plan, float *wte, float *wpe, float *x);

/* The factor on q·K in this layer: the plan's, and 1/(layer + 1) where the model's config asks for it. */
float kvs_layer_scale(const kvs_engine *e, const kvs_step_plan *plan, int layer);

/* Does what the plan says to this layer's cache with k and v [n_embd] of the batch's token `token`, and tells `m` of it. */
void kvs_append(kvs_engine *e, const kvs_step_plan *plan, int token, const float *k, const float *v, kvs_moment *m);

/* Tells the observer of a phase; nothing when there is none. Also the place where a cancelled step stops. */
kvs_status kvs_report(kvs_engine *e, kvs_moment *moment, kvs_phase phase, int layer, int cache_length, kvs_error *err);

/* Counts tokens that have been fed, and remembers those of the prompt. */
void kvs_count_fed(kvs_engine *e, const int *tokens, int count, kvs_source source);

#endif
