/* compare_text.c: what a fault does to whole texts: generated freely, measured by perplexity, or answered right and wrong. */
#include "study/compare/compare_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "study/compare/diverge.h"

/* ---- each on its own ---------------------------------------------------------------------------------------------- */

static int choose(const struct compare_live *live) {
  int token = diverge_top(kvs_engine_logits(live->engine), live->config->n_vocab);
  return token < 0 ? 0 : token;
}

kvs_status live_free_running(struct compare_live *live, const struct reference *r, const kvs_fault *fault,
                             struct comparison *out, kvs_error *err) {
  int most = live->options->generate;
  out->length_a = r->count - r->prompt;
  out->text_a = malloc(((size_t)out->length_a + 1) * sizeof *out->text_a);
  out->text_b = malloc(((size_t)most + 1) * sizeof *out->text_b);
  if (!out->text_a || !out->text_b) return kvs_fail_memory(err, "comparing two runs");
  memcpy(out->text_a, r->tokens + r->prompt, (size_t)out->length_a * sizeof *out->text_a);
  bool stopped = out->length_a < most; /* the correct one ended its text, or its context */
  bool by_end = stopped && out->length_a && out->text_a[out->length_a - 1] == live->config->eos_token;
  live_start(live, fault, compare_live_from(live, fault, r->prompt), NULL);
  kvs_status status = kvs_engine_prefill(live->engine, r->tokens, r->prompt, KVS_PROMPT, err);
  while (status == KVS_OK && out->length_b < (stopped && !by_end ? out->length_a : most)) {
    int token = choose(live);
    status = kvs_engine_decode(live->engine, token, KVS_SAMPLED, err);
    if (status == KVS_OK) out->text_b[out->length_b++] = token;
    if (token == live->config->eos_token) break;
  }
  int same = 0;
  while (same < out->length_a && same < out->length_b && out->text_a[same] == out->text_b[same]) same++;
  if (same < out->length_a || same < out->length_b) out->parted = same;
  return status == KVS_ERR_CONTEXT ? KVS_OK : status;
}

/* ---- perplexity --------------------------------------------------------------------------------------------------- */

/* A text is cut into windows, each a prompt and what follows it, all from an empty cache; one position is left free, for a fault
 * that goes one too far. */
#define WINDOW_PROMPT 16

static int window_length(const struct compare_live *live) {
  int room = live->config->n_ctx - 1;
  return room < 2 ? 0 : room;
}

static int window_prompt(int length) { return WINDOW_PROMPT < length / 2 ? WINDOW_PROMPT : length / 2; }

/* Writes ln p of the tokens that the window's prompt and decode steps predict. Where the fault's context ends, they stay NaN. */
static kvs_status score_window(struct compare_live *live, const kvs_fault *fault, const int *text, int count,
                               double *logprob, kvs_error *err) {
  int prompt = window_prompt(window_length(live)), given = live->options->fault_from;
  int from = kvs_fault_usual_start(fault, prompt);
  if (given != LOOK_NONE) from = prompt + given - live->options->token_count;
  if (count <= prompt) return KVS_OK;
  live_start(live, fault, from < 0 ? 0 : from, NULL);
  kvs_status status = kvs_engine_prefill(live->engine, text, prompt, KVS_PROMPT, err);
  for (int i = prompt; status == KVS_OK && i < count; i++) {
    logprob[i] = kvs_logprob(kvs_engine_logits(live->engine), live->config->n_vocab, text[i]);
    if (i + 1 < count) status = kvs_engine_decode(live->engine, text[i], KVS_FORCED, err);
  }
  return status == KVS_ERR_CONTEXT ? KVS_OK : status;
}

static kvs_status score_text(struct compare_live *live, const kvs_fault *fault, double *logprob, kvs_error *err) {
  int count = live->options->text_count, window = window_length(live);
  kvs_status status = KVS_OK;
  for (int i = 0; i < count; i++) logprob[i] = NAN;
  for (int i = 0; status == KVS_OK && window && i < count; i += window) {
    int length = count - i < window ? count - i : window;
    status = score_window(live, fault, live->options->text + i, length, logprob + i, err);
  }
  return status;
}

