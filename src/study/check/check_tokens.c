/* check_tokens.c: the token stream (D8): after the prompt (check_prompt.c), the tokens fed are what each step chose, exactly once. */
#include "study/check/check_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trace/query.h"

/* Logits this near to the best one count as the best: another order of the sums may have chosen between them. */
#define NEAR_BEST 2e-4
/* Log-probabilities within this are the same, where the trace's own noise is not larger. */
#define NEAR_LOGPROB 1e-2
/* A rejected draft is not longer. */
#define LONGEST_DRAFT 16
/* With more tokens that nobody chose, the run was not greedy. */
#define FEW_OTHERS 6

kvs_status check_note_token(struct check *check, enum fact_kind kind, int i, double found, double right,
                            kvs_error *err) {
  struct fact fact = check_fact(check, kind, check->steps[i].step);
  fact.found = found, fact.right = right;
  fact.row = check->steps[i].before;
  return check_note(check, &fact, err);
}

/* ---- what each step chose ---- */

/* For each step: the token that its logits chose, LOOK_NONE where that cannot be said; and whether the token that came next was as good. */
struct choice {
  int best;
  bool next_is_as_good;
  double next_logprob; /* ln of the next token's probability; NaN */
  double next_most;    /* … where that is not logged: it is at most this; NaN */
};

static double log_sum_exp(const float *logits, int count) {
  double most = -INFINITY, sum = 0;
  for (int i = 0; i < count; i++)
    if ((double)logits[i] > most) most = (double)logits[i];
  for (int i = 0; i < count; i++) sum += exp((double)logits[i] - most);
  return most + log(sum);
}

static void choose_by_logits(const float *logits, int count, int token, struct choice *c) {
  int best = -1;
  for (int i = 0; i < count; i++)
    if (!isnan(logits[i]) && (best < 0 || logits[i] > logits[best])) best = i;
  c->best = best;
  if (best < 0 || token < 0 || token >= count) return;
  double apart = (double)logits[best] - (double)logits[token];
  c->next_is_as_good = apart <= NEAR_BEST * (1 + fabs((double)logits[best]));
  c->next_logprob = (double)logits[token] - log_sum_exp(logits, count);
}

static void choose_by_top(const struct look_top *top, int token, struct choice *c) {
  if (top->count == 0) return;
  c->best = top->token[0].token;
  for (int k = 0; k < top->count; k++) {
    if (top->token[k].token != token) continue;
    double apart = top->token[0].logit - top->token[k].logit;
    c->next_is_as_good = k == 0 || apart <= NEAR_BEST * (1 + fabs(top->token[0].logit));
    c->next_logprob = log(top->token[k].probability);
    return;
  }
  c->next_most = log(top->token[top->count - 1].probability); /* it is not among the best */
}

/* What step j chose, with a look at whether `token` would have been as good. */
static struct choice choose(struct check *check, int j, int token) {
  struct choice c = {LOOK_NONE, false, NAN, NAN};
  const struct look_vectors *v = look_vectors(check->look, check->run, check->steps[j].step);
  const struct look_top *top = v && v->logits ? NULL : look_top(check->look, check->run, check->steps[j].step);
  if (v && v->logits)
    choose_by_logits(v->logits, check->shape.n_vocab, token, &c);
  else if (top)
    choose_by_top(top, token, &c);
  return c;
}

/* The step whose logits this one's token was chosen from: the one that wrote the row before it. After rows were given up that is an
 * earlier one. */
static int chooser(const struct check *check, int i) {
  const struct check_step *s = &check->steps[i];
  if (s->before == LOOK_NONE || s->before >= s[-1].after || check_full_again(check, i)) return i - 1;
  for (int j = i - 1; j >= 0; j--)
    if (check->steps[j].before == s->before - 1) return j;
  return i - 1;
}

/* What is odd about each step's token. */
struct oddity {
  bool known;  /* what the step before chose is known */
  bool other;  /* … and it is another token */
  bool unlike; /* its log-probability is not what the step before gave it */
  int chosen;
  double logprob, right;
};

/* How far two log-probabilities are apart beyond float32's rounding, in errors of the logits: those do little where the token is nearly
 * certain. */
static double apart(double logprob, double right, double rounding) {
  double beyond = fabs(logprob - right) - rounding * (1 + fabs(right));
  return beyond <= 0 ? 0 : beyond / (1e-7 - expm1(fmin(right, 0)));
}

