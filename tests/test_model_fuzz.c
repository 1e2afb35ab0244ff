/* test_model_fuzz.c: thousands of spoilt config.json, headers and indices: each opens or is refused in one clean line, and
 * nothing else happens. The sanitizers watch; the seed is fixed, so a failure repeats. */
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
#include "tests/support/random.h"

#define ROUNDS 2500 /* per file */
#define MOST_BYTES 16384

typedef struct text {
  unsigned char bytes[MOST_BYTES];
  size_t size;
} text;

static void splice(text *t, size_t at, size_t removed, const void *inserted, size_t length) {
  if (t->size - removed + length > MOST_BYTES) return;
  memmove(t->bytes + at + length, t->bytes + at + removed, t->size - at - removed);
  if (length) memcpy(t->bytes + at, inserted, length);
  t->size = t->size - removed + length;
}

/* Numbers and words that have broken readers before, in place of a byte or of a whole number. */
static void insert_word(text *t, size_t at) {
  static const char *const words[] = {"-1",
                                      "0",
                                      "1e308",
                                      "18446744073709551615",
                                      "9223372036854775807",
                                      "4294967296",
                                      "null",
                                      "true",
                                      "[]",
                                      "{}",
                                      "\"\"",
                                      "\\u0000",
                                      "\xff",
                                      "\xc3",
                                      ",",
                                      "\"wte.weight\":",
                                      "F16",
                                      "../"};
  const char *word = words[random_below(sizeof words / sizeof *words)];
  size_t removed = 0;
  while (at + removed < t->size && t->bytes[at + removed] >= '0' && t->bytes[at + removed] <= '9') removed++;
  splice(t, at, removed, word, strlen(word));
}

static void mutate(text *t) {
  for (uint32_t i = 1 + random_below(4) / 2; i > 0 && t->size > 0; i--) {
    size_t at = random_below((uint32_t)t->size), length = 1 + random_below(24);
    if (length > t->size - at) length = t->size - at;
    unsigned char byte = (unsigned char)random_below(256), copy[24];
    memcpy(copy, t->bytes + at, length);
    switch (random_below(7)) {
    case 0:
      t->bytes[at] ^= (unsigned char)(1u << random_below(8));
      break;
    case 1:
      splice(t, at, 0, &byte, 1);
      break;
    case 2:
      splice(t, at, length, NULL, 0);
      break;
    case 3:
      splice(t, at, 0, copy, length);
      break;
    case 4:
      splice(t, random_below((uint32_t)t->size), 0, copy, length);
      break;
    case 5:
      insert_word(t, at);
      break;
    default:
      t->bytes[at] = (unsigned char)('0' + byte % 10);
      break;
    }
  }
}

/* Spoils a weights file's header and mostly sets its length right again, so that what is behind the length is tested too. */
static void mutate_header(text *t) {
  text header = {.size = t->bytes[0] | (size_t)t->bytes[1] << 8};
  size_t before = header.size;
  memcpy(header.bytes, t->bytes + 8, before);
  mutate(&header);
  if (header.size + (t->size - before) > MOST_BYTES) return;
  splice(t, 8, before, header.bytes, header.size);
  if (random_below(16) == 0)
    t->bytes[random_below(8)] ^= (unsigned char)(1u << random_below(8));
  else
    t->bytes[0] = header.size & 0xFF, t->bytes[1] = (unsigned char)(header.size >> 8);
}

static text text_of(const model_files *m, const char *file) {
  static text read;
  FILE *in = fopen(model_files_path(m, file), "rb");
  assert_non_null(in);
  read.size = fread(read.bytes, 1, MOST_BYTES, in);
  fclose(in);
  assert_in_range(read.size, 1, MOST_BYTES - 1);
  return read;
}

/* Uses what was opened as the engine would: every weight is read. */
static double sum_of(const kvs_tensor *t) {
  const unsigned char *bytes = t->data;
  double sum = 0;
  for (size_t i = 0; i < (size_t)t->rows * (size_t)t->cols * (t->dtype == KVS_F32 ? 4 : 2); i++) sum += bytes[i];
  return sum;
}

