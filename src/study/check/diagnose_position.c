/* diagnose_position.c: which row of wpe was used. Per step there may be what the trace claims, what layer 0's K row shows, and that a position comes
 * twice; then a rule is looked for that most of the wrong positions follow, and another for those that are left. */
#include "study/check/position_rule.h"

#include <stdio.h>
#include <stdlib.h>

static struct odd *gather(const struct diagnosis *d) {
  struct odd *odd = calloc((size_t)d->check->count + 1, sizeof *odd);
  for (size_t i = 0; odd && i < d->facts->count; i++) {
    const struct fact *f = &d->facts->at[i];
    int s = step_index(d, f->step);
    if (d->explained[i] || s < 0) continue;
    const struct check_step *step = &d->check->steps[s];
    struct odd *o = &odd[s];
    if (f->kind == FACT_POSITION_SAME && !o->again) o->again = f;
    if (f->kind ==
        FACT_POSITION_USED) { /* right is the length, also where that was not logged and had to be worked out */
      int right = step->before == LOOK_NONE ? (int)f->right : check_right_position(d->check, s);
      d->explained[i] = (int)f->found == right;
      if (d->explained[i]) continue;
      *o = (struct odd){.wrong = true,
                        .unclaimed = step->claims && step->position == right,
                        .seen = f,
                        .again = o->again,
                        .used = (int)f->found,
                        .right = right};
    } else if (f->kind == FACT_POSITION_CLAIMED && !o->wrong) {
      bool made_right = d->check->model && step->k_judged;
      *o = (struct odd){.wrong = !made_right,
                        .mistaken = made_right,
                        .seen = f,
                        .again = o->again,
                        .used = (int)f->found,
                        .right = (int)f->right};
    }
  }
  return odd;
}

/* ---- telling it ---- */

static const char *wpe_name(int position, char *text, size_t size) {
  if (position < 0)
    snprintf(text, size, "no wpe at all");
  else
    snprintf(text, size, "wpe[%d]", position);
  return text;
}

static void say_first(struct finding *f, const struct odd *o) {
  char used[32], right[32];
  say(f, " Step %d used %s, right is %s", f->first_step, wpe_name(o->used, used, sizeof used),
      wpe_name(o->right, right, sizeof right));
  if (o->seen->kind == FACT_POSITION_USED && o->seen->distance >= 0 && o->seen->right_distance >= 0)
    say(f, "; layer 0 row %d, distance %.4f against %.4f", o->seen->row, o->seen->distance, o->seen->right_distance);
  else if (o->seen->kind == FACT_POSITION_CLAIMED)
    say(f, " (by the trace's own position column)");
  say(f, ".");
  if (o->unclaimed) say(f, " The trace's position column claims %d, which is not what was used.", o->right);
}

/* The steps whose claim is wrong. After padding the right one is less by that. */
static void show_claims(struct finding *f, const struct diagnosis *d) {
  int pads = d->check->pads, run = d->check->run;
  if (pads == 0)
    show(
        f,
        "SELECT step, cache_length_before, position, position - cache_length_before AS off_by FROM step WHERE run = %d "
        "AND position IS NOT cache_length_before",
        run);
  else
    show(f,
         "SELECT step, cache_length_before, position, position - cache_length_before + %d AS off_by FROM step WHERE "
         "run = %d AND step >= %d AND position IS NOT cache_length_before - %d",
         pads, run, d->check->steps[pads].step, pads);
}

static void show_positions(struct finding *f, const struct diagnosis *d) {
  const struct check_step *step = &d->check->steps[step_index(d, f->first_step)];
  int right = check_right_position(d->check, step_index(d, f->first_step));
  if (d->check->seen.lengths > 0 && step->claims && step->position != right)
    show_claims(f, d);
  else
    show(
        f,
        "SELECT k.step, s.token, k.row, hex(substr(k.k, 1, 16)) AS k_begins FROM kv_row AS k JOIN step AS s ON s.run = "
        "k.run AND s.step = k.step WHERE k.run = %d AND k.layer = 0 AND k.step >= %d",
        d->check->run, f->first_step);
}

static void name_kind(const struct diagnosis *d, const struct rule *r, const char **kind, const char **also) {
  static const char *const kinds[] = {[PADDING_COUNTED] = "padding-counted",
                                      [ONE_ON] = "off-by-one",
                                      [AT_0] = "reset-to-zero",
                                      [NONE_ADDED] = "skip-wpe",
                                      [ONE_FOR_ALL] = "constant-position",
                                      [JUMP] = "position-jump",
                                      [FROM_0] = "reset-to-zero",
                                      [MOVED] = "wrong-position",
                                      [SCATTERED] = "wrong-position"};
  *kind = kinds[r->kind];
  *also = NULL;
  if (r->kind == PADDING_COUNTED && r->number == 1) *also = "off-by-one"; /* length + 1 both times */
  if (r->kind == ONE_ON && d->check->prompt_length == 2) *also = "position-jump";
}

