/* compare.c: what two runs' numbers come to: vectors by bits, logits of a step, sums over steps, and a verdict in words. */
#include "study/compare/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plural.h"
#include "study/compare/diverge.h"

static const struct {
  const char *name;
  kvs_phase phase;
  enum compare_scope scope;
} fields[] = {
#define COMPARE_ROW(id, name, phase, scope) {name, phase, COMPARE_##scope},
    COMPARE_FIELDS(COMPARE_ROW)
#undef COMPARE_ROW
};

const char *compare_field_name(enum compare_field field) { return fields[field].name; }
kvs_phase compare_field_phase(enum compare_field field) { return fields[field].phase; }
enum compare_scope compare_field_scope(enum compare_field field) { return fields[field].scope; }

void comparison_free(struct comparison *c) {
  free(c->steps);
  free(c->head_distance);
  free(c->text_a);
  free(c->text_b);
  *c = (struct comparison){0};
}

/* ---- numbers ------------------------------------------------------------------------------------------------------ */

static bool same_bits(float a, float b) { return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b)); }

bool compare_vectors(struct compare_first *first, enum compare_field field, int layer, int head, int per_head,
                     const float *a, int count_a, const float *b, int count_b) {
  struct compare_first found = {.field = field, .layer = layer, .head = head, .index = LOOK_NONE};
  found.step = first->step, found.step_b = first->step_b;
  if (count_a != count_b) {
    found.what = COMPARE_COUNT;
    found.head = LOOK_NONE; /* it is so in all */
    found.value_a = count_a, found.value_b = count_b;
    if (per_head > 0) found.value_a /= per_head, found.value_b /= per_head;
    *first = found;
    return true;
  }
  int i = 0;
  while (i < count_a && same_bits(a[i], b[i])) i++;
  if (i == count_a) return false;
  found.what = COMPARE_NUMBER;
  found.index = per_head > 0 ? i % per_head : i;
  if (per_head > 0) found.head = i / per_head;
  found.value_a = (double)a[i], found.value_b = (double)b[i];
  *first = found;
  return true;
}

void compare_logits(struct compare_step *step, const float *a, const float *b, int n_vocab, int next) {
  step->kl = diverge_kl(a, b, n_vocab);
  step->max_abs_logit = diverge_max_abs(a, b, n_vocab);
  step->top_a = diverge_top(a, n_vocab);
  step->top_b = diverge_top(b, n_vocab);
  step->top1_same = step->top_a < 0 || step->top_b < 0 ? LOOK_NONE : step->top_a == step->top_b;
  if (next < 0 || next >= n_vocab) return;
  step->logprob_a = kvs_logprob(a, n_vocab, next);
  step->logprob_b = kvs_logprob(b, n_vocab, next);
}

struct compare_step *compare_add_step(struct comparison *c, kvs_error *err) {
  if ((c->count & (c->count - 1)) == 0) { /* a power of two: full */
    struct compare_step *more = realloc(c->steps, (c->count ? 2 * (size_t)c->count : 1) * sizeof *more);
    if (!more) return kvs_fail_memory(err, "comparing two runs"), NULL;
    c->steps = more;
  }
  c->steps[c->count] = (struct compare_step){.step_b = LOOK_NONE,
                                             .token = LOOK_NONE,
                                             .kl = NAN,
                                             .max_abs_logit = NAN,
                                             .top_a = LOOK_NONE,
                                             .top_b = LOOK_NONE,
                                             .top1_same = LOOK_NONE,
                                             .logprob_a = NAN,
                                             .logprob_b = NAN,
                                             .attention_distance = NAN};
  return &c->steps[c->count++];
}

/* ---- sums --------------------------------------------------------------------------------------------------------- */

/* NaN logits make a KL of NaN: such a step counts as one without. */
static void add_step(struct comparison *c, const struct compare_step *s, double *kl, double *attention, int *heads) {
  c->summed++;
  if (s->top1_same != LOOK_NONE) {
    c->with_top++;
    c->top1_kept += s->top1_same;
  }
  if (!isnan(s->attention_distance)) {
    *attention += s->attention_distance;
    ++*heads;
  }
  if (!isnan(s->max_abs_logit) && !(s->max_abs_logit <= c->max_abs_logit)) {
    c->max_abs_logit = s->max_abs_logit;
    c->max_abs_step = s->step;
  }
  if (isnan(s->kl)) return;
  c->with_logits++;
  *kl += s->kl;
  if (!(s->kl <= c->kl_max)) {
    c->kl_max = s->kl;
    c->kl_max_step = s->step;
  }
}

