/* recompute_chain.c: from layer to layer: each layer's attention over the trace's own rows must give what the next layer's rows were
 * made of, and the last one's the logits. Where it does not, mistakes are tried, and the climb goes on with the one that fits.
 */
#include <math.h>
#include <string.h>

#include "study/check/recompute_parts.h"

/* Where noise alone does this, nothing can be said. */
#define BLIND 0.25

/* ---- facts ---- */

static kvs_status tell(struct work *w, enum fact_kind kind, int layer, int head, int row, double distance,
                       kvs_error *err) {
  struct fact fact = recompute_fact_at(w, kind, layer);
  fact.head = head, fact.row = row, fact.found = fact.distance = distance;
  return recompute_fact(w, fact, err);
}

/* ---- what a fitting layer has that does not fit ---- */

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

/* x is right here; K, V or q may be wrong all the same: those that fit clearly worse than the best. */
static kvs_status tell_parts(struct work *w, const struct evidence *e, const struct fit *fit, const float *qkv,
                             const float *x, kvs_error *err) {
  double worst = fmax(fit->k, fmax(fit->v, fit->q));
  bool dead = (e->dead_k && e->layer > 0) || e->dead_v;
  if (worst >= 0 || dead) {
    double limit = fmax(recompute_limit(w, e->layer, x, isnan(worst) ? INFINITY : worst),
                        RECOMPUTE_BETTER * recompute_nearest_of(fit));
    if (fit->k > limit && e->layer > 0 && tell(w, FACT_KEY_WRONG, e->layer, -1, e->own_row, fit->k, err))
      return err->status;
    if (fit->v > limit && tell(w, FACT_VALUE_WRONG, e->layer, -1, e->own_row, fit->v, err)) return err->status;
    if (e->dead_k && e->layer > 0 && tell(w, FACT_KEY_WRONG, e->layer, -1, e->own_row, 1, err)) return err->status;
    if (e->dead_v && tell(w, FACT_VALUE_WRONG, e->layer, -1, e->own_row, 1, err)) return err->status;
    if (fit->q > limit && !fit->interleaved && tell_heads(w, e->layer, qkv, limit, err)) return err->status;
  }
  return fit->interleaved ? tell(w, FACT_HEAD_CUT, e->layer, -1, -1, fit->q, err) : KVS_OK;
}

/* From what the heads gave, as logged: whatever was wrong before that. */
static bool restart_from_out(struct work *w, int layer, const struct evidence *here, const float *logged_out) {
  if (!here->all_out) return false;
  memcpy(w->r->engine->s.out, logged_out, (size_t)w->config->n_embd * sizeof(float));
  memcpy(w->r->tried, recompute_finish(w, layer, w->r->x, 1, 0), (size_t)w->config->n_embd * sizeof(float));
  return true;
}

/* Goes on with x after this layer as it would have been with the mistake. */
static void take_guess(struct work *w, int layer, struct climb *climb, const struct trials *trials, int best) {
  struct recompute *r = w->r;
  size_t n = (size_t)w->config->n_embd;
  const struct trial *trial = &trials->trial[best];
  if (trial->how == HYPOTHESIS_SHARED_BUFFER && r->shared_from == LOOK_NONE)
    r->shared_from = w->at.length_before - (w->step - w->batch_step) - (trial->variant == 4);
  if (trial->how == HYPOTHESIS_INTERLEAVED && trial->variant >= 2 && r->woven_from == LOOK_NONE)
    r->woven_from = w->own_row - (w->step - w->batch_step);
  for (int at = trials->from; at <= layer; at++) r->how[at] = trial->how, r->variant[at] = trial->variant;
  r->favourite = trial->how;
  r->favourite_variant =
      trial->how == HYPOTHESIS_SHARED_BUFFER ? 0 : trial->variant; /* now it is known where it began */
  memcpy(r->x, r->tried + (size_t)best * n, n * sizeof(float));
  if (trial->distance <= recompute_limit_least(r))
    recompute_start_noise(w, layer + 1, r->x);
  else
    recompute_start_noise(w, w->noise_start, r->noise_x); /* it has come through this layer the right way */
  climb->fresh = false;
}

/* Goes on from what was logged, if it was. */
static void restart(struct work *w, int layer, struct climb *climb, double limit, const float *logged_out) {
  struct recompute *r = w->r;
  size_t n = (size_t)w->config->n_embd;
  struct fit fit;
  climb->stop = true;
  if (climb->next.x) {
    memcpy(r->x, r->x_in, n * sizeof(float));
    climb->stop = false;
  } else if (restart_from_out(w, layer, &climb->here, logged_out)) {
    recompute_fit_above(w, climb, r->tried, 1, &fit);
    climb->stop = !(recompute_nearest_of(&fit) <= limit);
    if (!climb->stop) memcpy(r->x, r->tried, n * sizeof(float));
  }
  if (!climb->stop) recompute_start_noise(w, layer + 1, r->x);
}

