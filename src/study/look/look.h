/* look.h: looking into a trace: one step, one head, one row at a time, by key. What was read is kept for a while, so that
 * stepping back and forth asks the file once. Nothing here decodes or judges; absent is absent.
 *
 * All pointers that are returned belong to the look and hold until look_refresh or look_close, or until 64 more of the same kind
 * have been asked for. A function that returns NULL says "not in the trace"; an error of SQLite is remembered and
 * told by look_error, never swallowed.
 */
#ifndef KVS_STUDY_LOOK_H
#define KVS_STUDY_LOOK_H

#include <stdbool.h>

#include "kvstep/engine.h"
#include "kvstep/error.h"

struct sqlite3;
struct look;

/* Numbers that the trace leaves NULL are LOOK_NONE, reals NaN, strings "". */
#define LOOK_NONE (-1)

/* No model has more heads, of all layers together (the largest GPT-3 has 9216): who asks for each of them in a hostile file comes to
 * an end. A run that says so has n_layer and n_head LOOK_NONE. */
#define LOOK_MOST_HEADS (1 << 14)

struct look_run {
  int run; /* from 1 */
  char model[64], fault[64], engine[64], created_at[32], finished_at[32];
  char model_sha256[65]; /* of its weights */
  char prompt[256];      /* shown with visible control characters, cut */
  int n_layer, n_head, n_embd, head_dim, n_ctx, n_vocab;
  int fault_from_step;
  int steps; /* how many it has so far */
};

struct look_step {
  int run, step;
  kvs_mode mode;     /* KVS_DECODE where the trace has NULL */
  kvs_source source; /* KVS_FORCED where the trace has NULL */
  int token;
  char text[64]; /* the token as shown */
  int length_before, position, length_after;
  double logprob, seconds;
  int prompt_steps; /* steps of this run's first batch, or where the prompt was fed singly, of the prompt */
};

/* One head in one step. Arrays are NULL where they were not logged. */
struct look_head {
  int run, step, layer, head;
  int rows;                      /* scores and weights have this many */
  const float *q, *out;          /* [head_dim] */
  const float *scores, *weights; /* [rows] */
};

/* One row of one layer's cache as it was after `step`: the newest write to it up to that step. */
struct look_row {
  int run, layer, row;
  int step;           /* that wrote it */
  const float *k, *v; /* [n_embd] */
};

struct look_vectors {
  int run, step;
  const float *wte, *wpe, *x; /* [n_embd] */
  const float *logits;        /* [n_vocab] */
};

struct look_layer {
  int run, step, layer;
  const float *x_in, *attn_out, *x_mid, *mlp_out, *x_out; /* [n_embd] */
};

#define LOOK_TOP 20
struct look_top {
  int run, step, count;
  struct {
    int token;
    char text[64];
    double logit, probability;
  } token[LOOK_TOP];
};

struct look_summary {
  int run, step, layer, head;
  double entropy, max_weight, self_weight, first_weight, previous_weight, weight_sum;
  int max_row;
};

/* Takes the connection over (from kvs_trace_read) and closes it in look_close, or here if this fails. Another program's lock is
 * waited for briefly. Errors: KVS_ERR_MEMORY, KVS_ERR_INPUT, KVS_ERR_IO (locked, gone). */
kvs_status look_open(struct sqlite3 *db, struct look **out, kvs_error *err);
void look_close(struct look *look);

/* Sees whether the trace has grown, or changed in another way: *changed. Costs a few small queries; call it a few times a second.
 * That the file was deleted or replaced is told by look_error, once: what was open can still be read. */
kvs_status look_refresh(struct look *look, bool *changed, kvs_error *err);

/* The last failure, or NULL; told once. The text holds until look_error is called again. */
const char *look_error(struct look *look);

int look_runs(struct look *look);
const struct look_run *look_run(struct look *look, int run);

/* What a run is called: "correct" where it says that no fault was put in, the fault's name, or "unchecked" where it says
 * nothing, as another engine's may. */
const char *look_run_name(const struct look_run *run);

const struct look_step *look_step(struct look *look, int run, int step);
const struct look_head *look_head(struct look *look, int run, int step, int layer, int head);
/* Whether that head is at hand, so that look_head need not go to the file. */
bool look_has_head(struct look *look, int run, int step, int layer, int head);
const struct look_row *look_row(struct look *look, int run, int step, int layer, int row);
const struct look_vectors *look_vectors(struct look *look, int run, int step);
const struct look_layer *look_layer(struct look *look, int run, int step, int layer);
const struct look_top *look_top(struct look *look, int run, int step);
const struct look_summary *look_summary(struct look *look, int run, int step, int layer, int head);

/* The step whose token's K and V lie in `row` of this layer at `step`: row itself in a correct run. LOOK_NONE if unknown. */
int look_row_step(struct look *look, int run, int step, int layer, int row);
/* Its token's text, "?" if unknown. Never NULL. */
const char *look_row_text(struct look *look, int run, int step, int layer, int row);

/* What one step did to one layer's cache. Lengths are this layer's own, by its events, or where these were not logged, the step's. */
struct look_append {
  int run, step, layer;
  int before, after; /* rows just before and just after the append; LOOK_NONE: not in the trace */
  int row;           /* that k and v were written to; LOOK_NONE: to none. Not `logged`: what the rule says, `before` */
  bool logged;       /* kv_row says which rows this step wrote in this layer */
};
const struct look_append *look_append(struct look *look, int run, int step, int layer);

/* Where the numbers in `row` of this layer's cache come from, as it was after `step`. */
enum look_origin {
  LOOK_WRITTEN,    /* a step of this run wrote them: look_row */
  LOOK_NOT_LOGGED, /* one may have, and the trace does not tell */
  LOOK_NEVER,      /* none did, although kv_row was logged: whatever the memory held */
  LOOK_EARLIER     /* they were there before the run's first step */
};
enum look_origin look_row_origin(struct look *look, int run, int step, int layer, int row);

/* A token's text as the trace has it, "?" if it does not. Never NULL. */
const char *look_token_text(struct look *look, int token);

/* The next step after `from` (direction +1) or before it (-1) whose token's text contains `text`; LOOK_NONE if there is none.
 * Case counts (of ASCII letters) if `text` has a capital. From the very beginning: `from` -1. */
int look_find(struct look *look, int run, int from, int direction, const char *text);

/* The first step, from `from` on, where two runs' tokens, positions or logits' top token differ; LOOK_NONE if none does. */
int look_first_difference(struct look *look, int run_a, int run_b, int from);

/* The connection itself, for the SQL view: same functions, same fast views. */
struct sqlite3 *look_db(struct look *look);

/* A number that no other look of this process has had, for whoever keeps what was reckoned from one. */
unsigned long look_id(const struct look *look);

#endif
