/* added.c: tokens that are found in the text as it stands, such as <|endoftext|>. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

kvs_status kvs_added_put(kvs_tokenizer *tokenizer, const void *bytes, size_t length, int id, bool special,
                         kvs_error *err) {
  kvs_added *added = realloc(tokenizer->added, (tokenizer->added_count + 1) * sizeof *added);
  if (added) tokenizer->added = added;
  unsigned char *copy = malloc(length + 1);
  if (!added || !copy) {
    free(copy);
    return kvs_fail_memory(err, "reading the added tokens");
  }
  memcpy(copy, bytes, length);
  added[tokenizer->added_count++] = (kvs_added){copy, length, id, special};
  return KVS_OK;
}

static int by_first_byte_then_longest(const void *a, const void *b) {
  const kvs_added *x = a, *y = b;
  if (x->bytes[0] != y->bytes[0]) return x->bytes[0] < y->bytes[0] ? -1 : 1;
  if (x->length != y->length) return x->length > y->length ? -1 : 1;
  return memcmp(x->bytes, y->bytes, x->length);
}

void kvs_added_sort(kvs_tokenizer *tokenizer) {
  if (tokenizer->added_count > 0)
    qsort(tokenizer->added, tokenizer->added_count, sizeof *tokenizer->added, by_first_byte_then_longest);
  size_t i = 0;
  for (int b = 0; b < 256; b++) {
    tokenizer->added_from[b] = i;
    while (i < tokenizer->added_count && tokenizer->added[i].bytes[0] == b) i++;
  }
  tokenizer->added_from[256] = i;
}
