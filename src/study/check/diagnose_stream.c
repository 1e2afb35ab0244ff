/* diagnose_stream.c: mistakes of what was fed, and of what lay in the cache before anything was. */
#include "study/check/diagnose_parts.h"

static bool starts_above_0(const struct diagnosis *d, const struct fact *f) {
  (void)d;
  return f->kind == FACT_LENGTH_START;
}

/* Rows of the earlier text are not in the trace: nothing that attends to them can be worked out again. */
static kvs_status stale_cache(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, starts_above_0);
  if (g.facts == 0) return KVS_OK;
  struct finding *f = find(d, &g, true, "stale-cache", NULL, err);
  if (!f) return err->status;
  for (size_t i = 0; i < d->facts->count; i++)
    if (((RECOMPUTED | ATTENDED | BIT(ROW_MISSING)) & ~BIT(SCORE_COUNT)) >> d->facts->at[i].kind & 1)
      d->explained[i] = true;
  f->row = 0;
  f->last_step = d->check->steps[d->check->count - 1].step, f->steps = d->check->count, f->to_end = true;
  say(f,
      "The run does not begin with an empty cache: step 0 finds %.0f row%s there, which no step of this run wrote. The "
      "cache was not cleared before the prompt, so its first token stands at position %.0f and attends to what was "
      "there.",
      g.first->found, g.first->found == 1 ? "" : "s", g.first->found);
  show(f,
       "SELECT step, cache_length_before, position FROM step WHERE run = %d AND step = 0 AND cache_length_before > 0",
       d->check->run);
  return KVS_OK;
}

static bool is_prompt_again(const struct diagnosis *d, const struct fact *f) {
  (void)d;
  return f->kind == FACT_PROMPT_AGAIN;
}
static bool is_token_again(const struct diagnosis *d, const struct fact *f) {
  (void)d;
  return f->kind == FACT_TOKEN_AGAIN;
}
static bool is_draft(const struct diagnosis *d, const struct fact *f) {
  (void)d;
  return f->kind == FACT_DRAFT_LEFT;
}
static bool is_not_chosen(const struct diagnosis *d, const struct fact *f) {
  (void)d;
  return f->kind == FACT_TOKEN_NOT_SAMPLED || f->kind == FACT_TOKEN_LOGPROB;
}
static bool is_not_prompt(const struct diagnosis *d, const struct fact *f) {
  (void)d;
  return f->kind == FACT_TOKEN_PROMPT;
}

static void show_stream(struct finding *f, const struct diagnosis *d, int from, int to) {
  show(f,
       "SELECT s.step, s.source, s.token, t.text, s.cache_length_before FROM step AS s LEFT JOIN token AS t ON t.token "
       "= s.token WHERE s.run = %d AND s.step BETWEEN %d AND %d ORDER BY s.step",
       d->check->run, from < 0 ? 0 : from, to);
}

static kvs_status prompt_twice(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, is_prompt_again);
  if (g.facts == 0) return KVS_OK;
  int n = (int)g.first->found;
  struct finding *f = find(d, &g, false, "prompt-twice", n == 1 ? "last-token-twice" : NULL, err);
  if (!f) return err->status;
  f->last_step = f->first_step + n - 1, f->steps = n, f->to_end = false;
  if (n == 1)
    say(f,
        "The prompt was fed again on top of its own cache: step %d feeds its one token once more, at position %d. With "
        "a prompt of one token that is the same as feeding its last token twice.",
        f->first_step, g.first->row);
  else
    say(f,
        "The prompt was fed again on top of its own cache: steps %d to %d feed the same %d tokens once more, at "
        "positions %d and up.",
        f->first_step, f->last_step, n, g.first->row);
  show_stream(f, d, 0, f->last_step);
  return KVS_OK;
}

