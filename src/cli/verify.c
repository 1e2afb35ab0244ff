/* verify.c: `kvstep verify`: cached decode against recomputing everything from scratch. */
#include "study/verify.h"

#include <math.h>
#include <stdio.h>

#include "base/plural.h"
#include "cli/commands.h"
#include "cli/model_files.h"
#include "cli/out.h"

struct values {
  const char *model, *fault;
  struct prompt_source prompt;
  int tokens, fault_from, threads;
};

/* What is printed so far. */
struct table {
  const struct session *session;
  struct style style;
  int steps, differing, first_differing;
};

static void put_difference(const kvs_verify_difference *d) {
  if (d->identical)
    printf(" %10s", "0");
  else if (isnan(d->largest) || isinf(d->largest))
    printf(" %10s", isnan(d->largest) ? "NaN" : "no row");
  else
    printf(" %10.3g", d->largest);
}

static kvs_status print_step(void *context, const kvs_verify_step *step, kvs_error *err) {
  struct table *t = context;
  char text[64];
  size_t length;
  const unsigned char *bytes = kvs_tokenizer_bytes(t->session->tokenizer, step->token, &length);
  kvs_token_text(bytes, length, text, sizeof text);
  printf("%5d  ", step->step);
  put_padded(stdout, t->style, text, 14);
  put_difference(&step->logits);
  put_difference(&step->k);
  put_difference(&step->v);
  if (step->identical)
    puts("   identical bits");
  else if (step->cached_length != step->scratch_length)
    printf("   %sthe cache holds %d row%s, not %d%s\n", color(t->style, INK_BAD), step->cached_length,
           plural(step->cached_length), step->scratch_length, color(t->style, INK_PLAIN));
  else {
    /* The earliest trace of a difference: K and V are computed before the logits. */
    const kvs_verify_difference *first = !step->k.identical ? &step->k : &step->v;
    printf("   %sdiffers%s", color(t->style, INK_BAD), color(t->style, INK_PLAIN));
    if (!first->identical) printf(" from layer %d, row %d on", first->layer, first->row);
    putchar('\n');
  }
  t->steps++;
  if (!step->identical && t->differing++ == 0) t->first_differing = step->step;
  if (fflush(stdout) != 0) return kvs_fail(err, KVS_ERR_IO, "cannot write to standard output");
  return KVS_OK;
}

static int verify_session(const struct session *s, const struct values *v, const kvs_fault *fault) {
  kvs_error err = {0};
  struct table t = {.session = s, .style = style_of_stdout(false)};
  const kvs_verify_options options = {
      .tokens = s->tokens,
      .token_count = (int)s->token_count,
      .generate = v->tokens,
      .fault = fault,
      .fault_from = v->fault_from,
      .threads = v->threads,
  };
  puts("max |difference| between cached decode and everything recomputed from scratch\n");
  printf("%5s  %-14s %10s %10s %10s\n", "step", "token", "logits", "K", "V");
  kvs_status status = kvs_verify(s->model, &options, print_step, &t, &err);
  if (status == KVS_ERR_CONTEXT)
    fprintf(stderr, "kvstep: note: %s\n", err.message);
  else if (status != KVS_OK)
    return report(&err);
  if (t.differing)
    printf("\n%d of %d step%s differ%s, the first is step %d%s%s\n", t.differing, t.steps, plural(t.steps),
           t.differing == 1 ? "s" : "", t.first_differing,
           fault ? ": that is what the fault does, " : ": the cache changes the result", fault ? fault->name : "");
  else
    printf("\nidentical bits in %s%d step%s: the cache changes nothing\n", t.steps == 1 ? "" : "all ", t.steps,
           plural(t.steps));
  return finish_stdout(t.differing ? EXIT_BAD : EXIT_OK);
}

static int run_verify(const struct command *command, struct arguments *arguments) {
  struct values v = {.model = "austen", .tokens = 8, .fault_from = -1};
  struct session session = {0};
  const kvs_fault *fault;
  int code = parse_options(command, arguments, &v);
  if (code >= 0) return code;
  v.prompt.dash = arguments->count > 0;
  if (v.prompt.dash && (arguments->at[0][0] != '-' || arguments->at[0][1]))
    return usage_error(command,
                       "unexpected argument `%s`; verify takes no trace, it decodes anew: give the prompt with -p",
                       arguments->at[0]);
  code = find_fault(command, v.fault, &fault);
  if (code < 0) code = session_open(&session, command, v.model, &v.prompt);
  if (code < 0) code = session_fault(&session, command, fault, &v.fault_from);
  if (code < 0) code = verify_session(&session, &v, fault);
  session_free(&session);
  return code;
}

static const struct option options[] = {
    MODEL_AND_PROMPT_OPTIONS,
    {.name = "tokens",
     .letter = 'n',
     .kind = OPTION_INT,
     .argument = "N",
     .offset = offsetof(struct values, tokens),
     .maximum = 1e6,
     .help = "decode N tokens after the prompt, greedily (default: 8)"},
    {.name = "fault",
     .kind = OPTION_STRING,
     .argument = "NAME",
     .offset = offsetof(struct values, fault),
     .help = "inject a fault into the cached side, to see the difference it makes",
     .completion = "fault"},
    {.name = "fault-from",
     .kind = OPTION_INT,
     .argument = "STEP",
     .offset = offsetof(struct values, fault_from),
     .maximum = 1e9,
     .help = "inject it from this step on (default: the first after the prompt)"},
    THREADS_OPTION,
    {0},
};
static const struct positional positionals[] = {
    PROMPT_FROM_STDIN,
    {0},
};
const struct command command_verify = {
    .name = "verify",
    .summary = "is cached decode the same as recomputing everything?",
    .description =
        "Feeds the prompt and then the tokens that are generated one at a time with a KV cache, and after each "
        "token recomputes the whole text so far from scratch with an empty cache and a causal mask. Prints, for "
        "every step, the largest difference in logits, K and V, or that all bits are identical.\n\n"
        "Exit status 1 if anything differs. The work grows with the square of the text's length.",
    .examples = "  kvstep verify -p 'It is a truth'\n  kvstep verify -m reverse --fault off-by-one\n",
    .positionals = positionals,
    .options = options,
    .run = run_verify,
};
