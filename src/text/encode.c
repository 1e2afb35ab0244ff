/* encode.c: from text to token ids: added tokens are found, the rest is split into pieces, each piece is merged. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"
#include "text/utf8.h"

/* One text on its way. */
typedef struct encoding {
  const kvs_tokenizer *tokenizer;
  const unsigned char *text;
  size_t length;
  kvs_cuts *cuts;
  kvs_bpe bpe;
  int *ids; /* room for one id per byte: no text gives more */
  size_t count;
} encoding;

/* The bytes that the vocabulary has a token for, as ranges: "\n, >, a–z". */
static void list_bytes(const kvs_tokenizer *tokenizer, char *list, size_t size) {
  size_t at = 0;
  list[0] = '\0';
  for (int b = 0; b < 256; b++) {
    if (tokenizer->byte_token[b] < 0) continue;
    unsigned char first = (unsigned char)b;
    while (b < 255 && tokenizer->byte_token[b + 1] >= 0) b++;
    unsigned char last = (unsigned char)b;
    if (size - at < 32) { /* a range takes at most 16 bytes */
      strcpy(list + at, ", …");
      return;
    }
    if (at > 0) at += strlen(strcpy(list + at, ", "));
    at += kvs_token_text(&first, 1, list + at, size - at);
    if (last == first) continue;
    at += strlen(strcpy(list + at, "–"));
    at += kvs_token_text(&last, 1, list + at, size - at);
  }
}

static kvs_status refuse_byte(const encoding *e, size_t at, kvs_error *err) {
  /* The whole character is named, though it may be its second byte that has no token. */
  size_t start = at, length = 1;
  while (start > 0 && at - start < 3 && (e->text[start] & 0xC0) == 0x80) start--;
  kvs_utf8_unit unit = kvs_utf8_next(e->text + start, e->length - start);
  if (unit.kind == KVS_UTF8_CHARACTER && start + unit.length > at)
    length = unit.length;
  else
    start = at;
  char character[32], list[256];
  kvs_token_text(e->text + start, length, character, sizeof character);
  list_bytes(e->tokenizer, list, sizeof list);
  return kvs_fail(
      err, KVS_ERR_INPUT,
      "the text's byte %zu (%s, hexadecimal %02x) has no token in the vocabulary of %s, which has room for %s "
      "only: leave the character out, or use a model with a larger vocabulary",
      at, character, e->text[at], e->tokenizer->name, *list ? list : "no single byte");
}

static kvs_status encode_piece(encoding *e, size_t start, size_t end, kvs_error *err) {
  kvs_status status = kvs_bpe_reserve(&e->bpe, end - start, err);
  if (status) return status;
  for (size_t i = start; i < end; i++) {
    int id = e->tokenizer->byte_token[e->text[i]];
    if (id < 0) return refuse_byte(e, i, err);
    e->bpe.symbol[i - start].id = (uint32_t)id;
  }
  e->count += kvs_bpe_merge(&e->bpe, &e->tokenizer->merges, end - start, e->ids + e->count);
  return KVS_OK;
}

static kvs_status encode_plain(encoding *e, size_t start, size_t limit, kvs_error *err) {
  kvs_status status = KVS_OK;
  for (size_t end; !status && start < limit; start = end) {
    status = kvs_cuts_next(e->cuts, start, limit, &end, err);
    if (status) break;
    status = encode_piece(e, start, end, err);
  }
  return status;
}

/* The added token that begins at byte `at`: the longest, or NULL. */
static const kvs_added *added_at(const encoding *e, size_t at, bool allow_special) {
  const kvs_tokenizer *tokenizer = e->tokenizer;
  const size_t *from = &tokenizer->added_from[e->text[at]];
  for (size_t i = from[0]; i < from[1]; i++) {
    const kvs_added *added = &tokenizer->added[i];
    if ((!added->special || allow_special) && added->length <= e->length - at &&
        memcmp(e->text + at, added->bytes, added->length) == 0)
      return added;
  }
  return NULL;
}

static kvs_status encode_all(encoding *e, bool allow_special, kvs_error *err) {
  if (e->tokenizer->added_count == 0) return encode_plain(e, 0, e->length, err);
  size_t start = 0;
  for (size_t at = 0; at < e->length;) {
    const kvs_added *added = added_at(e, at, allow_special);
    if (!added) {
      at++;
      continue;
    }
    kvs_status status = encode_plain(e, start, at, err);
    if (status) return status;
    e->ids[e->count++] = added->id;
    at += added->length;
    start = at;
  }
  return encode_plain(e, start, e->length, err);
}

kvs_status kvs_tokenizer_encode(const kvs_tokenizer *tokenizer, const char *text, size_t length, bool allow_special,
                                int **tokens, size_t *count, kvs_error *err) {
  *tokens = NULL;
  *count = 0;
  if (length == 0) return KVS_OK;
  if (length > INT_MAX)
    return kvs_fail(err, KVS_ERR_USAGE, "a text of %zu bytes is more than can be encoded at once (%d): cut it in parts",
                    length, INT_MAX);
  encoding e = {.tokenizer = tokenizer, .text = (const unsigned char *)text, .length = length};
  e.ids = malloc(length * sizeof *e.ids);
  kvs_status status = e.ids ? KVS_OK : kvs_fail_memory(err, "encoding the text");
  if (!status) status = kvs_cuts_create(tokenizer->splitter, e.text, length, &e.cuts, err);
  if (!status) status = encode_all(&e, allow_special, err);
  kvs_cuts_free(e.cuts);
  kvs_bpe_free(&e.bpe);
  if (status) {
    free(e.ids);
    return status;
  }
  int *fitted = realloc(e.ids, e.count * sizeof *fitted); /* to give back what is not needed; it may refuse */
  *tokens = fitted ? fitted : e.ids;
  *count = e.count;
  return KVS_OK;
}
