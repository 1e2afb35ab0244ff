/* compare.h: two runs of the same tokens, number by number: how far they are apart in each step, and where the first number differs.
 * Run a is the reference, run b the one that is judged. The runs come from a trace (compare_trace) or from two engines
 * (compare_live); what is reckoned from a step's numbers is the same (diverge.h), so both give the same bits. */
#ifndef KVS_STUDY_COMPARE_H
#define KVS_STUDY_COMPARE_H

#include <stdbool.h>

#include "kvstep/engine.h"
#include "kvstep/tokenizer.h"
#include "study/look/look.h"

/* One token fed to both. Reals are NaN, others LOOK_NONE, where a run does not have what is needed. */
struct compare_step {
  int step, step_b; /* run a's step and run b's, whose numbers depend on its own steps; step_b LOOK_NONE: b made none */
  int extra;        /* steps that b made just before and a did not */
  int token;
  /* From the logits of this step: what comes next. */
  double kl, max_abs_logit;    /* KL(a‖b); max |logit_a − logit_b| */
  int top_a, top_b;            /* the most probable next token */
  int top1_same;               /* 1, 0 or LOOK_NONE */
  double logprob_a, logprob_b; /* ln of the probability that both gave to the token that was fed next */
  double attention_distance;   /* diverge_attention, the mean over the heads that both have */
};

/* What a number in a run is. In the order in which a step makes them. */
#define COMPARE_FIELDS(F)                                                                                              \
  F(LENGTH, "cache length", KVS_READ_LENGTH, STEP)                                                                     \
  F(POSITION, "position", KVS_READ_LENGTH, STEP)                                                                       \
  F(WTE, "wte", KVS_EMBED, STEP)                                                                                       \
  F(WPE, "wpe", KVS_EMBED, STEP)                                                                                       \
  F(X, "x", KVS_EMBED, STEP)                                                                                           \
  F(Q, "q", KVS_PROJECT, HEAD)                                                                                         \
  F(K, "k", KVS_PROJECT, HEADS)                                                                                        \
  F(V, "v", KVS_PROJECT, HEADS)                                                                                        \
  F(ROW, "cache row", KVS_APPEND, LAYER)                                                                               \
  F(ROW_K, "cached K", KVS_APPEND, HEADS)                                                                              \
  F(ROW_V, "cached V", KVS_APPEND, HEADS)                                                                              \
  F(SCORES, "score", KVS_SCORE, HEAD)                                                                                  \
  F(WEIGHTS, "weight", KVS_SOFTMAX, HEAD)                                                                              \
  F(OUT, "out", KVS_MIX, HEAD)                                                                                         \
  F(ATTN_OUT, "attn_out", KVS_OUTPUT, LAYER)                                                                           \
  F(X_MID, "x_mid", KVS_OUTPUT, LAYER)                                                                                 \
  F(MLP_OUT, "mlp_out", KVS_MLP, LAYER)                                                                                \
  F(X_OUT, "x_out", KVS_MLP, LAYER)                                                                                    \
  F(LOGITS, "logit", KVS_LOGITS, STEP)

enum compare_field {
#define COMPARE_ENUM(id, name, phase, scope) COMPARE_##id,
  COMPARE_FIELDS(COMPARE_ENUM)
#undef COMPARE_ENUM
      COMPARE_FIELD_COUNT
};

/* Whose a field is: the step's, a layer's, a layer's [n_head][head_dim] in one piece, or each head's own. */
enum compare_scope { COMPARE_STEP, COMPARE_LAYER, COMPARE_HEADS, COMPARE_HEAD };

const char *compare_field_name(enum compare_field field);
kvs_phase compare_field_phase(enum compare_field field);
enum compare_scope compare_field_scope(enum compare_field field);

