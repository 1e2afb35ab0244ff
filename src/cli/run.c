/* run.c: `kvstep run`: decodes a prompt, prints the text, logs every step. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/decode.h"
#include "cli/model_files.h"
#include "cli/out.h"

struct values {
  const char *model, *output, *fault;
  struct prompt_source prompt;
  int tokens, fault_from, threads, log;
  struct list layers, heads, steps;
  double temperature, top_p;
  int top_k;
  uint64_t seed;
  bool append, force;
};

/* The tables that kvs_log points to. */
struct log_tables {
  bool *layers, *heads;
};

/* A list as a table of [count] bools. Returns -1, or the exit code after a message. */
static int make_table(const struct command *command, const char *option, const struct list *list, int count,
                      bool **table) {
  if (list->count == 0) return -1;
  for (int r = 0; r < list->count; r++) {
    int last = list->range[r].last == INT_MAX ? list->range[r].first : list->range[r].last;
    if (last >= count)
      return usage_error(command, "--%s: there is no %.*s %d: this model has 0 to %d", option, (int)strlen(option) - 1,
                         option, last, count - 1);
  }
  *table = calloc((size_t)count, sizeof **table);
  if (!*table) return report(&(kvs_error){KVS_ERR_MEMORY, "out of memory while reading the options"});
  for (int i = 0; i < count; i++) (*table)[i] = list_contains(list, i);
  return -1;
}

static int make_log(const struct command *command, const struct values *v, const kvs_config *config, kvs_log *log,
                    struct log_tables *tables) {
  static const kvs_log_level levels[] = {KVS_LOG_ATTENTION, KVS_LOG_FULL, KVS_LOG_STEPS};
  *log = (kvs_log){.level = levels[v->log], .last_step = -1};
  int code = make_table(command, "layers", &v->layers, config->n_layer, &tables->layers);
  if (code < 0) code = make_table(command, "heads", &v->heads, config->n_head, &tables->heads);
  if (code >= 0) return code;
  log->layers = tables->layers;
  log->heads = tables->heads;
  if (v->steps.count) {
    log->first_step = v->steps.range[0].first;
    log->last_step = v->steps.range[0].last == INT_MAX ? -1 : v->steps.range[0].last;
  }
  return -1;
}

