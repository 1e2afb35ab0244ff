/* models.c: `kvstep models` and `kvstep faults`: what is built in. */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/help.h"
#include "cli/model_files.h"
#include "cli/out.h"
#include "kvstep/kvstep.h"

static int run_models(const struct command *command, struct arguments *arguments) {
  int code = parse_options(command, arguments, NULL);
  if (code >= 0) return code;
  for (int i = 0; kvs_builtin_at(i); i++) printf("%-12s %s\n", kvs_builtin_at(i)->name, kvs_builtin_at(i)->summary);
  return finish_stdout(EXIT_OK);
}

static void put_fault(const kvs_fault *f) {
  printf("%s: ", f->name);
  put_wrapped(f->summary, (int)strlen(f->name) + 2, 0);
  printf("\n  right   %s\n  wrong   %s\n\nEffect: ", f->right_line, f->wrong_line);
  put_wrapped(f->effect, 8, 8);
  fputs("Seen:   ", stdout);
  put_wrapped(f->seen, 8, 8);
  printf("\nTry:    kvstep verify --fault %s\n", f->name);
}

static int run_faults(const struct command *command, struct arguments *arguments) {
  int code = parse_options(command, arguments, NULL);
  if (code >= 0) return code;
  if (arguments->count == 0) {
    for (int i = 0; kvs_fault_at(i); i++) {
      printf("%-16s", kvs_fault_at(i)->name);
      put_wrapped(kvs_fault_at(i)->summary, 16, 16);
    }
    return finish_stdout(EXIT_OK);
  }
  const kvs_fault *f;
  code = find_fault(command, arguments->at[0], &f);
  if (code >= 0) return code;
  if (!f)
    puts("none: the correct step");
  else
    put_fault(f);
  return finish_stdout(EXIT_OK);
}

const struct command command_models = {
    .name = "models",
    .summary = "the built-in models",
    .description =
        "Lists the models that are built into kvstep, a line each. Any GPT-2 directory of Hugging Face's format "
        "(config.json, model.safetensors, vocab.json and merges.txt) can be used as well: -m DIRECTORY.",
    .run = run_models,
};

static const struct positional fault_positionals[] = {
    {.name = "NAME", .help = "show this fault's right and wrong line of code", .completion = "fault", .optional = true},
    {0},
};
const struct command command_faults = {
    .name = "faults",
    .summary = "the cache bugs that can be injected",
    .description =
        "Lists the KV-cache bugs that `run --fault` and `verify --fault` inject, a line each; with a NAME, shows "
        "the line of code as it should be and as it is mistakenly written, what it does, and where it was seen.",
    .examples = "  kvstep faults\n  kvstep faults off-by-one\n",
    .positionals = fault_positionals,
    .run = run_faults,
};
