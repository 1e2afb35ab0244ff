/* show.c: how a token's bytes are shown to a person, on one line and without moving the cursor. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "kvstep/tokenizer.h"
#include "text/utf8.h"

/* Code points that leave no mark of their own, or move others about: shown as escapes. Combining marks are not among
 * them; they belong to the letter before. The joiners U+200B–200D are: joined or not, an emoji is then as wide as it
 * looks in any terminal, and a token that is one lone joiner can be seen. */
static const struct {
  uint32_t first, last;
} invisible[] = {
    {0x0080, 0x00A0},   /* C1 controls, no-break space */
    {0x00AD, 0x00AD},   /* soft hyphen */
    {0x061C, 0x061C},   /* Arabic letter mark */
    {0x1680, 0x1680},   /* Ogham blank */
    {0x180E, 0x180E},   /* Mongolian vowel separator */
    {0x2000, 0x200F},   /* blanks of many widths, joiners, direction marks */
    {0x2028, 0x202F},   /* line and paragraph separator, direction overrides, narrow no-break space */
    {0x205F, 0x206F},   /* mathematical blank, word joiner, direction isolates */
    {0x3000, 0x3000},   /* ideographic blank */
    {0xFDD0, 0xFDEF},   /* noncharacters */
    {0xFEFF, 0xFEFF},   /* byte order mark */
    {0xFFF9, 0xFFFB},   /* interlinear annotation */
    {0xFFFE, 0xFFFF},   /* noncharacters */
    {0x1D173, 0x1D17A}, /* musical controls */
    {0xE0000, 0xE007F}, /* tags */
};

static int is_invisible(uint32_t code) {
  if ((code & 0xFFFE) == 0xFFFE) return 1; /* the last two of every plane are noncharacters */
  for (size_t i = 0; i < sizeof invisible / sizeof *invisible; i++)
    if (code >= invisible[i].first && code <= invisible[i].last) return 1;
  return 0;
}

/* The line being written: whole units only, so that a cut falls between two of them. */
typedef struct shown_line {
  char *text;
  size_t size, written, whole;
} shown_line;

static void put(shown_line *line, const char *unit, size_t length) {
  /* By the whole's length, not by what was written: once one unit did not fit, none after it does. */
  if (line->whole + length < line->size) {
    memcpy(line->text + line->written, unit, length);
    line->written += length;
  }
  line->whole += length;
}

static void put_character(shown_line *line, const unsigned char *bytes, kvs_utf8_unit unit) {
  char escape[16] = "";
  if (unit.code == '\n')
    strcpy(escape, "\\n");
  else if (unit.code == '\t')
    strcpy(escape, "\\t");
  else if (unit.code == '\r')
    strcpy(escape, "\\r");
  else if (unit.code == '\\')
    strcpy(escape, "\\\\");
  else if (unit.code < 0x20 || unit.code == 0x7F)
    snprintf(escape, sizeof escape, "\\x%02x", (unsigned)unit.code);
  else if (is_invisible(unit.code))
    snprintf(escape, sizeof escape, unit.code > 0xFFFF ? "\\U%08x" : "\\u%04x", (unsigned)unit.code);
  if (*escape)
    put(line, escape, strlen(escape));
  else
    put(line, (const char *)bytes, unit.length);
}

size_t kvs_token_text(const unsigned char *bytes, size_t length, char *text, size_t size) {
  shown_line line = {text, size, 0, 0};
  for (size_t i = 0; i < length;) {
    if (bytes[i] == ' ') {
      int alone_inside = i > 0 && i + 1 < length && bytes[i - 1] != ' ' && bytes[i + 1] != ' ';
      put(&line, alone_inside ? " " : "\xE2\x90\xA0", alone_inside ? 1 : 3);
      i++;
      continue;
    }
    kvs_utf8_unit unit = kvs_utf8_next(bytes + i, length - i);
    if (unit.kind == KVS_UTF8_CHARACTER) put_character(&line, bytes + i, unit);
    for (size_t j = 0; unit.kind != KVS_UTF8_CHARACTER && j < unit.length; j++) {
      char hex[8];
      put(&line, hex, (size_t)snprintf(hex, sizeof hex, "<%02X>", bytes[i + j]));
    }
    i += unit.length;
  }
  if (size > 0) text[line.written] = '\0';
  return line.whole;
}
