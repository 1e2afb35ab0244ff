/* look_read.c: the vectors of one step, head, row … of a trace, and what came out, by their key, checked against the run's shape, and kept. */
#include "study/look/look_parts.h"

#include <stdlib.h>
#include <string.h>

#include "trace/query.h"

/* A vector wanted from a column: how many numbers it must have (0: the shape is not known, so none) and where its address goes. */
struct wanted {
  const char *name;
  long long count;
  size_t offset;
};

/* What is being read, for a message. */
struct place {
  const char *table;
  const int *key;
};

static void told_wrong(struct look *look, const struct place *place, const struct wanted *wanted, int bytes) {
  look->failed = true;
  kvs_fail(&look->error, KVS_ERR_INPUT,
           "%s, run %d, step %d: `%s` has %d bytes, not %lld (float32 numbers of this run's shape); left out",
           place->table, place->key[0], place->key[1], wanted->name, bytes, 4 * wanted->count);
}

/* Drops from `wanted` what is not there or has a wrong length; returns how many numbers are left in all. */
static size_t check_vectors(struct look *look, sqlite3_stmt *statement, const struct place *place,
                            struct wanted *wanted, int count) {
  size_t numbers = 0;
  for (int i = 0; i < count; i++) {
    int bytes = sqlite3_column_bytes(statement, i);
    bool there = sqlite3_column_type(statement, i) != SQLITE_NULL && wanted[i].count > 0;
    bool right = sqlite3_column_type(statement, i) == SQLITE_BLOB && bytes == 4 * wanted[i].count;
    if (there && !right) told_wrong(look, place, &wanted[i], bytes);
    if (!there || !right) wanted[i].count = 0;
    numbers += (size_t)wanted[i].count;
  }
  return numbers;
}

/* The file's floats are little-endian, whatever this machine is. */
static void copy_floats(float *to, const unsigned char *from, long long count) {
  for (long long i = 0; i < count; i++, from += 4) {
    unsigned bits = from[0] | (unsigned)from[1] << 8 | (unsigned)from[2] << 16 | (unsigned)from[3] << 24;
    memcpy(&to[i], &bits, 4);
  }
}

/* A value of `size` bytes with the first `count` columns' vectors behind it, in one block; NULL: no memory (remembered). */
static void *value_with_vectors(struct look *look, sqlite3_stmt *statement, const struct place *place, size_t size,
                                struct wanted *wanted, int count, size_t *bytes) {
  size_t numbers = check_vectors(look, statement, place, wanted, count);
  size_t head = (size + 15) / 16 * 16;
  *bytes = head + numbers * sizeof(float);
  unsigned char *value = calloc(1, *bytes);
  if (!value) {
    look_no_memory(look);
    return NULL;
  }
  float *numbers_to = (float *)(void *)(value + head);
  for (int i = 0; i < count; i++) {
    if (wanted[i].count == 0) continue;
    const unsigned char *blob = sqlite3_column_blob(statement, i);
    if (!blob) { /* it was there a moment ago */
      look_no_memory(look);
      free(value);
      return NULL;
    }
    copy_floats(numbers_to, blob, wanted[i].count);
    memcpy(value + wanted[i].offset, &(const float *){numbers_to}, sizeof numbers_to);
    numbers_to += wanted[i].count;
  }
  return value;
}

void *look_get(struct look *look, enum look_kind kind, enum look_query query, const int *key, int keys,
               look_reader *read) {
  struct look_entry *entry = look_cache_find(&look->caches[kind], key);
  if (entry) return entry->value;
  bool row;
  void *value = NULL;
  size_t bytes = 0;
  if (!look_ask(look, query, key, keys, &row)) return NULL;
  bool good = !row || read(look, look->statements[query], key, &value, &bytes);
  look_done(look, query);
  if (good) look_cache_put(&look->caches[kind], key, value, bytes);
  return value;
}

/* ---- vectors ---- */

