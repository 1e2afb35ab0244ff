/* recompute_chain.c: from layer to layer: each layer's attention over the trace's own rows must give what the next layer's rows were
 * made of, and the last one's the logits. Where it does not, mistakes are tried, and the climb goes on with the one that fits.
 */
#include <math.h>
#include <string.h>

#include "study/recompute_parts.h"

/* So many times the noise is no noise. */
#define CHEAP_TIMES 3
#define NOISE_TIMES 5
/* Where noise alone does this, nothing can be said. */
#define BLIND 0.25
/* A hypothesis must fit better than the right way by this factor. */
#define BETTER 3

static double noise_of(const struct recompute *r) { return fmax(fmax(r->noise_k, r->noise_v), r->drift); }

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

static struct fit fit_layer(const struct work *w, const struct evidence *e, const float *qkv, const float *x) {
  const struct recompute *r = w->r;
  int n = w->config->n_embd;
  struct fit fit = {ABSENT, ABSENT, ABSENT, ABSENT, ABSENT, false};
  if (e->k) fit.k = recompute_distance(r->k, qkv + n, n);
  if (e->v) fit.v = recompute_distance(r->v, qkv + 2 * n, n);
  if (e->x) fit.x = recompute_distance(r->x_in, x, n);
  if (!e->any_q) return fit;
  fit.q = q_distance(w, r->q, qkv, false);
  double woven = w->config->n_head > 1 && w->config->head_dim > 1 ? q_distance(w, r->q, qkv, true) : fit.q;
  fit.interleaved = woven * BETTER < fit.q;
  if (fit.interleaved) fit.q = woven;
  return fit;
}

/* The best of what there is; ABSENT. What is NaN does not fit: infinite. */
static double nearest(const struct fit *fit) {
  const double all[] = {fit->k, fit->v, fit->q, fit->x, fit->logits};
  double best = ABSENT;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    double d = isnan(all[i]) ? INFINITY : all[i];
    if (d >= 0 && (best < 0 || d < best)) best = d;
  }
  return best;
}

/* ---- how far noise would bring it ---- */

