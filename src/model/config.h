/* config.h (private): config.json. */
#ifndef KVS_MODEL_CONFIG_H
#define KVS_MODEL_CONFIG_H

#include "kvstep/model.h"
#include "model/dir.h"

/* The largest count or width. Far above any model there is, and low enough that four times it fits in an int and products of
 * two fit in 64 bits with room to spare. */
#define KVS_MOST_SIZE 100000000

/* A warning for whoever opened the model, or none. */
typedef struct kvs_config_note {
  char text[1024];
} kvs_config_note;

/* Reads a GPT-2 config.json. n_ctx and n_vocab are 0 where the file leaves them to wpe's and wte's rows.
 * Errors: KVS_ERR_INPUT (key, what was found, the remedy), KVS_ERR_MEMORY. */
kvs_status kvs_config_read(const kvs_file *file, kvs_config *out, kvs_config_note *note, kvs_error *err);

#endif
