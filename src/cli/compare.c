/* compare.c: `kvstep compare`: two runs of a trace, or a model with faults against itself without, number by number. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/plural.h"
#include "cli/commands.h"
#include "cli/compare_choose.h"
#include "cli/compare_out.h"
#include "cli/compare_save.h"
#include "cli/model_files.h"

struct values {
  const char *model, *fault, *text, *save;
  struct prompt_source prompt;
  int tokens, fault_from, threads, format;
  bool per_step, heads, no_store, ascii;
};

/* What was compared so far. */
struct found {
  struct comparison at[COMPARE_MOST];
  int count;
};

/* ---- printing ----------------------------------------------------------------------------------------------------- */

/* The largest KL first; those without one last; the order they came in else. */
static int by_kl(const void *left, const void *right) {
  const struct comparison *a = *(const struct comparison *const *)left, *b = *(const struct comparison *const *)right;
  bool no_a = isnan(a->kl_mean), no_b = isnan(b->kl_mean);
  if (no_a != no_b) return no_a - no_b;
  if (!no_a && a->kl_mean != b->kl_mean) return a->kl_mean > b->kl_mean ? -1 : 1;
  return (a > b) - (a < b);
}

static int print(const struct values *v, const struct vocabulary *vocabulary, const struct found *found) {
  const struct comparison *sorted[COMPARE_MOST] = {0};
  struct compare_view view = {vocabulary, style_of_stdout(v->ascii), v->per_step, v->heads};
  for (int i = 0; i < found->count; i++) sorted[i] = &found->at[i];
  qsort(sorted, (size_t)found->count, sizeof *sorted, by_kl);
  int code = EXIT_OK;
  bool details = v->per_step || v->heads;
  if (v->format != RESULT_TABLE) {
    code = compare_put_rows(&view, sorted, found->count, v->format);
  } else {
    for (int i = 0; i < found->count && (details || found->count == 1); i++) {
      if (i) putchar('\n');
      compare_put_one(&view, sorted[i]);
    }
    if (details && found->count > 1) putchar('\n');
    if (found->count > 1) compare_put_list(&view, sorted, found->count);
  }
  return finish_stdout(code);
}

/* ---- two runs of a trace ------------------------------------------------------------------------------------------ */

/* A file that cannot be written is still compared. */
static void store(const struct values *v, const char *path, const struct found *found) {
  kvs_error err;
  if (v->no_store) return;
  if (compare_store(path, found->at, found->count, &err) != KVS_OK)
    fprintf(stderr, "kvstep: note: not stored in `divergence`: %s\n", err.message);
}

static int compare_trace(const struct command *command, const struct arguments *arguments, const struct values *v,
                         struct found *found) {
  kvs_error err;
  sqlite3 *db = NULL;
  struct look *look = NULL;
  const char *path = arguments->at[0];
  struct compare_pair pairs[COMPARE_MOST];
  int count = 0;
  if (kvs_trace_read(path, &db, &err) != KVS_OK || look_open(db, &look, &err) != KVS_OK) return report_on(path, &err);
  int code = compare_choose_pairs(command, arguments, look, pairs, &count);
  for (int i = 0; code < 0 && i < count; i++) {
    compare_note_prompts(look, &pairs[i]);
    kvs_status status = compare_runs(look, pairs[i].run_a, pairs[i].run_b, &found->at[found->count++], &err);
    if (status != KVS_OK) code = report_on(path, &err);
  }
  if (code < 0) {
    struct vocabulary vocabulary = {.db = look_db(look)};
    code = print(v, &vocabulary, found);
    look_close(look);
    look = NULL;
    store(v, path, found);
  }
  if (look) look_close(look);
  return code;
}

/* ---- faults ------------------------------------------------------------------------------------------------------- */

static void note_shorter(const struct values *v, const struct session *s, struct compare_live *live) {
  const int *tokens;
  int prompt, count;
  kvs_error err;
  if (compare_live_tokens(live, NULL, &tokens, &prompt, &count, &err) != KVS_OK) return;
  if (count < prompt + v->tokens && (count == prompt || tokens[count - 1] != kvs_model_config(s->model)->eos_token))
    fprintf(stderr, "kvstep: note: the context ends after %d token%s: %d of %d are compared\n", count, plural(count),
            count - prompt, v->tokens);
}

static int compare_session(const struct values *v, const struct session *s, const char *line,
                           const kvs_fault *const *faults, int count, const struct compare_live_options *options,
                           struct found *found) {
  kvs_error err;
  struct compare_live *live;
  if (compare_live_open(s->model, s->tokenizer, options, &live, &err) != KVS_OK) return report(&err);
  note_shorter(v, s, live);
  int code = -1;
  for (int i = 0; code < 0 && i < count; i++)
    if (compare_live_fault(live, faults[i], &found->at[found->count++], &err) != KVS_OK) code = report(&err);
  if (code < 0 && v->save) code = compare_save(s, live, v->save, !v->no_store, line, faults, found->at, found->count);
  if (code < 0) {
    struct vocabulary vocabulary = {.tokenizer = s->tokenizer};
    code = print(v, &vocabulary, found);
  }
  compare_live_close(live);
  return code;
}