/* Takes the noisy copies of x up to this layer. */
static bool climb_with_noise(struct work *w, int layer, double noise) {
  struct recompute *r = w->r;
  size_t n = (size_t)w->config->n_embd;
  for (; w->noise_layer < layer; w->noise_layer++) {
    int at = w->noise_layer;
    for (int i = 0; i < NOISE_DRAWS; i++) {
      const float *qkv = recompute_project(r, at, r->noisy + (size_t)i * n, 1);
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
static double noise_level(struct work *w, int layer, const float *x) {
  struct recompute *r = w->r;
  size_t n = (size_t)w->config->n_embd;
  if (!climb_with_noise(w, layer, noise_of(r))) return INFINITY;
  float *three = r->tried; /* the clean x and the noisy ones */
  memcpy(three, x, n * sizeof(float));
  memcpy(three + n, r->noisy, NOISE_DRAWS * n * sizeof(float));
  double level = 0;
  if (layer == w->config->n_layer) {
    size_t wide = (size_t)w->config->n_vocab;
    recompute_logits(r, three, 1 + NOISE_DRAWS);
    for (size_t i = 1; i <= NOISE_DRAWS; i++)
      level = fmax(level, logits_distance(r->logits + i * wide, r->logits, (int)wide));
    return level;
  }
  const float *qkv = recompute_project(r, layer, three, 1 + NOISE_DRAWS);
  for (size_t i = 1; i <= NOISE_DRAWS; i++)
    for (size_t part = 0; part < 3; part++)
      level = fmax(level, recompute_distance(qkv + (i * 3 + part) * n, qkv + part * n, (int)n));
  return level;
}

/* From an x that is known to be right. */
static void start_noise(struct work *w, int layer, const float *x) {
  size_t n = (size_t)w->config->n_embd;
  w->noise_layer = w->noise_start = layer;
  if (x != w->r->noise_x) memcpy(w->r->noise_x, x, n * sizeof(float));
  for (size_t i = 0; i < NOISE_DRAWS; i++) {
    memcpy(w->r->noisy + i * n, x, n * sizeof(float));
    recompute_add_noise(w, w->r->noisy + i * n, (int)n, layer == 0 ? 0 : noise_of(w->r));
  }
}

/* ---- the logits ---- */

/* The trace's logits, whole, or of the best tokens only. */
struct seen_logits {
  const float *all;
  const struct look_top *top;
  double rounding; /* how coarsely they are stored, as a part of their spread */
};

static double top_distance(const struct look_top *top, const float *logits, int n) {
  double shift = 0, square = 0;
  for (int i = 0; i < top->count; i++) shift += top->token[i].logit - (double)logits[top->token[i].token];
  for (int i = 0; i < top->count; i++) {
    double d = top->token[i].logit - (double)logits[top->token[i].token] - shift / top->count;
    square += d * d;
  }
  return square == 0 ? 0 : sqrt(square / top->count) / logits_spread(logits, n);
}

static double seen_distance(const struct work *w, const struct seen_logits *seen, const float *logits) {
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

static bool find_logits(struct work *w, struct seen_logits *seen) {
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

/* ---- facts ---- */

static struct fact fact_at(const struct work *w, enum fact_kind kind, int layer) {
  return (struct fact){.kind = kind,
                       .run = w->run,
                       .step = w->step,
                       .layer = layer,
                       .head = -1,
                       .row = -1,
                       .distance = NAN,
                       .right_distance = NAN};
}

static kvs_status tell(struct work *w, enum fact_kind kind, int layer, int head, int row, double distance,
                       kvs_error *err) {
  struct fact fact = fact_at(w, kind, layer);
  fact.head = head, fact.row = row, fact.found = fact.distance = distance;
  return recompute_fact(w, fact, err);
}

/* ---- what a fitting layer has that does not fit ---- */

static double limit_at(struct work *w, int layer, const float *x, double distance) {
  double noise = noise_of(w->r);
  if (distance <= CHEAP_TIMES * noise) return CHEAP_TIMES * noise;
  return CHEAP_TIMES * noise + NOISE_TIMES * noise_level(w, layer, x);
}

static kvs_status tell_heads(struct work *w, int layer, const float *qkv, double limit, kvs_error *err) {
  const kvs_config *c = w->config;
  double usual = 0;
  for (int i = 0; i < c->n_embd; i++) usual += (double)qkv[i] * (double)qkv[i];
  usual = sqrt(usual / c->n_head);
  for (int h = 0; h < c->n_head; h++) {
    if (!w->r->head_q[h]) continue;
    const float *right = qkv + (size_t)h * (size_t)c->head_dim, *logged = w->r->q + (size_t)h * (size_t)c->head_dim;
    double difference = 0, size = 0;
    for (int d = 0; d < c->head_dim; d++) {
      double e = (double)logged[d] - (double)right[d];
      difference += e * e, size += (double)right[d] * (double)right[d];
    }
    double distance = sqrt(difference) / fmax(sqrt(size), usual);
    if (distance > limit && tell(w, FACT_QUERY_WRONG, layer, h, -1, distance, err)) return err->status;
  }
  return KVS_OK;
}

/* x is right here; K, V or q may be wrong all the same. */
static kvs_status tell_parts(struct work *w, const struct evidence *e, const struct fit *fit, const float *qkv,
                             const float *x, kvs_error *err) {
  double worst = fmax(fit->k, fmax(fit->v, fit->q));
  bool dead = (e->dead_k && e->layer > 0) || e->dead_v;
  if (worst >= 0 || dead) {
    double limit = limit_at(w, e->layer, x, isnan(worst) ? INFINITY : worst);
    if (fit->k > limit && e->layer > 0 && tell(w, FACT_KEY_WRONG, e->layer, -1, e->own_row, fit->k, err))
      return err->status;
    if (fit->v > limit && tell(w, FACT_VALUE_WRONG, e->layer, -1, e->own_row, fit->v, err)) return err->status;
    if (e->dead_k && e->layer > 0 && tell(w, FACT_KEY_WRONG, e->layer, -1, e->own_row, 1, err)) return err->status;
    if (e->dead_v && tell(w, FACT_VALUE_WRONG, e->layer, -1, e->own_row, 1, err)) return err->status;
    if (fit->q > limit && !fit->interleaved && tell_heads(w, e->layer, qkv, limit, err)) return err->status;
  }
  return fit->interleaved ? tell(w, FACT_HEAD_CUT, e->layer, -1, -1, fit->q, err) : KVS_OK;
}

/* ---- hypotheses ---- */

struct trial {
  enum hypothesis how;
  int variant;
  double distance;
};

static int variants(enum hypothesis how) {
  return how == HYPOTHESIS_SHARED_BUFFER ? 4 : how == HYPOTHESIS_INTERLEAVED ? 2 : 1;
}

static bool may_be(const struct work *w, enum hypothesis how) {
  if (how == HYPOTHESIS_WHOLE_BATCH) return w->at.mode == KVS_PREFILL;
  if (how == HYPOTHESIS_WRONG_AXIS || how == HYPOTHESIS_INTERLEAVED) return w->config->n_head > 1;
  return true;
}

/* Attention under each hypothesis that is possible here, x after this layer for each in r->tried. */
static int try_all(struct work *w, int layer, struct trial *trials) {
  struct recompute *r = w->r;
  size_t n = (size_t)w->config->n_embd;
  int count = 0;
  for (enum hypothesis how = HYPOTHESIS_WITHOUT_ITSELF; how < HYPOTHESIS_COUNT; how++)
    for (int variant = 0; may_be(w, how) && variant < variants(how) && count < MOST_ROWS; variant++)
      if (recompute_attend(w, layer, how, variant, r->qkv, r->engine->s.out + (size_t)count * n, 0))
        trials[count++] = (struct trial){how, variant, INFINITY};
  for (int i = 0; i < count; i++) memcpy(r->tried + (size_t)i * n, r->x, n * sizeof(float));
  if (count > 0) memcpy(r->tried, recompute_finish(w, layer, r->tried, count, 0), (size_t)count * n * sizeof(float));
  return count;
}

/* Their distances from the next layer's evidence, or the logits. */
static void measure(struct work *w, const struct evidence *next, const struct seen_logits *seen, struct trial *trials,
                    int count) {
  struct recompute *r = w->r;
  size_t n = (size_t)w->config->n_embd, n_vocab = (size_t)w->config->n_vocab;
  bool top = next->layer == w->config->n_layer;
  const float *qkv = top ? NULL : recompute_project(r, next->layer, r->tried, count);
  if (top) recompute_logits(r, r->tried, count);
  for (int i = 0; i < count; i++) {
    struct fit fit = {ABSENT, ABSENT, ABSENT, ABSENT, ABSENT, false};
    const float *x = r->tried + (size_t)i * n;
    if (!top)
      fit = fit_layer(w, next, qkv + (size_t)i * 3 * n, x);
    else if (next->x)
      fit.x = recompute_distance(r->x_in, x, (int)n);
    else
      fit.logits = seen_distance(w, seen, r->logits + (size_t)i * n_vocab);
    trials[i].distance = nearest(&fit);
  }
}

/* From what the heads gave, as logged: whatever was wrong before that. */
static bool restart_from_out(struct work *w, int layer, const struct evidence *here, const float *logged_out) {
  if (!here->all_out) return false;
  memcpy(w->r->engine->s.out, logged_out, (size_t)w->config->n_embd * sizeof(float));
  memcpy(w->r->tried, recompute_finish(w, layer, w->r->x, 1, 0), (size_t)w->config->n_embd * sizeof(float));
  return true;
}

struct climb {
  struct evidence here, next;
  struct seen_logits seen;
  bool has_logits, told_logits;
  bool fresh; /* r->logits has what comes of r->x at the top */
  bool stop;
};

/* The right way's distance is too large. Adds a fact for each hypothesis that explains it and takes x from the best; or else says where
 * the chain broke, and restarts from what was logged. */
static kvs_status broken(struct work *w, int layer, struct climb *climb, double distance, double limit,
                         const float *logged_out, kvs_error *err) {
  struct recompute *r = w->r;
  size_t n = (size_t)w->config->n_embd;
  struct trial trials[MOST_ROWS];
  int count = try_all(w, layer, trials), best = -1;
  measure(w, &climb->next, &climb->seen, trials, count);
  for (int i = 0; i < count; i++)
    if (best < 0 || trials[i].distance < trials[best].distance) best = i;
  bool found = best >= 0 && trials[best].distance <= limit && trials[best].distance * BETTER < distance;
  for (int i = 0; found && i < count; i++) {
    bool fits = trials[i].distance <= limit && trials[i].distance * BETTER < distance;
    bool said = i > 0 && trials[i - 1].how == trials[i].how && trials[i - 1].distance <= limit;
    if (!fits || said) continue;
    struct fact fact = fact_at(w, FACT_CHAIN_HYPOTHESIS, layer);
    fact.row = w->own_row, fact.found = trials[i].how, fact.distance = trials[i].distance,
    fact.right_distance = distance;
    if (recompute_fact(w, fact, err)) return err->status;
  }
  if (found) {
    if (trials[best].how == HYPOTHESIS_SHARED_BUFFER && r->shared_from == LOOK_NONE)
      r->shared_from = w->at.length_before - (w->step - w->batch_step);
    r->how[layer] = trials[best].how, r->variant[layer] = trials[best].variant;
    memcpy(r->x, r->tried + (size_t)best * n, n * sizeof(float));
    start_noise(w, w->noise_start, r->noise_x); /* it has come through this layer the right way */
    climb->fresh = false;
    return KVS_OK;
  }
  if (climb->next.layer < w->config->n_layer || climb->next.x) {
    if (tell(w, FACT_CHAIN, layer, -1, w->own_row, distance, err)) return err->status;
  } else {
    climb->stop = true;
    return tell(w, FACT_LOGITS_WRONG, -1, -1, -1, distance, err);
  }
  if (restart_from_out(w, layer, &climb->here, logged_out)) {
    struct trial out = {HYPOTHESIS_NONE, 0, INFINITY};
    measure(w, &climb->next, &climb->seen, &out, 1);
    if (out.distance <= limit) {
      memcpy(r->x, r->tried, n * sizeof(float));
      start_noise(w, layer + 1, r->x);
      return KVS_OK;
    }
  }
  climb->stop = !climb->next.x;
  if (climb->next.x) {
    memcpy(r->x, r->x_in, n * sizeof(float));
    start_noise(w, layer + 1, r->x);
  }
  return KVS_OK;
}

/* ---- the climb ---- */

static void note_ratio(struct work *w, int layer, const float *x, double distance) {
  if (w->ratio_count == w->ratio_room || !isfinite(distance)) return;
  double level = noise_level(w, layer, x) / noise_of(w->r);
  if (isfinite(level)) w->ratios[w->ratio_count++] = distance / fmax(level, 1);
}

/* Whether the logits are another step's. */
static kvs_status other_row(struct work *w, const struct seen_logits *seen, double distance, double limit, bool *found,
                            kvs_error *err) {
  const struct recompute *r = w->r;
  const float *rows[] = {r->before, r->first};
  const int steps[] = {r->before_step, r->first_step};
  *found = false;
  for (int i = 0; i < 2 && !*found; i++) {
    if (steps[i] == LOOK_NONE || steps[i] == w->step) continue;
    double there = seen_distance(w, seen, rows[i]);
    if (!(there <= limit) || there * BETTER > distance) continue;
    struct fact fact = fact_at(w, FACT_LOGITS_OTHER_ROW, -1);
    fact.found = steps[i], fact.right = w->step, fact.distance = there, fact.right_distance = distance;
    if (recompute_fact(w, fact, err)) return err->status;
    *found = true;
  }
  return KVS_OK;
}

/* Layer by layer, x after the layer is in r->tried[0] and the trace's evidence of the next in climb->next. */
static kvs_status judge(struct work *w, int layer, struct climb *climb, const float *logged_out, kvs_error *err) {
  struct recompute *r = w->r;
  size_t n = (size_t)w->config->n_embd;
  bool top = layer + 1 == w->config->n_layer;
  float *x = r->after;
  memcpy(x, r->tried, n * sizeof(float));
  struct fit fit = {ABSENT, ABSENT, ABSENT, ABSENT, ABSENT, false};
  if (!top)
    fit = fit_layer(w, &climb->next, recompute_project(r, layer + 1, x, 1), x);
  else if (climb->next.x)
    fit.x = recompute_distance(r->x_in, x, (int)n);
  else if (climb->has_logits) {
    recompute_logits(r, x, 1);
    memcpy(r->own_logits, r->logits, (size_t)w->config->n_vocab * sizeof(float));
    climb->fresh = true;
    fit.logits = seen_distance(w, &climb->seen, r->logits);
  }
  double distance = nearest(&fit), extra = top && !climb->next.x ? climb->seen.rounding : 0;
  if (distance >= 0 && w->ratios) note_ratio(w, layer + 1, x, distance);
  if (distance < 0 || w->ratios) {
    memcpy(r->x, x, n * sizeof(float));
    return KVS_OK;
  }
  double limit = limit_at(w, layer + 1, x, distance) + extra;
  if (limit > BLIND) {
    climb->stop = true;
    return KVS_OK;
  }
  r->reach.layers++;
  if (distance <= limit) {
    w->sure = true;
    memcpy(r->x, x, n * sizeof(float));
    return KVS_OK;
  }
  if (!w->sure) { /* what x was made of is not known */
    climb->stop = true;
    return KVS_OK;
  }
  bool found = false;
  if (top && !climb->next.x && other_row(w, &climb->seen, distance, limit, &found, err)) return err->status;
  if (found) {
    memcpy(r->x, x, n * sizeof(float));
    climb->told_logits = true;
    return KVS_OK;
  }
  return broken(w, layer, climb, distance, limit, logged_out, err);
}

/* The logits of the x that came out at the top, for this step and for those after it. */
static kvs_status finish_logits(struct work *w, struct climb *climb, kvs_error *err) {
  struct recompute *r = w->r;
  size_t bytes = (size_t)w->config->n_vocab * sizeof(float);
  if (!climb->has_logits) return KVS_OK;
  r->reach.logits = true;
  if (!climb->fresh) {
    recompute_logits(r, r->x, 1);
    memcpy(r->own_logits, r->logits, bytes);
  }
  if (!climb->told_logits && !w->ratios) {
    double distance = seen_distance(w, &climb->seen, r->own_logits);
    if (isnan(distance)) distance = INFINITY;
    double limit = limit_at(w, w->config->n_layer, r->x, distance) + climb->seen.rounding;
    bool found;
    if (distance > limit && limit <= BLIND) {
      if (other_row(w, &climb->seen, distance, limit, &found, err)) return err->status;
      if (!found && tell(w, FACT_LOGITS_WRONG, -1, -1, -1, distance, err)) return err->status;
    }
  }
  memcpy(r->before, r->own_logits, bytes);
  r->before_step = w->step;
  if (w->step == w->batch_step) memcpy(r->first, r->own_logits, bytes), r->first_step = w->step;
  return KVS_OK;
}

/* What can be said of layer `layer` before its attention: do K, V and q follow from x? */
static kvs_status look_at_layer(struct work *w, struct climb *climb, int layer, kvs_error *err) {
  struct recompute *r = w->r;
  size_t n = (size_t)w->config->n_embd;
  memcpy(r->qkv, recompute_project(r, layer, r->x, 1), 3 * n * sizeof(float));
  struct fit fit = fit_layer(w, &climb->here, r->qkv, r->x);
  double distance = nearest(&fit);
  if (w->ratios || !(distance >= 0 || climb->here.dead_v || climb->here.dead_k)) return KVS_OK;
  if (distance >= 0 && distance <= limit_at(w, layer, r->x, distance)) w->sure = true;
  if (!w->sure) return KVS_OK;
  return tell_parts(w, &climb->here, &fit, r->qkv, r->x, err);
}

kvs_status recompute_chain(struct work *w, struct evidence *evidence, kvs_error *err) {
  struct recompute *r = w->r;
  size_t n = (size_t)w->config->n_embd;
  int layers = w->config->n_layer;
  struct climb climb = {.here = *evidence};
  climb.has_logits = find_logits(w, &climb.seen);
  recompute_embed(r, w->token, w->position, r->x);
  start_noise(w, 0, r->x);
  for (int layer = 0; layer < layers; layer++) {
    if (look_at_layer(w, &climb, layer, err)) return err->status;
    memcpy(r->here_out, r->out, n * sizeof(float));
    r->how[layer] = HYPOTHESIS_NONE, r->variant[layer] = 0;
    bool seen = recompute_attend(w, layer, HYPOTHESIS_NONE, 0, r->qkv, r->engine->s.out, 0);
    if (seen) memcpy(r->tried, recompute_finish(w, layer, r->x, 1, 0), n * sizeof(float));
    recompute_evidence(w, layer + 1, &climb.next);
    if (seen) {
      if (judge(w, layer, &climb, r->here_out, err)) return err->status;
    } else if (climb.next.x) {
      memcpy(r->x, r->x_in, n * sizeof(float));
      start_noise(w, layer + 1, r->x);
      w->sure = true;
    } else {
      climb.stop = true;
    }
    if (climb.stop) return KVS_OK;
    climb.here = climb.next;
  }
  return finish_logits(w, &climb, err);
}
