/* recompute_math.c: a layer's arithmetic with the engine's own kernels, for several inputs side by side, with mistakes put in on
 * purpose, and with noise to see how far small differences grow. */
#include <math.h>
#include <string.h>

#include "engine/ops.h"
#include "study/check/recompute_parts.h"

double recompute_distance(const float *a, const float *b, int n) {
  double difference = 0, size = 0;
  for (int i = 0; i < n; i++) {
    double d = (double)a[i] - (double)b[i];
    difference += d * d, size += (double)b[i] * (double)b[i];
  }
  return difference == 0 ? 0 : sqrt(difference / size);
}

/* ---- noise ---- */

/* Uniform, of variance 1. */
double recompute_random(struct work *w) {
  w->random = w->random * 6364136223846793005u + 1442695040888963407u;
  return ((double)(w->random >> 11) * 0x1p-52 - 1) * 1.7320508075688772;
}

/* Changes x by about noise·|x|. */
void recompute_add_noise(struct work *w, float *x, int n, double noise) {
  if (!(noise > 0)) return;
  double size = 0;
  for (int i = 0; i < n; i++) size += (double)x[i] * (double)x[i];
  double each = noise * sqrt(size / n);
  for (int i = 0; i < n; i++) x[i] += (float)(each * recompute_random(w));
}

/* ---- embedding and projection ---- */

static const void *tensor_row(const kvs_tensor *t, int row) {
  return (const char *)t->data + (size_t)row * (size_t)t->cols * (t->dtype == KVS_F32 ? 4 : 2);
}

void recompute_embed(struct recompute *r, int token, int position, float *x) {
  const kvs_model *m = r->model;
  int n = m->config.n_embd;
  float *wpe = r->engine->s.wpe;
  r->engine->kernels->widen(x, tensor_row(&m->wte, token), m->wte.dtype, n);
  if (position < 0) return;
  r->engine->kernels->widen(wpe, tensor_row(&m->wpe, position), m->wpe.dtype, n);
  kvs_op_add(x, x, wpe, (size_t)n);
}

const float *recompute_project(struct work *w, int layer, const float *x, int rows) {
  struct recompute *r = w->r;
  const float *known = rows == 1 ? recompute_ahead_qkv(w, layer, x) : NULL;
  if (known) return known;
  kvs_scratch *s = &r->engine->s;
  kvs_op_layer_norm(r->engine, s->norm, x, rows, &r->model->layer[layer].ln_1);
  kvs_op_linear(r->engine, s->qkv, s->norm, rows, &r->model->layer[layer].c_attn);
  return s->qkv;
}

void recompute_logits(struct work *w, const float *x, int rows) {
  struct recompute *r = w->r;
  const float *known = rows == 1 ? recompute_ahead_logits(w, x) : NULL;
  if (known) {
    memcpy(r->logits, known, (size_t)w->config->n_vocab * sizeof(float));
    return;
  }
  kvs_scratch *s = &r->engine->s;
  kvs_op_layer_norm(r->engine, s->norm, x, rows, &r->model->ln_f);
  kvs_op_lm_head(r->engine, r->logits, s->norm, rows);
}

/* ---- attention ---- */

/* A cache as one token sees it: the engine's, where each head's rows lie together, or rows of n_embd. */
struct attention {
  const float *k, *v;
  size_t row, head; /* floats from a row to the next, from a head to the next */
  int rows;
  float scale;
};

static float right_scale(const kvs_config *c) {
  return c->scale_attn_weights ? 1.0f / sqrtf((float)c->head_dim) : 1.0f;
}

static float scale_of(const kvs_config *c, int layer, enum hypothesis how) {
  float scale = how == HYPOTHESIS_NO_SCALE       ? 1.0f
                : how == HYPOTHESIS_SCALE_N_EMBD ? 1.0f / sqrtf((float)c->n_embd)
                                                 : right_scale(c);
  return c->scale_attn_by_inverse_layer_idx ? scale / (float)(layer + 1) : scale;
}

static double norm_of(const float *a, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += (double)a[i] * (double)a[i];
  return sqrt(sum);
}

