/* model.c: opening a model: its directory, config.json, the weight files, and binding the one to the other. */
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config.h"
#include "model/foreign.h"
#include "model/json.h"
#include "model/weights.h"

/* ---- which files hold the weights -------------------------------------------------------------------------------- */

/* No safetensors: say what is there instead, and how to get one. */
static kvs_status refuse_without_weights(const char *path, kvs_error *err) {
  kvs_status status = kvs_foreign_refuse(path, "model.safetensors", err);
  if (status) return status;
  return kvs_fail(err, KVS_ERR_INPUT,
                  "%s: there is no model.safetensors (nor model.safetensors.index.json): put the model's weights there",
                  path);
}

static int by_path(const void *left, const void *right) {
  return strcmp(((const kvs_file *)left)->path, ((const kvs_file *)right)->path);
}

static kvs_status map_weights(struct kvs_model_files *files, const char *name, kvs_error *err) {
  return kvs_dir_map(files->dir, name, &files->weights[files->weights_count++], err);
}

/* A shard's name is a file beside the index, nothing else. */
static kvs_status check_shard_name(const kvs_file *index, const char *tensor, const json_t *value, kvs_error *err) {
  const char *shard = json_string_value(value);
  if (strlen(tensor) > KVS_MOST_NAME)
    return kvs_fail(err, KVS_ERR_INPUT,
                    "%s: a tensor's name has %zu bytes, more than %d are refused: copy the file again", index->path,
                    strlen(tensor), KVS_MOST_NAME);
  if (shard && *shard && !strchr(shard, '/') && strlen(shard) <= NAME_MAX && strcmp(shard, "..") != 0 &&
      strcmp(shard, ".") != 0)
    return KVS_OK;
  char *found = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
  kvs_fail(err, KVS_ERR_INPUT,
           "%s: the shard of tensor %s is %s: expected the name of a file in the same directory: copy the file again",
           index->path, tensor, found ? found : "unreadable");
  free(found);
  return KVS_ERR_INPUT;
}

#define MOST_SHARDS 1024

static kvs_status map_shards(struct kvs_model_files *files, const kvs_file *index, const json_t *map, kvs_error *err) {
  files->weights = calloc(MOST_SHARDS, sizeof *files->weights);
  if (!files->weights) return kvs_fail_memory(err, "opening the model");
  const char *tensor;
  json_t *value;
  json_object_foreach((json_t *)map, tensor, value) {
    kvs_status status = check_shard_name(index, tensor, value, err);
    const char *shard = json_string_value(value);
    bool known = false;
    for (size_t i = 0; i < files->weights_count && !status && !known; i++) {
      const char *base = strrchr(files->weights[i].path, '/');
      known = strcmp(base ? base + 1 : files->weights[i].path, shard) == 0;
    }
    if (!status && !known && files->weights_count == MOST_SHARDS)
      status = kvs_fail(err, KVS_ERR_INPUT, "%s: more than %d shards: copy the file again", index->path, MOST_SHARDS);
    if (!status && !known) status = map_weights(files, shard, err);
    if (status) return status;
  }
  if (files->weights_count == 0)
    return kvs_fail(err, KVS_ERR_INPUT, "%s: \"weight_map\" names no shard: copy the file again", index->path);
  qsort(files->weights, files->weights_count, sizeof *files->weights, by_path);
  return KVS_OK;
}

/* A tensor of the index that no shard has: what is left of the index when all that the shards have is taken away. */
static kvs_status refuse_absent(const struct kvs_model_files *files, const kvs_file *index, const json_t *map,
                                kvs_error *err) {
  json_t *rest = json_copy((json_t *)map);
  if (!rest) return kvs_fail_memory(err, "checking the index");
  for (size_t i = 0; i < files->tensors.count; i++) json_object_del(rest, files->tensors.tensor[i].name);
  const char *tensor = json_object_iter_key(json_object_iter(rest));
  kvs_status status =
      kvs_fail(err, KVS_ERR_INPUT, "%s: tensor %s is not in %s, where the index has it: copy that shard again",
               index->path, tensor, json_string_value(json_object_get(map, tensor)));
  json_decref(rest);
  return status;
}

/* Every tensor is in the shard that the index says, and the index knows every tensor. So no two shards have the same one. */
static kvs_status check_index(const struct kvs_model_files *files, const kvs_file *index, const json_t *map,
                              kvs_error *err) {
  for (size_t i = 0; i < files->tensors.count; i++) {
    const kvs_stored_tensor *t = &files->tensors.tensor[i];
    const char *shard = json_string_value(json_object_get(map, t->name));
    if (!shard)
      return kvs_fail(err, KVS_ERR_INPUT, "%s: tensor %s of %s is not in the index: copy both again", index->path,
                      t->name, t->path);
    if (strcmp(strrchr(t->path, '/') + 1, shard) != 0)
      return kvs_fail(err, KVS_ERR_INPUT, "%s: tensor %s is in %s; the index has it in %s: copy both again",
                      index->path, t->name, t->path, shard);
  }
  return files->tensors.count == json_object_size(map) ? KVS_OK : refuse_absent(files, index, map, err);
}

static kvs_status read_tensors(struct kvs_model_files *files, kvs_error *err) {
  for (size_t i = 0; i < files->weights_count; i++) {
    kvs_status status = kvs_safetensors_read(&files->weights[i], &files->tensors, err);
    if (status) return status;
  }
  return KVS_OK;
}

