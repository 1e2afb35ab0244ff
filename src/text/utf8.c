/* utf8.c: reading bytes as UTF-8, and the stream that never cuts a character in two. */
#include "text/utf8.h"

#include <string.h>

#include "kvstep/tokenizer.h"

/* The range that the second byte must lie in, and how many bytes follow the first: Unicode's table 3-7 by its rows. */
static size_t lead(unsigned char first, unsigned char *low, unsigned char *high) {
  *low = 0x80;
  *high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) return 1;
  if (first >= 0xE0 && first <= 0xEF) {
    if (first == 0xE0) *low = 0xA0;  /* below: overlong */
    if (first == 0xED) *high = 0x9F; /* above: surrogates */
    return 2;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (first == 0xF0) *low = 0x90;  /* below: overlong */
    if (first == 0xF4) *high = 0x8F; /* above: past U+10FFFF */
    return 3;
  }
  return 0;
}

kvs_utf8_unit kvs_utf8_next(const unsigned char *bytes, size_t length) {
  if (bytes[0] < 0x80) return (kvs_utf8_unit){KVS_UTF8_CHARACTER, 1, bytes[0]};
  unsigned char low, high;
  size_t follow = lead(bytes[0], &low, &high);
  if (follow == 0) return (kvs_utf8_unit){KVS_UTF8_BROKEN, 1, 0};
  uint32_t code = bytes[0] & (0x3Fu >> follow);
  for (size_t i = 1; i <= follow; i++) {
    if (i == length) return (kvs_utf8_unit){KVS_UTF8_CUT, length, 0};
    if (bytes[i] < low || bytes[i] > high) return (kvs_utf8_unit){KVS_UTF8_BROKEN, i, 0};
    code = code << 6 | (bytes[i] & 0x3Fu);
    low = 0x80;
    high = 0xBF;
  }
  return (kvs_utf8_unit){KVS_UTF8_CHARACTER, follow + 1, code};
}

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

/* Writes out what the held bytes decide so far; what is left is empty or a character's beginning. */
static size_t settle(kvs_utf8_stream *stream, char *text) {
  size_t written = 0;
  while (stream->held_count > 0) {
    kvs_utf8_unit unit = kvs_utf8_next(stream->held, (size_t)stream->held_count);
    if (unit.kind == KVS_UTF8_CUT) break;
    if (unit.kind == KVS_UTF8_CHARACTER) {
      memcpy(text + written, stream->held, unit.length);
      written += unit.length;
    } else {
      memcpy(text + written, replacement, 3);
      written += 3;
    }
    stream->held_count -= (int)unit.length;
    memmove(stream->held, stream->held + unit.length, (size_t)stream->held_count);
  }
  return written;
}

size_t kvs_utf8_push(kvs_utf8_stream *stream, const unsigned char *bytes, size_t length, char *text) {
  size_t written = 0;
  for (size_t i = 0; i < length; i++) {
    stream->held[stream->held_count++] = bytes[i];
    written += settle(stream, text + written);
  }
  text[written] = '\0';
  return written;
}

size_t kvs_utf8_flush(kvs_utf8_stream *stream, char *text) {
  size_t written = 0;
  if (stream->held_count > 0) {
    memcpy(text, replacement, 3);
    written = 3;
  }
  stream->held_count = 0;
  text[written] = '\0';
  return written;
}
