/* test_foreign.c: a directory or a file of another program's model is refused by what it is, with the way out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kvstep/model.h"
#include "tests/support/scratch.h"

static void put(const char *name, const void *bytes, size_t size) { write_file(in_folder(name), bytes, size); }

static void put_config(void) {
  static const char config[] =
      "{\"model_type\":\"gpt2\",\"n_layer\":1,\"n_head\":1,\"n_embd\":4,\"n_positions\":4,\"vocab_size\":4}";
  put("config.json", config, sizeof config - 1);
}

/* Opening fails, and the message has all the words, NULL at their end. */
static void refused(const char *word, ...) {
  kvs_model *model;
  kvs_error err;
  assert_int_equal(kvs_model_open(folder, &model, &err), KVS_ERR_INPUT);
  assert_null(model);
  va_list words;
  va_start(words, word);
  for (; word; word = va_arg(words, const char *))
    if (!strstr(err.message, word)) fail_msg("\"%s\" is not in: %s", word, err.message);
  va_end(words);
}

static void weights_of_another_kind_are_named(void **state) {
  (void)state;
  static const char *const files[][3] = {
      {"pytorch_model.bin", "a PyTorch checkpoint", "save_pretrained"},
      {"pytorch_model.bin.index.json", "a sharded PyTorch checkpoint", "save_pretrained"},
      {"tf_model.h5", "TensorFlow weights", "from_tf=True"},
      {"flax_model.msgpack", "Flax weights", "from_flax=True"},
      {"model.ckpt.index", "the original TensorFlow checkpoint", "Hugging Face model"},
      {"gpt2.Q8_0.gguf", "a GGUF file", "Hugging Face model"},
      {"adapter_model.safetensors", "an adapter", "merge_and_unload"},
      {"gpt2.safetensors", "weights under another name", "rename"},
      {"best.pt", "a PyTorch checkpoint", "save_pretrained"},
      {"decoder.onnx", "an ONNX graph", "Hugging Face model"},
  };
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    if (i > 0) assert_int_equal(make_folder(NULL), 0);
    put(files[i][0], "x", 1);
    refused(folder, files[i][0], files[i][1], "no config.json or model.safetensors", files[i][2], NULL);
    put_config();
    refused(folder, files[i][0], files[i][1], "and no model.safetensors", files[i][2], NULL);
    if (i + 1 < sizeof files / sizeof *files) assert_int_equal(remove_folder(NULL), 0);
  }
}

static void of_several_the_first_by_name_is_shown(void **state) {
  (void)state;
  put_config();
  put("b.gguf", "x", 1);
  put("a.gguf", "x", 1);
  put("c.gguf", "x", 1);
  put("a.onnx", "x", 1);
  refused("(a.gguf)", NULL);
  put("pytorch_model.bin", "x", 1);
  refused("(pytorch_model.bin)", NULL);
}

static void a_directory_of_nothing_known_is_told_what_it_lacks(void **state) {
  (void)state;
  put("notes.txt", "x", 1);
  refused("there is no config.json", "merges.txt", NULL);
  put_config();
  refused("there is no model.safetensors", "index.json", NULL);
}

static void weights_without_config_are_no_other_kind(void **state) {
  (void)state;
  put("model.safetensors", "x", 1);
  refused("there is no config.json; a model directory has", NULL);
}

static void what_only_calls_itself_safetensors_is_named(void **state) {
  (void)state;
  static const struct {
    const char *bytes;
    size_t size;
    const char *what, *remedy;
  } files[] = {
      {"GGUF\3\0\0\0\0\0\0\0", 12, "a GGUF file", "Hugging Face model"},
      {"PK\3\4\0\0\0\0\0\0", 10, "a PyTorch checkpoint", "save_pretrained"},
      {"\x80\2}q\1(X\0\0\0", 10, "pickle", "save_pretrained"},
      {"\x89HDF\r\n\x1a\n", 8, "HDF5", "from_tf=True"},
      {"version https://git-lfs.invalid/spec/v1\n", 40, "a Git LFS pointer", "git lfs pull"},
      {"<!DOCTYPE html><html>", 21, "a web page", "download the file again"},
      {"<html>Not found</html>", 22, "a web page", "download the file again"},
      {"GGU", 3, "too short", "copy it again"},
  };
  put_config();
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    put("model.safetensors", files[i].bytes, files[i].size);
    refused("model.safetensors: ", files[i].what, files[i].remedy, NULL);
  }
}

/* Its length, 0x280, begins like a pickle. */
static void a_header_of_640_bytes_is_no_pickle(void **state) {
  (void)state;
  unsigned char file[8 + 0x280] = {0x80, 2};
  memset(file + 8, ' ', 0x280);
  file[8] = '{';
  file[9] = '}';
  put_config();
  put("model.safetensors", file, sizeof file);
  refused("tensor", "is missing", NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(weights_of_another_kind_are_named, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(of_several_the_first_by_name_is_shown, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(a_directory_of_nothing_known_is_told_what_it_lacks, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(weights_without_config_are_no_other_kind, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(what_only_calls_itself_safetensors_is_named, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(a_header_of_640_bytes_is_no_pickle, make_folder, remove_folder),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
