/* matrix_run.h: models to try check on, and traced runs of them in a temporary folder. */
#ifndef KVS_TESTS_MATRIX_RUN_H
#define KVS_TESTS_MATRIX_RUN_H

#include <sqlite3.h>
#include <stdbool.h>

#include "kvstep/kvstep.h"
#include "study/check/check.h"

/* A model with prompts for it, as tokens. */
struct matrix_model {
  const char *name;
  const kvs_model *model;
  const kvs_tokenizer *tokenizer; /* NULL: token i is spelled by the byte i + 1 */
  int prompts;
  int *prompt[16];
  int length[16];
};

/* A built-in model by name, or one of random weights of a shape; prompts are encoded or drawn. Aborts if that fails. */
struct matrix_model matrix_builtin(const char *name, const char *const *prompts, int count);
struct matrix_model matrix_random(const char *name, kvs_config config, unsigned seed, int prompts);
void matrix_model_free(struct matrix_model *m);

/* One run: a prompt of the model's, fed in a batch or token by token, and so many tokens of the best logits. */
struct matrix_run {
  const struct matrix_model *m;
  int prompt; /* which */
  const kvs_fault *fault;
  int from;
  int generate;
  bool singly; /* the prompt token by token */
  const kvs_log *log;
};

/* Traces it into the file. Aborts if that fails; a run may end early at the context's end. False: so early that not even the prompt fits. */
bool matrix_trace(const struct matrix_run *run, const char *path);

/* Two faults as one, each from its own step on; NULL: none. Valid until the next call. Inject it from step 0 on. */
const kvs_fault *matrix_both(const kvs_fault *a, int from_a, const kvs_fault *b, int from_b);

/* What check says of run 1; the model may be NULL. */
struct check_report matrix_look(const char *path, const kvs_model *model);
/* Whether both traces hold the same numbers, as far as both go. */
bool matrix_same(const char *a, const char *b);

/* The trace for SQL; the caller closes it. Both abort if they fail. */
sqlite3 *matrix_open(const char *path);
void matrix_execute(sqlite3 *db, const char *sql);

/* The path of a file in a folder of our own, good until the next but one call; a.db, b.db and c.db are removed with it. */
const char *matrix_file(const char *name);
void matrix_clear(void);

#endif
