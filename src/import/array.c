/* array.c: the list of arrays, the files they lie in, and their numbers. */
#include "import/array.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/half.h"

size_t array_type_size(enum array_type type) {
  static const size_t sizes[] = {2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8};
  return sizes[type];
}

int64_t array_elements(const struct array *array) {
  int64_t count = 1;
  for (int i = 0; i < array->dimensions; i++)
    if (array->shape[i] < 0 || __builtin_mul_overflow(count, array->shape[i], &count)) return -1;
  return count;
}

bool array_set_strides(struct array *array, bool fortran) {
  int64_t stride = 1;
  for (int k = 0; k < array->dimensions; k++) {
    int i = fortran ? k : array->dimensions - 1 - k;
    array->stride[i] = stride;
    if (__builtin_mul_overflow(stride, array->shape[i] ? array->shape[i] : 1, &stride)) return false;
  }
  return true;
}

static uint64_t bytes_at(const unsigned char *from, size_t size) {
  uint64_t value = 0;
  for (size_t i = size; i-- > 0;) value = value << 8 | from[i];
  return value;
}

double array_get(const struct array *array, int64_t at) {
  size_t size = array_type_size(array->type);
  uint64_t bits = bytes_at(array->data + (size_t)at * size, size);
  float narrow;
  double wide;
  switch (array->type) {
  case ARRAY_F2:
    return (double)kvs_widen_f16((uint16_t)bits);
  case ARRAY_F4:
    memcpy(&narrow, &(uint32_t){(uint32_t)bits}, sizeof narrow);
    return (double)narrow;
  case ARRAY_F8:
    memcpy(&wide, &bits, sizeof wide);
    return wide;
  case ARRAY_I1:
    return (double)(int8_t)bits;
  case ARRAY_I2:
    return (double)(int16_t)bits;
  case ARRAY_I4:
    return (double)(int32_t)bits;
  case ARRAY_I8:
    return (double)(int64_t)bits;
  default:
    return (double)bits;
  }
}

const char *array_shape_text(const struct array *array) {
  static char texts[4][ARRAY_MOST_DIMENSIONS * 24 + 3];
  static int next;
  char *text = texts[next++ % 4];
  size_t at = 0;
  text[at++] = '[';
  for (int i = 0; i < array->dimensions; i++)
    at += (size_t)snprintf(text + at, 24, "%s%lld", i ? ", " : "", (long long)array->shape[i]);
  memcpy(text + at, "]", 2);
  return text;
}

/* ---- the list ---- */

struct array *arrays_add(struct arrays *arrays, const char *name, size_t length, const char *file, kvs_error *err) {
  if (arrays->count == ARRAY_MOST_ARRAYS) {
    kvs_fail(err, KVS_ERR_INPUT, "%s: more than %d arrays; keep those that are wanted", file, ARRAY_MOST_ARRAYS);
    return NULL;
  }
  if (arrays->count == arrays->room) {
    size_t room = arrays->room ? 2 * arrays->room : 32;
    struct array *at = realloc(arrays->at, room * sizeof *at);
    if (!at) {
      kvs_fail_memory(err, "reading arrays");
      return NULL;
    }
    arrays->at = at, arrays->room = room;
  }
  struct array *array = &arrays->at[arrays->count++];
  memset(array, 0, sizeof *array);
  array->file = file;
  memcpy(array->name, name, length < ARRAY_MOST_NAME ? length : ARRAY_MOST_NAME);
  return array;
}

static void give_back(void *memory, size_t mapped) {
  if (mapped)
    munmap(memory, mapped);
  else
    free(memory);
}

kvs_status arrays_keep(struct arrays *arrays, void *memory, size_t mapped, kvs_error *err) {
  struct array_block *blocks = realloc(arrays->blocks, (arrays->block_count + 1) * sizeof *blocks);
  if (!blocks) {
    give_back(memory, mapped);
    return kvs_fail_memory(err, "reading arrays");
  }
  arrays->blocks = blocks;
  arrays->blocks[arrays->block_count++] = (struct array_block){memory, mapped};
  return KVS_OK;
}

void arrays_free(struct arrays *arrays) {
  for (size_t i = 0; i < arrays->block_count; i++) give_back(arrays->blocks[i].memory, arrays->blocks[i].mapped);
  for (size_t i = 0; i < arrays->text_count; i++) free(arrays->texts[i].text);
  for (size_t i = 0; i < arrays->word_count; i++) {
    for (size_t k = 0; k < arrays->words[i].count; k++) free(arrays->words[i].at[k]);
    free(arrays->words[i].at);
  }
  free(arrays->words);
  free(arrays->texts);
  free(arrays->blocks);
  free(arrays->at);
  *arrays = (struct arrays){0};
}

/* ---- files ---- */

static kvs_status map_file(const char *path, int file, struct arrays *arrays, const unsigned char **bytes, size_t *size,
                           kvs_error *err) {
  struct stat st;
  if (fstat(file, &st) != 0) return kvs_fail(err, KVS_ERR_IO, "%s: %s", path, strerror(errno));
  if (S_ISDIR(st.st_mode)) return kvs_fail(err, KVS_ERR_IO, "%s: a folder; name the file in it", path);
  if (!S_ISREG(st.st_mode))
    return kvs_fail(err, KVS_ERR_IO, "%s: not a regular file; save the arrays to one first", path);
  if (st.st_size == 0) return kvs_fail(err, KVS_ERR_INPUT, "%s: an empty file", path);
  void *memory = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, file, 0);
  if (memory == MAP_FAILED) return kvs_fail(err, KVS_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
  *bytes = memory, *size = (size_t)st.st_size;
  return arrays_keep(arrays, memory, (size_t)st.st_size, err);
}

/* A .npy's array is called like its file. */
static kvs_status read_npy(struct arrays *arrays, const char *path, const unsigned char *bytes, size_t size,
                           kvs_error *err) {
  const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dot = strrchr(base, '.');
  struct array *array = arrays_add(arrays, base, dot ? (size_t)(dot - base) : strlen(base), path, err);
  size_t at;
  return array ? npy_parse(array, bytes, size, true, &at, err) : err ? err->status : KVS_ERR_MEMORY;
}

kvs_status arrays_read(struct arrays *arrays, const char *path, kvs_error *err) {
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return kvs_fail(err, KVS_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
  const unsigned char *bytes = NULL;
  size_t size = 0;
  kvs_status status = map_file(path, file, arrays, &bytes, &size, err);
  close(file);
  if (status != KVS_OK) return status;
  if (size >= 6 && memcmp(bytes, "\x93NUMPY", 6) == 0) return read_npy(arrays, path, bytes, size, err);
  if (size >= 4 && (memcmp(bytes, "PK\3\4", 4) == 0 || memcmp(bytes, "PK\5\6", 4) == 0))
    return npz_read(arrays, path, bytes, size, err);
  size_t at = 0;
  while (at < size && strchr(" \t\r\n", bytes[at]) && bytes[at]) at++;
  if (at < size && (bytes[at] == '{' || bytes[at] == '[')) return json_arrays_read(arrays, path, bytes, size, err);
  if (size >= 15 && memcmp(bytes, "SQLite format 3", 15) == 0)
    return kvs_fail(err, KVS_ERR_INPUT, "%s: an SQLite file: a trace needs no import, open it as it is", path);
  return kvs_fail(err, KVS_ERR_INPUT,
                  "%s: neither .npy, .npz nor JSON; save the arrays with numpy.savez, or as a JSON object of lists",
                  path);
}
