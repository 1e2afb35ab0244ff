/* model.h: opening a GPT-2-architecture model: its configuration and its weights.
 *
 * A model is a Hugging Face directory (config.json, model.safetensors or model.safetensors.index.json with its shards,
 * vocab.json + merges.txt or tokenizer.json) or one of the models built into the library. Its weights are mapped
 * read-only from the file and used where they lie; opening copies nothing but what the file stores in another form
 * (16-bit biases, tensors that are not aligned, Linear [out][in] matrices).
 */
#ifndef KVSTEP_MODEL_H
#define KVSTEP_MODEL_H

#include <stdbool.h>
#include <stddef.h>

#include "kvstep/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* config.json's activation_function. gelu_pytorch_tanh is the same function as gelu_new. */
typedef enum kvs_activation { KVS_GELU_NEW, KVS_GELU, KVS_RELU } kvs_activation;

/* How numbers are stored in the weights file. */
typedef enum kvs_dtype { KVS_F32, KVS_F16, KVS_BF16 } kvs_dtype;

/* The shape of a model. All counts, no units. Names are config.json's own where it has one. */
typedef struct kvs_config {
  int n_layer;
  int n_head;
  int n_embd;
  int head_dim; /* n_embd / n_head */
  int n_ctx;    /* rows of wpe: positions 0 .. n_ctx-1 (config.json: n_positions) */
  int n_vocab;  /* rows of wte (config.json: vocab_size) */
  int n_inner;  /* width of the MLP; 4·n_embd where config.json says null */
  kvs_activation activation;
  float layer_norm_epsilon;
  bool scale_attn_weights;              /* scores are divided by sqrt(head_dim) */
  bool scale_attn_by_inverse_layer_idx; /* … and by layer + 1 */
  bool tied;                            /* lm_head is wte itself */
  int eos_token;                        /* id of the token that ends a text (config.json: eos_token_id), or -1 */
} kvs_config;

typedef struct kvs_model kvs_model;

/* Opens `name`: a path to a directory (anything with a '/' in it or that exists as a directory) or a built-in model's
 * name. On success *out is a model that the caller frees with kvs_model_free; on failure *out is NULL.
 * Errors: KVS_ERR_IO (cannot be read), KVS_ERR_INPUT (not a GPT-2 model, or a malformed one: the message names the
 * file, what was found and the remedy), KVS_ERR_MEMORY. */
KVS_API kvs_status kvs_model_open(const char *name, kvs_model **out, kvs_error *err);

/* Frees the model and unmaps its files. Nothing that was got from it may be used afterwards. NULL is allowed. */
KVS_API void kvs_model_free(kvs_model *model);

/* The model's shape; owned by the model. */
KVS_API const kvs_config *kvs_model_config(const kvs_model *model);

/* A short name to show: the built-in name, or the directory's last component. Owned by the model. */
KVS_API const char *kvs_model_name(const kvs_model *model);

/* How wte is stored (the other matrices may differ). */
KVS_API kvs_dtype kvs_model_dtype(const kvs_model *model);

/* How many parameters the model has; a tied lm_head counts once. */
KVS_API long long kvs_model_parameters(const kvs_model *model);

/* Warnings gathered while opening (one line each, e.g. "lm_head.weight differs from wte although config.json says they
 * are tied"): the i-th, or NULL when i is past the last. Owned by the model. */
KVS_API const char *kvs_model_warning(const kvs_model *model, int i);

/* The SHA-256 of the weights in lower-case hexadecimal, NUL-terminated: of the bytes of model.safetensors, or of the
 * shards one after another in the order of their names. It is computed at the first call (about a second per gigabyte)
 * and remembered. Owned by the model. Errors: KVS_ERR_IO. */
KVS_API kvs_status kvs_model_sha256(kvs_model *model, const char **hex, kvs_error *err);

/* The built-in models: name and one line about each, and a prompt that suits it. NULL when i is past the last. */
typedef struct kvs_builtin {
  const char *name;
  const char *summary;
  const char *prompt;
} kvs_builtin;
KVS_API const kvs_builtin *kvs_builtin_at(int i);

#ifdef __cplusplus
}
#endif

#endif
