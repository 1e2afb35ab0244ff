/* contents.c: what a file has once: the schema, the vocabulary, one model for all its runs. */
#include "trace/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvstep/kvstep.h"

/* ---- tokens ---------------------------------------------------------------------------------------------------- */

char *kvs_trace_token_text(const unsigned char *bytes, size_t length, int token) {
  char *text;
  if (!bytes) {
    text = malloc(32);
    if (text) snprintf(text, 32, "#%d", token);
    return text;
  }
  char shown[256];
  size_t need = kvs_token_text(bytes, length, shown, sizeof shown);
  if (need < sizeof shown) return strdup(shown);
  text = malloc(need + 1);
  if (text) kvs_token_text(bytes, length, text, need + 1);
  return text;
}

static int vocabulary(const kvs_trace_source *source) {
  return source->tokens > source->config->n_vocab ? source->tokens : source->config->n_vocab;
}

static const unsigned char *bytes_of(const kvs_trace_source *source, int token, size_t *length) {
  *length = 0;
  return source->bytes && token < source->tokens ? source->bytes(source->context, token, length) : NULL;
}

static kvs_status write_tokens(kvs_trace *trace, const kvs_trace_source *source, kvs_error *err) {
  sqlite3_stmt *insert;
  kvs_status status = kvs_trace_prepare(trace, "INSERT INTO token VALUES (?1, ?2, ?3)", &insert, err);
  for (int i = 0; status == KVS_OK && i < vocabulary(source); i++) {
    size_t length;
    const unsigned char *bytes = bytes_of(source, i, &length);
    char *text = kvs_trace_token_text(bytes, length, i);
    if (!text) {
      status = kvs_fail_memory(err, "writing the vocabulary");
      break;
    }
    sqlite3_bind_int(insert, 1, i);
    if (bytes) sqlite3_bind_blob64(insert, 2, length ? (const void *)bytes : "", length, SQLITE_STATIC);
    sqlite3_bind_text(insert, 3, text, -1, SQLITE_STATIC);
    status = kvs_trace_run(trace, insert, err);
    free(text);
  }
  sqlite3_finalize(insert);
  return status;
}

static kvs_status refuse(kvs_trace *trace, const char *what, kvs_error *err) {
  return kvs_fail(err, KVS_ERR_INPUT,
                  "%s: holds runs of another %s; one file holds runs of one model: write to another file", trace->path,
                  what);
}

/* The file's vocabulary must be this one, token by token. */
static kvs_status compare_tokens(kvs_trace *trace, const kvs_trace_source *source, kvs_error *err) {
  sqlite3_stmt *select;
  kvs_status status = kvs_trace_prepare(trace, "SELECT token, bytes FROM token ORDER BY token", &select, err);
  if (status != KVS_OK) return status;
  int rc, count = 0, size = vocabulary(source);
  bool same = true;
  while (same && (rc = sqlite3_step(select)) == SQLITE_ROW) {
    size_t length = 0;
    int token = sqlite3_column_int(select, 0);
    same = token == count++ && token < size;
    if (!same) break;
    const unsigned char *bytes = bytes_of(source, token, &length);
    same = (bytes == NULL) == (sqlite3_column_type(select, 1) == SQLITE_NULL) &&
           (!bytes || ((size_t)sqlite3_column_bytes(select, 1) == length &&
                       (length == 0 || memcmp(bytes, sqlite3_column_blob(select, 1), length) == 0)));
  }
  if (!same || count != size) status = refuse(trace, "tokenizer", err);
  if (same && rc != SQLITE_DONE) status = kvs_trace_fail(trace, rc, err);
  sqlite3_finalize(select);
  return status;
}

/* ---- the file -------------------------------------------------------------------------------------------------- */

