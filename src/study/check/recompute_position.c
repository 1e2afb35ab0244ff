/* recompute_position.c: which position (and token) layer 0's rows were made with. They depend on nothing else, so the nearest of all
 * that could be names it, whatever the trace claims.
 */
#include <math.h>

#include "study/check/recompute_parts.h"

/* Of the noise, and at least. */
#define TOLERANCE_TIMES 4
#define TOLERANCE_LEAST 1e-4
/* Coarser than this, a neighbour may look right, so the nearest is looked for even where the right one would do. */
#define COARSE 1e-3

double recompute_tolerance(const struct recompute *r, enum carrier carrier) {
  return fmax(TOLERANCE_LEAST, TOLERANCE_TIMES * (carrier == CARRIER_V ? r->noise_v : r->noise_k));
}

/* ---- likely positions ---- */

/* The right one first; each once; only those that there are. */
static int likely_positions(const struct work *w, int *list) {
  int P = w->right, prompt = w->at.prompt_steps, used = w->r->used, count = 0;
  const int wanted[] = {P,     P + 1, KVS_NO_POSITION, 0,     w->at.position,       prompt,   P + prompt - 1,
                        P - 1, used,  used + 1,        P + 2, w->config->n_ctx - 1, w->length};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    bool there = wanted[i] < KVS_NO_POSITION || wanted[i] >= w->config->n_ctx;
    for (int j = 0; j < count; j++) there |= list[j] == wanted[i];
    if (!there) list[count++] = wanted[i];
  }
  return count;
}

/* How far apart two positions' entries are, from the exact ones in the scratch. */
static double apart(const struct work *w, enum carrier carrier, int a, int b) {
  size_t n = (size_t)w->config->n_embd;
  const float *qkv = w->r->engine->s.qkv + (size_t)carrier * n;
  return recompute_distance(qkv + (size_t)a * 3 * n, qkv + (size_t)b * 3 * n, (int)n);
}

/* Whether a is nearer to the row than b beyond what chance does to noise of this size: along the line between the two entries the
 * noise is its length over sqrt(n_embd). */
static bool clearly_nearer(const struct work *w, const struct match *a, const struct match *b, double between,
                           double noise) {
  double each = fmax(noise, a->distance) / sqrt(w->config->n_embd);
  return b->distance * b->distance - a->distance * a->distance > 6 * between * each;
}

/* What a row says. */
struct finding {
  struct match used, right; /* used.position = right.position when it is right */
  bool known;               /* something is within the tolerance */
  bool unclear;             /* … and something else as near as that */
  int rival;
};

static kvs_status find(struct work *w, enum carrier carrier, const float *row, struct finding *f, kvs_error *err) {
  int positions[MOST_ROWS] = {0}, best = 0;
  struct match m[MOST_ROWS];
  double tolerance = recompute_tolerance(w->r, carrier), noise = carrier == CARRIER_V ? w->r->noise_v : w->r->noise_k;
  int count = likely_positions(w, positions);
  bool there = count > 0 && positions[0] == w->right; /* past wpe's end there is no right one */
  *f = (struct finding){.known = true, .rival = KVS_NO_POSITION};
  if (there) {
    recompute_compare(w, w->token, carrier, row, positions, 1, m);
    f->used = f->right = m[0];
    if (m[0].distance <= tolerance && noise < COARSE) return KVS_OK;
  } else {
    f->right = (struct match){w->token, w->right, NAN, 1, NAN};
  }
  recompute_compare(w, w->token, carrier, row, positions, count, m);
  for (int i = 1; i < count; i++)
    if (m[i].distance < m[best].distance || isnan(m[best].distance)) best = i;
  bool right_will_do = there && m[0].distance <= tolerance;
  if (!(m[best].distance <= tolerance) || (noise >= COARSE && !right_will_do)) { /* the whole table */
    struct match nearest;
    if (recompute_search(w, w->token, carrier, row, false, &nearest, err)) return err->status;
    if (nearest.distance < m[best].distance && nearest.position != m[best].position) {
      positions[count < MOST_ROWS ? count : count - 1] = nearest.position;
      best = count < MOST_ROWS ? count++ : count - 1;
    }
    recompute_compare(w, w->token, carrier, row, positions, count, m);
  }
  f->used = m[best];
  f->known = m[best].distance <= tolerance;
  if (!f->known || !there || best == 0) return KVS_OK;
  bool clear = clearly_nearer(w, &m[best], &m[0], apart(w, carrier, best, 0), noise);
  if (right_will_do && (!clear || noise < COARSE)) f->used = m[0], best = 0;
  for (int i = 0; i < count && !f->unclear; i++)
    if (i != best && m[i].distance <= tolerance && noise >= COARSE &&
        !clearly_nearer(w, &m[best], &m[i], apart(w, carrier, best, i), noise))
      f->unclear = true, f->rival = m[i].position;
  return KVS_OK;
}

