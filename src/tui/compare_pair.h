/* compare_pair.h (private to the comparing view): two runs side by side, step by step, and the numbers that tell them apart. */
#ifndef KVS_TUI_COMPARE_PAIR_H
#define KVS_TUI_COMPARE_PAIR_H

#include "tui/view.h"

/* Two runs at a time. `a` is this run, `b` the other. */
struct pair {
  const struct look_run *a, *b;
  int steps;  /* of the longer one */
  int first;  /* the first step that differs; LOOK_NONE */
  int parted; /* the first step whose tokens differ, as far as the list shows; LOOK_NONE */
};

/* One step of both, copied: what look gives out does not hold for a whole list. */
struct side {
  bool there, wrong;
  int token, position, top;
  char text[64], top_text[64];
  double top_logit; /* NaN: no top token was logged */
};

/* How far two steps are apart, and what that was reckoned from. */
struct numbers {
  unsigned long look; /* look_id */
  int run_a, run_b, step;
  int tokens[2], positions[2];
  double top_logits[2];
  double kl, max_abs;
  int tops[2];
};

/* Two logits vectors of 50,257 words take about a millisecond, so what was reckoned is kept, and a frame reckons only so many
 * words; the steps nearest the current one come first, the others in the next frames. */
#define WORDS_PER_FRAME 400000

/* Of a step of both. NULL: the logits were not logged, or *words is used up (then *late is set). */
const struct numbers *pair_numbers(struct look *look, const struct pair *pair, int step, const struct side *sides,
                                   long *words, bool *late);

/* Sets first and parted, as far as the step `last`, the last one that the list shows. */
void pair_find_differences(struct look *look, struct pair *pair, int last);

struct side pair_side(struct look *look, const struct look_run *run, int step);

/* Without a list of the best, the logits themselves tell which token it is, though not how it reads. */
void pair_top_from_logits(struct side *side, int top);

/* ---- compare_attention.c ---- */

/* How far apart each head's attention is, a line for each layer; and what the chosen head attends to in both runs, row by row. */
void compare_attention(struct cells *cells, struct area area, const struct state *state, struct look *look,
                       const struct pair *pair);
void compare_weights(struct cells *cells, struct area area, const struct state *state, struct look *look,
                     const struct pair *pair);

#endif
