/* binder.c: one of a GPT-2's tensors: finding it, checking its shape and type, and using it where it lies if that can be done.
 *
 * Copied is only what cannot be used in place: data not aligned to its type, 16-bit vectors (the engine wants biases and gains
 * as float32), and matrices stored as Linear, [out][in], which are transposed to Conv1D's [in][out].
 */
#include "model/binder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"

/* ---- names ----------------------------------------------------------------------------------------------------------- */

/* The published gpt2 names its tensors `wte.weight`, GPT2LMHeadModel's own files `transformer.wte.weight`. */
static const char *bare_name(const char *name) { return strncmp(name, "transformer.", 12) == 0 ? name + 12 : name; }

static int by_bare_name(const void *left, const void *right) {
  const kvs_stored_tensor *a = left, *b = right;
  return strcmp(bare_name(a->name), bare_name(b->name));
}

static int key_to_tensor(const void *key, const void *tensor) {
  return strcmp(key, bare_name(((const kvs_stored_tensor *)tensor)->name));
}

const kvs_stored_tensor *kvs_binder_find(kvs_binder *b, const char *name) {
  const kvs_tensor_list *list = &b->model->files->tensors;
  if (list->count == 0) return NULL;
  const kvs_stored_tensor *found = bsearch(name, list->tensor, list->count, sizeof *list->tensor, key_to_tensor);
  if (found) b->used[found - list->tensor] = true;
  return found;
}

static const char *full_name(const kvs_binder *b, const char *name, char *room, size_t size) {
  if (b->layer < 0) return name;
  snprintf(room, size, "h.%d.%s", b->layer, name);
  return room;
}

const kvs_stored_tensor *kvs_binder_need(kvs_binder *b, const char *name) {
  char room[64];
  name = full_name(b, name, room, sizeof room);
  const kvs_stored_tensor *t = b->status ? NULL : kvs_binder_find(b, name);
  if (!t && !b->status)
    b->status = kvs_fail(
        b->err, KVS_ERR_INPUT,
        "%s: tensor %s is missing; the file is not a whole GPT-2 of %d layers: check \"n_layer\" in config.json, or "
        "copy the weights again",
        b->model->files->weights[0].path, name, b->model->config.n_layer);
  return t;
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

kvs_status kvs_binder_begin(kvs_binder *b, kvs_model *model, kvs_error *err) {
  kvs_tensor_list *list = &model->files->tensors;
  *b = (kvs_binder){.model = model, .layer = -1, .err = err};
  if (list->count) qsort(list->tensor, list->count, sizeof *list->tensor, by_bare_name);
  kvs_status status = refuse_clashes(list, err);
  if (status) return status;
  b->used = calloc(list->count + 1, sizeof *b->used);
  return b->used ? KVS_OK : kvs_fail_memory(err, "loading the weights");
}

/* ---- shapes and types --------------------------------------------------------------------------------------------------- */

/* "[768, 2304]" */
static void show_shape(const kvs_stored_tensor *t, char *room, size_t size) {
  size_t used = (size_t)snprintf(room, size, "[");
  for (int d = 0; d < t->dimensions && used < size; d++)
    used += (size_t)snprintf(room + used, size - used, "%s%" PRId64, d ? ", " : "", t->shape[d]);
  if (used < size) snprintf(room + used, size - used, "]");
}

void kvs_binder_refuse(kvs_binder *b, const kvs_stored_tensor *t, const char *expected) {
  char found[200];
  show_shape(t, found, sizeof found);
  b->status = kvs_fail(
      b->err, KVS_ERR_INPUT,
      "%s: tensor %s has the shape %s where config.json makes it %s: config and weights are of different models",
      t->path, t->name, found, expected);
}

static bool dtype_of(kvs_binder *b, const kvs_stored_tensor *t, kvs_dtype *out) {
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

static void *copy_room(kvs_binder *b, size_t bytes) {
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

size_t kvs_dtype_width(kvs_dtype dtype) { return dtype == KVS_F32 ? 4 : 2; }

static bool aligned(const kvs_stored_tensor *t, kvs_dtype dtype) {
  return (uintptr_t)t->data % kvs_dtype_width(dtype) == 0;
}

/* ---- as the engine needs it ------------------------------------------------------------------------------------------ */

const float *kvs_binder_vector(kvs_binder *b, const char *name, int n) {
  const kvs_stored_tensor *t = kvs_binder_need(b, name);
  kvs_dtype dtype;
  if (!t) return NULL;
  if (t->dimensions != 1 || t->shape[0] != n) {
    char expected[32];
    snprintf(expected, sizeof expected, "[%d]", n);
    kvs_binder_refuse(b, t, expected);
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

kvs_tensor kvs_binder_matrix(kvs_binder *b, const kvs_stored_tensor *t, int rows, int cols, bool transposed) {
  kvs_tensor made = {KVS_F32, rows, cols, NULL};
  if (!t || b->status) return made;
  int64_t first = transposed ? cols : rows, second = transposed ? rows : cols;
  if (t->dimensions != 2 || t->shape[0] != first || t->shape[1] != second) {
    char expected[64];
    snprintf(expected, sizeof expected, "[%" PRId64 ", %" PRId64 "]", first, second);
    kvs_binder_refuse(b, t, expected);
    return made;
  }
  if (!dtype_of(b, t, &made.dtype)) return made;
  b->model->files->parameters += (long long)rows * cols;
  made.data = t->data;
  size_t width = kvs_dtype_width(made.dtype), bytes = (size_t)rows * (size_t)cols * width;
  if (!transposed && aligned(t, made.dtype)) return made;
  unsigned char *copy = copy_room(b, bytes);
  if (copy && transposed) transpose(copy, t->data, (size_t)rows, (size_t)cols, width);
  if (copy && !transposed) memcpy(copy, t->data, bytes);
  made.data = copy;
  return made;
}
