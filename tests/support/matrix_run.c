/* matrix_run.c: models to try check on, and traced runs of them in a temporary folder. */
#include "tests/support/matrix_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/detour.h"
#include "engine/plan.h"
#include "tests/support/memory_model.h"
#include "trace/store.h"

static kvs_error error;

static void must(kvs_status status, const char *doing) {
  if (status == KVS_OK) return;
  fprintf(stderr, "%s: %s\n", doing, error.message);
  abort();
}

/* ---- models ---- */

struct matrix_model matrix_builtin(const char *name, const char *const *prompts, int count) {
  struct matrix_model m = {.name = name, .prompts = count};
  kvs_model *model;
  kvs_tokenizer *tokenizer;
  must(kvs_model_open(name, &model, &error), name);
  must(kvs_tokenizer_open(name, &tokenizer, &error), name);
  m.model = model, m.tokenizer = tokenizer;
  for (int p = 0; p < count; p++) {
    size_t length;
    must(kvs_tokenizer_encode(tokenizer, prompts[p], strlen(prompts[p]), false, &m.prompt[p], &length, &error),
         prompts[p]);
    m.length[p] = (int)length;
  }
  return m;
}

struct matrix_model matrix_random(const char *name, kvs_config config, unsigned seed, int prompts) {
  struct matrix_model m = {.name = name, .prompts = prompts};
  static const int lengths[] = {3, 5, 8, 2, 11, 6, 4, 9};
  unsigned long long state = seed;
  m.model = memory_model(config, KVS_F32, seed);
  for (int p = 0; p < prompts; p++) {
    m.length[p] = lengths[p % 8];
    m.prompt[p] = malloc((size_t)m.length[p] * sizeof(int));
    if (!m.prompt[p]) abort();
    for (int i = 0; i < m.length[p]; i++)
      m.prompt[p][i] = (int)((memory_random(&state) + 1) / 2 * (float)config.n_vocab * 0.999f);
  }
  return m;
}

void matrix_model_free(struct matrix_model *m) {
  for (int p = 0; p < m->prompts; p++) free(m->prompt[p]);
  if (m->tokenizer) {
    kvs_tokenizer_free((kvs_tokenizer *)m->tokenizer);
    kvs_model_free((kvs_model *)m->model);
  } else {
    memory_model_free((kvs_model *)m->model);
  }
}
/* ---- one traced run ---- */

static const unsigned char *spelling(const void *context, int token, size_t *length) {
  const struct matrix_model *m = context;
  static unsigned char byte[2];
  if (m->tokenizer) return kvs_tokenizer_bytes(m->tokenizer, token, length);
  *length = 1;
  byte[0] = (unsigned char)(token % 255 + 1);
  return byte;
}

static int best_of(const float *logits, int count) {
  int best = 0;
  for (int i = 1; i < count; i++)
    if (logits[i] > logits[best]) best = i;
  return best;
}

/* The prompt's tokens, repeated as long as the fault needs; to be freed. */
static int *prompt_of(const struct matrix_run *r, int *count) {
  const struct matrix_model *m = r->m;
  *count = kvs_fault_prompt_length(r->fault, kvs_model_config(m->model), m->length[r->prompt]);
  int *tokens = malloc((size_t)*count * sizeof *tokens);
  if (!tokens) abort();
  for (int i = 0; i < *count; i++) tokens[i] = m->prompt[r->prompt][i % m->length[r->prompt]];
  return tokens;
}

static char *text_of(const struct matrix_model *m, const int *tokens, int count, size_t *length) {
  char *text = malloc((size_t)count * 64 + 1);
  if (!text) abort();
  *length = 0;
  for (int i = 0; i < count; i++) {
    size_t bytes;
    const unsigned char *from = spelling(m, tokens[i], &bytes);
    memcpy(text + *length, from, bytes);
    *length += bytes;
  }
  return text;
}

/* False: the prompt does not fit. */
static bool decode(kvs_engine *engine, const struct matrix_run *r, const int *tokens, int count) {
  kvs_status status = r->singly ? KVS_OK : kvs_engine_prefill(engine, tokens, count, KVS_PROMPT, &error);
  for (int i = 0; i < count && r->singly && status == KVS_OK; i++)
    status = kvs_engine_decode(engine, tokens[i], KVS_PROMPT, &error);
  bool fits = status == KVS_OK;
  int n_vocab = kvs_model_config(r->m->model)->n_vocab;
  for (int i = 0; i < r->generate && status == KVS_OK; i++)
    status = kvs_engine_decode(engine, best_of(kvs_engine_logits(engine), n_vocab), KVS_SAMPLED, &error);
  if (status != KVS_ERR_CONTEXT) must(status, "decode");
  return fits;
}

bool matrix_trace(const struct matrix_run *r, const char *path) {
  const struct matrix_model *m = r->m;
  const kvs_config *config = kvs_model_config(m->model);
  int count;
  size_t length;
  int *tokens = prompt_of(r, &count);
  char *text = text_of(m, tokens, count, &length);
  kvs_trace *trace;
  kvs_engine *engine;
  kvs_trace_source source = {
      .config = config, .model = m->name, .sha256 = "00", .tokens = config->n_vocab, .bytes = spelling, .context = m};
  kvs_run_info info = {.prompt = text, .prompt_length = length}; /* what is injected is not told */
  must(kvs_trace_create(path, KVS_TRACE_REPLACE, &trace, &error), path);
  must(kvs_trace_begin_run_from(trace, &source, &info, r->log, NULL, &error), path);
  must(kvs_engine_create(m->model, &(kvs_engine_options){.threads = 1}, &engine, &error), "engine");
  kvs_observer observer = kvs_trace_observer(trace);
  kvs_engine_observe(engine, &observer);
  kvs_engine_fault(engine, r->fault, r->from);
  bool fits = decode(engine, r, tokens, count);
  kvs_engine_free(engine);
  must(kvs_trace_end_run(trace, &error), path);
  must(kvs_trace_close(trace, &error), path);
  free(text);
  free(tokens);
  return fits;
}