/* Each score changes by noise·|q|·|K[row]| over sqrt(head_dim), as if q and K had been rounded. */
static void noise_scores(struct work *w, float *scores, const struct attention *a, const float *q, int h,
                         double noise) {
  int head_dim = w->config->head_dim;
  double each = noise * (double)a->scale * norm_of(q + (size_t)h * (size_t)head_dim, head_dim) / sqrt(head_dim);
  for (int i = 0; i < a->rows; i++) {
    const float *k = a->k + (size_t)i * a->row + (size_t)h * a->head;
    scores[i] += (float)(each * norm_of(k, head_dim) * recompute_random(w));
  }
}

static void softmax_over_heads(float *weights, const float *scores, int heads, int rows) {
  for (int i = 0; i < rows; i++) {
    double most = -INFINITY, sum = 0;
    for (int h = 0; h < heads; h++) most = fmax(most, (double)scores[(size_t)h * (size_t)rows + (size_t)i]);
    for (int h = 0; h < heads; h++) sum += exp((double)scores[(size_t)h * (size_t)rows + (size_t)i] - most);
    for (int h = 0; h < heads; h++) {
      size_t at = (size_t)h * (size_t)rows + (size_t)i;
      weights[at] = (float)(exp((double)scores[at] - most) / sum);
    }
  }
}

static void attend(struct work *w, enum hypothesis how, const struct attention *a, const float *q, float *out,
                   double noise) {
  const kvs_config *c = w->config;
  const kvs_kernels *kernels = w->r->engine->kernels;
  float *scores = w->r->engine->s.scores, *weights = w->r->engine->s.weights; /* [n_head][rows] */
  size_t rows = (size_t)a->rows, head_dim = (size_t)c->head_dim;
  for (size_t h = 0; h < (size_t)c->n_head; h++) {
    kernels->score(scores + h * rows, q + h * head_dim, a->k + h * a->head, (int)a->row, a->rows, c->head_dim,
                   a->scale);
    if (noise > 0) noise_scores(w, scores + h * rows, a, q, (int)h, noise);
    if (how == HYPOTHESIS_FIRST_ROW_ONLY)
      for (size_t i = 0; i < rows; i++) weights[h * rows + i] = i == 0;
    else
      kernels->softmax(weights + h * rows, scores + h * rows, a->rows);
  }
  if (how == HYPOTHESIS_WRONG_AXIS) softmax_over_heads(weights, scores, c->n_head, a->rows);
  for (size_t h = 0; h < (size_t)c->n_head; h++)
    kernels->mix(out + h * head_dim, weights + h * rows, a->v + h * a->head, (int)a->row, a->rows, c->head_dim);
  recompute_add_noise(w, out, c->n_embd, noise);
}

/* One row, its heads side by side, out of a->k or a->v. */
static void copy_row(const kvs_config *c, const struct attention *a, const float *part, size_t row, float *to) {
  for (size_t h = 0; h < (size_t)c->n_head; h++)
    memcpy(to + h * (size_t)c->head_dim, part + row * a->row + h * a->head, (size_t)c->head_dim * sizeof(float));
}

void recompute_cut(const kvs_config *c, float *to, const float *from, bool back) {
  for (int h = 0; h < c->n_head; h++)
    for (int d = 0; d < c->head_dim; d++) {
      int side = h * c->head_dim + d, woven = d * c->n_head + h;
      if (back)
        to[woven] = from[side];
      else
        to[side] = from[woven];
    }
}

/* Even variants: the heads' out goes back to where their dims came from; odd: it lies side by side. From 2 on: rows from before the
 * mistake began were cut rightly, as a cache keeps them that is laid out by heads. */