/* Every run in the file must be of this model. *runs: how many there are. */
static kvs_status compare_runs(kvs_trace *trace, const kvs_trace_source *source, int *runs, kvs_error *err) {
  sqlite3_stmt *select;
  kvs_status status = kvs_trace_prepare(
      trace,
      "SELECT run, model, model_sha256 IS NOT ?1, n_layer <> ?2 OR n_head <> ?3 OR n_embd <> ?4 OR n_ctx <> ?5 "
      "OR n_vocab <> ?6 FROM run ORDER BY run",
      &select, err);
  if (status != KVS_OK) return status;
  const kvs_config *c = source->config;
  sqlite3_bind_text(select, 1, source->sha256, -1, SQLITE_STATIC);
  const int shape[] = {c->n_layer, c->n_head, c->n_embd, c->n_ctx, c->n_vocab};
  for (int i = 0; i < 5; i++) sqlite3_bind_int(select, 2 + i, shape[i]);
  int rc;
  sqlite3_int64 last = 0;
  *runs = 0;
  while (status == KVS_OK && (rc = sqlite3_step(select)) == SQLITE_ROW) {
    /* A tree whose branches lead to the same page again and again has more rows than anybody can wait for. */
    if ((*runs)++ && sqlite3_column_int64(select, 0) <= last)
      status =
          kvs_fail(err, KVS_ERR_INPUT, "%s: damaged: its runs are not in order; write to another file", trace->path);
    if (status != KVS_OK) break;
    last = sqlite3_column_int64(select, 0);
    bool shape_differs = sqlite3_column_int(select, 3), weights_differ = sqlite3_column_int(select, 2);
    const char *model = (const char *)sqlite3_column_text(select, 1);
    if (shape_differs || weights_differ)
      status = kvs_fail(
          err, KVS_ERR_INPUT,
          "%s: run %d in it is of another model (%s, whose %s; this one is %s); one file holds runs of one "
          "model: write to another file",
          trace->path, sqlite3_column_int(select, 0), model ? model : "without a name",
          shape_differs ? "shape differs" : "weights differ", source->model ? source->model : "without a name");
  }
  if (status == KVS_OK && rc != SQLITE_DONE) status = kvs_trace_fail(trace, rc, err);
  sqlite3_finalize(select);
  return status;
}

/* As many numbers as the longest vector that the views count out. Numbers below 0 in a file of somebody else's are none to count
 * on from: from the least of all it would take for ever. */
static kvs_status extend_numbers(kvs_trace *trace, const kvs_config *config, kvs_error *err) {
  char sql[256];
  int longest = config->n_ctx > config->n_embd ? config->n_ctx : config->n_embd;
  snprintf(sql, sizeof sql,
           "WITH RECURSIVE more (n) AS (SELECT coalesce(max(n), -1) + 1 FROM number WHERE n >= 0 UNION ALL SELECT n + "
           "1 FROM more WHERE n < %d) INSERT INTO number SELECT n FROM more WHERE n <= %d",
           longest, longest);
  return kvs_trace_exec(trace, sql, err);
}

static kvs_status find_stat_type(kvs_trace *trace, kvs_error *err) {
  static const char sql[] =
      "SELECT EXISTS (SELECT 1 FROM pragma_table_info('head_stat', 'main') WHERE name = 'max_weight' AND type <> '')";
  int64_t yes = 0;
  kvs_status status = kvs_trace_value(trace, sql, &yes, err);
  trace->stat_is_real = yes;
  return status;
}

kvs_status kvs_trace_prepare_file(kvs_trace *trace, const kvs_trace_source *source, kvs_error *err) {
  int64_t objects = 0, id = 0, version = 0;
  kvs_status status = kvs_trace_value(trace, "SELECT EXISTS (SELECT 1 FROM sqlite_schema)", &objects, err);
  int runs = 0;
  int64_t tokens = 0;
  if (status == KVS_OK && objects == 0 && !trace->made_file) status = kvs_trace_is_empty(trace->path, err);
  if (status == KVS_OK && objects == 0) status = kvs_trace_exec(trace, kvs_trace_schema(), err);
  if (status == KVS_OK) status = kvs_trace_value(trace, "PRAGMA application_id", &id, err);
  if (status == KVS_OK) status = kvs_trace_value(trace, "PRAGMA user_version", &version, err);
  if (status == KVS_OK && (id != KVS_TRACE_APPLICATION_ID || version != KVS_TRACE_VERSION))
    status = kvs_fail(err, KVS_ERR_INPUT, "%s: not a trace of version %d; write to another file", trace->path,
                      KVS_TRACE_VERSION);
  if (status == KVS_OK && objects > 0) status = kvs_trace_check_tables(trace->db, trace->path, err);
  if (status == KVS_OK) status = find_stat_type(trace, err);
  if (status == KVS_OK) status = compare_runs(trace, source, &runs, err);
  if (status == KVS_OK) status = kvs_trace_value(trace, "SELECT EXISTS (SELECT 1 FROM token)", &tokens, err);
  if (status == KVS_OK) status = tokens > 0 ? compare_tokens(trace, source, err) : write_tokens(trace, source, err);
  if (status == KVS_OK) status = extend_numbers(trace, source->config, err);
  trace->checked = status == KVS_OK;
  return status;
}
