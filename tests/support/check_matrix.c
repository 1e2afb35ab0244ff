/* check_matrix.c: traced runs in a temporary folder, and what check says of them. */
#include "tests/support/check_matrix.h"

#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "study/check/check.h"
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

struct run {
  const struct matrix_model *m;
  int prompt;
  const kvs_fault *fault;
  int from;
  int generate;
  bool singly; /* the prompt token by token */
  const kvs_log *log;
};

static int best_of(const float *logits, int count) {
  int best = 0;
  for (int i = 1; i < count; i++)
    if (logits[i] > logits[best]) best = i;
  return best;
}

/* The prompt's tokens, repeated as long as the fault needs; to be freed. */
static int *prompt_of(const struct run *r, int *count) {
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

static void decode(kvs_engine *engine, const struct run *r, const int *tokens, int count) {
  kvs_status status = KVS_OK;
  if (!r->singly)
    must(kvs_engine_prefill(engine, tokens, count, KVS_PROMPT, &error), "prefill");
  else
    for (int i = 0; i < count; i++) must(kvs_engine_decode(engine, tokens[i], KVS_PROMPT, &error), "decode");
  int n_vocab = kvs_model_config(r->m->model)->n_vocab;
  for (int i = 0; i < r->generate && status == KVS_OK; i++)
    status = kvs_engine_decode(engine, best_of(kvs_engine_logits(engine), n_vocab), KVS_SAMPLED, &error);
  if (status != KVS_ERR_CONTEXT) must(status, "decode");
}

static void trace_run(const struct run *r, const char *path) {
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
  decode(engine, r, tokens, count);
  kvs_engine_free(engine);
  must(kvs_trace_end_run(trace, &error), path);
  must(kvs_trace_close(trace, &error), path);
  free(text);
  free(tokens);
}

static struct check_report look_at(const char *path, const kvs_model *model) {
  sqlite3 *db;
  struct look *look;
  struct check_report report;
  must(kvs_trace_read(path, &db, &error), path);
  must(look_open(db, &look, &error), path);
  must(check_run(look, 1, model, NULL, &report, &error), path);
  look_close(look);
  return report;
}

static sqlite3 *open_to_write(const char *path) {
  sqlite3 *db;
  if (sqlite3_open(path, &db) != SQLITE_OK) abort();
  return db;
}

static void execute(sqlite3 *db, const char *sql) {
  char *message = NULL;
  if (sqlite3_exec(db, sql, NULL, NULL, &message) == SQLITE_OK) return;
  fprintf(stderr, "%s: %s\n", sql, message);
  abort();
}

/* True if both traces hold the same numbers, as far as both go. */
static bool is_same(const char *a, const char *b) {
  static const char *const tables[] = {"step, token, cache_length_before, position, cache_length_after FROM DB.step",
                                       "layer, row, step, k, v FROM DB.kv_row",
                                       "step, layer, head, q, scores, weights, out FROM DB.head_step",
                                       "step, logits FROM DB.step_vector", NULL};
  static const char both[] =
      " WHERE step <= min((SELECT max(step) FROM main.step), (SELECT max(step) FROM other.step))";
  sqlite3 *db = open_to_write(a);
  char attach[300];
  bool same = true;
  snprintf(attach, sizeof attach, "ATTACH '%s' AS other", b);
  execute(db, attach);
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

/* ---- what check said ---- */

static bool has_kind(const struct finding *f, const char *name) {
  for (int k = 0; k < f->kind_count; k++)
    if (strcmp(f->kinds[k], name) == 0) return true;
  return false;
}

static void tell(FILE *to, const struct run *r, const struct matrix_options *o, const struct check_report *report) {
  if (!to) return;
  fprintf(to, "%s, %s, prompt %d (%d tokens), from step %d, %s weights:", r->fault ? r->fault->name : "right",
          r->m->name, r->prompt, r->m->length[r->prompt], r->from, o->weights ? "with" : "no");
  for (size_t f = 0; f < report->count; f++)
    fprintf(to, " [%s%s%s] %s", report->findings[f].kinds[0], report->findings[f].kind_count > 1 ? "|" : "",
            report->findings[f].kind_count > 1 ? report->findings[f].kinds[1] : "", report->findings[f].sentence);
  fprintf(to, "%s\n", report->count ? "" : check_verdict_name(report->verdict));
}

/* Whether the finding's query works in a plain SQLite, without kvstep's functions, and shows something. */
static bool shows(const char *path, const struct finding *f, FILE *details) {
  sqlite3 *db = open_to_write(path);
  sqlite3_stmt *statement = NULL;
  bool good =
      sqlite3_prepare_v2(db, f->sql, -1, &statement, NULL) == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW;
  if (!good && details) fprintf(details, "%s: no row (%s): %s\n", f->kinds[0], sqlite3_errmsg(db), f->sql);
  sqlite3_finalize(statement);
  sqlite3_close(db);
  return good;
}

static void judge(const struct run *r, const struct matrix_options *o, const struct check_report *report,
                  struct matrix_line *line) {
  int found = 0, others = 0, single = 0;
  for (size_t f = 0; f < report->count; f++) {
    bool it = has_kind(&report->findings[f], r->fault->name);
    found += it, others += !it;
    single += it && report->findings[f].kind_count == 1;
  }
  if (found && others)
    line->more++;
  else if (single)
    line->named++;
  else if (found)
    line->among++;
  else if (report->count)
    line->wrong++;
  else
    line->missed++;
  if (!found || others) tell(o->details, r, o, report);
}

static char folder[64];

static const char *in_folder(const char *name) {
  static char paths[2][100];
  static int next;
  if (!*folder) {
    /* Thousands of small files that nobody keeps: in memory, where that can be had. */
    snprintf(folder, sizeof folder, "%s/kvstep-matrix-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(folder)) abort();
  }
  char *path = paths[next++ % 2];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

static void empty_folder(void) {
  unlink(in_folder("a.db"));
  unlink(in_folder("b.db"));
  rmdir(folder);
  folder[0] = '\0';
}

/* Whether the fault did anything at all to this run. */
static bool did_something(const struct run *r, const char *path) {
  struct run right = *r;
  right.fault = NULL;
  if (r->fault->fills_context) return true;
  const char *other = in_folder("b.db");
  trace_run(&right, other);
  return !is_same(path, other);
}

/* Takes away what another engine may not log. */
static void blind(const char *path, enum matrix_sight sight) {
  static const char *const sql[SIGHT_COUNT] = {
      [SIGHT_ROWS] = "DELETE FROM head_stat; DELETE FROM head_step; DELETE FROM step_vector; DELETE FROM event; DELETE "
                     "FROM step_stat; "
                     "UPDATE run SET engine = 'another'; "
                     "UPDATE step SET position = NULL, cache_length_before = NULL, cache_length_after = NULL",
      [SIGHT_WEIGHTS] = "UPDATE head_step SET scores = NULL",
      [SIGHT_CLAIMS] =
          "UPDATE step SET position = NULL, cache_length_before = NULL, cache_length_after = NULL; DELETE FROM event; "
          "UPDATE run SET engine = 'another'; UPDATE step_vector SET wte = NULL, wpe = NULL, x = NULL"};
  if (sight == SIGHT_ALL) return;
  sqlite3 *db = open_to_write(path);
  execute(db, sql[sight]);
  sqlite3_close(db);
}

static void one_run(const struct run *r, const struct matrix_options *o, struct matrix_line *line) {
  const char *path = in_folder("a.db");
  trace_run(r, path);
  line->runs++;
  bool something = did_something(r, path);
  blind(path, o->sight);
  struct check_report report = look_at(path, o->weights ? r->m->model : NULL);
  if (report.count == 0 && !something)
    line->unseen++;
  else
    judge(r, o, &report, line);
  for (size_t f = 0; f < report.count && o->sight == SIGHT_ALL; f++)
    line->mute += !shows(path, &report.findings[f], o->details);
  check_report_free(&report);
}

void matrix_fault(const struct matrix_model *m, const kvs_fault *fault, const struct matrix_options *o,
                  struct matrix_line *line) {
  line->name = fault->name;
  for (int p = 0; p < m->prompts; p++) {
    struct run r = {.m = m, .prompt = p, .fault = fault, .generate = o->generate};
    int tokens = kvs_fault_prompt_length(fault, kvs_model_config(m->model), m->length[p]);
    r.from = kvs_fault_usual_start(fault, tokens);
    one_run(&r, o, line);
    r.from += 2 + p;
    if (o->late && !fault->from_start && !fault->fills_context) one_run(&r, o, line);
  }
  empty_folder();
}

/* ---- controls ---- */

/* round16(blob, kind), drift(blob, amount): what storage and another order of sums do to numbers. */
static float rounded(float value, int kind) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  uint32_t cut = kind == CONTROL_BF16 ? 16 : 13, half = 1u << (cut - 1);
  if (kind == CONTROL_F16 && fabsf(value) < 6.1e-5f) return roundf(value * 0x1p24f) * 0x1p-24f;
  bits = (bits + half - 1 + (bits >> cut & 1)) & ~((1u << cut) - 1);
  memcpy(&value, &bits, 4);
  return value;
}

static void change(sqlite3_context *context, int count, sqlite3_value **values) {
  (void)count;
  static unsigned long long state = 7;
  int size = sqlite3_value_bytes(values[0]), kind = sqlite3_value_int(values[1]);
  if (sqlite3_value_type(values[0]) == SQLITE_NULL) return;
  float *copy = malloc((size_t)size + 4);
  if (!copy) abort();
  memcpy(copy, sqlite3_value_blob(values[0]), (size_t)size);
  for (int i = 0; i < size / 4; i++)
    copy[i] = kind == CONTROL_DRIFT ? copy[i] * (1 + 1e-4f * memory_random(&state)) : rounded(copy[i], kind);
  sqlite3_result_blob(context, copy, size, free);
}

static void spoil(const char *path, enum matrix_control control) {
  sqlite3 *db = open_to_write(path);
  char sql[400];
  sqlite3_create_function(db, "change", 2, SQLITE_UTF8, NULL, change, NULL, NULL);
  snprintf(sql, sizeof sql, "UPDATE kv_row SET k = change(k, %d), v = change(v, %d)", control, control);
  execute(db, sql);
  if (control == CONTROL_DRIFT) {
    snprintf(sql, sizeof sql,
             "UPDATE head_step SET q = change(q, %d), scores = change(scores, %d), weights = change(weights, %d), out "
             "= change(out, %d); "
             "UPDATE step_vector SET wpe = change(wpe, %d), x = change(x, %d), logits = change(logits, %d)",
             control, control, control, control, control, control, control);
    execute(db, sql);
  }
  sqlite3_close(db);
}

void matrix_control(const struct matrix_model *m, enum matrix_control control, const struct matrix_options *o,
                    struct matrix_line *line) {
  static const char *const names[] = {"right",      "token by token", "float16 rows", "bfloat16 rows",
                                      "drift 1e-4", "steps only",     "parts",        "layer 0's K only"};
  bool layers[64] = {true}, heads[64] = {false, true};
  const kvs_log steps = {.level = KVS_LOG_STEPS, .last_step = -1};
  const kvs_log parts = {.level = KVS_LOG_ATTENTION, .layers = layers, .heads = heads, .first_step = 2, .last_step = 9};
  line->name = names[control];
  for (int p = 0; p < m->prompts; p++) {
    const char *path = in_folder("a.db");
    struct run r = {.m = m, .prompt = p, .generate = o->generate, .singly = control == CONTROL_SINGLY};
    if (control == CONTROL_STEPS) r.log = &steps;
    if (control == CONTROL_PARTS) r.log = &parts;
    trace_run(&r, path);
    if (control == CONTROL_F16 || control == CONTROL_BF16 || control == CONTROL_DRIFT) spoil(path, control);
    if (control == CONTROL_ROWS) {
      sqlite3 *db = open_to_write(path);
      execute(db, "DELETE FROM head_stat; DELETE FROM head_step; DELETE FROM step_vector; DELETE FROM top_token; "
                  "DELETE FROM event; "
                  "DELETE FROM step_stat; DELETE FROM kv_row WHERE layer > 0; UPDATE kv_row SET v = NULL; "
                  "UPDATE step SET logprob = NULL, seconds = NULL");
      sqlite3_close(db);
    }
    blind(path, o->sight);
    struct check_report report = look_at(path, o->weights ? m->model : NULL);
    line->runs++;
    line->named += report.verdict == CHECK_CLEAN;
    line->wrong += report.verdict == CHECK_FAULT;
    line->missed += report.verdict == CHECK_CANNOT_TELL;
    if (report.verdict != CHECK_CLEAN) tell(o->details, &r, o, &report);
    check_report_free(&report);
  }
  empty_folder();
}
