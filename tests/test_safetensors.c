/* test_safetensors.c: the header of a .safetensors file: what is read from it, and that nothing in it is believed unchecked. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/safetensors.h"
#include "tests/support/model_files.h"

static const unsigned char data[64] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

static kvs_status read_bytes(const unsigned char *bytes, size_t size, kvs_tensor_list *list, kvs_error *err) {
  *list = (kvs_tensor_list){0};
  return kvs_safetensors_read(&(kvs_file){"dir/model.safetensors", bytes, size}, list, err);
}

static void check_refusal(const unsigned char *bytes, size_t size, const char *words) {
  kvs_tensor_list list;
  kvs_error err = {0};
  if (read_bytes(bytes, size, &list, &err) != KVS_ERR_INPUT) fail_msg("accepted; expected \"%s\"", words);
  kvs_tensor_list_free(&list);
  if (missing_word(err.message, words)) fail_msg("\"%s\" is not in: %s", missing_word(err.message, words), err.message);
  if (missing_word(err.message, "dir/model.safetensors: ")) fail_msg("no file's name in: %s", err.message);
  if (!is_clean_line(err.message)) fail_msg("not one clean line: %s", err.message);
  assert_int_equal(read_bytes(bytes, size, &list, NULL), KVS_ERR_INPUT);
  kvs_tensor_list_free(&list);
}

/* A file of this header, claiming `length` bytes of it (−1: the truth), and `data_size` bytes of data. */
static void refused_claiming(long long length, const char *header, size_t data_size, const char *words) {
  size_t size;
  unsigned char *bytes = safetensors_bytes(length, header, data, data_size, &size);
  check_refusal(bytes, size, words);
  free(bytes);
}

static void refused(const char *header, size_t data_size, const char *words) {
  refused_claiming(-1, header, data_size, words);
}

/* The same for one tensor "t". */
static void refused_tensor(const char *entry, size_t data_size, const char *words) {
  char header[600];
  snprintf(header, sizeof header, "{\"t\":%s}", entry);
  refused(header, data_size, words);
}

typedef struct opened {
  unsigned char *bytes;
  kvs_tensor_list list;
} opened;

static opened accepted(const char *header, size_t data_size) {
  size_t size;
  kvs_error err = {0};
  opened made = {.bytes = safetensors_bytes(-1, header, data, data_size, &size)};
  if (read_bytes(made.bytes, size, &made.list, &err)) fail_msg("%s was refused: %s", header, err.message);
  return made;
}

static void close_opened(opened *o) {
  kvs_tensor_list_free(&o->list);
  free(o->bytes);
}

/* ---- the header as a whole ------------------------------------------------------------------------------------------ */

static void lengths_near_two_to_the_64(void **state) {
  (void)state;
  for (int less = 0; less < 10; less++) {
    unsigned char bytes[10] = {(unsigned char)(0xFF - less), 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, '{', '}'};
    check_refusal(bytes, sizeof bytes, "header claims 184467440737095516|more than 100000000 is refused|copy it again");
  }
}

static void lengths_up_to_the_cap_and_past_it(void **state) {
  (void)state;
  refused_claiming(126 << 20, "{}", 0, "header claims 132120576 bytes|more than 100000000 is refused|copy it again");
  refused_claiming(100000001, "{}", 0, "header claims 100000001 bytes|more than 100000000 is refused");
  refused_claiming(100000000, "{}", 0, "header claims 100000000 bytes|the file has 2 after its length|copy it again");
  refused_claiming(3, "{}", 0, "header claims 3 bytes|the file has 2 after its length");
  refused_claiming(0, "{}", 0, "not valid JSON at byte 8|copy it again");
  refused_claiming(1, "{}", 0, "not valid JSON");
}

static void files_too_short_for_a_length(void **state) {
  (void)state;
  for (size_t size = 0; size < 8; size++) {
    char words[80];
    unsigned char *bytes = calloc(1, size ? size : 1);
    snprintf(words, sizeof words, "%zu bytes, too short for a safetensors file|copy it again", size);
    check_refusal(bytes, size, words);
    free(bytes);
  }
  unsigned char zero[8] = {0};
  check_refusal(zero, sizeof zero, "not valid JSON");
}

