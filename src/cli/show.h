/* show.h: one step of a trace, read for `kvstep show`. */
#ifndef KVS_CLI_SHOW_H
#define KVS_CLI_SHOW_H

#include "cli/out.h"
#include "trace/query.h"

#define NOT_LOGGED (-1)
#define SHOWN_TOKENS 5

/* What was asked for; run, step, layer and head are NOT_LOGGED where nothing was said. */
struct shown {
  int run, step, layer, head;
};

/* Everything that is shown. Numbers that the trace leaves NULL are NOT_LOGGED, strings NULL, reals NaN. */
struct step_view {
  struct shown at;
  int last_run, last_step;
  char *model, *fault;
  bool ours; /* kvstep made the run, so its options would log more */
  int n_layer, n_head, n_embd, head_dim;

  char *mode, *text, *source;
  int token, length_before, position, length_after;
  double logprob, seconds;

  struct vector wte, wpe, x, logits;             /* step_vector */
  struct vector k, v;                            /* kv_row: the row that this step wrote in this layer … */
  int row;                                       /* … and its number */
  struct vector q, scores, weights, out;         /* head_step */
  struct vector attn_out, x_mid, mlp_out, x_out; /* layer_step */
  struct {
    char *text;
    double probability;
  } next[SHOWN_TOKENS];
  int next_count;
};

/* Reads it; at.* without a value is chosen: the last run, its last decode step (or last step), layer 0, head 0.
 * The caller frees with step_view_free, also after a failure. */
kvs_status step_view_read(sqlite3 *db, const char *path, const struct shown *at, struct step_view *view,
                          kvs_error *err);
void step_view_free(struct step_view *view);

/* The text of the token whose K and V lay in `row` of this layer at this step; NULL if the trace does not say. */
kvs_status row_token(sqlite3 *db, const struct step_view *view, int row, char **text, kvs_error *err);

/* Prints the nine moments on stdout. */
kvs_status step_view_print(sqlite3 *db, const struct step_view *view, struct style style, kvs_error *err);

#endif
