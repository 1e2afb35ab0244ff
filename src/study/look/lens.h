/* lens.h: the logit lens: what the model would say if a layer were its last: softmax(lm_head · ln_f(x_out)) of the residual stream
 * that the trace has for each layer (layer_step.x_out). The trace has no weights, so the model itself is needed. In the last
 * layer the lens gives the very logits of the step, by the same kernels.
 * After nostalgebraist, "interpreting GPT: the logit lens" (2020).
 */
#ifndef KVS_STUDY_LENS_H
#define KVS_STUDY_LENS_H

#include "kvstep/error.h"
#include "kvstep/model.h"
#include "study/look/look.h"

struct lens;

/* What one layer would say after one step. Probabilities are over the whole vocabulary. */
struct lens_layer {
  int top; /* the most probable token, the lowest id of equal ones */
  double top_probability;
  int rank; /* of the token that was asked about: 1 is the best */
  double probability;
};

enum lens_answer {
  LENS_READY,
  LENS_LATE,       /* *work is used up; asking again goes on where it stopped */
  LENS_NOT_LOGGED, /* the trace has no x_out here */
  LENS_OTHER_MODEL /* the run's shape is not this model's */
};

/* The model stays the caller's and must outlive the lens. Errors: KVS_ERR_MEMORY. */
kvs_status lens_create(const kvs_model *model, struct lens **out, kvs_error *err);
void lens_free(struct lens *lens);

/* What `layer` says of `token` after `step`, into *answer when it is ready. Reckoning takes n_vocab · n_embd multiplications a layer,
 * which are taken off *work; of the answers the last 1,024 are kept. */
enum lens_answer lens_ask(struct lens *lens, struct look *look, int run, int step, int layer, int token, long *work,
                          struct lens_layer *answer);

#endif
