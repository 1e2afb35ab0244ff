/* align.c: which steps of two runs were fed the same token, where one of them fed tokens of its own. */
#include "study/compare/compare_trace.h"

#include <stdlib.h>
#include <string.h>

/* As many steps as a detour may have; the prompt fed again may be longer, and is looked for by its length. */
enum { LONGEST_DETOUR = 8, AGREE = 3, MOST_STEPS = 1 << 20 };

struct stream {
  int *token; /* [count]; LOOK_NONE: no such step */
  int *top;   /* [count] what the step held for the most probable next; LOOK_NONE: not known */
  int count, prompt;
};

static kvs_status read_stream(struct look *look, int run, struct stream *out, kvs_error *err) {
  const struct look_run *found = look_run(look, run);
  int count = found ? found->steps : 0;
  *out = (struct stream){.count = count};
  if (count > MOST_STEPS)
    return kvs_fail(err, KVS_ERR_INPUT,
                    "run %d has a step %d; more than %d steps are no decode of a GPT-2, and not compared", run,
                    count - 1, MOST_STEPS);
  out->token = malloc(((size_t)count + 1) * sizeof *out->token);
  out->top = malloc(((size_t)count + 1) * sizeof *out->top);
  if (!out->token || !out->top) return kvs_fail_memory(err, "comparing two runs");
  for (int i = 0; i < count; i++) {
    const struct look_step *step = look_step(look, run, i);
    const struct look_top *top = look_top(look, run, i);
    out->token[i] = step ? step->token : LOOK_NONE;
    out->top[i] = top && top->count ? top->token[0].token : LOOK_NONE;
    if (i == 0) out->prompt = step ? step->prompt_steps : 0;
  }
  return KVS_OK;
}

static void stream_free(struct stream *stream) {
  free(stream->token);
  free(stream->top);
}

/* Do the streams agree from here on, for as many tokens as make it no accident? */
static bool agree(const struct stream *a, int i, const struct stream *b, int j, int tokens) {
  int n = 0;
  while (n < tokens && i + n < a->count && j + n < b->count && a->token[i + n] == b->token[j + n]) n++;
  return n == tokens;
}

/* How many tokens must agree after a detour that begins with b's token j, instead of a's token i. If b's own step before chose just that
 * token, it is no detour: the texts part (0). If b's step before chose a's token, and b fed another, one is enough. */
static int enough(const struct stream *a, int i, const struct stream *b, int j) {
  int chosen = j > 0 ? b->top[j - 1] : LOOK_NONE;
  if (chosen == LOOK_NONE) return AGREE;
  return b->token[j] == chosen ? 0 : a->token[i] == chosen ? 1 : AGREE;
}

/* Steps of b from j on that a did not make: its token again, the whole prompt again, or a few others. 0: none. */
static int detour(const struct stream *a, int i, const struct stream *b, int j) {
  int prompt = a->prompt, again = 0;
  while (i >= prompt && again < prompt && j + again < b->count && b->token[j + again] == a->token[again]) again++;
  if (prompt > 0 && again == prompt && i == prompt) return prompt;
  int needed = enough(a, i, b, j);
  for (int steps = 1; needed && steps <= LONGEST_DETOUR; steps++)
    if (agree(a, i, b, j + steps, needed)) return steps;
  return 0;
}

/* Tokens of a from i on that b did not feed. */
static int skip(const struct stream *a, int i, const struct stream *b, int j) {
  int needed = enough(a, i, b, j);
  for (int steps = 1; needed && steps <= LONGEST_DETOUR; steps++)
    if (agree(a, i + steps, b, j, needed)) return steps;
  return 0;
}

/* If b repeated what it had just fed, the later copy is the one whose logits were used: a's steps are paired with that. */
static void pair_later(struct alignment *out, const struct stream *b, int i, int j, int steps) {
  if (i < steps || j < steps || memcmp(b->token + j, b->token + j - steps, (size_t)steps * sizeof(int)) != 0) {
    out->extra[i] = steps;
    return;
  }
  for (int k = 0; k < steps; k++) {
    out->extra[i - steps + k] = k == 0 ? steps : 0;
    out->step_b[i - steps + k] = j + k;
  }
}

static void align(const struct stream *a, const struct stream *b, struct alignment *out) {
  int i = 0, j = 0;
  while (i < a->count && j < b->count) {
    if (a->token[i] == b->token[j]) {
      out->step_b[i++] = j++;
      continue;
    }
    int more = detour(a, i, b, j), less = more ? 0 : skip(a, i, b, j);
    if (more) pair_later(out, b, i, j, more);
    if (!more && !less) break;
    j += more, i += less;
  }
  out->steps_a = i;
  out->parted_b = i < a->count && j < b->count ? j : LOOK_NONE;
}

kvs_status align_runs(struct look *look, int run_a, int run_b, struct alignment *out, kvs_error *err) {
  struct stream a = {0}, b = {0};
  *out = (struct alignment){.parted_b = LOOK_NONE};
  kvs_status status = read_stream(look, run_a, &a, err);
  if (status == KVS_OK) status = read_stream(look, run_b, &b, err);
  out->step_b = malloc(((size_t)a.count + 1) * sizeof *out->step_b);
  out->extra = calloc((size_t)a.count + 1, sizeof *out->extra);
  if (status == KVS_OK && (!out->step_b || !out->extra)) status = kvs_fail_memory(err, "comparing two runs");
  if (status == KVS_OK) {
    for (int i = 0; i < a.count; i++) out->step_b[i] = LOOK_NONE;
    align(&a, &b, out);
  }
  stream_free(&a);
  stream_free(&b);
  if (status != KVS_OK) alignment_free(out);
  return status;
}

void alignment_free(struct alignment *alignment) {
  free(alignment->step_b);
  free(alignment->extra);
  *alignment = (struct alignment){.parted_b = LOOK_NONE};
}