static void say_rule(struct finding *f, const struct diagnosis *d, const struct rule *r) {
  say(f, "%s ", when(f));
  switch (r->kind) {
  case PADDING_COUNTED:
    say(f,
        "position = length, but the first %d token%s padding: positions must count from the text's first token, which "
        "is at 0 (position_ids = cumsum(attention_mask) - 1)%s.",
        r->number, r->number == 1 ? " is" : "s are",
        r->number == 1 ? " (or, the same here, the length is read after the append)" : "");
    break;
  case ONE_ON:
    say(f, "position = length + 1: the length is read after the append%s.",
        d->check->prompt_length == 2 ? " (or, the prompt having 2 tokens, length + prompt length - 1)" : "");
    break;
  case AT_0:
    say(f, "position = 0: positions start again in decode.");
    break;
  case NONE_ADDED:
    say(f, "no position is added: x = wte[token] alone.");
    break;
  case ONE_FOR_ALL:
    say(f, "position = %d for every token%s: set once, never moved on.", r->number,
        r->number == d->check->prompt_length ? ", the prompt's length" : "");
    break;
  case JUMP:
    say(f, "position = length + prompt length - 1 (%s %d tokens%s): the prompt is counted twice.",
        r->number == d->check->prompt_length ? "the prompt has" : "as a prompt", r->number,
        r->number == d->check->prompt_length ? "" : " were fed");
    break;
  case FROM_0:
    say(f, "positions start again at 0 and count on from there.");
    break;
  case MOVED:
    say(f, "position = length %c %d: not the cache's length before the append.", r->number < 0 ? '-' : '+',
        abs(r->number));
    break;
  case SCATTERED:
    say(f, "the positions are not the cache's length before the append, and follow no rule.");
    break;
  }
}

static bool read_late(const struct diagnosis *d, const struct fact *f) {
  int s = step_index(d, f->step);
  return f->kind == FACT_EVENT_ORDER && (int)f->right == KVS_READ_LENGTH && s >= 0 && d->mine[s];
}

/* All facts of the step's position go with it. */
static void take_step(struct diagnosis *d, struct group *g, int s) {
  for (size_t i = 0; i < d->facts->count; i++) {
    const struct fact *f = &d->facts->at[i];
    bool of_position = f->kind == FACT_POSITION_USED || f->kind == FACT_POSITION_CLAIMED ||
                       f->kind == FACT_POSITION_SAME || f->kind == FACT_CONTEXT_POSITION;
    if (!d->explained[i] && of_position && f->step == d->check->steps[s].step) take_fact(d, g, i);
  }
}

static kvs_status tell_rule(struct diagnosis *d, struct odd *odd, const struct rule *r, kvs_error *err) {
  struct group g = {0};
  struct odd first = {0};
  const char *kind, *also;
  group_start(d);
  for (int s = 0; s < d->check->count; s++) {
    if (!odd[s].wrong || !rule_holds(r, &odd[s], s)) continue;
    if (!first.seen) first = odd[s];
    take_step(d, &g, s);
    odd[s].wrong = false, odd[s].again = NULL;
  }
  name_kind(d, r, &kind, &also);
  if (r->kind == ONE_ON) take(d, &g, read_late);
  struct finding *f = find(d, &g, false, kind, also, err);
  if (!f) return err->status;
  f->row = first.seen->row >= 0 ? first.seen->row : first.right;
  f->layer = 0;
  say_rule(f, d, r);
  say_first(f, &first);
  show_positions(f, d);
  return KVS_OK;
}

/* ---- the column alone is wrong ---- */

static kvs_status tell_mistaken(struct diagnosis *d, struct odd *odd, kvs_error *err) {
  struct group g = {0};
  int first = -1;
  group_start(d);
  for (int s = 0; s < d->check->count; s++) {
    if (!odd[s].mistaken) continue;
    if (first < 0) first = s;
    take_step(d, &g, s);
  }
  if (g.facts == 0) return KVS_OK;
  struct finding *f = find(d, &g, false, "position-column", NULL, err);
  if (!f) return err->status;
  say(f,
      "%s the trace's position column is mistaken, the engine is not: step %d is said to be at position %d, and layer "
      "0's K row was made with wpe[%d], which is right.",
      when(f), f->first_step, odd[first].used, odd[first].right);
  show_claims(f, d);
  return KVS_OK;
}

/* The earliest wrong position stands alone. */
static void put_aside(const struct diagnosis *d, struct odd *odd) {
  for (int s = 0; s < d->check->count; s++) {
    if (!odd[s].wrong) continue;
    odd[s].wrong = false, odd[s].scattered = true;
    return;
  }
}

kvs_status diagnose_position(struct diagnosis *d, kvs_error *err) {
  struct odd *odd = gather(d);
  int most;
  if (!odd) return kvs_fail_memory(err, "telling which positions were used");
  int scattered = 0, nameless = 0;
  kvs_status status = tell_mistaken(d, odd, err);
  while (status == KVS_OK) {
    struct rule rule = rule_best(d, odd, &most);
    if (most == 0) break;
    if (most == 1 && rule.kind != NONE_ADDED)
      put_aside(d, odd), scattered++, nameless += rule.kind == MOVED;
    else
      status = tell_rule(d, odd, &rule, err);
  }
  for (int s = 0; s < d->check->count; s++) odd[s].wrong = odd[s].scattered;
  while (status == KVS_OK && scattered > 0) { /* a few may be told each by itself */
    struct rule rule = nameless > 2 ? (struct rule){SCATTERED, 0} : rule_best(d, odd, &most);
    scattered = nameless > 2 ? 0 : scattered - 1;
    status = tell_rule(d, odd, &rule, err);
  }
  free(odd);
  return status;
}
