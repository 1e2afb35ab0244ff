/* diagnose.c: gathers facts into groups and groups into findings; which facts make which mistake is in the files beside it. */
#include "study/check/diagnose_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int step_index(const struct diagnosis *d, int step) { return check_index(d->check, step); }

void group_start(struct diagnosis *d) { memset(d->mine, 0, ((size_t)d->check->count + 1) * sizeof *d->mine); }

static bool is_earlier(const struct fact *a, const struct fact *b) {
  return a->step != b->step ? a->step < b->step : a->layer < b->layer;
}

void take_fact(struct diagnosis *d, struct group *g, size_t i) {
  const struct fact *fact = &d->facts->at[i];
  int index = step_index(d, fact->step);
  d->explained[i] = true;
  if (!g->first || is_earlier(fact, g->first)) g->first = fact;
  if (g->facts++ == 0) g->first_step = g->last_step = fact->step;
  g->kinds |= 1ull << fact->kind;
  if (fact->step < g->first_step) g->first_step = fact->step;
  if (fact->step > g->last_step) g->last_step = fact->step;
  if (index < 0 || d->mine[index]) return;
  d->mine[index] = true;
  g->steps++;
}

void take(struct diagnosis *d, struct group *g, predicate *wanted) {
  for (size_t i = 0; i < d->facts->count; i++)
    if (!d->explained[i] && wanted(d, &d->facts->at[i])) take_fact(d, g, i);
}

void take_with(struct diagnosis *d, struct group *g, unsigned long long kinds) {
  for (size_t i = 0; i < d->facts->count; i++) {
    int index = step_index(d, d->facts->at[i].step);
    if (d->explained[i] || index < 0 || !d->mine[index] || !(kinds >> d->facts->at[i].kind & 1)) continue;
    d->explained[i] = true;
    g->kinds |= 1ull << d->facts->at[i].kind;
  }
}

static void add_rules(struct finding *f, unsigned long long kinds) {
  for (int kind = 0; kind < FACT_KIND_COUNT; kind++) {
    const char *rule = fact_rule((enum fact_kind)kind);
    bool new = (kinds >> kind & 1) && f->rule_count < FINDING_RULES;
    for (int r = 0; r < f->rule_count && new; r++) new = strcmp(f->rules[r], rule) != 0;
    if (new) f->rules[f->rule_count++] = rule;
  }
}

/* Whether the last decode step is the group's too, and hardly any in between is not. */
static bool goes_to_end(const struct diagnosis *d, const struct group *g) {
  int first = step_index(d, g->first_step), last = d->check->count - 1;
  return first >= 0 && d->mine[last] && g->steps > 1 && 2 * g->steps > last - first + 1;
}

/* ---- layers that follow from a mistake ---- */

static const char *const hypothesis_kinds[HYPOTHESIS_COUNT] = {[HYPOTHESIS_WITHOUT_ITSELF] = "attend-before-append",
                                                               [HYPOTHESIS_FIRST_ROW_ONLY] = "mask-corner",
                                                               [HYPOTHESIS_WHOLE_BATCH] = "prefill-unmasked",
                                                               [HYPOTHESIS_NO_SCALE] = "wrong-scale",
                                                               [HYPOTHESIS_SCALE_N_EMBD] = "wrong-scale-n-embd",
                                                               [HYPOTHESIS_WHOLE_CAPACITY] = "softmax-extent",
                                                               [HYPOTHESIS_WRONG_AXIS] = "softmax-wrong-axis",
                                                               [HYPOTHESIS_INTERLEAVED] = "heads-interleaved",
                                                               [HYPOTHESIS_SHARED_BUFFER] = "cross-layer-shared",
                                                               [HYPOTHESIS_ZERO_V] = "k-without-v",
                                                               [HYPOTHESIS_ZERO_K_V] = "row-never-written",
                                                               [HYPOTHESIS_LAYER_LENGTH] = "cross-layer-length",
                                                               [HYPOTHESIS_PADDING] = "padding-unmasked",
                                                               [HYPOTHESIS_WINDOW] = "context-overflow"};

static bool is_guess(const struct fact *f) {
  return f->kind == FACT_CHAIN_HYPOTHESIS && f->found >= 1 && f->found < HYPOTHESIS_COUNT;
}

static bool is_same_place(const struct fact *a, const struct fact *b) {
  return is_guess(b) && a->step == b->step && a->layer == b->layer;
}

/* Where several mistakes give the same numbers in one place, the one that explains most places counts. Facts of a place stand together. */
static void settle_guesses(struct diagnosis *d) {
  size_t votes[HYPOTHESIS_COUNT] = {0};
  const struct facts *facts = d->facts;
  for (size_t i = 0; i < facts->count; i++)
    if (is_guess(&facts->at[i])) votes[(int)facts->at[i].found]++;
  for (size_t i = 0, end; i < facts->count; i = end) {
    end = i + 1;
    if (!is_guess(&facts->at[i])) continue;
    size_t best = i;
    for (; end < facts->count && is_same_place(&facts->at[i], &facts->at[end]); end++)
      if (votes[(int)facts->at[end].found] > votes[(int)facts->at[best].found]) best = end;
    for (size_t k = i; k < end; k++) {
      int chosen = (int)facts->at[best].found, other = (int)facts->at[k].found;
      if (k == best) continue;
      d->explained[k] = true;
      if (chosen != other && votes[chosen] == votes[other]) d->also[chosen] = (enum hypothesis)other;
    }
  }
}

