/* recompute_rows.c: a trace's cache rows, mirrored so that each is read once, and what it has of one step in one layer. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "study/look/look_parts.h"
#include "study/check/recompute_parts.h"

static bool wrote(struct look *look, int run, int step, int layer, int row) {
  return row >= 0 && look_writer(look, run, step, layer, row) == step;
}

/* Where it should be, or a row beside that, or any. */
int recompute_own_row(struct look *look, int run, int step, int layer) {
  const struct look_run *shape = look_run(look, run);
  const struct look_step *at = look_step(look, run, step);
  if (!shape || !at) return LOOK_NONE;
  int n_ctx = shape->n_ctx, P = at->length_before;
  if (P >= n_ctx) P = n_ctx - 1;
  const int likely[] = {P, P + 1, P - 1};
  if (P >= 0)
    for (int i = 0; i < 3; i++)
      if (wrote(look, run, step, layer, likely[i])) return likely[i];
  for (int row = 0; row < n_ctx; row++)
    if (wrote(look, run, step, layer, row)) return row;
  return LOOK_NONE;
}

bool recompute_dead(const float *row, int n) {
  bool zero = true;
  for (int i = 0; i < n; i++) {
    if (!isfinite(row[i])) return true;
    zero &= row[i] == 0;
  }
  return zero;
}

/* ---- the mirror ---- */

/* Nobody wrote this row of this layer although somebody wrote it in layer 0, and wrote another row here: it stays what a
 * cleared cache has, zero. Otherwise it was just not logged. */
static bool is_hole(struct work *w, int layer, int row) {
  int step = look_writer(w->look, w->run, w->upto, 0, row);
  return layer > 0 && step != LOOK_NONE && recompute_own_row(w->look, w->run, step, layer) != LOOK_NONE;
}

static void load(struct work *w, int layer, int row, int step) {
  struct recompute *r = w->r;
  struct slot *slot = &r->slot[(size_t)layer * (size_t)w->config->n_ctx + (size_t)row];
  const kvs_cache *cache = &r->engine->cache;
  const struct look_row *found = step == LOOK_NONE ? NULL : look_row(w->look, w->run, w->upto, layer, row);
  *slot = (struct slot){step, found && found->k, found && found->v, false};
  kvs_cache_write(cache, cache->k, layer, row, slot->k ? found->k : NULL);
  kvs_cache_write(cache, cache->v, layer, row, slot->v ? found->v : NULL);
}

void recompute_mirror(struct work *w, int layer) {
  struct recompute *r = w->r;
  if (r->upto[layer] == w->upto) return;
  bool logged = recompute_own_row(w->look, w->run, w->step, layer) != LOOK_NONE;
  for (int row = 0; row < w->shape.n_ctx; row++) {
    struct slot *slot = &r->slot[(size_t)layer * (size_t)w->config->n_ctx + (size_t)row];
    int writer = look_writer(w->look, w->run, w->upto, layer, row);
    if (writer != slot->step) load(w, layer, row, writer);
    if (writer == LOOK_NONE) slot->hole = logged && is_hole(w, layer, row);
  }
  r->upto[layer] = w->upto;
}

bool recompute_has_rows(const struct work *w, int layer, int from, int rows) {
  const struct slot *slot = w->r->slot + (size_t)layer * (size_t)w->config->n_ctx;
  if (rows > w->shape.n_ctx) return false;
  for (int row = from; row < rows; row++)
    if (!(slot[row].k && slot[row].v) && !slot[row].hole) return false;
  return true;
}

/* ---- past the context's end ---- */

/* The row that `step` appended to this layer, into place `row` of the window. */
static bool load_window(struct work *w, struct window *window, int layer, int row, int step) {
  size_t n_embd = (size_t)w->config->n_embd;
  int own = step < 0 ? LOOK_NONE : recompute_own_row(w->look, w->run, step, layer);
  const struct look_row *found = own == LOOK_NONE ? NULL : look_row(w->look, w->run, step, layer, own);
  if (!found || !found->k || !found->v) return false;
  memcpy(window->k + (size_t)row * n_embd, found->k, n_embd * sizeof(float));
  memcpy(window->v + (size_t)row * n_embd, found->v, n_embd * sizeof(float));
  return true;
}

