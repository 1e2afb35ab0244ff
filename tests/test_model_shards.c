/* test_model_shards.c: weights in several files: the same model as in one, and an index that does not tell the truth. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/weights.h"
#include "tests/support/model_files.h"
#include "tests/support/scratch.h"

#define INDEX "model.safetensors.index.json"

static const char *const shards[] = {"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                     "model-00003-of-00003.safetensors"};

static const char *shard_of(int tensor) { return shards[tensor < 10 ? 0 : tensor < 20 ? 1 : 2]; }

/* The index of the tiny model, the last tensor first; the entry of `tensor` replaced by `entry` (may be ""), if given. */
static void write_index(const model_files *m, int tensor, const char *entry) {
  static char text[16000];
  size_t used = (size_t)snprintf(text, sizeof text, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {");
  const char *comma = "";
  for (int i = m->count - 1; i >= 0; i--) {
    if (i == tensor && !*entry) continue;
    if (i == tensor)
      used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", comma, entry);
    else
      used +=
          (size_t)snprintf(text + used, sizeof text - used, "%s\"%s\": \"%s\"", comma, m->tensor[i].name, shard_of(i));
    comma = ", ";
  }
  snprintf(text + used, sizeof text - used, "}}");
  model_files_text(m, INDEX, text);
}

static int start(void **state) {
  static model_files files;
  model_files *m = &files;
  model_files_start(m);
  model_files_write_part(m, shards[0], 0, 10);
  model_files_write_part(m, shards[1], 10, 20);
  model_files_write_part(m, shards[2], 20, m->count);
  write_index(m, -1, NULL);
  *state = m;
  return 0;
}

static int end(void **state) {
  model_files_remove(*state);
  return 0;
}

static void check_refused(const model_files *m, kvs_status expected, const char *words) {
  kvs_error err = {0};
  kvs_model *model;
  kvs_status status = kvs_model_open(m->dir, &model, &err);
  if (status == KVS_OK) fail_msg("accepted; expected \"%s\"", words);
  assert_null(model);
  if (missing_word(err.message, words)) fail_msg("\"%s\" is not in: %s", missing_word(err.message, words), err.message);
  if (!is_clean_line(err.message)) fail_msg("not one clean line: %s", err.message);
  assert_int_equal(status, expected);
}

static void assert_same(const kvs_tensor *a, const kvs_tensor *b) {
  assert_int_equal(a->rows, b->rows);
  assert_int_equal(a->cols, b->cols);
  assert_memory_equal(a->data, b->data, (size_t)a->rows * (size_t)a->cols * sizeof(float));
}

/* Whatever reads a moment of decoding compares equal when all of these do. */
static void assert_same_model(const kvs_model *a, const kvs_model *b) {
  const size_t n = TINY_EMBD * sizeof(float);
  assert_same(&a->wte, &b->wte);
  assert_same(&a->wpe, &b->wpe);
  for (int i = 0; i < TINY_LAYERS; i++) {
    const kvs_layer *x = &a->layer[i], *y = &b->layer[i];
    assert_same(&x->c_attn.w, &y->c_attn.w);
    assert_same(&x->c_proj.w, &y->c_proj.w);
    assert_same(&x->mlp_c_fc.w, &y->mlp_c_fc.w);
    assert_same(&x->mlp_c_proj.w, &y->mlp_c_proj.w);
    assert_memory_equal(x->ln_1.g, y->ln_1.g, n);
    assert_memory_equal(x->ln_1.b, y->ln_1.b, n);
    assert_memory_equal(x->ln_2.g, y->ln_2.g, n);
    assert_memory_equal(x->ln_2.b, y->ln_2.b, n);
    assert_memory_equal(x->c_attn.b, y->c_attn.b, 3 * n);
    assert_memory_equal(x->c_proj.b, y->c_proj.b, n);
    assert_memory_equal(x->mlp_c_fc.b, y->mlp_c_fc.b, 4 * n);
    assert_memory_equal(x->mlp_c_proj.b, y->mlp_c_proj.b, n);
  }
  assert_memory_equal(a->ln_f.g, b->ln_f.g, n);
  assert_memory_equal(a->ln_f.b, b->ln_f.b, n);
}

static void shards_are_the_same_model_as_one_file(void **state) {
  model_files *m = *state;
  kvs_error err = {0};
  kvs_model *sharded, *whole;
  if (kvs_model_open(m->dir, &sharded, &err)) fail_msg("refused: %s", err.message);
  assert_null(kvs_model_warning(sharded, 0));
  model_files_write(m); /* beside the index, model.safetensors counts */
  model_files_text(m, INDEX, "no JSON");
  assert_int_equal(kvs_model_open(m->dir, &whole, NULL), KVS_OK);
  assert_same_model(sharded, whole);
  assert_int_equal(kvs_model_parameters(sharded), kvs_model_parameters(whole));
  kvs_model_free(whole);
  kvs_model_free(sharded);
}

/* In the order of their names, though the index has the last one first. */
static void the_hash_is_of_the_shards_in_order(void **state) {
  model_files *m = *state;
  char hex[65];
  const char *ours;
  kvs_model *model;
  assert_int_equal(
      shell_says(hex, sizeof hex, "cd %s && cat %s %s %s | sha256sum", m->dir, shards[0], shards[1], shards[2]), 0);
  assert_int_equal(kvs_model_open(m->dir, &model, NULL), KVS_OK);
  assert_int_equal(kvs_model_sha256(model, &ours, NULL), KVS_OK);
  assert_string_equal(ours, hex);
  kvs_model_free(model);
}

static void a_shard_that_is_missing_or_spoilt(void **state) {
  model_files *m = *state;
  model_files_text(m, shards[1], "");
  check_refused(m, KVS_ERR_INPUT, "model-00002-of-00003.safetensors: 0 bytes, too short|copy it again");
  model_files_unlink(m, shards[1]);
  check_refused(m, KVS_ERR_IO, "model-00002-of-00003.safetensors: cannot be read: No such file");
}

static void shard_names_stay_in_the_directory(void **state) {
  model_files *m = *state;
  const char *names[] = {"\"sub/model.safetensors\"",
                         "\"../model.safetensors\"",
                         "\"/etc/passwd\"",
                         "\"..\"",
                         "\".\"",
                         "\"\"",
                         "7",
                         "null",
                         "[]"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char entry[400], words[600];
    snprintf(entry, sizeof entry, "\"%s\": %s", m->tensor[3].name, names[i]);
    snprintf(words, sizeof words,
             "%s: the shard of tensor %s is %s: expected the name of a file in the same directory|again", INDEX,
             m->tensor[3].name, names[i]);
    write_index(m, 3, entry);
    check_refused(m, KVS_ERR_INPUT, words);
  }
  char entry[600] = "\"wte.weight\": \"";
  memset(entry + strlen(entry), 'n', 256); /* no file's name is as long */
  strcat(entry, "\"");
  write_index(m, 0, entry);
  check_refused(m, KVS_ERR_INPUT, INDEX "|the shard of tensor wte.weight|expected the name of a file");
}

static void index_and_shards_must_agree(void **state) {
  model_files *m = *state;
  write_index(m, 3,
              "\"h.0.ln_1.bias\": \"model-00001-of-00003.safetensors\", \"h.7.ln_1.bias\": "
              "\"model-00001-of-00003.safetensors\"");
  check_refused(m, KVS_ERR_INPUT,
                INDEX ": tensor h.7.ln_1.bias is not in model-00001-of-00003.safetensors|copy that shard");
  write_index(m, 3, "");
  check_refused(m, KVS_ERR_INPUT,
                INDEX ": tensor h.0.ln_1.bias of |/model-00001-of-00003.safetensors is not in the index|"
                      "copy both again");
  write_index(m, 3, "\"h.0.ln_1.bias\": \"model-00002-of-00003.safetensors\"");
  check_refused(m, KVS_ERR_INPUT,
                INDEX ": tensor h.0.ln_1.bias is in |/model-00001-of-00003.safetensors|the index has it in "
                      "model-00002-of-00003.safetensors|copy both again");
}

static void a_tensor_in_two_shards(void **state) {
  model_files *m = *state;
  model_files_write_part(m, shards[1], 9, 20);
  char words[600];
  snprintf(words, sizeof words, "%s: tensor %s is in |/%s|the index has it in %s|copy both again", INDEX,
           m->tensor[9].name, shards[1], shards[0]);
  check_refused(m, KVS_ERR_INPUT, words);
}

static void the_same_weight_under_two_names_in_two_shards(void **state) {
  model_files *m = *state;
  model_files_add(m, "transformer.wte.weight", TINY_VOCAB, TINY_EMBD);
  model_files_write_part(m, shards[2], 20, m->count);
  write_index(m, -1, NULL);
  check_refused(m, KVS_ERR_INPUT, "wte.weight and |transformer.wte.weight|same weight under two names|keep one");
}

static void an_index_without_a_map(void **state) {
  model_files *m = *state;
  const struct {
    const char *text, *words;
  } bad[] = {{"", ", line 1: not valid JSON: the file is empty|copy it again"},
             {"{}", ": there is no \"weight_map\"|copy the file again"},
             {"{\"weight_map\": []}", ": there is no \"weight_map\"|copy the file again"},
             {"{\"weight_map\": {}}", ": \"weight_map\" names no shard|copy the file again"},
             {"{\"weight_map\": ", "line 1|not valid JSON|copy the file again"},
             {"[]", "array|object is expected"},
             {"{\"weight_map\": {\"a\": \"b\", \"a\": \"c\"}}", "duplicate object key"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char words[200];
    snprintf(words, sizeof words, "%s|%s", INDEX, bad[i].words);
    model_files_text(m, INDEX, bad[i].text);
    check_refused(m, KVS_ERR_INPUT, words);
  }
  char name[260] = "";
  memset(name, 'n', 201);
  char *text = malloc(600);
  assert_non_null(text);
  snprintf(text, 600, "{\"weight_map\": {\"%s\": \"%s\"}}", name, shards[0]);
  model_files_text(m, INDEX, text);
  free(text);
  check_refused(m, KVS_ERR_INPUT, INDEX ": a tensor's name has 201 bytes|copy the file again");
}

static void too_many_shards(void **state) {
  model_files *m = *state;
  const size_t size = 400000;
  char *text = malloc(size), file[16];
  assert_non_null(text);
  size_t used = (size_t)snprintf(text, size, "{\"weight_map\": {");
  for (int i = 0; i <= 1024; i++) {
    snprintf(file, sizeof file, "s%d", i);
    if (i < 1024) model_files_text(m, file, "");
    used += (size_t)snprintf(text + used, size - used, "%s\"t%d\": \"%s\"", i ? "," : "", i, file);
  }
  snprintf(text + used, size - used, "}}");
  model_files_text(m, INDEX, text);
  free(text);
  check_refused(m, KVS_ERR_INPUT, INDEX ": more than 1024 shards|copy the file again");
}

#define with_files(test) cmocka_unit_test_setup_teardown(test, start, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      with_files(shards_are_the_same_model_as_one_file),
      with_files(the_hash_is_of_the_shards_in_order),
      with_files(a_shard_that_is_missing_or_spoilt),
      with_files(shard_names_stay_in_the_directory),
      with_files(index_and_shards_must_agree),
      with_files(a_tensor_in_two_shards),
      with_files(the_same_weight_under_two_names_in_two_shards),
      with_files(an_index_without_a_map),
      with_files(too_many_shards),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
