/* check_scores.h (private): scores beside what they should follow from, as check_scores.c and check_score_rows.c share them. */
#ifndef KVS_STUDY_CHECK_SCORES_H
#define KVS_STUDY_CHECK_SCORES_H

#include "study/check/check_attend.h"

/* One score beside the q·K it should follow from, unscaled; `size` is |q|·|K|. */
struct pair {
  int head, row; /* head: index in a->head */
  double score, product, size;
};

struct pairs {
  struct pair *at;
  int count, rows; /* rows: how many different ones */
};

double score_length(const float *values, int count); /* Euclidean */
/* The score of one row in one head as logged; false: there is none, or the row was kept out. */
bool score_logged(const struct attend *a, const struct attend_head *h, int row, double *score);
/* Whether the score follows. `offset`: by which this head's are moved, where weights stand for scores. */
bool score_fits(const struct attend *a, const struct pair *p, double scale, double offset);
kvs_status score_note(struct attend *a, enum fact_kind kind, int row, double found, double right, kvs_error *err);

/* Mistakes of single rows; offset [heads]. A few are tried against other layers; all that is wrong is one fact of the worst kind. */
kvs_status score_judge_rows(struct attend *a, const struct pairs *p, const double *offset, kvs_error *err);

#endif
