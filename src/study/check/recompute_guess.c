/* recompute_guess.c: mistakes that a layer's attention may have made, tried side by side. */
#include <math.h>
#include <string.h>

#include "study/check/recompute_parts.h"

static int variants(enum hypothesis how) {
  return how == HYPOTHESIS_SHARED_BUFFER ? 5 : how == HYPOTHESIS_INTERLEAVED ? 4 : 1;
}

static bool may_be(const struct work *w, enum hypothesis how) {
  if (how == HYPOTHESIS_PADDING) return w->r->pads > 0;
  if (how == HYPOTHESIS_WHOLE_BATCH) return w->at.mode == KVS_PREFILL;
  if (how == HYPOTHESIS_WRONG_AXIS || how == HYPOTHESIS_INTERLEAVED) return w->config->n_head > 1;
  return true;
}

/* Attention under each hypothesis that is possible here, x after this layer for each in r->tried. */
static void try_here(struct work *w, int layer, struct trials *trials) {
  struct recompute *r = w->r;
  size_t n = (size_t)w->config->n_embd;
  int count = 0;
  for (enum hypothesis how = HYPOTHESIS_WITHOUT_ITSELF; how < HYPOTHESIS_COUNT; how++)
    for (int variant = 0; may_be(w, how) && variant < variants(how) && count < MOST_ROWS; variant++)
      if (recompute_attend(w, layer, how, variant, r->qkv, r->engine->s.out + (size_t)count * n, 0))
        trials->trial[count++] = (struct trial){how, variant, INFINITY};
  for (int i = 0; i < count; i++) memcpy(r->tried + (size_t)i * n, r->x, n * sizeof(float));
  if (count > 0) memcpy(r->tried, recompute_finish(w, layer, r->tried, count, 0), (size_t)count * n * sizeof(float));
  trials->count = count, trials->from = layer;
}

/* The same from where x was last known to be right: a mistake too mild to be seen in one layer may add up over several. */
static void try_from_below(struct work *w, int layer, struct trials *trials) {
  struct recompute *r = w->r;
  size_t n = (size_t)w->config->n_embd;
  int count = 0;
  for (enum hypothesis how = HYPOTHESIS_WITHOUT_ITSELF; how < HYPOTHESIS_COUNT; how++)
    for (int variant = 0; may_be(w, how) && variant < variants(how) && count < MOST_ROWS; variant++)
      trials->trial[count++] = (struct trial){how, variant, INFINITY};
  for (int i = 0; i < count; i++) memcpy(r->tried + (size_t)i * n, r->noise_x, n * sizeof(float));
  trials->count = count, trials->from = w->noise_start;
  for (int at = w->noise_start; at <= layer; at++) {
    const float *qkv = recompute_project(w, at, r->tried, count);
    for (int i = 0; i < count; i++) {
      const struct trial *trial = &trials->trial[i];
      const float *q = qkv + (size_t)i * 3 * n;
      float *out = r->engine->s.out + (size_t)i * n;
      if (!recompute_attend(w, at, trial->how, trial->variant, q, out, 0) &&
          !recompute_attend(w, at, HYPOTHESIS_NONE, 0, q, out, 0))
        trials->count = 0; /* a layer whose rows were not logged */
    }
    memcpy(r->tried, recompute_finish(w, at, r->tried, count, 0), (size_t)count * n * sizeof(float));
  }
}

/* The one that fits best, if it fits at all, and better than the right way; -1. */
static int choose(struct work *w, const struct climb *climb, double distance, double limit, bool strict,
                  struct trials *trials) {
  struct fit fits[MOST_ROWS];
  int best = -1;
  if (trials->count > 0) recompute_fit_above(w, climb, w->r->tried, trials->count, fits);
  for (int i = 0; i < trials->count; i++) {
    struct trial *trial = &trials->trial[i];
    trial->distance = strict ? recompute_farthest_of(&fits[i]) : recompute_nearest_of(&fits[i]);
    if (best < 0 || trial->distance < trials->trial[best].distance) best = i;
  }
  if (best < 0) return -1;
  double found = trials->trial[best].distance;
  return found <= limit && found * RECOMPUTE_BETTER < distance ? best : -1;
}

/* Which it was the last time, if that fits so well, and the right way so badly, that nothing else need be tried. A short cache is left
 * out: there several mistakes are one. */
bool recompute_guess_again(struct work *w, int layer, const struct climb *climb, double distance,
                           struct trials *trials) {
  struct recompute *r = w->r;
  size_t n = (size_t)w->config->n_embd;
  double least = recompute_limit_least(r);
  struct trial *trial = trials->trial;
  struct fit fit;
  if (r->favourite == HYPOTHESIS_NONE || w->own_row < 3 || !(distance > 10 * least)) return false;
  *trial = (struct trial){r->favourite, r->favourite_variant, INFINITY};
  trials->count = 1, trials->from = layer;
  if (!may_be(w, trial->how)) return false;
  if (!recompute_attend(w, layer, trial->how, trial->variant, r->qkv, r->engine->s.out, 0)) return false;
  memcpy(r->tried, recompute_finish(w, layer, r->x, 1, 0), n * sizeof(float));
  recompute_fit_above(w, climb, r->tried, 1, &fit);
  trial->distance = recompute_nearest_of(&fit);
  return recompute_farthest_of(&fit) <= least;
}

int recompute_guess(struct work *w, int layer, const struct climb *climb, double distance, double limit, bool strict,
                    struct trials *trials) {
  try_here(w, layer, trials);
  int best = choose(w, climb, distance, limit, strict, trials);
  if (best >= 0 || layer == w->noise_start) return best;
  try_from_below(w, layer, trials);
  return choose(w, climb, distance, limit, strict, trials);
}

kvs_status recompute_tell_guess(struct work *w, int layer, const struct trials *trials, int best, double distance,
                                kvs_error *err) {
  const struct trial *first = &trials->trial[best];
  double as_well = 2 * fmax(first->distance, recompute_noise(w->r));
  for (int i = -1; i < trials->count; i++) {
    const struct trial *trial = i < 0 ? first : &trials->trial[i];
    bool said = i >= 0 && (trial->how == first->how || (i > 0 && trials->trial[i - 1].how == trial->how));
    if (said || trial->distance > as_well) continue;
    struct fact fact = recompute_fact_at(w, FACT_CHAIN_HYPOTHESIS, layer);
    fact.row = w->own_row, fact.found = trial->how, fact.distance = trial->distance, fact.right_distance = distance;
    if (recompute_fact(w, fact, err)) return err->status;
  }
  return KVS_OK;
}
