/* compare_pair.c: what two runs are to each other: a step of each, how far their logits are apart, and where they begin to differ. */
#include "tui/compare_pair.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "study/compare/diverge.h"

/* ---- numbers that take long ---------------------------------------------------------------------------------------- */

#define KEPT 256 /* more than a screen has lines, so that the lines of one screen never push each other out */

static struct numbers kept[KEPT];

/* NaN is like NaN here. */
static bool alike(double x, double y) { return x == y || (isnan(x) && isnan(y)); }

static bool is_of(const struct numbers *n, const struct look *look, const struct pair *p, int step,
                  const struct side *sides) {
  bool same = n->look == look_id(look) && n->run_a == p->a->run && n->run_b == p->b->run && n->step == step;
  for (int i = 0; i < 2; i++)
    same = same && n->tokens[i] == sides[i].token && n->positions[i] == sides[i].position &&
           alike(n->top_logits[i], sides[i].top_logit);
  return same;
}

const struct numbers *pair_numbers(struct look *look, const struct pair *p, int step, const struct side *sides,
                                   long *words, bool *late) {
  struct numbers *n = &kept[step % KEPT];
  if (!sides[0].there || !sides[1].there || p->a->n_vocab != p->b->n_vocab) return NULL;
  if (is_of(n, look, p, step, sides)) return n;
  if (*words <= 0) {
    *late = true;
    return NULL;
  }
  const struct look_vectors *a = look_vectors(look, p->a->run, step), *b = look_vectors(look, p->b->run, step);
  if (!a || !b || !a->logits || !b->logits) return NULL;
  int count = p->a->n_vocab;
  *words -= count;
  *n = (struct numbers){.look = look_id(look),
                        .run_a = p->a->run,
                        .run_b = p->b->run,
                        .step = step,
                        .tokens = {sides[0].token, sides[1].token},
                        .positions = {sides[0].position, sides[1].position},
                        .top_logits = {sides[0].top_logit, sides[1].top_logit},
                        .kl = diverge_kl(a->logits, b->logits, count),
                        .max_abs = diverge_max_abs(a->logits, b->logits, count),
                        .tops = {diverge_top(a->logits, count), diverge_top(b->logits, count)}};
  return n;
}

/* ---- where they part ------------------------------------------------------------------------------------------------ */

/* Finished steps do not change: what was once looked through is not looked through again. */
static struct search {
  unsigned long look; /* look_id */
  int run_a, run_b;
  char created[2][32];
  int sought; /* no difference before this step */
  int same;   /* the same tokens before this one */
} search;

static void search_for(const struct look *look, const struct pair *p) {
  if (search.look == look_id(look) && search.run_a == p->a->run && search.run_b == p->b->run &&
      strcmp(search.created[0], p->a->created_at) == 0 && strcmp(search.created[1], p->b->created_at) == 0)
    return;
  search = (struct search){.look = look_id(look), .run_a = p->a->run, .run_b = p->b->run};
  snprintf(search.created[0], sizeof search.created[0], "%s", p->a->created_at);
  snprintf(search.created[1], sizeof search.created[1], "%s", p->b->created_at);
}

void pair_find_differences(struct look *look, struct pair *p, int last) {
  int common = p->a->steps < p->b->steps ? p->a->steps : p->b->steps;
  search_for(look, p);
  p->first = look_first_difference(look, p->a->run, p->b->run, search.sought);
  search.sought = p->first != LOOK_NONE ? p->first : common > 0 ? common - 1 : 0;
  p->parted = LOOK_NONE;
  if (p->first == LOOK_NONE) return;
  if (search.same < p->first) search.same = p->first;
  for (int step = search.same; step < common && step <= last; step++) {
    const struct look_step *a = look_step(look, p->a->run, step), *b = look_step(look, p->b->run, step);
    search.same = step;
    if (a && b && a->token != b->token) {
      p->parted = step;
      return;
    }
  }
}

/* ---- one step of one run -------------------------------------------------------------------------------------------- */

struct side pair_side(struct look *look, const struct look_run *run, int step) {
  struct side side = {.token = LOOK_NONE, .position = LOOK_NONE, .top = LOOK_NONE, .top_logit = NAN};
  const struct look_step *found = step < run->steps ? look_step(look, run->run, step) : NULL;
  if (!found) return side;
  side.there = true;
  side.token = found->token;
  side.position = found->position;
  side.wrong = found->length_before != LOOK_NONE && found->position != found->length_before;
  memcpy(side.text, found->text, sizeof side.text);
  const struct look_top *top = look_top(look, run->run, step);
  if (!top || top->count == 0) return side;
  side.top = top->token[0].token;
  side.top_logit = top->token[0].logit;
  memcpy(side.top_text, top->token[0].text, sizeof side.top_text);
  return side;
}

void pair_top_from_logits(struct side *side, int top) {
  if (side->top != LOOK_NONE || top < 0) return;
  side->top = top;
  snprintf(side->top_text, sizeof side->top_text, "#%d", top);
}