kvs_status live_text(struct compare_live *live, const kvs_fault *fault, struct comparison *out, kvs_error *err) {
  size_t count = (size_t)live->options->text_count;
  double sum_a = 0, sum_b = 0, *logprob;
  kvs_status status = KVS_OK;
  out->text.perplexity_a = out->text.perplexity_b = NAN;
  if (count == 0 || fault->fills_context)
    return KVS_OK; /* such a fault shows at the context's end, and no window has one */
  if (!live->text_logprob) {
    live->text_logprob = malloc(count * sizeof *live->text_logprob);
    if (!live->text_logprob) return kvs_fail_memory(err, "measuring a text");
    status = score_text(live, NULL, live->text_logprob, err);
  }
  logprob = malloc(count * sizeof *logprob);
  if (!logprob) return kvs_fail_memory(err, "measuring a text");
  if (status == KVS_OK) status = score_text(live, fault, logprob, err);
  for (size_t i = 0; status == KVS_OK && i < count; i++) {
    if (isnan(logprob[i]) || isnan(live->text_logprob[i])) continue;
    sum_a += live->text_logprob[i];
    sum_b += logprob[i];
    out->text.tokens++;
  }
  if (out->text.tokens) {
    out->text.perplexity_a = exp(-sum_a / out->text.tokens);
    out->text.perplexity_b = exp(-sum_b / out->text.tokens);
  }
  free(logprob);
  return status;
}

/* ---- answers ------------------------------------------------------------------------------------------------------ */

/* Words of random letters: as the model's own test has them, but made here, from a seed. */
enum { QUESTIONS = 200, SHORTEST = 3, LONGEST = 14, LETTERS = 26, MARK = 26, END = 27 };

/* Is it a model of words spelled backwards: letters, '>' and the newline that ends an answer? */
static bool spells_backwards(const struct compare_live *live) {
  size_t length;
  if (live->config->n_vocab != END + 1 || live->config->eos_token != END || live->config->n_ctx <= 2 * LONGEST + 2)
    return false;
  for (int token = 0; token <= END; token++) {
    const unsigned char *bytes = kvs_tokenizer_bytes(live->tokenizer, token, &length);
    int wanted = token < LETTERS ? 'a' + token : token == MARK ? '>' : '\n';
    if (!bytes || length != 1 || bytes[0] != wanted) return false;
  }
  return true;
}

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t next_random(uint64_t *state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/* Greedy, and right to the last letter and the newline after it. */
static kvs_status ask(struct compare_live *live, const kvs_fault *fault, const int *question, int letters, bool *right,
                      kvs_error *err) {
  int prompt = letters + 1, given = live->options->fault_from, from = kvs_fault_usual_start(fault, prompt);
  if (given != LOOK_NONE) from = prompt + given - live->options->token_count;
  live_start(live, fault, from < 0 ? 0 : from, NULL);
  kvs_status status = kvs_engine_prefill(live->engine, question, prompt, KVS_PROMPT, err);
  *right = status == KVS_OK;
  for (int i = letters - 1; status == KVS_OK && *right && i >= -1; i--) {
    int token = choose(live);
    *right = token == (i >= 0 ? question[i] : END);
    if (*right && i >= 0) status = kvs_engine_decode(live->engine, token, KVS_SAMPLED, err);
  }
  if (status == KVS_ERR_CONTEXT) *right = false;
  return status == KVS_ERR_CONTEXT ? KVS_OK : status;
}

static kvs_status ask_all(struct compare_live *live, const kvs_fault *fault, int *count, kvs_error *err) {
  uint64_t state = 1;
  *count = 0;
  for (int n = 0; n < QUESTIONS; n++) {
    int question[LONGEST + 1], letters = SHORTEST + (int)(next_random(&state) % (LONGEST - SHORTEST + 1));
    for (int i = 0; i < letters; i++) question[i] = (int)(next_random(&state) % LETTERS);
    question[letters] = MARK;
    bool right;
    kvs_status status = ask(live, fault, question, letters, &right, err);
    if (status != KVS_OK) return status;
    *count += right;
  }
  return KVS_OK;
}

kvs_status live_answers(struct compare_live *live, const kvs_fault *fault, struct comparison *out, kvs_error *err) {
  if (fault->fills_context || !spells_backwards(live)) return KVS_OK;
  kvs_status status = live->answered ? KVS_OK : ask_all(live, NULL, &live->right, err);
  if (status != KVS_OK) return status;
  live->answered = true;
  out->answers = (struct compare_share){.count = QUESTIONS, .a = live->right};
  return ask_all(live, fault, &out->answers.b, err);
}
