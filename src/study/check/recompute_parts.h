/* recompute_parts.h (private): what the files of recompute share: the mirror of the trace's cache, one step's state, the arithmetic. */
#ifndef KVS_STUDY_RECOMPUTE_PARTS_H
#define KVS_STUDY_RECOMPUTE_PARTS_H

#include "engine/state.h"
#include "study/check/recompute.h"

/* Rows of x that go through a layer at once: hypotheses side by side, or positions. */
#define MOST_ROWS 21
/* A distance where there is nothing to compare. */
#define ABSENT (-1.0)
#define NOISE_DRAWS 2
/* Steps that are worked out side by side; at most MOST_ROWS. */
#define AHEAD_STEPS 16

/* Which third of c_attn's columns. */
enum carrier { CARRIER_Q, CARRIER_K, CARRIER_V };

/* What the mirror knows of one row of one layer's cache. */
struct slot {
  int step; /* that wrote it; LOOK_NONE: nobody */
  bool k, v;
  bool hole; /* its step wrote another row of this layer: nobody ever filled it, it is zero */
};

/* The last n_ctx rows appended to one layer, as they lie in a cache that drops its oldest row: lazily, after the context's end. */
struct window {
  int run, step;
  bool complete;
  float *k, *v; /* [n_ctx][n_embd] */
};

/* The right way of the steps from `first` on, worked out ahead. */
struct ahead {
  int run, first, count;
  int layers[AHEAD_STEPS]; /* so many layers it came through */
  float *x, *qkv,
      *logits; /* [AHEAD_STEPS] each: [n_layer + 1][n_embd] as x enters each layer; [n_layer][3·n_embd]; [n_vocab] */
  int used, missed; /* layers for which it was taken, and was not */
};

struct recompute {
  const kvs_model *model;
  kvs_engine *engine; /* its kernels, threads and working memory; its cache is the mirror */
  /* the mirror */
  bool touched;          /* rows of an earlier run may still lie in the mirror */
  int run, *upto;        /* [n_layer] the step after which each layer's rows are as mirrored */
  struct slot *slot;     /* [n_layer][n_ctx] */
  struct window *window; /* [n_layer] */
  int woven_from;        /* the first row whose heads were cut interleaved, where those before were not; LOOK_NONE */
  int shared_from;       /* the first row that a shared buffer swallowed, in this run; LOOK_NONE: none yet */
  /* layer 0's rows for every position: c_attn of ln_1 of wte + wpe[p] is inverse_p·(token + table[p] − mean_p·gains) + biases */
  float *table, *gains, *biases; /* [n_ctx][3·n_embd], [3·n_embd] each; NULL until needed */
  /* how exactly this run's rows can match */
  double noise_k, noise_v, drift;
  enum recompute_storage storage;
  enum hypothesis favourite; /* the one that fitted last, in this run */
  int favourite_variant;
  int pads; /* tokens of left padding */
  int used; /* the position that the step before used; LOOK_NONE: not known */
  struct recompute_reach reach;
  enum hypothesis *how; /* [n_layer] how this step's attention was, below the layer it has come to, … */
  int *variant;         /* … and which variant of it */
  struct ahead ahead;
  /* working memory */
  float *x, *noise_x, *noisy;    /* [n_embd]; [n_embd]; [NOISE_DRAWS][n_embd] */
  float *after, *here_out;       /* [n_embd] x after this layer; what its heads gave, as logged */
  float *qkv, *next;             /* [3·n_embd] of this layer and of the next; */
  float *tried;                  /* [MOST_ROWS][n_embd] x after each hypothesis */
  float *k, *v, *q, *x_in, *out; /* [n_embd] evidence from the trace */
  bool *head_q;                  /* [n_head] whose q is there */
  float *rows_k, *rows_v;        /* [n_ctx][n_embd] a cache that a hypothesis has changed */
  float *logits, *seen;          /* [MOST_ROWS][n_vocab] recomputed; [n_vocab] the trace's */
  float *own_logits;             /* [n_vocab] recomputed, of this step, … */
  float *before, *first;         /* [n_vocab] … of the step before, and of the batch's first */
  int before_step, first_step;   /* LOOK_NONE: none */
};

