/* fault_stream.c: faults of the token stream: each step is right, but the wrong tokens are fed, or rows stay that should be gone. */
#include "engine/faults.h"

#include "engine/detour.h"
#include "engine/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EARLIER_TOKENS 8 /* of the prompt that a stale cache is left from, at most */

/* Feeds tokens that nobody sees, as an earlier conversation or a look ahead. */
static kvs_status feed_unseen(kvs_engine *e, const int *tokens, int count, kvs_error *err) {
  kvs_observer observer = e->observer;
  bool observed = e->observed;
  int steps = e->steps;
  e->observer = (kvs_observer){0};
  e->observed = false;
  kvs_status status = kvs_prefill_batch(e, tokens, count, KVS_FORCED, err);
  e->observer = observer;
  e->observed = observed;
  e->steps = steps;
  return status;
}

/* The rows of an earlier prompt are still there: the same tokens backwards, fed before the run began. */
static kvs_status stale_cache(kvs_engine *e, kvs_feed *feed, kvs_error *err) {
  int earlier[EARLIER_TOKENS], count = e->model->config.n_ctx / 4;
  if (e->steps > 0) return KVS_OK;
  e->detour_taken = true;
  if (count > EARLIER_TOKENS) count = EARLIER_TOKENS;
  if (count < 1) return KVS_OK;
  for (int i = 0; i < count; i++) earlier[i] = feed->tokens[feed->count - 1 - i % feed->count];
  if (feed_unseen(e, earlier, count, err)) return err->status;
  e->has_logits = false; /* what the earlier prompt predicted is forgotten; its rows are not */
  return KVS_OK;
}

static kvs_status prompt_twice(kvs_engine *e, kvs_feed *feed, kvs_error *err) {
  (void)feed;
  e->detour_taken = true;
  if (e->prompt_length == 0) return KVS_OK;
  return kvs_prefill_batch(e, e->prompt, e->prompt_length, KVS_PROMPT, err);
}

static kvs_status last_token_twice(kvs_engine *e, kvs_feed *feed, kvs_error *err) {
  e->detour_taken = true;
  return kvs_decode_step(e, feed->tokens[feed->count - 1], feed->source, err);
}

/* The token is looked at, so that the next one follows from it, but its row does not stay. */
static kvs_status token_skipped(kvs_engine *e, kvs_feed *feed, kvs_error *err) {
  if (feed->mode != KVS_DECODE || feed->source == KVS_PROMPT || e->cache.length[0] == 0) return KVS_OK;
  e->detour_taken = true;
  feed->skip = true;
  int length = e->cache.length[0];
  if (feed_unseen(e, feed->tokens, 1, err)) return err->status;
  for (int layer = 0; layer < e->model->config.n_layer; layer++) e->cache.length[layer] = length;
  return KVS_OK;
}

static int best_but(const float *logits, int n_vocab, int but) {
  int best = -1;
  for (int i = 0; i < n_vocab; i++)
    if (i != but && !isnan(logits[i]) && (best < 0 || logits[i] > logits[best])) best = i;
  return best < 0 ? 0 : best;
}

/* A draft of two tokens is fed and rejected: sampling goes on from before it, but its rows stay. */
static kvs_status no_rollback(kvs_engine *e, kvs_feed *feed, kvs_error *err) {
  (void)feed;
  int n_vocab = e->model->config.n_vocab;
  if (n_vocab < 2 || e->cache.length[0] + 2 >= e->model->config.n_ctx) return KVS_OK;
  e->detour_taken = true;
  float *before = malloc((size_t)n_vocab * sizeof *before);
  if (!before) return kvs_fail_memory(err, "keeping the logits from before a draft");
  memcpy(before, e->last_logits, (size_t)n_vocab * sizeof *before);
  int first = best_but(before, n_vocab, best_but(before, n_vocab, -1));
  kvs_status status = kvs_decode_step(e, first, KVS_SAMPLED, err);
  if (!status) status = kvs_decode_step(e, best_but(e->last_logits, n_vocab, -1), KVS_SAMPLED, err);
  memcpy(e->last_logits, before, (size_t)n_vocab * sizeof *before);
  free(before);
  return status;
}

