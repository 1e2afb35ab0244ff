/* json.h (private): reading a JSON file strictly: no duplicate keys, nothing after its end, an object outermost. */
#ifndef KVS_MODEL_JSON_H
#define KVS_MODEL_JSON_H

#include <jansson.h>
#include <stdbool.h>

#include "model/dir.h"

/* Parses a file. The caller decrefs *out. Errors: KVS_ERR_INPUT with file, line and column, KVS_ERR_MEMORY. */
kvs_status kvs_json_read(const kvs_file *file, json_t **out, kvs_error *err);

/* Whether a parse failed for want of memory. jansson has a code for that and hardly ever sets it: most failed allocations leave
 * the error's text empty, which no mistake in the JSON does.
 * `error` must have been zero before. */
bool kvs_json_starved(const json_error_t *error);

#endif
