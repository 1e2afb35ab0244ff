/* look_runs.c: the runs of a trace, their steps, and the texts of tokens. */
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

const char *look_token_text(struct look *look, int token) {
  const int key[LOOK_KEYS] = {token};
  const char *text = token < 0 ? NULL : look_get(look, TOKENS, ASK_TOKEN, key, 1, read_token);
  return text && *text ? text : "?";
}

const char *look_run_name(const struct look_run *run) {
  if (!*run->fault) return "unchecked";
  return strcmp(run->fault, "none") == 0 ? "correct" : run->fault;
}
