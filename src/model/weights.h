/* weights.h (private): from stored tensors to a model's weights. */
#ifndef KVS_MODEL_WEIGHTS_H
#define KVS_MODEL_WEIGHTS_H

#include "model/model.h"
#include "model/safetensors.h"

#define KVS_MOST_WARNINGS 8

/* What stands behind an open model: its mapped files, its copies of what could not be used in place, and what to tell. */
struct kvs_model_files {
  kvs_dir *dir;
  kvs_tensor_list tensors;
  kvs_file *weights; /* the weight files, in the order of their names */
  size_t weights_count;
  void **copies;
  size_t copies_count, copies_room;
  char *warnings[KVS_MOST_WARNINGS];
  int warnings_count;
  char sha256[65]; /* empty until asked for */
  long long parameters;
};

/* Fills in wte … lm_head, config.n_ctx and n_vocab where config.json left them open, and config.tied, from files->tensors.
 * Errors: KVS_ERR_INPUT (tensor, found, expected, remedy), KVS_ERR_MEMORY. */
kvs_status kvs_weights_bind(kvs_model *model, kvs_error *err);

/* Adds a line for kvs_model_warning; more than KVS_MOST_WARNINGS are dropped. */
void kvs_model_warn(kvs_model *model, const char *format, ...) KVS_PRINTF(2, 3);

#endif
