/* show.c: `kvstep show`: one step of a trace as text. */
#include "cli/show.h"

#include <limits.h>

#include "cli/commands.h"
#include "kvstep/trace.h"

struct values {
  struct shown at;
  bool ascii;
};

static int run_show(const struct command *command, struct arguments *arguments) {
  struct values v = {.at = {NOT_LOGGED, NOT_LOGGED, NOT_LOGGED, NOT_LOGGED}};
  int code = parse_options(command, arguments, &v);
  if (code >= 0) return code;
  kvs_error err;
  sqlite3 *db = NULL;
  struct step_view view = {0};
  const char *path = arguments->at[0];
  kvs_status status = kvs_trace_read(path, &db, &err);
  if (status == KVS_OK) status = step_view_read(db, path, &v.at, &view, &err);
  if (status == KVS_OK) status = step_view_print(db, &view, style_of_stdout(v.ascii), &err);
  step_view_free(&view);
  if (db) sqlite3_close(db);
  return status == KVS_OK ? finish_stdout(EXIT_OK) : report_on(path, &err);
}

#define AT(member) .offset = offsetof(struct values, member)
static const struct option options[] = {
    {.name = "run",
     .letter = 'r',
     .kind = OPTION_INT,
     .argument = "R",
     AT(at.run),
     .minimum = 1,
     .maximum = INT_MAX,
     .help = "which run (default: the last; `view` begins at run 1)"},
    {.name = "step",
     .letter = 's',
     .kind = OPTION_INT,
     .argument = "S",
     AT(at.step),
     .maximum = INT_MAX,
     .help = "which step, from 0 (default: the last decode step)"},
    {.name = "layer",
     .letter = 'l',
     .kind = OPTION_INT,
     .argument = "L",
     AT(at.layer),
     .maximum = INT_MAX,
     .help = "which layer, from 0 (default: 0)"},
    {.name = "head",
     .kind = OPTION_INT,
     .argument = "H",
     AT(at.head),
     .maximum = INT_MAX,
     .help = "which head, from 0 (default: 0)"},
    {.name = "ascii", .kind = OPTION_FLAG, AT(ascii), .help = "draw with ASCII characters only"},
    {0},
};
static const struct positional positionals[] = {
    {.name = "TRACE", .help = "a trace that `kvstep run -o` or another engine wrote", .completion = "file"},
    {0},
};
const struct command command_show = {
    .name = "show",
    .summary = "a step's nine moments, with their numbers",
    .description =
        "Shows what happened in one step of a trace, from reading the cache's length to the next token's "
        "probabilities, for one layer and head. The rule comes first: the position is the cache's length, read "
        "before the append.\n\nEverything shown is read from the trace. Of a long cache the heaviest rows are "
        "shown with the first and the last.",
    .examples = "  kvstep show my.db\n  kvstep show my.db --step 12 --layer 3 --head 2\n",
    .positionals = positionals,
    .options = options,
    .run = run_show,
};
