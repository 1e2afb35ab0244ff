/* recompute_ahead.c: the right way through the layers for some steps side by side. A layer's weights are then read from memory once for
 * all of them, which is most of the time. The numbers are the same bits as one step's alone, so the climb takes them where it comes
 * with the same x; in a faulty run it does not, and works out its own.
 */
#include <stdlib.h>
#include <string.h>

#include "study/check/recompute_parts.h"

kvs_status recompute_ahead_open(struct recompute *r, kvs_error *err) {
  struct ahead *a = &r->ahead;
  const kvs_config *c = &r->model->config;
  size_t n = (size_t)c->n_embd, layers = (size_t)c->n_layer;
  a->x = malloc(AHEAD_STEPS * (layers + 1) * n * sizeof(float));
  a->qkv = malloc(AHEAD_STEPS * layers * 3 * n * sizeof(float));
  a->logits = malloc(AHEAD_STEPS * (size_t)c->n_vocab * sizeof(float));
  return a->x && a->qkv && a->logits ? KVS_OK : kvs_fail_memory(err, "making ready to work a trace out again");
}

void recompute_ahead_close(struct recompute *r) {
  free(r->ahead.x);
  free(r->ahead.qkv);
  free(r->ahead.logits);
}

static float *x_of(const struct recompute *r, int i, int layer) {
  const kvs_config *c = &r->model->config;
  return r->ahead.x + ((size_t)i * ((size_t)c->n_layer + 1) + (size_t)layer) * (size_t)c->n_embd;
}

static float *qkv_of(const struct recompute *r, int i, int layer) {
  const kvs_config *c = &r->model->config;
  return r->ahead.qkv + ((size_t)i * (size_t)c->n_layer + (size_t)layer) * 3 * (size_t)c->n_embd;
}

static float *logits_of(const struct recompute *r, int i) {
  return r->ahead.logits + (size_t)i * (size_t)r->model->config.n_vocab;
}

/* ---- working out ---- */

/* The steps from w's on that can be begun, with the positions that they claim; returns how many. */
static int place_steps(const struct work *w, struct work *works) {
  int count = 0;
  for (; count < AHEAD_STEPS; count++) {
    struct work *each = &works[count];
    *each = *w;
    each->step = w->step + count;
    const struct look_step *at = look_step(w->look, w->run, each->step);
    if (!at || !recompute_place(each, at)) break;
    int claimed = count == 0 ? w->position : at->position == LOOK_NONE ? each->right : at->position;
    if (claimed >= w->config->n_ctx) break;
    each->position = claimed < 0 ? KVS_NO_POSITION : claimed;
  }
  return count;
}

/* x [count][n_embd] in r->tried goes through a layer, and comes out there. A step whose rows are not there stays behind. */
static void go_through(struct recompute *r, struct work *works, int count, int layer) {
  size_t n = (size_t)r->model->config.n_embd;
  struct ahead *a = &r->ahead;
  const float *qkv = recompute_project(works, layer, r->tried, count);
  for (int i = 0; i < count; i++) memcpy(qkv_of(r, i, layer), qkv + (size_t)i * 3 * n, 3 * n * sizeof(float));
  for (int i = 0; i < count; i++) {
    float *out = r->engine->s.out + (size_t)i * n;
    if (a->layers[i] < layer || !recompute_attend(&works[i], layer, HYPOTHESIS_NONE, 0, qkv_of(r, i, layer), out, 0))
      memset(out, 0, n * sizeof(float));
    else
      a->layers[i]++;
  }
  memcpy(r->tried, recompute_finish(works, layer, r->tried, count, 0), (size_t)count * n * sizeof(float));
  for (int i = 0; i < count; i++) memcpy(x_of(r, i, layer + 1), r->tried + (size_t)i * n, n * sizeof(float));
}

static void work_out(struct work *w) {
  struct recompute *r = w->r;
  struct ahead *a = &r->ahead;
  size_t n = (size_t)w->config->n_embd;
  struct work works[AHEAD_STEPS];
  int count = place_steps(w, works);
  for (int i = 0; i < count; i++) {
    a->layers[i] = 0;
    recompute_embed(r, works[i].token, works[i].position, x_of(r, i, 0));
    memcpy(r->tried + (size_t)i * n, x_of(r, i, 0), n * sizeof(float));
  }
  for (int layer = 0; count > 0 && layer < w->config->n_layer; layer++) go_through(r, works, count, layer);
  if (count > 0) recompute_logits(works, r->tried, count);
  for (int i = 0; i < count; i++)
    memcpy(logits_of(r, i), r->logits + (size_t)i * (size_t)w->config->n_vocab,
           (size_t)w->config->n_vocab * sizeof(float));
  a->count = count;
}

void recompute_ahead(struct work *w) {
  struct ahead *a = &w->r->ahead;
  if (a->run == w->run && w->step >= a->first && w->step < a->first + AHEAD_STEPS) return;
  /* After steps that could not use it, the next ones are left alone; then it is tried again. */
  bool useless = a->run == w->run && a->missed > a->used;
  a->run = w->run, a->first = w->step, a->count = a->missed = a->used = 0;
  if (!useless) work_out(w);
}

/* ---- taking ---- */

/* The step's place, if `x` [n_embd] is what came to this layer there; -1. */
static int find(const struct work *w, int layer, const float *x) {
  const struct recompute *r = w->r;
  const struct ahead *a = &r->ahead;
  int i = w->step - a->first;
  if (a->run != w->run || i < 0 || i >= a->count || layer > a->layers[i]) return -1;
  return memcmp(x, x_of(r, i, layer), (size_t)w->config->n_embd * sizeof(float)) == 0 ? i : -1;
}

const float *recompute_ahead_qkv(const struct work *w, int layer, const float *x) {
  int i = find(w, layer, x);
  return i < 0 ? NULL : qkv_of(w->r, i, layer);
}

const float *recompute_ahead_after(struct work *w, int layer, const float *x) {
  struct ahead *a = &w->r->ahead;
  int i = find(w, layer, x);
  bool known = i >= 0 && layer < a->layers[i];
  a->used += known, a->missed += !known && a->count > 0;
  return known ? x_of(w->r, i, layer + 1) : NULL;
}

const float *recompute_ahead_logits(const struct work *w, const float *x) {
  int i = find(w, w->config->n_layer, x);
  return i < 0 ? NULL : logits_of(w->r, i);
}
