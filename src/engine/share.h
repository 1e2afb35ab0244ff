/* share.h (private): what the decode step and the prefill have in common beside the operations. */
#ifndef KVS_ENGINE_SHARE_H
#define KVS_ENGINE_SHARE_H

#include "engine/plan.h"
#include "engine/state.h"

/* The plan of step `step`, bent if a fault is on from there, and checked. */
kvs_status kvs_engine_plan(kvs_engine *e, int step, kvs_mode mode, int cache_length, kvs_step_plan *plan,
                           kvs_error *err);

/* wte [n_embd] = wte[token], wpe [n_embd] = wpe[position], x = their sum (wte alone where the plan adds no wpe). */
void kvs_embed(kvs_engine *e, int token, const kvs_step_plan *plan, float *wte, float *wpe, float *x);

/* The factor on q·K in this layer: the plan's, and 1/(layer + 1) where the model's config asks for it. */
float kvs_layer_scale(const kvs_engine *e, const kvs_step_plan *plan, int layer);

/* Tells the observer of a phase; nothing when there is none. Also the place where a cancelled step stops. */
kvs_status kvs_report(kvs_engine *e, kvs_moment *moment, kvs_phase phase, int layer, int cache_length, kvs_error *err);

/* Seconds on a clock that only goes forward. */
double kvs_now(void);

#endif
