/* view.h: what every view is: a name, and a function that draws the state into an area. Views know nothing of each other. */
#ifndef KVS_TUI_VIEW_H
#define KVS_TUI_VIEW_H

#include "study/look.h"
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

/* One weight as a heat cell; one that is too small for a shade is a dot, so that it is not taken for no row at all. */
void draw_weight(struct cells *cells, struct area area, int row, int column, double weight);

/* The sign of a square root, as words where only ASCII is drawn. */
const char *root_sign(const struct cells *cells);

/* The part of a K or V row that belongs to the head; NULL if the row was not logged or has no such part. */
const float *head_part(const struct look_run *run, const float *row, int head);

/* Whether the step's dials have reached `phase`: views show what comes later as not there yet. */
bool reached(const struct state *state, kvs_phase phase);

/* The last line of the help that is worth being the first shown, on a screen of this size. */
int screen_help_last(int rows, int columns);

/* The whole screen: title, tokens, rule, the view, status line; or the help; or a word that it is too small (under 60 × 15). */
void screen_draw(struct cells *cells, const struct state *state, struct look *look, const char *trace_name);

#endif