/* One step that is being worked out. */
struct work {
  struct recompute *r;
  struct look *look;
  const kvs_config *config;
  int run, step;
  struct look_run shape;
  struct look_step at;
  int upto;            /* the batch's last step: its rows are in the cache before any attention */
  int batch_step;      /* the batch's first step */
  int length;          /* P: rows before this step */
  int right;           /* the position that is right: P but for padding */
  int own_row;         /* where layer 0's row went, or P */
  int token, position; /* that x was made of; position KVS_NO_POSITION: no wpe */
  bool sure;           /* x is known: something of the trace fitted it */
  struct facts *facts;
  /* noise */
  int noise_start, noise_layer; /* where r->noise_x enters, and where r->noisy has come to */
  unsigned long long random;
  /* calibration: the ratios seen */
  double *ratios;
  int ratio_count, ratio_room;
};

/* What the trace has of one layer for this step. */
struct evidence {
  int layer; /* n_layer: the logits */
  int own_row;
  bool k, v, x; /* there and not dead */
  bool dead_k, dead_v;
  bool any_q, all_out;
};

/* How far recomputed numbers are from the evidence; ABSENT where there is none. */
struct fit {
  double k, v, q, x, logits;
  bool interleaved; /* q fits only if the heads are cut interleaved */
};

/* The trace's logits, whole, or of the best tokens only. */
struct seen_logits {
  const float *all;
  const struct look_top *top;
  double rounding; /* how coarsely they are stored, as a part of their spread */
};

/* Where the way through the layers has come to. */
struct climb {
  struct evidence here, next;
  struct seen_logits seen;
  bool has_logits, told_logits;
  bool fresh; /* r->own_logits is what comes of r->x at the top */
  bool stop;
};

struct trials {
  int count;
  struct trial {
    enum hypothesis how;
    int variant;
    double distance;
  } trial[MOST_ROWS];
  int from; /* the lowest layer that the mistake was made in */
};

/* ---- recompute_rows.c: the trace's rows ---- */
/* The row of this layer that `step` wrote; LOOK_NONE. */
int recompute_own_row(struct look *look, int run, int step, int layer);
/* Makes the mirror of a layer what it was after w->upto. */
void recompute_mirror(struct work *w, int layer);
bool recompute_has_rows(const struct work *w, int layer, int from, int rows);
/* The window for this step, or NULL. *failed: out of memory. */
const struct window *recompute_window(struct work *w, int layer, bool *failed);
void recompute_evidence(struct work *w, int layer, struct evidence *evidence);
bool recompute_dead(const float *row, int n);

/* ---- recompute_math.c: a layer's arithmetic ---- */
/* |a − b| / |b|; NaN if anything is not finite. */
double recompute_distance(const float *a, const float *b, int n);
void recompute_embed(struct recompute *r, int token, int position, float *x);
/* Head h gets dims h, h + n_head, h + 2·n_head …; or back. [n_embd] */
void recompute_cut(const kvs_config *c, float *to, const float *from, bool back);
/* qkv [rows][3·n_embd] in the engine's scratch, from x [rows][n_embd]; a single row's may be known already, and lie elsewhere. */
const float *recompute_project(struct work *w, int layer, const float *x, int rows);
/* out [n_embd] of one token's attention under a hypothesis; false: not possible here, what it needs is not in the trace.
 * `noise`: relative. */
bool recompute_attend(struct work *w, int layer, enum hypothesis how, int variant, const float *q, float *out,
                      double noise);
/* x_out [rows][n_embd] in the engine's scratch, from x [rows][n_embd] and the heads' out [rows][n_embd] in the scratch. */
const float *recompute_finish(struct work *w, int layer, const float *x, int rows, double noise);
/* logits [rows][n_vocab] into r->logits. */
void recompute_logits(struct work *w, const float *x, int rows);
void recompute_add_noise(struct work *w, float *x, int n, double noise);
double recompute_random(struct work *w);

/* ---- recompute_ahead.c: the right way for some steps side by side ---- */
kvs_status recompute_ahead_open(struct recompute *r, kvs_error *err);
void recompute_ahead_close(struct recompute *r);
/* Works out this step and some after it, where it is not worked out yet. */
void recompute_ahead(struct work *w);
/* What comes of x [n_embd] as it enters this layer in this step; NULL: not known. qkv [3·n_embd], x [n_embd] after the layer, and
 * [n_vocab] of x after the last one. */
const float *recompute_ahead_qkv(const struct work *w, int layer, const float *x);
const float *recompute_ahead_after(struct work *w, int layer, const float *x);
const float *recompute_ahead_logits(const struct work *w, const float *x);