static kvs_status token_twice(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, is_token_again);
  if (g.facts == 0) return KVS_OK;
  struct finding *f = find(d, &g, false, "last-token-twice", NULL, err);
  if (!f) return err->status;
  say(f,
      "Step %d feeds the token of the step before a second time (token %.0f): it stands in the cache twice, and "
      "everything after it is one place too far.",
      f->first_step, g.first->found);
  if (g.first->right >= 0) say(f, " The step before had chosen token %.0f.", g.first->right);
  show_stream(f, d, f->first_step - 2, f->first_step + 1);
  return KVS_OK;
}

static kvs_status no_rollback(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, is_draft);
  if (g.facts == 0) return KVS_OK;
  struct finding *f = find(d, &g, false, "no-rollback", NULL, err);
  if (!f) return err->status;
  int n = (int)g.first->found;
  f->first_step -= n, f->row -= n, f->last_step = f->first_step + n - 1, f->steps = n, f->to_end = false;
  if (n == 1)
    say(f,
        "Step %d fed a token that was then given up: step %d goes on with what was chosen before it, but its row "
        "stayed in the cache (row %d). The length was not set back.",
        f->first_step, f->first_step + 1, f->row);
  else
    say(f,
        "Steps %d to %d fed %d tokens that were then given up: step %d goes on with what was chosen before them, but "
        "their rows stayed in the cache (rows %d to %d). The length was not set back.",
        f->first_step, f->last_step, n, f->first_step + n, f->row, f->row + n - 1);
  show(f,
       "SELECT s.step, s.token AS fed, t.token AS chosen_before, s.logprob, s.cache_length_before FROM step AS s LEFT "
       "JOIN top_token AS t ON t.run = s.run AND t.step = s.step - 1 AND t.rank = 1 WHERE s.run = %d AND s.step "
       "BETWEEN %d AND %d ORDER BY s.step",
       d->check->run, f->first_step, f->first_step + n);
  return KVS_OK;
}

static kvs_status token_skipped(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, is_not_chosen);
  if (g.facts == 0) return KVS_OK;
  int decoded = d->check->count - d->check->prompt_length;
  bool often = g.steps > 3 && 3 * g.steps > decoded;
  struct finding *f = find(d, &g, false, often ? "tokens-not-chosen" : "token-skipped", NULL, err);
  if (!f) return err->status;
  if (g.first->kind == FACT_TOKEN_LOGPROB)
    say(f, "Step %d's token had log-probability %.4f when it was chosen, but the step before gives it %.4f",
        f->first_step, g.first->found, g.first->right);
  else
    say(f, "Step %d feeds token %.0f, but the step before chose token %.0f", f->first_step, g.first->found,
        g.first->right);
  if (often)
    say(f,
        ", and so in %d steps: the tokens fed are not those that the logits chose. Is the run's temperature really 0?",
        g.steps);
  else
    say(f, ": a token that was chosen never came into the cache, and this one was chosen after it.");
  show(f,
       "SELECT s.step, s.token AS fed, t.token AS chosen, t.token_text AS chosen_text, s.logprob FROM step AS s LEFT "
       "JOIN top_token AS t ON t.run = s.run AND t.step = s.step - 1 AND t.rank = 1 WHERE s.run = %d AND s.step = %d",
       d->check->run, f->first_step);
  return KVS_OK;
}

static kvs_status not_the_prompt(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, is_not_prompt);
  if (g.facts == 0) return KVS_OK;
  struct finding *f = find(d, &g, false, "token-skipped", NULL, err);
  if (!f) return err->status;
  say(f,
      "At step %d the tokens fed do not spell run.prompt any more: a token of the prompt was left out or is another "
      "one.",
      f->first_step);
  show_stream(f, d, 0, f->first_step);
  return KVS_OK;
}

kvs_status diagnose_stream(struct diagnosis *d, kvs_error *err) {
  static kvs_status (*const all[])(struct diagnosis *, kvs_error *) = {stale_cache, prompt_twice,  token_twice,
                                                                       no_rollback, token_skipped, not_the_prompt};
  kvs_status status = KVS_OK;
  for (size_t i = 0; status == KVS_OK && i < sizeof all / sizeof *all; i++) status = all[i](d, err);
  return status;
}
