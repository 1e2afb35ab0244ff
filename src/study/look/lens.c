/* lens.c: the logit lens, a piece at a time: one layer of a model with 50,257 tokens takes tens of milliseconds. */
#include "study/look/lens.h"

#include <math.h>
#include <stdlib.h>

#include "engine/kernels.h"

#define KEPT 1024 /* answers: 21 steps of the deepest GPT-2 */

/* Rows of lm_head in one piece; *work is looked at between two. */
#define PIECE 256

/* Whose answer it is. `sum` is one of x_out's bytes: a step that another engine wrote anew is another one. */
struct question {
  unsigned long look; /* look_id; 0: none */
  int run, step, layer, token;
  uint64_t sum;
};

struct lens {
  const kvs_model *model;
  const kvs_kernels *kernels;
  struct {
    struct question question;
    struct lens_layer answer;
  } kept[KEPT];

  /* the question under way */
  struct question open;
  int done;      /* rows of lm_head */
  float *normed; /* [n_embd] ln_f(x_out) */
  float *logits; /* [n_vocab] */
};

kvs_status lens_create(const kvs_model *model, struct lens **out, kvs_error *err) {
  struct lens *lens = calloc(1, sizeof *lens);
  *out = NULL;
  if (!lens) return kvs_fail_memory(err, "the logit lens");
  lens->model = model;
  lens->kernels = kvs_kernels_find(NULL);
  lens->normed = malloc((size_t)model->config.n_embd * sizeof *lens->normed);
  lens->logits = malloc((size_t)model->config.n_vocab * sizeof *lens->logits);
  if (!lens->normed || !lens->logits) {
    lens_free(lens);
    return kvs_fail_memory(err, "the logit lens");
  }
  *out = lens;
  return KVS_OK;
}

void lens_free(struct lens *lens) {
  if (!lens) return;
  free(lens->normed);
  free(lens->logits);
  free(lens);
}

/* FNV-1a, 64 bits. */
static uint64_t sum_of(const float *values, int count) {
  const unsigned char *bytes = (const unsigned char *)values;
  uint64_t sum = 14695981039346656037u;
  for (size_t i = 0; i < (size_t)count * sizeof *values; i++) sum = (sum ^ bytes[i]) * 1099511628211u;
  return sum;
}

static bool same(const struct question *a, const struct question *b) {
  return a->look == b->look && a->run == b->run && a->step == b->step && a->layer == b->layer && a->token == b->token &&
         a->sum == b->sum;
}

/* Neighbouring steps and all layers of one step have places of their own. */
static size_t place_of_question(const struct lens *lens, const struct question *q) {
  return ((size_t)q->step * (size_t)lens->model->config.n_layer + (size_t)q->layer) % KEPT;
}

/* From the logits of all tokens to the answer; softmax in double, as the trace's probabilities are. */
static struct lens_layer conclude(const float *logits, int count, int token) {
  struct lens_layer answer = {.rank = 1};
  double sum = 0;
  for (int i = 1; i < count; i++)
    if (logits[i] > logits[answer.top]) answer.top = i;
  for (int i = 0; i < count; i++) {
    sum += exp((double)logits[i] - (double)logits[answer.top]);
    answer.rank += logits[i] > logits[token] || (i < token && logits[i] == logits[token]);
  }
  answer.top_probability = 1 / sum;
  answer.probability = exp((double)logits[token] - (double)logits[answer.top]) / sum;
  return answer;
}

/* Reckons on until all rows are done; false if *work was used up before. */
static bool reckon(struct lens *lens, const float *x_out, const struct question *question, long *work) {
  const kvs_config *c = &lens->model->config;
  if (*work <= 0) return false; /* nor does a question that cannot begin push out the one under way */
  if (!same(question, &lens->open)) {
    lens->kernels->layer_norm(lens->normed, x_out, &lens->model->ln_f, c->layer_norm_epsilon, c->n_embd);
    lens->open = *question;
    lens->done = 0;
  }
  while (lens->done < c->n_vocab) {
    if (*work <= 0) return false;
    int end = c->n_vocab - lens->done > PIECE ? lens->done + PIECE : c->n_vocab;
    lens->kernels->dot_rows(lens->logits, c->n_vocab, lens->normed, 1, &lens->model->lm_head, lens->done, end);
    *work -= (long)(end - lens->done) * c->n_embd;
    lens->done = end;
  }
  return true;
}

enum lens_answer lens_ask(struct lens *lens, struct look *look, int run, int step, int layer, int token, long *work,
                          struct lens_layer *answer) {
  const kvs_config *c = &lens->model->config;
  const struct look_run *shape = look_run(look, run);
  if (!shape || shape->n_layer != c->n_layer || shape->n_embd != c->n_embd || shape->n_vocab != c->n_vocab ||
      token < 0 || token >= c->n_vocab)
    return LENS_OTHER_MODEL;
  const struct look_layer *found = look_layer(look, run, step, layer);
  if (!found || !found->x_out) return LENS_NOT_LOGGED;
  struct question question = {look_id(look), run, step, layer, token, sum_of(found->x_out, c->n_embd)};
  size_t place = place_of_question(lens, &question);
  if (!same(&question, &lens->kept[place].question)) {
    if (!reckon(lens, found->x_out, &question, work)) return LENS_LATE;
    lens->kept[place].question = question;
    lens->kept[place].answer = conclude(lens->logits, c->n_vocab, token);
    lens->open = (struct question){0};
  }
  *answer = lens->kept[place].answer;
  return LENS_READY;
}
