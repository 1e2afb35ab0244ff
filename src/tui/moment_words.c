/* moment_words.c: the ten moments in words, by what the run did. */
#include "tui/moment_words.h"

#include <math.h>
#include <stdio.h>

#include "study/look/attention.h"
#include "tui/predict.h"

/* What the words are about. */
struct about {
  const struct state *s;
  struct look *look;
  const struct look_run *run;
  const struct look_step *step;
  const struct look_head *head; /* NULL: not logged */
  const struct place *place;
  const char *root;
  struct prediction asked;
};

/* ---- read, embed, append ---------------------------------------------------------------------------------------------- */

/* A trace that does not say how long the cache was cannot be judged. */
static bool right_position(const struct look_step *t) {
  return t->length_before == LOOK_NONE || t->position == t->length_before;
}

static bool read_words(const struct about *a, char *text, size_t size) {
  const struct look_step *t = a->step;
  char number[16];
  if (t->position == t->length_before || t->position == LOOK_NONE)
    snprintf(text, size, "t = cache length %d", t->length_before);
  else
    snprintf(text, size, "cache length %d, t = %s", t->length_before,
             prediction_number(&a->asked, t->position, number));
  return right_position(t);
}

static bool embed_words(const struct about *a, char *text, size_t size) {
  const struct look_step *t = a->step;
  char number[16];
  if (t->position == LOOK_NONE)
    snprintf(text, size, "x = wte[%d], no position", t->token);
  else
    snprintf(text, size, "x = wte[%d] + wpe[%s]", t->token, prediction_number(&a->asked, t->position, number));
  return right_position(t);
}

static bool all_zero(const float *values, int count) {
  for (int i = 0; values && i < count; i++)
    if (values[i] != 0) return false;
  return values && count > 0;
}

const char *zeros_written(const struct state *s, struct look *look, const struct place *place) {
  const struct look_run *run = look_run(look, s->run);
  const struct look_row *own = place->written ? look_row(look, s->run, s->step, s->layer, place->own) : NULL;
  if (!run || !own || own->step != s->step) return "";
  bool k = all_zero(own->k, run->n_embd), v = all_zero(own->v, run->n_embd);
  return k && v ? "K, V" : k ? "K" : v ? "V" : "";
}

static bool append_words(const struct about *a, char *text, size_t size) {
  const struct place *p = a->place;
  char after[16];
  const char *zeros = zeros_written(a->s, a->look, p);
  prediction_number(&a->asked, p->after, after);
  if (!p->written)
    snprintf(text, size, "k, v stored nowhere; %s rows", after);
  else if (*zeros)
    snprintf(text, size, "row %d: %s zeros; %s rows", p->own, zeros, after);
  else
    snprintf(text, size, "row %d ← k, v; now %s rows", p->own, after);
  return !p->known || (p->written && !*zeros && p->own == p->P && (p->after == LOOK_NONE || p->after == p->P + 1));
}

/* ---- score, softmax ------------------------------------------------------------------------------------------------------ */

/* score / q·K[row]; NaN where they are not in the trace, or the product is too near 0 to tell. */
static double scale_of(const struct about *a, int row) {
  const struct look_head *h = a->head;
  const struct look_row *kv = look_row(a->look, a->s->run, a->place->as_of, a->s->layer, row);
  const float *k = kv ? head_part(a->run, kv->k, a->s->head) : NULL;
  double sum = 0, size = 0;
  if (!h || !h->q || !h->scores || !k || row >= h->rows) return NAN;
  for (int i = 0; i < a->run->head_dim; i++) {
    double product = (double)h->q[i] * (double)k[i];
    sum += product;
    size += fabs(product);
  }
  return fabs(sum) > 0.01 * size ? (double)h->scores[row] / sum : NAN;
}

/* By the first two rows that tell: both by 1/√head_dim, both by something else (a model's config may say so), or by nothing that
 * they have in common. */
