/* compare_live.h: a model with a fault against the same model without, token by token. One engine plays both parts, one after
 * the other; of the correct part digests of all vectors are kept, and of the first that differs both are worked out again. */
#ifndef KVS_STUDY_COMPARE_LIVE_H
#define KVS_STUDY_COMPARE_LIVE_H

#include "kvstep/trace.h"
#include "study/compare/compare.h"

struct compare_live_options {
  const int *tokens; /* the prompt, [token_count] */
  int token_count;
  int generate;    /* tokens that the correct model goes on with, greedily; the same are fed to the faulty one */
  int fault_from;  /* LOOK_NONE: where a fault usually begins */
  int threads;     /* as in kvs_engine_options */
  const int *text; /* [text_count] a text to measure perplexity on; may be NULL */
  int text_count;
};

struct compare_live;

/* Lets the correct model decode. All of `options` and the model must outlive *out, which is freed with compare_live_close.
 * Errors: those of the engine; KVS_ERR_CONTEXT is none: what fits is compared. */
kvs_status compare_live_open(const kvs_model *model, const kvs_tokenizer *tokenizer,
                             const struct compare_live_options *options, struct compare_live **out, kvs_error *err);
void compare_live_close(struct compare_live *live);

/* Compares one fault. *out is freed with comparison_free, also after a failure. Errors: as above. */
kvs_status compare_live_fault(struct compare_live *live, const kvs_fault *fault, struct comparison *out,
                              kvs_error *err);

/* The tokens that a fault (NULL: none) is compared on, the prompt first; of the prompt only, if `prompt` is not NULL, how many. */
kvs_status compare_live_tokens(struct compare_live *live, const kvs_fault *fault, const int **tokens, int *prompt,
                               int *count, kvs_error *err);

/* Feeds the tokens that `prompt_of` is compared on once more, with this fault (NULL: none), to an observer. A context's end is no error. */
kvs_status compare_live_replay(struct compare_live *live, const kvs_fault *fault, const kvs_fault *prompt_of,
                               const kvs_observer *observer, kvs_error *err);

/* The step from which the fault is injected. */
int compare_live_from(const struct compare_live *live, const kvs_fault *fault, int prompt);

#endif
