/* test_token_text.c: how a token's bytes are shown, and the stream that never cuts a character in two. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kvstep/tokenizer.h"

static void test_token_text(void **state) {
  (void)state;
  static const struct {
    const char *bytes;
    size_t length;
    const char *shown;
  } cases[] = {
      {"", 0, ""},
      {" ", 1, "␠"},
      {" the", 4, "␠the"},
      {"a b", 3, "a b"},
      {"a  b ", 5, "a␠␠b␠"},
      {"\n\t\r\0\x1b\x7f", 6, "\\n\\t\\r\\x00\\x1b\\x7f"},
      {"\\n", 2, "\\\\n"},
      {"\xC2\x85\xC2\xA0\xE3\x80\x80", 7, "\\u0085\\u00a0\\u3000"},
      {"\xE2\x80\xAE\xEF\xBB\xBF\xE2\x81\xA6\xE2\x80\x8F\xE2\x80\xA9", 15, "\\u202e\\ufeff\\u2066\\u200f\\u2029"},
      {"\xF3\xA0\x81\xA7\xF0\x9F\xBF\xBF", 8, "\\U000e0067\\U0001ffff"},
      {"\xE6\xAD", 2, "<E6><AD>"},
      {"\xADo\xFF", 3, "<AD>o<FF>"},
      {"\xED\xA0\x80", 3, "<ED><A0><80>"},
      {"e\xCC\x81\xE4\xB8\xAD\xF0\x9F\x98\x80", 10, "e\xCC\x81中😀"},
      {"\xEF\xBF\xBD", 3, "\xEF\xBF\xBD"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[128];
    size_t whole = strlen(cases[i].shown);
    const unsigned char *bytes = (const unsigned char *)cases[i].bytes;
    assert_int_equal(kvs_token_text(bytes, cases[i].length, text, sizeof text), whole);
    assert_string_equal(text, cases[i].shown);
    for (size_t size = 0; size <= whole; size++) { /* cut: a beginning of the whole, and no half character */
      memset(text, '~', sizeof text);
      assert_int_equal(kvs_token_text(bytes, cases[i].length, text, size), whole);
      assert_int_equal(text[size], '~');
      if (size == 0) continue;
      assert_true(strlen(text) < size);
      assert_memory_equal(text, cases[i].shown, strlen(text));
      assert_true((cases[i].shown[strlen(text)] & 0xC0) != 0x80);
    }
  }
}

/* Pushes in parts of `step` bytes, then flushes. */
static void assert_stream(const char *bytes, size_t length, size_t step, const char *expected) {
  kvs_utf8_stream stream = {{0}, 0};
  char text[256];
  size_t written = 0;
  for (size_t i = 0; i < length; i += step) {
    size_t part = length - i < step ? length - i : step, held = (size_t)stream.held_count;
    size_t ready = kvs_utf8_push(&stream, (const unsigned char *)bytes + i, part, text + written);
    assert_true(held <= 3 && ready <= 3 * (part + 3));
    assert_int_equal(text[written += ready], '\0');
  }
  written += kvs_utf8_flush(&stream, text + written);
  assert_int_equal(written, strlen(expected));
  assert_string_equal(text, expected);
  assert_int_equal(stream.held_count, 0);
}

#define R "\xEF\xBF\xBD"

static void test_stream(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"plain", "plain"},
      {"\xF0\x9F\x98\x80 \xE4\xB8\xAD", "😀 中"},
      /* The Unicode Standard, tables 3-8 to 3-11: overlong forms, surrogates, other ill-formed, truncated. */
      {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", R R R R R R R R "A"},
      {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", R R R R R R R R "A"},
      {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", R R R R R "A" R R "B"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", R R R R "A"},
      {"a\xF0\x9F\x98", "a" R}, /* an incomplete tail is one replacement */
      {"\xE4\xB8\xE4\xB8\xAD", R "中"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (size_t step = 1; step <= 16; step++) assert_stream(cases[i][0], strlen(cases[i][0]), step, cases[i][1]);
}

/* Each of Unicode's characters comes through as it is, and nothing that is encoded like one but is none. RFC 3629's formula. */
static void test_every_character(void **state) {
  (void)state;
  for (unsigned code = 0x80; code <= 0x110000; code++) {
    char bytes[5] = {0}, text[24];
    int length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--) bytes[i] = (char)(0x80 | (code >> 6 * (length - 1 - i) & 0x3F));
    bytes[0] = (char)((0xF00 >> length & 0xFF) | code >> 6 * (length - 1));
    bool character = code < 0x110000 && (code < 0xD800 || code > 0xDFFF);
    kvs_utf8_stream stream = {{0}, 0};
    size_t written = kvs_utf8_push(&stream, (const unsigned char *)bytes, (size_t)length, text);
    written += kvs_utf8_flush(&stream, text + written);
    if ((strcmp(text, bytes) == 0) != character || (!character && written != 3 * (size_t)length))
      fail_msg("U+%04X comes out as %s", code, text);
  }
}

static void test_stream_holds_back(void **state) {
  (void)state;
  kvs_utf8_stream stream = {{0}, 0};
  char text[64];
  /* GPT-2's two tokens for this emoji are F0 9F 98 and 80. */
  assert_int_equal(kvs_utf8_push(&stream, (const unsigned char *)"\xF0\x9F\x98", 3, text), 0);
  assert_string_equal(text, "");
  assert_int_equal(kvs_utf8_push(&stream, (const unsigned char *)"\x80", 1, text), 4);
  assert_string_equal(text, "😀");
  assert_int_equal(kvs_utf8_push(&stream, (const unsigned char *)"a\0b", 3, text), 3);
  assert_memory_equal(text, "a\0b", 4);
  assert_int_equal(kvs_utf8_flush(&stream, text), 0);
  assert_string_equal(text, "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_token_text),
      cmocka_unit_test(test_stream),
      cmocka_unit_test(test_every_character),
      cmocka_unit_test(test_stream_holds_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
