/* tokenizer.h (private): what a loaded tokenizer is made of, and the steps of loading one. */
#ifndef KVS_TEXT_TOKENIZER_H
#define KVS_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "kvstep/tokenizer.h"
#include "model/dir.h"
#include "model/json.h"
#include "text/bpe.h"
#include "text/split.h"

/* Ids are below this. It is far above any vocabulary in use, and keeps one wild id from taking the memory. */
#define KVS_TOKEN_CAP (1 << 22)

/* A token's exact bytes; NULL for a hole. */
typedef struct kvs_token {
  const unsigned char *bytes;
  size_t length;
} kvs_token;

/* A token that is found in the text as it stands, before the text is split. */
typedef struct kvs_added {
  unsigned char *bytes; /* its own copy */
  size_t length;        /* at least 1 */
  int id;
  bool special; /* only where the caller allows it */
} kvs_added;

struct kvs_tokenizer {
  char *name;           /* for messages */
  kvs_token *token;     /* [size] */
  int size;             /* largest id + 1 */
  unsigned char *bytes; /* where the vocabulary's tokens point to */
  int byte_token[256];  /* the token of each single byte, or -1 */
  kvs_merges merges;
  kvs_added *added; /* [added_count] by first byte, the longest first: the order in which they are tried */
  size_t added_count;
  size_t added_from[257]; /* those that begin with byte b are added[added_from[b] .. added_from[b+1]-1] */
  kvs_splitter *splitter;
};

/* A token as vocab.json spells it, with one character for each byte. Points into the JSON document. */
typedef struct kvs_key {
  const char *text; /* NULL for a hole */
  size_t length;
} kvs_key;

/* The vocabulary while it is being loaded: from a spelling to its id. */
typedef struct kvs_vocab {
  kvs_key *key; /* [tokenizer->size] */
  int *slot;    /* open addressing: an id, or -1 */
  size_t mask;
} kvs_vocab;

/* A token's spelling in quotes' stead: at most 60 bytes of it, fit for a message. */
typedef struct kvs_shown {
  char text[64];
} kvs_shown;
kvs_shown kvs_show(const char *text, size_t length);

/* One token of a vocabulary as its file gives it. */
typedef struct kvs_entry {
  const char *text; /* NUL-terminated, in the JSON document or in kvs_entries.text */
  size_t length;
  int id;
} kvs_entry;

typedef struct kvs_entries {
  kvs_entry *entry;
  size_t count;
  int size;     /* largest id + 1 */
  size_t spelt; /* bytes of all spellings */
  char *text;   /* NULL where the spellings lie in a JSON document, which must then stay */
} kvs_entries;

/* Reads a vocab.json that is plain (scan.c); false if it is not, or there is no memory. Does not look for duplicates. */
bool kvs_entries_scan(const kvs_file *file, kvs_entries *out);
/* Takes the entries from a JSON object, and refuses ids that make no sense. `path` and `place` (", model.vocab", or "")
 * are for messages. *out is freed by kvs_entries_free also on failure. */
kvs_status kvs_entries_from_json(const json_t *vocab, const char *path, const char *place, kvs_entries *out,
                                 kvs_error *err);
void kvs_entries_free(kvs_entries *entries);

/* Fills in tokens, bytes and byte_token. `entries` must stay as long as *out, which is freed by kvs_vocab_free also on
 * failure. Refuses two tokens with one id, and one token twice. */
kvs_status kvs_vocab_load(kvs_tokenizer *tokenizer, const kvs_entries *entries, const char *path, const char *place,
                          kvs_vocab *out, kvs_error *err);
void kvs_vocab_free(kvs_vocab *vocab);
/* The id of a spelling (its two parts side by side), or -1. */
int kvs_vocab_find(const kvs_vocab *vocab, kvs_key left, kvs_key right);

/* Adds one merge. `path`, `unit` ("line", "model.merges entry") and `number` say where it stands. */
kvs_status kvs_merge_load(kvs_tokenizer *tokenizer, const kvs_vocab *vocab, kvs_key left, kvs_key right, uint32_t rank,
                          const char *path, const char *unit, size_t number, kvs_error *err);
/* Splits "left right" at its only blank; false if it is anything else. */
bool kvs_merge_parts(const char *text, size_t length, kvs_key *left, kvs_key *right);
/* Reads merges.txt. */
kvs_status kvs_merges_load(kvs_tokenizer *tokenizer, const kvs_vocab *vocab, const kvs_file *file, kvs_error *err);

/* Adds a token that is found in the text as it stands; the id's token must be there already. */
kvs_status kvs_added_put(kvs_tokenizer *tokenizer, const void *bytes, size_t length, int id, bool special,
                         kvs_error *err);
/* Puts them in the order in which they are tried; once, at the end. */
void kvs_added_sort(kvs_tokenizer *tokenizer);

/* Reads tokenizer.json. */
kvs_status kvs_tokenizer_json_load(kvs_tokenizer *tokenizer, const kvs_file *file, kvs_error *err);

#endif
