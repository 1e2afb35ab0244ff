/* memory_model.h: a GPT-2 with random weights made in memory, so that the engine can be tested without any file. */
#ifndef KVS_TESTS_MEMORY_MODEL_H
#define KVS_TESTS_MEMORY_MODEL_H

#include "model/weights.h"

/* The shape in `config` (head_dim, n_inner and eos_token are filled in where 0), all weights stored as `dtype`, drawn
 * from `seed`. Freed with memory_model_free, not with kvs_model_free. */
kvs_model *memory_model(kvs_config config, kvs_dtype dtype, unsigned seed);
void memory_model_free(kvs_model *model);

/* Memory in large pages where the system has them, as it maps a model's file where it can. Never NULL; freed with free. */
void *memory_large(size_t bytes);

/* A uniform number in [-1, 1) from a state of its own, the same on every machine. */
float memory_random(unsigned long long *state);

#endif
