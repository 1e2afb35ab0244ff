/* vocab.c: from spellings and ids to tokens of bytes. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"
#include "text/utf8.h"

kvs_shown kvs_show(const char *text, size_t length) {
  kvs_shown shown = {{0}};
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
static size_t unspell(const short byte_of[256 + 68], kvs_key key, unsigned char *bytes) {
  size_t written = 0;
  for (size_t i = 0; i < key.length;) {
    kvs_utf8_unit unit = kvs_utf8_next((const unsigned char *)key.text + i, key.length - i);
    short byte = unit.kind == KVS_UTF8_CHARACTER && unit.code < 256 + 68 ? byte_of[unit.code] : -1;
    if (byte < 0) {
      memcpy(bytes, key.text, key.length);
      return key.length;
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
kvs_status kvs_entries_from_json(const json_t *vocab, const char *path, const char *place, kvs_entries *out,
                                 kvs_error *err) {
  *out = (kvs_entries){0};
  out->entry = malloc((json_object_size(vocab) + 1) * sizeof *out->entry);
  if (!out->entry) return kvs_fail_memory(err, "reading the vocabulary");
  const char *key;
  json_t *value;
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
    if (id >= out->size) out->size = (int)id + 1;
    kvs_entry *entry = &out->entry[out->count++];
    *entry = (kvs_entry){key, strlen(key), (int)id};
    out->spelt += entry->length;
  }
  if (out->count > 0) return KVS_OK;
  return kvs_fail(err, KVS_ERR_INPUT,
                  "%s%s: there is no token in it: copy the file again from where the model came from", path, place);
}

static kvs_status allocate(kvs_tokenizer *tokenizer, kvs_vocab *out, const kvs_entries *entries, kvs_error *err) {
  size_t size = (size_t)entries->size, slots = 16;
  while (slots < 2 * entries->count) slots *= 2;
  tokenizer->token = calloc(size, sizeof *tokenizer->token);
  tokenizer->bytes = malloc(entries->spelt + 1);
  out->key = calloc(size, sizeof *out->key);
  out->slot = malloc(slots * sizeof *out->slot);
  if (!tokenizer->token || !tokenizer->bytes || !out->key || !out->slot)
    return kvs_fail_memory(err, "reading the vocabulary");
  tokenizer->size = entries->size;
  out->mask = slots - 1;
  memset(out->slot, -1, slots * sizeof *out->slot);
  return KVS_OK;
}

/* Enters a spelling; false if its id or the spelling itself is there already, then *other is that one. */
static bool enter(kvs_vocab *vocab, kvs_key key, int id, kvs_key *other) {
  *other = vocab->key[id];
  if (other->text) return false;
  size_t i = first_slot(vocab, key, (kvs_key){"", 0});
  for (; vocab->slot[i] >= 0; i = (i + 1) & vocab->mask) {
    *other = vocab->key[vocab->slot[i]];
    if (other->length == key.length && memcmp(other->text, key.text, key.length) == 0) return false;
  }
  vocab->slot[i] = id;
  vocab->key[id] = key;
  return true;
}

kvs_status kvs_vocab_load(kvs_tokenizer *tokenizer, const kvs_entries *entries, const char *path, const char *place,
                          kvs_vocab *out, kvs_error *err) {
  *out = (kvs_vocab){0};
  kvs_status status = allocate(tokenizer, out, entries, err);
  if (status) return status;
  short byte_of[256 + 68];
  spell_bytes(byte_of);
  memset(tokenizer->byte_token, -1, sizeof tokenizer->byte_token);
  unsigned char *bytes = tokenizer->bytes;
  for (size_t i = 0; i < entries->count; i++) {
    int id = entries->entry[i].id;
    kvs_key key = {entries->entry[i].text, entries->entry[i].length}, other;
    if (!enter(out, key, id, &other))
      return kvs_fail(
          err, KVS_ERR_INPUT,
          "%s%s: the tokens \"%s\" and \"%s\" both have the id %d: correct one, or copy the file again from "
          "where the model came from",
          path, place, kvs_show(other.text, other.length).text, kvs_show(key.text, key.length).text, id);
    size_t length = unspell(byte_of, key, bytes);
    tokenizer->token[id] = (kvs_token){bytes, length};
    /* A literal " " in the file is a token added by hand; only a byte's own spelling makes it the byte's token. */
    if (length == 1 && (key.length == 2 || byte_of[(unsigned char)*key.text] == *bytes))
      tokenizer->byte_token[*bytes] = id;
    bytes += length;
  }
  return KVS_OK;
}
