/* test_config.c: config.json: what is read from it, what may be absent, and that every refusal names key, value and remedy. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config.h"
#include "tests/support/model_files.h"

/* From memory of exactly the text's size, so that a read past its end is seen. */
static kvs_status read_text(const char *text, kvs_config *config, kvs_config_note *note, kvs_error *err) {
  size_t size = strlen(text);
  unsigned char *bytes = malloc(size ? size : 1);
  assert_non_null(bytes);
  memcpy(bytes, text, size);
  kvs_status status = kvs_config_read(&(kvs_file){"dir/config.json", bytes, size}, config, note, err);
  free(bytes);
  return status;
}

static kvs_config accepted(const char *key, const char *value) {
  kvs_config config;
  kvs_config_note note;
  kvs_error err = {0};
  char *text = tiny_config(key, value);
  if (read_text(text, &config, &note, &err)) fail_msg("%s: %s was refused: %s", key, value, err.message);
  free(text);
  return config;
}

static void refused_text(const char *text, const char *words) {
  kvs_config config;
  kvs_config_note note;
  kvs_error err = {0};
  if (read_text(text, &config, &note, &err) != KVS_ERR_INPUT) fail_msg("accepted: %s", text);
  assert_int_equal(err.status, KVS_ERR_INPUT);
  if (missing_word(err.message, words)) fail_msg("\"%s\" is not in: %s", missing_word(err.message, words), err.message);
  if (missing_word(err.message, "dir/config.json")) fail_msg("no file's name in: %s", err.message);
  if (!is_clean_line(err.message)) fail_msg("not one clean line: %s", err.message);
  assert_int_equal(read_text(text, &config, &note, NULL), KVS_ERR_INPUT);
}

static void refused(const char *key, const char *value, const char *words) {
  char *text = tiny_config(key, value);
  refused_text(text, words);
  free(text);
}

/* ---- what is read -------------------------------------------------------------------------------------------------- */

static void the_whole_of_it(void **state) {
  (void)state;
  kvs_config c = accepted(NULL, NULL);
  assert_int_equal(c.n_layer, 2);
  assert_int_equal(c.n_head, 2);
  assert_int_equal(c.n_embd, 4);
  assert_int_equal(c.head_dim, 2);
  assert_int_equal(c.n_ctx, 6);
  assert_int_equal(c.n_vocab, 5);
  assert_int_equal(c.n_inner, 16);
  assert_int_equal(c.activation, KVS_GELU_NEW);
  assert_true(c.layer_norm_epsilon == 1e-5f);
  assert_true(c.scale_attn_weights);
  assert_false(c.scale_attn_by_inverse_layer_idx);
  assert_true(c.tied);
  assert_int_equal(c.eos_token, 4);
}

static void what_may_be_absent_has_gpt2s_default(void **state) {
  (void)state;
  assert_int_equal(accepted("n_inner", NULL).n_inner, 16);
  assert_int_equal(accepted("n_inner", "7").n_inner, 7);
  assert_int_equal(accepted("n_ctx", NULL).n_ctx, 6);
  assert_int_equal(accepted("n_positions", NULL).n_ctx, 6);  /* n_ctx stands in */
  assert_int_equal(accepted("vocab_size", NULL).n_vocab, 0); /* wte will say */
  assert_true(accepted("tie_word_embeddings", NULL).tied);
  assert_false(accepted("tie_word_embeddings", "false").tied);
  assert_true(accepted("layer_norm_epsilon", NULL).layer_norm_epsilon == 1e-5f);
  assert_int_equal(accepted("eos_token_id", NULL).eos_token, -1);
  assert_false(accepted("scale_attn_weights", "false").scale_attn_weights);
  assert_true(accepted("scale_attn_by_inverse_layer_idx", "true").scale_attn_by_inverse_layer_idx);
  assert_int_equal(accepted("add_cross_attention", "false").n_layer, 2);
}

