/* prefill.c: many tokens in one batch. The same operations as in step.c, on rows of tokens at once, and the causal mask: token r
 * of the batch attends to the P rows before the batch and to rows P .. P+r, though later rows are in the cache already. That
 * mask is all that prefill has and decode has not; the sums are the same, so the bits are too. */
#include "base/clock.h"
#include "engine/ops.h"
#include "engine/share.h"
#include "engine/step.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One token of the batch. */
typedef struct token_row {
  kvs_step step;
  kvs_place place;
  kvs_step_plan plan; /* of the layer at hand */
  kvs_moment moment;
} token_row;

typedef struct batch {
  token_row *rows;
  int count;
} batch;

/* Tells the observer of one phase for every token of begin .. end-1. */
static kvs_status report_rows(kvs_engine *e, batch *b, int begin, int end, kvs_phase phase, int layer, kvs_error *err) {
  for (token_row *r = b->rows + begin; r < b->rows + end; r++) {
    int length = phase < KVS_APPEND ? r->step.cache_length_before : r->step.cache_length_after;
    if (kvs_report(e, &r->moment, phase, layer, length, err)) return err->status;
  }
  return KVS_OK;
}

/* score, softmax and mix for a chunk of the batch. */
static kvs_status attend_chunk(kvs_engine *e, batch *b, int layer, int begin, int end, kvs_error *err) {
  const kvs_config *c = &e->model->config;
  kvs_scratch *s = &e->s;
  kvs_attend tokens[KVS_CHUNK] = {0};
  for (int r = begin; r < end; r++) {
    token_row *row = &b->rows[r];
    size_t room = (size_t)(r - begin) * (size_t)c->n_head * (size_t)c->n_ctx;
    tokens[r - begin] = (kvs_attend){
        .plan = &row->plan, /* whose rows are the causal mask: up to its own, none after */
        .q = row->moment.q,
        .scale = kvs_layer_scale(e, &row->plan, layer),
        .scores = s->scores + room,
        .weights = s->weights + room,
        .out = s->out + (size_t)r * (size_t)c->n_embd,
    };
    row->moment.rows = row->plan.rows;
  }
  kvs_op_score(e, tokens, end - begin);
  for (int r = begin; r < end; r++) b->rows[r].moment.scores = tokens[r - begin].scores;
  if (report_rows(e, b, begin, end, KVS_SCORE, layer, err)) return err->status;
  kvs_op_softmax(e, tokens, end - begin);
  for (int r = begin; r < end; r++) b->rows[r].moment.weights = tokens[r - begin].weights;
  if (report_rows(e, b, begin, end, KVS_SOFTMAX, layer, err)) return err->status;
  kvs_op_mix(e, tokens, end - begin);
  for (int r = begin; r < end; r++) b->rows[r].moment.out = tokens[r - begin].out;
  if (report_rows(e, b, begin, end, KVS_MIX, layer, err)) return err->status;
  /* The next chunk uses the same room. */
  for (int r = begin; r < end; r++) b->rows[r].moment.scores = b->rows[r].moment.weights = NULL;
  return KVS_OK;
}

/* c_attn for all rows, and every k and v into the cache. */
static kvs_status project_and_append(kvs_engine *e, batch *b, int layer, kvs_error *err) {
  const kvs_config *c = &e->model->config;
  const kvs_layer *w = &e->model->layer[layer];
  kvs_scratch *s = &e->s;
  size_t n_embd = (size_t)c->n_embd;
  kvs_op_layer_norm(e, s->norm, s->x, b->count, &w->ln_1);
  kvs_op_linear(e, s->qkv, s->norm, b->count, &w->c_attn); /* [count][3·n_embd] */
  for (int r = 0; r < b->count; r++) {
    token_row *row = &b->rows[r];
    const float *q = s->qkv + (size_t)r * 3 * n_embd;
    row->plan = kvs_engine_plan(e, &row->place, layer);
    assert(!row->plan.interleaved && !row->plan.across_heads); /* heads are mistaken in decode only */
    row->moment = (kvs_moment){
        .step = &row->step, .x_in = s->x + (size_t)r * n_embd, .q = q, .k = q + n_embd, .v = q + 2 * n_embd};
  }
  if (report_rows(e, b, 0, b->count, KVS_PROJECT, layer, err)) return err->status;
  for (int r = 0; r < b->count; r++) {
    token_row *row = &b->rows[r];
    kvs_append(e, &row->plan, r, row->moment.k, row->moment.v, &row->moment);
    row->step.cache_length_after = row->plan.length_after;
  }
  return report_rows(e, b, 0, b->count, KVS_APPEND, layer, err);
}

