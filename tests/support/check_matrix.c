/* check_matrix.c: what check says of runs with a fault, and of right ones. */
#include "tests/support/check_matrix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/memory_model.h"

/* ---- what check said ---- */

static bool has_kind(const struct finding *f, const char *name) {
  for (int k = 0; k < f->kind_count; k++)
    if (strcmp(f->kinds[k], name) == 0) return true;
  return false;
}

static void tell(FILE *to, const struct matrix_run *r, const struct matrix_options *o,
                 const struct check_report *report) {
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
  sqlite3 *db = matrix_open(path);
  sqlite3_stmt *statement = NULL;
  bool good =
      sqlite3_prepare_v2(db, f->sql, -1, &statement, NULL) == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW;
  if (!good && details) fprintf(details, "%s: no row (%s): %s\n", f->kinds[0], sqlite3_errmsg(db), f->sql);
  sqlite3_finalize(statement);
  sqlite3_close(db);
  return good;
}

static void judge(const struct matrix_run *r, const struct matrix_options *o, const struct check_report *report,
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
/* Whether the fault did anything at all to this run. */
static bool did_something(const struct matrix_run *r, const char *path) {
  struct matrix_run right = *r;
  right.fault = NULL;
  if (r->fault->fills_context) return true;
  const char *other = matrix_file("b.db");
  if (!matrix_trace(&right, other)) abort();
  return !matrix_same(path, other);
}

/* Takes away what another engine may not log. */
void matrix_blind(const char *path, enum matrix_sight sight) {
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
  sqlite3 *db = matrix_open(path);
  matrix_execute(db, sql[sight]);
  sqlite3_close(db);
}

static void one_run(const struct matrix_run *r, const struct matrix_options *o, struct matrix_line *line) {
  const char *path = matrix_file("a.db");
  if (!matrix_trace(r, path)) abort();
  line->runs++;
  bool something = did_something(r, path);
  matrix_blind(path, o->sight);
  struct check_report report = matrix_look(path, o->weights ? r->m->model : NULL);
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
    struct matrix_run r = {.m = m, .prompt = p, .fault = fault, .generate = o->generate};
    int tokens = kvs_fault_prompt_length(fault, kvs_model_config(m->model), m->length[p]);
    r.from = kvs_fault_usual_start(fault, tokens);
    one_run(&r, o, line);
    r.from += 2 + p;
    if (o->late && !fault->from_start && !fault->fills_context) one_run(&r, o, line);
  }
  matrix_clear();
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
  sqlite3 *db = matrix_open(path);
  char sql[400];
  sqlite3_create_function(db, "change", 2, SQLITE_UTF8, NULL, change, NULL, NULL);
  snprintf(sql, sizeof sql, "UPDATE kv_row SET k = change(k, %d), v = change(v, %d)", control, control);
  matrix_execute(db, sql);
  if (control == CONTROL_DRIFT) {
    snprintf(sql, sizeof sql,
             "UPDATE head_step SET q = change(q, %d), scores = change(scores, %d), weights = change(weights, %d), out "
             "= change(out, %d); "
             "UPDATE step_vector SET wpe = change(wpe, %d), x = change(x, %d), logits = change(logits, %d)",
             control, control, control, control, control, control, control);
    matrix_execute(db, sql);
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
    const char *path = matrix_file("a.db");
    struct matrix_run r = {.m = m, .prompt = p, .generate = o->generate, .singly = control == CONTROL_SINGLY};
    if (control == CONTROL_STEPS) r.log = &steps;
    if (control == CONTROL_PARTS) r.log = &parts;
    if (!matrix_trace(&r, path)) abort();
    if (control == CONTROL_F16 || control == CONTROL_BF16 || control == CONTROL_DRIFT) spoil(path, control);
    if (control == CONTROL_ROWS) {
      sqlite3 *db = matrix_open(path);
      matrix_execute(db,
                     "DELETE FROM head_stat; DELETE FROM head_step; DELETE FROM step_vector; DELETE FROM top_token; "
                     "DELETE FROM event; "
                     "DELETE FROM step_stat; DELETE FROM kv_row WHERE layer > 0; UPDATE kv_row SET v = NULL; "
                     "UPDATE step SET logprob = NULL, seconds = NULL");
      sqlite3_close(db);
    }
    matrix_blind(path, o->sight);
    struct check_report report = matrix_look(path, o->weights ? m->model : NULL);
    line->runs++;
    line->named += report.verdict == CHECK_CLEAN;
    line->wrong += report.verdict == CHECK_FAULT;
    line->missed += report.verdict == CHECK_CANNOT_TELL;
    if (report.verdict != CHECK_CLEAN) tell(o->details, &r, o, &report);
    check_report_free(&report);
  }
  matrix_clear();
}
