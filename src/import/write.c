/* write.c: tells a trace, step by step, what the arrays have: as an engine would. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "import/plan.h"

/* One step's vectors, in buffers that the next step reuses. */
struct buffers {
  float *vector[Q_COUNT]; /* [n_embd], logits [n_vocab] */
  float *attention[2];    /* [n_head][rows] */
  double logprob;
};

static const float *vector_of(const struct plan *plan, struct buffers *b, enum quantity quantity, int layer, int step) {
  const struct vectors *v = plan->vectors[quantity] ? &plan->vectors[quantity][layer] : NULL;
  if (!v || !v->array || !b->vector[quantity]) return NULL;
  int count = quantity == Q_LOGITS ? plan->config.n_vocab : plan->config.n_embd;
  float *to = b->vector[quantity];
  for (int i = 0; i < count; i++)
    to[i] = (float)array_get(v->array, v->offset + step * v->step + i / v->part * v->head + i % v->part * v->dim);
  return to;
}

/* hidden_states[layer] enters the layer. The one after the last layer is not x_out: Hugging Face puts it through ln_f first. */
static const float *hidden(const struct plan *plan, struct buffers *b, enum quantity own, int layer, int step) {
  const float *given = vector_of(plan, b, own, own == Q_X ? 0 : layer, step);
  if (given || !plan->vectors[Q_HIDDEN]) return given;
  int at = own == Q_X_OUT ? layer + 1 : layer;
  if (at >= plan->config.n_layer) return NULL;
  const float *from = vector_of(plan, b, Q_HIDDEN, at, step);
  if (from) memcpy(b->vector[own], from, (size_t)plan->config.n_embd * sizeof *from);
  return from ? b->vector[own] : NULL;
}

static int length_before(const struct plan *plan, int step) { return plan->lengths ? plan->lengths[step] : step; }

/* ---- attention ---- */

static const struct attention *attended(const struct plan *plan, int which, int layer, int step) {
  return plan->attended[which] ? plan->attended[which][(size_t)layer * (size_t)plan->steps + (size_t)step] : NULL;
}

static double attention_at(const struct attention *a, int head, int step, int row) {
  return array_get(a->array, a->offset + head * a->head + (step - a->first) * a->query + row * a->row);
}

/* How many rows were attended. A lone query's are all that it has. In a square of several queries the rows after its own are masked, by
 * a weight of 0 or a score far below all others, unless a mistake has let one through. */
static int rows_of(const struct plan *plan, const struct attention *a, bool weights, int step) {
  if (a->queries == 1) return a->width;
  int own = length_before(plan, step) + 1;
  for (int row = a->width; row > own; row--)
    for (int head = 0; head < plan->config.n_head; head++) {
      double value = attention_at(a, head, step, row - 1);
      if (weights ? value != 0 : value > -9999) return row;
    }
  return own < a->width ? own : a->width;
}

/* Fills one of m->scores and m->weights. */
static kvs_status fill_attention(const struct plan *plan, struct buffers *b, int which, int layer, kvs_moment *m,
                                 kvs_error *err) {
  const struct attention *a = attended(plan, which, layer, m->step->step);
  if (!a) return KVS_OK;
  size_t count = (size_t)plan->config.n_head * (size_t)m->rows;
  float *to = realloc(b->attention[which], (count + 1) * sizeof *to);
  if (!to) return kvs_fail_memory(err, "importing");
  b->attention[which] = to;
  for (int head = 0; head < plan->config.n_head; head++)
    for (int row = 0; row < m->rows; row++)
      *to++ = row < a->width ? (float)attention_at(a, head, m->step->step, row) : NAN;
  *(which ? &m->weights : &m->scores) = b->attention[which];
  return KVS_OK;
}

/* ---- moments ---- */

static kvs_status tell(const kvs_observer *o, kvs_moment *m, kvs_phase phase, kvs_error *err) {
  m->phase = phase;
  return o->moment(o->context, m, err);
}

