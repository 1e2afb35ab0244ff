/* json.c: arrays out of a JSON file: an object of numbers, (nested) lists of numbers, and objects of such; names are joined with dots. */
#include "import/array.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct reading {
  struct arrays *arrays;
  const char *path;
  kvs_error *err;
};

/* Python's json writes NaN, Infinity and -Infinity, which JSON has not. In a copy of the text, outside of strings, each is replaced by
 * a string of at most its length: "N", "I", "M". A JavaScript engine writes null for all of them. */
static void replace_words(char *text, size_t size) {
  static const struct {
    const char *word, *instead;
  } words[] = {{"NaN", "\"N\""}, {"-Infinity", "\"M\"      "}, {"Infinity", "\"I\"     "}};
  bool quoted = false;
  for (size_t i = 0; i < size; i++) {
    if (quoted && text[i] == '\\')
      i++;
    else if (text[i] == '"')
      quoted = !quoted;
    else if (!quoted && (text[i] == 'N' || text[i] == 'I' || text[i] == '-'))
      for (int w = 0; w < 3; w++) {
        size_t length = strlen(words[w].word);
        if (length > size - i || memcmp(text + i, words[w].word, length) != 0) continue;
        memcpy(text + i, words[w].instead, length);
        i += length - 1;
        break;
      }
  }
}

/* A number, or what stands for one that JSON cannot write. */
static bool is_number(const json_t *value, double *number) {
  if (json_is_number(value))
    *number = json_number_value(value);
  else if (json_is_null(value))
    *number = NAN;
  else if (json_is_boolean(value))
    *number = json_is_true(value);
  else if (json_is_string(value) && json_string_length(value) == 1 && strchr("NIM", *json_string_value(value)))
    *number = *json_string_value(value) == 'N' ? NAN : *json_string_value(value) == 'I' ? INFINITY : -INFINITY;
  else
    return false;
  return true;
}

/* The shape that the first elements have. False: these are no numbers, or too deep. */
static bool shape_of(const json_t *value, struct array *array) {
  double number;
  array->dimensions = 0;
  for (; json_is_array(value); value = json_array_get(value, 0)) {
    if (array->dimensions == ARRAY_MOST_DIMENSIONS) return false;
    array->shape[array->dimensions++] = (int64_t)json_array_size(value);
    if (json_array_size(value) == 0) return true;
  }
  return is_number(value, &number);
}

/* Writes all numbers of `value`, if it has the shape from `dimension` on. */
static bool fill(const json_t *value, const struct array *array, int dimension, double **to) {
  if (dimension == array->dimensions) return is_number(value, (*to)++);
  if (!json_is_array(value) || (int64_t)json_array_size(value) != array->shape[dimension]) return false;
  for (size_t i = 0; i < json_array_size(value); i++)
    if (!fill(json_array_get(value, i), array, dimension + 1, to)) return false;
  return true;
}

/* How many numbers there really are, which bounds the memory. */
static size_t leaves(const json_t *value) {
  if (!json_is_array(value)) return 1;
  size_t count = 0;
  for (size_t i = 0; i < json_array_size(value); i++) count += leaves(json_array_get(value, i));
  return count;
}

/* *done: it was a regular array and is in the list now. */
static kvs_status add_regular(struct reading *r, const char *name, const json_t *value, bool split, bool *done) {
  struct array array = {.file = r->path, .type = ARRAY_F8, .split = split};
  *done = false;
  if (!shape_of(value, &array)) return KVS_OK;
  int64_t count = array_elements(&array);
  if (count < 0 || (uint64_t)count > leaves(value) || !array_set_strides(&array, false)) return KVS_OK;
  double *numbers = malloc(((size_t)count + 1) * sizeof *numbers), *to = numbers;
  if (!numbers) return kvs_fail_memory(r->err, "reading JSON");
  if (!fill(value, &array, 0, &to)) {
    free(numbers);
    return KVS_OK;
  }
  kvs_status status = arrays_keep(r->arrays, numbers, 0, r->err);
  if (status != KVS_OK) return status;
  struct array *added = arrays_add(r->arrays, name, strlen(name), r->path, r->err);
  if (!added) return r->err ? r->err->status : KVS_ERR_MEMORY;
  memcpy(array.name, added->name, sizeof array.name);
  array.data = (const unsigned char *)numbers;
  *added = array;
  *done = true;
  return KVS_OK;
}

static kvs_status add_text(struct reading *r, const char *name, const char *text) {
  struct arrays *a = r->arrays;
  struct array_text *texts = realloc(a->texts, (a->text_count + 1) * sizeof *texts);
  if (!texts) return kvs_fail_memory(r->err, "reading JSON");
  a->texts = texts;
  struct array_text *added = &texts[a->text_count];
  strncpy(added->name, name, ARRAY_MOST_NAME);
  added->name[ARRAY_MOST_NAME] = '\0';
  added->text = strdup(text);
  if (!added->text) return kvs_fail_memory(r->err, "reading JSON");
  a->text_count++;
  return KVS_OK;
}

