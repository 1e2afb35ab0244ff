/* test_model_weights.c: from a file's tensors to a model's weights: names, layouts, types, lm_head, and what does not fit. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/weights.h"
#include "tests/support/model_files.h"

static int start(void **state) {
  static model_files files;
  model_files_start(&files);
  *state = &files;
  return 0;
}

static int end(void **state) {
  model_files_remove(*state);
  return 0;
}

static kvs_model *opened(const model_files *m) {
  kvs_error err = {0};
  kvs_model *model;
  model_files_write(m);
  if (kvs_model_open(m->dir, &model, &err)) fail_msg("refused: %s", err.message);
  return model;
}

static void refused(const model_files *m, const char *words) {
  kvs_error err = {0};
  kvs_model *model;
  model_files_write(m);
  kvs_status status = kvs_model_open(m->dir, &model, &err);
  if (status == KVS_OK) fail_msg("accepted; expected \"%s\"", words);
  assert_null(model);
  if (missing_word(err.message, words)) fail_msg("\"%s\" is not in: %s", missing_word(err.message, words), err.message);
  if (!strstr(err.message, "model.safetensors: ")) fail_msg("no file's name in: %s", err.message);
  if (!is_clean_line(err.message)) fail_msg("not one clean line: %s", err.message);
  assert_int_equal(status, KVS_ERR_INPUT);
}

/* ---- the same model ------------------------------------------------------------------------------------------------- */

/* The bytes as the file has them, or narrowed when the model keeps 16 bits. */
static void assert_matrix(model_files *m, const char *name, const kvs_tensor *t) {
  const model_tensor *stored = model_files_find(m, name);
  assert_int_equal((uintptr_t)t->data % (t->dtype == KVS_F32 ? 4 : 2), 0);
  assert_int_equal(t->rows, stored->shape[0]);
  assert_int_equal(t->cols, stored->shape[1]);
  if (memcmp(t->data, stored->data, stored->size) != 0) fail_msg("%s differs", name);
}

/* `plain`: the tiny model as made, F32. */
static void assert_vector(model_files *plain, const char *name, const float *v) {
  const model_tensor *stored = model_files_find(plain, name);
  assert_non_null(v);
  assert_int_equal((uintptr_t)v % sizeof *v, 0);
  if (memcmp(v, stored->data, stored->size) != 0) fail_msg("%s differs", name);
}

/* The model's matrices are those of `matrices` and its vectors those of `vectors`. */
static void assert_model(const kvs_model *model, model_files *matrices, model_files *vectors) {
  assert_matrix(matrices, "wte.weight", &model->wte);
  assert_matrix(matrices, "wpe.weight", &model->wpe);
  for (int i = 0; i < TINY_LAYERS; i++) {
    const kvs_layer *layer = &model->layer[i];
    char name[64];
#define NAME(part) (snprintf(name, sizeof name, "h.%d.%s", i, part), name)
    assert_vector(vectors, NAME("ln_1.weight"), layer->ln_1.g);
    assert_vector(vectors, NAME("ln_1.bias"), layer->ln_1.b);
    assert_matrix(matrices, NAME("attn.c_attn.weight"), &layer->c_attn.w);
    assert_vector(vectors, NAME("attn.c_attn.bias"), layer->c_attn.b);
    assert_matrix(matrices, NAME("attn.c_proj.weight"), &layer->c_proj.w);
    assert_vector(vectors, NAME("attn.c_proj.bias"), layer->c_proj.b);
    assert_vector(vectors, NAME("ln_2.weight"), layer->ln_2.g);
    assert_vector(vectors, NAME("ln_2.bias"), layer->ln_2.b);
    assert_matrix(matrices, NAME("mlp.c_fc.weight"), &layer->mlp_c_fc.w);
    assert_vector(vectors, NAME("mlp.c_fc.bias"), layer->mlp_c_fc.b);
    assert_matrix(matrices, NAME("mlp.c_proj.weight"), &layer->mlp_c_proj.w);
    assert_vector(vectors, NAME("mlp.c_proj.bias"), layer->mlp_c_proj.b);
#undef NAME
  }
  assert_vector(vectors, "ln_f.weight", model->ln_f.g);
  assert_vector(vectors, "ln_f.bias", model->ln_f.b);
}

/* A second tiny model, untouched, to compare with; call end(&plain) for its folder. */
static model_files *plain_files(void) {
  static model_files plain;
  model_files_start(&plain);
  return &plain;
}

