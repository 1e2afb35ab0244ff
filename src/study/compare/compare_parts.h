/* compare_parts.h (private): what the two files of the live comparison share. */
#ifndef KVS_STUDY_COMPARE_PARTS_H
#define KVS_STUDY_COMPARE_PARTS_H

#include "study/compare/compare_live.h"
#include "study/compare/record.h"

/* What the correct model was fed, and what it made of it. */
struct reference {
  bool made;
  bool
      fills_context; /* the prompt was repeated until the context is nearly full; past its end the last n_ctx tokens are read anew */
  int *tokens; /* [count], the prompt first */
  int prompt, count;
  struct records records;
};

struct compare_live {
  const kvs_config *config;
  const kvs_tokenizer *tokenizer;
  const struct compare_live_options *options;
  kvs_engine *engine;
  struct reference reference[2]; /* as given; filling the context */
  double *text_logprob;          /* [text_count] the correct model's, NaN where not scored; made once */
  bool answered;
  int right; /* questions that the correct model answers rightly */
};

/* Where the first number that differs is to be found in both runs. */
struct place {
  int call_a, step_a, call_b, step_b;
  enum compare_field field;
  int layer;
};

/* The engine as new, with this fault and observer. */
void live_start(struct compare_live *live, const kvs_fault *fault, int from, const kvs_observer *observer);
kvs_status live_reference(struct compare_live *live, const kvs_fault *fault, struct reference **out, kvs_error *err);
/* One call of the engine: 0 feeds the prompt, i the i-th token after it. */
int reference_calls(const struct reference *r);
/* Does the correct model read its last n_ctx tokens anew in this call? */
bool reference_windowed(const struct reference *r, const kvs_config *config, int call);
kvs_status reference_feed(kvs_engine *engine, const kvs_config *config, const struct reference *r, int call,
                          bool correct, kvs_error *err);
/* The correct model's record of the i-th token fed; NULL if there is none. */
const struct record *reference_record(const struct reference *r, int i);

/* Each on its own: what the faulty model generates after the prompt, beside what the correct one did. */
kvs_status live_free_running(struct compare_live *live, const struct reference *r, const kvs_fault *fault,
                             struct comparison *out, kvs_error *err);
/* Perplexity of both on the text of the options. */
kvs_status live_text(struct compare_live *live, const kvs_fault *fault, struct comparison *out, kvs_error *err);
/* Words spelled backwards, for a model that does nothing else. */
kvs_status live_answers(struct compare_live *live, const kvs_fault *fault, struct comparison *out, kvs_error *err);

#endif