static kvs_status open_sharded(struct kvs_model_files *files, kvs_error *err) {
  kvs_file index;
  json_t *root;
  kvs_status status = kvs_dir_map(files->dir, "model.safetensors.index.json", &index, err);
  if (!status) status = kvs_json_read(&index, &root, err);
  if (status) return status;
  const json_t *map = json_object_get(root, "weight_map");
  if (!json_is_object(map))
    status = kvs_fail(err, KVS_ERR_INPUT, "%s: there is no \"weight_map\": copy the file again", index.path);
  if (!status) status = map_shards(files, &index, map, err);
  if (!status) status = read_tensors(files, err);
  if (!status) status = check_index(files, &index, map, err);
  json_decref(root);
  return status;
}

static kvs_status open_weights(struct kvs_model_files *files, const char *path, kvs_error *err) {
  if (kvs_dir_has(files->dir, "model.safetensors")) {
    files->weights = calloc(1, sizeof *files->weights);
    if (!files->weights) return kvs_fail_memory(err, "opening the model");
    kvs_status status = map_weights(files, "model.safetensors", err);
    return status ? status : read_tensors(files, err);
  }
  if (kvs_dir_has(files->dir, "model.safetensors.index.json")) return open_sharded(files, err);
  return refuse_without_weights(path, err);
}

/* ---- opening ------------------------------------------------------------------------------------------------------- */

/* A GGUF's or a checkpoint's directory often has no config.json either: then the weights are what must be spoken of. */
static kvs_status refuse_without_config(kvs_dir *dir, const char *path, kvs_error *err) {
  bool weights = kvs_dir_has(dir, "model.safetensors") || kvs_dir_has(dir, "model.safetensors.index.json");
  kvs_status status = weights ? KVS_OK : kvs_foreign_refuse(path, "config.json or model.safetensors", err);
  if (status) return status;
  return kvs_fail(
      err, KVS_ERR_INPUT,
      "%s: there is no config.json; a model directory has config.json, model.safetensors, vocab.json and merges.txt",
      path);
}

static kvs_status load(kvs_model *model, const char *name, kvs_error *err) {
  struct kvs_model_files *files = model->files;
  kvs_file config;
  kvs_config_note note;
  kvs_status status = kvs_dir_open(name, &files->dir, err);
  if (status) return status;
  if (!kvs_dir_has(files->dir, "config.json")) return refuse_without_config(files->dir, name, err);
  status = kvs_dir_map(files->dir, "config.json", &config, err);
  if (!status) status = kvs_config_read(&config, &model->config, &note, err);
  if (!status && note.text[0]) kvs_model_warn(model, "%s", note.text);
  if (!status) status = open_weights(files, name, err);
  if (!status) status = kvs_weights_bind(model, err);
  if (status) return status;
  kvs_config *c = &model->config;
  if (c->eos_token >= c->n_vocab) {
    kvs_model_warn(model, "%s: eos_token_id %d is not in the vocabulary of %d tokens; no token ends the text",
                   config.path, c->eos_token, c->n_vocab);
    c->eos_token = -1;
  }
  return KVS_OK;
}

kvs_status kvs_model_open(const char *name, kvs_model **out, kvs_error *err) {
  kvs_error local;
  if (!err) err = &local;
  *out = NULL;
  kvs_model *model = calloc(1, sizeof *model);
  if (model) model->files = calloc(1, sizeof *model->files);
  if (!model || !model->files) {
    free(model);
    return kvs_fail_memory(err, "opening the model");
  }
  kvs_status status = load(model, name, err);
  if (status)
    kvs_model_free(model);
  else
    *out = model;
  return status;
}

void kvs_model_free(kvs_model *model) {
  if (!model) return;
  struct kvs_model_files *files = model->files;
  kvs_tensor_list_free(&files->tensors);
  for (size_t i = 0; i < files->copies_count; i++) free(files->copies[i]);
  for (int i = 0; i < files->warnings_count; i++) free(files->warnings[i]);
  free(files->copies);
  free(files->weights);
  kvs_dir_close(files->dir);
  free(files);
  free(model->layer);
  free(model);
}

/* ---- asking -------------------------------------------------------------------------------------------------------- */

const kvs_config *kvs_model_config(const kvs_model *model) { return &model->config; }
const char *kvs_model_name(const kvs_model *model) { return kvs_dir_name(model->files->dir); }
kvs_dtype kvs_model_dtype(const kvs_model *model) { return model->wte.dtype; }
long long kvs_model_parameters(const kvs_model *model) { return model->files->parameters; }

const char *kvs_model_warning(const kvs_model *model, int i) {
  return i >= 0 && i < model->files->warnings_count ? model->files->warnings[i] : NULL;
}

static bool hash_files(const struct kvs_model_files *files, unsigned char digest[EVP_MAX_MD_SIZE], unsigned *size) {
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  bool good = context && EVP_DigestInit_ex(context, EVP_sha256(), NULL);
  for (size_t i = 0; i < files->weights_count && good; i++)
    good = EVP_DigestUpdate(context, files->weights[i].bytes, files->weights[i].size);
  good = good && EVP_DigestFinal_ex(context, digest, size);
  EVP_MD_CTX_free(context);
  return good;
}

kvs_status kvs_model_sha256(kvs_model *model, const char **hex, kvs_error *err) {
  struct kvs_model_files *files = model->files;
  *hex = files->sha256;
  if (files->sha256[0]) return KVS_OK;
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  if (!hash_files(files, digest, &size)) return kvs_fail(err, KVS_ERR_IO, "libcrypto cannot compute a SHA-256 here");
  for (unsigned i = 0; i < size; i++) snprintf(files->sha256 + 2 * i, 3, "%02x", digest[i]);
  return KVS_OK;
}
