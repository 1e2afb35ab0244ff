/* split.c: GPT-2's split pattern, run by PCRE2.
 *
 * Two things differ from handing the published pattern to PCRE2 as it is:
 *
 * - \s is spelt out. GPT-2's encoder is Python with the `regex` module, where \s is Unicode's White_Space property.
 *   PCRE2's \s also takes U+180E, JavaScript's takes U+FEFF and leaves out U+0085: texts with one of these three are cut
 *   differently there. U+001C–U+001F are no blanks to any of them.
 * - The runs are possessive (`++`). Nothing follows them in the pattern, so they match the same, and no run, however
 *   long, can cost memory or meet a match limit.
 *
 * Bytes that are no UTF-8: the pattern runs over a copy of the text in which each of them is U+0001, one byte for one
 * byte. That makes such a byte a character of the class "other" (no blank, letter or digit), which may stand in one
 * piece with others of its class, and leaves every offset as it was. A valid text is not copied. */
#include "text/split.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "text/utf8.h"

#define BLANKS                                                                                                         \
  "\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

static const char pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}++| ?\\p{N}++| ?[^" BLANKS "\\p{L}\\p{N}]++|"
                              "[" BLANKS "]+(?![^" BLANKS "])|[" BLANKS "]++";

struct kvs_splitter {
  pcre2_code *code;
  pcre2_match_context *limits;
};

struct kvs_cuts {
  const kvs_splitter *splitter;
  pcre2_match_data *match;
  const unsigned char *text;
  unsigned char *copy; /* the text with its broken bytes replaced, or NULL */
};

kvs_status kvs_splitter_create(bool jit, kvs_splitter **out, kvs_error *err) {
  *out = NULL;
  kvs_splitter *splitter = calloc(1, sizeof *splitter);
  if (!splitter) return kvs_fail_memory(err, "compiling the split pattern");
  int error = 0;
  PCRE2_SIZE at = 0;
  splitter->code =
      pcre2_compile((PCRE2_SPTR)pattern, sizeof pattern - 1, PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &at, NULL);
  splitter->limits = pcre2_match_context_create(NULL);
  if (!splitter->code || !splitter->limits) {
    kvs_splitter_free(splitter);
    /* 121 is PCRE2's "out of memory" while compiling; anything else means a PCRE2 built without Unicode. */
    if (error == 100 || error == 121) return kvs_fail_memory(err, "compiling the split pattern");
    return kvs_fail(
        err, KVS_ERR_INPUT,
        "PCRE2 refuses GPT-2's split pattern (its error %d at %zu): kvstep needs a PCRE2 built with Unicode", error,
        (size_t)at);
  }
  pcre2_set_match_limit(splitter->limits, UINT32_MAX);
  pcre2_set_depth_limit(splitter->limits, UINT32_MAX);
  pcre2_set_heap_limit(splitter->limits, UINT32_MAX);
  /* A system may forbid memory that is both written and executed; PCRE2 then interprets the pattern. */
  if (jit) (void)pcre2_jit_compile(splitter->code, PCRE2_JIT_COMPLETE);
  *out = splitter;
  return KVS_OK;
}

void kvs_splitter_free(kvs_splitter *splitter) {
  if (!splitter) return;
  pcre2_code_free(splitter->code);
  pcre2_match_context_free(splitter->limits);
  free(splitter);
}

/* Where the first byte lies that is no UTF-8; `length` if there is none. */
static size_t first_broken(const unsigned char *text, size_t length) {
  size_t i = 0;
  while (i < length) {
    uint64_t eight;
    if (length - i >= sizeof eight) { /* plain ASCII, eight bytes at a time */
      memcpy(&eight, text + i, sizeof eight);
      if (!(eight & UINT64_C(0x8080808080808080))) {
        i += sizeof eight;
        continue;
      }
    }
    kvs_utf8_unit unit = kvs_utf8_next(text + i, length - i);
    if (unit.kind != KVS_UTF8_CHARACTER) return i;
    i += unit.length;
  }
  return length;
}

kvs_status kvs_cuts_create(const kvs_splitter *splitter, const unsigned char *text, size_t length, kvs_cuts **out,
                           kvs_error *err) {
  *out = NULL;
  kvs_cuts *cuts = calloc(1, sizeof *cuts);
  if (!cuts) return kvs_fail_memory(err, "splitting the text");
  cuts->splitter = splitter;
  cuts->text = text;
  cuts->match = pcre2_match_data_create_from_pattern(splitter->code, NULL);
  size_t broken = first_broken(text, length);
  if (broken < length) cuts->copy = malloc(length);
  if (!cuts->match || (broken < length && !cuts->copy)) {
    kvs_cuts_free(cuts);
    return kvs_fail_memory(err, "splitting the text");
  }
  if (cuts->copy) {
    memcpy(cuts->copy, text, length);
    for (size_t i = broken; i < length;) {
      kvs_utf8_unit unit = kvs_utf8_next(text + i, length - i);
      if (unit.kind != KVS_UTF8_CHARACTER) memset(cuts->copy + i, 0x01, unit.length);
      i += unit.length;
    }
    cuts->text = cuts->copy;
  }
  *out = cuts;
  return KVS_OK;
}

void kvs_cuts_free(kvs_cuts *cuts) {
  if (!cuts) return;
  pcre2_match_data_free(cuts->match);
  free(cuts->copy);
  free(cuts);
}

kvs_status kvs_cuts_next(kvs_cuts *cuts, size_t start, size_t limit, size_t *end, kvs_error *err) {
  /* NO_UTF_CHECK: kvs_cuts_create has seen to it, once; PCRE2 would check the whole rest again at each piece. */
  int result = pcre2_match(cuts->splitter->code, cuts->text, limit, start, PCRE2_NO_UTF_CHECK, cuts->match,
                           cuts->splitter->limits);
  if (result == PCRE2_ERROR_NOMEMORY) return kvs_fail_memory(err, "splitting the text");
  size_t matched_end = result > 0 ? pcre2_get_ovector_pointer(cuts->match)[1] : start;
  if (matched_end <= start) /* every character is in one of the pattern's classes, so this is PCRE2's own failure */
    return kvs_fail(err, KVS_ERR_INPUT, "the text cannot be split at byte %zu: PCRE2's error %d", start, result);
  *end = matched_end;
  return KVS_OK;
}