/* The arrays say how many rows were attended to; scores first. More than the context holds are none. */
static int count_rows(sqlite3_stmt *statement, const struct look_run *shape) {
  int column = sqlite3_column_type(statement, 2) == SQLITE_BLOB ? 2 : 3;
  int rows = sqlite3_column_bytes(statement, column) / 4;
  int most = shape->n_ctx > 0 ? shape->n_ctx : 1 << 16;
  return rows > most ? most : rows;
}

static bool read_head(struct look *look, sqlite3_stmt *statement, const int *key, void **value, size_t *bytes) {
  const struct look_run *shape = look_run(look, key[0]);
  if (!shape) return false;
  int rows = count_rows(statement, shape);
  struct wanted wanted[] = {{"q", shape->head_dim, offsetof(struct look_head, q)},
                            {"out", shape->head_dim, offsetof(struct look_head, out)},
                            {"scores", rows, offsetof(struct look_head, scores)},
                            {"weights", rows, offsetof(struct look_head, weights)}};
  const struct place place = {"head_step", key};
  struct look_head *head = value_with_vectors(look, statement, &place, sizeof *head, wanted, 4, bytes);
  if (!head) return false;
  head->run = key[0], head->step = key[1], head->layer = key[2], head->head = key[3];
  head->rows = head->scores || head->weights ? rows : 0;
  *value = head;
  return true;
}

/* True if there can be such a place: a run that is there, and numbers that are numbers. */
static bool in_run(struct look *look, const int *key) {
  for (int i = 1; i < LOOK_KEYS; i++)
    if (key[i] < 0) return false;
  return look_run(look, key[0]) != NULL;
}

const struct look_head *look_head(struct look *look, int run, int step, int layer, int head) {
  const int key[LOOK_KEYS] = {run, step, layer, head};
  return in_run(look, key) ? look_get(look, HEADS, ASK_HEAD, key, 4, read_head) : NULL;
}

bool look_has_head(struct look *look, int run, int step, int layer, int head) {
  return look_cache_find(&look->caches[HEADS], (const int[LOOK_KEYS]){run, step, layer, head}) != NULL;
}

static bool read_row(struct look *look, sqlite3_stmt *statement, const int *key, void **value, size_t *bytes) {
  const struct look_run *shape = look_run(look, key[0]);
  if (!shape) return false;
  struct wanted wanted[] = {{"k", shape->n_embd, offsetof(struct look_row, k)},
                            {"v", shape->n_embd, offsetof(struct look_row, v)}};
  const struct place place = {"kv_row", key};
  struct look_row *found = value_with_vectors(look, statement, &place, sizeof *found, wanted, 2, bytes);
  if (!found) return false;
  found->run = key[0], found->step = key[1], found->layer = key[2], found->row = key[3];
  *value = found;
  return true;
}

const struct look_row *look_row(struct look *look, int run, int step, int layer, int row) {
  const int key[LOOK_KEYS] = {run, look_writer(look, run, step, layer, row), layer, row};
  return in_run(look, key) ? look_get(look, ROWS, ASK_ROW, key, 4, read_row) : NULL;
}

static bool read_step_vectors(struct look *look, sqlite3_stmt *statement, const int *key, void **value, size_t *bytes) {
  const struct look_run *shape = look_run(look, key[0]);
  if (!shape) return false;
  struct wanted wanted[] = {{"wte", shape->n_embd, offsetof(struct look_vectors, wte)},
                            {"wpe", shape->n_embd, offsetof(struct look_vectors, wpe)},
                            {"x", shape->n_embd, offsetof(struct look_vectors, x)},
                            {"logits", shape->n_vocab, offsetof(struct look_vectors, logits)}};
  const struct place place = {"step_vector", key};
  struct look_vectors *found = value_with_vectors(look, statement, &place, sizeof *found, wanted, 4, bytes);
  if (!found) return false;
  found->run = key[0], found->step = key[1];
  *value = found;
  return true;
}

const struct look_vectors *look_vectors(struct look *look, int run, int step) {
  const int key[LOOK_KEYS] = {run, step};
  return in_run(look, key) ? look_get(look, VECTORS, ASK_VECTORS, key, 2, read_step_vectors) : NULL;
}