static double sum_of_model(const kvs_model *model) {
  const kvs_config *c = &model->config;
  double sum = sum_of(&model->wte) + sum_of(&model->wpe) + sum_of(&model->lm_head);
  for (int i = 0; i < c->n_layer; i++) {
    const kvs_layer *layer = &model->layer[i];
    sum +=
        sum_of(&layer->c_attn.w) + sum_of(&layer->c_proj.w) + sum_of(&layer->mlp_c_fc.w) + sum_of(&layer->mlp_c_proj.w);
    sum += (layer->c_attn.b[3 * c->n_embd - 1] == 0) + (layer->mlp_c_fc.b[c->n_inner - 1] == 0);
    for (int j = 0; j < c->n_embd; j++)
      sum += (layer->ln_1.g[j] == layer->ln_1.b[j]) + (layer->ln_2.g[j] == layer->ln_2.b[j]) +
             (layer->c_proj.b[j] == layer->mlp_c_proj.b[j]) + (model->ln_f.g[j] == model->ln_f.b[j]);
  }
  return sum;
}

/* Opens it; 1 if it could be opened, and then it makes sense. */
static int open_spoilt(const model_files *m, const char *what, int round) {
  kvs_error err = {0};
  kvs_model *model;
  kvs_status status = kvs_model_open(m->dir, &model, &err);
  if (status != KVS_OK) {
    assert_null(model);
    if (status != KVS_ERR_INPUT && status != KVS_ERR_IO) fail_msg("%s, round %d: status %d", what, round, (int)status);
    if (strlen(err.message) < 20 || !strstr(err.message, m->dir))
      fail_msg("%s, round %d: %s", what, round, err.message);
    if (!is_clean_line(err.message)) fail_msg("%s, round %d: not a clean line: %s", what, round, err.message);
    return 0;
  }
  const kvs_config *c = kvs_model_config(model);
  if (c->n_layer < 1 || c->n_head < 1 || c->head_dim * c->n_head != c->n_embd || c->n_ctx < 1 || c->n_vocab < 1 ||
      c->n_inner < 1 || c->eos_token >= c->n_vocab || !(sum_of_model(model) >= 0))
    fail_msg("%s, round %d: opened without sense", what, round);
  for (int i = 0; kvs_model_warning(model, i); i++)
    if (!is_clean_line(kvs_model_warning(model, i)))
      fail_msg("%s, round %d: %s", what, round, kvs_model_warning(model, i));
  kvs_model_free(model);
  return 1;
}

/* Some mutants must be accepted and some refused, or the fuzz tests nothing. */
static void fuzz(const model_files *m, const char *file, void (*spoil)(text *)) {
  text whole = text_of(m, file);
  int accepted = 0;
  assert_int_equal(open_spoilt(m, file, -1), 1);
  for (int round = 0; round < ROUNDS; round++) {
    text spoilt = whole;
    spoil(&spoilt);
    model_files_bytes(m, file, spoilt.bytes, spoilt.size);
    accepted += open_spoilt(m, file, round);
  }
  if (accepted == 0 || accepted > ROUNDS * 3 / 4) fail_msg("%s: %d of %d accepted", file, accepted, ROUNDS);
}

static int start(void **state) {
  static model_files files;
  model_files_start(&files);
  random_state = 20260101;
  *state = &files;
  return 0;
}

static int end(void **state) {
  model_files_remove(*state);
  return 0;
}

static void spoilt_configs(void **state) {
  model_files_write(*state);
  fuzz(*state, "config.json", mutate);
}

static void spoilt_headers(void **state) {
  model_files_write(*state);
  fuzz(*state, "model.safetensors", mutate_header);
}

static void spoilt_indices(void **state) {
  model_files *m = *state;
  static char index[8000];
  size_t used = (size_t)snprintf(index, sizeof index, "{\"weight_map\": {");
  for (int i = 0; i < m->count; i++)
    used += (size_t)snprintf(index + used, sizeof index - used, "%s\"%s\": \"%s\"", i ? ", " : "", m->tensor[i].name,
                             i < 9 ? "a.safetensors" : "b.safetensors");
  snprintf(index + used, sizeof index - used,
           "}, \"metadata\": {\"total_size\": 2160, \"note\": [1, 2.5, \"anything\"]}}");
  model_files_write_part(m, "a.safetensors", 0, 9);
  model_files_write_part(m, "b.safetensors", 9, m->count);
  model_files_text(m, "model.safetensors.index.json", index);
  fuzz(m, "model.safetensors.index.json", mutate);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(spoilt_configs, start, end),
      cmocka_unit_test_setup_teardown(spoilt_headers, start, end),
      cmocka_unit_test_setup_teardown(spoilt_indices, start, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
