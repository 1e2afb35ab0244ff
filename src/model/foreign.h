/* foreign.h (private): model files that are no safetensors, so that a refusal says what they are and how to go on. */
#ifndef KVS_MODEL_FOREIGN_H
#define KVS_MODEL_FOREIGN_H

#include <stddef.h>

#include "kvstep/error.h"

/* What a file is by its first bytes, with an article ("a GGUF file"), or NULL where they are nothing known; *remedy says how to
 * get from it to a safetensors file. */
const char *kvs_foreign_content(const unsigned char *bytes, size_t size, const char **remedy);

/* Looks through a directory for weights of another kind or name. If there are any, fails with KVS_ERR_INPUT, saying that `missing`
 * ("model.safetensors") is not there, what is there instead and what to do; otherwise returns KVS_OK. */
kvs_status kvs_foreign_refuse(const char *directory, const char *missing, kvs_error *err);

#endif