struct check_report matrix_look(const char *path, const kvs_model *model) {
  sqlite3 *db;
  struct look *look;
  struct check_report report;
  must(kvs_trace_read(path, &db, &error), path);
  must(look_open(db, &look, &error), path);
  must(check_run(look, 1, model, NULL, &report, &error), path);
  look_close(look);
  return report;
}

sqlite3 *matrix_open(const char *path) {
  sqlite3 *db;
  if (sqlite3_open(path, &db) != SQLITE_OK) abort();
  return db;
}

void matrix_execute(sqlite3 *db, const char *sql) {
  char *message = NULL;
  if (sqlite3_exec(db, sql, NULL, NULL, &message) == SQLITE_OK) return;
  fprintf(stderr, "%s: %s\n", sql, message);
  abort();
}

/* True if both traces hold the same numbers, as far as both go. */
bool matrix_same(const char *a, const char *b) {
  static const char *const tables[] = {"step, token, cache_length_before, position, cache_length_after FROM DB.step",
                                       "layer, row, step, k, v FROM DB.kv_row",
                                       "step, layer, head, q, scores, weights, out FROM DB.head_step",
                                       "step, logits FROM DB.step_vector", NULL};
  static const char both[] =
      " WHERE step <= min((SELECT max(step) FROM main.step), (SELECT max(step) FROM other.step))";
  sqlite3 *db = matrix_open(a);
  char attach[300];
  bool same = true;
  snprintf(attach, sizeof attach, "ATTACH '%s' AS other", b);
  matrix_execute(db, attach);
  for (int t = 0; same && tables[t]; t++) {
    char sql[2400], one[400], other[400];
    const char *mark = strstr(tables[t], "DB");
    int before = (int)(mark - tables[t]);
    snprintf(one, sizeof one, "SELECT %.*smain%s%s", before, tables[t], mark + 2, both);
    snprintf(other, sizeof other, "SELECT %.*sother%s%s", before, tables[t], mark + 2, both);
    snprintf(sql, sizeof sql, "SELECT EXISTS (%s EXCEPT %s) OR EXISTS (%s EXCEPT %s)", one, other, other, one);
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) != SQLITE_OK || sqlite3_step(statement) != SQLITE_ROW)
      abort();
    same = sqlite3_column_int(statement, 0) == 0;
    sqlite3_finalize(statement);
  }
  sqlite3_close(db);
  return same;
}
/* ---- where the traces are ---- */

static char folder[64];

const char *matrix_file(const char *name) {
  static char paths[4][100];
  static int next;
  if (!*folder) {
    /* Thousands of small files that nobody keeps: in memory, where that can be had. */
    snprintf(folder, sizeof folder, "%s/kvstep-matrix-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(folder)) abort();
  }
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

void matrix_clear(void) {
  unlink(matrix_file("a.db"));
  unlink(matrix_file("b.db"));
  unlink(matrix_file("c.db"));
  rmdir(folder);
  folder[0] = '\0';
}

/* ---- two faults at once ---- */

static struct {
  struct part {
    const kvs_fault *fault;
    int from;
    bool taken; /* its detour */
  } part[2];
  kvs_fault fault;
} both;

static void bend_both(kvs_step_plan *plan, const kvs_situation *s) {
  for (int p = 0; p < 2; p++) {
    const struct part *part = &both.part[p];
    if (part->fault && part->fault->bend && s->step >= part->from) part->fault->bend(plan, s);
  }
}

/* Each takes its detour once, and the engine asks as long as one has not. */
static kvs_status detour_both(kvs_engine *e, kvs_feed *feed, bool after, kvs_error *err) {
  kvs_status status = KVS_OK;
  for (int p = 0; status == KVS_OK && p < 2; p++) {
    struct part *part = &both.part[p];
    kvs_status (*detour)(kvs_engine *, kvs_feed *, kvs_error *) = !part->fault ? NULL
                                                                  : after      ? part->fault->after
                                                                               : part->fault->before;
    if (!detour || part->taken || feed->skip || e->steps < part->from) continue;
    e->detour_taken = false;
    status = detour(e, feed, err);
    part->taken = e->detour_taken;
  }
  e->detour_taken = false;
  return status;
}

static kvs_status before_both(kvs_engine *e, kvs_feed *feed, kvs_error *err) {
  return detour_both(e, feed, false, err);
}
static kvs_status after_both(kvs_engine *e, kvs_feed *feed, kvs_error *err) { return detour_both(e, feed, true, err); }

const kvs_fault *matrix_both(const kvs_fault *a, int from_a, const kvs_fault *b, int from_b) {
  both.part[0] = (struct part){a, from_a, false}, both.part[1] = (struct part){b, from_b, false};
  both.fault = (kvs_fault){.name = "both",
                           .fills_context = (a && a->fills_context) || (b && b->fills_context),
                           .bend = bend_both,
                           .before = before_both,
                           .after = after_both};
  return &both.fault;
}
