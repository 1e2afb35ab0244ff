/* npy.c: the .npy format, versions 1 to 3: magic, version, length of a header, the header (a Python dictionary), the numbers.
 * Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
#include "import/array.h"

#include <ctype.h>
#include <string.h>

struct parser {
  const char *at, *end;
  const struct array *array;
  kvs_error *err;
};

static kvs_status bad(const struct array *array, const char *what, kvs_error *err) {
  return kvs_fail(err, KVS_ERR_INPUT, "%s: array `%s`: %s; save it again with numpy.save or numpy.savez", array->file,
                  array->name, what);
}

static void skip_blanks(struct parser *p) {
  while (p->at < p->end && isspace((unsigned char)*p->at)) p->at++;
}

static bool take(struct parser *p, const char *word) {
  skip_blanks(p);
  size_t length = strlen(word);
  if ((size_t)(p->end - p->at) < length || memcmp(p->at, word, length) != 0) return false;
  p->at += length;
  return true;
}

/* 'text' or "text", at most size - 1 bytes. */
static bool take_string(struct parser *p, char *text, size_t size) {
  skip_blanks(p);
  if (p->at >= p->end || (*p->at != '\'' && *p->at != '"')) return false;
  char quote = *p->at++;
  size_t n = 0;
  while (p->at < p->end && *p->at != quote) {
    if (n + 1 >= size) return false;
    text[n++] = *p->at++;
  }
  text[n] = '\0';
  return p->at++ < p->end;
}

static kvs_status take_type(struct parser *p, struct array *array) {
  static const char *const names[] = {"f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"};
  char text[16];
  if (!take_string(p, text, sizeof text)) return bad(array, "its type is not a plain number's (a structure?)", p->err);
  if (strcmp(text, "|O") == 0)
    return kvs_fail(
        p->err, KVS_ERR_INPUT,
        "%s: array `%s` holds Python objects, not numbers (parts of different lengths?); save each part as an "
        "array of its own",
        array->file, array->name);
  if (text[0] == '>')
    return kvs_fail(p->err, KVS_ERR_INPUT, "%s: array `%s` is big-endian (%s); save it as x.astype('<%s')", array->file,
                    array->name, text, text + 1);
  const char *type = strchr("<|=", text[0]) && text[0] ? text + 1 : text;
  if (strcmp(type, "b1") == 0) type = "u1";
  for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
    if (strcmp(type, names[i]) == 0) {
      array->type = (enum array_type)i;
      return KVS_OK;
    }
  return kvs_fail(p->err, KVS_ERR_INPUT, "%s: array `%s` has type %s; float16, 32, 64 and whole numbers can be read",
                  array->file, array->name, text);
}

static kvs_status take_shape(struct parser *p, struct array *array) {
  if (!take(p, "(")) return bad(array, "its header has no shape", p->err);
  while (!take(p, ")")) {
    skip_blanks(p);
    if (array->dimensions == ARRAY_MOST_DIMENSIONS) return bad(array, "more than 8 dimensions", p->err);
    int64_t n = 0;
    const char *first = p->at;
    for (; p->at < p->end && isdigit((unsigned char)*p->at); p->at++)
      if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *p->at - '0', &n))
        return bad(array, "a dimension that is too large", p->err);
    if (p->at == first) return bad(array, "its header has a shape that is none", p->err);
    array->shape[array->dimensions++] = n;
    if (!take(p, ",")) {
      if (!take(p, ")")) return bad(array, "its header has a shape that is none", p->err);
      break;
    }
  }
  return KVS_OK;
}

/* {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } in any order. */
static kvs_status parse_header(struct array *array, const char *text, size_t length, bool *fortran, kvs_error *err) {
  struct parser p = {text, text + length, array, err};
  bool has_type = false, has_shape = false, has_order = false;
  if (!take(&p, "{")) return bad(array, "its header is no dictionary", err);
  while (!take(&p, "}")) {
    char key[16];
    kvs_status status = KVS_OK;
    if (!take_string(&p, key, sizeof key) || !take(&p, ":")) return bad(array, "its header is malformed", err);
    if (strcmp(key, "descr") == 0 && !has_type)
      status = take_type(&p, array), has_type = true;
    else if (strcmp(key, "shape") == 0 && !has_shape)
      status = take_shape(&p, array), has_shape = true;
    else if (strcmp(key, "fortran_order") == 0 && !has_order &&
             (take(&p, "True") ? (*fortran = true) : take(&p, "False")))
      has_order = true;
    else
      return bad(array, "its header is malformed", err);
    if (status != KVS_OK) return status;
    if (!take(&p, ",") && !take(&p, "}")) return bad(array, "its header is malformed", err);
    if (p.at[-1] == '}') break;
  }
  return has_type && has_shape && has_order ? KVS_OK : bad(array, "its header is incomplete", err);
}

kvs_status npy_parse(struct array *array, const unsigned char *bytes, uint64_t size, bool complete, size_t *data_at,
                     kvs_error *err) {
  if (size < 12 || memcmp(bytes, "\x93NUMPY", 6) != 0) return bad(array, "not in .npy format, or cut off", err);
  if (bytes[6] < 1 || bytes[6] > 3) return bad(array, "a version of .npy that is not known (1 to 3 are)", err);
  size_t start = bytes[6] == 1 ? 10 : 12;
  size_t length = bytes[8] | (size_t)bytes[9] << 8;
  if (bytes[6] > 1) length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
  if (length > ARRAY_MOST_HEADER) return bad(array, "a header of more than 64 KiB", err);
  if (length > size - start) return bad(array, "cut off within its header", err);
  bool fortran = false;
  kvs_status status = parse_header(array, (const char *)bytes + start, length, &fortran, err);
  if (status != KVS_OK) return status;
  *data_at = start + length;
  int64_t count = array_elements(array), need;
  if (count < 0 || !array_set_strides(array, fortran) ||
      __builtin_mul_overflow(count, (int64_t)array_type_size(array->type), &need))
    return kvs_fail(err, KVS_ERR_INPUT, "%s: array `%s` claims shape %s, more than any file holds", array->file,
                    array->name, array_shape_text(array));
  if (!complete) return KVS_OK;
  if ((uint64_t)need > size - *data_at)
    return kvs_fail(err, KVS_ERR_INPUT,
                    "%s: array `%s` is cut off: shape %s needs %lld bytes, and %llu are there; copy the file again",
                    array->file, array->name, array_shape_text(array), (long long)need,
                    (unsigned long long)(size - *data_at));
  array->data = bytes + *data_at;
  return KVS_OK;
}
