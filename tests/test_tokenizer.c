/* test_tokenizer.c: ids against GPT-2's own, the exact way back, and hostile files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "kvstep/tokenizer.h"
#include "model/weights.h"
#include "tests/support/random.h"
#include "tests/support/scratch.h"
#include "text/split.h"
#include "text/tokenizer.h"

#define FIXTURE "tests/fixtures/tokenizer"
#define MEGABYTE ((size_t)1 << 20)

/* ---- help -------------------------------------------------------------------------------------------------------- */

static kvs_tokenizer *open_or_fail(const char *name) {
  kvs_error err;
  kvs_tokenizer *tokenizer;
  if (kvs_tokenizer_open(name, &tokenizer, &err)) fail_msg("%s", err.message);
  return tokenizer;
}

/* A folder of small files; a NULL is left out. */
static void fill_folder(const char *const content[3]) {
  static const char *const names[] = {"vocab.json", "merges.txt", "tokenizer.json"};
  assert_int_equal(make_folder(NULL), 0);
  for (int i = 0; i < 3; i++)
    if (content[i]) write_file(in_folder(names[i]), content[i], strlen(content[i]));
}

static kvs_tokenizer *open_small(const char *vocab, const char *merges, const char *json) {
  fill_folder((const char *const[]){vocab, merges, json});
  kvs_tokenizer *tokenizer = open_or_fail(folder);
  assert_int_equal(remove_folder(NULL), 0);
  return tokenizer;
}

/* The ids as a line, "1 2 3", or the error's message. */
static const char *ids_of(const kvs_tokenizer *tokenizer, const char *text, size_t length, bool special) {
  static char line[8192];
  kvs_error err;
  int *ids;
  size_t count, at = 0;
  line[0] = '\0';
  if (kvs_tokenizer_encode(tokenizer, text, length, special, &ids, &count, &err)) {
    snprintf(line, sizeof line, "%s", err.message);
    return line;
  }
  for (size_t i = 0; i < count && at < sizeof line - 16; i++)
    at += (size_t)snprintf(line + at, 16, "%s%d", i ? " " : "", ids[i]);
  free(ids);
  return line;
}

#define assert_ids(tokenizer, text, special, expected)                                                                 \
  assert_string_equal(ids_of(tokenizer, text, strlen(text), special), expected)

static void assert_round_trip(const kvs_tokenizer *tokenizer, const char *text, size_t length) {
  int *ids;
  size_t count, at = 0;
  kvs_error err;
  if (kvs_tokenizer_encode(tokenizer, text, length, true, &ids, &count, &err)) fail_msg("%s", err.message);
  for (size_t i = 0; i < count; i++) {
    size_t size;
    const unsigned char *bytes = kvs_tokenizer_bytes(tokenizer, ids[i], &size);
    assert_non_null(bytes);
    assert_true(size <= length - at);
    assert_memory_equal(bytes, text + at, size);
    at += size;
  }
  assert_int_equal(at, length);
  free(ids);
}

/* ---- against GPT-2 ------------------------------------------------------------------------------------------------ */

typedef void (*visit)(const void *context, const char *text, size_t length, const char *ids);

/* Calls back for each line of strings.tsv (how it is made: make.mjs). Returns how many. */
static int each_string(visit call, const void *context) {
  FILE *file = fopen(FIXTURE "/strings.tsv", "r");
  assert_non_null(file);
  static char line[1 << 16], text[1 << 15];
  int count = 0;
  while (fgets(line, sizeof line, file)) {
    char *hex = strchr(line, '\t') + 1, *ids = strchr(hex, '\t') + 1;
    size_t length = (size_t)(ids - hex - 1) / 2;
    for (size_t i = 0; i < length; i++) {
      unsigned byte;
      assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
      text[i] = (char)byte;
    }
    ids[strcspn(ids, "\n")] = '\0';
    call(context, text, length, ids);
    count++;
  }
  fclose(file);
  return count;
}

static void check_string(const void *tokenizer, const char *text, size_t length, const char *ids) {
  const char *got = ids_of(tokenizer, text, length, false);
  char shown[512];
  kvs_token_text((const unsigned char *)text, length, shown, sizeof shown);
  if (strcmp(got, ids) != 0) fail_msg("\"%s\": expected %s, got %s", shown, ids, got);
  assert_round_trip(tokenizer, text, length);
}

