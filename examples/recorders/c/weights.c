/* weights.c: safetensors: a u64 length, a JSON header, the numbers. */
#include "weights.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tensors {
  unsigned char *file;
  size_t size;
  json_t *header;
  float *numbers; /* the data, at an address that floats may have */
  size_t count;
};

static bool read_file(tensors *w, const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) return false;
  long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
  w->file = size > 8 ? malloc((size_t)size) : NULL;
  bool good = w->file && fseek(file, 0, SEEK_SET) == 0 && fread(w->file, 1, (size_t)size, file) == (size_t)size;
  w->size = good ? (size_t)size : 0;
  fclose(file);
  return good;
}

static bool parse(tensors *w) {
  uint64_t length = 0;
  for (int i = 8; i-- > 0;) length = length << 8 | w->file[i];
  if (length > w->size - 8) return false;
  w->header = json_loadb((const char *)w->file + 8, (size_t)length, 0, NULL);
  size_t bytes = w->size - 8 - (size_t)length;
  w->numbers = malloc(bytes + 1);
  w->count = bytes / sizeof(float);
  if (!json_is_object(w->header) || !w->numbers) return false;
  memcpy(w->numbers, w->file + 8 + length, bytes);
  return true;
}

tensors *weights_open(const char *folder) {
  char path[4096];
  tensors *w = calloc(1, sizeof *w);
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  if (w && read_file(w, path) && parse(w)) return w;
  fprintf(stderr, "engine: %s: cannot be read, or no safetensors file\n", path);
  weights_close(w);
  return NULL;
}

void weights_close(tensors *w) {
  if (!w) return;
  json_decref(w->header);
  free(w->numbers);
  free(w->file);
  free(w);
}

/* With and without "transformer." in front. */
static json_t *find(const tensors *w, const char *name) {
  char longer[300];
  snprintf(longer, sizeof longer, "transformer.%s", name);
  json_t *entry = json_object_get(w->header, name);
  return entry ? entry : json_object_get(w->header, longer);
}

size_t weights_rows(const tensors *w, const char *name) {
  return (size_t)json_integer_value(json_array_get(json_object_get(find(w, name), "shape"), 0));
}

const float *weights_get(const tensors *w, size_t count, const char *format, ...) {
  char name[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(name, sizeof name, format, arguments);
  va_end(arguments);
  json_t *entry = find(w, name), *offsets = json_object_get(entry, "data_offsets");
  const char *dtype = json_string_value(json_object_get(entry, "dtype"));
  size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0)),
         end = (size_t)json_integer_value(json_array_get(offsets, 1));
  if (!dtype || strcmp(dtype, "F32") != 0 || begin % sizeof(float) || end - begin != count * sizeof(float) ||
      end / sizeof(float) > w->count) {
    fprintf(stderr, "engine: %s: not there as %zu float32 numbers, which is all that this small reader knows\n", name,
            count);
    exit(1);
  }
  return w->numbers + begin / sizeof(float);
}
