/* predict.h: the next number in the step, asked for instead of shown: which one it is, what is right, and what to say to an answer.
 * The question follows from where the dials are, so the state keeps nothing but what is typed and the tally. */
#ifndef KVS_TUI_PREDICT_H
#define KVS_TUI_PREDICT_H

#include <stdbool.h>
#include <stddef.h>

#include "study/look/look.h"
#include "tui/cells.h"
#include "tui/state.h"

enum prediction_kind {
  PREDICT_NOTHING,  /* no question: prediction.absent says why */
  PREDICT_POSITION, /* t of the next step */
  PREDICT_LENGTH,   /* the cache's length after this step's append */
  PREDICT_SCORES,   /* how many scores one head makes */
  PREDICT_HEAVIEST  /* the row with the largest weight */
};

struct prediction {
  enum prediction_kind kind;
  int answer;           /* by the rule, whatever the run did */
  int used;             /* what the run has; LOOK_NONE: no position at all */
  int P;                /* rows before the append of the step that is asked about */
  int step;             /* where the answer is seen … */
  kvs_phase moment;     /* … and when */
  int layer, head;      /* of the scores and weights */
  const float *weights; /* [rows], the look's; NULL unless the heaviest row is asked for */
  int rows;
  char absent[128];
};

/* The question that the dials stand before. */
void prediction_find(const struct state *state, struct look *look, struct prediction *prediction);

/* The question that is open now; PREDICT_NOTHING while none is. What draws uses this to know what to hide. */
void prediction_open(const struct state *state, struct look *look, struct prediction *prediction);

/* Whether `given` is right; `text` gets the reason in one line. */
bool prediction_judge(const struct prediction *prediction, int given, char *text, size_t size);

/* A length, position or step as the screen may show it: "?" where it is the number that is asked for. `text` [16]. */
const char *prediction_number(const struct prediction *prediction, int number, char *text);
/* The same for a row of numbers one after another: where one is hidden, those after it would give it away. */
const char *prediction_label(const struct prediction *prediction, int number, char *text);
/* Whether the slots of the cache would give the answer by being counted. */
bool prediction_hides_slots(const struct prediction *prediction, const struct state *state);
/* Whether scores and weights are hidden: the largest score gives the heaviest row away. */
bool prediction_hides_scores(const struct prediction *prediction);
/* Whether a whole view would show the answer. The step view hides its own numbers. */
bool prediction_covers(const struct prediction *prediction, enum view_id view);

/* Does REQUEST_ASK, REQUEST_JUDGE or REQUEST_SKIP: opens the question, or answers it and goes where the answer is seen. */
void predict_serve(struct state *state, struct look *look, enum request request);

/* The question and what is being typed, on the two lines above the status line. */
#define PREDICT_LINES 2
void predict_draw(struct cells *cells, struct area area, const struct state *state, struct look *look);

#endif