/* Which other step's logits these are: its distance; ABSENT: none's. */
static double other_row(const struct work *w, const struct climb *climb, double distance, double limit, int *step) {
  const struct recompute *r = w->r;
  const float *rows[] = {r->before, r->first};
  const int steps[] = {r->before_step, r->first_step};
  for (int i = 0; i < 2; i++) {
    if (steps[i] == LOOK_NONE || steps[i] == w->step) continue;
    double there = recompute_logits_from(w, &climb->seen, rows[i]);
    if (!(there <= limit) || there * RECOMPUTE_BETTER > distance) continue;
    *step = steps[i];
    return there;
  }
  return ABSENT;
}

/* The logits do not fit x. */
static kvs_status tell_logits(struct work *w, struct climb *climb, double distance, double limit, kvs_error *err) {
  int step = LOOK_NONE;
  double other = other_row(w, climb, distance, limit, &step);
  climb->told_logits = true;
  if (other < 0) return tell(w, FACT_LOGITS_WRONG, -1, -1, -1, distance, err);
  struct fact fact = recompute_fact_at(w, FACT_LOGITS_OTHER_ROW, -1);
  fact.found = step, fact.right = w->step, fact.distance = other, fact.right_distance = distance;
  return recompute_fact(w, fact, err);
}

/* The right way's distance is too large. Adds a fact for each hypothesis that explains it and takes x from the best; or else says
 * where the chain broke. */
static kvs_status broken(struct work *w, int layer, struct climb *climb, double distance, double limit,
                         const float *logged_out, kvs_error *err) {
  struct trials trials = {.count = 0};
  int step, best = recompute_guess(w, layer, climb, distance, limit, false, &trials);
  bool by_logits = climb->next.layer == w->config->n_layer && climb->has_logits && !climb->next.x;
  double other = by_logits ? other_row(w, climb, distance, limit, &step) : ABSENT;
  if (best >= 0 && (other < 0 || trials.trial[best].distance < other)) {
    if (recompute_tell_guess(w, layer, &trials, best, distance, err)) return err->status;
    take_guess(w, layer, climb, &trials, best);
    return KVS_OK;
  }
  if (by_logits) {
    memcpy(w->r->x, w->r->after, (size_t)w->config->n_embd * sizeof(float));
    return tell_logits(w, climb, distance, limit, err);
  }
  if (tell(w, FACT_CHAIN, layer, -1, w->own_row, distance, err)) return err->status;
  restart(w, layer, climb, limit, logged_out);
  return KVS_OK;
}

/* ---- the climb ---- */

static void note_ratio(struct work *w, int layer, const float *x, double distance) {
  if (w->ratio_count == w->ratio_room || !isfinite(distance)) return;
  double level = recompute_noise_level(w, layer, x) / recompute_noise(w->r);
  if (isfinite(level)) w->ratios[w->ratio_count++] = distance / fmax(level, 1);
}

/* One part fits, and others do not: the parts are wrong, or x is after all, if a mistake explains all of them. */
static kvs_status half_fits(struct work *w, int layer, struct climb *climb, double farthest, kvs_error *err) {
  struct trials trials = {.count = 0};
  double limit = recompute_limit(w, layer + 1, w->r->after, farthest);
  int best = farthest > limit ? recompute_guess(w, layer, climb, farthest, BLIND, true, &trials) : -1;
  if (best < 0) {
    memcpy(w->r->x, w->r->after, (size_t)w->config->n_embd * sizeof(float));
    return KVS_OK;
  }
  take_guess(w, layer, climb, &trials, best);
  return recompute_tell_guess(w, layer, &trials, best, farthest, err);
}

