/* look_read.c: one run, step, head, row … of a trace by its key, checked against the run's shape, and kept. */
#include "study/look/look_parts.h"

#include <stdlib.h>
#include <string.h>

#include "kvstep/tokenizer.h"
#include "trace/query.h"

/* A kept run: what the public one has, and what its steps say of it. */
struct kept_run {
  struct look_run run;
  int prompt_steps;
};

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

/* Reads what a key stands for from the current row. False: failed, and remembered. */
typedef bool reader(struct look *look, sqlite3_stmt *statement, const int *key, void **value, size_t *bytes);

static void *get(struct look *look, enum look_kind kind, enum look_query query, const int *key, int keys,
                 reader *read) {
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

/* ---- runs ---- */

/* A size of the model; what is no size, or no model's, is not known. */
static int shape_of(sqlite3_stmt *statement, int column) {
  int n = look_int(statement, column);
  return n <= 0 || n > 1 << 20 ? LOOK_NONE : n;
}

static bool read_run(struct look *look, sqlite3_stmt *statement, const int *key, void **value, size_t *bytes) {
  struct kept_run *kept = calloc(1, sizeof *kept);
  if (!kept) return look_no_memory(look), false;
  struct look_run *run = &kept->run;
  *run = (struct look_run){.run = key[0],
                           .n_layer = shape_of(statement, 6),
                           .n_head = shape_of(statement, 7),
                           .n_embd = shape_of(statement, 8),
                           .head_dim = shape_of(statement, 9),
                           .n_ctx = shape_of(statement, 10),
                           .n_vocab = shape_of(statement, 11),
                           .fault_from_step = look_int(statement, 12)};
  if ((long long)run->n_layer * run->n_head > LOOK_MOST_HEADS) run->n_layer = run->n_head = LOOK_NONE;
  /* Who walks through n_head heads of head_dim numbers must not leave a vector of n_embd. */
  if (run->n_head < 0 || run->n_embd < 0 || (long long)run->n_head * run->head_dim != run->n_embd)
    run->head_dim = LOOK_NONE;
  look_text(statement, 0, run->model, sizeof run->model);
  look_text(statement, 1, run->fault, sizeof run->fault);
  look_text(statement, 2, run->engine, sizeof run->engine);
  look_text(statement, 3, run->created_at, sizeof run->created_at);
  look_text(statement, 4, run->finished_at, sizeof run->finished_at);
  look_text(statement, 13, run->model_sha256, sizeof run->model_sha256);
  const unsigned char *prompt = sqlite3_column_blob(statement, 5);
  size_t length = prompt ? (size_t)sqlite3_column_bytes(statement, 5) : 0;
  size_t enough = 2 * sizeof run->prompt; /* each byte shows as one or more */
  if (prompt) kvs_token_text(prompt, length < enough ? length : enough, run->prompt, sizeof run->prompt);
  *value = kept;
  *bytes = sizeof *kept;
  return true;
}

/* The steps so far, and those of the prompt: of the first batch, or where another engine fed it singly, that came from it. */
static bool count_steps(struct look *look, struct kept_run *kept) {
  bool row;
  if (!look_ask(look, ASK_LAST_STEP, &kept->run.run, 1, &row)) return false;
  kept->run.steps = row ? look_int(look->statements[ASK_LAST_STEP], 0) + 1 : 0;
  look_done(look, ASK_LAST_STEP);
  if (!look_ask(look, ASK_PROMPT, &kept->run.run, 1, &row)) return false;
  int batch = look_int(look->statements[ASK_PROMPT], 0), prompt = look_int(look->statements[ASK_PROMPT], 1);
  look_done(look, ASK_PROMPT);
  kept->prompt_steps = batch == 0 ? prompt : batch;
  if (kept->prompt_steps == LOOK_NONE) kept->prompt_steps = kept->run.steps;
  return true;
}

static struct kept_run *kept_run(struct look *look, int run) {
  const int key[LOOK_KEYS] = {run};
  if (run < 1) return NULL;
  struct look_entry *entry = look_cache_find(&look->caches[RUNS], key);
  if (entry) return entry->value;
  bool row;
  void *value = NULL;
  size_t bytes = 0;
  if (!look_ask(look, ASK_RUN, key, 1, &row)) return NULL;
  bool good = !row || read_run(look, look->statements[ASK_RUN], key, &value, &bytes);
  look_done(look, ASK_RUN);
  if (good && value) good = count_steps(look, value);
  if (!good) {
    free(value);
    return NULL;
  }
  look_cache_put(&look->caches[RUNS], key, value, bytes);
  return value;
}

const struct look_run *look_run(struct look *look, int run) {
  struct kept_run *kept = kept_run(look, run);
  return kept ? &kept->run : NULL;
}

/* ---- steps, in blocks ---- */

/* Names in a trace that are neither, or NULL: alone, and from outside. */
static void read_step(sqlite3_stmt *statement, struct look_step *step) {
  char mode[16], source[16];
  look_text(statement, 1, mode, sizeof mode);
  look_text(statement, 2, source, sizeof source);
  step->mode = strcmp(mode, kvs_mode_name(KVS_PREFILL)) == 0 ? KVS_PREFILL : KVS_DECODE;
  step->source = KVS_FORCED;
  for (int i = KVS_PROMPT; i <= KVS_FORCED; i++)
    if (strcmp(source, kvs_source_name((kvs_source)i)) == 0) step->source = (kvs_source)i;
  step->token = look_int(statement, 3);
  look_text(statement, 4, step->text, sizeof step->text);
  step->length_before = look_int(statement, 5);
  step->position = look_int(statement, 6);
  step->length_after = look_int(statement, 7);
  step->logprob = column_real(statement, 8);
  step->seconds = column_real(statement, 9);
}

static struct look_step *read_block(struct look *look, const struct kept_run *kept, int first) {
  struct look_step *steps = calloc(LOOK_BLOCK, sizeof *steps);
  if (!steps) return look_no_memory(look), NULL;
  bool row;
  const int bounds[] = {kept->run.run, first, first + (LOOK_BLOCK - 1)};
  bool good = look_ask(look, ASK_STEPS, bounds, 3, &row);
  while (good && row) {
    int number = look_int(look->statements[ASK_STEPS], 0);
    /* A step that is no whole number is none; and in a damaged index there may be any between these two. */
    if (number >= first && number - first < LOOK_BLOCK) {
      struct look_step *step = &steps[number - first];
      step->run = kept->run.run, step->step = number, step->prompt_steps = kept->prompt_steps;
      read_step(look->statements[ASK_STEPS], step);
    }
    good = look_ask_more(look, ASK_STEPS, &row);
  }
  if (good) {
    look_done(look, ASK_STEPS);
    return steps;
  }
  free(steps);
  return NULL;
}

const struct look_step *look_step(struct look *look, int run, int step) {
  const struct kept_run *kept = kept_run(look, run);
  if (!kept || step < 0) return NULL;
  const int key[LOOK_KEYS] = {run, step / LOOK_BLOCK};
  struct look_entry *entry = look_cache_find(&look->caches[STEPS], key);
  struct look_step *block = entry ? entry->value : NULL;
  if (!entry) {
    block = read_block(look, kept, step - step % LOOK_BLOCK);
    if (!block) return NULL;
    look_cache_put(&look->caches[STEPS], key, block, LOOK_BLOCK * sizeof *block);
  }
  const struct look_step *found = &block[step % LOOK_BLOCK];
  return found->run ? found : NULL; /* runs count from 1: 0 is a place that was not filled */
}

static bool read_token(struct look *look, sqlite3_stmt *statement, const int *key, void **value, size_t *bytes) {
  (void)key;
  *bytes = sizeof((struct look_step *)0)->text;
  char *text = calloc(1, *bytes);
  if (!text) return look_no_memory(look), false;
  look_text(statement, 0, text, *bytes);
  *value = text;
  return true;
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
  return in_run(look, key) ? get(look, HEADS, ASK_HEAD, key, 4, read_head) : NULL;
}

const char *look_token_text(struct look *look, int token) {
  const int key[LOOK_KEYS] = {token};
  const char *text = token < 0 ? NULL : get(look, TOKENS, ASK_TOKEN, key, 1, read_token);
  return text && *text ? text : "?";
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
  return in_run(look, key) ? get(look, ROWS, ASK_ROW, key, 4, read_row) : NULL;
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
  return in_run(look, key) ? get(look, VECTORS, ASK_VECTORS, key, 2, read_step_vectors) : NULL;
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
  return in_run(look, key) ? get(look, LAYERS, ASK_LAYER, key, 3, read_layer) : NULL;
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
  return in_run(look, key) ? get(look, TOPS, ASK_TOP, key, 2, read_top) : NULL;
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

const char *look_run_name(const struct look_run *run) {
  if (!*run->fault) return "unchecked";
  return strcmp(run->fault, "none") == 0 ? "correct" : run->fault;
}