static void attend_interleaved(struct work *w, const struct attention *a, int variant, const float *q, float *out,
                               double noise) {
  const kvs_config *c = w->config;
  struct recompute *r = w->r;
  size_t n_embd = (size_t)c->n_embd;
  size_t begins = (size_t)(w->own_row - (w->step - w->batch_step));
  size_t from = variant < 2 ? 0 : r->woven_from != LOOK_NONE ? (size_t)r->woven_from : begins;
  from = from > (size_t)r->pads ? from - (size_t)r->pads : 0;
  for (size_t row = 0; row < (size_t)a->rows; row++) {
    float *side_k = r->engine->s.row_k, *side_v = r->engine->s.row_v;
    float *to_k = r->rows_k + row * n_embd, *to_v = r->rows_v + row * n_embd;
    copy_row(c, a, a->k, row, row < from ? to_k : side_k);
    copy_row(c, a, a->v, row, row < from ? to_v : side_v);
    if (row < from) continue;
    recompute_cut(c, to_k, side_k, false);
    recompute_cut(c, to_v, side_v, false);
  }
  float *woven_q = r->engine->s.attn_out, *woven_out = r->engine->s.mlp_out;
  recompute_cut(c, woven_q, q, false);
  struct attention woven = {r->rows_k, r->rows_v, n_embd, (size_t)c->head_dim, a->rows, a->scale};
  attend(w, HYPOTHESIS_NONE, &woven, woven_q, woven_out, noise);
  if (variant % 2 == 0)
    recompute_cut(c, out, woven_out, true);
  else
    memcpy(out, woven_out, n_embd * sizeof(float));
}

/* Copies the cache so that it can be changed. */
static void copy_rows(struct work *w, struct attention *a) {
  size_t n_embd = (size_t)w->config->n_embd;
  for (size_t row = 0; row < (size_t)a->rows; row++) {
    copy_row(w->config, a, a->k, row, w->r->rows_k + row * n_embd);
    copy_row(w->config, a, a->v, row, w->r->rows_v + row * n_embd);
  }
  a->k = w->r->rows_k, a->v = w->r->rows_v, a->row = n_embd, a->head = (size_t)w->config->head_dim;
}

static bool zero_row(struct work *w, struct attention *a, int row, bool k_too) {
  size_t n_embd = (size_t)w->config->n_embd;
  copy_rows(w, a);
  memset(w->r->rows_v + (size_t)row * n_embd, 0, n_embd * sizeof(float));
  if (k_too) memset(w->r->rows_k + (size_t)row * n_embd, 0, n_embd * sizeof(float));
  return true;
}

/* What one buffer of all layers holds when this layer attends: rows of this step's batch are this layer's own; rows before it were
 * last written by the last layer, or, before the mistake began, by layer 0. Where it began: variants. */
static bool shared_rows(struct work *w, struct attention *a, int variant) {
  struct recompute *r = w->r;
  int last = w->config->n_layer - 1, begins = w->at.length_before - (w->step - w->batch_step);
  const int starts[] = {r->shared_from, begins, w->at.prompt_steps, 0, begins - 1};
  int from = starts[variant];
  if (last == 0 || from < 0 || from > begins || begins > a->rows) return false;
  recompute_mirror(w, 0), recompute_mirror(w, last);
  if (!recompute_has_rows(w, 0, 0, from) || !recompute_has_rows(w, last, from, begins)) return false;
  copy_rows(w, a);
  size_t n_embd = (size_t)w->config->n_embd;
  for (int row = 0; row < begins; row++) {
    int layer = row < from ? 0 : last;
    const kvs_cache *cache = &r->engine->cache;
    kvs_cache_read(cache, cache->k, layer, row, r->rows_k + (size_t)row * n_embd);
    kvs_cache_read(cache, cache->v, layer, row, r->rows_v + (size_t)row * n_embd);
  }
  return true;
}

/* How many rows the scores that were logged say; else all of the batch. */
static int batch_rows(struct work *w, int layer) {
  const struct look_head *head = look_head(w->look, w->run, w->step, layer, 0);
  if (head && head->rows > w->own_row + 1) return head->rows;
  return w->own_row + 1 + w->upto - w->step;
}