static void n_positions_counts_where_n_ctx_differs(void **state) {
  (void)state;
  kvs_config config;
  kvs_config_note note;
  char *text = tiny_config("n_ctx", "3");
  assert_int_equal(read_text(text, &config, &note, NULL), KVS_OK);
  free(text);
  assert_int_equal(config.n_ctx, 6);
  assert_null(missing_word(note.text, "dir/config.json|n_positions is 6|n_ctx is 3|n_positions counts"));
  text = tiny_config(NULL, NULL);
  assert_int_equal(read_text(text, &config, &note, NULL), KVS_OK);
  free(text);
  assert_string_equal(note.text, "");
}

/* A long path (a download cache's) does not push the note's facts out. */
static void a_note_on_a_long_path_is_whole(void **state) {
  (void)state;
  kvs_config config;
  kvs_config_note note;
  char path[301];
  memset(path, 'p', 300);
  path[300] = '\0';
  char *text = tiny_config("n_ctx", "3");
  assert_int_equal(kvs_config_read(&(kvs_file){path, (const unsigned char *)text, strlen(text)}, &config, &note, NULL),
                   KVS_OK);
  free(text);
  assert_non_null(strstr(note.text, path));
  assert_null(missing_word(note.text, "n_positions counts"));
}

static void activations_are_obeyed_by_name(void **state) {
  (void)state;
  const char *key = "activation_function";
  assert_int_equal(accepted(key, "\"gelu_new\"").activation, KVS_GELU_NEW);
  assert_int_equal(accepted(key, "\"gelu_pytorch_tanh\"").activation, KVS_GELU_NEW);
  assert_int_equal(accepted(key, "\"gelu\"").activation, KVS_GELU);
  assert_int_equal(accepted(key, "\"relu\"").activation, KVS_RELU);
  assert_int_equal(accepted(key, NULL).activation, KVS_GELU_NEW);
  refused(key, "\"quick_gelu\"", "\"activation_function\"|\"quick_gelu\"|gelu_new, gelu_pytorch_tanh, gelu or relu");
  refused(key, "\"GELU\"", "\"GELU\"|expected");
  refused(key, "\"\"", "\"\"|expected");
  refused(key, "3", "is 3|expected gelu_new");
}

static void the_end_token(void **state) {
  (void)state;
  const char *key = "eos_token_id";
  assert_int_equal(accepted(key, "0").eos_token, 0);
  assert_int_equal(accepted(key, "null").eos_token, -1);
  assert_int_equal(accepted(key, "[3, 4]").eos_token, 3);
  assert_int_equal(accepted(key, "50256").eos_token, 50256); /* opening compares it with the vocabulary */
  refused(key, "[]", "\"eos_token_id\" is []|a token's id, or null");
  refused(key, "-1", "\"eos_token_id\" is -1|a token's id, or null");
  refused(key, "\"</s>\"", "\"eos_token_id\" is \"</s>\"|a token's id, or null");
  refused(key, "[[1]]", "\"eos_token_id\" is [[1]]|a token's id");
  refused(key, "4000000000", "\"eos_token_id\" is 4000000000|a token's id");
}

/* ---- what is refused ----------------------------------------------------------------------------------------------- */

static void every_count_is_checked(void **state) {
  (void)state;
  const char *keys[] = {"n_layer", "n_head", "n_embd", "n_positions", "n_ctx", "n_inner", "vocab_size"};
  const char *values[] = {"-3", "0", "2.0", "2.5", "\"2\"", "true", "[2]", "{}", "100000001", "9223372036854775807"};
  for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
      char words[120];
      snprintf(words, sizeof words, "\"%s\" is %s: expected a whole number from 1 to", keys[k], values[v]);
      refused(keys[k], values[v], words);
    }
  refused("n_layer", "10001", "\"n_layer\" is 10001|from 1 to 10000");
  refused("n_embd", "99999999999999999999", "line 7|too big integer|copy the file again");
  refused("layer_norm_epsilon", "1e999", "line 12|real number overflow|copy the file again");
}

static void what_must_be_there(void **state) {
  (void)state;
  const char *keys[] = {"n_layer", "n_head", "n_embd"};
  for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
    char words[80];
    snprintf(words, sizeof words, "\"%s\" is missing|copy config.json again", keys[k]);
    refused(keys[k], NULL, words);
    refused(keys[k], "null", words);
  }
}