/* The same file by whatever name. */
static bool is_same_file(const char *a, const char *b) {
  struct stat sa, sb;
  return stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

/* What can be said to be wrong before anything is opened. */
static int check_values(const struct command *command, const struct arguments *arguments, struct values *v,
                        const kvs_fault **fault) {
  if (arguments->count && strcmp(arguments->at[0], "-") != 0)
    return usage_error(command, "unexpected argument `%s`; give the prompt with -p", arguments->at[0]);
  v->prompt.dash = arguments->count > 0;
  if (v->append && v->force) return usage_error(command, "--append and --force exclude each other");
  if ((v->append || v->force) && !v->output)
    return usage_error(command, "--%s needs -o TRACE", v->append ? "append" : "force");
  if (v->fault_from >= 0 && !v->fault) return usage_error(command, "--fault-from needs --fault NAME");
  if (v->output && !*v->output) return usage_error(command, "-o: the trace's name is empty");
  if (v->output && v->force && v->prompt.file && is_same_file(v->output, v->prompt.file))
    return usage_error(command, "-o: `%s` is the prompt's own file; --force would destroy it", v->output);
  if (v->steps.count > 1)
    return usage_error(command, "--steps takes one range, as 5, 5-9 or 5-: what lies between two would be missing");
  return find_fault(command, v->fault, fault);
}

static int open_trace(const struct values *v, const struct session *s, const kvs_run_info *info, const kvs_log *log,
                      struct decode *d) {
  kvs_error err;
  kvs_trace_open_mode mode = v->append ? KVS_TRACE_APPEND : v->force ? KVS_TRACE_REPLACE : KVS_TRACE_NEW;
  if (kvs_trace_create(v->output, mode, &d->trace, &err) != KVS_OK) return report(&err);
  decode_watch(d->trace);
  if (kvs_trace_begin_run(d->trace, s->model, s->tokenizer, info, log, &d->run, &err) != KVS_OK)
    return decode_failed(&err);
  kvs_observer observer = kvs_trace_observer(d->trace);
  kvs_engine_observe(d->engine, &observer);
  return -1;
}

static int decode_session(const struct values *v, const struct session *s, const kvs_fault *fault, const kvs_log *log,
                          const char *line) {
  kvs_error err;
  const kvs_engine_options engine_options = {.threads = v->threads};
  struct decode d = {.session = s, .generate = v->tokens, .path = v->output};
  kvs_run_info info = {
      .command = line,
      .fault = fault,
      .fault_from_step = v->fault_from,
      .sampling = {.temperature = v->temperature, .top_k = v->top_k, .top_p = v->top_p, .seed = v->seed},
      .prompt = s->prompt,
      .prompt_length = s->prompt_length,
  };
  kvs_status status = kvs_sampler_create(&info.sampling, kvs_model_config(s->model)->n_vocab, &d.sampler, &err);
  if (status == KVS_OK) status = kvs_engine_create(s->model, &engine_options, &d.engine, &err);
  int code = status == KVS_OK ? -1 : report(&err);
  if (code < 0) {
    kvs_engine_fault(d.engine, fault, info.fault_from_step);
    decode_catch_signals(d.engine);
  }
  if (code < 0 && v->output) code = open_trace(v, s, &info, log, &d);
  if (code < 0) code = decode_run(&d);
  if (d.engine) kvs_engine_observe(d.engine, NULL); /* the trace goes first */
  if (d.trace && kvs_trace_close(d.trace, &err) != KVS_OK) code = decode_failed(&err);
  code = decode_end(&d, code);
  if (d.engine) kvs_engine_free(d.engine);
  if (d.sampler) kvs_sampler_free(d.sampler);
  return code;
}

static int run_run(const struct command *command, struct arguments *arguments) {
  struct values v = {.model = "austen", .tokens = 32, .fault_from = -1, .top_p = 1};
  struct session session = {0};
  struct log_tables tables = {0};
  const kvs_fault *fault;
  kvs_log log;
  int code = parse_options(command, arguments, &v);
  if (code < 0) code = check_values(command, arguments, &v, &fault);
  if (code < 0) code = session_open(&session, command, v.model, &v.prompt);
  if (code < 0) code = session_fault(&session, command, fault, &v.fault_from);
  if (code < 0) code = make_log(command, &v, kvs_model_config(session.model), &log, &tables);
  if (code < 0) code = decode_session(&v, &session, fault, &log, arguments->line);
  free(tables.layers);
  free(tables.heads);
  session_free(&session);
  return code;
}

static const char *const log_levels[] = {"attention", "full", "steps", NULL};

#define AT(member) .offset = offsetof(struct values, member)
static const struct option options[] = {
    MODEL_AND_PROMPT_OPTIONS,
    {.name = "tokens",
     .letter = 'n',
     .kind = OPTION_INT,
     .argument = "N",
     AT(tokens),
     .maximum = 1e9,
     .help = "generate at most N tokens (default: 32)"},
    {.name = "output",
     .letter = 'o',
     .kind = OPTION_STRING,
     .argument = "TRACE",
     AT(output),
     .completion = "file",
     .help = "log every step to this file; without it nothing is written"},
    {.name = "fault",
     .kind = OPTION_STRING,
     .argument = "NAME",
     AT(fault),
     .completion = "fault",
     .help = "inject a cache bug; `kvstep faults` lists them"},
    {.name = "fault-from",
     .kind = OPTION_INT,
     .argument = "STEP",
     AT(fault_from),
     .maximum = 1e9,
     .help = "inject it from this step on (default: the first decode step, or where the fault begins)"},
    {.name = "log",
     .kind = OPTION_CHOICE,
     .argument = "LEVEL",
     AT(log),
     .choices = log_levels,
     .help = "attention: all but the layers' residual streams (default); full: these too; steps: no vectors"},
    {.name = "layers",
     .kind = OPTION_LIST,
     .argument = "LIST",
     AT(layers),
     .help = "log the vectors of these layers only, as 0,2-3"},
    {.name = "heads",
     .kind = OPTION_LIST,
     .argument = "LIST",
     AT(heads),
     .help = "log the queries, scores and weights of these heads only"},
    {.name = "steps",
     .kind = OPTION_LIST,
     .argument = "LIST",
     AT(steps),
     .help = "log the vectors of these steps only: one range, as 5-9 or 5-"},
    {.name = "temperature",
     .kind = OPTION_REAL,
     .argument = "T",
     AT(temperature),
     .maximum = INFINITY,
     .help = "0 takes the most probable token (default); 1 samples as the model says"},
    {.name = "top-k",
     .kind = OPTION_INT,
     .argument = "K",
     AT(top_k),
     .maximum = INT_MAX,
     .help = "sample among the K most probable tokens (default: 0, all)"},
    {.name = "top-p",
     .kind = OPTION_REAL,
     .argument = "P",
     AT(top_p),
     .maximum = 1,
     .above = true,
     .help = "sample among the most probable tokens that sum to P (default: 1, all)"},
    {.name = "seed", .kind = OPTION_SEED, .argument = "S", AT(seed), .help = "of the random numbers (default: 0)"},
    THREADS_OPTION,
    {.name = "append", .kind = OPTION_FLAG, AT(append), .help = "add a run to the trace if it exists"},
    {.name = "force", .kind = OPTION_FLAG, AT(force), .help = "replace the trace if it exists"},
    {0},
};
static const struct positional positionals[] = {
    PROMPT_FROM_STDIN,
    {0},
};
const struct command command_run = {
    .name = "run",
    .summary = "decode a prompt, print the text, log every step",
    .description =
        "Feeds the prompt, then generates tokens one at a time, each a decode step of its own, and prints the "
        "text. With -o every moment of every step goes to a SQLite trace that `kvstep show`, `kvstep sql` and "
        "any SQLite shell read.\n\n"
        "The run stops after N tokens, at the token that ends a text, and where the context is full. With "
        "--fault the steps go wrong on purpose in one known way.",
    .examples = "  kvstep run -p 'It is a truth' -n 20 -o my.db\n"
                "  kvstep run -p 'It is a truth' -n 20 -o my.db --append --fault off-by-one\n"
                "  kvstep run -m reverse -p 'position>'\n"
                "  kvstep run -m ~/models/gpt2 -f prompt.txt --temperature 0.8 --top-k 40 --seed 1\n",
    .positionals = positionals,
    .options = options,
    .run = run_run,
};