/* Whether the trace has what shows this mistake where it was made. */
static bool is_logged(const struct check_seen *seen, enum hypothesis how) {
  switch (how) {
  case HYPOTHESIS_NO_SCALE:
  case HYPOTHESIS_SCALE_N_EMBD:
  case HYPOTHESIS_INTERLEAVED:
    return seen->products > 0;
  case HYPOTHESIS_FIRST_ROW_ONLY:
  case HYPOTHESIS_WRONG_AXIS:
    return seen->softmaxes > 0;
  default:
    return seen->scores > 0;
  }
}

/* Where it has not, its weights show it, or what the layer above was given: that one's rows, or the logits. */
static void show_above(struct finding *f, const struct check *check) {
  if (check->seen.softmaxes > 0)
    show(f, "SELECT head, row, row_token_text, weight FROM attention WHERE run = %d AND step = %d AND layer = %d",
         check->run, f->first_step, f->layer);
  else if (f->layer + 1 < check->shape.n_layer)
    show(f,
         "SELECT step, layer, row, hex(substr(k, 1, 16)) AS k_begins, hex(substr(v, 1, 16)) AS v_begins FROM kv_row "
         "WHERE run = %d AND step = %d AND layer = %d",
         check->run, f->first_step, f->layer + 1);
  else
    show(f,
         "SELECT step, hex(substr(logits, 1, 16)) AS logits_begin FROM step_vector WHERE run = %d AND step = %d AND "
         "logits IS NOT NULL",
         check->run, f->first_step);
}

struct finding *find(struct diagnosis *d, const struct group *g, bool covers, const char *kind, const char *also,
                     kvs_error *err) {
  if (d->count == d->room) {
    size_t room = d->room ? 2 * d->room : 8;
    struct finding *grown = realloc(d->at, room * sizeof *grown);
    if (!grown) {
      kvs_fail_memory(err, "telling what was found");
      return NULL;
    }
    d->at = grown, d->room = room;
  }
  struct finding *f = &d->at[d->count++];
  *f = (struct finding){.kinds = {kind, also},
                        .kind_count = also ? 2 : 1,
                        .first_step = g->first_step,
                        .last_step = g->last_step,
                        .steps = g->steps,
                        .to_end = goes_to_end(d, g),
                        .layer = g->first->layer,
                        .head = g->first->head,
                        .row = g->first->row};
  add_rules(f, g->kinds);
  int guess = is_guess(g->first) ? (int)g->first->found : 0;
  if (guess && !is_logged(&d->check->seen, (enum hypothesis)guess)) show_above(f, d->check);
  if (guess && d->also[guess] && !also) f->kinds[f->kind_count++] = hypothesis_kinds[d->also[guess]];
  for (int i = 0; covers && i < d->check->count; i++) d->covered[i] = d->covered[i] || d->mine[i];
  return f;
}

const char *when(const struct finding *f) {
  static _Thread_local char text[80];
  if (f->steps <= 1)
    snprintf(text, sizeof text, "in step %d,", f->first_step);
  else if (f->to_end)
    snprintf(text, sizeof text, "from step %d on,", f->first_step);
  else if (f->steps == f->last_step - f->first_step + 1)
    snprintf(text, sizeof text, "in steps %d to %d,", f->first_step, f->last_step);
  else
    snprintf(text, sizeof text, "in %d of the steps %d to %d,", f->steps, f->first_step, f->last_step);
  return text;
}

static void put(char *text, size_t size, const char *format, va_list arguments) {
  size_t used = strlen(text);
  vsnprintf(text + used, size - used, format, arguments);
}

void say(struct finding *f, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  put(f->sentence, sizeof f->sentence, format, arguments);
  va_end(arguments);
}

void show(struct finding *f, const char *format, ...) {
  va_list arguments;
  if (*f->sql) return; /* it has been said what shows it */
  va_start(arguments, format);
  put(f->sql, sizeof f->sql, format, arguments);
  va_end(arguments);
}

void show_overwritten_rows(struct finding *f, int run) {
  show(f,
       "SELECT layer, row, count(*) AS times_written, group_concat(step) AS by_steps FROM kv_row WHERE run = %d "
       "GROUP BY layer, row HAVING count(*) > 1",
       run);
}

/* Earlier first; in one step the token stream, the cache and attention in the order of diagnosis. */
static int by_step(const void *a, const void *b) {
  const struct finding *x = a, *y = b;
  if (x->first_step != y->first_step) return x->first_step < y->first_step ? -1 : 1;
  return (x->layer > y->layer) - (x->layer < y->layer);
}

kvs_status diagnose(const struct check *check, struct finding **findings, size_t *count, kvs_error *err) {
  static kvs_status (*const all[])(struct diagnosis *, kvs_error *) = {
      diagnose_stream,   diagnose_cache, diagnose_scores, diagnose_attention,
      diagnose_position, diagnose_again, diagnose_rest};
  struct diagnosis d = {.check = check, .facts = &check->facts};
  size_t steps = (size_t)check->count + 1;
  d.explained = calloc(check->facts.count + 1, sizeof *d.explained);
  d.covered = calloc(steps, sizeof *d.covered);
  d.mine = calloc(steps, sizeof *d.mine);
  kvs_status status = KVS_OK;
  if (!d.explained || !d.covered || !d.mine) status = kvs_fail_memory(err, "telling what was found");
  if (status == KVS_OK) settle_guesses(&d);
  for (size_t i = 0; status == KVS_OK && i < sizeof all / sizeof *all; i++) status = all[i](&d, err);
  if (d.count) qsort(d.at, d.count, sizeof *d.at, by_step);
  free(d.explained);
  free(d.covered);
  free(d.mine);
  if (status != KVS_OK) {
    free(d.at);
    return status;
  }
  *findings = d.at, *count = d.count;
  return KVS_OK;
}