static kvs_status prefill_layer(kvs_engine *e, batch *b, int layer, kvs_error *err) {
  const kvs_layer *w = &e->model->layer[layer];
  kvs_scratch *s = &e->s;
  size_t n_embd = (size_t)e->model->config.n_embd, all = (size_t)b->count * n_embd;
  if (project_and_append(e, b, layer, err)) return err->status;
  for (int begin = 0; begin < b->count; begin += KVS_CHUNK) {
    int end = begin + KVS_CHUNK < b->count ? begin + KVS_CHUNK : b->count;
    if (attend_chunk(e, b, layer, begin, end, err)) return err->status;
  }
  kvs_op_linear(e, s->attn_out, s->out, b->count, &w->c_proj);
  kvs_op_add(s->x_mid, s->x, s->attn_out, all);
  for (int r = 0; r < b->count; r++) {
    b->rows[r].moment.attn_out = s->attn_out + (size_t)r * n_embd;
    b->rows[r].moment.x_mid = s->x_mid + (size_t)r * n_embd;
  }
  if (report_rows(e, b, 0, b->count, KVS_OUTPUT, layer, err)) return err->status;
  kvs_op_layer_norm(e, s->norm, s->x_mid, b->count, &w->ln_2);
  kvs_op_linear(e, s->hidden, s->norm, b->count, &w->mlp_c_fc);
  kvs_op_activate(e, s->hidden, b->count);
  kvs_op_linear(e, s->mlp_out, s->hidden, b->count, &w->mlp_c_proj);
  kvs_op_add(s->x_out, s->x_mid, s->mlp_out, all);
  for (int r = 0; r < b->count; r++) {
    b->rows[r].moment.mlp_out = s->mlp_out + (size_t)r * n_embd;
    b->rows[r].moment.x_out = s->x_out + (size_t)r * n_embd;
  }
  return report_rows(e, b, 0, b->count, KVS_MLP, layer, err);
}

/* Logits of every token when somebody watches, since each gives the next one's logprob; else of the last one only. */
static kvs_status logits_of_rows(kvs_engine *e, batch *b, double start, kvs_error *err) {
  const kvs_config *c = &e->model->config;
  kvs_scratch *s = &e->s;
  size_t n_vocab = (size_t)c->n_vocab;
  kvs_op_layer_norm(e, s->norm, s->x, b->count, &e->model->ln_f);
  for (int begin = e->observed ? 0 : b->count - 1; begin < b->count; begin += KVS_CHUNK) {
    int end = begin + KVS_CHUNK < b->count ? begin + KVS_CHUNK : b->count;
    kvs_op_lm_head(e, s->logits, s->norm + (size_t)begin * (size_t)c->n_embd, end - begin);
    for (int r = begin; r < end; r++) {
      token_row *row = &b->rows[r];
      const float *logits = s->logits + (size_t)(r - begin) * n_vocab;
      row->step.logprob = e->has_logits ? kvs_logprob(e->last_logits, c->n_vocab, row->step.token) : NAN;
      memcpy(e->last_logits, logits, n_vocab * sizeof(float));
      e->has_logits = true;
      row->moment = (kvs_moment){.step = &row->step, .logits = logits};
      row->step.seconds = (kvs_now() - start - e->observer_seconds) / b->count;
      if (kvs_report(e, &row->moment, KVS_LOGITS, -1, row->step.cache_length_after, err)) return err->status;
      if (e->observer.step_end && e->observer.step_end(e->observer.context, &row->step, err)) return err->status;
    }
  }
  return KVS_OK;
}

/* Plans every token before any is fed, so that a batch that does not fit changes nothing. */
static kvs_status plan_batch(kvs_engine *e, batch *b, const int *tokens, kvs_source source, kvs_error *err) {
  int P = e->cache.length[0], prompt_length = e->prompt_length + (source == KVS_PROMPT ? b->count : 0);
  for (int r = 0; r < b->count; r++) {
    token_row *row = &b->rows[r];
    row->place = (kvs_place){e->steps + r, KVS_PREFILL, P + r, P + b->count, prompt_length};
    if (kvs_engine_check(e, &row->place, err)) return err->status;
    row->plan = kvs_engine_plan(e, &row->place, 0);
    row->step = (kvs_step){.step = e->steps + r,
                           .mode = KVS_PREFILL,
                           .token = tokens[r],
                           .source = source,
                           .cache_length_before = P + r,
                           .position = row->plan.position,
                           .cache_length_after = P + r,
                           .logprob = NAN};
    row->moment = (kvs_moment){.step = &row->step};
  }
  return KVS_OK;
}

static kvs_status feed_batch(kvs_engine *e, batch *b, const int *tokens, kvs_source source, kvs_error *err) {
  kvs_scratch *s = &e->s;
  size_t n_embd = (size_t)e->model->config.n_embd;
  double start = kvs_now();
  if (report_rows(e, b, 0, b->count, KVS_READ_LENGTH, -1, err)) return err->status;
  for (int r = 0; r < b->count; r++) {
    token_row *row = &b->rows[r];
    size_t at = (size_t)r * n_embd;
    kvs_embed(e, row->step.token, &row->plan, s->wte + at, s->wpe + at, s->x + at);
    row->moment.wte = s->wte + at, row->moment.x = s->x + at;
    row->moment.wpe = row->plan.position == KVS_NO_POSITION ? NULL : s->wpe + at;
  }
  if (report_rows(e, b, 0, b->count, KVS_EMBED, -1, err)) return err->status;
  for (int layer = 0; layer < e->model->config.n_layer; layer++) {
    if (prefill_layer(e, b, layer, err)) return err->status;
    memcpy(s->x, s->x_out, (size_t)b->count * n_embd * sizeof(float));
  }
  kvs_count_fed(e, tokens, b->count, source);
  return logits_of_rows(e, b, start, err);
}

kvs_status kvs_prefill_batch(kvs_engine *e, const int *tokens, int count, kvs_source source, kvs_error *err) {
  batch b = {calloc((size_t)count, sizeof *b.rows), count};
  if (!b.rows) return kvs_fail_memory(err, "feeding the prompt");
  kvs_status status = plan_batch(e, &b, tokens, source, err);
  if (!status) status = kvs_scratch_grow(e, count, err);
  if (!status) {
    status = feed_batch(e, &b, tokens, source, err);
    if (status) e->broken = true;
  }
  free(b.rows);
  return status;
}
