/* weights.c: finding each of a GPT-2's tensors, checking its shape, and using it where it lies if that can be done.
 *
 * Copied is only what cannot be used in place: data not aligned to its type, 16-bit vectors (the engine wants biases and gains
 * as float32), and matrices stored as Linear, [out][in], which are transposed to Conv1D's [in][out].
 */
#include "model/weights.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "model/config.h"

/* Binding goes on after a mistake; the first one is kept. */
typedef struct binder {
  kvs_model *model;
  bool linear_layout; /* matrices are [out][in] */
  int layer;          /* −1 outside the layers */
  bool *used;         /* [tensors.count] */
  kvs_status status;
  kvs_error *err;
} binder;

void kvs_model_warn(kvs_model *model, const char *format, ...) {
  struct kvs_model_files *files = model->files;
  if (files->warnings_count == KVS_MOST_WARNINGS) return;
  kvs_error line; /* for its rule of one printable line */
  char text[sizeof line.message];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  kvs_fail(&line, KVS_OK, "%s", text);
  char *copy = strdup(line.message);
  if (copy) files->warnings[files->warnings_count++] = copy;
}

/* ---- names ----------------------------------------------------------------------------------------------------------- */

/* The published gpt2 names its tensors `wte.weight`, GPT2LMHeadModel's own files `transformer.wte.weight`. */
static const char *bare_name(const char *name) { return strncmp(name, "transformer.", 12) == 0 ? name + 12 : name; }

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* Buffers that old files carry: the causal mask and its fill value. Not c_attn.bias, which ends in "c_attn.bias". */
static bool is_mask(const char *name) { return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias"); }

static int by_bare_name(const void *left, const void *right) {
  const kvs_stored_tensor *a = left, *b = right;
  return strcmp(bare_name(a->name), bare_name(b->name));
}

static int key_to_tensor(const void *key, const void *tensor) {
  return strcmp(key, bare_name(((const kvs_stored_tensor *)tensor)->name));
}

static const kvs_stored_tensor *find(binder *b, const char *name) {
  const kvs_tensor_list *list = &b->model->files->tensors;
  if (list->count == 0) return NULL;
  const kvs_stored_tensor *found = bsearch(name, list->tensor, list->count, sizeof *list->tensor, key_to_tensor);
  if (found) b->used[found - list->tensor] = true;
  return found;
}

static const char *full_name(const binder *b, const char *name, char *room, size_t size) {
  if (b->layer < 0) return name;
  snprintf(room, size, "h.%d.%s", b->layer, name);
  return room;
}

static const kvs_stored_tensor *need(binder *b, const char *name) {
  char room[64];
  name = full_name(b, name, room, sizeof room);
  const kvs_stored_tensor *t = b->status ? NULL : find(b, name);
  if (!t && !b->status)
    b->status = kvs_fail(
        b->err, KVS_ERR_INPUT,
        "%s: tensor %s is missing; the file is not a whole GPT-2 of %d layers: check \"n_layer\" in config.json, or "
        "copy the weights again",
        b->model->files->weights[0].path, name, b->model->config.n_layer);
  return t;
}

/* ---- shapes and types --------------------------------------------------------------------------------------------------- */

/* "[768, 2304]" */
static void show_shape(const kvs_stored_tensor *t, char *room, size_t size) {
  size_t used = (size_t)snprintf(room, size, "[");
  for (int d = 0; d < t->dimensions && used < size; d++)
    used += (size_t)snprintf(room + used, size - used, "%s%" PRId64, d ? ", " : "", t->shape[d]);
  if (used < size) snprintf(room + used, size - used, "]");
}

static void refuse_shape(binder *b, const kvs_stored_tensor *t, const char *expected) {
  char found[200];
  show_shape(t, found, sizeof found);
  b->status = kvs_fail(
      b->err, KVS_ERR_INPUT,
      "%s: tensor %s has the shape %s where config.json makes it %s: config and weights are of different models",
      t->path, t->name, found, expected);
}

static bool dtype_of(binder *b, const kvs_stored_tensor *t, kvs_dtype *out) {
  static const char *const names[] = {[KVS_F32] = "F32", [KVS_F16] = "F16", [KVS_BF16] = "BF16"};
  for (kvs_dtype dtype = KVS_F32; dtype <= KVS_BF16; dtype++)
    if (strcmp(t->dtype, names[dtype]) == 0) {
      *out = dtype;
      return true;
    }
  b->status = kvs_fail(b->err, KVS_ERR_INPUT,
                       "%s: tensor %s is stored as %s; kvstep reads F32, F16 and BF16: save the model in one of these "
                       "(torch_dtype=torch.float32)",
                       t->path, t->name, t->dtype);
  return false;
}

static void *copy_room(binder *b, size_t bytes) {
  struct kvs_model_files *files = b->model->files;
  if (files->copies_count == files->copies_room) {
    size_t room = files->copies_room ? 2 * files->copies_room : 32;
    void **grown = realloc(files->copies, room * sizeof *grown);
    if (grown) files->copies = grown, files->copies_room = room;
  }
  void *copy = files->copies_count < files->copies_room ? malloc(bytes ? bytes : 1) : NULL;
  if (copy)
    files->copies[files->copies_count++] = copy;
  else
    b->status = kvs_fail_memory(b->err, "loading the weights");
  return copy;
}

static size_t width_of(kvs_dtype dtype) { return dtype == KVS_F32 ? 4 : 2; }

static bool aligned(const kvs_stored_tensor *t, kvs_dtype dtype) { return (uintptr_t)t->data % width_of(dtype) == 0; }

/* ---- binding ------------------------------------------------------------------------------------------------------------ */

/* A vector as float32: in place, or a copy widened. */
static const float *vector(binder *b, const char *name, int n) {
  const kvs_stored_tensor *t = need(b, name);
  kvs_dtype dtype;
  if (!t) return NULL;
  if (t->dimensions != 1 || t->shape[0] != n) {
    char expected[32];
    snprintf(expected, sizeof expected, "[%d]", n);
    refuse_shape(b, t, expected);
    return NULL;
  }
  if (!dtype_of(b, t, &dtype)) return NULL;
  b->model->files->parameters += n;
  if (dtype == KVS_F32 && aligned(t, dtype)) return (const float *)(const void *)t->data;
  float *copy = copy_room(b, (size_t)n * sizeof *copy);
  if (!copy) return NULL;
  for (size_t i = 0; i < (size_t)n; i++) {
    uint16_t half;
    if (dtype == KVS_F32) {
      memcpy(&copy[i], t->data + 4 * i, 4);
      continue;
    }
    memcpy(&half, t->data + 2 * i, 2);
    copy[i] = dtype == KVS_F16 ? kvs_widen_f16(half) : kvs_widen_bf16(half);
  }
  return copy;
}

/* [cols][rows] in the file becomes [rows][cols], a square at a time: down whole columns of a matrix that does not fit in the cache
 * it would take several times as long. */
static inline void transpose_squares(unsigned char *to, const unsigned char *from, size_t rows, size_t cols,
                                     size_t width) {
  enum { SIDE = 16 };
  for (size_t c0 = 0; c0 < cols; c0 += SIDE)
    for (size_t r0 = 0; r0 < rows; r0 += SIDE)
      for (size_t r = r0; r < rows && r < r0 + SIDE; r++)
        for (size_t c = c0; c < cols && c < c0 + SIDE; c++)
          memcpy(to + (r * cols + c) * width, from + (c * rows + r) * width, width);
}

/* With the width a constant, the innermost copy is one move and no call. */
static void transpose(unsigned char *to, const unsigned char *from, size_t rows, size_t cols, size_t width) {
  if (width == 4)
    transpose_squares(to, from, rows, cols, 4);
  else
    transpose_squares(to, from, rows, cols, 2);
}

/* A matrix [rows][cols], stored so, or transposed where `transposed`. */
static kvs_tensor matrix(binder *b, const kvs_stored_tensor *t, int rows, int cols, bool transposed) {
  kvs_tensor made = {KVS_F32, rows, cols, NULL};
  if (!t || b->status) return made;
  int64_t first = transposed ? cols : rows, second = transposed ? rows : cols;
  if (t->dimensions != 2 || t->shape[0] != first || t->shape[1] != second) {
    char expected[64];
    snprintf(expected, sizeof expected, "[%" PRId64 ", %" PRId64 "]", first, second);
    refuse_shape(b, t, expected);
    return made;
  }
  if (!dtype_of(b, t, &made.dtype)) return made;
  b->model->files->parameters += (long long)rows * cols;
  made.data = t->data;
  size_t width = width_of(made.dtype), bytes = (size_t)rows * (size_t)cols * width;
  if (!transposed && aligned(t, made.dtype)) return made;
  unsigned char *copy = copy_room(b, bytes);
  if (copy && transposed) transpose(copy, t->data, (size_t)rows, (size_t)cols, width);
  if (copy && !transposed) memcpy(copy, t->data, bytes);
  made.data = copy;
  return made;
}

static kvs_linear linear(binder *b, const char *name, int in, int out) {
  char weight[64], bias[64];
  snprintf(weight, sizeof weight, "%s.weight", name);
  snprintf(bias, sizeof bias, "%s.bias", name);
  kvs_linear made = {matrix(b, need(b, weight), in, out, b->linear_layout), NULL};
  made.b = vector(b, bias, out);
  return made;
}

static kvs_norm norm(binder *b, const char *name) {
  char gain[64], bias[64];
  snprintf(gain, sizeof gain, "%s.weight", name);
  snprintf(bias, sizeof bias, "%s.bias", name);
  kvs_norm made = {vector(b, gain, b->model->config.n_embd), NULL};
  made.b = vector(b, bias, b->model->config.n_embd);
  return made;
}

/* An embedding table [rows][n_embd]. *rows is 0 where config.json left it to the table; it is never 0 afterwards. */
static kvs_tensor table(binder *b, const char *name, int *rows) {
  const kvs_stored_tensor *t = need(b, name);
  if (t && *rows == 0) {
    if (t->dimensions != 2 || t->shape[0] < 1 || t->shape[0] > KVS_MOST_SIZE) {
      char expected[64];
      snprintf(expected, sizeof expected, "[from 1 to %d, %d]", KVS_MOST_SIZE, b->model->config.n_embd);
      refuse_shape(b, t, expected);
    } else {
      *rows = (int)t->shape[0];
    }
  }
  return matrix(b, t, *rows, b->model->config.n_embd, false);
}

/* Conv1D is [in][out], Linear is [out][in]. c_attn tells, since it is not square; c_proj could not. */
static void decide_layout(binder *b) {
  int n_embd = b->model->config.n_embd;
  const kvs_stored_tensor *t = need(b, "h.0.attn.c_attn.weight");
  b->linear_layout = t && t->dimensions == 2 && t->shape[0] == 3 * (int64_t)n_embd && t->shape[1] == n_embd;
}

static bool same_numbers(const kvs_tensor *a, const kvs_tensor *b) {
  return a->dtype == b->dtype && memcmp(a->data, b->data, (size_t)a->rows * (size_t)a->cols * width_of(a->dtype)) == 0;
}

/* Absent and tied: wte. Present: used, and if config.json says tied although it differs, that is worth a word. */
static void bind_lm_head(binder *b) {
  kvs_model *model = b->model;
  kvs_config *c = &model->config;
  const kvs_stored_tensor *t = b->status ? NULL : find(b, "lm_head.weight");
  if (!t && !c->tied && !b->status)
    b->status =
        kvs_fail(b->err, KVS_ERR_INPUT,
                 "%s: tensor lm_head.weight is missing and config.json says \"tie_word_embeddings\": false: copy the "
                 "weights again, or set it to true if lm_head is wte",
                 model->files->weights[0].path);
  model->lm_head = model->wte;
  if (!t || b->status) return;
  long long parameters = model->files->parameters;
  kvs_tensor head = matrix(b, t, c->n_vocab, c->n_embd, false);
  if (b->status) return;
  bool same = same_numbers(&head, &model->wte);
  if (same) {
    model->files->parameters = parameters; /* counted with wte */
  } else {
    model->lm_head = head;
    if (c->tied)
      kvs_model_warn(
          model,
          "%s: lm_head.weight differs from wte.weight although config.json says they are tied; lm_head.weight is used",
          t->path);
  }
  c->tied = same;
}

static void bind_layers(binder *b) {
  kvs_model *model = b->model;
  const kvs_config *c = &model->config;
  model->layer = calloc((size_t)c->n_layer, sizeof *model->layer);
  if (!model->layer) {
    b->status = kvs_fail_memory(b->err, "loading the weights");
    return;
  }
  for (b->layer = 0; b->layer < c->n_layer && !b->status; b->layer++) {
    kvs_layer *layer = &model->layer[b->layer];
    layer->ln_1 = norm(b, "ln_1");
    layer->c_attn = linear(b, "attn.c_attn", c->n_embd, 3 * c->n_embd);
    layer->c_proj = linear(b, "attn.c_proj", c->n_embd, c->n_embd);
    layer->ln_2 = norm(b, "ln_2");
    layer->mlp_c_fc = linear(b, "mlp.c_fc", c->n_embd, c->n_inner);
    layer->mlp_c_proj = linear(b, "mlp.c_proj", c->n_inner, c->n_embd);
  }
  b->layer = -1;
}

/* Tensors nobody asked for: more layers than n_layer would be a mistake worth knowing of; so is anything else. */
static void warn_of_unused(binder *b) {
  const kvs_tensor_list *list = &b->model->files->tensors;
  size_t unused = 0;
  const char *example = NULL;
  for (size_t i = 0; i < list->count; i++)
    if (!b->used[i] && !is_mask(list->tensor[i].name)) {
      unused++;
      if (!example) example = list->tensor[i].name;
    }
  if (unused)
    kvs_model_warn(b->model, "%s: %zu tensor%s a GPT-2 of this shape does not have %s ignored, such as %s",
                   b->model->files->weights[0].path, unused, unused == 1 ? " that" : "s that",
                   unused == 1 ? "is" : "are", example);
}

/* One tensor under both names would leave open which one counts. (That the very same name is there once has been checked.) */
static kvs_status refuse_clashes(const kvs_tensor_list *list, kvs_error *err) {
  for (size_t i = 1; i < list->count; i++) {
    const kvs_stored_tensor *a = &list->tensor[i - 1], *b = &list->tensor[i];
    if (strcmp(bare_name(a->name), bare_name(b->name)) != 0) continue;
    return kvs_fail(err, KVS_ERR_INPUT, "%s: tensors %s and %s are the same weight under two names: keep one of them",
                    b->path, a->name, b->name);
  }
  return KVS_OK;
}

kvs_status kvs_weights_bind(kvs_model *model, kvs_error *err) {
  kvs_tensor_list *list = &model->files->tensors;
  if (list->count) qsort(list->tensor, list->count, sizeof *list->tensor, by_bare_name);
  kvs_status status = refuse_clashes(list, err);
  if (status) return status;
  binder b = {.model = model, .layer = -1, .used = calloc(list->count + 1, sizeof *b.used), .err = err};
  if (!b.used) return kvs_fail_memory(err, "loading the weights");
  decide_layout(&b);
  model->wte = table(&b, "wte.weight", &model->config.n_vocab);
  model->wpe = table(&b, "wpe.weight", &model->config.n_ctx);
  if (!b.status) bind_layers(&b);
  if (!b.status) model->ln_f = norm(&b, "ln_f");
  bind_lm_head(&b);
  if (!b.status) warn_of_unused(&b);
  free(b.used);
  return b.status;
}
