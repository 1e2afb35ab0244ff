/* check.h: is this trace the trace of a correct decode, and if not, which mistake does it show? From the trace alone, and better
 * with the model's weights. The rules and what each needs: docs/check.md. It never looks at what the trace says of itself in
 * run.fault.
 */
#ifndef KVS_STUDY_CHECK_H
#define KVS_STUDY_CHECK_H

#include <stdbool.h>
#include <stddef.h>

#include "kvstep/engine.h"
#include "kvstep/model.h"
#include "study/look/look.h"

enum check_verdict { CHECK_CLEAN, CHECK_FAULT, CHECK_CANNOT_TELL };

/* "clean", "fault", "cannot tell". */
const char *check_verdict_name(enum check_verdict verdict);

#define FINDING_KINDS 4
#define FINDING_RULES 6

/* One mistake. Places that do not apply are -1. */
struct finding {
  const char
      *kinds[FINDING_KINDS]; /* names as in `kvstep faults`, or check's own; several: they look the same by nature */
  int kind_count;
  const char *rules[FINDING_RULES];
  int rule_count;
  int first_step, last_step, steps; /* how many steps show it */
  bool to_end;                      /* every step from the first on that could show it does */
  int layer, head, row;             /* of the first sign */
  char sentence[800];
  char sql[1000]; /* shows it: `kvstep sql TRACE "…"`, or any sqlite3 */
};

/* A list of lines. */
struct remarks {
  char **at;
  size_t count, room;
};

struct check_report {
  int run;
  char model[64]; /* as the trace calls it */
  int steps;
  bool weights; /* looked at as well */
  enum check_verdict verdict;
  struct finding *findings; /* in the order in which they happened */
  size_t count;
  struct remarks remarks; /* what was checked and what could not be; for "cannot tell", what to log */
};

/* Told as the steps are worked out again with the weights, the part that takes long: `done` of `count`. */
struct check_progress {
  void *context;
  void (*tell)(void *context, int run, int done, int count);
};

/* Checks one run. `progress` may be NULL, and so may `model`: then only what needs no weights. What cannot be read of the trace is a remark, and the
 * verdict says so. The caller frees *report with check_report_free, also after a failure. Errors: KVS_ERR_MEMORY, KVS_ERR_INPUT (no such
 * run), KVS_ERR_IO. */
kvs_status check_run(struct look *look, int run, const kvs_model *model, const struct check_progress *progress,
                     struct check_report *report, kvs_error *err);
void check_report_free(struct check_report *report);

/* Two runs of the trace that were both found clean and were fed the same tokens must hold the same rows (D13): where they do not,
 * both reports are changed. */
kvs_status check_rerun(struct look *look, struct check_report *reports, size_t count, kvs_error *err);

/* The table row of a kind, with the right and the mistaken line of code; NULL for check's own kinds. */
const kvs_fault *finding_fault(const struct finding *finding, int kind);

#endif