static void assert_no_warning(const kvs_model *model) {
  if (kvs_model_warning(model, 0)) fail_msg("unexpected: %s", kvs_model_warning(model, 0));
}

static void every_weight_lands_in_its_place(void **state) {
  model_files *m = *state;
  kvs_model *model = opened(m);
  assert_model(model, m, m);
  assert_no_warning(model);
  kvs_model_free(model);
}

static void data_at_any_alignment_is_the_same_model(void **state) {
  model_files *m = *state;
  for (m->blanks = 0; m->blanks < 8; m->blanks++) {
    kvs_model *model = opened(m);
    assert_model(model, m, m);
    kvs_model_free(model);
  }
}

static void aligned_float32_is_used_where_it_lies(void **state) {
  model_files *m = *state;
  kvs_model *model = opened(m);
  /* In the file's order, so in the mapping's order, without gaps: nothing was copied. */
  assert_ptr_equal((const char *)model->wte.data + 4 * TINY_VOCAB * TINY_EMBD, model->wpe.data);
  assert_ptr_equal((const char *)model->wpe.data + 4 * TINY_CTX * TINY_EMBD, model->layer[0].ln_1.g);
  assert_ptr_equal(model->layer[0].ln_1.g + TINY_EMBD, model->layer[0].ln_1.b);
  kvs_model_free(model);
}

static void names_with_and_without_transformer(void **state) {
  model_files *m = *state;
  model_files *plain = plain_files();
  for (int every = 1; every <= 2; every++) { /* all, then a mixture */
    for (int i = 0; i < m->count; i += every) {
      char name[sizeof m->tensor[i].name];
      snprintf(name, sizeof name, "transformer.%.100s", plain->tensor[i].name);
      memcpy(m->tensor[i].name, name, sizeof name);
    }
    kvs_model *model = opened(m);
    assert_model(model, plain, plain);
    assert_no_warning(model);
    kvs_model_free(model);
    for (int i = 0; i < m->count; i++) memcpy(m->tensor[i].name, plain->tensor[i].name, sizeof m->tensor[i].name);
  }
  model_files_add(m, "transformer.h.1.ln_2.bias", TINY_EMBD, 0);
  refused(m, "transformer.h.1.ln_2.bias|h.1.ln_2.bias|same weight under two names|keep one of them");
  model_files_remove(plain);
}

static void masks_are_skipped_and_biases_are_not(void **state) {
  model_files *m = *state;
  const char *dtypes[] = {"F32", "U8", "BOOL"};
  const int widths[] = {4, 1, 1};
  for (int i = 0; i < 3; i++) {
    model_tensor *mask = model_files_add(m, "h.0.attn.bias", TINY_CTX, TINY_CTX);
    *mask = (model_tensor){.dimensions = 4,
                           .shape = {1, 1, TINY_CTX, TINY_CTX},
                           .data = mask->data,
                           .size = (size_t)(widths[i] * TINY_CTX * TINY_CTX)};
    snprintf(mask->name, sizeof mask->name, "transformer.h.0.attn.bias");
    snprintf(mask->dtype, sizeof mask->dtype, "%s", dtypes[i]);
    model_tensor *fill = model_files_add(m, "h.1.attn.masked_bias", 1, 0);
    fill->dimensions = 0; /* a scalar */
    kvs_model *model = opened(m);
    assert_model(model, m, m);
    assert_no_warning(model);
    assert_int_equal(kvs_model_parameters(model), 540);
    kvs_model_free(model);
    model_files_drop(m, "h.1.attn.masked_bias");
    model_files_drop(m, "transformer.h.0.attn.bias");
  }
  model_files_drop(m, "h.0.attn.c_attn.bias");
  model_files_add(m, "h.0.attn.bias", 3 * TINY_EMBD, 0); /* looks like it, and is not it */
  refused(m, "tensor h.0.attn.c_attn.bias is missing|n_layer|copy the weights again");
}

/* ---- layout and types --------------------------------------------------------------------------------------------------- */

static void make_linear(model_files *m) {
  for (int i = 0; i < m->count; i++)
    if (strncmp(m->tensor[i].name, "h.", 2) == 0 && m->tensor[i].dimensions == 2) model_tensor_transpose(&m->tensor[i]);
}