static bool read_layer(struct look *look, sqlite3_stmt *statement, const int *key, void **value, size_t *bytes) {
  const struct look_run *shape = look_run(look, key[0]);
  if (!shape) return false;
  struct wanted wanted[] = {{"x_in", shape->n_embd, offsetof(struct look_layer, x_in)},
                            {"attn_out", shape->n_embd, offsetof(struct look_layer, attn_out)},
                            {"x_mid", shape->n_embd, offsetof(struct look_layer, x_mid)},
                            {"mlp_out", shape->n_embd, offsetof(struct look_layer, mlp_out)},
                            {"x_out", shape->n_embd, offsetof(struct look_layer, x_out)}};
  const struct place place = {"layer_step", key};
  struct look_layer *found = value_with_vectors(look, statement, &place, sizeof *found, wanted, 5, bytes);
  if (!found) return false;
  found->run = key[0], found->step = key[1], found->layer = key[2];
  *value = found;
  return true;
}

const struct look_layer *look_layer(struct look *look, int run, int step, int layer) {
  const int key[LOOK_KEYS] = {run, step, layer};
  return in_run(look, key) ? look_get(look, LAYERS, ASK_LAYER, key, 3, read_layer) : NULL;
}

/* ---- what came out ---- */

static bool read_top(struct look *look, sqlite3_stmt *statement, const int *key, void **value, size_t *bytes) {
  struct look_top *top = calloc(1, sizeof *top);
  if (!top) return look_no_memory(look), false;
  top->run = key[0], top->step = key[1];
  bool row = true;
  while (row && top->count < LOOK_TOP) {
    top->token[top->count].token = look_int(statement, 0);
    look_text(statement, 1, top->token[top->count].text, sizeof top->token[0].text);
    top->token[top->count].logit = column_real(statement, 2);
    top->token[top->count].probability = column_real(statement, 3);
    top->count++;
    if (!look_ask_more(look, ASK_TOP, &row)) {
      free(top);
      return false;
    }
  }
  *value = top;
  *bytes = sizeof *top;
  return true;
}

const struct look_top *look_top(struct look *look, int run, int step) {
  const int key[LOOK_KEYS] = {run, step};
  return in_run(look, key) ? look_get(look, TOPS, ASK_TOP, key, 2, read_top) : NULL;
}

static bool read_summary(struct look *look, sqlite3_stmt *statement, const int *key, void **value, size_t *bytes) {
  struct look_summary *summary = calloc(1, sizeof *summary);
  if (!summary) return look_no_memory(look), false;
  *summary = (struct look_summary){.run = key[0],
                                   .step = key[1],
                                   .layer = key[2],
                                   .head = key[3],
                                   .entropy = column_real(statement, 0),
                                   .max_weight = column_real(statement, 1),
                                   .self_weight = column_real(statement, 2),
                                   .first_weight = column_real(statement, 3),
                                   .previous_weight = column_real(statement, 4),
                                   .weight_sum = column_real(statement, 5),
                                   .max_row = look_int(statement, 6)};
  *value = summary;
  *bytes = sizeof *summary;
  return true;
}

/* Stored beside the BLOBs by kvstep; reckoned from the weights of another engine. */
const struct look_summary *look_summary(struct look *look, int run, int step, int layer, int head) {
  const int key[LOOK_KEYS] = {run, step, layer, head};
  if (!in_run(look, key)) return NULL;
  struct look_entry *entry = look_cache_find(&look->caches[SUMMARIES], key);
  if (entry) return entry->value;
  bool good = true;
  void *value = NULL;
  size_t bytes = 0;
  for (enum look_query query = ASK_STORED_SUMMARY; good && !value && query <= ASK_SUMMARY; query++) {
    bool row;
    if (!look_ask(look, query, key, 4, &row)) return NULL;
    good = !row || read_summary(look, look->statements[query], key, &value, &bytes);
    look_done(look, query);
  }
  if (good) look_cache_put(&look->caches[SUMMARIES], key, value, bytes);
  return value;
}