static bool score_words(const struct about *a, char *text, size_t size) {
  int rows = a->head ? a->head->rows : a->place->P + 1, d = a->run->head_dim, found = 0;
  double scale[2] = {NAN, NAN};
  for (int row = 0; row < rows && row < 16 && found < 2; row++)
    if (!isnan(scale[found] = scale_of(a, row))) found++;
  double root = sqrt(d > 0 ? d : 1);
  bool usual = found == 0 || (fabs(scale[0] * root - 1) < 1e-3 && (found == 1 || fabs(scale[1] * root - 1) < 1e-3));
  bool alike = found < 2 || fabs(scale[0] - scale[1]) <= 1e-3 * fabs(scale[0]);
  if (usual)
    snprintf(text, size, "q·K[i]/%s%d, i = 0..%d", a->root, d, rows - 1);
  else if (alike)
    snprintf(text, size, "q·K[i]·%.4g, i = 0..%d", scale[0], rows - 1);
  else
    snprintf(text, size, "i = 0..%d, not of this q·K[i]", rows - 1);
  bool extent = !a->place->known || !a->head || a->head->rows == 0 || a->head->rows == a->place->P + 1;
  return extent && (usual || alike);
}

static bool softmax_words(const struct about *a, char *text, size_t size) {
  const struct look_head *h = a->head;
  int rows = h ? h->rows : a->place->P + 1,
      hidden = h && h->scores && h->weights ? attention_hidden_rows(h->scores, h->weights, h->rows) : 0;
  bool batch = a->step->mode == KVS_PREFILL, extent = !a->place->known || !h || rows == 0 || rows == a->place->P + 1;
  double sum = 0;
  char number[16];
  for (int i = 0; h && h->weights && i < rows; i++) sum += (double)h->weights[i];
  prediction_number(&a->asked, rows, number);
  if (!h || !h->weights)
    snprintf(text, size, "%s weights: not logged", number);
  else if (hidden > 0)
    snprintf(text, size, "%s weights, %d of them masked", number, hidden);
  else
    snprintf(text, size, "%s weights%s sum %.3f, %s", number, rows < 100 ? "," : "", sum,
             batch && extent ? "masked" : "no mask");
  return extent && hidden == 0 && (!h || !h->weights || fabs(sum - 1) < 1e-3);
}

/* ---- all of them ----------------------------------------------------------------------------------------------------------- */

static void last_words(const struct about *a, char *text, size_t size) {
  const struct look_top *top = look_top(a->look, a->s->run, a->s->step);
  if (top && top->count)
    snprintf(text, size, "next: %.20s %.3f", top->token[0].text, top->token[0].probability);
  else
    snprintf(text, size, "ln_f, %d logits", a->run->n_vocab);
}

bool moment_words(kvs_phase phase, const struct state *s, struct look *look, const struct place *place,
                  const char *root, char *text, size_t size) {
  struct about a = {.s = s, .look = look, .place = place, .root = root};
  a.run = look_run(look, s->run);
  a.step = look_step(look, s->run, s->step);
  a.head = look_head(look, s->run, s->step, s->layer, s->head);
  *text = '\0';
  if (!a.run || !a.step) return true;
  prediction_open(s, look, &a.asked);
  switch (phase) {
  case KVS_READ_LENGTH:
    return read_words(&a, text, size);
  case KVS_EMBED:
    return embed_words(&a, text, size);
  case KVS_APPEND:
    return append_words(&a, text, size);
  case KVS_SCORE:
    return score_words(&a, text, size);
  case KVS_SOFTMAX:
    return softmax_words(&a, text, size);
  case KVS_PROJECT:
    snprintf(text, size, "q, k, v of this token only");
    return true;
  case KVS_MIX:
    snprintf(text, size, "Σ w[i]·V[i] → %d numbers", a.run->head_dim);
    return true;
  case KVS_OUTPUT:
    snprintf(text, size, "%d heads, c_proj → %d numbers", a.run->n_head, a.run->n_embd);
    return true;
  case KVS_MLP:
    snprintf(text, size, "residual, ln_2, MLP, residual");
    return true;
  default:
    last_words(&a, text, size);
    return true;
  }
}
