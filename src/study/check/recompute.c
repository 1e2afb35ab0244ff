/* recompute.c: opening, calibrating, and one step from its token to its logits. */
#include "study/check/recompute.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "study/check/recompute_parts.h"

/* ---- memory ---- */

static kvs_status allocate(struct recompute *r, kvs_error *err) {
  const kvs_config *c = &r->model->config;
  size_t n = (size_t)c->n_embd, layers = (size_t)c->n_layer, vocab = (size_t)c->n_vocab, ctx = (size_t)c->n_ctx;
  const struct {
    float **at;
    size_t numbers;
  } vectors[] = {{&r->x, n},
                 {&r->noise_x, n},
                 {&r->noisy, NOISE_DRAWS * n},
                 {&r->after, n},
                 {&r->here_out, n},
                 {&r->qkv, 3 * n},
                 {&r->next, 3 * n},
                 {&r->tried, MOST_ROWS * n},
                 {&r->k, n},
                 {&r->v, n},
                 {&r->q, n},
                 {&r->x_in, n},
                 {&r->out, n},
                 {&r->rows_k, ctx * n},
                 {&r->rows_v, ctx * n},
                 {&r->logits, MOST_ROWS * vocab},
                 {&r->seen, vocab},
                 {&r->own_logits, vocab},
                 {&r->before, vocab},
                 {&r->first, vocab}};
  bool complete = true;
  for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
    complete &= (*vectors[i].at = calloc(vectors[i].numbers, sizeof(float))) != NULL;
  complete &= (r->upto = calloc(layers, sizeof *r->upto)) != NULL;
  complete &= (r->slot = calloc(layers * ctx, sizeof *r->slot)) != NULL;
  complete &= (r->window = calloc(layers, sizeof *r->window)) != NULL;
  complete &= (r->how = calloc(layers, sizeof *r->how)) != NULL;
  complete &= (r->variant = calloc(layers, sizeof *r->variant)) != NULL;
  complete &= (r->head_q = calloc((size_t)c->n_head, sizeof *r->head_q)) != NULL;
  if (!complete) return kvs_fail_memory(err, "making ready to work a trace out again");
  return kvs_scratch_grow(r->engine, MOST_ROWS, err);
}

kvs_status recompute_open(const kvs_model *model, struct recompute **out, kvs_error *err) {
  *out = NULL;
  struct recompute *r = calloc(1, sizeof *r);
  if (!r) return kvs_fail_memory(err, "making ready to work a trace out again");
  r->model = model;
  kvs_status status = kvs_engine_create(model, NULL, &r->engine, err);
  if (!status) status = allocate(r, err);
  if (!status) status = recompute_ahead_open(r, err);
  if (status) {
    recompute_close(r);
    return status;
  }
  *out = r;
  return KVS_OK;
}

void recompute_close(struct recompute *r) {
  if (!r) return;
  for (int layer = 0; r->window && layer < r->model->config.n_layer; layer++)
    free(r->window[layer].k), free(r->window[layer].v);
  void *const all[] = {r->upto,   r->noise_x, r->slot,  r->window,     r->how,      r->variant, r->head_q,
                       r->table,  r->x,       r->noisy, r->after,      r->here_out, r->qkv,     r->next,
                       r->tried,  r->k,       r->v,     r->q,          r->x_in,     r->out,     r->rows_k,
                       r->rows_v, r->logits,  r->seen,  r->own_logits, r->before,   r->first};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  recompute_ahead_close(r);
  kvs_engine_free(r->engine);
  free(r);
}

struct fact recompute_fact_at(const struct work *w, enum fact_kind kind, int layer) {
  return (struct fact){.kind = kind,
                       .run = w->run,
                       .step = w->step,
                       .layer = layer,
                       .head = -1,
                       .row = -1,
                       .distance = NAN,
                       .right_distance = NAN};
}

kvs_status recompute_fact(struct work *w, struct fact fact, kvs_error *err) {
  return w->facts ? facts_add(w->facts, &fact, err) : KVS_OK;
}

void recompute_padding(struct recompute *r, int pads) { r->pads = pads; }

struct recompute_reach recompute_reached(const struct recompute *r) {
  return r->reach;
}
enum recompute_storage recompute_stored_as(const struct recompute *r) { return r->storage; }

/* ---- one step ---- */

