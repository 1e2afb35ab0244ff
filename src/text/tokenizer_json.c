/* tokenizer_json.c: reading tokenizer.json, as far as it says what GPT-2's encoding is.
 *
 * The format can describe many tokenizers. Whatever would make the ids other than GPT-2's algorithm makes them is refused
 * by its name, so that a file is never read as something that it is not. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

static kvs_status refuse(const kvs_file *file, const char *place, const char *found, kvs_error *err) {
  return kvs_fail(
      err, KVS_ERR_INPUT,
      "%s: %s is %s; kvstep reads GPT-2's byte-level BPE only: use a model with that tokenizer, or one that "
      "has vocab.json and merges.txt",
      file->path, place, found);
}

/* Refuses `object`.`name` unless it is absent, null, false or "" (or, with a `want`, that string). */
static kvs_status expect(const kvs_file *file, const json_t *object, const char *place, const char *name,
                         const char *want, kvs_error *err) {
  const json_t *value = json_object_get(object, name);
  const char *string = json_string_value(value);
  if (want && string && strcmp(string, want) == 0) return KVS_OK;
  if (!want && (!value || json_is_null(value) || json_is_false(value) || (string && !*string))) return KVS_OK;
  char *dump = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
  kvs_shown found = kvs_show(dump ? dump : "absent", strlen(dump ? dump : "absent"));
  free(dump);
  char where[96];
  size_t prefix = strlen(place);
  memcpy(where, place, prefix);
  strcpy(where + prefix, name);
  return refuse(file, where, found.text, err);
}

static kvs_status check_kind(const kvs_file *file, const json_t *root, const json_t *model, kvs_error *err) {
  /* The oldest files, GPT-2's own among them, leave model.type out: vocab and merges together can only be BPE. */
  if (json_object_get(model, "type") || !json_object_get(model, "merges")) {
    kvs_status status = expect(file, model, "model.", "type", "BPE", err);
    if (status) return status;
  }
  static const char *const unlike[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback",
                                       "ignore_merges"};
  for (size_t i = 0; i < sizeof unlike / sizeof *unlike; i++) {
    kvs_status status = expect(file, model, "model.", unlike[i], NULL, err);
    if (status) return status;
  }
  kvs_status status = expect(file, root, "", "normalizer", NULL, err);
  const json_t *pre = json_object_get(root, "pre_tokenizer");
  if (!status && !json_is_object(pre)) status = expect(file, root, "", "pre_tokenizer", "ByteLevel", err);
  if (!status) status = expect(file, pre, "pre_tokenizer.", "type", "ByteLevel", err);
  if (!status) status = expect(file, pre, "pre_tokenizer.", "add_prefix_space", NULL, err);
  if (!status && json_is_false(json_object_get(pre, "use_regex")))
    status = refuse(file, "pre_tokenizer.use_regex", "false", err);
  return status;
}

static kvs_status load_merges(kvs_tokenizer *tokenizer, const kvs_vocab *vocab, const json_t *merges,
                              const kvs_file *file, kvs_error *err) {
  size_t count = json_array_size(merges);
  if (!json_is_array(merges) || count > KVS_TOKEN_CAP)
    return kvs_fail(err, KVS_ERR_INPUT, "%s: model.merges is not a list of at most %d merges", file->path,
                    KVS_TOKEN_CAP);
  kvs_status status = kvs_merges_init(&tokenizer->merges, count, err);
  for (size_t i = 0; !status && i < count; i++) {
    const json_t *merge = json_array_get(merges, i);
    const char *pair = json_string_value(merge);
    const json_t *first = json_array_get(merge, 0), *second = json_array_get(merge, 1);
    kvs_key left = {json_string_value(first), json_string_length(first)};
    kvs_key right = {json_string_value(second), json_string_length(second)};
    bool two = json_array_size(merge) == 2 && left.length > 0 && right.length > 0;
    if (pair ? !kvs_merge_parts(pair, json_string_length(merge), &left, &right) : !two)
      return kvs_fail(err, KVS_ERR_INPUT,
                      "%s, model.merges entry %zu: neither \"a b\" nor [\"a\", \"b\"]: copy the file again from where "
                      "the model came from",
                      file->path, i);
    status = kvs_merge_load(tokenizer, vocab, left, right, (uint32_t)i, file->path, "model.merges entry", i, err);
  }
  return status;
}

