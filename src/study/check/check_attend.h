/* check_attend.h (private): one layer's attention in one step, as the files of check_attention.c share it. */
#ifndef KVS_STUDY_CHECK_ATTEND_H
#define KVS_STUDY_CHECK_ATTEND_H

#include "study/check/check_parts.h"

#define ATTEND_HEADS 64 /* of one layer that are looked at; look keeps so many */

/* One row that a step wrote in a layer's cache. */
struct layer_row {
  int row, step;
  float *k, *v;              /* [n_embd]; NULL: not logged */
  float *norm_k, *norm_v;    /* [n_head] length of each head's part */
  bool k_as_zero, v_as_zero; /* what was logged is not what is read */
  int zeros;                 /* steps that read K as zero so far */
};

/* How the scores of a layer are made. */
struct score_guess {
  bool interleaved;
  double scale, share; /* share: of the scores that follow from it; 0: none was made */
};

/* One layer's cache as the trace shows it being filled. */
struct layer_rows {
  int layer;
  struct layer_row *at; /* ordered by step, then row */
  int count;
  int done;                 /* rows up to here were written by the present step and those before */
  int *now;                 /* [rows] which of `at` lies in each row now, -1: none */
  int rows;                 /* room in now */
  double noise, mix_noise;  /* how exactly scores and mixes of this layer follow from its rows, as a rule */
  struct score_guess guess; /* the last mistake that was found in this layer's scores */
  int other;                /* the layer whose rows were last found here; -1: none */
};

struct attend_head {
  int head;
  int rows; /* logged and not trimmed */
  const float *q, *scores, *weights, *out;
};

/* Which numbers of a row belong to head h: h·head_dim + d, or interleaved d·n_head + h. */
struct cut {
  bool interleaved;
  int n_head, head_dim;
};

struct attend {
  struct check *check;
  struct layer_rows *cache;
  int i; /* the step's index */
  struct attend_head head[ATTEND_HEADS];
  int count;
  int rows;     /* that got a score: the most of any head */
  double grain; /* the weights are rounded to multiples of this, as in a text of few decimals; 0: they are not */
  int right;    /* that should have */
  int shift;    /* rows are found so many places on */
  struct cut cut;
  double scale;      /* as it should be */
  double used_scale; /* as it seems to be */
  bool foreign;      /* rows of another layer are read here */
  bool no_softmax;   /* the weights are no softmax: they cannot stand for scores */
};

/* check_layer.c. All rows of a layer, none of them in its place yet; to be freed also after a failure. */
kvs_status layer_rows_load(struct check *check, int layer, struct layer_rows *c, kvs_error *err);
void layer_rows_free(struct layer_rows *c);
kvs_status layer_rows_check(struct check *check, struct layer_rows *c, kvs_error *err); /* D12 */

/* The row's writer now, or NULL: not logged. */
const struct layer_row *attend_row(const struct attend *a, int row);
double attend_dot(const struct cut *cut, const float *q, const float *k, int head);

kvs_status attend_counts(struct attend *a, kvs_error *err);  /* D3, and trims: check_softmax.c */
kvs_status attend_softmax(struct attend *a, kvs_error *err); /* D4 */
kvs_status attend_scores(struct attend *a, kvs_error *err);  /* D5, D6, D11: check_scores.c */
double attend_score_noise(const struct attend *a);           /* NaN: nothing to compare */
kvs_status attend_mix(struct attend *a, kvs_error *err);     /* out = Σ weights·V: check_mix.c */
double attend_mix_noise(const struct attend *a);

/* A fact at this step and layer. */
struct fact attend_fact(const struct attend *a, enum fact_kind kind);

#endif