static void heads_must_divide_the_width(void **state) {
  (void)state;
  refused("n_head", "3", "\"n_embd\" is 4|\"n_head\" is 3|n_embd must be a multiple of n_head");
  refused("n_head", "8", "\"n_embd\" is 4|\"n_head\" is 8|multiple");
  assert_int_equal(accepted("n_head", "4").head_dim, 1);
}

static void the_epsilon_and_the_flags_are_checked(void **state) {
  (void)state;
  assert_true(accepted("layer_norm_epsilon", "0").layer_norm_epsilon == 0);
  refused("layer_norm_epsilon", "-1e-5", "\"layer_norm_epsilon\" is -|a number from 0 to 1");
  refused("layer_norm_epsilon", "2", "\"layer_norm_epsilon\" is 2|a number from 0 to 1");
  refused("layer_norm_epsilon", "\"1e-5\"", "\"layer_norm_epsilon\" is \"1e-5\"|a number from 0 to 1");
  const char *flags[] = {"scale_attn_weights", "scale_attn_by_inverse_layer_idx", "tie_word_embeddings",
                         "add_cross_attention"};
  for (size_t f = 0; f < sizeof flags / sizeof *flags; f++) {
    refused(flags[f], "1", "is 1: expected true or false");
    refused(flags[f], "\"true\"", "is \"true\": expected true or false");
  }
  refused("add_cross_attention", "true", "\"add_cross_attention\" is true|expected false|without an encoder");
}

static void other_architectures_are_named(void **state) {
  (void)state;
  refused("model_type", "\"llama\"", "type is \"llama\"|GPT-2|\"model_type\": \"gpt2\"");
  refused_text("{\"model_type\": \"llama\", \"hidden_size\": 4096}", "\"llama\"|GPT-2");
  refused_text("{\"architectures\": [\"LlamaForCausalLM\"]}", "\"LlamaForCausalLM\"|GPT-2");
  refused_text("{}", "type is not given|GPT-2");
  refused_text("{\"architectures\": \"GPT2LMHeadModel\"}", "not given|GPT-2");
  assert_int_equal(accepted("model_type", NULL).n_layer, 2); /* architectures tells */
  assert_int_equal(accepted("architectures", NULL).n_layer, 2);
}

static void broken_json_is_placed(void **state) {
  (void)state;
  refused_text("", "empty|copy it again");
  refused_text("[1, 2]", "array|object is expected|copy the file again");
  refused_text("{\n\"n_layer\": 2,,}", "line 2|column|not valid JSON|copy the file again");
  refused_text("{\"n_layer\": 2", "line 1|not valid JSON");
  refused_text("{\"n_layer\": 2} x", "not valid JSON");
  refused_text("{\"n_layer\": 2, \"n_layer\": 3}", "duplicate object key|n_layer");
  refused_text("{\"n_layer\": \"\xff\"}", "not valid JSON");
  refused_text("GIF89a", "line 1|not valid JSON");
}

/* What was found is shown, but neither its control characters nor half of a character where it is cut. */
static void what_was_found_is_shown_cleanly(void **state) {
  (void)state;
  refused("n_layer", "\"\\u001b[2J\\n\"", "\\u001B[2J");
  refused(
      "n_layer",
      "\"x\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
      "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
      "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\"",
      "\"n_layer\"|\\u00E9");
  refused("model_type",
          "\"x\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac"
          "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac"
          "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\"",
          "type is \"x|GPT-2");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_whole_of_it),
      cmocka_unit_test(what_may_be_absent_has_gpt2s_default),
      cmocka_unit_test(n_positions_counts_where_n_ctx_differs),
      cmocka_unit_test(a_note_on_a_long_path_is_whole),
      cmocka_unit_test(activations_are_obeyed_by_name),
      cmocka_unit_test(the_end_token),
      cmocka_unit_test(every_count_is_checked),
      cmocka_unit_test(what_must_be_there),
      cmocka_unit_test(heads_must_divide_the_width),
      cmocka_unit_test(the_epsilon_and_the_flags_are_checked),
      cmocka_unit_test(other_architectures_are_named),
      cmocka_unit_test(broken_json_is_placed),
      cmocka_unit_test(what_was_found_is_shown_cleanly),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
