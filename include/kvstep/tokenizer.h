/* tokenizer.h: GPT-2's byte-level byte-pair encoding, both ways, and how a token is shown to a person.
 *
 * Encoding: the text's bytes are cut into pieces by GPT-2's split pattern, each byte is a symbol, and in each piece the
 * adjacent pair with the lowest merge rank is joined again and again (Sennrich et al. 2016; Radford et al. 2019, §2.2).
 * Bytes that are no UTF-8 are encoded all the same: every byte has a symbol, and in the split pattern such a byte counts as
 * a character that is no blank, letter or digit. The pattern's \s is Unicode's White_Space, as in GPT-2's own encoder
 * (Python): texts with U+FEFF or U+0085 may get other ids from encoders written in JavaScript. For every byte string, the
 * bytes of its tokens, one after another, are that string.
 */
#ifndef KVSTEP_TOKENIZER_H
#define KVSTEP_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "kvstep/error.h"
#include "kvstep/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvs_tokenizer kvs_tokenizer;

/* Loads the tokenizer of `name`, a directory or a built-in model as in kvs_model_open: vocab.json + merges.txt, or
 * else tokenizer.json. The caller frees *out with kvs_tokenizer_free.
 * Errors: KVS_ERR_IO, KVS_ERR_INPUT (malformed, or not byte-level BPE), KVS_ERR_MEMORY. */
KVS_API kvs_status kvs_tokenizer_open(const char *name, kvs_tokenizer **out, kvs_error *err);
/* NULL is allowed. */
KVS_API void kvs_tokenizer_free(kvs_tokenizer *tokenizer);

/* Refuses (KVS_ERR_INPUT) a tokenizer that has ids without a row in the model's wte. */
KVS_API kvs_status kvs_tokenizer_fits(const kvs_tokenizer *tokenizer, const kvs_model *model, kvs_error *err);

/* Largest id + 1. An id below it may still have no token (a hole in vocab.json). */
KVS_API int kvs_tokenizer_size(const kvs_tokenizer *tokenizer);

/* The exact bytes of a token and how many there are; NULL and 0 for an id that has none. Owned by the tokenizer.
 * Not NUL-terminated, and not always whole characters. */
KVS_API const unsigned char *kvs_tokenizer_bytes(const kvs_tokenizer *tokenizer, int token, size_t *length);

/* Encodes `length` bytes of text (NUL bytes included) into *tokens, an array of *count ids that the caller frees with
 * free(). Special tokens (<|endoftext|>, and tokenizer.json's added tokens with the special flag) are recognised only if
 * allow_special; otherwise their letters are encoded as any others. Added tokens without the flag are always recognised;
 * of those that begin at the same place, the longest. Empty text gives count 0 and *tokens NULL.
 * Errors: KVS_ERR_INPUT (a byte for which a small vocabulary has no token: named with its offset), KVS_ERR_USAGE (more
 * than 2 GiB at once), KVS_ERR_MEMORY. */
KVS_API kvs_status kvs_tokenizer_encode(const kvs_tokenizer *tokenizer, const char *text, size_t length,
                                        bool allow_special, int **tokens, size_t *count, kvs_error *err);

/* How a token's bytes are shown on one line. A blank is `␠` (U+2420) where it leads, ends or is next to another, so that a
 * run can be counted; only a single blank between two other characters stays as it is. Newline, carriage return, tab and
 * backslash are `\n`, `\r`, `\t`, `\\`; other control characters `\x1b`; what leaves no mark or moves others about (C1
 * controls, no-break and other wide or narrow blanks, joiners, direction controls, tags, noncharacters) `\u202e` or
 * `\U000e0067`; bytes that are no UTF-8 `<E6><AD>`. All else, combining marks too, is passed on. Writes at most `size` bytes with the NUL, cut at a
 * character; returns the length that the whole would have, like snprintf. Every byte sequence has a printable form. */
KVS_API size_t kvs_token_text(const unsigned char *bytes, size_t length, char *text, size_t size);

/* A stream of tokens' bytes that never cuts a character in two: a possible beginning of a UTF-8 character at the end of
 * what was pushed is held back until its rest comes; bytes that can be no character are replaced by U+FFFD. */
typedef struct kvs_utf8_stream {
  unsigned char held[4];
  int held_count;
} kvs_utf8_stream;

/* Pushes bytes; writes the text that is ready to `text`, which must have room for 3·(length + 3) + 1 bytes, NUL-terminates it and
 * returns how many bytes it wrote (NUL bytes of the text are kept). Start with a zeroed stream. */
KVS_API size_t kvs_utf8_push(kvs_utf8_stream *stream, const unsigned char *bytes, size_t length, char *text);

/* Ends the stream: an incomplete tail comes out as one U+FFFD. `text` needs 4 bytes. Returns the bytes written. */
KVS_API size_t kvs_utf8_flush(kvs_utf8_stream *stream, char *text);

#ifdef __cplusplus
}
#endif

#endif
