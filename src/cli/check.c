/* check.c: `kvstep check`: what is wrong in this trace, in words, with the evidence. */
#include "study/check/check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include "cli/check_out.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/out.h"
#include "kvstep/kvstep.h"
#include "trace/query.h"

enum format { FORMAT_TABLE, FORMAT_CSV, FORMAT_JSON };

struct values {
  const char *model;
  bool no_model;
  int run, format;
};

#define EXIT_CANNOT_TELL 2
#define MOST_RUNS 1000
#define MODELS 8

/* Models that were opened: the one given, or built-in ones that runs were made with. */
struct models {
  kvs_model *given, *builtin[MODELS];
  const char *sha256[MODELS]; /* owned by the models */
};

struct job {
  const char *path;
  const struct values *v;
  struct look *look;
  struct models models;
  struct check_report *reports;
  size_t count;
};

/* What cannot be looked at cannot be judged. */
static int cannot_tell(const kvs_error *err) {
  report(err);
  return EXIT_CANNOT_TELL;
}

/* ---- which weights ---- */

static kvs_status open_builtins(struct models *m, kvs_error *err) {
  kvs_status status = KVS_OK;
  for (int i = 0; status == KVS_OK && i < MODELS && kvs_builtin_at(i); i++) {
    status = kvs_model_open(kvs_builtin_at(i)->name, &m->builtin[i], err);
    if (status == KVS_OK) status = kvs_model_sha256(m->builtin[i], &m->sha256[i], err);
  }
  return status;
}

static void close_models(struct models *m) {
  kvs_model_free(m->given);
  for (int i = 0; i < MODELS; i++) kvs_model_free(m->builtin[i]);
}

/* run.model_sha256, to be freed; NULL: not in the trace. */
static kvs_status read_sha256(struct job *job, int run, char **sha256, kvs_error *err) {
  sqlite3_stmt *statement = NULL;
  bool row = false;
  *sha256 = NULL;
  kvs_status status =
      query_prepare(look_db(job->look), "SELECT model_sha256 FROM main.run WHERE run = ?1", &run, 1, &statement, err);
  if (status == KVS_OK) status = query_step(statement, &row, err);
  if (status == KVS_OK && row) status = column_text(statement, 0, sha256, err);
  sqlite3_finalize(statement);
  return status;
}

/* The model that this run is held against; NULL: none. */
static kvs_status choose_model(struct job *job, int run, const kvs_model **model, kvs_error *err) {
  char *sha256 = NULL;
  const char *own;
  struct models *m = &job->models;
  *model = NULL;
  if (job->v->no_model) return KVS_OK;
  kvs_status status = read_sha256(job, run, &sha256, err);
  if (status == KVS_OK && m->given) {
    *model = m->given;
    status = sha256 ? kvs_model_sha256(m->given, &own, err) : KVS_OK;
    if (status == KVS_OK && sha256 && strcmp(own, sha256) != 0)
      fprintf(stderr, "kvstep: warning: run %d was made with other weights than %s (their SHA-256 differ)\n", run,
              kvs_model_name(m->given));
  }
  if (status == KVS_OK && !m->given && sha256 && !m->builtin[0]) status = open_builtins(m, err);
  for (int i = 0; status == KVS_OK && !m->given && sha256 && i < MODELS; i++)
    if (m->sha256[i] && strcmp(m->sha256[i], sha256) == 0) *model = m->builtin[i];
  free(sha256);
  return status;
}

/* ---- the command ---- */

static void tell_progress(void *context, int run, int done, int count) {
  (void)context;
  fprintf(stderr, "\rrun %d: %d of %d steps …", run, done, count);
}

static kvs_status check_one(struct job *job, int run, kvs_error *err) {
  const kvs_model *model;
  struct check_report *grown = realloc(job->reports, (job->count + 1) * sizeof *grown);
  if (!grown) return kvs_fail_memory(err, "checking a trace");
  job->reports = grown;
  kvs_status status = choose_model(job, run, &model, err);
  if (status != KVS_OK) return status;
  const struct check_progress progress = {NULL, tell_progress};
  bool telling = model && isatty(STDERR_FILENO);
  status = check_run(job->look, run, model, telling ? &progress : NULL, &job->reports[job->count++], err);
  if (telling) fputs("\r\033[K", stderr);
  if (status != KVS_OK) name_file(job->path, err);
  return status;
}

static kvs_status check_all(struct job *job, kvs_error *err) {
  sqlite3_stmt *statement = NULL;
  bool row = false;
  int run = job->v->run - 1, only = job->v->run;
  kvs_status status = KVS_OK;
  if (only) return check_one(job, only, err);
  for (run = 0; status == KVS_OK; run++) {
    status =
        query_prepare(look_db(job->look), "SELECT min(run) FROM main.run WHERE run > ?1", &run, 1, &statement, err);
    if (status == KVS_OK) status = query_step(statement, &row, err);
    int next = status == KVS_OK && row ? column_int(statement, 0, -1) : -1;
    sqlite3_finalize(statement);
    statement = NULL;
    if (next < 0 || status != KVS_OK) break;
    if (job->count == MOST_RUNS)
      return kvs_fail(err, KVS_ERR_INPUT, "more than %d runs: choose one with --run N", MOST_RUNS);
    status = check_one(job, next, err);
    run = next - 1;
  }
  if (status == KVS_OK && job->count == 0)
    return kvs_fail(err, KVS_ERR_INPUT, "%s: there are no runs in it", job->path);
  return status == KVS_OK ? check_rerun(job->look, job->reports, job->count, err) : status;
}

