/* recompute_fit.c: how far recomputed numbers are from those of the trace, and how far noise alone would bring them. */
#include <math.h>
#include <string.h>

#include "study/check/recompute_parts.h"

/* So many times the noise is no noise. */
#define CHEAP_TIMES 3
#define NOISE_TIMES 5

double recompute_noise(const struct recompute *r) { return fmax(fmax(r->noise_k, r->noise_v), r->drift); }

/* ---- how far apart ---- */

static double q_distance(const struct work *w, const float *logged, const float *q, bool woven) {
  const kvs_config *c = w->config;
  double difference = 0, size = 0;
  for (int h = 0; h < c->n_head; h++) {
    if (!w->r->head_q[h]) continue;
    for (int d = 0; d < c->head_dim; d++) {
      int side = h * c->head_dim + d;
      double right = (double)q[woven ? d * c->n_head + h : side], e = (double)logged[side] - right;
      difference += e * e, size += right * right;
    }
  }
  return difference == 0 ? 0 : sqrt(difference / size);
}

struct fit recompute_fit(const struct work *w, const struct evidence *e, const float *qkv, const float *x) {
  const struct recompute *r = w->r;
  int n = w->config->n_embd;
  struct fit fit = recompute_no_fit;
  if (e->k) fit.k = recompute_distance(r->k, qkv + n, n);
  if (e->v) fit.v = recompute_distance(r->v, qkv + 2 * n, n);
  if (e->x) fit.x = recompute_distance(r->x_in, x, n);
  if (!e->any_q) return fit;
  fit.q = q_distance(w, r->q, qkv, false);
  double woven = w->config->n_head > 1 && w->config->head_dim > 1 ? q_distance(w, r->q, qkv, true) : fit.q;
  fit.interleaved = woven * RECOMPUTE_BETTER < fit.q;
  if (fit.interleaved) fit.q = woven;
  return fit;
}

const struct fit recompute_no_fit = {ABSENT, ABSENT, ABSENT, ABSENT, ABSENT, false};

/* What is NaN does not fit: infinite. */
static double outermost(const struct fit *fit, bool least) {
  const double all[] = {fit->k, fit->v, fit->q, fit->x, fit->logits};
  double found = ABSENT;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    double d = isnan(all[i]) ? INFINITY : all[i];
    if (d >= 0 && (found < 0 || (least ? d < found : d > found))) found = d;
  }
  return found;
}

double recompute_nearest_of(const struct fit *fit) { return outermost(fit, true); }
double recompute_farthest_of(const struct fit *fit) { return outermost(fit, false); }

/* ---- how far noise would bring it ---- */

/* Takes the noisy copies of x up to this layer. */
static bool climb_with_noise(struct work *w, int layer, double noise) {
  struct recompute *r = w->r;
  size_t n = (size_t)w->config->n_embd;
  for (; w->noise_layer < layer; w->noise_layer++) {
    int at = w->noise_layer;
    for (int i = 0; i < NOISE_DRAWS; i++) {
      const float *qkv = recompute_project(w, at, r->noisy + (size_t)i * n, 1);
      memcpy(r->next, qkv, n * sizeof(float));
      recompute_add_noise(w, r->next, (int)n, noise);
      if (!recompute_attend(w, at, r->how[at], r->variant[at], r->next, r->engine->s.out + (size_t)i * n, noise))
        return false;
    }
    memcpy(r->noisy, recompute_finish(w, at, r->noisy, NOISE_DRAWS, noise), NOISE_DRAWS * n * sizeof(float));
  }
  return true;
}

static double logits_spread(const float *logits, int n) {
  double sum = 0, square = 0;
  for (int i = 0; i < n; i++) sum += (double)logits[i];
  for (int i = 0; i < n; i++) square += ((double)logits[i] - sum / n) * ((double)logits[i] - sum / n);
  return sqrt(square / n);
}

/* |a − b| but for a constant, over the spread of b: softmax sees no more. */
static double logits_distance(const float *a, const float *b, int n) {
  double shift = 0, square = 0;
  for (int i = 0; i < n; i++) shift += (double)a[i] - (double)b[i];
  for (int i = 0; i < n; i++) {
    double d = (double)a[i] - (double)b[i] - shift / n;
    square += d * d;
  }
  return square == 0 ? 0 : sqrt(square / n) / logits_spread(b, n);
}

/* How far the noisy copies' k, v and q (or logits) of this layer are from the clean ones of x. INFINITY: not to be known. */
double recompute_noise_level(struct work *w, int layer, const float *x) {
  struct recompute *r = w->r;
  size_t n = (size_t)w->config->n_embd;
  if (!climb_with_noise(w, layer, recompute_noise(r))) return INFINITY;
  float *three = r->tried; /* the clean x and the noisy ones */
  memcpy(three, x, n * sizeof(float));
  memcpy(three + n, r->noisy, NOISE_DRAWS * n * sizeof(float));
  double level = 0;
  if (layer == w->config->n_layer) {
    size_t wide = (size_t)w->config->n_vocab;
    recompute_logits(w, three, 1 + NOISE_DRAWS);
    for (size_t i = 1; i <= NOISE_DRAWS; i++)
      level = fmax(level, logits_distance(r->logits + i * wide, r->logits, (int)wide));
    return level;
  }
  const float *qkv = recompute_project(w, layer, three, 1 + NOISE_DRAWS);
  for (size_t i = 1; i <= NOISE_DRAWS; i++)
    for (size_t part = 0; part < 3; part++)
      level = fmax(level, recompute_distance(qkv + (i * 3 + part) * n, qkv + part * n, (int)n));
  return level;
}

