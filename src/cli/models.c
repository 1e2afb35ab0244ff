/* models.c: `kvstep models`: what is built in. */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/out.h"
#include "kvstep/kvstep.h"

static int run_models(const struct command *command, struct arguments *arguments) {
  int code = parse_options(command, arguments, NULL);
  if (code >= 0) return code;
  for (int i = 0; kvs_builtin_at(i); i++) printf("%-12s %s\n", kvs_builtin_at(i)->name, kvs_builtin_at(i)->summary);
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