static void linear_layout_is_the_same_model(void **state) {
  model_files *m = *state;
  model_files *plain = plain_files();
  const char *dtypes[] = {"F32", "F16", "BF16"};
  for (int i = 0; i < 3; i++) {
    make_linear(m);
    for (int t = 0; i > 0 && t < m->count; t++) {
      model_tensor_narrow(&m->tensor[t], dtypes[i]);
      if (plain->tensor[t].dimensions == 2) model_tensor_narrow(&plain->tensor[t], dtypes[i]);
    }
    kvs_model *model = opened(m);
    assert_model(model, plain, plain);
    assert_int_equal(model->layer[0].c_proj.w.dtype, (kvs_dtype)i);
    kvs_model_free(model);
    model_files_remove(m);
    model_files_remove(plain);
    model_files_start(m);
    model_files_start(plain);
  }
  model_files_remove(plain);
}

/* c_proj is square and could be either; c_attn decides for all, and one that then does not fit is refused. */
static void layouts_are_not_mixed(void **state) {
  model_files *m = *state;
  make_linear(m);
  model_tensor_transpose(model_files_find(m, "h.1.mlp.c_fc.weight"));
  refused(m, "tensor h.1.mlp.c_fc.weight has the shape [4, 16] where config.json makes it [16, 4]|different models");
}

static void sixteen_bit_matrices_stay_and_vectors_are_widened(void **state) {
  model_files *m = *state;
  model_files *plain = plain_files();
  const char *dtypes[] = {"F16", "BF16"};
  for (int i = 0; i < 2; i++)
    for (m->blanks = 0; m->blanks < 2; m->blanks++) {
      int blanks = m->blanks;
      for (int t = 0; t < m->count; t++) model_tensor_narrow(&m->tensor[t], dtypes[i]);
      kvs_model *model = opened(m);
      assert_model(model, m, plain);
      assert_int_equal(kvs_model_dtype(model), i == 0 ? KVS_F16 : KVS_BF16);
      assert_int_equal(model->layer[1].mlp_c_proj.w.dtype, i == 0 ? KVS_F16 : KVS_BF16);
      assert_int_equal(kvs_model_parameters(model), 540);
      kvs_model_free(model);
      model_files_remove(m);
      model_files_start(m);
      m->blanks = blanks;
    }
  model_files_remove(plain);
}

/* By the formats' definitions: bits, and the number they are. */
static void sixteen_bit_patterns(void **state) {
  model_files *m = *state;
  const struct {
    const char *dtype;
    uint16_t bits[4];
    float values[4];
  } patterns[] = {
      {"F16", {0x3C00, 0xC000, 0x3555, 0x7BFF}, {1, -2, 0x1.554p-2f, 65504}},
      {"F16",
       {0x0001, 0x83FF, 0x0400, 0x0000},
       {0x1p-24f, -0x1.ff8p-15f, 0x1p-14f, 0}}, /* subnormals; the least normal */
      {"F16", {0x7C00, 0xFC00, 0x8000, 0x3800}, {INFINITY, -INFINITY, -0.0f, 0.5f}},
      {"BF16", {0x3F80, 0xC000, 0x3EAB, 0x7F7F}, {1, -2, 0x1.56p-2f, 0x1.fep127f}},
      {"BF16", {0x0001, 0x8080, 0x0080, 0x8000}, {0x1p-133f, -0x1p-126f, 0x1p-126f, -0.0f}},
      {"BF16", {0x7F80, 0xFF80, 0x4049, 0x0000}, {INFINITY, -INFINITY, 3.140625f, 0}},
  };
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
    model_tensor *t = model_files_find(m, "ln_f.bias");
    memcpy(t->data, patterns[i].bits, sizeof patterns[i].bits);
    t->size = sizeof patterns[i].bits;
    snprintf(t->dtype, sizeof t->dtype, "%s", patterns[i].dtype);
    kvs_model *model = opened(m);
    assert_memory_equal(model->ln_f.b, patterns[i].values, sizeof patterns[i].values);
    kvs_model_free(model);
  }
}

static void types_may_be_mixed(void **state) {
  model_files *m = *state;
  model_tensor_narrow(model_files_find(m, "h.0.attn.c_proj.weight"), "F16");
  model_tensor_narrow(model_files_find(m, "wpe.weight"), "BF16");
  kvs_model *model = opened(m);
  assert_int_equal(model->layer[0].c_proj.w.dtype, KVS_F16);
  assert_int_equal(model->layer[1].c_proj.w.dtype, KVS_F32);
  assert_int_equal(model->wpe.dtype, KVS_BF16);
  assert_int_equal(kvs_model_dtype(model), KVS_F32);
  assert_model(model, m, m);
  kvs_model_free(model);
}