static bool unlike(double logprob, double right, double within) {
  return !isnan(logprob) && !isnan(right) && apart(logprob, right, 5e-7) > within;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Where a token is more certain than this, any way of reckoning gives the same log-probability. */
#define CERTAIN 5e-6
/* What differs by more than this from softmax(logits), and in most steps, is something else: of scaled or cut-off logits, perhaps. */
#define ANOTHER 0.1

/* How exactly this trace's log-probabilities follow from its logits, as a rule. Which distribution a sampled token's is of is every engine's own
 * affair, and only tokens that were in doubt show it: a column that means something else is no evidence. *means_it: it does not. */
static kvs_status learn_noise(const struct check *check, const struct oddity *odd, double *within, bool *means_it,
                              kvs_error *err) {
  double *all = malloc(((size_t)check->count + 1) * sizeof *all);
  bool any_will_do = check->ours || !(check->temperature > 0);
  int n = 0;
  if (!all) return kvs_fail_memory(err, "following the tokens");
  for (int i = 0; i < check->count; i++) {
    if (!odd[i].known || isnan(odd[i].logprob) || isnan(odd[i].right)) continue;
    if (any_will_do || -expm1(fmin(odd[i].right, 0)) > CERTAIN) all[n++] = apart(odd[i].logprob, odd[i].right, 0);
  }
  if (n) qsort(all, (size_t)n, sizeof *all, ascending);
  *within = n ? fmax(NEAR_LOGPROB, 60 * all[n / 4]) : NEAR_LOGPROB;
  *means_it = any_will_do || (n > 0 && all[n / 4] <= ANOTHER);
  free(all);
  return KVS_OK;
}

static struct oddity look_at(struct check *check, int i) {
  const struct check_step *s = &check->steps[i];
  struct choice c = choose(check, chooser(check, i), s->token);
  if (isnan(c.next_logprob) && s->logprob > c.next_most + 0.05) c.next_logprob = c.next_most;
  if (s->before != LOOK_NONE && s->before < s[-1].after)
    c.next_logprob = NAN; /* rows were given up: by whose logits is not said */
  return (struct oddity){.known = c.best != LOOK_NONE,
                         .other = c.best != LOOK_NONE && c.best != s->token && !c.next_is_as_good,
                         .chosen = c.best,
                         .logprob = s->logprob,
                         .right = c.next_logprob};
}

/* The tokens being judged. */
struct stream {
  const struct oddity *odd;
  int begin, end; /* steps that are judged */
  bool greedy;
  int others;    /* steps whose token nobody chose */
  double within; /* of log-probabilities, … */
  bool logprobs; /* … which are those of the logits */
};

/* True if step i goes on from before step `draft`: its token was chosen then. Where log-probabilities are there, it is theirs, and nearer to
 * them than to what the step before gives. */
static bool goes_on_from_before(struct check *check, const struct stream *s, int draft, int i) {
  int token = check->steps[i].token;
  double logprob = check->steps[i].logprob;
  struct choice c = choose(check, chooser(check, draft), token);
  if (s->greedy && c.best != token && !c.next_is_as_good) return false;
  if (s->greedy && s->odd[i].other) return true; /* nobody else chose it */
  if (isnan(logprob) || isnan(c.next_logprob) || isnan(s->odd[i].right)) return false;
  double off = fabs(logprob - c.next_logprob);
  return !unlike(logprob, c.next_logprob, s->within) && 10 * off < fabs(logprob - s->odd[i].right);
}

/* The draft that began at step i with a token that nobody chose, and was given up: how many steps; 0: none. */
static int draft_from(struct check *check, const struct stream *s, int i) {
  if (s->odd[i].unlike) return 0; /* it follows from something that is not in the trace */
  if (s->others <= FEW_OTHERS) {  /* two and more that nobody chose, and then what had been chosen before them */
    int n = 1;
    while (n <= LONGEST_DRAFT && i + n < s->end && s->odd[i + n].other) n++;
    if (n >= 2 && i + n < s->end &&
        choose(check, chooser(check, i), check->steps[i + n].token).best == check->steps[i + n].token)
      return n;
  }
  for (int n = 1; n <= LONGEST_DRAFT && i + n < s->end; n++)
    if (goes_on_from_before(check, s, i, i + n)) return n;
  return 0;
}

/* A token whose log-probability is that of before the last few steps: they were a draft, and given up. How many; 0: none. */
static int draft_before(struct check *check, const struct stream *s, int i) {
  for (int n = 1; n <= LONGEST_DRAFT && i - n >= s->begin && !check->steps[i - n].prompt; n++)
    if ((!s->greedy || s->odd[i - n].other) && goes_on_from_before(check, s, i - n, i)) return n;
  return 0;
}

/* A step fed from the prompt after the prompt was over. */
static kvs_status judge_prompt(struct check *check, int i, int *next, kvs_error *err) {
  int again = prompt_again_from(check, i, check->prompt_length);
  if (again == 0) return KVS_OK; /* a second prompt, perhaps: a conversation */
  *next = i + again;
  return check_note_token(check, FACT_PROMPT_AGAIN, i, again, 0, err);
}

static kvs_status judge(struct check *check, const struct stream *s, int i, int *next, kvs_error *err) {
  const struct oddity *odd = &s->odd[i];
  int token = check->steps[i].token, draft;
  *next = i + 1;
  if (check->steps[i].prompt) return judge_prompt(check, i, next, err);
  if (odd->unlike && (draft = draft_before(check, s, i)) > 0)
    return check_note_token(check, FACT_DRAFT_LEFT, i, draft, 0, err);
  if (odd->other && (draft = draft_from(check, s, i)) > 0) {
    *next = i + draft + 1;
    return check_note_token(check, FACT_DRAFT_LEFT, i + draft, draft, 0, err);
  }
  if (odd->other && check->steps[i - 1].token == token && !odd->unlike)
    return check_note_token(check, FACT_TOKEN_AGAIN, i, token, odd->chosen, err);
  if (odd->other) return check_note_token(check, FACT_TOKEN_NOT_SAMPLED, i, token, odd->chosen, err);
  if (odd->unlike) return check_note_token(check, FACT_TOKEN_LOGPROB, i, odd->logprob, odd->right, err);
  return KVS_OK;
}

/* Whether sampled tokens are always the best: as the run says, or where it does not, as nearly all of them show. */
static bool is_greedy(const struct check *check, const struct oddity *odd, int begin) {
  int known = 0, others = 0;
  if (!isnan(check->temperature)) return check->temperature == 0;
  for (int i = begin; i < check->count; i++) {
    known += odd[i].known && !check->steps[i].prompt;
    others += odd[i].other && !check->steps[i].prompt;
  }
  return known >= 5 && others <= 3 && 3 * others <= known;
}

static bool was_chosen(const struct check_step *s) { return s->sampled || (!s->has_source && !s->prefill); }

/* What was held against what, and which tokens could not be. */
static void count_judged(struct check *check, const struct stream *s) {
  int chosen = 0, unknown = 0, silent = 0, judged = 0;
  for (int i = s->begin; i < s->end; i++) {
    const struct oddity *odd = &s->odd[i];
    if (!was_chosen(&check->steps[i])) continue;
    bool by_logprob = s->logprobs && !isnan(odd->logprob) && !isnan(odd->right);
    chosen++;
    unknown += !odd->known;
    silent += odd->known && !s->greedy && isnan(odd->logprob);
    judged += odd->known && (s->greedy || by_logprob);
  }
  check->seen.chosen += judged;
  check->chosen = chosen, check->unheld = chosen - judged;
  check->unheld_why =
      unknown == chosen ? "neither logits nor top_token tell what was chosen"
      : silent > 0      ? "where the best token is not always taken, step.logprob must tell, and it is not logged"
      : !s->logprobs
          ? "step.logprob, which must tell where the best token is not always taken, is not that of softmax(logits)"
          : "what was chosen before them, or how likely they were, is not logged";
}

static kvs_status check_sampled(struct check *check, int begin, kvs_error *err) {
  struct oddity *odd = calloc((size_t)check->count + 1, sizeof *odd);
  if (!odd) return kvs_fail_memory(err, "following the tokens");
  struct stream s = {.odd = odd, .begin = begin < 1 ? 1 : begin, .end = check->count};
  int lowest = LOOK_NONE; /* the least length that a later step found */
  for (int i = s.end - 1; i >= s.begin; i--) {
    const struct check_step *step = &check->steps[i];
    bool given_up = lowest != LOOK_NONE && step->before != LOOK_NONE && step->before < step->after &&
                    lowest <= step->before; /* a draft: it need not have been chosen */
    if (step[-1].step + 1 == step->step && !step->prefill && !given_up) odd[i] = look_at(check, i);
    if (step->before != LOOK_NONE && (lowest == LOOK_NONE || step->before < lowest)) lowest = step->before;
  }
  s.greedy = is_greedy(check, odd, s.begin);
  kvs_status status = learn_noise(check, odd, &s.within, &s.logprobs, err);
  for (int i = s.begin; i < s.end; i++) {
    odd[i].other = odd[i].other && s.greedy && was_chosen(&check->steps[i]);
    s.others += odd[i].other;
    odd[i].unlike = odd[i].known && s.logprobs && unlike(odd[i].logprob, odd[i].right, s.within);
  }
  for (int i = s.begin, next; status == KVS_OK && i < s.end; i = next) status = judge(check, &s, i, &next, err);
  count_judged(check, &s);
  free(odd);
  return status;
}

kvs_status check_tokens(struct check *check, kvs_error *err) {
  int end = -1;
  kvs_status status = check_prompt(check, &end, err);
  if (status == KVS_OK) status = check_sampled(check, end > 0 ? end : check->prompt_length, err);
  return status;
}
