/* show_read.c: reads one step from a trace's base tables, which other engines fill as well, with holes. */
#include "cli/show.h"

#include <limits.h>
#include <stdlib.h>

void step_view_free(struct step_view *w) {
  struct vector *vectors[] = {&w->wte,    &w->wpe,     &w->x,   &w->logits,   &w->k,     &w->v,       &w->q,
                              &w->scores, &w->weights, &w->out, &w->attn_out, &w->x_mid, &w->mlp_out, &w->x_out};
  for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) vector_free(vectors[i]);
  char *strings[] = {w->model, w->fault, w->mode, w->text, w->source};
  for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) free(strings[i]);
  for (int i = 0; i < w->next_count; i++) free(w->next[i].text);
  *w = (struct step_view){0};
}

/* Reads one row of up to `count` vectors selected by `sql`; *found says whether there was one. */
static kvs_status read_vectors(sqlite3 *db, const char *sql, const int *parameters, int parameter_count,
                               struct vector *const *vectors, int count, int *extra, kvs_error *err) {
  sqlite3_stmt *statement = NULL;
  bool row = false;
  kvs_status status = query_prepare(db, sql, parameters, parameter_count, &statement, err);
  if (status == KVS_OK) status = query_step(statement, &row, err);
  for (int i = 0; row && status == KVS_OK && i < count; i++) status = column_vector(statement, i, vectors[i], err);
  if (row && status == KVS_OK && extra) *extra = column_int(statement, count, NOT_LOGGED);
  sqlite3_finalize(statement);
  return status;
}

static kvs_status read_run(sqlite3 *db, const char *path, struct step_view *w, kvs_error *err) {
  long long last;
  kvs_status status = query_number(db, "SELECT MAX(run) FROM run", NULL, 0, NOT_LOGGED, &last, err);
  if (status != KVS_OK) return status;
  if (last < 0) return kvs_fail(err, KVS_ERR_INPUT, "%s: the trace holds no run; make one with kvstep run -o", path);
  w->last_run = (int)last;
  if (w->at.run == NOT_LOGGED) w->at.run = w->last_run;
  sqlite3_stmt *statement = NULL;
  bool row = false;
  status = query_prepare(
      db, "SELECT model, fault, n_layer, n_head, n_embd, head_dim, engine IS 'kvstep' FROM run WHERE run = ?1",
      &w->at.run, 1, &statement, err);
  if (status == KVS_OK) status = query_step(statement, &row, err);
  if (status == KVS_OK && !row)
    status = kvs_fail(err, KVS_ERR_INPUT, "%s: there is no run %d; the last is run %d", path, w->at.run, w->last_run);
  if (status == KVS_OK) status = column_text(statement, 0, &w->model, err);
  if (status == KVS_OK) status = column_text(statement, 1, &w->fault, err);
  if (status == KVS_OK) {
    w->ours = sqlite3_column_int(statement, 6) != 0;
    w->n_layer = column_int(statement, 2, 0);
    w->n_head = column_int(statement, 3, 0);
    w->n_embd = column_int(statement, 4, 0);
    w->head_dim = column_int(statement, 5, w->n_head > 0 ? w->n_embd / w->n_head : 0);
    if (w->n_layer <= 0 || w->n_head <= 0 || w->head_dim <= 0 || w->head_dim > INT_MAX / w->n_head)
      status = kvs_fail(err, KVS_ERR_INPUT,
                        "%s: run %d: no model has %d layers, %d heads, head_dim %d; the trace's `run` is damaged", path,
                        w->at.run, w->n_layer, w->n_head, w->head_dim);
  }
  sqlite3_finalize(statement);
  return status;
}

static kvs_status choose_place(sqlite3 *db, const char *path, struct step_view *w, kvs_error *err) {
  long long last, decode;
  kvs_status status =
      query_number(db, "SELECT MAX(step) FROM step WHERE run = ?1", &w->at.run, 1, NOT_LOGGED, &last, err);
  if (status == KVS_OK)
    status = query_number(db, "SELECT step FROM step WHERE run = ?1 AND mode = 'decode' ORDER BY step DESC LIMIT 1",
                          &w->at.run, 1, last, &decode, err);
  if (status != KVS_OK) return status;
  if (last < 0)
    return kvs_fail(err, KVS_ERR_INPUT,
                    "%s: run %d has no step yet; `kvstep info` lists the runs, and --run takes another", path,
                    w->at.run);
  w->last_step = (int)last;
  if (w->at.step == NOT_LOGGED) w->at.step = (int)decode;
  if (w->at.layer == NOT_LOGGED) w->at.layer = 0;
  if (w->at.head == NOT_LOGGED) w->at.head = 0;
  if (w->at.layer >= w->n_layer)
    return kvs_fail(err, KVS_ERR_INPUT, "%s: there is no layer %d; this model has 0 to %d", path, w->at.layer,
                    w->n_layer - 1);
  if (w->at.head >= w->n_head)
    return kvs_fail(err, KVS_ERR_INPUT, "%s: there is no head %d; this model has 0 to %d", path, w->at.head,
                    w->n_head - 1);
  return KVS_OK;
}