/* The perplexity of the tokens after the prompt: the last prompt step says how probable the first of them was. */
static void sum_text(struct comparison *c) {
  double a = 0, b = 0;
  for (int i = c->prompt_steps > 0 ? c->prompt_steps - 1 : 0; i < c->count; i++) {
    if (isnan(c->steps[i].logprob_a) || isnan(c->steps[i].logprob_b)) continue;
    a += c->steps[i].logprob_a;
    b += c->steps[i].logprob_b;
    c->own.tokens++;
  }
  c->own.perplexity_a = c->own.tokens ? exp(-a / c->own.tokens) : NAN;
  c->own.perplexity_b = c->own.tokens ? exp(-b / c->own.tokens) : NAN;
  c->logprob_delta = c->own.tokens ? (b - a) / c->own.tokens : NAN;
}

void compare_sum_up(struct comparison *c, const int *head_count) {
  double kl = 0, attention = 0;
  int heads = 0, from = c->prompt_steps < c->count ? c->prompt_steps : 0;
  c->kl_max = c->max_abs_logit = NAN;
  c->kl_max_step = c->max_abs_step = LOOK_NONE;
  for (int i = from; i < c->count; i++) add_step(c, &c->steps[i], &kl, &attention, &heads);
  c->kl_mean = c->with_logits ? kl / c->with_logits : NAN;
  c->attention_mean = heads ? attention / heads : NAN;
  for (int i = 0; c->head_distance && i < c->n_layer * c->n_head; i++)
    c->head_distance[i] = head_count[i] ? c->head_distance[i] / head_count[i] : NAN;
  sum_text(c);
}

/* ---- words -------------------------------------------------------------------------------------------------------- */

enum compare_verdict compare_verdict(const struct comparison *c) {
  if (c->parted != LOOK_NONE) return COMPARE_VISIBLE;
  if (c->answers.a != c->answers.b) return COMPARE_ANSWERS;
  if (c->same && c->blind) return COMPARE_BLIND;
  if (c->same) return c->more_b ? COMPARE_LONGER : COMPARE_SAME;
  return c->forced ? COMPARE_FED : COMPARE_INVISIBLE;
}

/* "KL 0.0061, 94% of the most probable tokens kept", what is known of it. */
static int numbers_text(const struct comparison *c, char *text, size_t size) {
  int n = 0;
  if (c->with_logits) n = snprintf(text, size, "KL %.3g", c->kl_mean);
  if (c->with_top && n < (int)size)
    n += snprintf(text + n, size - (size_t)n, "%stop-1 kept %.3g%%", n ? ", " : "", 100.0 * c->top1_kept / c->with_top);
  if (!isnan(c->max_abs_logit) && n < (int)size)
    n += snprintf(text + n, size - (size_t)n, "%smax |Δ logit| %.3g", n ? ", " : "", c->max_abs_logit);
  return n;
}

static void parted_text(const struct comparison *c, char *text, size_t size) {
  if (c->ended_b && c->parted == c->length_b)
    snprintf(text, size, "visible: the context ends after %d of %d token%s", c->parted, c->length_a,
             plural(c->length_a));
  else
    snprintf(text, size, "visible: the texts part at token %d (step %d)", c->parted + 1, c->prompt_steps + c->parted);
}

void compare_sentence(const struct comparison *c, char *text, size_t size) {
  char numbers[128] = "no logits to compare", head[128];
  numbers_text(c, numbers, sizeof numbers);
  int tokens = c->length_a < c->length_b ? c->length_a : c->length_b;
  switch (compare_verdict(c)) {
  case COMPARE_SAME:
    snprintf(text, size, "no difference: not one bit differs in %d step%s", c->count, plural(c->count));
    return;
  case COMPARE_BLIND:
    snprintf(text, size, "nothing to compare: the runs have %d step%s in common, and no vector that both logged",
             c->count, plural(c->count));
    return;
  case COMPARE_LONGER:
    snprintf(text, size,
             "no difference in %d step%s, not one bit; there the first run ends, and the other makes %d more", c->count,
             plural(c->count), c->more_b);
    return;
  case COMPARE_FED:
    snprintf(text, size, "the same %d token%s fed to both, the numbers differ: %s", tokens,
             tokens == 1 ? " was" : "s were", numbers);
    return;
  case COMPARE_INVISIBLE:
    snprintf(text, size, "invisible in the text (%d of %d token%s the same), visible in the numbers: %s", tokens,
             tokens, plural(tokens), numbers);
    return;
  case COMPARE_ANSWERS:
    snprintf(text, size, "invisible in this text, visible in the answers: %d of %d right, not %d; %s", c->answers.b,
             c->answers.count, c->answers.a, numbers);
    return;
  case COMPARE_VISIBLE:
    parted_text(c, head, sizeof head);
    snprintf(text, size, "%s; %s", head, numbers);
    return;
  }
}
