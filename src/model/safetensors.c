/* safetensors.c: reading the header of a .safetensors file.
 *
 * The file is: 8 bytes, little-endian, the header's length N; N bytes of JSON, {"name": {"dtype", "shape", "data_offsets"}, …};
 * then the data, without holes. Nothing in it is believed before it has been checked.
 */
#include "model/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/foreign.h"
#include "model/json.h"

#define COPY_AGAIN "the file is damaged or was cut short: copy it again from where the model came from"

/* Bytes per element, 0 for a type this format does not have. */
static unsigned width_of(const char *dtype) {
  static const struct {
    const char *name;
    unsigned width;
  } types[] = {{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F64", 8}, {"I64", 8},  {"I32", 4},     {"I16", 2},    {"I8", 1},
               {"U8", 1},  {"U16", 2}, {"U32", 4},  {"U64", 8}, {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strcmp(types[i].name, dtype) == 0) return types[i].width;
  return 0;
}

/* ---- the header as a whole --------------------------------------------------------------------------------------- */

static kvs_status header_length(const kvs_file *file, uint64_t *length, kvs_error *err) {
  const char *remedy, *what = kvs_foreign_content(file->bytes, file->size, &remedy);
  if (what) return kvs_fail(err, KVS_ERR_INPUT, "%s: %s: %s", file->path, what, remedy);
  if (file->size < 8)
    return kvs_fail(err, KVS_ERR_INPUT, "%s: %zu bytes, too short for a safetensors file: " COPY_AGAIN, file->path,
                    file->size);
  *length = 0;
  for (int i = 7; i >= 0; i--) *length = *length << 8 | file->bytes[i];
  if (*length > KVS_SAFETENSORS_HEADER_CAP)
    return kvs_fail(err, KVS_ERR_INPUT, "%s: the header claims %" PRIu64 " bytes; more than %d is refused: " COPY_AGAIN,
                    file->path, *length, KVS_SAFETENSORS_HEADER_CAP);
  if (*length > file->size - 8)
    return kvs_fail(err, KVS_ERR_INPUT,
                    "%s: the header claims %" PRIu64 " bytes and the file has %zu after its length: " COPY_AGAIN,
                    file->path, *length, file->size - 8);
  return KVS_OK;
}

static kvs_status parse_header(const kvs_file *file, uint64_t length, json_t **root, kvs_error *err) {
  const char *text = (const char *)file->bytes + 8;
  if (length > 0 && text[length - 1] == '\0')
    return kvs_fail(
        err, KVS_ERR_INPUT,
        "%s: the header is padded with NUL bytes where the format wants blanks: write it again with a current "
        "safetensors library",
        file->path);
  json_error_t error = {0};
  *root = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
  if (!*root && kvs_json_starved(&error)) return kvs_fail_memory(err, "reading the weights' header");
  if (!*root)
    return kvs_fail(err, KVS_ERR_INPUT, "%s: the header is not valid JSON at byte %d: %.200s: " COPY_AGAIN, file->path,
                    8 + error.position, error.text);
  if (json_is_object(*root)) return KVS_OK;
  json_decref(*root);
  return kvs_fail(err, KVS_ERR_INPUT, "%s: the header is no JSON object: " COPY_AGAIN, file->path);
}

/* ---- one tensor ----------------------------------------------------------------------------------------------------- */

/* `found` is NULL where the header has no such key. */
static kvs_status fail_tensor(const kvs_stored_tensor *t, const char *key, const json_t *found, const char *expected,
                              kvs_error *err) {
  char *text = json_dumps(found, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
  kvs_fail(err, KVS_ERR_INPUT, "%s: tensor %s: \"%s\" is %.100s, expected %s: " COPY_AGAIN, t->path, t->name, key,
           text ? text : "missing", expected);
  free(text);
  return KVS_ERR_INPUT;
}

/* Copies the dtype's name; *width becomes its bytes per element. */
static kvs_status read_dtype(kvs_stored_tensor *t, const json_t *value, uint64_t *width, kvs_error *err) {
  const char *dtype = json_string_value(value);
  if (!dtype) return fail_tensor(t, "dtype", value, "a type's name", err);
  *width = width_of(dtype);
  if (*width == 0)
    return kvs_fail(err, KVS_ERR_INPUT,
                    "%s: tensor %s: its dtype is \"%.20s\", which kvstep does not know: save the model as F32, F16 or "
                    "BF16",
                    t->path, t->name, dtype);
  snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
  return KVS_OK;
}

/* *bytes: bytes per element before, of the whole tensor afterwards. */
static kvs_status read_shape(kvs_stored_tensor *t, const json_t *shape, uint64_t *bytes, kvs_error *err) {
  if (!json_is_array(shape) || json_array_size(shape) > KVS_MOST_DIMENSIONS)
    return fail_tensor(t, "shape", shape, "a list of at most 8 numbers", err);
  t->dimensions = (int)json_array_size(shape);
  for (int d = 0; d < t->dimensions; d++) {
    const json_t *size = json_array_get(shape, (size_t)d);
    if (!json_is_integer(size) || json_integer_value(size) < 0)
      return fail_tensor(t, "shape", shape, "whole numbers from 0 on", err);
    t->shape[d] = json_integer_value(size);
    if (__builtin_mul_overflow(*bytes, (uint64_t)t->shape[d], bytes))
      return fail_tensor(t, "shape", shape, "no more than a file can hold", err);
  }
  return KVS_OK;
}

static kvs_status read_offsets(kvs_stored_tensor *t, const json_t *offsets, uint64_t data_size, kvs_error *err) {
  const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
  if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
    return fail_tensor(t, "data_offsets", offsets, "two whole numbers", err);
  if (json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
    return fail_tensor(t, "data_offsets", offsets, "begin and end, neither negative nor reversed", err);
  t->begin = (uint64_t)json_integer_value(begin);
  t->end = (uint64_t)json_integer_value(end);
  if (t->end > data_size)
    return kvs_fail(err, KVS_ERR_INPUT,
                    "%s: tensor %s: its data end at byte %" PRIu64 ", and the file has %" PRIu64
                    " bytes of data: " COPY_AGAIN,
                    t->path, t->name, t->end, data_size);
  return KVS_OK;
}

static kvs_status read_tensor(kvs_stored_tensor *t, const json_t *value, const unsigned char *data, uint64_t data_size,
                              kvs_error *err) {
  uint64_t bytes = 0;
  if (!json_is_object(value)) return fail_tensor(t, t->name, value, "an object", err);
  if (read_dtype(t, json_object_get(value, "dtype"), &bytes, err)) return KVS_ERR_INPUT;
  if (read_shape(t, json_object_get(value, "shape"), &bytes, err)) return KVS_ERR_INPUT;
  if (read_offsets(t, json_object_get(value, "data_offsets"), data_size, err)) return KVS_ERR_INPUT;
  if (t->end - t->begin != bytes)
    return kvs_fail(err, KVS_ERR_INPUT,
                    "%s: tensor %s: its shape and dtype make %" PRIu64 " bytes, its data_offsets span %" PRIu64
                    ": " COPY_AGAIN,
                    t->path, t->name, bytes, t->end - t->begin);
  t->data = data + t->begin;
  return KVS_OK;
}

/* ---- all of them ------------------------------------------------------------------------------------------------------ */

static int by_offset(const void *left, const void *right) {
  const kvs_stored_tensor *a = left, *b = right;
  if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
  return a->end < b->end ? -1 : a->end > b->end;
}

/* The data must be covered exactly, from its first byte to its last. */
static kvs_status check_layout(const kvs_file *file, kvs_stored_tensor *tensor, size_t count, uint64_t data_size,
                               kvs_error *err) {
  if (count) qsort(tensor, count, sizeof *tensor, by_offset);
  uint64_t at = 0;
  for (size_t i = 0; i < count; i++) {
    if (tensor[i].begin < at)
      return kvs_fail(err, KVS_ERR_INPUT, "%s: tensors %s and %s overlap at byte %" PRIu64 " of the data: " COPY_AGAIN,
                      file->path, tensor[i - 1].name, tensor[i].name, tensor[i].begin);
    if (tensor[i].begin > at)
      return kvs_fail(err, KVS_ERR_INPUT, "%s: there is a hole of %" PRIu64 " bytes before tensor %s: " COPY_AGAIN,
                      file->path, tensor[i].begin - at, tensor[i].name);
    at = tensor[i].end;
  }
  if (at != data_size)
    return kvs_fail(err, KVS_ERR_INPUT, "%s: %" PRIu64 " bytes after the last tensor belong to none: " COPY_AGAIN,
                    file->path, data_size - at);
  return KVS_OK;
}

kvs_status kvs_safetensors_read(const kvs_file *file, kvs_tensor_list *list, kvs_error *err) {
  uint64_t length = 0;
  json_t *root = NULL;
  kvs_status status = header_length(file, &length, err);
  if (!status) status = parse_header(file, length, &root, err);
  if (status) return status;
  size_t first = list->count;
  kvs_stored_tensor *grown = realloc(list->tensor, (first + json_object_size(root) + 1) * sizeof *grown);
  if (!grown) {
    json_decref(root);
    return kvs_fail_memory(err, "reading the weights' header");
  }
  list->tensor = grown;
  const char *name;
  json_t *value;
  json_object_foreach(root, name, value) {
    if (strcmp(name, "__metadata__") == 0) continue;
    if (strlen(name) > KVS_MOST_NAME) {
      status = kvs_fail(err, KVS_ERR_INPUT, "%s: a tensor's name has %zu bytes, more than %d are refused: " COPY_AGAIN,
                        file->path, strlen(name), KVS_MOST_NAME);
      break;
    }
    kvs_stored_tensor *t = &list->tensor[list->count];
    *t = (kvs_stored_tensor){.name = strdup(name), .path = file->path};
    if (!t->name) {
      status = kvs_fail_memory(err, "reading the weights' header");
      break;
    }
    list->count++;
    status = read_tensor(t, value, file->bytes + 8 + length, file->size - 8 - length, err);
    if (status) break;
  }
  json_decref(root);
  if (status) return status;
  return check_layout(file, list->tensor + first, list->count - first, file->size - 8 - length, err);
}

void kvs_tensor_list_free(kvs_tensor_list *list) {
  for (size_t i = 0; i < list->count; i++) free(list->tensor[i].name);
  free(list->tensor);
  *list = (kvs_tensor_list){0};
}