static void other_files_are_called_what_they_are(void **state) {
  (void)state;
  const struct {
    const char *start, *words;
  } others[] = {{"<!DOCTYPE html><html>", "a web page|download the file again"},
                {"<!doctype html>", "a web page|download the file again"},
                {"<html><body>", "a web page|download the file again"},
                {"GGUF\3\1\1\1more", "a GGUF file|of the Hugging Face model"},
                {"PK\3\4\24\1\1\1more", "a PyTorch checkpoint|save_pretrained(DIR, safe_serialization=True)"}};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    char *exact = strdup(others[i].start); /* of exactly its size */
    check_refusal((const unsigned char *)exact, strlen(exact), others[i].words);
    free(exact);
  }
}

static void a_git_lfs_pointer_is_called_one(void **state) {
  (void)state;
  const char *pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n";
  check_refusal((const unsigned char *)pointer, strlen(pointer), "Git LFS pointer|git lfs pull");
}

static void the_header_is_strict_json(void **state) {
  (void)state;
  refused("{\"t\":", 0, "not valid JSON at byte|copy it again");
  refused("[]", 0, "no JSON object|copy it again");
  refused("{} x", 0, "not valid JSON");
  refused("\xff", 0, "not valid JSON");
  refused("{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
          "\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
          1, "duplicate object key|\"t\"");
  refused("{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
          "duplicate object key|shape");
}

/* Deeper than any recursion should follow. */
static void nesting_without_end(void **state) {
  (void)state;
  const size_t depth = 200000;
  char *header = malloc(depth + 6);
  assert_non_null(header);
  memcpy(header, "{\"t\":", 5);
  memset(header + 5, '[', depth);
  header[5 + depth] = '\0';
  refused(header, 0, "not valid JSON|maximum parsing depth|copy it again");
  free(header);
}

static void nul_padding_is_called_that(void **state) {
  (void)state;
  unsigned char bytes[8 + 6] = {6, 0, 0, 0, 0, 0, 0, 0, '{', '}', 0, 0, 0, 0};
  check_refusal(bytes, sizeof bytes, "padded with NUL bytes|blanks|write it again with a current safetensors library");
}

static void metadata_is_skipped_by_its_key(void **state) {
  (void)state;
  const char *headers[] = {"{\"__metadata__\":{}}  ", "{\"__metadata__\":{\"format\":\"pt\"}}",
                           "{\"__metadata__\":null}", "{}", "  {}"};
  for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
    opened o = accepted(headers[i], 0);
    assert_int_equal(o.list.count, 0);
    close_opened(&o);
  }
  refused("{\"__metadata\":{}}", 0, "tensor __metadata: \"dtype\" is missing");
}

/* ---- one tensor ------------------------------------------------------------------------------------------------------ */

static void every_field_lands_where_it_belongs(void **state) {
  (void)state;
  opened o = accepted("{\"a\":{\"dtype\":\"BF16\",\"shape\":[1,2,1,2],\"data_offsets\":[4,12]},"
                      "\"b\":{\"data_offsets\":[0,4],\"shape\":[],\"dtype\":\"F32\"}}",
                      12);
  assert_int_equal(o.list.count, 2); /* in the data's order, whatever the JSON's */
  const kvs_stored_tensor *b = &o.list.tensor[0], *a = &o.list.tensor[1];
  assert_string_equal(b->name, "b");
  assert_string_equal(b->dtype, "F32");
  assert_int_equal(b->dimensions, 0);
  assert_int_equal(b->data[0], 1);
  assert_string_equal(a->name, "a");
  assert_string_equal(a->dtype, "BF16");
  assert_string_equal(a->path, "dir/model.safetensors");
  assert_int_equal(a->dimensions, 4);
  assert_int_equal(a->shape[1], 2);
  assert_int_equal(a->data[0], 5);
  assert_int_equal(a->begin, 4);
  assert_int_equal(a->end, 12);
  close_opened(&o);
}

static void all_dtypes_of_the_format_have_their_width(void **state) {
  (void)state;
  const struct {
    const char *name;
    int width;
  } types[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
               {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"I64", 8},     {"U64", 8}, {"F64", 8}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    char header[120];
    snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%d]}}", types[i].name,
             3 * types[i].width);
    opened o = accepted(header, (size_t)(3 * types[i].width));
    assert_string_equal(o.list.tensor[0].dtype, types[i].name);
    close_opened(&o);
  }
}

