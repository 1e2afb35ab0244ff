/* run.c: beginning and ending a run: its row in `run`, and what is logged of it. */
#include "trace/store.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "kvstep/kvstep.h"

#define NOW "strftime('%Y-%m-%dT%H:%M:%SZ', 'now')"

/* True if the bytes are UTF-8 without NUL: no overlong form, no surrogate, nothing above U+10FFFF. */
static bool is_text(const unsigned char *s, size_t length) {
  for (size_t i = 0; i < length;) {
    unsigned char c = s[i];
    size_t more = c < 0x80 ? 0 : c >= 0xC2 && c < 0xE0 ? 1 : (c & 0xF0) == 0xE0 ? 2 : c >= 0xF0 && c < 0xF5 ? 3 : 4;
    if (c == 0 || more == 4 || more >= length - i) return false;
    for (size_t k = 1; k <= more; k++)
      if ((s[i + k] & 0xC0) != 0x80) return false;
    if (more > 1) {
      unsigned char d = s[i + 1];
      if ((c == 0xE0 && d < 0xA0) || (c == 0xED && d > 0x9F) || (c == 0xF0 && d < 0x90) || (c == 0xF4 && d > 0x8F))
        return false;
    }
    i += more + 1;
  }
  return true;
}

/* As TEXT, or as BLOB if it is none: some readers, Python's among them, fail on a TEXT that is no UTF-8. */
static void bind_text(sqlite3_stmt *insert, int at, const char *text, size_t length) {
  if (!text) return;
  if (is_text((const unsigned char *)text, length))
    sqlite3_bind_text64(insert, at, text, length, SQLITE_STATIC, SQLITE_UTF8);
  else
    sqlite3_bind_blob64(insert, at, text, length, SQLITE_STATIC);
}

static void bind_string(sqlite3_stmt *insert, int at, const char *text) {
  bind_text(insert, at, text, text ? strlen(text) : 0);
}

/* The first number after every run that is there, and after those whose line in `run` was deleted while their steps were
 * left: a shell has foreign keys off. */
static kvs_status next_run(kvs_trace *trace, int64_t *number, kvs_error *err) {
  static const char sql[] = "SELECT 1 + max(0, coalesce(max(last), 0)) FROM ("
                            "SELECT max(run) AS last FROM run UNION ALL SELECT max(run) FROM step UNION ALL "
                            "SELECT max(run) FROM event UNION ALL SELECT max(run) FROM kv_row UNION ALL "
                            "SELECT max(run) FROM head_step UNION ALL SELECT max(run) FROM head_stat UNION ALL "
                            "SELECT max(run) FROM layer_step UNION ALL SELECT max(run) FROM step_vector UNION ALL "
                            "SELECT max(run) FROM step_stat UNION ALL SELECT max(run) FROM top_token)";
  kvs_status status = kvs_trace_value(trace, sql, number, err);
  if (status == KVS_OK && *number > INT_MAX)
    status =
        kvs_fail(err, KVS_ERR_INPUT, "%s: its last run is number %lld, and no more can follow; write to another file",
                 trace->path, (long long)*number - 1);
  return status;
}

static kvs_status write_run(kvs_trace *trace, const kvs_trace_source *source, const kvs_run_info *info, int *number,
                            kvs_error *err) {
  sqlite3_stmt *insert;
  int64_t next;
  kvs_status status = next_run(trace, &next, err);
  if (status == KVS_OK)
    status = kvs_trace_prepare(trace,
                               "INSERT INTO run VALUES (?17, " NOW ", NULL, ?18, ?19, ?1, ?2, "
                               "?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
                               &insert, err);
  if (status != KVS_OK) return status;
  *number = (int)next;
  sqlite3_bind_int64(insert, 17, next);
  const kvs_config *c = source->config;
  bind_string(insert, 18, source->engine ? source->engine : "kvstep");
  bind_string(insert, 19, source->engine ? source->engine_version : KVS_VERSION);
  bind_string(insert, 1, info->command);
  bind_string(insert, 2, source->model);
  sqlite3_bind_text(insert, 3, source->sha256, -1, SQLITE_STATIC);
  const int shape[] = {c->n_layer, c->n_head, c->n_embd, c->head_dim, c->n_ctx, c->n_vocab};
  for (int i = 0; i < 6; i++) sqlite3_bind_int(insert, 4 + i, shape[i]);
  const char *no_fault = source->engine ? NULL : "none"; /* nobody can say that of another engine */
  sqlite3_bind_text(insert, 10, info->fault ? info->fault->name : no_fault, -1, SQLITE_STATIC);
  if (info->fault) sqlite3_bind_int(insert, 11, info->fault_from_step);
  if (!source->engine || info->sampling.top_p > 0) {
    sqlite3_bind_int64(insert, 12, (sqlite3_int64)info->sampling.seed);
    sqlite3_bind_double(insert, 13, info->sampling.temperature);
    sqlite3_bind_int(insert, 14, info->sampling.top_k);
    sqlite3_bind_double(insert, 15, info->sampling.top_p);
  }
  bind_text(insert, 16, info->prompt, info->prompt_length);
  status = kvs_trace_run(trace, insert, err);
  sqlite3_finalize(insert);
  return status;
}

/* A copy of `chosen` [count], or all. */
static bool *copy_choice(const bool *chosen, int count) {
  bool *copy = malloc((size_t)count * sizeof *copy);
  if (!copy) return NULL;
  for (int i = 0; i < count; i++) copy[i] = !chosen || chosen[i];
  return copy;
}