/* Strings, and not only the three that stand for numbers. */
static bool is_words(const json_t *value) {
  bool words = false;
  double number;
  for (size_t i = 0; i < json_array_size(value); i++) {
    if (!json_is_string(json_array_get(value, i))) return false;
    words = words || !is_number(json_array_get(value, i), &number);
  }
  return words;
}

static kvs_status add_words(struct reading *r, const char *name, const json_t *value) {
  struct arrays *a = r->arrays;
  struct array_words *grown = realloc(a->words, (a->word_count + 1) * sizeof *grown);
  if (!grown) return kvs_fail_memory(r->err, "reading JSON");
  a->words = grown;
  struct array_words *added = &grown[a->word_count];
  *added = (struct array_words){.file = r->path};
  strncpy(added->name, name, ARRAY_MOST_NAME);
  added->at = calloc(json_array_size(value), sizeof *added->at);
  if (!added->at) return kvs_fail_memory(r->err, "reading JSON");
  a->word_count++;
  for (; added->count < json_array_size(value); added->count++) {
    added->at[added->count] = strdup(json_string_value(json_array_get(value, added->count)));
    if (!added->at[added->count]) return kvs_fail_memory(r->err, "reading JSON");
  }
  return KVS_OK;
}

/* [{"attn": …, "left_text": …}], as bertviz has it: the list adds nothing to the name. */
static bool is_lone_view(const json_t *value) {
  return json_array_size(value) == 1 && json_object_get(json_array_get(value, 0), "attn");
}

static kvs_status add_value(struct reading *r, const char *name, const json_t *value, bool split, int depth);

static kvs_status add_member(struct reading *r, const char *name, const char *key, const json_t *value, bool split,
                             int depth) {
  char joined[ARRAY_MOST_NAME + 1];
  snprintf(joined, sizeof joined, "%s%s%s", name, *name ? "." : "", key);
  return add_value(r, joined, value, split, depth);
}

static kvs_status add_value(struct reading *r, const char *name, const json_t *value, bool split, int depth) {
  bool done = false;
  kvs_status status = KVS_OK;
  if (depth > ARRAY_MOST_DIMENSIONS)
    return kvs_fail(r->err, KVS_ERR_INPUT, "%s: `%s` is nested more than %d deep", r->path, name,
                    ARRAY_MOST_DIMENSIONS);
  if (json_is_object(value)) {
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)(uintptr_t)value, key, member) {
      status = add_member(r, name, key, member, split, depth + 1);
      if (status != KVS_OK) return status;
    }
    return KVS_OK;
  }
  if (json_is_string(value) && json_string_length(value) != 1) return add_text(r, name, json_string_value(value));
  if (is_words(value)) return add_words(r, name, value);
  if (is_lone_view(value)) return add_value(r, name, json_array_get(value, 0), split, depth + 1);
  status = add_regular(r, name, value, split, &done);
  if (status != KVS_OK || done || !json_is_array(value)) return status;
  for (size_t i = 0; status == KVS_OK && i < json_array_size(value); i++) { /* its parts differ in shape */
    char key[24];
    snprintf(key, sizeof key, "%zu", i);
    status = add_member(r, name, key, json_array_get(value, i), true, depth + 1);
  }
  return status;
}

kvs_status json_arrays_read(struct arrays *arrays, const char *path, const unsigned char *bytes, size_t size,
                            kvs_error *err) {
  if (size > ARRAY_MOST_JSON)
    return kvs_fail(err, KVS_ERR_INPUT, "%s: more than 64 MiB of JSON; save that much with numpy.savez", path);
  char *text = malloc(size);
  if (!text) return kvs_fail_memory(err, "reading JSON");
  memcpy(text, bytes, size);
  replace_words(text, size);
  json_error_t error = {0};
  json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
  free(text);
  if (!root && error.text[0] == '\0') return kvs_fail_memory(err, "reading JSON");
  if (!root)
    return kvs_fail(err, KVS_ERR_INPUT, "%s, line %d, column %d: not valid JSON: %s", path, error.line, error.column,
                    error.text);
  struct reading r = {arrays, path, err};
  kvs_status status = json_is_object(root)
                          ? add_value(&r, "", root, false, 0)
                          : kvs_fail(err, KVS_ERR_INPUT,
                                     "%s: a JSON list; put the arrays into an object, {\"tokens\": [...], ...}", path);
  json_decref(root);
  return status;
}
