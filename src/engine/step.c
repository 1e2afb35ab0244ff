/* step.c: THE decode step. One token comes in; the cache holds P rows, positions 0 .. P-1.
 *
 * Read it from top to bottom: it is the nine moments of one-token attention, in their order. The arrays' shapes stand
 * beside them; h runs over heads, i over cache rows. What a correct step does is decided in plan.c, before it starts.
 */
#include "base/clock.h"
#include "engine/ops.h"
#include "engine/share.h"
#include "engine/step.h"

#include <math.h>
#include <string.h>

/* One layer: attention over the whole cache, then the MLP. s.x [n_embd] comes in, s.x_out [n_embd] goes out. */
static kvs_status decode_layer(kvs_engine *e, int layer, const kvs_place *place, kvs_moment *m, kvs_error *err) {
  const kvs_step_plan plan = kvs_engine_plan(e, place, layer);
  const kvs_config *c = &e->model->config;
  const kvs_layer *w = &e->model->layer[layer];
  kvs_scratch *s = &e->s;
  size_t n_embd = (size_t)c->n_embd;
  const float *q = s->qkv, *k = q + n_embd, *v = k + n_embd; /* [n_embd] each = [n_head][head_dim] */
  const int *length = &e->cache.length[plan.cache_layer];    /* P rows so far */
  m->x_in = s->x;

  /* 3. project: q, k and v of this one token only. Nothing past is computed again. */
  kvs_op_layer_norm(e, s->norm, s->x, 1, &w->ln_1); /* [n_embd] */
  kvs_op_linear(e, s->qkv, s->norm, 1, &w->c_attn); /* [n_embd] → [3·n_embd] */
  q = kvs_op_cut_heads(e, &plan, s->q_cut, q);      /* [n_head][head_dim], the same numbers in the same order */
  m->q = q, m->k = k, m->v = v;
  if (kvs_report(e, m, KVS_PROJECT, layer, *length, err)) return err->status;

  /* 4. append: its k and v become row P of the cache, which now holds P + 1 rows. */
  kvs_append(e, &plan, 0, k, v, m);
  if (kvs_report(e, m, KVS_APPEND, layer, *length, err)) return err->status;

  /* 5. score: scores[h][i] = q[h]·K[i][h] / sqrt(head_dim) for i = 0 .. P, itself included. */
  kvs_attend token = {&plan, q, kvs_layer_scale(e, &plan, layer), s->scores, s->weights, s->out};
  kvs_op_score(e, &token, 1); /* [n_head][rows] */
  m->rows = plan.rows, m->scores = s->scores;
  if (kvs_report(e, m, KVS_SCORE, layer, *length, err)) return err->status;

  /* 6. softmax over those P + 1 scores. No mask: all that is in the cache is this token's past, or itself. */
  kvs_op_softmax(e, &token, 1); /* [n_head][rows] */
  m->weights = s->weights;
  if (kvs_report(e, m, KVS_SOFTMAX, layer, *length, err)) return err->status;

  /* 7. mix: out[h] = Σ_i weights[h][i]·V[i][h]. */
  kvs_op_mix(e, &token, 1); /* [n_head][head_dim] */
  m->out = s->out;
  if (kvs_report(e, m, KVS_MIX, layer, *length, err)) return err->status;

  /* 8. output: the heads side by side are n_embd numbers; through c_proj, and onto the residual stream. */
  const float *heads = kvs_op_join_heads(e, &plan, s->joined, s->out); /* [n_head][head_dim] = [n_embd] */
  kvs_op_linear(e, s->attn_out, heads, 1, &w->c_proj);                 /* [n_embd] */
  kvs_op_add(s->x_mid, s->x, s->attn_out, n_embd);                     /* [n_embd] */
  m->attn_out = s->attn_out, m->x_mid = s->x_mid;
  if (kvs_report(e, m, KVS_OUTPUT, layer, *length, err)) return err->status;

  /* 9. the MLP, and onto the residual stream. */
  kvs_op_layer_norm(e, s->norm, s->x_mid, 1, &w->ln_2);
  kvs_op_linear(e, s->hidden, s->norm, 1, &w->mlp_c_fc); /* [n_inner] */
  kvs_op_activate(e, s->hidden, 1);
  kvs_op_linear(e, s->mlp_out, s->hidden, 1, &w->mlp_c_proj); /* [n_embd] */
  kvs_op_add(s->x_out, s->x_mid, s->mlp_out, n_embd);
  m->mlp_out = s->mlp_out, m->x_out = s->x_out;
  return kvs_report(e, m, KVS_MLP, layer, *length, err);
}

kvs_status kvs_decode_step(kvs_engine *e, int token, kvs_source source, kvs_error *err) {
  const kvs_config *c = &e->model->config;
  kvs_scratch *s = &e->s;
  double start = kvs_now();

  /* 1. read: t = cache length = P, BEFORE anything is appended. */
  int P = e->cache.length[0];
  kvs_place place = {e->steps, KVS_DECODE, P, P + 1, e->prompt_length + (source == KVS_PROMPT)};
  if (kvs_engine_check(e, &place, err)) return err->status;
  kvs_step_plan plan = kvs_engine_plan(e, &place, 0);
  kvs_step step = {.step = e->steps,
                   .mode = KVS_DECODE,
                   .token = token,
                   .source = source,
                   .cache_length_before = P,
                   .position = plan.position,
                   .cache_length_after = P,
                   .seconds = 0};
  step.logprob = e->has_logits ? kvs_logprob(e->last_logits, c->n_vocab, token) : NAN;
  kvs_moment m = {.step = &step};
  if (kvs_report(e, &m, KVS_READ_LENGTH, -1, P, err)) return err->status;

  /* 2. embed: x = wte[token] + wpe[t]. GPT-2's positions are a learned table, indexed by t. */
  kvs_embed(e, token, &plan, s->wte, s->wpe, s->x); /* [n_embd] */
  m.wte = s->wte, m.wpe = plan.position == KVS_NO_POSITION ? NULL : s->wpe, m.x = s->x;
  if (kvs_report(e, &m, KVS_EMBED, -1, P, err)) return err->status;

  for (int layer = 0; layer < c->n_layer; layer++) {
    m = (kvs_moment){.step = &step};
    if (decode_layer(e, layer, &place, &m, err)) return err->status;
    memcpy(s->x, s->x_out, (size_t)c->n_embd * sizeof(float)); /* enters the next layer */
  }
  step.cache_length_after = e->cache.length[0];

  /* At the end: ln_f, and the logits of the next token. */
  kvs_op_layer_norm(e, s->norm, s->x, 1, &e->model->ln_f);
  kvs_op_lm_head(e, e->last_logits, s->norm, 1); /* [n_embd] → [n_vocab] */
  e->has_logits = true;
  kvs_count_fed(e, &token, 1, source);
  m = (kvs_moment){.step = &step, .logits = e->last_logits};
  step.seconds = kvs_now() - start - e->observer_seconds;
  if (kvs_report(e, &m, KVS_LOGITS, -1, step.cache_length_after, err)) return err->status;
  return e->observer.step_end ? e->observer.step_end(e->observer.context, &step, err) : KVS_OK;
}
