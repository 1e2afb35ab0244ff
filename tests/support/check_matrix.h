/* check_matrix.h: runs of the real engine, right and with each fault, put before `check`: what is named, what is missed, what is a false
 * alarm. For `make bench-check`, and in small for a test. */
#ifndef KVS_TESTS_CHECK_MATRIX_H
#define KVS_TESTS_CHECK_MATRIX_H

#include <stdio.h>

#include "tests/support/matrix_run.h"

/* What came of the runs with one fault. */
struct matrix_line {
  const char *name; /* of the fault, or of a control */
  int runs;
  int unseen;             /* runs that the fault left exactly as a right one: nothing to find */
  int named, among, more; /* the very kind; one of kinds that look the same; the kind, and another one besides */
  int mute;               /* findings whose query gives no row in a plain SQLite */
  int wrong, missed;      /* another kind; nothing */
};

/* What of the trace is left for check to see. */
enum matrix_sight {
  SIGHT_ALL,
  SIGHT_ROWS,    /* tokens and kv_row: no heads, no vectors, no claimed positions or lengths */
  SIGHT_WEIGHTS, /* of head_step no scores */
  SIGHT_CLAIMS,  /* all but positions, lengths and the input vectors */
  SIGHT_COUNT
};

struct matrix_options {
  enum matrix_sight sight;
  bool weights;
  int generate;  /* tokens after the prompt */
  bool late;     /* also from a later step on */
  FILE *details; /* each wrong or missed one is told here; NULL: nowhere */
};

/* Takes away from a trace what another engine may not log. */
void matrix_blind(const char *path, enum matrix_sight sight);

/* All prompts of the model with this fault; adds to *line. */
void matrix_fault(const struct matrix_model *m, const kvs_fault *fault, const struct matrix_options *o,
                  struct matrix_line *line);

/* Right runs, spoilt in ways that are no fault. named: clean. */
enum matrix_control {
  CONTROL_RIGHT,
  CONTROL_SINGLY,
  CONTROL_F16,
  CONTROL_BF16,
  CONTROL_DRIFT,
  CONTROL_STEPS,
  CONTROL_PARTS,
  CONTROL_ROWS,
  CONTROL_COUNT
};
void matrix_control(const struct matrix_model *m, enum matrix_control control, const struct matrix_options *o,
                    struct matrix_line *line);

#endif
