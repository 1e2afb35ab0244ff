/* array.h: arrays of numbers from .npy, .npz and JSON files, as an import reads them: checked headers, no copy where the file can be
 * used in place, and bounded memory whatever the file claims. */
#ifndef KVS_IMPORT_ARRAY_H
#define KVS_IMPORT_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvstep/error.h"

#define ARRAY_MOST_DIMENSIONS 8
#define ARRAY_MOST_NAME 200                     /* bytes; a longer name is cut for messages and known to nobody */
#define ARRAY_MOST_ARRAYS 100000                /* in all files together */
#define ARRAY_MOST_UNPACKED ((uint64_t)4 << 30) /* bytes of compressed arrays that are unpacked in one import */
#define ARRAY_MOST_JSON ((size_t)64 << 20)      /* bytes of a JSON file; its parser needs up to forty times as many */
#define ARRAY_MOST_HEADER ((size_t)64 << 10)    /* bytes of a .npy header */

enum array_type {
  ARRAY_F2,
  ARRAY_F4,
  ARRAY_F8,
  ARRAY_I1,
  ARRAY_I2,
  ARRAY_I4,
  ARRAY_I8,
  ARRAY_U1,
  ARRAY_U2,
  ARRAY_U4,
  ARRAY_U8
};

/* An array, or a part of one: a copy of this struct is a view that owns nothing. */
struct array {
  char name[ARRAY_MOST_NAME + 1];
  const char *file; /* path, for messages */
  enum array_type type;
  int dimensions;
  int64_t shape[ARRAY_MOST_DIMENSIONS];
  int64_t stride[ARRAY_MOST_DIMENSIONS]; /* in elements */
  const unsigned char *data;             /* element 0; any alignment. NULL: still packed */
  bool split;                            /* a JSON list whose parts have different shapes: this is one of its parts */
  /* A member of a .npz, unpacked (if it is deflated) and compared with its CRC-32 by array_need. */
  const unsigned char *packed;
  uint64_t packed_size, size;
  uint32_t crc;
};

/* A string that stood in a JSON file at the top: {"engine": "mine"}. */
struct array_text {
  char name[ARRAY_MOST_NAME + 1];
  char *text;
};

/* A list of strings in a JSON file: {"tokens": ["The", "\u0120cat"]}. */
struct array_words {
  char name[ARRAY_MOST_NAME + 1];
  const char *file;
  char **at;
  size_t count;
};

struct arrays {
  struct array *at;
  size_t count, room;
  struct array_text *texts;
  size_t text_count;
  struct array_words *words;
  size_t word_count;
  struct array_block {
    void *memory;
    size_t mapped; /* 0: from malloc */
  } * blocks;
  size_t block_count;
  uint64_t unpacked;
};

/* Adds all arrays of a file; its kind is told by its first bytes. A .npy has one array, named like the file.
 * Errors: KVS_ERR_IO, KVS_ERR_INPUT (what is malformed, and where), KVS_ERR_MEMORY. */
kvs_status arrays_read(struct arrays *arrays, const char *path, kvs_error *err);
void arrays_free(struct arrays *arrays);

/* Makes sure that array->data is there and whole. */
kvs_status array_need(struct arrays *arrays, struct array *array, kvs_error *err);

/* How many elements; -1: more than can be counted. */
int64_t array_elements(const struct array *array);

/* The element `at` places from the beginning, as strides count. */
double array_get(const struct array *array, int64_t at);

/* "[2, 4, 12]", in a buffer that is good until the fourth call from now. */
const char *array_shape_text(const struct array *array);

/* ---- between the files of this room ---- */

/* A new, zeroed array at the list's end; NULL and *err: no memory, or too many. */
struct array *arrays_add(struct arrays *arrays, const char *name, size_t length, const char *file, kvs_error *err);
/* Remembers memory that arrays_free gives back. On failure it is given back at once. */
kvs_status arrays_keep(struct arrays *arrays, void *memory, size_t mapped, kvs_error *err);
size_t array_type_size(enum array_type type);
/* Strides of a whole array in C or Fortran order. False: more elements than can be counted. */
bool array_set_strides(struct array *array, bool fortran);

/* Parses a .npy in memory of `size` bytes; `complete` false: only its first bytes are there (the header is), and data stays NULL. */
kvs_status npy_parse(struct array *array, const unsigned char *bytes, uint64_t size, bool complete, size_t *data_at,
                     kvs_error *err);
kvs_status npz_read(struct arrays *arrays, const char *path, const unsigned char *bytes, size_t size, kvs_error *err);
kvs_status json_arrays_read(struct arrays *arrays, const char *path, const unsigned char *bytes, size_t size,
                            kvs_error *err);

#endif