static void test_gpt2_strings(void **state) {
  (void)state;
  kvs_tokenizer *tokenizer = open_or_fail(FIXTURE);
  assert_true(each_string(check_string, tokenizer) >= 2000);
  assert_int_equal(kvs_tokenizer_size(tokenizer), 50257);
  assert_ids(tokenizer, "a<|endoftext|>", true, "64 50256");
  size_t length = 9;
  assert_null(kvs_tokenizer_bytes(tokenizer, 50255, &length)); /* a hole */
  assert_int_equal(length, 0);
  assert_null(kvs_tokenizer_bytes(tokenizer, -1, &length));
  assert_null(kvs_tokenizer_bytes(tokenizer, 50257, &length));
  kvs_tokenizer_free(tokenizer);
}

/* The same with the whole vocabulary, where there is one. */
static void test_gpt2_whole(void **state) {
  (void)state;
  const char *whole = getenv("KVSTEP_GPT2_DIR");
  if (!whole || !*whole) {
    print_message("KVSTEP_GPT2_DIR names no folder with GPT-2's vocab.json and merges.txt: skipped\n");
    skip();
  }
  kvs_tokenizer *tokenizer = open_or_fail(whole);
  assert_true(each_string(check_string, tokenizer) >= 2000);
  kvs_tokenizer_free(tokenizer);
}

static void check_split(const void *splitters, const char *text, size_t length, const char *ids) {
  (void)ids;
  kvs_splitter *const *splitter = splitters;
  kvs_cuts *cuts[2];
  for (int i = 0; i < 2; i++)
    assert_int_equal(kvs_cuts_create(splitter[i], (const unsigned char *)text, length, &cuts[i], NULL), KVS_OK);
  for (size_t at = 0, end[2]; at < length; at = end[0]) {
    for (int i = 0; i < 2; i++) assert_int_equal(kvs_cuts_next(cuts[i], at, length, &end[i], NULL), KVS_OK);
    assert_int_equal(end[0], end[1]);
  }
  for (int i = 0; i < 2; i++) kvs_cuts_free(cuts[i]);
}

static void test_split_without_jit(void **state) {
  (void)state;
  kvs_splitter *splitter[2];
  for (int i = 0; i < 2; i++) assert_int_equal(kvs_splitter_create(i, &splitter[i], NULL), KVS_OK);
  each_string(check_split, splitter);
  char *text = malloc(MEGABYTE);
  assert_non_null(text);
  for (const char *c = " \na1.\xFF"; *c; c++) {
    memset(text, *c, MEGABYTE);
    text[MEGABYTE - 1] = 'x';
    check_split(splitter, text, MEGABYTE, NULL);
  }
  free(text);
  for (int i = 0; i < 2; i++) kvs_splitter_free(splitter[i]);
}

/* ---- any bytes, any length ---------------------------------------------------------------------------------------- */

static void test_random_bytes(void **state) {
  (void)state;
  kvs_tokenizer *tokenizer = open_or_fail(FIXTURE);
  static const char *const parts[] = {" ",        "the",  "\n", "\xC3\xA9",    "\xF0\x9F\x98\x80",
                                      "\xE2\x82", "\xF0", "'s", "\xE3\x80\x80"};
  for (int round = 0; round < 3000; round++) {
    char text[256];
    size_t length = 0, wanted = (size_t)random_below(200);
    while (length < wanted) {
      const char *part = parts[random_below(sizeof parts / sizeof *parts)];
      if (random_below(2))
        text[length++] = (char)random_below(256);
      else
        length += strlen(strcpy(text + length, part));
    }
    assert_round_trip(tokenizer, text, length);
  }
  int *ids = (int *)&random_state;
  size_t count = 1;
  assert_int_equal(kvs_tokenizer_encode(tokenizer, "", 0, true, &ids, &count, NULL), KVS_OK);
  assert_null(ids);
  assert_int_equal(count, 0);
  kvs_tokenizer_free(tokenizer);
}