static int compare_faults(const struct command *command, const struct arguments *arguments, const struct values *v,
                          struct found *found) {
  const kvs_fault *faults[COMPARE_MOST];
  struct session session = {0};
  int count, *text = NULL;
  struct compare_live_options options = {.generate = v->tokens, .threads = v->threads, .fault_from = v->fault_from};
  int code = compare_choose_faults(command, v->fault, faults, &count);
  for (int i = 0; code < 0 && i < count; i++)
    if (faults[i]->from_start && faults[i]->before && v->fault_from > 0)
      code = usage_error(command, "--fault-from %d: %s happens before the first step; leave --fault-from out",
                         v->fault_from, faults[i]->name);
  if (code < 0) code = session_open(&session, command, v->model, &v->prompt);
  if (code < 0 && v->text) code = session_text(&session, v->text, &text, &options.text_count);
  options.tokens = session.tokens;
  options.token_count = (int)session.token_count;
  options.text = text;
  if (code < 0) code = compare_session(v, &session, arguments->line, faults, count, &options, found);
  free(text);
  session_free(&session);
  return code;
}

/* ---- the command -------------------------------------------------------------------------------------------------- */

/* What can be said to be wrong before anything is opened. */
static int check_values(const struct command *command, const struct arguments *arguments, const struct values *v) {
  bool prompt = v->prompt.text || v->prompt.file || v->prompt.special;
  if (arguments->count && v->fault)
    return usage_error(command, "a TRACE has its faults in it: give either TRACE or --fault");
  if (!arguments->count && !v->fault) return usage_error(command, "TRACE is missing, or --fault NAME");
  bool decoded = prompt || v->text || v->save || v->model || v->tokens != LOOK_NONE || v->fault_from != LOOK_NONE;
  if (arguments->count && decoded)
    return usage_error(command, "-m, -p, -f, -n, --fault-from, --text and --save go with --fault, not with a TRACE");
  if (v->format != RESULT_TABLE && v->per_step && v->heads)
    return usage_error(command, "--per-step and --heads are two tables: csv and json print one");
  if (v->save && !*v->save) return usage_error(command, "--save: the trace's name is empty");
  return -1;
}

static int run_compare(const struct command *command, struct arguments *arguments) {
  struct values v = {.tokens = LOOK_NONE, .fault_from = LOOK_NONE};
  struct found *found = calloc(1, sizeof *found);
  if (!found) return report(&(kvs_error){KVS_ERR_MEMORY, "out of memory while comparing"});
  int code = parse_options(command, arguments, &v);
  if (code < 0) code = check_values(command, arguments, &v);
  if (code < 0 && arguments->count) {
    code = compare_trace(command, arguments, &v, found);
  } else if (code < 0) {
    if (!v.model) v.model = "austen";
    if (v.tokens == LOOK_NONE) v.tokens = 32;
    code = compare_faults(command, arguments, &v, found);
  }
  for (int i = 0; i < found->count; i++) comparison_free(&found->at[i]);
  free(found);
  return code;
}

#define AT(member) .offset = offsetof(struct values, member)
static const struct option options[] = {
    {.name = "fault",
     .kind = OPTION_STRING,
     .argument = "NAMES",
     AT(fault),
     .completion = "fault",
     .help = "compare the model with these faults, as off-by-one,skip-wpe, or all, with itself without"},
    MODEL_AND_PROMPT_OPTIONS,
    {.name = "tokens",
     .letter = 'n',
     .kind = OPTION_INT,
     .argument = "N",
     AT(tokens),
     .maximum = 1e6,
     .help = "compare N tokens after the prompt: what the correct model goes on with, greedily (default: 32)"},
    {.name = "fault-from",
     .kind = OPTION_INT,
     .argument = "STEP",
     AT(fault_from),
     .maximum = 1e9,
     .help = "inject it from this step on (default: the first decode step, or where the fault begins)"},
    {.name = "text",
     .kind = OPTION_STRING,
     .argument = "FILE",
     AT(text),
     .completion = "file",
     .help = "measure the perplexity of both on this text too"},
    {.name = "save",
     .kind = OPTION_STRING,
     .argument = "TRACE",
     AT(save),
     .completion = "file",
     .help = "write the runs that were compared, and their divergence, to a new trace"},
    {.name = "per-step", .kind = OPTION_FLAG, AT(per_step), .help = "every step, with bars"},
    {.name = "heads", .kind = OPTION_FLAG, AT(heads), .help = "how far apart each head's attention is"},
    RESULT_FORMAT_OPTION,
    {.name = "no-store", .kind = OPTION_FLAG, AT(no_store), .help = "leave the trace's table divergence as it is"},
    {.name = "ascii", .kind = OPTION_FLAG, AT(ascii), .help = "draw with ASCII characters only"},
    THREADS_OPTION,
    {0},
};
static const struct positional positionals[] = {
    {.name = "TRACE",
     .help = "a trace with two runs or more; without RUN_A and RUN_B the first correct one against all others of its "
             "prompt",
     .completion = "file",
     .optional = true},
    {.name = "RUN_A", .help = "the run that is right", .optional = true},
    {.name = "RUN_B", .help = "the run that is compared with it", .optional = true},
    {0},
};
const struct command command_compare = {
    .name = "compare",
    .summary = "how far apart are two runs, and where does the first number differ?",
    .description =
        "Compares a run with a correct one, step by step: KL divergence and the largest difference of the logits, "
        "whether the most probable token stays, how probable the text is to both, how far apart the heads' attention "
        "is, and the first number that differs: in which moment, layer and head it lies.\n\n"
        "With a TRACE, two of its runs, as far as their texts are the same; the result is stored in the table "
        "`divergence`. With --fault, a model with a fault against itself without: the same tokens through both, and "
        "then each on its own. The same command gives the same bits, on any number of threads.",
    .examples = "  kvstep compare my.db\n"
                "  kvstep compare my.db 1 3 --per-step\n"
                "  kvstep compare --fault off-by-one --per-step --heads\n"
                "  kvstep compare -m reverse --fault all\n"
                "  kvstep compare --fault all --text novel.txt -o csv > faults.csv\n",
    .positionals = positionals,
    .options = options,
    .run = run_compare,
};