/* From an x that is known to be right. */
void recompute_start_noise(struct work *w, int layer, const float *x) {
  size_t n = (size_t)w->config->n_embd;
  w->noise_layer = w->noise_start = layer;
  if (x != w->r->noise_x) memcpy(w->r->noise_x, x, n * sizeof(float));
  for (size_t i = 0; i < NOISE_DRAWS; i++) {
    memcpy(w->r->noisy + i * n, x, n * sizeof(float));
    recompute_add_noise(w, w->r->noisy + i * n, (int)n, layer == 0 ? 0 : recompute_noise(w->r));
  }
}

double recompute_limit_least(const struct recompute *r) { return CHEAP_TIMES * recompute_noise(r); }

double recompute_limit(struct work *w, int layer, const float *x, double distance) {
  double noise = recompute_noise(w->r);
  if (distance <= CHEAP_TIMES * noise) return CHEAP_TIMES * noise;
  return CHEAP_TIMES * noise + NOISE_TIMES * recompute_noise_level(w, layer, x);
}

/* ---- the logits ---- */

static double top_distance(const struct look_top *top, const float *logits, int n) {
  double shift = 0, square = 0;
  for (int i = 0; i < top->count; i++) shift += top->token[i].logit - (double)logits[top->token[i].token];
  for (int i = 0; i < top->count; i++) {
    double d = top->token[i].logit - (double)logits[top->token[i].token] - shift / top->count;
    square += d * d;
  }
  return square == 0 ? 0 : sqrt(square / top->count) / logits_spread(logits, n);
}

double recompute_logits_from(const struct work *w, const struct seen_logits *seen, const float *logits) {
  int n = w->config->n_vocab;
  return seen->all ? logits_distance(seen->all, logits, n) : top_distance(seen->top, logits, n);
}

/* fp16 keeps 11 bits of a logit and bf16 8; and where the logits are far from 0 and near each other, that is much of their spread. */
static double rounding_of(const float *values, int n) {
  int bits = 8;
  double square = 0;
  for (int i = 0; i < n && bits < 24; i++) {
    uint32_t word;
    memcpy(&word, &values[i], sizeof word);
    if (word & 0x1FFF)
      bits = 24;
    else if (word & 0xFFFF && bits < 11)
      bits = 11;
    square += (double)values[i] * (double)values[i];
  }
  return bits == 24 ? 0 : ldexp(sqrt(square / n), -bits) / logits_spread(values, n);
}

bool recompute_find_logits(struct work *w, struct seen_logits *seen) {
  *seen = (struct seen_logits){0};
  int n = w->config->n_vocab;
  const struct look_vectors *vectors = look_vectors(w->look, w->run, w->step);
  if (vectors && vectors->logits) {
    memcpy(w->r->seen, vectors->logits, (size_t)n * sizeof(float));
    seen->all = w->r->seen, seen->rounding = rounding_of(w->r->seen, n);
    return true;
  }
  seen->top = look_top(w->look, w->run, w->step);
  if (!seen->top || seen->top->count < 2) return false; /* one alone says nothing: a constant may be added */
  float values[LOOK_TOP];
  for (int i = 0; i < seen->top->count; i++) {
    int token = seen->top->token[i].token;
    if (token < 0 || token >= n || !isfinite(seen->top->token[i].logit)) return false;
    values[i] = (float)seen->top->token[i].logit;
  }
  seen->rounding = rounding_of(values, seen->top->count);
  return true;
}

/* ---- what a layer hands on ---- */

void recompute_fit_above(struct work *w, const struct climb *climb, const float *x, int rows, struct fit *fits) {
  struct recompute *r = w->r;
  size_t n = (size_t)w->config->n_embd, n_vocab = (size_t)w->config->n_vocab;
  bool top = climb->next.layer == w->config->n_layer, by_logits = top && !climb->next.x && climb->has_logits;
  const float *qkv = top ? NULL : recompute_project(w, climb->next.layer, x, rows);
  if (by_logits) recompute_logits(w, x, rows);
  for (int i = 0; i < rows; i++) {
    fits[i] = recompute_no_fit;
    if (!top)
      fits[i] = recompute_fit(w, &climb->next, qkv + (size_t)i * 3 * n, x + (size_t)i * n);
    else if (by_logits)
      fits[i].logits = recompute_logits_from(w, &climb->seen, r->logits + (size_t)i * n_vocab);
    else if (climb->next.x)
      fits[i].x = recompute_distance(r->x_in, x + (size_t)i * n, (int)n);
  }
}