/* A megabyte that is one piece: n² steps would take minutes. */
static void test_megabytes(void **state) {
  (void)state;
  kvs_tokenizer *tokenizer = open_or_fail(FIXTURE);
  char *text = malloc(MEGABYTE);
  assert_non_null(text);
  static const char *const runs[] = {"a",   "ha", " ", "\n", "1", "=", "<", "\xFF", "\xF0\x9F", "\xF0\x9F\x98\x80",
                                     "\t ", "a b"};
  for (size_t r = 0; r <= sizeof runs / sizeof *runs; r++) {
    bool letters = r == sizeof runs / sizeof *runs;
    for (size_t i = 0; i < MEGABYTE; i++)
      text[i] = letters ? (char)('a' + random_below(26)) : runs[r][i % strlen(runs[r])];
    clock_t begin = clock();
    assert_round_trip(tokenizer, text, MEGABYTE);
    assert_true(clock() - begin < 10 * CLOCKS_PER_SEC);
  }
  free(text);
  kvs_tokenizer_free(tokenizer);
}

/* ---- files as they are found -------------------------------------------------------------------------------------- */

#define VOCAB "{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"abc\":4,\"\\u0120\":5,\"#\":6,\"##\":7,\"<|endoftext|>\":8}"
#define JSON(merges, more) "{\"model\":{\"type\":\"BPE\",\"vocab\":" VOCAB ",\"merges\":" merges "}," more "}"
#define BYTE_LEVEL "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"

static void test_merges_txt(void **state) {
  (void)state;
  static const char *const same[] = {
      "#version: 0.2\na b\nab c\n# #\n",
      "#version: 0.2\r\na b\r\nab c\r\n# #\r\n\r\n",
      "a b\nab c\n# #",
      "a b\nab c\n# #\n\n\n",
      "# #\na b\nab c",
  };
  for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
    kvs_tokenizer *tokenizer = open_small(VOCAB, same[i], NULL);
    assert_ids(tokenizer, "abc ab##", false, "4 5 3 7");
    kvs_tokenizer_free(tokenizer);
  }
}

static void test_merge_order(void **state) {
  (void)state;
  /* "ab a" ranks first, but is there only after "a b" was joined, which happens at both places in one pass. */
  kvs_tokenizer *tokenizer =
      open_small("{\"a\":0,\"b\":1,\"ab\":2,\"aba\":3,\"bb\":4,\"aa\":5}", "ab a\na b\na a\n", NULL);
  assert_ids(tokenizer, "abab", false, "2 2");
  assert_ids(tokenizer, "aba", false, "3");
  assert_ids(tokenizer, "aaaaa", false, "5 5 0");
  kvs_tokenizer_free(tokenizer);
  /* The later of two equal lines counts: "b b" now comes before "a b". */
  tokenizer = open_small("{\"a\":0,\"b\":1,\"ab\":2,\"bb\":4}", "a b\nb b\na b\n", NULL);
  assert_ids(tokenizer, "abb", false, "0 4");
  kvs_tokenizer_free(tokenizer);
}

static void test_tokenizer_json(void **state) {
  (void)state;
  static const char *const same[] = {
      JSON(
          "[\"a b\",\"ab c\",\"# #\"]", BYTE_LEVEL
          ",\"added_tokens\":[{\"id\":8,\"content\":\"<|endoftext|>\",\"special\":true},{\"id\":11,\"content\":\"a b\","
          "\"special\":false},{\"id\":12,\"content\":\"a bb\",\"special\":true}]"),
      JSON("[[\"a\",\"b\"],[\"ab\",\"c\"],[\"#\",\"#\"]]", BYTE_LEVEL
           ",\"normalizer\":null,\"added_tokens\":[{\"id\":12,\"content\":\"a bb\",\"special\":true},{\"id\":11,"
           "\"content\":\"a b\"},{\"id\":8,\"content\":\"<|endoftext|>\",\"special\":true}]"),
  };
  for (size_t i = 0; i < 2; i++) {
    kvs_tokenizer *tokenizer = open_small(NULL, NULL, same[i]);
    assert_int_equal(kvs_tokenizer_size(tokenizer), 13);
    assert_ids(tokenizer, "abc ab##", false, "4 5 3 7");
    assert_ids(tokenizer, "c<|endoftext|>a bb", true, "2 8 12");
    assert_ids(tokenizer, "a bb", false, "11 1"); /* the longer one is special */
    size_t length;
    assert_memory_equal(kvs_tokenizer_bytes(tokenizer, 12, &length), "a bb", 4);
    assert_int_equal(length, 4);
    kvs_tokenizer_free(tokenizer);
  }
}

