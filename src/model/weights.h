/* weights.h (private): what an open model is made of, for those who compute with it, and how it comes from stored tensors. */
#ifndef KVS_MODEL_WEIGHTS_H
#define KVS_MODEL_WEIGHTS_H

#include "kvstep/model.h"
#include "model/safetensors.h"

/* A matrix as stored, row-major [rows][cols], in dtype. Aligned to its dtype. */
typedef struct kvs_tensor {
  kvs_dtype dtype;
  int rows, cols;
  const void *data;
} kvs_tensor;

/* GPT-2's Conv1D: y[j] = b[j] + Σ_i x[i]·w[i][j], so w is [in][out]. */
typedef struct kvs_linear {
  kvs_tensor w;   /* [in][out] */
  const float *b; /* [out] */
} kvs_linear;

/* LayerNorm: g·(x − mean)/sqrt(variance + epsilon) + b, both [n_embd]. */
typedef struct kvs_norm {
  const float *g, *b;
} kvs_norm;

typedef struct kvs_layer {
  kvs_norm ln_1;
  kvs_linear c_attn; /* [n_embd][3·n_embd]: q | k | v */
  kvs_linear c_proj; /* [n_embd][n_embd] */
  kvs_norm ln_2;
  kvs_linear mlp_c_fc;   /* [n_embd][n_inner] */
  kvs_linear mlp_c_proj; /* [n_inner][n_embd] */
} kvs_layer;

struct kvs_model {
  kvs_config config;
  kvs_tensor wte;   /* [n_vocab][n_embd] */
  kvs_tensor wpe;   /* [n_ctx][n_embd] */
  kvs_layer *layer; /* [n_layer] */
  kvs_norm ln_f;
  kvs_tensor lm_head; /* [n_vocab][n_embd]; the same as wte when tied */
  struct kvs_model_files *files;
};

/* ---- behind an open model ---------------------------------------------------------------------------------------- */

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
