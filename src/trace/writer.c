/* writer.c: what is written of each moment of a step. What a moment has goes into rows of its own, but for the input vectors, which
 * wait from `embed` for the logits that go into the same row. */
#include "trace/store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/summary.h"

static const char *const insert_sql[KVS_INSERT_COUNT] = {
    [KVS_INSERT_STEP] = "INSERT INTO step VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    [KVS_INSERT_EVENT] = "INSERT INTO event VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    [KVS_INSERT_KV_ROW] = "INSERT INTO kv_row VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    [KVS_INSERT_HEAD_STEP] = "INSERT INTO head_step VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    [KVS_INSERT_HEAD_STAT] = "INSERT INTO head_stat VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    [KVS_INSERT_LAYER_STEP] = "INSERT INTO layer_step VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    [KVS_INSERT_STEP_VECTOR] = "INSERT INTO step_vector VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    [KVS_INSERT_STEP_STAT] = "INSERT INTO step_stat VALUES (?1, ?2, ?3)",
    [KVS_INSERT_TOP_TOKEN] = "INSERT INTO top_token VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
};

kvs_status kvs_trace_prepare_inserts(kvs_trace *trace, kvs_error *err) {
  kvs_status status = KVS_OK;
  for (int i = 0; status == KVS_OK && i < KVS_INSERT_COUNT; i++)
    status = kvs_trace_prepare(trace, insert_sql[i], &trace->insert[i], err);
  return status;
}

/* NULL is bound as NULL. The floats stay where they are: the statement has run before they go. On a big-endian
 * machine they would have to be turned round first. */
static void bind_floats(sqlite3_stmt *insert, int at, const float *values, int count) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "a trace holds little-endian float32: turn the bytes round here"
#endif
  if (values) sqlite3_bind_blob64(insert, at, values, (sqlite3_uint64)count * sizeof *values, SQLITE_STATIC);
}

/* The statement with the run and the step bound to its first two parameters. */
static sqlite3_stmt *with_step(kvs_trace *trace, kvs_trace_insert which, int step) {
  sqlite3_stmt *insert = trace->insert[which];
  sqlite3_bind_int(insert, 1, trace->run);
  sqlite3_bind_int(insert, 2, step);
  return insert;
}

/* Is more than KVS_LOG_STEPS wanted of this step? */
static bool is_logged(const kvs_trace *trace, int step) {
  return trace->level >= KVS_LOG_ATTENTION && step >= trace->first_step &&
         (trace->last_step < 0 || step <= trace->last_step);
}

/* ---- the phases ------------------------------------------------------------------------------------------------ */

static kvs_status write_event(kvs_trace *trace, const kvs_moment *m, kvs_error *err) {
  if (trace->whole) return KVS_OK; /* in which order things really ran is not known */
  sqlite3_stmt *insert = with_step(trace, KVS_INSERT_EVENT, m->step->step);
  sqlite3_bind_int64(insert, 3, trace->seq++);
  sqlite3_bind_text(insert, 4, kvs_phase_name(m->phase), -1, SQLITE_STATIC);
  if (m->layer >= 0) sqlite3_bind_int(insert, 5, m->layer);
  sqlite3_bind_int(insert, 6, m->cache_length);
  return kvs_trace_run(trace, insert, err);
}

static kvs_trace_input *find_input(kvs_trace *trace, int step) {
  for (size_t i = trace->input_count; i-- > 0;)
    if (trace->inputs[i].step == step) return &trace->inputs[i];
  return NULL;
}

static kvs_trace_input *add_input(kvs_trace *trace) {
  if (trace->input_count == trace->input_room) {
    size_t room = trace->input_room ? 2 * trace->input_room : 8;
    kvs_trace_input *inputs = realloc(trace->inputs, room * sizeof *inputs);
    if (!inputs) return NULL;
    trace->inputs = inputs, trace->input_room = room;
  }
  kvs_trace_input *input = &trace->inputs[trace->input_count];
  *input = (kvs_trace_input){.vectors = malloc(3 * (size_t)trace->config.n_embd * sizeof(float))};
  if (!input->vectors) return NULL;
  trace->input_count++;
  return input;
}

static kvs_status keep_input(kvs_trace *trace, const kvs_moment *m, kvs_error *err) {
  kvs_trace_input *input = add_input(trace);
  if (!input) return kvs_fail_memory(err, "logging a step");
  size_t n = (size_t)trace->config.n_embd;
  input->step = m->step->step;
  const float *from[] = {m->wte, m->wpe, m->x};
  for (int i = 0; i < 3; i++) {
    input->has[i] = from[i] != NULL;
    if (from[i]) memcpy(input->vectors + (size_t)i * n, from[i], n * sizeof(float));
  }
  return KVS_OK;
}

void kvs_trace_forget_inputs(kvs_trace *trace) {
  for (size_t i = 0; i < trace->input_count; i++) free(trace->inputs[i].vectors);
  trace->input_count = 0;
}