static void test_specials_only_when_allowed(void **state) {
  (void)state;
  kvs_tokenizer *tokenizer = open_or_fail(FIXTURE);
  static const char text[] = "a<|endoftext|><|endoftext|>b<|endof";
  char with[8192];
  strcpy(with, ids_of(tokenizer, text, strlen(text), true));
  assert_true(strncmp(with, "64 50256 50256 65 ", 18) == 0);
  assert_null(strstr(ids_of(tokenizer, text, strlen(text), false), "50256"));
  kvs_tokenizer_free(tokenizer);
}

static void test_missing_bytes(void **state) {
  (void)state;
  kvs_tokenizer *tokenizer = open_small("{\"a\":0,\"b\":1,\"c\":2,\">\":3,\"\\u010a\":4,\"\\u00c3\":5}", "", NULL);
  assert_ids(tokenizer, "abc>\n", false, "0 1 2 3 4");
  const char *message = ids_of(tokenizer, "ab D", 4, false);
  assert_non_null(strstr(message, "byte 2 (␠, hexadecimal 20)"));
  assert_non_null(strstr(message, "\\n, >, a–c, <C3> only"));
  message = ids_of(tokenizer, "a\xC3\xA9", 3, false); /* its first byte has a token, its second has none */
  assert_non_null(strstr(message, "byte 2 (é, hexadecimal a9)"));
  int *ids;
  size_t count;
  assert_int_equal(kvs_tokenizer_encode(tokenizer, "A", 1, false, &ids, &count, NULL), KVS_ERR_INPUT);
  assert_null(ids);
  kvs_tokenizer_free(tokenizer);
}

static void test_fits(void **state) {
  (void)state;
  kvs_tokenizer *tokenizer = open_or_fail(FIXTURE);
  struct kvs_model model = {.config = {.n_vocab = 50257}};
  kvs_error err;
  assert_int_equal(kvs_tokenizer_fits(tokenizer, &model, &err), KVS_OK);
  model.config.n_vocab = 50256;
  assert_int_equal(kvs_tokenizer_fits(tokenizer, &model, &err), KVS_ERR_INPUT);
  assert_non_null(strstr(err.message, "ids up to 50256"));
  kvs_tokenizer_free(tokenizer);
}

/* The quick reader of vocab.json gives what the JSON library gives, or leaves the file to it. */
static void test_scan(void **state) {
  (void)state;
  static const char *const files[] = {
      VOCAB,
      " {\t\"\\u0120a\" :\r\n7 , \"\\\"\\\\\\/\\u00e9\xC3\xA9\xE4\xB8\xAD\" : 4194303 } \n",
      "{\"a\":0,}",
      "{\"a\":0",
      "{\"a\":01}",
      "{\"a\":0}}",
      "{\"a\":0.0}",
      "{\"a\":1e3}",
      "{\"a\":-0}",
      "{\"a\":4194304}",
      "{\"a\":}",
      "{\"a\" 0}",
      "{\"a:0}",
      "{a:0}",
      "{\"\\u01\":0}",
      "{\"\\x\":0}",
      "{\"\x01:\":0}",
      "{\"\xC3:\":0}",
      "{\"\\u0000\":0}",
      "{\"a\":0 \"b\":1}",
      ":",
      "{:",
      "{}"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    kvs_file file = {"vocab.json", (const unsigned char *)files[i], strlen(files[i])};
    kvs_entries quick, slow = {0};
    bool plain = kvs_entries_scan(&file, &quick);
    if (plain != (i < 2)) fail_msg("%s: %s", files[i], plain ? "taken for plain" : "not taken for plain");
    if (!plain) continue;
    json_t *root;
    assert_int_equal(kvs_json_read(&file, &root, NULL), KVS_OK);
    assert_int_equal(kvs_entries_from_json(root, "", "", &slow, NULL), KVS_OK);
    assert_int_equal(quick.count, slow.count);
    assert_int_equal(quick.size, slow.size);
    assert_int_equal(quick.spelt, slow.spelt);
    for (size_t j = 0; j < slow.count; j++) {
      assert_string_equal(quick.entry[j].text, slow.entry[j].text);
      assert_int_equal(quick.entry[j].length, slow.entry[j].length);
      assert_int_equal(quick.entry[j].id, slow.entry[j].id);
    }
    kvs_entries_free(&quick);
    kvs_entries_free(&slow);
    json_decref(root);
  }
}

