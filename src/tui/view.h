/* view.h: what every view is: a name, and a function that draws the state into an area. Views know nothing of each other. */
#ifndef KVS_TUI_VIEW_H
#define KVS_TUI_VIEW_H

#include "study/look/look.h"
#include "tui/cells.h"
#include "tui/state.h"

struct view {
  const char *name;  /* "step" */
  const char *title; /* "the nine moments of this token" */
  void (*draw)(struct cells *cells, struct area area, const struct state *state, struct look *look);
};

/* In the order of enum view_id. */
extern const struct view *const views[VIEW_COUNT];

extern const struct view view_step, view_cache, view_map, view_heads, view_product, view_embedding, view_next,
    view_compare, view_sql;

/* ---- what views share; view.c ------------------------------------------------------------------------------------- */

/* A number in `width` ≥ 6 columns with the digits its size allows: "-0.031", "12.40", "1.2e-7", "   nan". `text` [24]. */
void number_text(double value, int width, char *text);

/* The largest magnitude among the values, as the scale of a graph; 0 for none. */
double vector_largest(const float *values, int count);

/* Says in the middle of the area what is missing and how to get it. */
void draw_absent(struct cells *cells, struct area area, const char *what, const char *remedy);

/* The first and last of `count` rows to show in `room` lines so that `at` is among them; rows left out are told by the caller. */
void window_of(int count, int room, int at, int *first, int *last);

/* How bright one of `rows` weights is shown, 0 … 1: by its multiple of the even share 1/rows, from half a share on in proportion to
 * its logarithm, so that even attention over many rows is seen, and so is what stands out of it. Rises with the weight. */
double weight_shade(double weight, int rows);

/* One weight as a heat cell; one that is too small for a shade is a dot, so that it is not taken for no row at all. */
void draw_weight(struct cells *cells, struct area area, int row, int column, double weight, int rows);

/* look_head, but in a hurried frame only so many come from the file; then NULL, and cells->unfinished is set. */
#define HEADS_PER_FRAME 4
const struct look_head *head_in_time(struct cells *cells, struct look *look, int run, int step, int layer, int head,
                                     int *fetched);

/* The row with the largest weight, the first of equal ones; −1: nothing was logged, or no weight is a number. */
int heaviest_row(const struct look_head *head);

/* The sign of a square root, as words where only ASCII is drawn. */
const char *root_sign(const struct cells *cells);

/* Where only ASCII is drawn, signs among words become words: arrows -> and <- ("9 > 10" would be a comparison), √ sqrt, Σ sum. In
 * place, as far as the size allows. */
void plain_signs(const struct cells *cells, char *text, size_t size);

/* The part of a K or V row that belongs to the head; NULL if the row was not logged or has no such part. */
const float *head_part(const struct look_run *run, const float *row, int head);

/* Where the current step stands in the cache of the current layer. Under a fault nothing of it need be as the rule says. */
struct place {
  int P;               /* rows before the append; 0 unless `known` */
  int after;           /* and after it; LOOK_NONE: not in the trace */
  int own;             /* the row that k and v go to; P where they go to none */
  int here;            /* the row that the row cursor is on */
  int rows;            /* to list: those in the cache, the step's own, and all that are attended to */
  bool known, written; /* the trace has P; k and v do go to row `own` */
  int as_of;           /* the step after which rows are shown: before this step's append the one before it */
};
void place_of(const struct state *state, struct look *look, struct place *place);

/* What a row is whose numbers cannot be shown: "not logged", "never written", "from before this run". */
const char *origin_words(enum look_origin origin);

/* Whether the step's dials have reached `phase`: views show what comes later as not there yet. */
bool reached(const struct state *state, kvs_phase phase);

/* The whole screen: title, tokens, rule, the view, status line; or the help; or a word that it is too small (under 60 × 15). */
void screen_draw(struct cells *cells, const struct state *state, struct look *look, const char *trace_name);

#endif