static kvs_status write_vectors(kvs_trace *trace, kvs_trace_input *input, const float *logits, kvs_error *err) {
  const int n = trace->config.n_embd;
  sqlite3_stmt *insert = with_step(trace, KVS_INSERT_STEP_VECTOR, input->step);
  for (int i = 0; i < 3; i++) bind_floats(insert, 3 + i, input->has[i] ? input->vectors + i * n : NULL, n);
  bind_floats(insert, 6, logits, trace->config.n_vocab);
  input->written = true;
  return kvs_trace_run(trace, insert, err);
}

static kvs_status write_kv_row(kvs_trace *trace, const kvs_moment *m, kvs_error *err) {
  sqlite3_stmt *insert = trace->insert[KVS_INSERT_KV_ROW];
  sqlite3_bind_int(insert, 1, trace->run);
  sqlite3_bind_int(insert, 2, m->layer);
  sqlite3_bind_int(insert, 3, m->row);
  sqlite3_bind_int(insert, 4, m->step->step);
  bind_floats(insert, 5, m->row_k, trace->config.n_embd);
  bind_floats(insert, 6, m->row_v, trace->config.n_embd);
  return kvs_trace_run(trace, insert, err);
}

/* As head_stat keeps it: the float's bits. A NaN is left NULL. */
static void bind_weight(const kvs_trace *trace, sqlite3_stmt *insert, int at, float weight) {
  int32_t bits;
  memcpy(&bits, &weight, sizeof bits);
  if (trace->stat_is_real)
    sqlite3_bind_double(insert, at, (double)weight);
  else if (!isnan(weight))
    sqlite3_bind_int(insert, at, bits);
}

/* By how many 2^-53 it is above 1, a whole number for every double from 0.5 to 2; far from 1, where that would take as much room,
 * the sum itself. */
static void bind_weight_sum(const kvs_trace *trace, sqlite3_stmt *insert, int at, double sum) {
  double above = (sum - 1) * 0x1p53;
  if (trace->stat_is_real || !(fabs(above) < 0x1p47))
    sqlite3_bind_double(insert, at, sum);
  else
    sqlite3_bind_int64(insert, at, (sqlite3_int64)above);
}

/* head_summary's numbers of weights [rows]; `self` is the row that this step appends. A NaN is stored as NULL. */
static kvs_status write_head_stat(kvs_trace *trace, const kvs_moment *m, int head, kvs_error *err) {
  const float *w = m->weights + (size_t)head * (size_t)m->rows;
  const kvs_weights_summary of = kvs_summarize_weights(w, m->rows);
  int rows = m->rows, self = m->step->cache_length_before, best = of.max_row;
  double entropy = of.entropy, sum = of.sum;
  sqlite3_stmt *insert = with_step(trace, KVS_INSERT_HEAD_STAT, m->step->step);
  sqlite3_bind_int(insert, 3, m->layer);
  sqlite3_bind_int(insert, 4, head);
  if (rows > 0) sqlite3_bind_double(insert, 5, entropy);
  if (best >= 0) bind_weight(trace, insert, 6, w[best]);
  if (best >= 0) sqlite3_bind_int(insert, 7, best);
  if (self >= 0 && self < rows) bind_weight(trace, insert, 8, w[self]);
  if (rows > 0) bind_weight(trace, insert, 9, w[0]);
  if (self >= 1 && self <= rows) bind_weight(trace, insert, 10, w[self - 1]);
  if (rows > 0) bind_weight_sum(trace, insert, 11, sum);
  return kvs_trace_run(trace, insert, err);
}

static kvs_status write_heads(kvs_trace *trace, const kvs_moment *m, kvs_error *err) {
  const int dim = trace->config.head_dim, rows = m->rows;
  kvs_status status = KVS_OK;
  for (int head = 0; status == KVS_OK && head < trace->config.n_head; head++) {
    if (!trace->heads[head]) continue;
    size_t at = (size_t)head * (size_t)dim, first = (size_t)head * (size_t)rows;
    sqlite3_stmt *insert = with_step(trace, KVS_INSERT_HEAD_STEP, m->step->step);
    sqlite3_bind_int(insert, 3, m->layer);
    sqlite3_bind_int(insert, 4, head);
    bind_floats(insert, 5, m->q ? m->q + at : NULL, dim);
    bind_floats(insert, 6, m->scores ? m->scores + first : NULL, rows);
    bind_floats(insert, 7, m->weights ? m->weights + first : NULL, rows);
    bind_floats(insert, 8, m->out ? m->out + at : NULL, dim);
    status = kvs_trace_run(trace, insert, err);
    if (status == KVS_OK && m->weights) status = write_head_stat(trace, m, head, err);
  }
  return status;
}

static kvs_status write_layer(kvs_trace *trace, const kvs_moment *m, kvs_error *err) {
  sqlite3_stmt *insert = with_step(trace, KVS_INSERT_LAYER_STEP, m->step->step);
  sqlite3_bind_int(insert, 3, m->layer);
  const float *vectors[] = {m->x_in, m->attn_out, m->x_mid, m->mlp_out, m->x_out};
  for (int i = 0; i < 5; i++) bind_floats(insert, 4 + i, vectors[i], trace->config.n_embd);
  return kvs_trace_run(trace, insert, err);
}