/* ---- hostile files ------------------------------------------------------------------------------------------------ */

static const struct {
  const char *content[3]; /* vocab.json, merges.txt, tokenizer.json */
  const char *place, *found;
} hostile[] = {
    {{NULL, NULL, NULL}, "no tokenizer", "copy vocab.json and merges.txt"},
    {{VOCAB, NULL, NULL}, "vocab.json but no merges.txt", "copy"},
    {{NULL, "a b", NULL}, "merges.txt but no vocab.json", "copy"},
    {{"", "", NULL}, "vocab.json", "the file is empty"},
    {{"{\"a\":0,\n\"a\":1}", "", NULL}, "vocab.json, line 2", "duplicate"},
    {{"{\"a\":0,\n\"b\"", "", NULL}, "vocab.json, line 2", "not valid JSON"},
    {{"{\"a\":0,\"b\":\"", "", NULL}, "vocab.json", "not valid JSON"},
    {{"{\"\xFF\":0}", "", NULL}, "vocab.json, line 1", "not valid JSON"},
    {{"{\"\\ud800\":0}", "", NULL}, "vocab.json, line 1", "not valid JSON"},
    {{"{\"\\u0000\":0}", "", NULL}, "vocab.json, line 1", "not valid JSON"},
    {{"[\"a\"]", "", NULL}, "vocab.json", "array"},
    {{"7", "", NULL}, "vocab.json", "not valid JSON"},
    {{"{}", "", NULL}, "vocab.json", "no token"},
    {{"{\"a\":0,\"b\":-1}", "", NULL}, "\"b\" has the id -1", "whole number"},
    {{"{\"a\":4194304}", "", NULL}, "\"a\" has the id 4194304", "4194303"},
    {{"{\"a\":9223372036854775807}", "", NULL}, "\"a\" has the id", "4194303"},
    {{"{\"a\":99999999999999999999}", "", NULL}, "vocab.json", "too big"},
    {{"{\"a\":1.0}", "", NULL}, "\"a\" has the id 1.0", "whole number"},
    {{"{\"a\":null}", "", NULL}, "\"a\" has the id null", "whole number"},
    {{"{\"a\":{\"b\":[1]}}", "", NULL}, "\"a\" has the id", "whole number"},
    {{"{\"a\":3,\"\\u0120b\":3}", "", NULL}, "\"a\" and \"Ġb\" both have the id 3", "correct"},
    {{VOCAB, "#version: 0.2\na\n", NULL}, "merges.txt, line 2", "\"a\" is no merge"},
    {{VOCAB, "a b c\n", NULL}, "merges.txt, line 1", "\"a b c\" is no merge"},
    {{VOCAB, "a b\n\nab c\n", NULL}, "merges.txt, line 2", "is no merge"},
    {{VOCAB, " b\n", NULL}, "merges.txt, line 1", "is no merge"},
    {{VOCAB, "a \n", NULL}, "merges.txt, line 1", "is no merge"},
    {{VOCAB, "a b\nx b\n", NULL}, "merges.txt, line 2", "needs \"x\""},
    {{VOCAB, "a b\na x\n", NULL}, "merges.txt, line 2", "needs \"x\""},
    {{VOCAB, "a b\nb a\n", NULL}, "merges.txt, line 2", "needs \"ba\""},
    {{VOCAB, "a b\n#version: 0.2\n", NULL}, "merges.txt, line 2", "needs \"#version:\""},
    {{VOCAB, "a \xFF\n", NULL}, "merges.txt, line 1", "needs \"<FF>\""},
    {{NULL, NULL, ""}, "tokenizer.json", "the file is empty"},
    {{NULL, NULL, "{}"}, "model.type is absent", "byte-level BPE"},
    {{NULL, NULL, "{\"model\":{\"type\":\"Unigram\"}}"}, "model.type is \"Unigram\"", "byte-level BPE"},
    {{NULL, NULL, JSON("[]", "\"pre_tokenizer\":{\"type\":\"Metaspace\"}")},
     "pre_tokenizer.type is \"Metaspace\"",
     "BPE"},
    {{NULL, NULL, JSON("[]", "\"pre_tokenizer\":null")}, "pre_tokenizer is null", "BPE"},
    {{NULL, NULL, JSON("[]", BYTE_LEVEL ",\"normalizer\":{\"type\":\"NFC\"}")},
     "normalizer is {\"type\":\"NFC\"}",
     "BPE"},
    {{NULL, NULL, JSON("[]", "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true}")},
     "add_prefix_space is true",
     "BPE"},
    {{NULL, NULL, JSON("[]", "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"use_regex\":false}")},
     "use_regex is false",
     "BPE"},
    {{NULL, NULL, JSON("{}", BYTE_LEVEL)}, "model.merges", "not a list"},
    {{NULL, NULL, JSON("[\"a b\",\"ab\"]", BYTE_LEVEL)}, "model.merges entry 1", "neither"},
    {{NULL, NULL, JSON("[[\"a\",\"b\",\"c\"]]", BYTE_LEVEL)}, "model.merges entry 0", "neither"},
    {{NULL, NULL, JSON("[[\"a\",7]]", BYTE_LEVEL)}, "model.merges entry 0", "neither"},
    {{NULL, NULL, JSON("[7]", BYTE_LEVEL)}, "model.merges entry 0", "neither"},
    {{NULL, NULL, JSON("[\"b a\"]", BYTE_LEVEL)}, "model.merges entry 0", "needs \"ba\""},
    {{NULL, NULL, JSON("[]", BYTE_LEVEL ",\"added_tokens\":7")}, "added_tokens", "no list"},
    {{NULL, NULL, JSON("[]", BYTE_LEVEL ",\"added_tokens\":[{\"id\":-1,\"content\":\"x\"}]")},
     "added_tokens entry 0",
     "id"},
    {{NULL, NULL, JSON("[]", BYTE_LEVEL ",\"added_tokens\":[{\"id\":9,\"content\":\"\"}]")},
     "added_tokens entry 0",
     "content"},
    {{NULL, NULL, JSON("[]", BYTE_LEVEL ",\"added_tokens\":[{\"id\":0,\"content\":\"x\"}]")},
     "\"x\" has the id 0",
     "already \"a\""},
    {{NULL, NULL, JSON("[]", BYTE_LEVEL ",\"added_tokens\":[{\"id\":9,\"content\":\"x\",\"lstrip\":true}]")},
     "lstrip is true",
     "BPE"},
};

