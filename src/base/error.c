/* error.c: filling in a kvs_error. */
#include "kvstep/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
  for (unsigned char *c = (unsigned char *)err->message; *c; c++) {
    if (c[0] == 0xC2 && c[1] >= 0x80 && c[1] < 0xA0) *c++ = '?', *c = '?'; /* a C1 control: U+0080 to U+009F */
    if (*c < 0x20 || *c == 0x7F) *c = '?';
  }
  return status;
}

kvs_status kvs_fail_memory(kvs_error *err, const char *doing) {
  return kvs_fail(err, KVS_ERR_MEMORY, "out of memory while %s", doing);
}