static int exit_code(const struct job *job) {
  bool unsure = false;
  for (size_t i = 0; i < job->count; i++) {
    if (job->reports[i].verdict == CHECK_FAULT) return EXIT_BAD;
    unsure = unsure || job->reports[i].verdict == CHECK_CANNOT_TELL;
  }
  return unsure ? EXIT_CANNOT_TELL : EXIT_OK;
}

static kvs_status open_trace(struct job *job, kvs_error *err) {
  sqlite3 *db = NULL;
  kvs_status status = kvs_trace_read(job->path, &db, err);
  if (status != KVS_OK) return status;
  /* Tables are all that is read: what else the file brings along is not to run. */
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, (int *)NULL);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, (int *)NULL);
  return look_open(db, &job->look, err);
}

static int put_reports(const struct job *job) {
  kvs_error err;
  int code = exit_code(job);
  const struct check_job all = {job->path, job->reports, job->count};
  if (job->v->format == FORMAT_JSON) {
    if (check_put_json(&all, code, &err) != KVS_OK) return cannot_tell(&err);
  } else if (job->v->format == FORMAT_CSV) {
    check_put_csv(&all);
  } else {
    check_put_table(&all);
  }
  return finish_stdout(code) == code ? code : EXIT_CANNOT_TELL; /* 1 would say that there is a fault */
}

static int run_check(const struct command *command, struct arguments *arguments) {
  struct values v = {0};
  int code = parse_options(command, arguments, &v);
  if (code >= 0) return code;
  if (v.model && v.no_model) return usage_error(command, "--model and --no-model exclude each other");
  struct job job = {.path = arguments->at[0], .v = &v};
  kvs_error err;
  kvs_status status = open_trace(&job, &err);
  if (status == KVS_OK && v.model) status = kvs_model_open(v.model, &job.models.given, &err);
  if (status == KVS_OK) status = check_all(&job, &err);
  code = status == KVS_OK ? put_reports(&job) : cannot_tell(&err);
  for (size_t i = 0; i < job.count; i++) check_report_free(&job.reports[i]);
  free(job.reports);
  look_close(job.look);
  close_models(&job.models);
  return code;
}

static const char *const formats[] = {"table", "csv", "json", NULL};
static const struct option options[] = {
    {.name = "model",
     .letter = 'm',
     .kind = OPTION_STRING,
     .argument = "MODEL",
     .offset = offsetof(struct values, model),
     .help = "the weights that the trace was made with: a directory or a built-in model's name (default: the built-in "
             "model whose SHA-256 the run names)",
     .completion = "model"},
    {.name = "no-model",
     .kind = OPTION_FLAG,
     .offset = offsetof(struct values, no_model),
     .help = "use no weights, not even a built-in model's"},
    {.name = "run",
     .letter = 'r',
     .kind = OPTION_INT,
     .argument = "R",
     .offset = offsetof(struct values, run),
     .minimum = 1,
     .maximum = 1e9,
     .help = "check this run only (default: all of them)"},
    {.name = "output",
     .letter = 'o',
     .kind = OPTION_CHOICE,
     .argument = "FORMAT",
     .offset = offsetof(struct values, format),
     .choices = formats,
     .help = "table (default), csv or json"},
    {0},
};
static const struct positional positionals[] = {
    {.name = "TRACE", .help = "a trace that `kvstep run -o` or another engine wrote", .completion = "file"},
    {0},
};
const struct command command_check = {
    .name = "check",
    .summary = "what is wrong in a trace: the cache bug by name, with the evidence",
    .description =
        "Examines a trace, from whatever engine, and says for each run whether it is the trace of a correct decode; if "
        "not, which "
        "mistake it shows, from which step on, the line of code to look for, and a query that shows it. It reads the "
        "numbers, not "
        "what the trace says of itself.\n\n"
        "With the model's weights it also works every step out again: which row of wpe each token was really given, "
        "and where "
        "the layers stop following from each other. Without them it checks what the trace's own numbers must obey.\n\n"
        "Exit status 0: clean; 1: a fault was found; 2: cannot tell, and the report says what else to log (or the file "
        "could not be "
        "read).",
    .examples = "  kvstep check my.db -m path/to/gpt2\n  kvstep check traces/sample-reverse.db\n  kvstep check my.db "
                "--run 2 -o json\n",
    .positionals = positionals,
    .options = options,
    .run = run_check,
};
