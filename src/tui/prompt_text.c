/* prompt_text.c: bytes to a line with visible escapes, and back. */
#include "tui/prompt_text.h"

#include <stdio.h>
#include <string.h>

#include "text/utf8.h"

static const struct { char byte, letter; } escapes[] = {{'\n', 'n'}, {'\t', 't'}, {'\r', 'r'}, {'\\', '\\'}};
#define ESCAPES (sizeof escapes / sizeof *escapes)

static bool is_plain(kvs_utf8_unit unit) {
  return unit.kind == KVS_UTF8_CHARACTER && unit.code >= 0x20 && unit.code != 0x7F && unit.code != '\\' &&
         !(unit.code >= 0x80 && unit.code < 0xA0);
}

/* One byte as its escape; returns its length. */
static size_t escape(unsigned char byte, char text[5]) {
  for (size_t i = 0; i < ESCAPES; i++)
    if ((unsigned char)escapes[i].byte == byte) return (size_t)snprintf(text, 5, "\\%c", escapes[i].letter);
  return (size_t)snprintf(text, 5, "\\x%02X", byte);
}

bool prompt_show(const char *bytes, size_t length, char *line, size_t size) {
  size_t used = 0;
  for (size_t at = 0, taken; at < length; at += taken) {
    kvs_utf8_unit unit = kvs_utf8_next((const unsigned char *)bytes + at, length - at);
    char escaped[5];
    bool plain = is_plain(unit);
    taken = plain ? (size_t)unit.length : 1;
    const char *text = plain ? bytes + at : escaped;
    size_t count = plain ? taken : escape((unsigned char)bytes[at], escaped);
    if (used + count >= size) {
      line[0] = '\0';
      return false;
    }
    memcpy(line + used, text, count);
    used += count;
  }
  line[used] = '\0';
  return true;
}

static int digit(char c) {
  const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;
  return at ? (int)(at - digits) : -1;
}

/* The byte of the escape after a backslash; *taken: its length with the backslash, 0 where it means nothing. */
static char unescape(const char *text, size_t *taken) {
  *taken = 0;
  if (text[1] == 'x' && digit(text[2]) >= 0 && digit(text[3]) >= 0) {
    *taken = 4;
    return (char)(digit(text[2]) << 4 | digit(text[3]));
  }
  for (size_t i = 0; i < ESCAPES; i++) {
    if (escapes[i].letter != text[1]) continue;
    *taken = 2;
    return escapes[i].byte;
  }
  return 0;
}

int prompt_read(const char *line, char *bytes, size_t *length) {
  *length = 0;
  for (size_t at = 0, taken; line[at]; at += taken) {
    taken = 1;
    char byte = line[at] == '\\' ? unescape(line + at, &taken) : line[at];
    if (taken == 0) return (int)at;
    bytes[(*length)++] = byte;
  }
  return -1;
}
