/* scan.c: a quick reader for the one kind of JSON that every vocab.json is: an object of strings and small whole numbers.
 *
 * Building a tree of 50,000 values and taking it down again costs several times what all the rest of loading does, and
 * every start of the program would pay it. Whatever is not plainly of that kind, broken files above all, is left to the
 * JSON library, which also words the error: this reader only ever says "not plain". */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"
#include "text/utf8.h"

typedef struct cursor {
  const unsigned char *at, *end;
  char *out; /* where the next unescaped byte goes */
} cursor;

static void skip_blanks(cursor *c) {
  while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r')) c->at++;
}

static bool take(cursor *c, unsigned char wanted) {
  skip_blanks(c);
  if (c->at == c->end || *c->at != wanted) return false;
  c->at++;
  return true;
}

/* The four digits of \u00e9, for a character below U+0800 that is not NUL: GPT-2's spellings need no other. */
static bool take_unicode_escape(cursor *c) {
  unsigned code = 0;
  if (c->end - c->at < 4) return false;
  for (int i = 0; i < 4; i++) {
    unsigned char digit = *c->at++, lower = digit | 0x20;
    if (digit >= '0' && digit <= '9')
      code = code * 16 + (digit - '0');
    else if (lower >= 'a' && lower <= 'f')
      code = code * 16 + (lower - 'a' + 10u);
    else
      return false;
  }
  if (code == 0 || code >= 0x800) return false;
  if (code < 0x80)
    *c->out++ = (char)code;
  else {
    *c->out++ = (char)(0xC0 | code >> 6);
    *c->out++ = (char)(0x80 | (code & 0x3F));
  }
  return true;
}

static bool take_string(cursor *c, kvs_entry *entry) {
  if (!take(c, '"')) return false;
  entry->text = c->out;
  while (c->at < c->end && *c->at >= 0x20) {
    if (*c->at == '"') {
      c->at++;
      entry->length = (size_t)(c->out - entry->text);
      *c->out++ = '\0';
      return true;
    }
    if (*c->at == '\\') {
      c->at++;
      if (c->at == c->end) return false;
      unsigned char escape = *c->at++;
      if (escape == '"' || escape == '\\' || escape == '/')
        *c->out++ = (char)escape;
      else if (escape != 'u' || !take_unicode_escape(c))
        return false;
      continue;
    }
    kvs_utf8_unit unit = kvs_utf8_next(c->at, (size_t)(c->end - c->at));
    if (unit.kind != KVS_UTF8_CHARACTER) return false;
    memcpy(c->out, c->at, unit.length);
    c->out += unit.length;
    c->at += unit.length;
  }
  return false;
}

/* Digits alone, without a leading zero, below KVS_TOKEN_CAP; whatever follows them is the caller's to judge. */
static bool take_id(cursor *c, int *id) {
  skip_blanks(c);
  const unsigned char *first = c->at;
  for (*id = 0; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
    *id = *id * 10 + (*c->at - '0');
    if (*id >= KVS_TOKEN_CAP) return false;
  }
  return c->at > first && (*first != '0' || c->at - first == 1);
}

static bool scan(cursor *c, kvs_entries *entries, size_t room) {
  if (!take(c, '{')) return false;
  do {
    if (entries->count == room) return false;
    kvs_entry *entry = &entries->entry[entries->count++];
    if (!take_string(c, entry) || !take(c, ':') || !take_id(c, &entry->id)) return false;
    if (entry->id >= entries->size) entries->size = entry->id + 1;
    entries->spelt += entry->length;
  } while (take(c, ','));
  if (!take(c, '}')) return false;
  skip_blanks(c);
  return c->at == c->end;
}

bool kvs_entries_scan(const kvs_file *file, kvs_entries *out) {
  *out = (kvs_entries){0};
  size_t room = 0; /* every entry has a colon */
  const unsigned char *end = file->bytes + file->size;
  for (const unsigned char *c = file->bytes; (c = memchr(c, ':', (size_t)(end - c))); c++) room++;
  if (room == 0) return false;
  out->entry = malloc(room * sizeof *out->entry);
  out->text = malloc(file->size); /* no spelling is longer than its JSON, quotes and all */
  cursor c = {file->bytes, end, out->text};
  if (out->entry && out->text && scan(&c, out, room)) return true;
  kvs_entries_free(out);
  return false;
}

void kvs_entries_free(kvs_entries *entries) {
  free(entries->entry);
  free(entries->text);
  *entries = (kvs_entries){0};
}
