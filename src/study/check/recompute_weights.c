/* recompute_weights.c: a layer's weights as logged against those worked out from x and the cached K: all that there is to compare where an
 * engine gives its weights and neither q nor scores, as Hugging Face's output_attentions does. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "study/check/recompute_parts.h"

/* Half the sum of differences up to this is drift, besides that of x. */
#define DRIFT 0.03
/* … and so many times x's own noise: softmax makes more of it. */
#define TIMES 20
/* Where noise may do this, nothing can be said. */
#define BLIND 0.25

/* Mistakes that leave the number of rows as it is. */
static const enum hypothesis tried[] = {HYPOTHESIS_NO_SCALE,   HYPOTHESIS_SCALE_N_EMBD, HYPOTHESIS_FIRST_ROW_ONLY,
                                        HYPOTHESIS_WRONG_AXIS, HYPOTHESIS_INTERLEAVED,  HYPOTHESIS_SHARED_BUFFER,
                                        HYPOTHESIS_ZERO_K_V};

/* The heads' weights, copied, but for rows of padding: [n_head][rows]; a head that was not logged begins with NaN. NULL: none was logged, or no memory. */
static float *logged_weights(struct work *w, int layer, int rows) {
  int n_head = w->config->n_head, pads = w->r->pads, there = 0;
  float *all = malloc((size_t)n_head * (size_t)rows * sizeof *all);
  for (int h = 0; all && h < n_head; h++) {
    const struct look_head *head = look_head(w->look, w->run, w->step, layer, h);
    float *to = all + (size_t)h * (size_t)rows;
    bool good = head && head->weights && !head->q && head->rows >= pads + rows;
    for (int r = pads + rows; good && r < head->rows; r++)
      good = head->weights[r] == 0; /* masked rows behind the end */
    if (good)
      memcpy(to, head->weights + pads, (size_t)rows * sizeof *to);
    else
      *to = NAN;
    there += good;
  }
  if (there) return all;
  free(all);
  return NULL;
}

/* Of the weights that attention has just left in the engine's scratch. *worst: the head; NaN counts as far. */
static double furthest(const struct work *w, const float *logged, int rows, int *worst) {
  const float *right = w->r->engine->s.weights;
  double most = 0;
  *worst = 0;
  for (int h = 0; h < w->config->n_head; h++) {
    const float *a = logged + (size_t)h * (size_t)rows, *b = right + (size_t)h * (size_t)rows;
    double apart = 0;
    if (isnan(*a)) continue;
    for (int r = 0; r < rows; r++) apart += 0.5 * fabs((double)a[r] - (double)b[r]);
    if (!(apart <= most)) most = apart, *worst = h;
  }
  return most;
}

/* A fact for each mistake that explains them. */
static kvs_status guess(struct work *w, int layer, const float *qkv, const float *logged, int rows, double limit,
                        bool *known, kvs_error *err) {
  *known = false;
  for (size_t t = 0; t < sizeof tried / sizeof *tried; t++)
    for (int variant = 0; variant < (tried[t] == HYPOTHESIS_SHARED_BUFFER ? 5 : 1); variant++) {
      int head;
      if (tried[t] == HYPOTHESIS_WRONG_AXIS && w->config->n_head == 1) continue;
      if (!recompute_attend(w, layer, tried[t], variant, qkv, w->r->engine->s.out, 0)) continue;
      double distance = furthest(w, logged, rows, &head);
      if (!(distance <= limit)) continue;
      struct fact fact = recompute_fact_at(w, FACT_CHAIN_HYPOTHESIS, layer);
      *known = true;
      fact.row = w->own_row, fact.found = tried[t], fact.distance = distance;
      if (recompute_fact(w, fact, err)) return err->status;
      break;
    }
  return KVS_OK;
}

kvs_status recompute_weights(struct work *w, int layer, const float *qkv, kvs_error *err) {
  int rows = w->own_row + 1 - w->r->pads, head;
  float *logged = logged_weights(w, layer, rows);
  if (!logged) return KVS_OK;
  double limit = DRIFT + TIMES * recompute_limit(w, layer, w->r->x, INFINITY);
  bool known = true;
  kvs_status status = KVS_OK;
  if (limit < BLIND && recompute_attend(w, layer, HYPOTHESIS_NONE, 0, qkv, w->r->engine->s.out, 0)) {
    double distance = furthest(w, logged, rows, &head);
    if (!(distance <= limit)) status = guess(w, layer, qkv, logged, rows, limit / 2, &known, err);
    if (status == KVS_OK && !known) {
      struct fact fact = recompute_fact_at(w, FACT_WEIGHTS_WRONG, layer);
      fact.head = head, fact.found = fact.distance = distance;
      status = recompute_fact(w, fact, err);
    }
  }
  free(logged);
  return status;
}