/* ---- recompute_table.c: layer 0's rows for every position ---- */
/* One entry compared with a row. */
struct match {
  int token, position;
  double distance; /* |row − entry| / |entry| */
  double scale;    /* the factor that brings the entry nearest to the row, … */
  double rest;     /* … and the distance then */
};
/* The nearest entry of this token's table (all positions, and no wpe: KVS_NO_POSITION), by `rest` if scaled. The table is good for
 * telling which is nearest; its entries are not the engine's to the bit. */
kvs_status recompute_search(struct work *w, int token, enum carrier carrier, const float *row, bool scaled,
                            struct match *best, kvs_error *err);
/* Compares the row with the exact entries of these positions, at most MOST_ROWS; keeps them in the scratch's qkv. */
void recompute_compare(struct work *w, int token, enum carrier carrier, const float *row, const int *positions,
                       int count, struct match *matches);

/* ---- recompute_position.c: D2 and D9 ---- */
/* Finds what layer 0's rows were made of: w->token, w->position, w->sure; adds facts. */
kvs_status recompute_position(struct work *w, const struct evidence *evidence, kvs_error *err);
/* The smallest distance of this step's layer 0 K row, and of its V row there, to any position's: ABSENT without one. */
kvs_status recompute_nearest(struct work *w, const struct evidence *evidence, double *k, double *v, kvs_error *err);
/* Two numbers up to this apart are the same, in layer 0. */
double recompute_tolerance(const struct recompute *r, enum carrier carrier);

/* ---- recompute_fit.c: distances, and what noise does ---- */
extern const struct fit recompute_no_fit;
/* From what recomputed q, k, v (and x) of a layer should be. */
struct fit recompute_fit(const struct work *w, const struct evidence *evidence, const float *qkv, const float *x);
/* Of `rows` x [n_embd] that come out of a layer: from what the trace has of the next layer, or of the logits (r->logits then has
 * theirs). */
void recompute_fit_above(struct work *w, const struct climb *climb, const float *x, int rows, struct fit *fits);
/* The least, or the largest, of what there is; ABSENT. */
double recompute_nearest_of(const struct fit *fit);
double recompute_farthest_of(const struct fit *fit);
bool recompute_find_logits(struct work *w, struct seen_logits *seen);
/* |seen − logits| but for a constant, over the spread of the logits: softmax sees no more. */
double recompute_logits_from(const struct work *w, const struct seen_logits *seen, const float *logits);
double recompute_noise(const struct recompute *r);
/* From an x that is known to be right as it enters `layer`, noise is followed upwards. */
void recompute_start_noise(struct work *w, int layer, const float *x);
/* How far the noisy copies of x come from it in this layer's q, k, v (n_layer: in the logits). INFINITY: not to be known. */
double recompute_noise_level(struct work *w, int layer, const float *x);
/* A distance up to this, of q, k or v of this layer or of the logits, is noise. Costs little unless `distance` is above the
 * least. */
double recompute_limit_least(const struct recompute *r);
double recompute_limit(struct work *w, int layer, const float *x, double distance);

/* ---- recompute_guess.c: hypotheses ---- */
#define RECOMPUTE_BETTER 3 /* what is to be believed must fit better by this factor */
/* Tries all that is possible for this layer, or if none fits, for all from where x was last known to be right. The best: its x in
 * r->tried at its place; -1: none is within the limit, and clearly nearer than `distance`. Strict: in all that the trace has. */
int recompute_guess(struct work *w, int layer, const struct climb *climb, double distance, double limit, bool strict,
                    struct trials *trials);
bool recompute_guess_again(struct work *w, int layer, const struct climb *climb, double distance,
                           struct trials *trials);
/* A fact for the best one, and then for those that fit as well. */
kvs_status recompute_tell_guess(struct work *w, int layer, const struct trials *trials, int best, double distance,
                                kvs_error *err);
/* ---- recompute_chain.c: D7 and D10 ---- */
kvs_status recompute_chain(struct work *w, struct evidence *evidence, kvs_error *err);

/* ---- recompute_weights.c ---- */
/* Logged weights of this layer, where q was not logged, against those of qkv and the cached rows. x must be right here. */
kvs_status recompute_weights(struct work *w, int layer, const float *qkv, kvs_error *err);

/* ---- recompute.c ---- */
/* Puts w at this step: its token, its place in the cache, its batch. False: it has no token, or no place, to begin with. */
bool recompute_place(struct work *w, const struct look_step *at);

/* A fact of this run and step with nothing else filled in. */
struct fact recompute_fact_at(const struct work *w, enum fact_kind kind, int layer);
kvs_status recompute_fact(struct work *w, struct fact fact, kvs_error *err);

#endif