static kvs_status write_layer(const struct plan *plan, struct buffers *b, const kvs_observer *o, const kvs_step *s,
                              int layer, kvs_error *err) {
  kvs_moment m = {.step = s, .layer = layer, .row = s->cache_length_before, .cache_length = s->cache_length_after};
  kvs_status status = KVS_OK;
  m.row_k = vector_of(plan, b, Q_K, layer, m.row), m.row_v = vector_of(plan, b, Q_V, layer, m.row);
  if (m.row_k || m.row_v) status = tell(o, &m, KVS_APPEND, err);
  const struct attention *scores = attended(plan, 0, layer, s->step), *weights = attended(plan, 1, layer, s->step);
  if (weights)
    m.rows = rows_of(plan, weights, true, s->step);
  else if (scores)
    m.rows = rows_of(plan, scores, false, s->step);
  for (int which = 0; status == KVS_OK && which < 2; which++) status = fill_attention(plan, b, which, layer, &m, err);
  m.q = vector_of(plan, b, Q_Q, layer, s->step), m.out = vector_of(plan, b, Q_OUT, layer, s->step);
  if (status == KVS_OK && (m.q || m.out || m.scores || m.weights)) status = tell(o, &m, KVS_MIX, err);
  m.x_in = hidden(plan, b, Q_X_IN, layer, s->step), m.x_out = hidden(plan, b, Q_X_OUT, layer, s->step);
  m.attn_out = vector_of(plan, b, Q_ATTN_OUT, layer, s->step), m.x_mid = vector_of(plan, b, Q_X_MID, layer, s->step);
  m.mlp_out = vector_of(plan, b, Q_MLP_OUT, layer, s->step);
  if (status == KVS_OK && (m.x_in || m.x_out || m.attn_out || m.x_mid || m.mlp_out)) status = tell(o, &m, KVS_MLP, err);
  return status;
}

static const float *logits_of(const struct plan *plan, struct buffers *b, int step) {
  int row = step - plan->logits_first;
  return plan->vectors[Q_LOGITS] && row >= 0 && row < plan->logits_rows ? vector_of(plan, b, Q_LOGITS, 0, row) : NULL;
}

static kvs_status write_step(const struct plan *plan, struct buffers *b, const kvs_observer *o, int step,
                             kvs_error *err) {
  int before = length_before(plan, step);
  bool prompt = step < plan->prompt_length;
  const kvs_step s = {.step = step,
                      .mode = prompt && plan->prompt_length > 1 ? KVS_PREFILL : KVS_DECODE,
                      .token = plan->tokens[step],
                      .source = prompt ? KVS_PROMPT : KVS_SAMPLED,
                      .cache_length_before = before,
                      .position = plan->positions ? plan->positions[step] : before,
                      .cache_length_after = before + 1,
                      .logprob = b->logprob,
                      .seconds = NAN};
  kvs_moment m = {.step = &s, .layer = -1, .row = -1};
  m.wte = vector_of(plan, b, Q_WTE, 0, step), m.wpe = vector_of(plan, b, Q_WPE, 0, step),
  m.x = hidden(plan, b, Q_X, 0, step);
  kvs_status status = KVS_OK;
  const float *logits = logits_of(plan, b, step);
  if (m.wte || m.wpe || m.x || logits) status = tell(o, &m, KVS_EMBED, err);
  for (int layer = 0; status == KVS_OK && layer < plan->config.n_layer; layer++)
    status = write_layer(plan, b, o, &s, layer, err);
  kvs_moment last = {.step = &s, .layer = -1, .row = -1, .logits = logits};
  if (status == KVS_OK && logits) status = tell(o, &last, KVS_LOGITS, err);
  b->logprob =
      logits && step + 1 < plan->steps ? kvs_logprob(logits, plan->config.n_vocab, plan->tokens[step + 1]) : NAN;
  if (status == KVS_OK) status = o->step_end(o->context, &s, err);
  return status == KVS_OK ? o->settled(o->context, err) : status;
}

/* A buffer for each quantity that there is, and for what hidden states stand for. */
static bool make_buffers(const struct plan *plan, struct buffers *b) {
  for (int q = 0; q < Q_COUNT; q++) {
    bool from_hidden = plan->vectors[Q_HIDDEN] && (q == Q_X || q == Q_X_IN || q == Q_X_OUT);
    if (!plan->vectors[q] && !from_hidden) continue;
    size_t count = (size_t)(q == Q_LOGITS ? plan->config.n_vocab : plan->config.n_embd);
    b->vector[q] = malloc(count * sizeof(float));
    if (!b->vector[q]) return false;
  }
  return true;
}

kvs_status plan_write(const struct plan *plan, kvs_trace *trace, kvs_error *err) {
  struct buffers b = {.logprob = NAN};
  const kvs_observer observer = kvs_trace_observer(trace);
  kvs_status status = make_buffers(plan, &b) ? KVS_OK : kvs_fail_memory(err, "importing");
  for (int step = 0; status == KVS_OK && step < plan->steps; step++)
    status = write_step(plan, &b, &observer, step, err);
  for (int q = 0; q < Q_COUNT; q++) free(b.vector[q]);
  free(b.attention[0]);
  free(b.attention[1]);
  return status;
}
