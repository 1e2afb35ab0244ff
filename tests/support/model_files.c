/* model_files.c: writes model directories for tests. */
#include "tests/support/model_files.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A test's own scaffolding failed: nothing after it would mean anything. */
static void must(bool good, const char *what) {
  if (good) return;
  perror(what);
  abort();
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static size_t elements(const model_tensor *t) {
  size_t count = 1;
  for (int d = 0; d < t->dimensions; d++) count *= (size_t)t->shape[d];
  return count;
}

model_tensor *model_files_add(model_files *m, const char *name, int rows, int cols) {
  must(m->count < MOST_TENSORS, "too many tensors");
  model_tensor *t = &m->tensor[m->count];
  *t = (model_tensor){.dtype = "F32", .dimensions = cols ? 2 : 1, .shape = {rows, cols}};
  snprintf(t->name, sizeof t->name, "%s", name);
  t->size = elements(t) * sizeof(float);
  t->data = malloc(t->size + 1);
  must(t->data != NULL, "malloc");
  for (size_t i = 0; i < elements(t); i++) {
    float value = (float)((int)((i * 37 + (size_t)m->count * 11) % 255) - 127) / 64;
    memcpy(t->data + i * sizeof value, &value, sizeof value);
  }
  m->count++;
  return t;
}

model_tensor *model_files_find(model_files *m, const char *name) {
  for (int i = 0; i < m->count; i++)
    if (strcmp(m->tensor[i].name, name) == 0) return &m->tensor[i];
  must(false, name);
  return NULL;
}

void model_files_drop(model_files *m, const char *name) {
  model_tensor *t = model_files_find(m, name);
  free(t->data);
  memmove(t, t + 1, (size_t)(&m->tensor[m->count] - (t + 1)) * sizeof *t);
  m->count--;
}

void model_tensor_narrow(model_tensor *t, const char *dtype) {
  size_t count = elements(t);
  for (size_t i = 0; i < count; i++) {
    uint32_t wide;
    memcpy(&wide, t->data + 4 * i, 4);
    uint16_t narrow = (uint16_t)(wide >> 16);
    if (strcmp(dtype, "F16") == 0) /* values are zero or normal, with few bits */
      narrow = (uint16_t)((wide >> 16 & 0x8000) | ((wide & 0x7FFFFFFF) ? ((wide >> 13) & 0x3FFFF) - (112u << 10) : 0));
    memcpy(t->data + 2 * i, &narrow, 2);
  }
  t->size = 2 * count;
  snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
}

void model_tensor_transpose(model_tensor *t) {
  size_t rows = (size_t)t->shape[0], cols = (size_t)t->shape[1], width = t->size / (rows * cols);
  unsigned char *turned = malloc(t->size);
  must(turned != NULL, "malloc");
  for (size_t i = 0; i < rows; i++)
    for (size_t j = 0; j < cols; j++) memcpy(turned + (j * rows + i) * width, t->data + (i * cols + j) * width, width);
  free(t->data);
  t->data = turned;
  t->shape[0] = (long long)cols;
  t->shape[1] = (long long)rows;
}

static void add_tiny_tensors(model_files *m) {
  static const struct {
    const char *name;
    int rows, cols;
  } parts[] = {{"ln_1.weight", TINY_EMBD, 0},
               {"ln_1.bias", TINY_EMBD, 0},
               {"attn.c_attn.weight", TINY_EMBD, 3 * TINY_EMBD},
               {"attn.c_attn.bias", 3 * TINY_EMBD, 0},
               {"attn.c_proj.weight", TINY_EMBD, TINY_EMBD},
               {"attn.c_proj.bias", TINY_EMBD, 0},
               {"ln_2.weight", TINY_EMBD, 0},
               {"ln_2.bias", TINY_EMBD, 0},
               {"mlp.c_fc.weight", TINY_EMBD, TINY_INNER},
               {"mlp.c_fc.bias", TINY_INNER, 0},
               {"mlp.c_proj.weight", TINY_INNER, TINY_EMBD},
               {"mlp.c_proj.bias", TINY_EMBD, 0}};
  model_files_add(m, "wte.weight", TINY_VOCAB, TINY_EMBD);
  model_files_add(m, "wpe.weight", TINY_CTX, TINY_EMBD);
  for (int layer = 0; layer < TINY_LAYERS; layer++)
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
      char name[64];
      snprintf(name, sizeof name, "h.%d.%s", layer, parts[i].name);
      model_files_add(m, name, parts[i].rows, parts[i].cols);
    }
  model_files_add(m, "ln_f.weight", TINY_EMBD, 0);
  model_files_add(m, "ln_f.bias", TINY_EMBD, 0);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

void model_files_start(model_files *m) {
  const char *temporary = getenv("TMPDIR");
  *m = (model_files){0};
  snprintf(m->dir, sizeof m->dir, "%s/kvstep-model.XXXXXX", temporary && *temporary ? temporary : "/tmp");
  must(mkdtemp(m->dir) != NULL, m->dir);
  add_tiny_tensors(m);
  model_files_config(m, NULL, NULL);
}

void model_files_remove(model_files *m) {
  DIR *dir = opendir(m->dir);
  must(dir != NULL, m->dir);
  for (struct dirent *entry; (entry = readdir(dir));) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    const char *path = model_files_path(m, entry->d_name);
    if (unlink(path) != 0) must(rmdir(path) == 0, path);
  }
  closedir(dir);
  must(rmdir(m->dir) == 0, m->dir);
  for (int i = 0; i < m->count; i++) free(m->tensor[i].data);
}