static kvs_status write_top_token(kvs_trace *trace, int step, int rank, int token, float logit, double probability,
                                  kvs_error *err) {
  size_t length = 0;
  const unsigned char *bytes = trace->source.bytes && token < trace->source.tokens
                                   ? trace->source.bytes(trace->source.context, token, &length)
                                   : NULL;
  char *text = kvs_trace_token_text(bytes, length, token);
  if (!text) return kvs_fail_memory(err, "logging a step");
  sqlite3_stmt *insert = with_step(trace, KVS_INSERT_TOP_TOKEN, step);
  sqlite3_bind_int(insert, 3, rank);
  sqlite3_bind_int(insert, 4, token);
  sqlite3_bind_text(insert, 5, text, -1, SQLITE_STATIC);
  sqlite3_bind_double(insert, 6, (double)logit);
  sqlite3_bind_double(insert, 7, probability); /* NaN is stored as NULL */
  kvs_status status = kvs_trace_run(trace, insert, err);
  free(text);
  return status;
}

static kvs_status write_logits(kvs_trace *trace, const kvs_moment *m, kvs_error *err) {
  int best[KVS_TOP_TOKENS], n_vocab = trace->config.n_vocab, step = m->step->step;
  int count = kvs_best_tokens(m->logits, n_vocab, best, KVS_TOP_TOKENS);
  kvs_top top = kvs_logits_top(m->logits, n_vocab);
  kvs_status status = KVS_OK;
  for (int i = 0; status == KVS_OK && i < count; i++) {
    /* From the best one's: one pass over the vocabulary, not twenty. */
    float logit = m->logits[best[i]];
    double probability = exp(top.logprob + ((double)logit - top.logit));
    status = write_top_token(trace, step, i + 1, best[i], logit, probability, err);
  }
  if (status != KVS_OK) return status;
  sqlite3_stmt *insert = with_step(trace, KVS_INSERT_STEP_STAT, step);
  sqlite3_bind_double(insert, 3, top.entropy);
  status = kvs_trace_run(trace, insert, err);
  kvs_trace_input *input = find_input(trace, step);
  if (status == KVS_OK && input && is_logged(trace, step)) status = write_vectors(trace, input, m->logits, err);
  return status;
}

bool kvs_trace_wants(const kvs_trace *trace, const kvs_moment *m) {
  bool logged = is_logged(trace, m->step->step);
  bool layer_logged = logged && m->layer >= 0 && m->layer < trace->config.n_layer && trace->layers[m->layer];
  switch (m->phase) {
  case KVS_EMBED:
    return logged;
  case KVS_APPEND:
    return layer_logged && m->row >= 0; /* a fault may append nothing */
  case KVS_MIX:
    return layer_logged;
  case KVS_MLP:
    return layer_logged && trace->level >= KVS_LOG_FULL;
  case KVS_LOGITS:
    return m->logits != NULL;
  default:
    return false;
  }
}

kvs_status kvs_trace_write_moment(kvs_trace *trace, const kvs_moment *m, kvs_error *err) {
  kvs_status status = write_event(trace, m, err);
  if (status != KVS_OK || !kvs_trace_wants(trace, m)) return status;
  switch (m->phase) {
  case KVS_EMBED:
    return keep_input(trace, m, err);
  case KVS_APPEND:
    return write_kv_row(trace, m, err);
  case KVS_MIX:
    return write_heads(trace, m, err);
  case KVS_MLP:
    return write_layer(trace, m, err);
  default:
    return write_logits(trace, m, err);
  }
}

kvs_status kvs_trace_write_step(kvs_trace *trace, const kvs_step *s, kvs_error *err) {
  sqlite3_stmt *insert = with_step(trace, KVS_INSERT_STEP, s->step);
  sqlite3_bind_text(insert, 3, kvs_mode_name(s->mode), -1, SQLITE_STATIC);
  sqlite3_bind_int(insert, 4, s->token);
  sqlite3_bind_text(insert, 5, kvs_source_name(s->source), -1, SQLITE_STATIC);
  sqlite3_bind_int(insert, 6, s->cache_length_before);
  if (s->position >= 0) sqlite3_bind_int(insert, 7, s->position);
  sqlite3_bind_int(insert, 8, s->cache_length_after);
  sqlite3_bind_double(insert, 9, s->logprob); /* NaN is stored as NULL */
  sqlite3_bind_double(insert, 10, s->seconds);
  kvs_status status = kvs_trace_run(trace, insert, err);
  kvs_trace_input *input = find_input(trace, s->step);
  if (status == KVS_OK && input && !input->written)
    status = write_vectors(trace, input, NULL, err); /* no logits came */
  if (s->step > trace->last_step_reported) trace->last_step_reported = s->step;
  return status;
}