/* x after this layer is in r->tried, and what the trace has of the next in climb->next. */
static kvs_status judge(struct work *w, int layer, struct climb *climb, const float *logged_out, kvs_error *err) {
  struct recompute *r = w->r;
  size_t bytes = (size_t)w->config->n_embd * sizeof(float);
  struct fit fit;
  memcpy(r->after, r->tried, bytes);
  recompute_fit_above(w, climb, r->after, 1, &fit);
  if (fit.logits >= 0 || isnan(fit.logits)) {
    memcpy(r->own_logits, r->logits, (size_t)w->config->n_vocab * sizeof(float));
    climb->fresh = true;
  }
  double distance = recompute_nearest_of(&fit), farthest = recompute_farthest_of(&fit);
  bool measured = distance >= 0 && !w->ratios;
  if (distance >= 0 && w->ratios) note_ratio(w, layer + 1, r->after, distance);
  struct trials trials = {.count = 0};
  if (measured && w->sure && recompute_guess_again(w, layer, climb, distance, &trials)) {
    r->reach.layers++;
    take_guess(w, layer, climb, &trials, 0);
    return recompute_tell_guess(w, layer, &trials, 0, distance, err);
  }
  double limit = measured ? recompute_limit(w, layer + 1, r->after, distance) : INFINITY;
  if (measured && fit.logits >= 0) limit += climb->seen.rounding;
  climb->stop = measured && limit > BLIND;
  r->reach.layers += measured && !climb->stop;
  if (!measured || distance <= limit) {
    w->sure |= measured && !climb->stop;
    if (measured && !climb->stop) return half_fits(w, layer, climb, farthest, err);
    memcpy(r->x, r->after, bytes);
    return KVS_OK;
  }
  climb->stop |= !w->sure; /* what x was made of is not known */
  return climb->stop ? KVS_OK : broken(w, layer, climb, distance, limit, logged_out, err);
}

/* The logits of the x that came out at the top, for this step and for those after it. */
static kvs_status finish_logits(struct work *w, struct climb *climb, kvs_error *err) {
  struct recompute *r = w->r;
  size_t bytes = (size_t)w->config->n_vocab * sizeof(float);
  if (!climb->has_logits) return KVS_OK;
  r->reach.logits = true;
  if (!climb->fresh) {
    recompute_logits(w, r->x, 1);
    memcpy(r->own_logits, r->logits, bytes);
  }
  if (!climb->told_logits && !w->ratios) {
    double distance = recompute_logits_from(w, &climb->seen, r->own_logits);
    if (isnan(distance)) distance = INFINITY;
    double limit = recompute_limit(w, w->config->n_layer, r->x, distance) + climb->seen.rounding;
    if (distance > limit && limit <= BLIND && tell_logits(w, climb, distance, limit, err)) return err->status;
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
  memcpy(r->qkv, recompute_project(w, layer, r->x, 1), 3 * n * sizeof(float));
  struct fit fit = recompute_fit(w, &climb->here, r->qkv, r->x);
  double distance = recompute_nearest_of(&fit);
  if (w->ratios || !(distance >= 0 || climb->here.dead_v || climb->here.dead_k)) return KVS_OK;
  if (distance >= 0 && distance <= recompute_limit(w, layer, r->x, distance)) w->sure = true;
  if (!w->sure) return KVS_OK;
  if (tell_parts(w, &climb->here, &fit, r->qkv, r->x, err)) return err->status;
  return w->ratios ? KVS_OK : recompute_weights(w, layer, r->qkv, err);
}

/* x after this layer, from r->x, into r->tried; false: its rows were not logged. */
static bool go_right(struct work *w, int layer) {
  struct recompute *r = w->r;
  const float *after = recompute_ahead_after(w, layer, r->x);
  if (!after && !recompute_attend(w, layer, HYPOTHESIS_NONE, 0, r->qkv, r->engine->s.out, 0)) return false;
  if (!after) after = recompute_finish(w, layer, r->x, 1, 0);
  memcpy(r->tried, after, (size_t)w->config->n_embd * sizeof(float));
  return true;
}

kvs_status recompute_chain(struct work *w, struct evidence *evidence, kvs_error *err) {
  struct recompute *r = w->r;
  size_t n = (size_t)w->config->n_embd;
  int layers = w->config->n_layer;
  struct climb climb = {.here = *evidence};
  climb.has_logits = recompute_find_logits(w, &climb.seen);
  recompute_embed(r, w->token, w->position, r->x);
  recompute_start_noise(w, 0, r->x);
  if (!w->ratios) recompute_ahead(w);
  for (int layer = 0; layer < layers; layer++) {
    if (look_at_layer(w, &climb, layer, err)) return err->status;
    memcpy(r->here_out, r->out, n * sizeof(float));
    r->how[layer] = HYPOTHESIS_NONE, r->variant[layer] = 0;
    bool seen = go_right(w, layer);
    recompute_evidence(w, layer + 1, &climb.next);
    if (seen) {
      if (judge(w, layer, &climb, r->here_out, err)) return err->status;
    } else if (climb.next.x) {
      memcpy(r->x, r->x_in, n * sizeof(float));
      recompute_start_noise(w, layer + 1, r->x);
      w->sure = true;
    } else {
      climb.stop = true;
    }
    if (climb.stop) return KVS_OK;
    climb.here = climb.next;
  }
  return finish_logits(w, &climb, err);
}