/* ---- D9: no position ---- */

static struct fact fact_here(const struct work *w, enum fact_kind kind, int row) {
  struct fact fact = recompute_fact_at(w, kind, 0);
  fact.row = row;
  return fact;
}

/* The tokens of the steps around, each once. */
static int tokens_around(const struct work *w, int *list) {
  static const int offsets[] = {-1, 1, -2, 2, -3};
  int count = 0;
  for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
    const struct look_step *s = look_step(w->look, w->run, w->step + offsets[i]);
    if (!s || s->token < 0 || s->token >= w->config->n_vocab || s->token == w->token) continue;
    bool there = false;
    for (int j = 0; j < count; j++) there |= list[j] == s->token;
    if (!there) list[count++] = s->token;
  }
  return count;
}

/* Whether the V row is that of this token and position. */
static bool v_fits(struct work *w, const struct evidence *e, int token, int position) {
  struct match m;
  if (!e->v) return false;
  recompute_compare(w, token, CARRIER_V, w->r->v, &position, 1, &m);
  return m.distance <= recompute_tolerance(w->r, CARRIER_V);
}

/* Why a live K row is off the grid, if a simple change explains it: adds a fact for that. */
static kvs_status explain(struct work *w, const struct evidence *e, const struct finding *f, bool *explained,
                          kvs_error *err) {
  int row = e->own_row;
  double tolerance = recompute_tolerance(w->r, CARRIER_K);
  struct match m;
  *explained = true;
  if (recompute_search(w, w->token, CARRIER_K, w->r->k, true, &m, err)) return err->status;
  if (m.rest <= tolerance) {
    struct fact fact = fact_here(w, FACT_ROW_SCALED, row);
    fact.found = m.scale, fact.right = 1, fact.distance = m.rest, fact.right_distance = f->right.distance;
    w->position = m.position;
    return recompute_fact(w, fact, err);
  }
  for (int carrier = CARRIER_Q; carrier <= CARRIER_V; carrier += CARRIER_V - CARRIER_Q) {
    if (recompute_search(w, w->token, (enum carrier)carrier, w->r->k, false, &m, err)) return err->status;
    if (m.distance > tolerance) continue;
    struct fact fact = fact_here(w, FACT_ROW_SWAPPED, row);
    fact.found = carrier, fact.right = CARRIER_K, fact.distance = m.distance, fact.right_distance = f->right.distance;
    w->position = m.position;
    return recompute_fact(w, fact, err);
  }
  float *woven = w->r->rows_k; /* the row as it was before its heads were cut, if they were cut interleaved */
  recompute_cut(w->config, woven, w->r->k, true);
  if (recompute_search(w, w->token, CARRIER_K, woven, false, &m, err)) return err->status;
  if (m.distance <= tolerance) {
    struct fact fact = fact_here(w, FACT_HEAD_CUT, row);
    fact.found = m.position, fact.right = w->right, fact.distance = m.distance, fact.right_distance = f->right.distance;
    w->position = m.position, w->r->reach.position = true;
    return recompute_fact(w, fact, err);
  }
  int tokens[8], count = tokens_around(w, tokens);
  for (int i = 0; i < count; i++) {
    if (recompute_search(w, tokens[i], CARRIER_K, w->r->k, false, &m, err)) return err->status;
    if (m.distance > tolerance) continue;
    struct fact fact = fact_here(w, FACT_ROW_OTHER_TOKEN, row);
    fact.found = m.token, fact.right = w->token, fact.distance = m.distance, fact.right_distance = f->right.distance;
    if (!v_fits(w, e, w->token, w->position)) w->token = m.token, w->position = m.position; /* not K alone */
    return recompute_fact(w, fact, err);
  }
  *explained = false;
  return KVS_OK;
}