static kvs_status grow(kvs_tokenizer *tokenizer, int size, kvs_error *err) {
  if (size <= tokenizer->size) return KVS_OK;
  kvs_token *token = realloc(tokenizer->token, (size_t)size * sizeof *token);
  if (!token) return kvs_fail_memory(err, "reading the added tokens");
  memset(token + tokenizer->size, 0, (size_t)(size - tokenizer->size) * sizeof *token);
  tokenizer->token = token;
  tokenizer->size = size;
  return KVS_OK;
}

/* One entry of added_tokens: an id that the vocabulary has with the same text, or a new one. */
static kvs_status load_added(kvs_tokenizer *tokenizer, const json_t *entry, size_t i, const kvs_file *file,
                             kvs_error *err) {
  const json_t *content = json_object_get(entry, "content"), *number = json_object_get(entry, "id");
  const char *text = json_string_value(content);
  size_t length = json_string_length(content);
  json_int_t id = json_is_integer(number) ? json_integer_value(number) : -1;
  if (length == 0 || id < 0 || id >= KVS_TOKEN_CAP)
    return kvs_fail(err, KVS_ERR_INPUT,
                    "%s, added_tokens entry %zu: it needs a text \"content\" and an \"id\" from 0 to %d: copy the file "
                    "again from where the model came from",
                    file->path, i, KVS_TOKEN_CAP - 1);
  static const char *const unlike[] = {"single_word", "lstrip", "rstrip"};
  for (size_t j = 0; j < sizeof unlike / sizeof *unlike; j++) {
    kvs_status status = expect(file, entry, "added_tokens: ", unlike[j], NULL, err);
    if (status) return status;
  }
  kvs_status status = grow(tokenizer, (int)id + 1, err);
  if (status) return status;
  kvs_token *token = &tokenizer->token[id];
  if (token->bytes && (token->length != length || memcmp(token->bytes, text, length) != 0))
    return kvs_fail(err, KVS_ERR_INPUT,
                    "%s, added_tokens entry %zu: \"%s\" has the id %d, which is already \"%s\": correct one of the two",
                    file->path, i, kvs_show(text, length).text, (int)id,
                    kvs_show((const char *)token->bytes, token->length).text);
  bool special = json_is_true(json_object_get(entry, "special"));
  status = kvs_added_put(tokenizer, text, length, (int)id, special, err);
  if (!status && !token->bytes) *token = (kvs_token){tokenizer->added[tokenizer->added_count - 1].bytes, length};
  return status;
}

static kvs_status load_root(kvs_tokenizer *tokenizer, const json_t *root, const kvs_file *file, kvs_error *err) {
  const json_t *model = json_object_get(root, "model");
  kvs_status status = check_kind(file, root, model, err);
  if (status) return status;
  const json_t *entries = json_object_get(model, "vocab"), *added = json_object_get(root, "added_tokens");
  if (!json_is_object(entries)) return refuse(file, "model.vocab", "no object of tokens and ids", err);
  if (added && !json_is_null(added) && !json_is_array(added)) return refuse(file, "added_tokens", "no list", err);
  kvs_vocab vocab = {0};
  kvs_entries list;
  status = kvs_entries_from_json(entries, file->path, ", model.vocab", &list, err);
  if (!status) status = kvs_vocab_load(tokenizer, &list, file->path, ", model.vocab", &vocab, err);
  if (!status) status = load_merges(tokenizer, &vocab, json_object_get(model, "merges"), file, err);
  kvs_vocab_free(&vocab);
  kvs_entries_free(&list);
  for (size_t i = 0; !status && i < json_array_size(added); i++)
    status = load_added(tokenizer, json_array_get(added, i), i, file, err);
  return status;
}

kvs_status kvs_tokenizer_json_load(kvs_tokenizer *tokenizer, const kvs_file *file, kvs_error *err) {
  json_t *root;
  kvs_status status = kvs_json_read(file, &root, err);
  if (status) return status;
  status = load_root(tokenizer, root, file, err);
  json_decref(root);
  return status;
}
