/* test_error.c: an error's message is one line of printable UTF-8, whatever was put into it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kvstep/error.h"

static const char *shown(const char *argument) {
  static kvs_error err;
  assert_int_equal(kvs_fail(&err, KVS_ERR_INPUT, "[%s]", argument), KVS_ERR_INPUT);
  assert_int_equal(err.status, KVS_ERR_INPUT);
  return err.message;
}

static void characters_stay(void **state) {
  (void)state;
  assert_string_equal(shown("a é ␠ 😀 \xC2\xA0"), "[a é ␠ 😀 \xC2\xA0]");
  /* The first and the last of each length, and those beside the surrogates. */
  assert_string_equal(shown("\u07ff\u0800\u0e01\ud7ff\ue000\uffff\U00010000\U0010ffff"),
                      "[\u07ff\u0800\u0e01\ud7ff\ue000\uffff\U00010000\U0010ffff]");
}

static void what_moves_the_cursor_is_replaced(void **state) {
  (void)state;
  assert_string_equal(shown("a\nb\tc\x1b[2J\x7f"), "[a?b?c?[2J?]");
  assert_string_equal(shown("\xC2\x9B"
                            "2J"),
                      "[??2J]"); /* C1's one-character form of ESC [ */
}

static void bytes_that_are_no_utf8_are_replaced(void **state) {
  (void)state;
  assert_string_equal(shown("\xFF\x80"), "[??]");
  assert_string_equal(shown("\xC0\xAF"), "[??]");              /* overlong */
  assert_string_equal(shown("\xE0\x80\xAF"), "[???]");         /* overlong */
  assert_string_equal(shown("\xED\xA0\x80"), "[???]");         /* a surrogate */
  assert_string_equal(shown("\xF4\x90\x80\x80"), "[????]");    /* past U+10FFFF */
  assert_string_equal(shown("\xF0\x9F\x98"), "[???]");         /* cut short */
  assert_string_equal(shown("\xE2\x90\xE2\x90\xA0"), "[??␠]"); /* cut short before a whole one */
}

static void a_format_that_cuts_a_character_leaves_no_half(void **state) {
  (void)state;
  kvs_error err;
  kvs_fail(&err, KVS_ERR_INPUT, "%.4s:", "xéé");
  assert_string_equal(err.message, "xé?:");
}

static void a_long_message_is_cut_at_a_character(void **state) {
  (void)state;
  char text[2000];
  for (size_t i = 0; i + 3 <= sizeof text; i += 3) memcpy(text + i, "␠", 3);
  text[1998] = '\0';
  const char *message = shown(text);
  assert_int_equal(strlen(message), 1 + 340 * 3); /* 1,023 bytes are there; the 341st would need 1,024 */
  assert_null(strchr(message, '?'));
}

static void no_error_to_fill_is_allowed(void **state) {
  (void)state;
  assert_int_equal(kvs_fail(NULL, KVS_ERR_IO, "%s", "x"), KVS_ERR_IO);
  assert_int_equal(kvs_fail_memory(NULL, "x"), KVS_ERR_MEMORY);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(characters_stay),
      cmocka_unit_test(what_moves_the_cursor_is_replaced),
      cmocka_unit_test(bytes_that_are_no_utf8_are_replaced),
      cmocka_unit_test(a_format_that_cuts_a_character_leaves_no_half),
      cmocka_unit_test(a_long_message_is_cut_at_a_character),
      cmocka_unit_test(no_error_to_fill_is_allowed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
