/* import.c: `kvstep import`: arrays that another engine dumped, made into a trace. */
#include "import/import.h"

#include <stdio.h>

#include "base/plural.h"
#include "cli/commands.h"
#include "cli/out.h"

struct values {
  import_options import;
  const char *output;
  bool append, force;
};

static void say_note(void *context, const char *note) {
  (void)context;
  fputs("kvstep: note: ", stderr);
  put_shown(stderr, style_of_stdout(false), note);
  fputc('\n', stderr);
}

static int run_import(const struct command *command, struct arguments *arguments) {
  struct values v = {0};
  int code = parse_options(command, arguments, &v);
  if (code >= 0) return code;
  if (!v.output || !*v.output) return usage_error(command, "-o TRACE is missing: the trace to write");
  if (v.append && v.force) return usage_error(command, "--append and --force exclude each other");
  if (v.import.name && v.import.model)
    return usage_error(command, "--name is for a model that -m cannot open; give one of the two");
  v.import.command = arguments->line;
  kvs_error err;
  import_result result;
  kvs_trace_open_mode mode = v.append ? KVS_TRACE_APPEND : v.force ? KVS_TRACE_REPLACE : KVS_TRACE_NEW;
  if (import_files((const char *const *)arguments->at, arguments->count, &v.import, v.output, mode, say_note, NULL,
                   &result, &err) != KVS_OK)
    return report(&err);
  fprintf(stderr, "kvstep: %d step%s, %d layer%s; run %d in ", result.steps, plural(result.steps), result.n_layer,
          plural(result.n_layer), result.run);
  put_shown(stderr, style_of_stdout(false), v.output);
  fputc('\n', stderr);
  return EXIT_OK;
}

#define AT(member) .offset = offsetof(struct values, member)
static const struct option options[] = {
    {.name = "output",
     .letter = 'o',
     .kind = OPTION_STRING,
     .argument = "TRACE",
     AT(output),
     .completion = "file",
     .help = "the trace to write"},
    {.name = "append", .kind = OPTION_FLAG, AT(append), .help = "add a run to TRACE if it is there"},
    {.name = "force", .kind = OPTION_FLAG, AT(force), .help = "replace TRACE if it is there"},
    {.name = "model",
     .letter = 'm',
     .kind = OPTION_STRING,
     .argument = "MODEL",
     AT(import.model),
     .completion = "model",
     .help = "the model that was decoded with, a directory or a built-in's name: its shape, SHA-256, and the tokens' "
             "texts"},
    {.name = "tokenizer",
     .kind = OPTION_STRING,
     .argument = "MODEL",
     AT(import.vocabulary),
     .completion = "model",
     .help = "the tokens' texts alone, from a directory with vocab.json and merges.txt or a tokenizer.json"},
    {.name = "name",
     .kind = OPTION_STRING,
     .argument = "NAME",
     AT(import.name),
     .help = "what the model is called, where there is no -m"},
    {.name = "prompt-length",
     .kind = OPTION_INT,
     .argument = "N",
     AT(import.prompt_length),
     .minimum = 1,
     .maximum = 1e9,
     .help = "the first N tokens were the prompt, fed in one batch (default: all of them)"},
    {.name = "n-head",
     .kind = OPTION_INT,
     .argument = "N",
     AT(import.n_head),
     .minimum = 1,
     .maximum = 65536,
     .help = "how many heads share n_embd, where no array's shape says it"},
    {.name = "n-ctx",
     .kind = OPTION_INT,
     .argument = "N",
     AT(import.n_ctx),
     .minimum = 1,
     .maximum = 1 << 20,
     .help = "rows of wpe (default: as many as are seen)"},
    {.name = "map",
     .kind = OPTION_STRING,
     .argument = "NAME=ARRAY",
     AT(import.map),
     .help = "the file's ARRAY is what kvstep calls NAME; more of them with commas between"},
    {0},
};
static const struct positional positionals[] = {
    {.name = "FILE",
     .help = "arrays in .npz, .npy (one array, named like its file) or JSON",
     .completion = "file",
     .many = true},
    {0},
};
const struct command command_import = {
    .name = "import",
    .summary = "make a trace from arrays that another engine dumped",
    .description =
        "Takes what an engine that cannot write SQLite has saved with numpy.savez, numpy.save or as a JSON object: the "
        "tokens that were fed, and as much as there is of K and V, positions, attention weights, scores, hidden states "
        "and logits. docs/recording.md has the names and shapes.\n\n"
        "Everything is checked before anything is written, and the trace gets the whole run or nothing.",
    .examples = "  kvstep import dump.npz -o theirs.db -m path/to/gpt2 --prompt-length 5\n"
                "  kvstep import dump.json -o theirs.db --map k=my_keys,v=my_values\n"
                "  kvstep import tokens.npy k.npy v.npy -o theirs.db --n-head 12\n",
    .positionals = positionals,
    .options = options,
    .run = run_import,
};
