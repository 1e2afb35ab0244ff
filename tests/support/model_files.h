/* model_files.h: writes model directories for tests: a tiny GPT-2 whose tensors and config.json a test spoils as it likes. */
#ifndef KVSTEP_TESTS_MODEL_FILES_H
#define KVSTEP_TESTS_MODEL_FILES_H

#include <stdbool.h>
#include <stddef.h>

/* The tiny model's shape. */
enum { TINY_LAYERS = 2, TINY_HEADS = 2, TINY_EMBD = 4, TINY_CTX = 6, TINY_VOCAB = 5, TINY_INNER = 16 };

enum { MOST_TENSORS = 64 };

typedef struct model_tensor {
  char name[200];
  char dtype[24];
  int dimensions;
  long long shape[12];
  unsigned char *data; /* a float32's bytes, or whatever the dtype asks for */
  size_t size;
} model_tensor;

typedef struct model_files {
  char dir[200];
  model_tensor tensor[MOST_TENSORS];
  int count;
  int blanks; /* added to the header's end: moves the data */
} model_files;

/* A new temporary folder with the tiny model's config.json; its F32 tensors are in `m` and nowhere yet. All values are multiples
 * of 1/64 below 2, so 16-bit types hold them exactly. Anything that goes wrong here aborts. */
void model_files_start(model_files *m);

/* Removes the folder and all in it. */
void model_files_remove(model_files *m);

/* Writes model.safetensors, or a file of the tensors from `from` to before `to`. */
void model_files_write(const model_files *m);
void model_files_write_part(const model_files *m, const char *file, int from, int to);

/* Writes (or removes) any file of the folder; path_of gives its path, in a buffer that the next call reuses. */
void model_files_bytes(const model_files *m, const char *file, const void *bytes, size_t size);
void model_files_text(const model_files *m, const char *file, const char *text);
void model_files_unlink(const model_files *m, const char *file);
const char *model_files_path(const model_files *m, const char *file);

/* The tensor of that name, which must be there. */
model_tensor *model_files_find(model_files *m, const char *name);

/* Adds a tensor (two dimensions; cols 0: one) with values of its own. The pointer lasts until the next drop. */
model_tensor *model_files_add(model_files *m, const char *name, int rows, int cols);
void model_files_drop(model_files *m, const char *name);

/* Stores the tensor's float32 values as F16 or BF16; turns [rows][cols] into [cols][rows]. */
void model_tensor_narrow(model_tensor *t, const char *dtype);
void model_tensor_transpose(model_tensor *t);

/* A safetensors file in memory, of exactly its size: the caller frees it. `length` is the header's claimed length, or −1 for
 * the true one. */
unsigned char *safetensors_bytes(long long length, const char *header, const void *data, size_t data_size,
                                 size_t *size);

/* config.json of the tiny model with `key` set to `value` (JSON text; NULL takes the key away); key NULL changes nothing. The
 * caller frees it. */
char *tiny_config(const char *key, const char *value);

/* Writes tiny_config(key, value) as config.json. */
void model_files_config(const model_files *m, const char *key, const char *value);

/* The first of `words` ("one|two|three") that is not in `text`, in a buffer that the next call reuses; NULL: all are. */
const char *missing_word(const char *text, const char *words);

/* Whether `text` is one line of valid UTF-8 without control characters. */
bool is_clean_line(const char *text);

#endif
