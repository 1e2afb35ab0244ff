/* diverge.h: how far two runs are apart in one step. Pure functions on the trace's float arrays, reckoned in double. */
#ifndef KVS_STUDY_DIVERGE_H
#define KVS_STUDY_DIVERGE_H

/* KL(a‖b) = Σ p_a·ln(p_a / p_b) in nats, where p = softmax(logits): what it costs to believe b where a is true. Each softmax
 * subtracts its own maximum first, so logits of any size do. A word of p_a = 0 adds nothing; one of p_b = 0 alone makes it
 * +∞. Never below 0: what rounding leaves there is 0. NaN without a distribution: no words, NaN, +∞, or nothing but −∞. */
double diverge_kl(const float *logits_a, const float *logits_b, int count);

/* max |a[i] − b[i]|. Equal infinities are 0 apart. NaN if there is one anywhere, or no number at all. */
double diverge_max_abs(const float *a, const float *b, int count);

/* Where the largest is, the first of equal ones; −1 if nothing but NaN is there. */
int diverge_top(const float *values, int count);

/* ½·Σ |a[row] − b[row]| over the rows present in either (a row that is absent has weight 0): the share of attention that
 * would have to move. 0: alike, 1: they share no row. Both sums are 1 in a correct trace; if not, it may exceed 1. */
double diverge_attention(const float *a, int rows_a, const float *b, int rows_b);

/* The run to set beside `run`: `chosen` if there is such another run, else run 1, or run 2 beside run 1. 0: there is no other. */
int diverge_other(int run, int chosen, int runs);

/* The other run after `chosen`, round and round, never `run` itself. 0: there is no other. */
int diverge_next_other(int run, int chosen, int runs);

#endif
