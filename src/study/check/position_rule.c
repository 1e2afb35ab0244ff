/* position_rule.c: which rule the wrong positions of a run follow. */
#include "study/check/position_rule.h"

bool rule_holds(const struct rule *r, const struct odd *o, int s) {
  switch (r->kind) {
  case PADDING_COUNTED:
    return r->number > 0 && o->used == o->right + r->number;
  case ONE_ON:
    return o->used == o->right + 1;
  case AT_0:
    return o->used == 0;
  case NONE_ADDED:
    return o->used == -1;
  case ONE_FOR_ALL:
    return o->used == r->number;
  case JUMP:
    return r->number > 1 && o->used == o->right + r->number - 1;
  case FROM_0:
    return r->number != NOWHERE && o->used == s - r->number;
  case MOVED:
    return o->used >= 0 && o->used - o->right == r->number;
  case SCATTERED:
    return o->scattered;
  }
  return false;
}

static int count_following(const struct diagnosis *d, const struct rule *r, const struct odd *odd) {
  int n = 0;
  for (int s = 0; s < d->check->count; s++) n += odd[s].wrong && rule_holds(r, &odd[s], s);
  return n;
}

/* Tokens fed as a prompt's, one that was fed again included. */
static int prompt_fed(const struct diagnosis *d) {
  int n = 0;
  for (int s = 0; s < d->check->count; s++) n += d->check->steps[s].prompt;
  return n;
}

struct rule rule_best(const struct diagnosis *d, const struct odd *odd, int *most) {
  struct rule best = {MOVED, 0};
  *most = 0;
  for (int s = 0; s < d->check->count; s++) {
    if (!odd[s].wrong) continue;
    const struct rule candidates[] = {{PADDING_COUNTED, d->check->pads},
                                      {ONE_ON, 0},
                                      {AT_0, 0},
                                      {NONE_ADDED, 0},
                                      {ONE_FOR_ALL, d->check->prompt_length},
                                      {JUMP, d->check->prompt_length},
                                      {JUMP, prompt_fed(d)},
                                      {ONE_FOR_ALL, odd[s].used},
                                      {FROM_0, odd[s].used == 0 ? s : NOWHERE},
                                      {MOVED, odd[s].used - odd[s].right}};
    for (size_t c = 0; c < sizeof candidates / sizeof *candidates; c++) {
      if (!rule_holds(&candidates[c], &odd[s], s)) continue;
      int n = count_following(d, &candidates[c], odd);
      bool series = candidates[c].kind == FROM_0 ||
                    (candidates[c].kind == ONE_FOR_ALL && candidates[c].number != d->check->prompt_length);
      if (series && n < 2) continue; /* one step makes none */
      if (n > *most) *most = n, best = candidates[c];
    }
    break; /* the earliest is what is to be explained */
  }
  return best;
}
