/* tokenizer.c: opening a tokenizer, and what it says of itself. */
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* Everything that vocab.json and merges.txt give. vocab.json has no flag for special tokens; GPT-2 has this one. */
static kvs_status load_entries(kvs_tokenizer *tokenizer, const kvs_entries *entries, const char *vocab_path,
                               const kvs_file *merges, kvs_error *err) {
  static const char end_of_text[] = "<|endoftext|>";
  kvs_vocab vocab;
  kvs_status status = kvs_vocab_load(tokenizer, entries, vocab_path, "", &vocab, err);
  if (!status) status = kvs_merges_load(tokenizer, &vocab, merges, err);
  if (!status) {
    int id = kvs_vocab_find(&vocab, (kvs_key){end_of_text, sizeof end_of_text - 1}, (kvs_key){"", 0});
    if (id >= 0) status = kvs_added_put(tokenizer, end_of_text, sizeof end_of_text - 1, id, true, err);
  }
  kvs_vocab_free(&vocab);
  return status;
}

static kvs_status load_pair(kvs_tokenizer *tokenizer, kvs_dir *dir, kvs_error *err) {
  kvs_file vocab, merges;
  kvs_status status = kvs_dir_map(dir, "vocab.json", &vocab, err);
  if (!status) status = kvs_dir_map(dir, "merges.txt", &merges, err);
  if (status) return status;
  json_t *root = NULL;
  kvs_entries entries;
  bool plain = kvs_entries_scan(&vocab, &entries);
  if (!plain) status = kvs_json_read(&vocab, &root, err);
  if (!plain && !status) status = kvs_entries_from_json(root, vocab.path, "", &entries, err);
  if (!status) status = load_entries(tokenizer, &entries, vocab.path, &merges, err);
  /* The quick reader keeps no places: of a key that is there twice, the JSON library names the line. */
  if (plain && status == KVS_ERR_INPUT) {
    kvs_status exact = kvs_json_read(&vocab, &root, err);
    if (exact) status = exact;
  }
  kvs_entries_free(&entries);
  json_decref(root);
  return status;
}

static kvs_status load(kvs_tokenizer *tokenizer, kvs_dir *dir, kvs_error *err) {
  bool vocab = kvs_dir_has(dir, "vocab.json"), merges = kvs_dir_has(dir, "merges.txt");
  if (vocab && merges) return load_pair(tokenizer, dir, err);
  if (kvs_dir_has(dir, "tokenizer.json")) {
    kvs_file file;
    kvs_status status = kvs_dir_map(dir, "tokenizer.json", &file, err);
    return status ? status : kvs_tokenizer_json_load(tokenizer, &file, err);
  }
  const char *found = vocab ? "vocab.json but no merges.txt" : merges ? "merges.txt but no vocab.json" : "no tokenizer";
  return kvs_fail(err, KVS_ERR_IO,
                  "%s: there is %s in it: copy vocab.json and merges.txt, or tokenizer.json, from where the model came "
                  "from",
                  tokenizer->name, found);
}

kvs_status kvs_tokenizer_open(const char *name, kvs_tokenizer **out, kvs_error *err) {
  *out = NULL;
  kvs_dir *dir = NULL;
  kvs_status status = kvs_dir_open(name, &dir, err);
  if (status) return status;
  kvs_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
  if (tokenizer) tokenizer->name = strdup(name);
  if (!tokenizer || !tokenizer->name) status = kvs_fail_memory(err, "reading the tokenizer");
  if (!status) status = load(tokenizer, dir, err);
  if (!status) status = kvs_splitter_create(true, &tokenizer->splitter, err);
  kvs_dir_close(dir);
  if (status) {
    kvs_tokenizer_free(tokenizer);
    return status;
  }
  kvs_added_sort(tokenizer);
  *out = tokenizer;
  return KVS_OK;
}

void kvs_tokenizer_free(kvs_tokenizer *tokenizer) {
  if (!tokenizer) return;
  for (size_t i = 0; i < tokenizer->added_count; i++) free(tokenizer->added[i].bytes);
  free(tokenizer->added);
  free(tokenizer->token);
  free(tokenizer->bytes);
  free(tokenizer->merges.slot);
  kvs_splitter_free(tokenizer->splitter);
  free(tokenizer->name);
  free(tokenizer);
}

kvs_status kvs_tokenizer_fits(const kvs_tokenizer *tokenizer, const kvs_model *model, kvs_error *err) {
  int rows = kvs_model_config(model)->n_vocab;
  if (tokenizer->size <= rows) return KVS_OK;
  return kvs_fail(err, KVS_ERR_INPUT,
                  "%s: the tokenizer has ids up to %d, but the model's wte has %d rows, for ids up to %d: use the "
                  "tokenizer that came with the model",
                  tokenizer->name, tokenizer->size - 1, rows, rows - 1);
}

int kvs_tokenizer_size(const kvs_tokenizer *tokenizer) { return tokenizer->size; }

const unsigned char *kvs_tokenizer_bytes(const kvs_tokenizer *tokenizer, int token, size_t *length) {
  bool known = token >= 0 && token < tokenizer->size;
  *length = known ? tokenizer->token[token].length : 0;
  return known ? tokenizer->token[token].bytes : NULL;
}
