/* diagnose_parts.h (private): what the files of diagnose share. */
#ifndef KVS_STUDY_DIAGNOSE_PARTS_H
#define KVS_STUDY_DIAGNOSE_PARTS_H

#include "study/check/diagnose.h"
#include "study/check/recompute.h"

struct diagnosis {
  const struct check *check;
  const struct facts *facts;
  bool *explained; /* [facts->count] */
  bool *
      covered; /* [steps] a mistake of the cache or of attention was found in this step: what else is odd follows from it */
  enum hypothesis also[HYPOTHESIS_COUNT]; /* explains as much as this one, and cannot be told from it */
  bool *mine;                             /* [steps] scratch: the steps of the group being gathered */
  struct finding *at;
  size_t count, room;
};

/* Facts that belong together: those taken by one call of take, or more. */
struct group {
  size_t facts;
  const struct fact *first; /* the earliest, by step, then layer */
  unsigned long long kinds;
  int first_step, last_step, steps;
};

typedef bool predicate(const struct diagnosis *d, const struct fact *fact);

void group_start(struct diagnosis *d);
/* Takes the unexplained facts that the predicate holds for. */
void take(struct diagnosis *d, struct group *g, predicate *wanted);
/* Takes facts of these kinds in the group's steps: they follow from it. `kinds` is a set of bits 1ull << FACT_…. */
void take_with(struct diagnosis *d, struct group *g, unsigned long long kinds);
void take_fact(struct diagnosis *d, struct group *g, size_t i);
int step_index(const struct diagnosis *d, int step);

/* A finding for the group; its sentence and SQL are to be filled in. `covers`: what else is odd in these steps follows from it. NULL: no memory. */
struct finding *find(struct diagnosis *d, const struct group *g, bool covers, const char *kind, const char *also,
                     kvs_error *err);
/* The step's own row is read as zero in this step and as what it is later: attention runs over it before the append. */
bool not_stored_yet(const struct diagnosis *d, const struct fact *f);
/* "from step 9 on,", "in step 9,", "in steps 9 to 12,": good until the next call. */
const char *when(const struct finding *f);
void say(struct finding *f, const char *format, ...) KVS_PRINTF(2, 3);
void show(struct finding *f, const char *format, ...) KVS_PRINTF(2, 3);
void show_overwritten_rows(struct finding *f, int run);

#define BIT(kind) (1ull << FACT_##kind)
/* What may follow from another mistake. Facts that name one by themselves (rows of another layer, a scale, a dead row …) are in neither. */
#define RECOMPUTED                                                                                                     \
  (BIT(OFF_GRID) | BIT(ROW_OTHER_TOKEN) | BIT(ROW_SCALED) | BIT(ROW_SWAPPED) | BIT(CHAIN) | BIT(CHAIN_HYPOTHESIS) |    \
   BIT(KEY_WRONG) | BIT(QUERY_WRONG) | BIT(VALUE_WRONG) | BIT(WEIGHTS_WRONG) | BIT(LOGITS_WRONG) |                     \
   BIT(LOGITS_OTHER_ROW))
#define ATTENDED                                                                                                       \
  (BIT(SCORE_COUNT) | BIT(ROW_UNSTABLE) | BIT(ROW_SHIFTED) | BIT(MIX_WRONG) | BIT(V_READ_AS_ZERO) | BIT(K_READ_AS_ZERO))

/* What follows when one layer's attention is wrong. */
#define FOLLOWS (RECOMPUTED | BIT(MIX_WRONG) | BIT(SOFTMAX_WRONG))

/* Whether the fact says that a layer follows from the one below if it is taken to make this mistake. */
static inline bool guessed(const struct fact *f, enum hypothesis what) {
  return f->kind == FACT_CHAIN_HYPOTHESIS && (int)f->found == (int)what;
}

/* Each looks for its kinds. In the order in which diagnose.c calls them. */
kvs_status diagnose_stream(struct diagnosis *d, kvs_error *err);
kvs_status diagnose_cache(struct diagnosis *d, kvs_error *err);
kvs_status diagnose_rows(struct diagnosis *d, kvs_error *err); /* called by diagnose_cache */
kvs_status diagnose_scores(struct diagnosis *d, kvs_error *err);
kvs_status diagnose_attention(struct diagnosis *d, kvs_error *err);
kvs_status diagnose_position(struct diagnosis *d, kvs_error *err);
kvs_status diagnose_again(struct diagnosis *d, kvs_error *err);
kvs_status diagnose_rest(struct diagnosis *d, kvs_error *err);

#endif