/* Sampled tokens that are not what the step before chose, in a run that always takes the best. */
#define NOT_THE_BEST                                                                                                   \
  "SELECT s.run, s.step, s.token AS fed, t.token AS chosen, t.token_text AS chosen_text FROM step AS s JOIN run AS r " \
  "ON r.run = s.run JOIN top_token AS t ON t.run = s.run AND t.step = s.step - 1 AND t.rank = 1 WHERE s.source = "     \
  "'sampled' AND r.temperature = 0 AND s.token <> t.token"

/* More of the prompt was fed than there is. */
#define PROMPT_TOO_LONG                                                                                                \
  "SELECT r.run, length(CAST(r.prompt AS BLOB)) AS bytes_of_prompt, sum(length(t.bytes)) AS bytes_fed FROM run AS r "  \
  "JOIN step AS s ON s.run = r.run AND s.source = 'prompt' JOIN token AS t ON t.token = s.token GROUP BY r.run "       \
  "HAVING bytes_fed > bytes_of_prompt"

const kvs_fault kvs_faults_stream[] = {
    {.name = "stale-cache",
     .kind = "stale-cache",
     .summary = "the cache was not cleared before a new prompt",
     .right_line = "clear(cache);  feed(prompt);",
     .wrong_line = "feed(prompt);   // the last conversation's rows are still there",
     .effect =
         "the prompt begins at a position above 0 and attends to what somebody else said; kvstep feeds the prompt's "
         "tokens backwards first, unseen, and leaves their rows",
     .seen = "litgpt#1647, LLMs-from-scratch#1048, mlx-examples#1000: very common",
     .detect = "D1: the first step's length is above 0; D13: the same prompt again gives another trace",
     .sql = "SELECT run, step, cache_length_before FROM step WHERE step = 0 AND cache_length_before > 0",
     .from_start = true,
     .before = stale_cache},
    {.name = "prompt-twice",
     .kind = "prompt-twice",
     .summary = "the prompt is fed again on top of its own cache",
     .right_line = "feed(prompt);  then feed(next token), one at a time",
     .wrong_line = "feed(prompt);  then feed(prompt + next token), with the cache still full",
     .effect = "the model reads everything twice; the text hardly shows it, the context is full in half the time",
     .seen = "transformers#1749 (GPT-2), llama.cpp#7859: very common",
     .detect = "D8: the tokens fed are the prompt, and then the prompt again",
     .sql = PROMPT_TOO_LONG,
     .after = prompt_twice},
    {.name = "last-token-twice",
     .kind = "last-token-twice",
     .summary = "the token at the border of prompt and decode is fed a second time",
     .right_line = "feed(prompt);  next = sample(logits);  feed(next);",
     .wrong_line = "feed(prompt);  next = prompt[last];  loop { feed(next);  next = sample(logits); }",
     .effect = "one token stands there twice, and everything after it is one place too far; the text mostly reads well",
     .seen = "gemma.cpp#665",
     .detect = "D8: the tokens fed are not the prompt and then what was sampled",
     .sql = PROMPT_TOO_LONG,
     .after = last_token_twice},
    {.name = "token-skipped",
     .kind = "token-skipped",
     .summary = "a sampled token is never fed for good: its row is not there",
     .right_line = "next = sample(logits);  feed(next);   // every one of them, once",
     .wrong_line = "accept(draft[0], draft[1]);  keep_rows(P);   // draft[0]'s row is cut off with the rejected ones",
     .effect = "the text shows a token that the model cannot see; what follows repeats or contradicts it",
     .seen = "ik_llama.cpp#1661, gemma.cpp#665",
     .detect = "D8: the token fed is not what the step before chose",
     .sql = NOT_THE_BEST,
     .before = token_skipped},
    {.name = "no-rollback",
     .kind = "no-rollback",
     .summary = "rejected tokens of a draft stay in the cache",
     .right_line = "if (!accepted) cache.length -= n_rejected;",
     .wrong_line = "if (!accepted) forget(draft);   // the text, not the rows",
     .effect = "the model goes on having read what was taken back, two places further on; kvstep drafts two tokens, "
               "the second best and what follows it",
     .seen = "mlx-lm#1109, mlxcel#994",
     .detect = "D8: tokens were fed that are not part of the text",
     .sql = NOT_THE_BEST,
     .after = no_rollback},
    {0},
};
