/* error.c: filling in a kvs_error. */
#include "kvstep/error.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

/* How many bytes the UTF-8 character at `s` has; 0 if there is none, or one that could move the cursor: C0, DEL, C1. */
static int printable(const unsigned char *s) {
  if (s[0] < 0x80) return s[0] >= 0x20 && s[0] != 0x7F;
  int length = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
  if (s[0] < 0xC2 || s[0] > 0xF4) return 0;
  for (int i = 1; i < length; i++)
    if ((s[i] & 0xC0) != 0x80) return 0; /* the text's NUL ends this as well */
  bool overlong = (s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xF0 && s[1] < 0x90);
  bool outside = (s[0] == 0xED && s[1] > 0x9F) || (s[0] == 0xF4 && s[1] > 0x8F);
  bool control = s[0] == 0xC2 && s[1] < 0xA0;
  return overlong || outside || control ? 0 : length;
}

/* Names come from files, and formats such as %.120s cut them anywhere: what is no printable UTF-8 becomes `?`. */
static void make_printable(char *text) {
  for (unsigned char *s = (unsigned char *)text; *s;) {
    int length = printable(s);
    if (length == 0) *s = '?';
    s += length ? length : 1;
  }
}

/* A cut at the buffer's end may fall inside a UTF-8 character: take its beginning off as well. */
static void drop_partial_character(char *text, size_t length) {
  size_t lead = length;
  while (lead > 0 && ((unsigned char)text[lead - 1] & 0xC0) == 0x80) lead--;
  if (lead == 0) return;
  unsigned char c = (unsigned char)text[lead - 1];
  size_t need = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
  if (length - (lead - 1) < need) text[lead - 1] = '\0';
}

kvs_status kvs_fail(kvs_error *err, kvs_status status, const char *format, ...) {
  if (!err) return status;
  err->status = status;
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(err->message, sizeof err->message, format, arguments);
  va_end(arguments);
  if (length >= (int)sizeof err->message) drop_partial_character(err->message, sizeof err->message - 1);
  make_printable(err->message);
  return status;
}

kvs_status kvs_fail_memory(kvs_error *err, const char *doing) {
  return kvs_fail(err, KVS_ERR_MEMORY, "out of memory while %s", doing);
}