static kvs_status read_step(sqlite3 *db, const char *path, struct step_view *w, kvs_error *err) {
  sqlite3_stmt *statement = NULL;
  bool row = false;
  const int at[] = {w->at.run, w->at.step};
  kvs_status status = query_prepare(db,
                                    "SELECT s.mode, s.source, t.text, s.token, s.cache_length_before, s.position, "
                                    "s.cache_length_after, s.logprob, s.seconds "
                                    "FROM step s LEFT JOIN token t ON t.token = s.token "
                                    "WHERE s.run = ?1 AND s.step = ?2",
                                    at, 2, &statement, err);
  if (status == KVS_OK) status = query_step(statement, &row, err);
  if (status == KVS_OK && !row)
    status = kvs_fail(err, KVS_ERR_INPUT, "%s: run %d has no step %d; its last is step %d", path, w->at.run, w->at.step,
                      w->last_step);
  if (status == KVS_OK) status = column_text(statement, 0, &w->mode, err);
  if (status == KVS_OK) status = column_text(statement, 1, &w->source, err);
  if (status == KVS_OK) status = column_text(statement, 2, &w->text, err);
  if (status == KVS_OK) {
    w->token = column_int(statement, 3, NOT_LOGGED);
    w->length_before = column_int(statement, 4, NOT_LOGGED);
    w->position = column_int(statement, 5, NOT_LOGGED);
    w->length_after = column_int(statement, 6, NOT_LOGGED);
    w->logprob = column_real(statement, 7);
    w->seconds = column_real(statement, 8);
  }
  sqlite3_finalize(statement);
  return status;
}

static kvs_status read_next(sqlite3 *db, struct step_view *w, kvs_error *err) {
  sqlite3_stmt *statement = NULL;
  const int at[] = {w->at.run, w->at.step, SHOWN_TOKENS};
  bool row;
  kvs_status status = query_prepare(db,
                                    "SELECT token_text, probability FROM top_token "
                                    "WHERE run = ?1 AND step = ?2 AND rank <= ?3 ORDER BY rank",
                                    at, 3, &statement, err);
  while (status == KVS_OK && w->next_count < SHOWN_TOKENS) {
    status = query_step(statement, &row, err);
    if (status != KVS_OK || !row) break;
    status = column_text(statement, 0, &w->next[w->next_count].text, err);
    w->next[w->next_count++].probability = column_real(statement, 1);
  }
  sqlite3_finalize(statement);
  return status;
}

kvs_status step_view_read(sqlite3 *db, const char *path, const struct shown *at, struct step_view *w, kvs_error *err) {
  *w = (struct step_view){.at = *at, .row = NOT_LOGGED};
  kvs_status status = read_run(db, path, w, err);
  if (status == KVS_OK) status = choose_place(db, path, w, err);
  if (status == KVS_OK) status = read_step(db, path, w, err);
  if (status != KVS_OK) return status;
  const int key[] = {w->at.run, w->at.step, w->at.layer, w->at.head};
  struct vector *const step[] = {&w->wte, &w->wpe, &w->x, &w->logits};
  struct vector *const cache[] = {&w->k, &w->v};
  struct vector *const head[] = {&w->q, &w->scores, &w->weights, &w->out};
  struct vector *const layer[] = {&w->attn_out, &w->x_mid, &w->mlp_out, &w->x_out};
  status = read_vectors(db, "SELECT wte, wpe, x, logits FROM step_vector WHERE run = ?1 AND step = ?2", key, 2, step, 4,
                        NULL, err);
  if (status == KVS_OK)
    status = read_vectors(db, "SELECT k, v, row FROM kv_row WHERE run = ?1 AND step = ?2 AND layer = ?3", key, 3, cache,
                          2, &w->row, err);
  if (status == KVS_OK)
    status = read_vectors(db,
                          "SELECT q, scores, weights, out FROM head_step "
                          "WHERE run = ?1 AND step = ?2 AND layer = ?3 AND head = ?4",
                          key, 4, head, 4, NULL, err);
  if (status == KVS_OK)
    status = read_vectors(db,
                          "SELECT attn_out, x_mid, mlp_out, x_out FROM layer_step "
                          "WHERE run = ?1 AND step = ?2 AND layer = ?3",
                          key, 3, layer, 4, NULL, err);
  if (status == KVS_OK) status = read_next(db, w, err);
  return status;
}

kvs_status row_token(sqlite3 *db, const struct step_view *w, int row, char **text, kvs_error *err) {
  sqlite3_stmt *statement = NULL;
  bool found = false;
  const int at[] = {w->at.run, w->at.layer, row, w->at.step};
  /* Who wrote the row last, up to this step; where no rows were logged, row i is step i's. */
  kvs_status status = query_prepare(db,
                                    "SELECT t.text FROM step s LEFT JOIN token t ON t.token = s.token "
                                    "WHERE s.run = ?1 AND s.step = coalesce((SELECT MAX(k.step) FROM kv_row k "
                                    "WHERE k.run = ?1 AND k.layer = ?2 AND k.row = ?3 AND k.step <= ?4), ?3)",
                                    at, 4, &statement, err);
  if (status == KVS_OK) status = query_step(statement, &found, err);
  if (status == KVS_OK && found) status = column_text(statement, 0, text, err);
  sqlite3_finalize(statement);
  return status;
}