const struct window *recompute_window(struct work *w, int layer, bool *failed) {
  struct window *window = &w->r->window[layer];
  int rows = w->shape.n_ctx;
  size_t n_embd = (size_t)w->config->n_embd, most = (size_t)w->config->n_ctx * n_embd;
  if (!window->k) window->k = malloc(most * sizeof(float));
  if (!window->v) window->v = malloc(most * sizeof(float));
  *failed = !window->k || !window->v;
  if (*failed) return NULL;
  if (window->run == w->run && window->step == w->step) return window->complete ? window : NULL;
  int have = 0; /* rows that are there already, one place further down */
  if (window->run == w->run && window->step == w->step - 1 && window->complete) {
    have = rows - 1;
    memmove(window->k, window->k + n_embd, (size_t)have * n_embd * sizeof(float));
    memmove(window->v, window->v + n_embd, (size_t)have * n_embd * sizeof(float));
  }
  window->run = w->run, window->step = w->step, window->complete = true;
  for (int row = have; window->complete && row < rows; row++)
    window->complete = load_window(w, window, layer, row, w->step - (rows - 1 - row));
  return window->complete ? window : NULL;
}

/* ---- one layer in one step ---- */

static void heads_evidence(struct work *w, int layer, struct evidence *e) {
  struct recompute *r = w->r;
  size_t head_dim = (size_t)w->config->head_dim;
  e->any_q = false, e->all_out = true;
  for (int h = 0; h < w->config->n_head; h++) {
    const struct look_head *head = look_head(w->look, w->run, w->step, layer, h);
    r->head_q[h] = head && head->q && !recompute_dead(head->q, (int)head_dim);
    if (r->head_q[h]) memcpy(r->q + (size_t)h * head_dim, head->q, head_dim * sizeof(float));
    e->any_q |= r->head_q[h];
    if (head && head->out)
      memcpy(r->out + (size_t)h * head_dim, head->out, head_dim * sizeof(float));
    else
      e->all_out = false;
  }
}

/* The last layer hands on what layer_step calls x_out; the others' may be there under the next layer's x_in too. */
static const float *logged_input(struct work *w, int layer) {
  const struct look_layer *own = layer < w->config->n_layer ? look_layer(w->look, w->run, w->step, layer) : NULL;
  if (own && own->x_in) return own->x_in;
  const struct look_layer *below = layer > 0 ? look_layer(w->look, w->run, w->step, layer - 1) : NULL;
  if (below && below->x_out) return below->x_out;
  const struct look_vectors *vectors = layer == 0 ? look_vectors(w->look, w->run, w->step) : NULL;
  return vectors ? vectors->x : NULL;
}

void recompute_evidence(struct work *w, int layer, struct evidence *e) {
  struct recompute *r = w->r;
  int n_embd = w->config->n_embd;
  size_t bytes = (size_t)n_embd * sizeof(float);
  *e = (struct evidence){.layer = layer, .own_row = LOOK_NONE};
  const float *x_in = logged_input(w, layer);
  e->x = x_in && !recompute_dead(x_in, n_embd);
  if (e->x) memcpy(r->x_in, x_in, bytes);
  if (layer == w->config->n_layer) return;
  e->own_row = recompute_own_row(w->look, w->run, w->step, layer);
  const struct look_row *row = e->own_row == LOOK_NONE ? NULL : look_row(w->look, w->run, w->step, layer, e->own_row);
  if (row && row->k) memcpy(r->k, row->k, bytes), e->dead_k = recompute_dead(row->k, n_embd), e->k = !e->dead_k;
  if (row && row->v) memcpy(r->v, row->v, bytes), e->dead_v = recompute_dead(row->v, n_embd), e->v = !e->dead_v;
  heads_evidence(w, layer, e);
}
