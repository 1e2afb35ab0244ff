/* utf8.h (private): reading bytes as UTF-8, one character or one broken stretch at a time. */
#ifndef KVS_TEXT_UTF8_H
#define KVS_TEXT_UTF8_H

#include <stddef.h>
#include <stdint.h>

typedef enum kvs_utf8_kind {
  KVS_UTF8_CHARACTER, /* a well-formed character */
  KVS_UTF8_BROKEN,    /* a "maximal subpart" that no further byte can make a character (Unicode, chapter 3) */
  KVS_UTF8_CUT        /* the bytes end inside what may still become a character */
} kvs_utf8_kind;

typedef struct kvs_utf8_unit {
  kvs_utf8_kind kind;
  size_t length; /* bytes it takes up, at least 1 */
  uint32_t code; /* the code point of a character, else 0 */
} kvs_utf8_unit;

/* What `length` ≥ 1 bytes begin with. Well-formed is Unicode's table 3-7: no surrogates, no overlong forms, nothing
 * above U+10FFFF. */
kvs_utf8_unit kvs_utf8_next(const unsigned char *bytes, size_t length);

#endif