kvs_status kvs_trace_set_log(kvs_trace *trace, const kvs_log *log, kvs_error *err) {
  static const kvs_log everything = {.level = KVS_LOG_ATTENTION, .last_step = -1};
  if (!log) log = &everything;
  trace->level = log->level;
  trace->first_step = log->first_step;
  trace->last_step = log->last_step;
  trace->layers = copy_choice(log->layers, trace->config.n_layer);
  trace->heads = copy_choice(log->heads, trace->config.n_head);
  return trace->layers && trace->heads ? KVS_OK : kvs_fail_memory(err, "beginning a run");
}

void kvs_trace_forget_run(kvs_trace *trace) {
  for (int i = 0; i < KVS_INSERT_COUNT; i++) {
    sqlite3_finalize(trace->insert[i]);
    trace->insert[i] = NULL;
  }
  kvs_trace_forget_inputs(trace);
  free(trace->inputs);
  free(trace->layers);
  free(trace->heads);
  trace->inputs = NULL;
  trace->input_room = 0;
  trace->layers = trace->heads = NULL;
  trace->run = 0;
  trace->seq = 0;
  trace->failed = trace->reopens = false;
  trace->last_step_reported = trace->last_step_kept = -1;
}

kvs_status kvs_trace_begin_run_from(kvs_trace *trace, const kvs_trace_source *source, const kvs_run_info *info,
                                    const kvs_log *log, int *run, kvs_error *err) {
  static const kvs_run_info nothing = {.sampling = {.top_p = 1}}, unknown = {.sampling = {.top_p = 0}};
  if (!info) info = source->engine ? &unknown : &nothing;
  const kvs_config *c = source->config;
  if (c->n_layer < 1 || c->n_head < 1 || c->head_dim < 1 || c->n_ctx < 1 || c->n_vocab < 1 ||
      (int64_t)c->n_head * c->head_dim != c->n_embd)
    return kvs_fail(err, KVS_ERR_USAGE,
                    "%s: a run of %d layers, %d heads of %d numbers, n_embd %d, n_ctx %d and n_vocab %d: no model has "
                    "that shape",
                    trace->path, c->n_layer, c->n_head, c->head_dim, c->n_embd, c->n_ctx, c->n_vocab);
  kvs_status status = kvs_trace_finish_writing(trace, err);
  if (status != KVS_OK) return status;
  kvs_trace_take_back(trace); /* a run that was broken off may have left half a step */
  kvs_trace_forget_run(trace);
  trace->source = *source;
  trace->config = *source->config;
  status = kvs_trace_set_log(trace, log, err);
  if (status == KVS_OK) status = kvs_trace_open(trace, source->config, err);
  if (status == KVS_OK) status = kvs_trace_begin(trace, err);
  if (status == KVS_OK) status = kvs_trace_prepare_file(trace, source, err);
  int number = 0;
  if (status == KVS_OK) status = write_run(trace, source, info, &number, err);
  if (status == KVS_OK) status = kvs_trace_prepare_inserts(trace, err);
  if (status == KVS_OK && !trace->whole) status = kvs_trace_commit(trace, err);
  if (status != KVS_OK) {
    kvs_trace_rollback(trace);
    kvs_trace_forget_run(trace);
    return status;
  }
  trace->run = number;
  if (run) *run = number;
  return KVS_OK;
}

static const unsigned char *tokenizer_bytes(const void *context, int token, size_t *length) {
  return kvs_tokenizer_bytes(context, token, length);
}

kvs_status kvs_trace_source_of(kvs_model *model, const kvs_tokenizer *tokenizer, kvs_trace_source *source,
                               kvs_error *err) {
  const char *sha256;
  kvs_status status = kvs_model_sha256(model, &sha256, err);
  if (status != KVS_OK) return status;
  *source = (kvs_trace_source){.config = kvs_model_config(model),
                               .model = kvs_model_name(model),
                               .sha256 = sha256,
                               .tokens = kvs_tokenizer_size(tokenizer),
                               .bytes = tokenizer_bytes,
                               .context = tokenizer};
  return KVS_OK;
}

kvs_status kvs_trace_begin_run(kvs_trace *trace, kvs_model *model, const kvs_tokenizer *tokenizer,
                               const kvs_run_info *info, const kvs_log *log, int *run, kvs_error *err) {
  kvs_trace_source source;
  kvs_status status = kvs_trace_source_of(model, tokenizer, &source, err);
  if (status != KVS_OK) return status;
  return kvs_trace_begin_run_from(trace, &source, info, log, run, err);
}

kvs_status kvs_trace_end_run(kvs_trace *trace, kvs_error *err) {
  kvs_status status = kvs_trace_finish_writing(trace, err);
  if (status != KVS_OK) return status;
  if (trace->run == 0) return kvs_fail(err, KVS_ERR_USAGE, "%s: no run is open that could be ended", trace->path);
  if (!trace->whole || trace->failed) kvs_trace_take_back(trace);
  if (trace->failed) { /* it did not finish, and says so */
    kvs_trace_forget_run(trace);
    return KVS_OK;
  }
  sqlite3_stmt *update;
  status = kvs_trace_prepare(trace, "UPDATE run SET finished_at = " NOW " WHERE run = ?1", &update, err);
  if (status != KVS_OK) return status;
  sqlite3_bind_int(update, 1, trace->run);
  status = kvs_trace_run(trace, update, err);
  sqlite3_finalize(update);
  if (status == KVS_OK && trace->whole) status = kvs_trace_commit(trace, err);
  if (status != KVS_OK) return status;
  trace->made_file = false;
  kvs_trace_forget_run(trace);
  return status;
}
