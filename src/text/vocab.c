/* vocab.c: from a JSON object of spellings and ids to tokens of bytes. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"
#include "text/utf8.h"

kvs_shown kvs_show(const char *text, size_t length) {
  kvs_shown shown;
  kvs_token_text((const unsigned char *)text, length < 60 ? length : 60, shown.text, sizeof shown.text);
  return shown;
}

/* ---- spellings ------------------------------------------------------------------------------------------------- */

/* GPT-2 spells a token with one printable character for each byte: the printable bytes of Latin-1 stand for themselves,
 * the 68 others are U+0100, U+0101 … in their order. */
static void spell_bytes(short byte_of[256 + 68]) {
  memset(byte_of, -1, (256 + 68) * sizeof *byte_of);
  int others = 0;
  for (int b = 0; b < 256; b++) {
    bool itself = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    byte_of[itself ? b : 256 + others++] = (short)b;
  }
}

/* Writes the bytes that `key` spells (never more than it has itself) and returns how many. A spelling with any character
 * outside the 256 is a text as it stands: a token that was added by hand, which no merge leads to. */
static size_t unspell(const short byte_of[256 + 68], const char *key, unsigned char *bytes) {
  size_t length = strlen(key), written = 0;
  for (size_t i = 0; i < length;) {
    kvs_utf8_unit unit = kvs_utf8_next((const unsigned char *)key + i, length - i);
    short byte = unit.kind == KVS_UTF8_CHARACTER && unit.code < 256 + 68 ? byte_of[unit.code] : -1;
    if (byte < 0) {
      memcpy(bytes, key, length);
      return length;
    }
    bytes[written++] = (unsigned char)byte;
    i += unit.length;
  }
  return written;
}

/* ---- spelling → id --------------------------------------------------------------------------------------------- */

static uint64_t hash(uint64_t seed, kvs_key key) { /* FNV-1a */
  for (size_t i = 0; i < key.length; i++) seed = (seed ^ (unsigned char)key.text[i]) * UINT64_C(0x100000001B3);
  return seed;
}

static size_t first_slot(const kvs_vocab *vocab, kvs_key left, kvs_key right) {
  uint64_t h = hash(hash(UINT64_C(0xCBF29CE484222325), left), right);
  return (size_t)(h ^ h >> 32) & vocab->mask;
}

int kvs_vocab_find(const kvs_vocab *vocab, kvs_key left, kvs_key right) {
  for (size_t i = first_slot(vocab, left, right);; i = (i + 1) & vocab->mask) {
    int id = vocab->slot[i];
    if (id < 0) return -1;
    const kvs_key *key = &vocab->key[id];
    if (key->length == left.length + right.length && memcmp(key->text, left.text, left.length) == 0 &&
        memcmp(key->text + left.length, right.text, right.length) == 0)
      return id;
  }
}

void kvs_vocab_free(kvs_vocab *vocab) {
  free(vocab->key);
  free(vocab->slot);
  *vocab = (kvs_vocab){0};
}

/* ---- loading --------------------------------------------------------------------------------------------------- */

/* Looks at every id before anything is allocated by it. */
static kvs_status check_ids(const json_t *vocab, const char *path, const char *place, int *size, size_t *spelt,
                            kvs_error *err) {
  const char *key;
  json_t *value;
  *size = 0;
  *spelt = 0;
  json_object_foreach((json_t *)vocab, key, value) {
    json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    if (id < 0 || id >= KVS_TOKEN_CAP) {
      char *found = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
      kvs_shown shown = kvs_show(found ? found : "?", found ? strlen(found) : 1);
      free(found);
      return kvs_fail(err, KVS_ERR_INPUT,
                      "%s%s: the token \"%s\" has the id %s: an id is a whole number from 0 to %d; correct it, or copy "
                      "the file again from where the model came from",
                      path, place, kvs_show(key, strlen(key)).text, shown.text, KVS_TOKEN_CAP - 1);
    }
    if (id >= *size) *size = (int)id + 1;
    *spelt += strlen(key);
  }
  if (*size > 0) return KVS_OK;
  return kvs_fail(err, KVS_ERR_INPUT,
                  "%s%s: there is no token in it: copy the file again from where the model came from", path, place);
}

static kvs_status allocate(kvs_tokenizer *tokenizer, kvs_vocab *out, int size, size_t count, size_t spelt,
                           kvs_error *err) {
  size_t slots = 16;
  while (slots < 2 * count) slots *= 2;
  tokenizer->token = calloc((size_t)size, sizeof *tokenizer->token);
  tokenizer->bytes = malloc(spelt + 1);
  out->key = calloc((size_t)size, sizeof *out->key);
  out->slot = malloc(slots * sizeof *out->slot);
  if (!tokenizer->token || !tokenizer->bytes || !out->key || !out->slot)
    return kvs_fail_memory(err, "reading the vocabulary");
  tokenizer->size = size;
  out->mask = slots - 1;
  memset(out->slot, -1, slots * sizeof *out->slot);
  return KVS_OK;
}

kvs_status kvs_vocab_load(kvs_tokenizer *tokenizer, const json_t *vocab, const char *path, const char *place,
                          kvs_vocab *out, kvs_error *err) {
  *out = (kvs_vocab){0};
  int size;
  size_t spelt;
  kvs_status status = check_ids(vocab, path, place, &size, &spelt, err);
  if (!status) status = allocate(tokenizer, out, size, json_object_size(vocab), spelt, err);
  if (status) return status;
  short byte_of[256 + 68];
  spell_bytes(byte_of);
  memset(tokenizer->byte_token, -1, sizeof tokenizer->byte_token);
  unsigned char *bytes = tokenizer->bytes;
  const char *text;
  json_t *value;
  json_object_foreach((json_t *)vocab, text, value) {
    int id = (int)json_integer_value(value);
    kvs_key key = {text, strlen(text)}, *taken = &out->key[id];
    if (taken->text)
      return kvs_fail(
          err, KVS_ERR_INPUT,
          "%s%s: the tokens \"%s\" and \"%s\" both have the id %d: correct one, or copy the file again from "
          "where the model came from",
          path, place, kvs_show(taken->text, taken->length).text, kvs_show(text, key.length).text, id);
    *taken = key;
    size_t i = first_slot(out, key, (kvs_key){"", 0});
    while (out->slot[i] >= 0) i = (i + 1) & out->mask;
    out->slot[i] = id;
    size_t length = unspell(byte_of, text, bytes);
    tokenizer->token[id] = (kvs_token){bytes, length};
    /* A literal " " in the file is a token added by hand; only a byte's own spelling makes it the byte's token. */
    if (length == 1 && (key.length == 2 || byte_of[(unsigned char)*text] == *bytes)) tokenizer->byte_token[*bytes] = id;
    bytes += length;
  }
  return KVS_OK;
}
