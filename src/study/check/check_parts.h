/* check_parts.h (private): what the files of check share: the run that is looked at, and the rules. */
#ifndef KVS_STUDY_CHECK_PARTS_H
#define KVS_STUDY_CHECK_PARTS_H

#include <sqlite3.h>

#include "study/check/check.h"
#include "study/check/facts.h"
#include "study/look/look_parts.h"

/* The numbers of one step. What the trace leaves NULL is LOOK_NONE, or NaN. */
struct check_step {
  int step, token;
  bool prefill;
  bool prompt, sampled; /* source; both false: forced, or not said */
  bool has_source;
  int before, after; /* cache lengths; worked out where the trace has none */
  int position;      /* LOOK_NONE: no wpe was added, or not said */
  bool claims;       /* the trace says which position it was */
  double logprob;
  int batch_first, batch_end; /* steps (as indices) that went in with it: consecutive prefill steps, or itself alone */
  bool rows_judged;           /* scores of this step were compared with q·K */
  bool k_judged;              /* layer 0's K row told the position, with weights */
  bool chain_judged;          /* some layer was worked out again */
};

/* More layers than any model has are not looked at. */
#define CHECK_LAYERS 4096

/* A score of this or less was masked: no q·K of a trained model comes near it. */
#define CHECK_MASKED (-1e4f)

/* How much of each thing was looked at, so that the report can say what its verdict rests on. */
struct check_seen {
  int lengths, claims, events, scores, products, softmaxes, mixes, k_rows, v_rows, chosen, prompt_tokens, fingerprints;
  int layers, logits; /* worked out again */
  int positions;      /* steps whose position was seen from vectors: wpe, or K rows of equal tokens */
};

struct check {
  struct look *look;
  const kvs_model *model;
  const struct check_progress *progress; /* or NULL */ /* NULL: none */
  int run;
  struct look_run shape; /* a copy */
  bool ours;             /* written by kvstep itself */
  double temperature;    /* NaN: not said */
  struct check_step *steps;
  int count;
  int prompt_length; /* tokens of the prompt, once */
  int pads; /* so many tokens at the start are left padding: they are not judged, and positions count from behind them */
  bool pads_masked;       /* that is seen from the weights */
  int shut_out;           /* so many rows at the start have no weight in any later step */
  bool rolls_back;        /* somewhere rows are given up, other than one at the context's end */
  int chosen, unheld;     /* tokens fed after the prompt, and those that nothing could be held against, … */
  const char *unheld_why; /* … and why */
  struct facts facts;
  struct check_seen seen;
  struct remarks *remarks;
  int noted[FACT_KIND_COUNT];
  int unreadable;   /* so many things of the trace were left out: no clean verdict */
  double tolerance; /* with weights: how exactly rows can match */
  int storage;      /* … and how they look stored: enum recompute_storage, -1 */
};

/* No more of one kind are kept: a verdict needs no more. */
#define FACTS_OF_A_KIND 20000

kvs_status check_note(struct check *check, const struct fact *fact, kvs_error *err);
/* Of the token of the i-th step. */
kvs_status check_note_token(struct check *check, enum fact_kind kind, int i, double found, double right,
                            kvs_error *err);

/* check_remarks.c */
kvs_status remark(struct remarks *remarks, kvs_error *err, const char *format, ...) KVS_PRINTF(3, 4);
void remarks_free(struct remarks *remarks);
kvs_status remark_seen(struct check *check, kvs_error *err);
kvs_status remark_unheld(struct check *check, kvs_error *err);
kvs_status remark_padding(struct check *check, kvs_error *err);
kvs_status remark_storage(struct check *check, kvs_error *err);
/* What would let more be said. `position`: the positions could be judged. */
kvs_status remark_missing(struct check *check, bool position, kvs_error *err);

/* A fact of this kind in this step, at no place yet. */
struct fact check_fact(const struct check *check, enum fact_kind kind, int step);

/* check_load.c: the run's numbers. KVS_ERR_INPUT in words where they cannot be those of a run: then nothing else is asked. */
kvs_status check_load(struct check *check, kvs_error *err);
/* The step's index in check->steps, or -1. */
int check_index(const struct check *check, int step);
/* Prepares a query of the trace with ?1 bound to the run. The caller finalizes. */
kvs_status check_query(struct check *check, const char *sql, sqlite3_stmt **statement, kvs_error *err);
kvs_status check_row(struct check *check, sqlite3_stmt *statement, bool *row, kvs_error *err);

/* The position that is right for this step: its length before, but for padding; LOOK_NONE: not known. */
int check_right_position(const struct check *check, int i);

/* check_padding.c. Sets check->pads by what the heads shut out, or by the positions that the trace claims. */
kvs_status check_padding(struct check *check, kvs_error *err);
/* How many tokens at the start are left padding if these [check->count] were the positions, LOOK_NONE where they are not known; 0: none. */
int check_padded(const struct check *check, const int *positions);

/* The rules that need no weights. Each adds facts. */
kvs_status check_lengths(struct check *check, kvs_error *err); /* D1, D14, claims: check_lengths.c */
/* Whether the cache was full before this step, and one row was taken out for its own: the context's end was passed. Where rows are given
 * up elsewhere too, it may be a draft's. */
bool check_full_again(const struct check *check, int i);
kvs_status check_rows(struct check *check,
                      kvs_error *err); /* D1 per layer, D12: rows that were never or twice written */
kvs_status check_events(struct check *check, kvs_error *err); /* check_events.c */
kvs_status check_tokens(struct check *check, kvs_error *err); /* D8: check_tokens.c */
/* check_prompt.c. *end: the first step after the prompt; -1: the trace's text does not tell. */
kvs_status check_prompt(struct check *check, int *end, kvs_error *err);
/* Whether the steps from i on are the prompt's tokens again, all of them: how many; else 0. */
int prompt_again_from(const struct check *check, int i, int prompt_length);
kvs_status check_positions(struct check *check, kvs_error *err); /* D2 without weights: check_positions.c */
kvs_status check_attention(struct check *check, kvs_error *err); /* D3 D4 D5 D6 D11 D12, mix: check_attention.c */

#endif
