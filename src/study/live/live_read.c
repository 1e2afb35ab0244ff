/* live_read.c: what the trace says of a run that is to be decoded once more, or on. */
#include "study/live/live_parts.h"

#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "trace/query.h"

/* No run has more steps that could be fed again. */
#define MOST_STEPS (1 << 24)

static kvs_status read_fault(const char *name, struct live_past *past, kvs_error *err) {
  if (!name || strcmp(name, "none") == 0) return KVS_OK;
  past->fault = kvs_fault_find(name);
  if (past->fault) return KVS_OK;
  return kvs_fail(err, KVS_ERR_INPUT, "run %d has the fault `%.60s`, which this kvstep does not know", past->run, name);
}

static kvs_status read_prompt(sqlite3_stmt *statement, int column, char **prompt, size_t *length, kvs_error *err) {
  const void *bytes = sqlite3_column_blob(statement, column);
  if (!bytes) return KVS_OK;
  *length = (size_t)sqlite3_column_bytes(statement, column);
  *prompt = malloc(*length + 1);
  if (!*prompt) return kvs_fail_memory(err, "reading a prompt");
  memcpy(*prompt, bytes, *length);
  (*prompt)[*length] = '\0';
  return KVS_OK;
}

static kvs_status no_run(int run, kvs_error *err) {
  return kvs_fail(err, KVS_ERR_INPUT, "there is no run %d in this trace", run);
}

kvs_status live_prompt(struct sqlite3 *db, int run, char **prompt, size_t *length, kvs_error *err) {
  sqlite3_stmt *statement;
  bool row = false;
  *prompt = NULL;
  *length = 0;
  kvs_status status = query_prepare(db, "SELECT prompt FROM main.run WHERE run = ?1", &run, 1, &statement, err);
  if (status != KVS_OK) return status;
  status = query_step(statement, &row, err);
  if (status == KVS_OK) status = row ? read_prompt(statement, 0, prompt, length, err) : no_run(run, err);
  sqlite3_finalize(statement);
  return status;
}

static kvs_status read_run(struct sqlite3 *db, struct live_past *past, kvs_error *err) {
  sqlite3_stmt *statement;
  bool row = false;
  kvs_status status = query_prepare(
      db,
      "SELECT engine, finished_at IS NOT NULL, fault, fault_from_step, seed, temperature, top_k, top_p, prompt "
      "FROM main.run WHERE run = ?1",
      &past->run, 1, &statement, err);
  if (status != KVS_OK) return status;
  status = query_step(statement, &row, err);
  if (status == KVS_OK && !row) status = no_run(past->run, err);
  if (row) {
    const char *engine = (const char *)sqlite3_column_text(statement, 0);
    strncpy(past->engine, engine ? engine : "an unnamed engine", sizeof past->engine - 1);
    past->own = engine && strcmp(engine, "kvstep") == 0;
    past->finished = sqlite3_column_int(statement, 1);
    past->fault_from_step = sqlite3_column_int(statement, 3);
    past->sampling = (kvs_sampling){.seed = (uint64_t)sqlite3_column_int64(statement, 4),
                                    .temperature = sqlite3_column_double(statement, 5),
                                    .top_k = sqlite3_column_int(statement, 6),
                                    .top_p = sqlite3_column_double(statement, 7)};
    if (!(past->sampling.top_p > 0)) past->sampling.top_p = 1; /* another engine's NULL */
    status = read_fault((const char *)sqlite3_column_text(statement, 2), past, err);
    if (status == KVS_OK) status = read_prompt(statement, 8, &past->prompt, &past->prompt_length, err);
  }
  sqlite3_finalize(statement);
  return status;
}

static bool text_is(sqlite3_stmt *statement, int column, const char *text) {
  const char *is = (const char *)sqlite3_column_text(statement, column);
  return is && strcmp(is, text) == 0;
}

static struct live_fed read_step(sqlite3_stmt *s) {
  return (struct live_fed){.token = sqlite3_column_int(s, 1),
                           .mode = text_is(s, 2, kvs_mode_name(KVS_PREFILL)) ? KVS_PREFILL : KVS_DECODE,
                           .source = text_is(s, 3, kvs_source_name(KVS_PROMPT))    ? KVS_PROMPT
                                     : text_is(s, 3, kvs_source_name(KVS_SAMPLED)) ? KVS_SAMPLED
                                                                                   : KVS_FORCED,
                           .length_after = column_int(s, 4, -1)};
}

static kvs_status read_steps(struct sqlite3 *db, struct live_past *past, kvs_error *err) {
  sqlite3_stmt *s;
  kvs_status status = query_prepare(db,
                                    "SELECT step, token, mode, source, cache_length_after "
                                    "FROM main.step WHERE run = ?1 ORDER BY step",
                                    &past->run, 1, &s, err);
  if (status != KVS_OK) return status;
  bool row;
  int room = 0;
  while (status == KVS_OK && (status = query_step(s, &row, err)) == KVS_OK && row) {
    if (sqlite3_column_int64(s, 0) != past->count || past->count == MOST_STEPS) {
      status = kvs_fail(err, KVS_ERR_INPUT, "step %d of run %d is not in the trace, so what follows cannot be decoded",
                        past->count, past->run);
      break;
    }
    if (past->count == room) {
      room = room ? 2 * room : 64;
      struct live_fed *larger = realloc(past->fed, (size_t)room * sizeof *larger);
      if (!larger) {
        status = kvs_fail_memory(err, "reading a run");
        break;
      }
      past->fed = larger;
    }
    past->fed[past->count++] = read_step(s);
  }
  sqlite3_finalize(s);
  return status;
}

