/* check_pairs.h: runs with two faults at once put before `check`: does it name both? For `make bench-check BENCH_MODEL=pairs`, and in
 * small for a test. */
#ifndef KVS_TESTS_CHECK_PAIRS_H
#define KVS_TESTS_CHECK_PAIRS_H

#include "tests/support/check_matrix.h"

/* What came of the runs with two faults. A fault that leaves the run as the other alone would have made it need not be named. */
struct pair_line {
  const char *names[2];
  int runs;
  int right;   /* named: each of the two that did something, and nothing else */
  int missing; /* … not all of them */
  int extra;   /* something else as well */
};

/* All prompts of the model, each fault from its usual step on; adds to *line. */
void pairs_of(const struct matrix_model *m, const kvs_fault *a, const kvs_fault *b, const struct matrix_options *o,
              struct pair_line *line);

#endif