static kvs_status off_grid(struct work *w, const struct evidence *e, const struct finding *f, kvs_error *err) {
  struct fact fact = fact_here(w, FACT_OFF_GRID, e->own_row);
  fact.found = f->used.position, fact.right = w->right;
  fact.distance = f->used.distance, fact.right_distance = f->right.distance;
  if (recompute_fact(w, fact, err)) return err->status;
  return explain(w, e, f, &w->sure, err);
}

/* ---- what this step used ---- */

static kvs_status tell_position(struct work *w, int row, const struct finding *f, kvs_error *err) {
  int n_ctx = w->config->n_ctx;
  bool last = w->right >= n_ctx && f->used.position == n_ctx - 1; /* no position is right past the end */
  if (f->used.position == w->right || last) return KVS_OK;
  struct fact fact = fact_here(w, FACT_POSITION_USED, row);
  fact.found = f->used.position, fact.right = w->right;
  fact.distance = f->used.distance, fact.right_distance = f->right.distance;
  if (recompute_fact(w, fact, err)) return err->status;
  if (!f->unclear) return KVS_OK;
  fact.kind = FACT_POSITION_UNCLEAR, fact.right = f->rival;
  return recompute_fact(w, fact, err);
}

/* K tells; where it cannot (not logged, dead, no position's), V does, then q. */
kvs_status recompute_position(struct work *w, const struct evidence *e, kvs_error *err) {
  struct recompute *r = w->r;
  struct finding f;
  w->position = w->right < w->config->n_ctx ? w->right : w->config->n_ctx - 1;
  w->sure = false;
  if (e->k) {
    if (find(w, CARRIER_K, r->k, &f, err)) return err->status;
    if (f.known) {
      int right = w->position;
      w->position = f.used.position, w->sure = true, r->reach.position = !f.unclear;
      bool k_alone = w->position != right && !v_fits(w, e, w->token, w->position) && v_fits(w, e, w->token, right);
      if (k_alone) w->position = right;
      return tell_position(w, e->own_row, &f, err);
    }
    if (off_grid(w, e, &f, err)) return err->status;
    if (w->sure) return KVS_OK;
  }
  bool whole_q = true;
  for (int h = 0; h < w->config->n_head; h++) whole_q &= r->head_q[h];
  const float *rows[] = {e->v ? r->v : NULL, whole_q ? r->q : NULL};
  for (int i = 0; i < 2 && !w->sure; i++) {
    if (!rows[i]) continue;
    if (find(w, i == 0 ? CARRIER_V : CARRIER_Q, rows[i], &f, err)) return err->status;
    if (!f.known) continue;
    w->position = f.used.position, w->sure = true, r->reach.position = !f.unclear;
    if (tell_position(w, e->own_row, &f, err)) return err->status;
  }
  return KVS_OK;
}

/* ---- for the calibration ---- */

kvs_status recompute_nearest(struct work *w, const struct evidence *e, double *k, double *v, kvs_error *err) {
  int positions[MOST_ROWS] = {0}, best = 0;
  struct match m[MOST_ROWS];
  *k = *v = ABSENT;
  if (!e->k && !e->v) return KVS_OK;
  enum carrier carrier = e->k ? CARRIER_K : CARRIER_V;
  const float *row = e->k ? w->r->k : w->r->v;
  int count = likely_positions(w, positions);
  recompute_compare(w, w->token, carrier, row, positions, count, m);
  for (int i = 1; i < count; i++)
    if (m[i].rest < m[best].rest) best = i;
  struct match nearest = m[best];
  if (!(nearest.rest < COARSE) && recompute_search(w, w->token, carrier, row, true, &nearest, err)) return err->status;
  *(e->k ? k : v) = nearest.rest;
  if (!e->k || !e->v) return KVS_OK;
  recompute_compare(w, w->token, CARRIER_V, w->r->v, &nearest.position, 1, m);
  *v = m[0].rest;
  return KVS_OK;
}