const char *model_files_path(const model_files *m, const char *file) {
  static char path[600];
  snprintf(path, sizeof path, "%s/%s", m->dir, file);
  return path;
}

void model_files_bytes(const model_files *m, const char *file, const void *bytes, size_t size) {
  const char *path = model_files_path(m, file);
  FILE *out = fopen(path, "wb");
  must(out != NULL, path);
  must(size == 0 || fwrite(bytes, 1, size, out) == size, path);
  must(fclose(out) == 0, path);
}

void model_files_text(const model_files *m, const char *file, const char *text) {
  model_files_bytes(m, file, text, strlen(text));
}

void model_files_unlink(const model_files *m, const char *file) { must(unlink(model_files_path(m, file)) == 0, file); }

void model_files_config(const model_files *m, const char *key, const char *value) {
  char *text = tiny_config(key, value);
  model_files_text(m, "config.json", text);
  free(text);
}

/* ---- safetensors ------------------------------------------------------------------------------------------------- */

unsigned char *safetensors_bytes(long long length, const char *header, const void *data, size_t data_size,
                                 size_t *size) {
  size_t header_size = strlen(header);
  uint64_t claimed = length < 0 ? header_size : (uint64_t)length;
  *size = 8 + header_size + data_size;
  unsigned char *bytes = malloc(*size);
  must(bytes != NULL, "malloc");
  for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(claimed >> (8 * i));
  memcpy(bytes + 8, header, header_size);
  if (data_size) memcpy(bytes + 8 + header_size, data, data_size);
  return bytes;
}

void model_files_write_part(const model_files *m, const char *file, int from, int to) {
  static char header[MOST_TENSORS * 400];
  size_t used = (size_t)snprintf(header, sizeof header, "{\"__metadata__\":{\"format\":\"pt\"}"), total = 0;
  for (int i = from; i < to; i++) total += m->tensor[i].size;
  unsigned char *data = malloc(total + 1);
  must(data != NULL, "malloc");
  total = 0;
  for (int i = from; i < to; i++) {
    const model_tensor *t = &m->tensor[i];
    used += (size_t)snprintf(header + used, sizeof header - used, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name,
                             t->dtype);
    for (int d = 0; d < t->dimensions; d++)
      used += (size_t)snprintf(header + used, sizeof header - used, "%s%lld", d ? "," : "", t->shape[d]);
    used +=
        (size_t)snprintf(header + used, sizeof header - used, "],\"data_offsets\":[%zu,%zu]}", total, total + t->size);
    if (t->size) memcpy(data + total, t->data, t->size);
    total += t->size;
  }
  used += (size_t)snprintf(header + used, sizeof header - used, "}");
  /* Padded to a multiple of 8, as the format's own library does, and then by as many blanks as the test wants. */
  for (int blanks = (int)((8 - used % 8) % 8) + m->blanks; blanks > 0; blanks--) header[used++] = ' ';
  header[used] = '\0';
  size_t size;
  unsigned char *bytes = safetensors_bytes(-1, header, data, total, &size);
  model_files_bytes(m, file, bytes, size);
  free(bytes);
  free(data);
}

void model_files_write(const model_files *m) { model_files_write_part(m, "model.safetensors", 0, m->count); }

/* ---- config.json ------------------------------------------------------------------------------------------------- */

char *tiny_config(const char *key, const char *value) {
  static const struct {
    const char *key, *value;
  } base[] = {{"model_type", "\"gpt2\""},
              {"architectures", "[\"GPT2LMHeadModel\"]"},
              {"activation_function", "\"gelu_new\""},
              {"n_layer", "2"},
              {"n_head", "2"},
              {"n_embd", "4"},
              {"n_positions", "6"},
              {"n_ctx", "6"},
              {"n_inner", "null"},
              {"vocab_size", "5"},
              {"layer_norm_epsilon", "1e-05"},
              {"tie_word_embeddings", "true"},
              {"eos_token_id", "4"}};
  size_t room = 1024 + (value ? strlen(value) : 0) + (key ? strlen(key) : 0), used = 0;
  char *text = malloc(room);
  must(text != NULL, "malloc");
  bool placed = key == NULL || value == NULL;
  used += (size_t)snprintf(text + used, room - used, "{\"transformers_version\": \"4.0\"");
  for (size_t i = 0; i < sizeof base / sizeof *base; i++) {
    const char *shown = base[i].value;
    if (key && strcmp(key, base[i].key) == 0) shown = value, placed = true;
    if (shown) used += (size_t)snprintf(text + used, room - used, ",\n\"%s\": %s", base[i].key, shown);
  }
  if (!placed) used += (size_t)snprintf(text + used, room - used, ",\n\"%s\": %s", key, value);
  snprintf(text + used, room - used, "}\n");
  return text;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

const char *missing_word(const char *text, const char *words) {
  static char word[400];
  while (*words) {
    size_t length = strcspn(words, "|");
    snprintf(word, sizeof word, "%.*s", (int)length, words);
    if (!strstr(text, word)) return word;
    words += length + (words[length] == '|');
  }
  return NULL;
}

bool is_clean_line(const char *text) {
  for (const unsigned char *c = (const unsigned char *)text; *c;) {
    if (*c < 0x20 || *c == 0x7F) return false;
    int more = *c < 0x80                 ? 0
               : *c >= 0xC2 && *c < 0xE0 ? 1
               : *c >= 0xE0 && *c < 0xF0 ? 2
               : *c >= 0xF0 && *c < 0xF5 ? 3
                                         : -1;
    if (more < 0) return false;
    for (c++; more > 0; more--, c++)
      if ((*c & 0xC0) != 0x80) return false;
  }
  return true;
}
