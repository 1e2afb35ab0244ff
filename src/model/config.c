/* config.c: what a config.json says of a GPT-2, and refusing what is none. */
#include "model/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/json.h"

#define MOST_LAYERS 10000

/* Reading goes on after a mistake; the first one is kept. */
typedef struct reader {
  const char *path;
  const json_t *root;
  kvs_status status;
  kvs_error *err;
} reader;

static bool absent(const reader *r, const char *key) {
  const json_t *value = json_object_get(r->root, key);
  return !value || json_is_null(value);
}

/* A value as it stands in the file, or NULL; in ASCII, so that it may be cut anywhere. The caller frees it. */
static char *shown(const json_t *value) {
  return json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
}

static void refuse(reader *r, const char *key, const char *expected) {
  if (r->status) return;
  char *found = shown(json_object_get(r->root, key));
  r->status = kvs_fail(r->err, KVS_ERR_INPUT, "%s: \"%s\" is %.60s: expected %s", r->path, key,
                       found ? found : "missing", expected);
  free(found);
}

/* A count from 1 to `most`; `missing` when the key is absent or null (0: it must be there). */
static int count(reader *r, const char *key, int most, int missing) {
  if (absent(r, key)) {
    if (missing == 0 && !r->status)
      r->status =
          kvs_fail(r->err, KVS_ERR_INPUT,
                   "%s: \"%s\" is missing: copy config.json again from where the model came from", r->path, key);
    return missing;
  }
  const json_t *value = json_object_get(r->root, key);
  if (json_is_integer(value) && json_integer_value(value) >= 1 && json_integer_value(value) <= most)
    return (int)json_integer_value(value);
  char expected[64];
  snprintf(expected, sizeof expected, "a whole number from 1 to %d", most);
  refuse(r, key, expected);
  return 1;
}

static bool flag(reader *r, const char *key, bool missing) {
  if (absent(r, key)) return missing;
  if (!json_is_boolean(json_object_get(r->root, key))) refuse(r, key, "true or false");
  return json_is_true(json_object_get(r->root, key));
}

static float epsilon(reader *r) {
  const char *key = "layer_norm_epsilon";
  if (absent(r, key)) return 1e-5f;
  double value = json_number_value(json_object_get(r->root, key));
  if (!json_is_number(json_object_get(r->root, key)) || !(value >= 0 && value <= 1))
    refuse(r, key, "a number from 0 to 1");
  return (float)value;
}

static kvs_activation activation(reader *r) {
  const char *key = "activation_function";
  if (absent(r, key)) return KVS_GELU_NEW;
  const char *name = json_string_value(json_object_get(r->root, key));
  if (name && (strcmp(name, "gelu_new") == 0 || strcmp(name, "gelu_pytorch_tanh") == 0)) return KVS_GELU_NEW;
  if (name && strcmp(name, "gelu") == 0) return KVS_GELU;
  if (name && strcmp(name, "relu") == 0) return KVS_RELU;
  refuse(r, key, "gelu_new, gelu_pytorch_tanh, gelu or relu; kvstep knows no other");
  return KVS_GELU_NEW;
}

/* An id, the first of a list of ids, or -1 for null. */
static int eos(reader *r) {
  const char *key = "eos_token_id";
  if (absent(r, key)) return -1;
  const json_t *value = json_object_get(r->root, key);
  if (json_is_array(value)) value = json_array_get(value, 0);
  if (json_is_integer(value) && json_integer_value(value) >= 0 && json_integer_value(value) < KVS_MOST_SIZE)
    return (int)json_integer_value(value);
  refuse(r, key, "a token's id, or null");
  return -1;
}

/* GPT-2 by model_type, or by architectures where there is no model_type. */
static void check_architecture(reader *r) {
  const json_t *type = json_object_get(r->root, "model_type");
  const json_t *architecture = json_array_get(json_object_get(r->root, "architectures"), 0);
  const char *name = json_string_value(type), *class_name = json_string_value(architecture);
  if (name ? strcmp(name, "gpt2") == 0 : class_name && strncmp(class_name, "GPT2", 4) == 0) return;
  if (r->status) return;
  char *found = shown(name ? type : architecture);
  r->status = kvs_fail(r->err, KVS_ERR_INPUT,
                       "%s: the model's type is %.60s; kvstep decodes GPT-2's architecture only (\"model_type\": "
                       "\"gpt2\", such as gpt2, gpt2-medium, distilgpt2)",
                       r->path, found ? found : "not given");
  free(found);
}

static int context(reader *r, kvs_config_note *note) {
  int n_positions = absent(r, "n_positions") ? 0 : count(r, "n_positions", KVS_MOST_SIZE, 1);
  int n_ctx = absent(r, "n_ctx") ? 0 : count(r, "n_ctx", KVS_MOST_SIZE, 1);
  if (n_positions && n_ctx && n_positions != n_ctx)
    snprintf(note->text, sizeof note->text, "%s: n_positions is %d and n_ctx is %d: n_positions counts", r->path,
             n_positions, n_ctx);
  return n_positions ? n_positions : n_ctx;
}

static kvs_status interpret(reader *r, kvs_config *c, kvs_config_note *note) {
  check_architecture(r);
  *c = (kvs_config){
      .n_layer = count(r, "n_layer", MOST_LAYERS, 0),
      .n_head = count(r, "n_head", KVS_MOST_SIZE, 0),
      .n_embd = count(r, "n_embd", KVS_MOST_SIZE, 0),
      .n_ctx = context(r, note),
      .n_vocab = absent(r, "vocab_size") ? 0 : count(r, "vocab_size", KVS_MOST_SIZE, 1),
      .activation = activation(r),
      .layer_norm_epsilon = epsilon(r),
      .scale_attn_weights = flag(r, "scale_attn_weights", true),
      .scale_attn_by_inverse_layer_idx = flag(r, "scale_attn_by_inverse_layer_idx", false),
      .tied = flag(r, "tie_word_embeddings", true),
      .eos_token = eos(r),
  };
  if (r->status) return r->status;
  c->n_inner = absent(r, "n_inner") ? 4 * c->n_embd : count(r, "n_inner", KVS_MOST_SIZE, 1);
  if (flag(r, "add_cross_attention", false))
    refuse(r, "add_cross_attention", "false; kvstep decodes without an encoder");
  if (r->status) return r->status;
  if (c->n_embd % c->n_head != 0)
    return kvs_fail(r->err, KVS_ERR_INPUT,
                    "%s: \"n_embd\" is %d and \"n_head\" is %d: n_embd must be a multiple of n_head", r->path,
                    c->n_embd, c->n_head);
  c->head_dim = c->n_embd / c->n_head;
  return KVS_OK;
}

kvs_status kvs_config_read(const kvs_file *file, kvs_config *out, kvs_config_note *note, kvs_error *err) {
  kvs_error local;
  json_t *root;
  note->text[0] = '\0';
  kvs_status status = kvs_json_read(file, &root, err ? err : &local);
  if (status) return status;
  reader r = {file->path, root, KVS_OK, err ? err : &local};
  status = interpret(&r, out, note);
  json_decref(root);
  return status;
}
