/* step.h (private): the two ways to feed tokens. Both leave `broken` to the caller when they fail half-way. */
#ifndef KVS_ENGINE_STEP_H
#define KVS_ENGINE_STEP_H

#include "engine/state.h"

/* One token, step.c. KVS_ERR_CONTEXT: nothing was touched. */
kvs_status kvs_decode_step(kvs_engine *e, int token, kvs_source source, kvs_error *err);

/* Many tokens in one batch, prefill.c. KVS_ERR_CONTEXT: nothing was touched. */
kvs_status kvs_prefill_batch(kvs_engine *e, const int *tokens, int count, kvs_source source, kvs_error *err);

#endif