static void test_hostile_files(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
    fill_folder(hostile[i].content);
    kvs_error err = {KVS_OK, ""};
    kvs_tokenizer *tokenizer = (kvs_tokenizer *)&err;
    kvs_status status = kvs_tokenizer_open(folder, &tokenizer, &err);
    assert_int_equal(remove_folder(NULL), 0);
    assert_null(tokenizer);
    if (status == KVS_OK || status != err.status || !strstr(err.message, hostile[i].place) ||
        !strstr(err.message, hostile[i].found) || !strstr(err.message, folder))
      fail_msg("case %zu: status %d: \"%s\" lacks \"%s\" or \"%s\"", i, status, err.message, hostile[i].place,
               hostile[i].found);
  }
}

static void test_deep_nesting(void **state) {
  (void)state;
  enum { DEPTH = 1000000 };
  char *json = malloc(DEPTH + 6);
  assert_non_null(json);
  memcpy(json, "{\"a\":", 5);
  memset(json + 5, '[', DEPTH);
  json[DEPTH + 5] = '\0';
  fill_folder((const char *const[]){json, "", NULL});
  kvs_error err;
  kvs_tokenizer *tokenizer;
  assert_int_equal(kvs_tokenizer_open(folder, &tokenizer, &err), KVS_ERR_INPUT);
  assert_non_null(strstr(err.message, "depth"));
  assert_int_equal(remove_folder(NULL), 0);
  free(json);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gpt2_strings),      cmocka_unit_test(test_gpt2_whole),
      cmocka_unit_test(test_split_without_jit), cmocka_unit_test(test_random_bytes),
      cmocka_unit_test(test_megabytes),         cmocka_unit_test(test_scan),
      cmocka_unit_test(test_merges_txt),        cmocka_unit_test(test_merge_order),
      cmocka_unit_test(test_tokenizer_json),    cmocka_unit_test(test_specials_only_when_allowed),
      cmocka_unit_test(test_missing_bytes),     cmocka_unit_test(test_fits),
      cmocka_unit_test(test_hostile_files),     cmocka_unit_test(test_deep_nesting),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