/* Forgets what belonged to another run. */
static void turn_to_run(struct recompute *r, int run) {
  if (r->run == run) return;
  const kvs_config *c = &r->model->config;
  r->run = run;
  for (int layer = 0; layer < c->n_layer; layer++) r->upto[layer] = LOOK_NONE, r->window[layer].run = 0;
  for (size_t i = 0; i < (size_t)c->n_layer * (size_t)c->n_ctx; i++) r->slot[i] = (struct slot){.step = LOOK_NONE};
  size_t numbers = (size_t)c->n_layer * (size_t)c->n_ctx * (size_t)c->n_embd;
  if (r->touched)
    memset(r->engine->cache.k, 0, numbers * sizeof(float)), memset(r->engine->cache.v, 0, numbers * sizeof(float));
  r->touched = true;
  r->shared_from = r->woven_from = r->used = r->before_step = r->first_step = LOOK_NONE;
  r->favourite = HYPOTHESIS_NONE;
  r->noise_k = r->noise_v = r->drift = 1e-4; /* until it is calibrated */
  r->storage = STORAGE_F32;
}

static kvs_status check_shape(const struct look_run *run, const kvs_config *c, kvs_error *err) {
  const struct {
    const char *name;
    int traced, model;
  } sizes[] = {{"n_layer", run->n_layer, c->n_layer},
               {"n_head", run->n_head, c->n_head},
               {"n_embd", run->n_embd, c->n_embd},
               {"n_vocab", run->n_vocab, c->n_vocab}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (sizes[i].traced != sizes[i].model)
      return kvs_fail(err, KVS_ERR_INPUT,
                      "run %d was made with another model than this: its %s is %d, and this model's is %d; give the "
                      "model it was made with",
                      run->run, sizes[i].name, sizes[i].traced, sizes[i].model);
  if (run->n_ctx < 1 || run->n_ctx > c->n_ctx)
    return kvs_fail(err, KVS_ERR_INPUT,
                    "run %d was made with another model than this: its n_ctx is %d, and this model has %d positions; "
                    "give the model it was made with",
                    run->run, run->n_ctx, c->n_ctx);
  return KVS_OK;
}

/* The batch that the step belongs to: consecutive prefill steps whose lengths, where they were logged, count on. */
static bool same_batch(const struct look_step *a, const struct look_step *b) {
  if (!a || !b || a->mode != KVS_PREFILL || b->mode != KVS_PREFILL) return false;
  return a->length_before == LOOK_NONE || b->length_before == LOOK_NONE || b->length_before == a->length_before + 1;
}

static void find_batch(struct work *w) {
  w->upto = w->batch_step = w->step;
  while (same_batch(look_step(w->look, w->run, w->upto), look_step(w->look, w->run, w->upto + 1))) w->upto++;
  while (same_batch(look_step(w->look, w->run, w->batch_step - 1), look_step(w->look, w->run, w->batch_step)))
    w->batch_step--;
}

bool recompute_place(struct work *w, const struct look_step *at) {
  w->at = *at;
  w->token = at->token;
  w->length = at->length_before;
  w->own_row = recompute_own_row(w->look, w->run, w->step, 0);
  if (w->length == LOOK_NONE) w->length = w->own_row; /* another engine may leave it out */
  if (w->own_row == LOOK_NONE) w->own_row = w->length < w->shape.n_ctx ? w->length : w->shape.n_ctx - 1;
  w->at.length_before = w->length;
  w->right = w->length - w->r->pads;
  w->random = (unsigned long long)w->step * 2654435761u + 1;
  find_batch(w);
  return w->token >= 0 && w->token < w->config->n_vocab && w->length >= 0 && w->right >= 0;
}

static kvs_status begin(struct work *w, struct recompute *r, struct look *look, int run, int step, bool *good,
                        kvs_error *err) {
  const struct look_run *shape = look_run(look, run);
  const struct look_step *at = shape ? look_step(look, run, step) : NULL;
  *good = false;
  *w = (struct work){.r = r, .look = look, .config = &r->model->config, .run = run, .step = step};
  r->reach = (struct recompute_reach){0};
  if (!shape || !at) return KVS_OK;
  if (check_shape(shape, w->config, err)) return err->status;
  w->shape = *shape;
  turn_to_run(r, run);
  *good = recompute_place(w, at);
  return KVS_OK;
}

/* What layer 0's rows were made of, and the evidence that the climb begins with. */
static kvs_status find_position(struct work *w, struct evidence *evidence, kvs_error *err) {
  recompute_evidence(w, 0, evidence);
  kvs_status status = recompute_position(w, evidence, err);
  recompute_evidence(w, 0, evidence); /* the search used the same memory */
  return status;
}

kvs_status recompute_step(struct recompute *r, struct look *look, int run, int step, struct facts *facts,
                          kvs_error *err) {
  struct work w;
  bool good;
  kvs_error local;
  if (!err) err = &local; /* below, err->status carries the status */
  if (begin(&w, r, look, run, step, &good, err)) return err->status;
  if (!good) return KVS_OK;
  w.facts = facts;
  struct evidence evidence;
  if (find_position(&w, &evidence, err)) return err->status;
  r->used = w.sure ? w.position : LOOK_NONE;
  return recompute_chain(&w, &evidence, err);
}

/* ---- calibration ---- */

enum { SAMPLES = 15, CLIMBS = 4, MOST_RATIOS = 512 };

/* Beyond this a row is wrong, not coarse. */
#define COARSEST 0.2

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Of distances that may be noise, the upper quartile of the lower half; a mistake that comes in half of the steps does not reach it. */
static double robust(double *list, int count, double otherwise) {
  int good = 0;
  for (int i = 0; i < count; i++)
    if (list[i] >= 0 && list[i] < COARSEST) list[good++] = list[i];
  if (good == 0) return otherwise;
  qsort(list, (size_t)good, sizeof *list, ascending);
  return list[good * 3 / 8];
}

/* How many of the 24 bits of a float32's fraction are in use, at most, in this row. */
static int bits_used(const float *row, int n) {
  int bits = 8;
  for (int i = 0; i < n; i++) {
    uint32_t word;
    memcpy(&word, &row[i], sizeof word);
    if (word & 0x1FFF) return 24;
    if (word & 0xFFFF) bits = 11;
  }
  return bits;
}

struct samples {
  double k[SAMPLES], v[SAMPLES];
  int count, bits;
};

static kvs_status sample_position(struct recompute *r, struct look *look, int run, int step, struct samples *samples,
                                  kvs_error *err) {
  struct work w;
  bool good;
  struct evidence e;
  if (begin(&w, r, look, run, step, &good, err)) return err->status;
  if (!good) return KVS_OK;
  recompute_evidence(&w, 0, &e);
  if (!e.k && !e.v) return KVS_OK;
  int bits = bits_used(e.k ? r->k : r->v, w.config->n_embd);
  if (bits > samples->bits) samples->bits = bits;
  kvs_status status = recompute_nearest(&w, &e, &samples->k[samples->count], &samples->v[samples->count], err);
  samples->count++;
  return status;
}

static kvs_status sample_climb(struct recompute *r, struct look *look, int run, int step, double *ratios, int *count,
                               kvs_error *err) {
  struct work w;
  bool good;
  struct evidence e;
  if (begin(&w, r, look, run, step, &good, err)) return err->status;
  if (!good) return KVS_OK;
  if (find_position(&w, &e, err)) return err->status;
  w.ratios = ratios, w.ratio_count = *count, w.ratio_room = MOST_RATIOS;
  kvs_status status = recompute_chain(&w, &e, err);
  *count = w.ratio_count;
  return status;
}

kvs_status recompute_calibrate(struct recompute *r, struct look *look, int run, double *tolerance, kvs_error *err) {
  struct samples samples = {.bits = 0};
  const struct look_run *shape = look_run(look, run);
  kvs_error local;
  if (!err) err = &local;
  int steps = shape ? shape->steps : 0, count = 0;
  r->run = r->ahead.run = 0; /* afresh, also if it is the same run */
  for (int i = 0; i < SAMPLES && i < steps; i++) {
    int step = steps <= SAMPLES ? i : (int)((long long)i * (steps - 1) / (SAMPLES - 1));
    if (sample_position(r, look, run, step, &samples, err)) return err->status;
  }
  r->noise_k = fmax(robust(samples.k, samples.count, 1e-6), 1e-6);
  r->noise_v = fmax(robust(samples.v, samples.count, r->noise_k), 1e-6);
  double ratios[MOST_RATIOS];
  r->drift = 1e-5; /* small enough to be linear, large enough to be more than rounding */
  for (int i = 1; i <= CLIMBS && steps > 0; i++)
    if (sample_climb(r, look, run, (int)((long long)i * (steps - 1) / CLIMBS), ratios, &count, err)) return err->status;
  double typical = robust(ratios, count, 1e-4);
  r->drift = fmin(fmax(10 * typical, 1e-6), 1e-4);
  r->storage = samples.bits == 11                    ? STORAGE_F16
               : samples.bits == 8                   ? STORAGE_BF16
               : fmax(r->noise_k, r->noise_v) > 1e-3 ? STORAGE_COARSE
                                                     : STORAGE_F32;
  r->used = r->before_step = r->first_step = r->shared_from = r->woven_from = LOOK_NONE;
  *tolerance = recompute_tolerance(r, CARRIER_K);
  return KVS_OK;
}
