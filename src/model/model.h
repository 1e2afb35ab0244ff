/* model.h (private): what an open model is made of, for those who compute with it. */
#ifndef KVS_MODEL_MODEL_H
#define KVS_MODEL_MODEL_H

#include "kvstep/model.h"

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

struct kvs_model_files; /* the mapped files and the copies that had to be made; model.c's own */

struct kvs_model {
  kvs_config config;
  kvs_tensor wte;   /* [n_vocab][n_embd] */
  kvs_tensor wpe;   /* [n_ctx][n_embd] */
  kvs_layer *layer; /* [n_layer] */
  kvs_norm ln_f;
  kvs_tensor lm_head; /* [n_vocab][n_embd]; the same as wte when tied */
  struct kvs_model_files *files;
};

#endif