static void other_types_are_refused(void **state) {
  model_files *m = *state;
  const char *names[] = {"h.1.mlp.c_fc.weight", "h.1.mlp.c_fc.bias"};
  for (int i = 0; i < 2; i++) {
    model_tensor *t = model_files_find(m, names[i]);
    model_tensor before = *t;
    char words[200];
    t->data = calloc(1, 2 * t->size);
    t->size *= 2;
    snprintf(t->dtype, sizeof t->dtype, "F64");
    snprintf(words, sizeof words, "tensor %s is stored as F64|F32, F16 and BF16|torch_dtype=torch.float32", names[i]);
    refused(m, words);
    free(t->data);
    *t = before;
    t->size /= 4;
    snprintf(t->dtype, sizeof t->dtype, "I8");
    snprintf(words, sizeof words, "tensor %s is stored as I8|F32, F16 and BF16", names[i]);
    refused(m, words);
    *t = before;
  }
}

/* ---- lm_head -------------------------------------------------------------------------------------------------------------- */

static void a_tied_head_is_wte(void **state) {
  model_files *m = *state;
  kvs_model *model = opened(m);
  assert_ptr_equal(model->lm_head.data, model->wte.data);
  assert_true(kvs_model_config(model)->tied);
  kvs_model_free(model);
  model_tensor *head = model_files_add(m, "lm_head.weight", TINY_VOCAB, TINY_EMBD); /* present and equal */
  memcpy(head->data, model_files_find(m, "wte.weight")->data, head->size);
  for (int tied = 0; tied < 2; tied++) {
    model_files_config(m, "tie_word_embeddings", tied ? "true" : "false");
    model = opened(m);
    assert_ptr_equal(model->lm_head.data, model->wte.data);
    assert_true(kvs_model_config(model)->tied);
    assert_int_equal(kvs_model_parameters(model), 540);
    assert_no_warning(model);
    kvs_model_free(model);
  }
}

static void an_unequal_head_is_used(void **state) {
  model_files *m = *state;
  model_files_add(m, "lm_head.weight", TINY_VOCAB, TINY_EMBD);
  kvs_model *model = opened(m);
  assert_matrix(m, "lm_head.weight", &model->lm_head);
  assert_false(kvs_model_config(model)->tied);
  assert_non_null(kvs_model_warning(model, 0));
  assert_null(missing_word(kvs_model_warning(model, 0),
                           "model.safetensors: lm_head.weight differs from wte.weight|tied|is used"));
  assert_null(kvs_model_warning(model, 1));
  assert_int_equal(kvs_model_parameters(model), 540 + TINY_VOCAB * TINY_EMBD);
  kvs_model_free(model);
  model_files_config(m, "tie_word_embeddings", "false");
  model = opened(m);
  assert_matrix(m, "lm_head.weight", &model->lm_head);
  assert_false(kvs_model_config(model)->tied);
  assert_no_warning(model);
  kvs_model_free(model);
}

static void a_head_that_is_not_there_or_does_not_fit(void **state) {
  model_files *m = *state;
  model_files_config(m, "tie_word_embeddings", "false");
  refused(m, "lm_head.weight is missing|\"tie_word_embeddings\": false|copy the weights again|set it to true");
  model_files_add(m, "lm_head.weight", TINY_VOCAB + 1, TINY_EMBD);
  refused(m, "tensor lm_head.weight has the shape [6, 4] where config.json makes it [5, 4]");
}

/* ---- what does not fit ------------------------------------------------------------------------------------------------------ */

static void every_missing_tensor_is_named(void **state) {
  model_files *m = *state;
  for (int i = 0; i < m->count; i++) {
    model_tensor *t = &m->tensor[i];
    char whole[sizeof t->name], words[300];
    memcpy(whole, t->name, sizeof whole);
    snprintf(t->name, sizeof t->name, "elsewhere");
    snprintf(words, sizeof words,
             "tensor %s is missing|GPT-2 of 2 layers|\"n_layer\" in config.json|copy the weights again", whole);
    refused(m, words);
    memcpy(t->name, whole, sizeof whole);
  }
  model_files_config(m, "n_layer", "3");
  refused(m, "tensor h.2.ln_1.weight is missing|3 layers");
}