/* The first thing that differs. */
struct compare_first {
  enum compare_what {
    COMPARE_NOTHING,
    COMPARE_NUMBER,  /* value_a and value_b are number `index` of a field */
    COMPARE_COUNT,   /* … has value_a numbers in a and value_b in b */
    COMPARE_EXTRA,   /* b makes value_b steps here that a does not */
    COMPARE_MISSING, /* b makes no step for this token */
    COMPARE_ENDED    /* b cannot go on: its context ends here */
  } what;
  int step, step_b;
  enum compare_field field;
  long compared;          /* vectors that both have and that were looked at up to here */
  int layer, head, index; /* LOOK_NONE where there is none; index counts within the head where there is one */
  double value_a, value_b;
};

/* Something counted twice: with run a and with run b. */
struct compare_share {
  int count, a, b;
};

/* A mean of ln p, and what it is over. */
struct compare_text {
  int tokens;
  double perplexity_a, perplexity_b; /* exp(−mean ln p); NaN without tokens */
};

struct comparison {
  int run_a, run_b;            /* of a trace; 0: live */
  char name_a[64], name_b[64]; /* "correct", "off-by-one" */
  int n_layer, n_head;
  int prompt_steps; /* the first so many of `steps` are the prompt's */
  struct compare_step *steps;
  int count;
  double
      *head_distance; /* [n_layer][n_head] mean attention distance over the steps that are summed up; NaN: not logged */
  struct compare_first first; /* … among the numbers that both have */
  bool same;                  /* not one number differs */
  bool blind;                 /* … because no vector was logged in both */
  bool forced;                /* b was fed tokens that it did not choose itself */
  bool ended_b;               /* b made fewer steps */
  int more_b;                 /* steps that b went on after a's end, the texts being the same up to there */

  /* Summed up: the steps after the prompt, or all where there are none. */
  int summed, with_logits, with_top, top1_kept;
  double kl_mean, kl_max, max_abs_logit, attention_mean, logprob_delta; /* the last: mean logprob_b − logprob_a */
  int kl_max_step, max_abs_step;
  struct compare_text own; /* the tokens fed after the prompt */

  /* Each on its own. */
  int *text_a, *text_b, length_a, length_b; /* tokens after the prompt */
  int parted;                               /* the first that differs; LOOK_NONE: none */

  struct compare_text text;     /* another text, live only; tokens 0: none was given */
  struct compare_share answers; /* questions with one right answer, live only; count 0: none were asked */
};

/* Zero is empty. */
void comparison_free(struct comparison *c);

/* Is the difference to be seen in what is generated? */
enum compare_verdict {
  COMPARE_SAME,      /* not one number differs */
  COMPARE_BLIND,     /* … but nothing was logged in both */
  COMPARE_LONGER,    /* … as far as a goes; b goes on */
  COMPARE_FED,       /* other numbers, and what the text would have been is not known: b was fed the tokens */
  COMPARE_INVISIBLE, /* the same text, other numbers */
  COMPARE_ANSWERS,   /* the same text here, but other questions are answered wrongly */
  COMPARE_VISIBLE    /* another text */
};
enum compare_verdict compare_verdict(const struct comparison *c);
/* One plain sentence, at most `size` bytes. */
void compare_sentence(const struct comparison *c, char *text, size_t size);

/* ---- parts that both sources use ---- */

/* One vector against another, by bits (a NaN is like a NaN). True if they differ; then the place is in *first: its field, layer, head,
 * index and values. `per_head` > 0: so many numbers belong to each head. */
bool compare_vectors(struct compare_first *first, enum compare_field field, int layer, int head, int per_head,
                     const float *a, int count_a, const float *b, int count_b);

/* What a step's logits give; `next` is the token that was fed next, or LOOK_NONE. */
void compare_logits(struct compare_step *step, const float *a, const float *b, int n_vocab, int next);

/* Appends a step (zero but for what is known). NULL: no memory. */
struct compare_step *compare_add_step(struct comparison *c, kvs_error *err);

/* Adds up what is summed up. `head_distance` [n_layer][n_head] holds sums and `head_count` how many each; both may be NULL. */
void compare_sum_up(struct comparison *c, const int *head_count);

#endif
