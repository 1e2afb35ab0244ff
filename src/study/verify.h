/* verify.h: does the cache change anything? Cached decode against recomputing everything from scratch, bit for bit. */
#ifndef KVS_STUDY_VERIFY_H
#define KVS_STUDY_VERIFY_H

#include <stdbool.h>

#include "kvstep/engine.h"

/* One of logits, K and V of a step, compared. */
typedef struct kvs_verify_difference {
  bool identical; /* the same bits */
  double largest; /* max |Δ|; NaN if one side is NaN and the other is not, infinite if rows are missing */
  int layer, row; /* K and V: the first row that differs, layer by layer; -1 when identical */
} kvs_verify_difference;

typedef struct kvs_verify_step {
  int step;                          /* tokens fed so far − 1 */
  int token;                         /* the token that this step fed */
  int cached_length, scratch_length; /* rows in the two caches */
  kvs_verify_difference logits, k, v;
  bool identical; /* all three, and the lengths */
} kvs_verify_step;

typedef struct kvs_verify_options {
  const int *tokens; /* the prompt, [token_count] */
  int token_count;
  int generate;           /* tokens to decode greedily after it, from the cached engine's logits */
  const kvs_fault *fault; /* NULL: none; the scratch side never has one */
  int fault_from;
  int threads; /* as in kvs_engine_options */
} kvs_verify_options;

/* Feeds the prompt and then what is generated one token at a time to an engine with a cache; after each token a second
 * engine is reset and fed all tokens so far in one batch, under the causal mask. Their logits and all K and V rows are
 * compared and the step handed to `report` (which returns KVS_OK to go on). Ends early at eos_token and, with
 * KVS_ERR_CONTEXT and a message, at the context's end: what was reported holds.
 * Errors: those of the engine, and whatever `report` returned. */
kvs_status kvs_verify(const kvs_model *model, const kvs_verify_options *options,
                      kvs_status (*report)(void *context, const kvs_verify_step *step, kvs_error *err), void *context,
                      kvs_error *err);

#endif