static void every_wrong_shape_is_shown(void **state) {
  model_files *m = *state;
  for (int i = 0; i < m->count; i++) {
    model_tensor *t = &m->tensor[i], before = *t;
    char words[300];
    t->shape[t->dimensions++] = 1; /* as many bytes, one dimension more */
    snprintf(words, sizeof words, "tensor %s has the shape [|, 1] where config.json makes it [|different models",
             t->name);
    refused(m, words);
    *t = before;
  }
  model_tensor *t = model_files_find(m, "h.1.ln_1.weight");
  t->dimensions = 0; /* a scalar */
  t->size = 4;
  refused(m, "tensor h.1.ln_1.weight has the shape [] where config.json makes it [4]");
  t->dimensions = 9;
  for (int d = 0; d < 9; d++) t->shape[d] = 1;
  refused(m, "tensor h.1.ln_1.weight|[1,1,1,1,1,1,1,1,1]|at most 8");
}

static void the_embeddings_say_what_the_config_leaves_open(void **state) {
  model_files *m = *state;
  model_files_text(
      m, "config.json",
      "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 2, \"n_embd\": 4, \"eos_token_id\": [4, 3]}");
  kvs_model *model = opened(m);
  assert_int_equal(kvs_model_config(model)->n_ctx, TINY_CTX);
  assert_int_equal(kvs_model_config(model)->n_vocab, TINY_VOCAB);
  assert_int_equal(kvs_model_config(model)->eos_token, 4);
  kvs_model_free(model);
  const char *names[] = {"wte.weight", "wpe.weight"};
  for (int i = 0; i < 2; i++) {
    model_tensor *t = model_files_find(m, names[i]), before = *t;
    char words[200];
    snprintf(words, sizeof words, "tensor %s has the shape [0, 4]|[from 1 to 100000000, 4]", names[i]);
    t->shape[0] = 0; /* no rows, no bytes: no token, no position */
    t->size = 0;
    refused(m, words);
    *t = before;
    t->dimensions = 1;
    t->shape[0] = (long long)(t->size / 4);
    snprintf(words, sizeof words, "tensor %s has the shape [2", names[i]);
    refused(m, words);
    *t = before;
  }
}

static void embeddings_the_config_contradicts(void **state) {
  model_files *m = *state;
  model_files_config(m, "n_positions", "7");
  refused(m, "tensor wpe.weight has the shape [6, 4] where config.json makes it [7, 4]|different models");
  model_files_config(m, "vocab_size", "50257");
  refused(m, "tensor wte.weight has the shape [5, 4] where config.json makes it [50257, 4]");
  model_files_config(m, "n_embd", "100000000");
  refused(m, "has the shape [5, 4] where config.json makes it [5, 100000000]");
  model_files_config(m, "n_inner", "8");
  refused(m, "tensor h.0.mlp.c_fc.weight has the shape [4, 16] where config.json makes it [4, 8]");
}

static void what_is_left_over_is_mentioned(void **state) {
  model_files *m = *state;
  model_files_add(m, "score.weight", 2, TINY_EMBD);
  kvs_model *model = opened(m);
  assert_non_null(kvs_model_warning(model, 0));
  assert_null(missing_word(kvs_model_warning(model, 0), "model.safetensors: 1 tensor that|is ignored|score.weight"));
  kvs_model_free(model);
  model_files_config(m, "n_layer", "1");
  model = opened(m);
  assert_int_equal(kvs_model_config(model)->n_layer, 1);
  assert_null(missing_word(kvs_model_warning(model, 0), "13 tensors that|are ignored, such as h.1."));
  kvs_model_free(model);
}

#define with_files(test) cmocka_unit_test_setup_teardown(test, start, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      with_files(every_weight_lands_in_its_place),
      with_files(data_at_any_alignment_is_the_same_model),
      with_files(aligned_float32_is_used_where_it_lies),
      with_files(names_with_and_without_transformer),
      with_files(masks_are_skipped_and_biases_are_not),
      with_files(linear_layout_is_the_same_model),
      with_files(layouts_are_not_mixed),
      with_files(sixteen_bit_matrices_stay_and_vectors_are_widened),
      with_files(sixteen_bit_patterns),
      with_files(types_may_be_mixed),
      with_files(other_types_are_refused),
      with_files(a_tied_head_is_wte),
      with_files(an_unequal_head_is_used),
      with_files(a_head_that_is_not_there_or_does_not_fit),
      with_files(every_missing_tensor_is_named),
      with_files(every_wrong_shape_is_shown),
      with_files(the_embeddings_say_what_the_config_leaves_open),
      with_files(embeddings_the_config_contradicts),
      with_files(what_is_left_over_is_mentioned),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