/* Sets up the cache that the hypothesis sees; false: not possible here, or the trace does not have it. */
static bool set_up(struct work *w, int layer, enum hypothesis how, int variant, struct attention *a) {
  struct recompute *r = w->r;
  int layer_row = recompute_own_row(w->look, w->run, w->step, layer), n_ctx = w->shape.n_ctx;
  recompute_mirror(w, layer);
  const kvs_cache *cache = &r->engine->cache;
  size_t head_dim = (size_t)w->config->head_dim;
  *a = (struct attention){kvs_cache_rows(cache, cache->k, layer, 0),
                          kvs_cache_rows(cache, cache->v, layer, 0),
                          head_dim,
                          (size_t)cache->n_ctx * head_dim,
                          w->own_row + 1,
                          scale_of(w->config, layer, how)};
  switch (how) {
  case HYPOTHESIS_WITHOUT_ITSELF:
    a->rows = w->own_row;
    break;
  case HYPOTHESIS_WHOLE_BATCH:
    a->rows = batch_rows(w, layer);
    if (a->rows == w->own_row + 1) return false;
    break;
  case HYPOTHESIS_LAYER_LENGTH:
    if (layer_row == LOOK_NONE || layer_row == w->own_row) return false;
    a->rows = layer_row + 1;
    break;
  case HYPOTHESIS_WINDOW: {
    bool failed;
    const struct window *window = w->length >= n_ctx ? recompute_window(w, layer, &failed) : NULL;
    if (!window) return false;
    a->k = window->k, a->v = window->v, a->rows = n_ctx, a->row = (size_t)w->config->n_embd, a->head = head_dim;
    return true;
  }
  default:
    break;
  }
  if (a->rows < 1 || !recompute_has_rows(w, layer, 0, how == HYPOTHESIS_SHARED_BUFFER ? 0 : a->rows)) return false;
  if (how == HYPOTHESIS_WHOLE_CAPACITY) {
    if (a->rows == n_ctx) return false;
    a->rows = n_ctx;
  }
  if (how == HYPOTHESIS_ZERO_V) return zero_row(w, a, w->own_row, false);
  if (how == HYPOTHESIS_ZERO_K_V) return zero_row(w, a, w->own_row, true);
  return how != HYPOTHESIS_SHARED_BUFFER || shared_rows(w, a, variant);
}

bool recompute_attend(struct work *w, int layer, enum hypothesis how, int variant, const float *q, float *out,
                      double noise) {
  struct attention a;
  if (!set_up(w, layer, how, variant, &a)) return false;
  if (how != HYPOTHESIS_PADDING) { /* rows of padding are masked */
    a.k += (size_t)w->r->pads * a.row, a.v += (size_t)w->r->pads * a.row, a.rows -= w->r->pads;
    if (a.rows < 1) return false;
  }
  if (how == HYPOTHESIS_INTERLEAVED)
    attend_interleaved(w, &a, variant, q, out, noise);
  else
    attend(w, how, &a, q, out, noise);
  return true;
}

const float *recompute_finish(struct work *w, int layer, const float *x, int rows, double noise) {
  kvs_engine *e = w->r->engine;
  const kvs_layer *layer_w = &w->r->model->layer[layer];
  kvs_scratch *s = &e->s;
  int n_embd = w->config->n_embd;
  size_t all = (size_t)rows * (size_t)n_embd;
  kvs_op_linear(e, s->attn_out, s->out, rows, &layer_w->c_proj);
  for (int i = 0; i < rows; i++) recompute_add_noise(w, s->attn_out + (size_t)i * (size_t)n_embd, n_embd, noise);
  kvs_op_add(s->x_mid, x, s->attn_out, all);
  kvs_op_layer_norm(e, s->norm, s->x_mid, rows, &layer_w->ln_2);
  kvs_op_linear(e, s->hidden, s->norm, rows, &layer_w->mlp_c_fc);
  kvs_op_activate(e, s->hidden, rows);
  kvs_op_linear(e, s->mlp_out, s->hidden, rows, &layer_w->mlp_c_proj);
  for (int i = 0; i < rows; i++) recompute_add_noise(w, s->mlp_out + (size_t)i * (size_t)n_embd, n_embd, noise);
  kvs_op_add(s->x_out, s->x_mid, s->mlp_out, all);
  return s->x_out;
}