/* Which layers or heads the last step logged. *any: at least one. */
static kvs_status read_choice(struct sqlite3 *db, const char *sql, const struct live_past *past, int most, bool *chosen,
                              bool *any, kvs_error *err) {
  sqlite3_stmt *statement;
  kvs_status status = query_prepare(db, sql, (const int[]){past->run, past->count - 1}, 2, &statement, err);
  if (status != KVS_OK) return status;
  bool row;
  *any = false;
  while ((status = query_step(statement, &row, err)) == KVS_OK && row) {
    int number = sqlite3_column_int(statement, 0);
    if (number < 0 || number >= most) continue;
    chosen[number] = *any = true;
  }
  sqlite3_finalize(statement);
  return status;
}

/* As much is logged as of the last step; all of it where there is none. */
static kvs_status read_log(struct sqlite3 *db, const kvs_config *config, struct live_past *past, kvs_error *err) {
  past->log = (kvs_log){.level = KVS_LOG_FULL, .last_step = -1};
  if (past->count == 0) return KVS_OK;
  past->layers = calloc((size_t)config->n_layer, sizeof *past->layers);
  past->heads = calloc((size_t)config->n_head, sizeof *past->heads);
  bool *full = calloc((size_t)config->n_layer, sizeof *full);
  bool attention = false, heads = false, streams = false;
  kvs_status status = past->layers && past->heads && full ? KVS_OK : kvs_fail_memory(err, "reading a run");
  if (status == KVS_OK)
    status = read_choice(db, "SELECT DISTINCT layer FROM main.head_step WHERE run = ?1 AND step = ?2", past,
                         config->n_layer, past->layers, &attention, err);
  if (status == KVS_OK)
    status = read_choice(db, "SELECT DISTINCT head FROM main.head_step WHERE run = ?1 AND step = ?2", past,
                         config->n_head, past->heads, &heads, err);
  if (status == KVS_OK)
    status = read_choice(db, "SELECT layer FROM main.layer_step WHERE run = ?1 AND step = ?2", past, config->n_layer,
                         full, &streams, err);
  free(full);
  past->log.level = streams ? KVS_LOG_FULL : attention ? KVS_LOG_ATTENTION : KVS_LOG_STEPS;
  if (attention) past->log.layers = past->layers, past->log.heads = past->heads;
  return status;
}

static kvs_status read_top(struct sqlite3 *db, struct live_past *past, kvs_error *err) {
  sqlite3_stmt *statement;
  bool row;
  kvs_status status = query_prepare(
      db, "SELECT token, logit FROM main.top_token WHERE run = ?1 AND step = ?2 AND rank = 1 AND logit IS NOT NULL",
      (const int[]){past->run, past->count - 1}, 2, &statement, err);
  if (status != KVS_OK) return status;
  status = query_step(statement, &row, err);
  if (status == KVS_OK && row) {
    past->top_token = sqlite3_column_int(statement, 0);
    past->top_logit = sqlite3_column_double(statement, 1);
  }
  sqlite3_finalize(statement);
  return status;
}

kvs_status live_past_read(struct sqlite3 *db, int run, const kvs_config *config, struct live_past *past,
                          kvs_error *err) {
  *past = (struct live_past){.run = run, .top_token = -1};
  kvs_status status = read_run(db, past, err);
  if (status == KVS_OK) status = read_steps(db, past, err);
  if (status == KVS_OK) status = read_log(db, config, past, err);
  if (status == KVS_OK) status = read_top(db, past, err);
  return status;
}

void live_past_free(struct live_past *past) {
  free(past->fed);
  free(past->prompt);
  free(past->layers);
  free(past->heads);
  *past = (struct live_past){0};
}

static kvs_status has_run(struct sqlite3 *db, const char *path, kvs_error *err) {
  long long runs;
  kvs_status status = query_number(db, "SELECT EXISTS (SELECT 1 FROM main.run)", NULL, 0, 0, &runs, err);
  if (status != KVS_OK || runs > 0) return status;
  return kvs_fail(err, KVS_ERR_INPUT, "%s: there is no run in it yet that could be gone on with", path);
}

kvs_status live_fits(struct sqlite3 *db, const char *path, kvs_model *model, kvs_error *err) {
  const char *sha256;
  sqlite3_stmt *s;
  kvs_status status = kvs_model_sha256(model, &sha256, err);
  if (status == KVS_OK)
    status = query_prepare(
        db, "SELECT run, model_sha256, model FROM main.run WHERE model_sha256 IS NOT ?1 ORDER BY run LIMIT 1", NULL, 0,
        &s, err);
  if (status != KVS_OK) return status;
  bool row;
  sqlite3_bind_text(s, 1, sha256, -1, SQLITE_STATIC);
  status = query_step(s, &row, err);
  if (status == KVS_OK && !row) status = has_run(db, path, err);
  if (status == KVS_OK && row) {
    const char *theirs = (const char *)sqlite3_column_text(s, 1), *name = (const char *)sqlite3_column_text(s, 2);
    if (theirs)
      status = kvs_fail(err, KVS_ERR_INPUT,
                        "%s: run %d was decoded by other weights (%.60s, SHA-256 %.12s…) than those of %s (%.12s…)",
                        path, sqlite3_column_int(s, 0), name ? name : "a model without a name", theirs,
                        kvs_model_name(model), sha256);
    else
      status = kvs_fail(err, KVS_ERR_INPUT,
                        "%s: run %d does not say by which weights it was decoded (model_sha256 is NULL), so nothing of "
                        "%s can be added to it",
                        path, sqlite3_column_int(s, 0), kvs_model_name(model));
  }
  sqlite3_finalize(s);
  return status;
}