static void dtypes_the_format_does_not_have(void **state) {
  (void)state;
  const char *remedy = "tensor t|\"F4\"|does not know|F32, F16 or BF16";
  refused_tensor("{\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[0,4]}", 4, remedy);
  refused_tensor("{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}", 4, "\"f32\"|does not know");
  refused_tensor("{\"dtype\":\"\",\"shape\":[1],\"data_offsets\":[0,4]}", 4, "\"\"|does not know");
  refused_tensor("{\"dtype\":\"F32_____________________________\",\"shape\":[1],\"data_offsets\":[0,4]}", 4, "\"F32__");
  refused_tensor("{\"dtype\":32,\"shape\":[1],\"data_offsets\":[0,4]}", 4, "\"dtype\" is 32, expected a type's name");
  refused_tensor("{\"shape\":[1],\"data_offsets\":[0,4]}", 4, "\"dtype\" is missing|copy it again");
  refused_tensor("7", 4, "\"t\" is 7, expected an object|copy it again");
}

static void shapes(void **state) {
  (void)state;
  const char *list = "expected a list of at most 8 numbers", *whole = "expected whole numbers from 0 on";
  const struct {
    const char *shape, *found, *expected;
  } bad[] = {{"[1,1,1,1,1,1,1,1,1]", "\"shape\" is [1,1,1,1,1,1,1,1,1]", list},
             {"4", "\"shape\" is 4", list},
             {"null", "\"shape\" is null", list},
             {"{}", "\"shape\" is {}", list},
             {"[-1]", "\"shape\" is [-1]", whole},
             {"[1.0]", "\"shape\" is [1.0]", whole},
             {"[\"1\"]", "\"shape\" is [\"1\"]", whole},
             {"[9223372036854775807]", "\"shape\" is [9223372036854775807]", "no more than a file can hold"},
             {"[4294967296,4294967296]", "[4294967296,4294967296]", "no more than a file can hold"},
             {"[2147483648,2147483648,4]", "[2147483648,2147483648,4]", "no more than a file can hold"},
             {"[4611686018427387904,4]", "[4611686018427387904,4]", "no more than a file can hold"},
             {"[99999999999999999999]", "too big integer", "not valid JSON"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char entry[200], words[200];
    snprintf(entry, sizeof entry, "{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[0,4]}", bad[i].shape);
    snprintf(words, sizeof words, "%s|%s|copy it again", bad[i].found, bad[i].expected);
    refused_tensor(entry, 4, words);
  }
  refused_tensor("{\"dtype\":\"F32\",\"data_offsets\":[0,4]}", 4, "\"shape\" is missing");
  opened o = accepted("{\"t\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4);
  assert_int_equal(o.list.tensor[0].dimensions, 8);
  close_opened(&o);
}

static void shape_and_dtype_must_make_the_span(void **state) {
  (void)state;
  refused_tensor("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}", 4,
                 "tensor t|make 8 bytes|span 4|copy it again");
  refused_tensor("{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,4]}", 4, "make 2 bytes|span 4");
  refused_tensor("{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,4]}", 4, "make 0 bytes|span 4");
  refused_tensor("{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,8]}", 8, "make 4 bytes|span 8");
}

static void offsets(void **state) {
  (void)state;
  const struct {
    const char *offsets, *words;
  } bad[] = {{"[4,0]", "\"data_offsets\" is [4,0]|neither negative nor reversed"},
             {"[-4,0]", "\"data_offsets\" is [-4,0]|neither negative nor reversed"},
             {"[-8,-4]", "[-8,-4]|neither negative nor reversed"},
             {"[0]", "\"data_offsets\" is [0]|expected two whole numbers"},
             {"[0,4,8]", "[0,4,8]|expected two whole numbers"},
             {"[0.0,4]", "[0.0,4]|expected two whole numbers"},
             {"[\"0\",4]", "[\"0\",4]|expected two whole numbers"},
             {"4", "\"data_offsets\" is 4|expected two whole numbers"},
             {"[0,8]", "end at byte 8|the file has 4 bytes of data"},
             {"[9223372036854775803,9223372036854775807]", "end at byte 9223372036854775807|has 4 bytes of data"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char entry[200], words[200];
    snprintf(entry, sizeof entry, "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":%s}", bad[i].offsets);
    snprintf(words, sizeof words, "tensor t|%s|copy it again", bad[i].words);
    refused_tensor(entry, 4, words);
  }
  refused_tensor("{\"dtype\":\"F32\",\"shape\":[1]}", 4, "\"data_offsets\" is missing");
}

static void the_last_byte_counts(void **state) {
  (void)state;
  refused_tensor("{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[0,5]}", 4,
                 "end at byte 5|the file has 4 bytes of data");
  opened o = accepted("{\"t\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[0,5]}}", 5);
  assert_int_equal(o.list.tensor[0].data[4], 5);
  close_opened(&o);
}

static void names_that_no_message_could_show(void **state) {
  (void)state;
  char header[400], name[202];
  memset(name, 'n', 201);
  name[201] = '\0';
  snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", name);
  refused(header, 1, "name has 201 bytes|more than 200|copy it again");
  name[200] = '\0';
  snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", name);
  opened o = accepted(header, 1);
  close_opened(&o);
  refused("{\"a\\u001b[2J\":{}}", 0, "tensor a?[2J");
}

/* ---- all of them ----------------------------------------------------------------------------------------------------- */

#define U8(name, begin, end, size)                                                                                     \
  "\"" name "\":{\"dtype\":\"U8\",\"shape\":[" size "],\"data_offsets\":[" begin "," end "]}"

static void the_data_is_covered_exactly(void **state) {
  (void)state;
  refused("{" U8("a", "0", "4", "4") "," U8("b", "3", "8", "5") "}", 8,
          "tensors a and b overlap at byte 3|copy it again");
  refused("{" U8("a", "0", "4", "4") "," U8("b", "0", "4", "4") "}", 4, "a|b|overlap at byte 0");
  refused("{" U8("a", "0", "8", "8") "," U8("b", "2", "4", "2") "," U8("c", "8", "9", "1") "}", 9, "overlap at byte 2");
  refused("{" U8("a", "0", "4", "4") "," U8("b", "5", "8", "3") "}", 8,
          "hole of 1 bytes before tensor b|copy it again");
  refused("{" U8("a", "1", "4", "3") "}", 4, "hole of 1 bytes before tensor a");
  refused("{" U8("a", "0", "4", "4") "}", 7, "3 bytes after the last tensor belong to none|copy it again");
  refused("{}", 1, "1 bytes after the last tensor belong to none");
}

static void the_order_of_the_json_is_free(void **state) {
  (void)state;
  opened o = accepted(
      "{" U8("c", "6", "8", "2") "," U8("a", "0", "4", "4") "," U8("z", "4", "4", "0") "," U8("b", "4", "6", "2") "}",
      8);
  const char *names[] = {"a", "z", "b", "c"};
  for (size_t i = 0; i < 4; i++) assert_string_equal(o.list.tensor[i].name, names[i]);
  assert_int_equal(o.list.tensor[3].data[0], 7);
  close_opened(&o);
}

static void a_second_file_is_appended(void **state) {
  (void)state;
  size_t size;
  kvs_tensor_list list = {0};
  unsigned char *bytes = safetensors_bytes(-1, "{" U8("a", "0", "2", "2") "}", data, 2, &size);
  kvs_file one = {"dir/one", bytes, size}, two = {"dir/two", bytes, size};
  assert_int_equal(kvs_safetensors_read(&one, &list, NULL), KVS_OK);
  assert_int_equal(kvs_safetensors_read(&two, &list, NULL), KVS_OK); /* its own data, so no overlap with the first's */
  assert_int_equal(list.count, 2);
  assert_string_equal(list.tensor[0].path, "dir/one");
  assert_string_equal(list.tensor[1].path, "dir/two");
  two.size -= 1;
  assert_int_equal(kvs_safetensors_read(&two, &list, NULL),
                   KVS_ERR_INPUT); /* what was there remains, and is freed once */
  kvs_tensor_list_free(&list);
  kvs_tensor_list_free(&list);
  free(bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lengths_near_two_to_the_64),
      cmocka_unit_test(lengths_up_to_the_cap_and_past_it),
      cmocka_unit_test(files_too_short_for_a_length),
      cmocka_unit_test(other_files_are_called_what_they_are),
      cmocka_unit_test(a_git_lfs_pointer_is_called_one),
      cmocka_unit_test(the_header_is_strict_json),
      cmocka_unit_test(nesting_without_end),
      cmocka_unit_test(nul_padding_is_called_that),
      cmocka_unit_test(metadata_is_skipped_by_its_key),
      cmocka_unit_test(every_field_lands_where_it_belongs),
      cmocka_unit_test(all_dtypes_of_the_format_have_their_width),
      cmocka_unit_test(dtypes_the_format_does_not_have),
      cmocka_unit_test(shapes),
      cmocka_unit_test(shape_and_dtype_must_make_the_span),
      cmocka_unit_test(offsets),
      cmocka_unit_test(the_last_byte_counts),
      cmocka_unit_test(names_that_no_message_could_show),
      cmocka_unit_test(the_data_is_covered_exactly),
      cmocka_unit_test(the_order_of_the_json_is_free),
      cmocka_unit_test(a_second_file_is_appended),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
