/* compare_trace.h: two runs of a trace compared, and the result kept in its table `divergence`. */
#ifndef KVS_STUDY_COMPARE_TRACE_H
#define KVS_STUDY_COMPARE_TRACE_H

#include "study/compare/compare.h"

/* Which step of b was fed the same token as a step of a. Steps that only b made (the prompt again, a rejected draft) or did not
 * make (a token skipped) are found by the tokens: the shortest detour after which the streams agree again. Where there is none
 * the texts part, and nothing is paired from there on. */
struct alignment {
  int *step_b;  /* [steps_a] LOOK_NONE: b made none, or the texts have parted */
  int *extra;   /* [steps_a] steps that b made just before that one, and a did not */
  int steps_a;  /* paired or skipped, up to where the texts part */
  int parted_b; /* b's step where they part; LOOK_NONE */
};
kvs_status align_runs(struct look *look, int run_a, int run_b, struct alignment *out, kvs_error *err);
void alignment_free(struct alignment *alignment);

/* Looks for the first number that differs between first->step of a and first->step_b of b; true if there is one, then *first is
 * filled in. */
bool compare_find_first(struct look *look, const struct look_run *a, const struct look_run *b,
                        struct compare_first *first);

/* Compares run_b with run_a. *out is freed with comparison_free, also after a failure.
 * Errors: KVS_ERR_USAGE (no such run), KVS_ERR_INPUT (runs of other shapes or without steps; a damaged trace), KVS_ERR_MEMORY. */
kvs_status compare_runs(struct look *look, int run_a, int run_b, struct comparison *out, kvs_error *err);

/* The pairs worth comparing: each run with the first run of the same prompt that has no fault; or if no run is without, with the
 * first of its prompt. Runs without steps are left out. Writes at most `most`, in the order of the later runs; returns how
 * many. */
struct compare_pair {
  int run_a, run_b;
};
int compare_pairs(struct look *look, struct compare_pair *pairs, int most);

/* How many runs are left out so; *first gets the first of them, if there is one. */
int compare_count_empty(struct look *look, long long *first);

/* Replaces the rows of these pairs in the file's `divergence`, in one transaction.
 * Errors: KVS_ERR_IO (read-only, locked, full), KVS_ERR_INPUT (the table is none of schema.sql's). The file is then as it was. */
kvs_status compare_store(const char *path, const struct comparison *comparisons, int count, kvs_error *err);

#endif
