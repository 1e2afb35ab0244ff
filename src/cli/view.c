/* view.c: `kvstep view`: the screen on a trace. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "cli/commands.h"
#include "cli/out.h"
#include "cli/view.h"
#include "study/look/look.h"
#include "trace/query.h"

struct values {
  struct start start;
  const char *keys, *size, *model;
  int depth;
  bool ascii, read_only;
};

/* Larger than any terminal; a grid of it is still drawn at once. */
#define SIZE_MAXIMUM 1000

/* "80x24" as columns and rows. Returns -1, or the exit code after a message. */
static int read_size(const struct command *command, const char *text, struct script_options *script) {
  char *end;
  if (!text) return -1;
  long columns = strtol(text, &end, 10);
  long rows = *end == 'x' && end[1] >= '0' && end[1] <= '9' ? strtol(end + 1, &end, 10) : 0;
  if (*text < '0' || *text > '9' || *end || columns < 1 || rows < 1 || columns > SIZE_MAXIMUM || rows > SIZE_MAXIMUM)
    return usage_error(command, "--size: `%s` is not COLUMNSxROWS, as 80x24, each from 1 to %d", text, SIZE_MAXIMUM);
  script->columns = (int)columns;
  script->rows = (int)rows;
  return -1;
}

/* ---- the trace, and the model to decode on with ---------------------------------------------------------------------- */

kvs_status show_trace(struct show *show, int *signal_number, kvs_error *err) {
  struct sqlite3 *db = NULL;
  struct look *look = NULL;
  kvs_error close_err;
  show->app.model = show->script.model = show->model;
  show->app.live = show->script.live = show->live;
  show->app.no_live = show->script.no_live = *show->no_live ? show->no_live : NULL;
  kvs_status status = kvs_trace_read(show->path, &db, err);
  if (status == KVS_OK) status = look_open(db, &look, err);
  if (status == KVS_OK)
    status = show->script.path ? script_run(look, &show->script, err) : app_run(look, &show->app, signal_number, err);
  look_close(look);
  kvs_status closed = live_close(show->live, &close_err);
  if (status != KVS_OK || closed == KVS_OK) return status;
  *err = close_err;
  return closed;
}

static void free_model(struct show *show) {
  kvs_tokenizer_free(show->tokenizer);
  kvs_model_free(show->model);
  show->tokenizer = NULL;
  show->model = NULL;
}

/* Opens the model of that name if it decoded the trace's runs. */
static kvs_status open_model(struct show *show, struct sqlite3 *db, const char *name, kvs_error *err) {
  kvs_status status = kvs_model_open(name, &show->model, err);
  if (status == KVS_OK) status = live_fits(db, show->path, show->model, err);
  if (status == KVS_OK) status = kvs_tokenizer_open(name, &show->tokenizer, err);
  if (status == KVS_OK) status = kvs_tokenizer_fits(show->tokenizer, show->model, err);
  if (status != KVS_OK) free_model(show);
  return status;
}

/* The model that was named, or the built-in one that it was; that there is none is no failure. */
static kvs_status find_model(struct show *show, const char *name, kvs_error *err) {
  struct sqlite3 *db;
  kvs_status status = kvs_trace_read(show->path, &db, err);
  if (status != KVS_OK) return status;
  struct query_budget budget;
  query_limit(db, &budget);
  if (name) status = open_model(show, db, name, err);
  for (int i = 0; !name && !show->model && kvs_builtin_at(i); i++) open_model(show, db, kvs_builtin_at(i)->name, NULL);
  sqlite3_close(db); /* before live_open, which see */
  return status;
}

/* A session to decode in, if it can be; else the reason. */
static void find_live(struct show *show, bool read_only) {
  kvs_error why;
  if (read_only)
    snprintf(show->no_live, sizeof show->no_live, "opened with --read-only, so nothing is decoded");
  else if (!show->model)
    snprintf(show->no_live, sizeof show->no_live, "no model at hand to decode on with: give -m DIR");
  else if (live_open(show->path, show->model, show->tokenizer, &show->live, &why) != KVS_OK)
    snprintf(show->no_live, sizeof show->no_live, "nothing can be decoded: %s", why.message);
}

static int run_view(const struct command *command, struct arguments *arguments) {
  struct values v = {.start = {-1, -1, -1, -1}};
  int code = parse_options(command, arguments, &v);
  if (code >= 0) return code;
  const char *path = arguments->at[0];
  struct show show = {.path = path,
                      .app = {.name = path, .start = &v.start, .ascii = v.ascii, .depth = v.depth - 1},
                      .script = {.name = path,
                                 .start = &v.start,
                                 .path = v.keys,
                                 .rows = 24,
                                 .columns = 80,
                                 .ascii = v.ascii,
                                 .depth = v.depth - 1}};
  if (v.size && !v.keys) return usage_error(command, "--size goes with --keys; a terminal has its own");
  code = read_size(command, v.size, &show.script);
  if (code >= 0) return code;
  kvs_error err;
  int signal_number = 0;
  kvs_status status = find_model(&show, v.model, &err);
  if (status == KVS_OK) {
    find_live(&show, v.read_only);
    status = show_trace(&show, &signal_number, &err);
  }
  free_model(&show);
  if (signal_number) {
    signal(signal_number, SIG_DFL); /* term_close may have left it ignored */
    raise(signal_number);
  }
  return status == KVS_OK ? EXIT_OK : report(&err);
}

#define AT(member) .offset = offsetof(struct values, member)
static const char *const depths[] = {"auto", "mono", "16", "256", NULL};
static const struct option options[] = {
    {.name = "run",
     .letter = 'r',
     .kind = OPTION_INT,
     .argument = "R",
     AT(start.run),
     .minimum = 1,
     .maximum = INT_MAX,
     .help = "begin at this run (default: 1; `show` takes the last)"},
    {.name = "step",
     .letter = 's',
     .kind = OPTION_INT,
     .argument = "S",
     AT(start.step),
     .maximum = INT_MAX,
     .help = "begin at this step (default: the first generated token)"},
    {.name = "layer",
     .letter = 'l',
     .kind = OPTION_INT,
     .argument = "L",
     AT(start.layer),
     .maximum = INT_MAX,
     .help = "begin at this layer (default: 0)"},
    {.name = "head",
     .kind = OPTION_INT,
     .argument = "H",
     AT(start.head),
     .maximum = INT_MAX,
     .help = "begin at this head (default: 0)"},
    {.name = "model",
     .letter = 'm',
     .kind = OPTION_STRING,
     .argument = "MODEL",
     AT(model),
     .completion = "model",
     .help = "the model that decoded it, to decode on with and for the logit lens (default: a built-in one, if it was "
             "that)"},
    {.name = "read-only", .kind = OPTION_FLAG, AT(read_only), .help = "never write to the trace: decode nothing"},
    {.name = "ascii", .kind = OPTION_FLAG, AT(ascii), .help = "draw with ASCII characters only"},
    {.name = "depth",
     .kind = OPTION_CHOICE,
     .argument = "COLORS",
     AT(depth),
     .choices = depths,
     .help = "auto (default: what TERM has, none with NO_COLOR), mono, 16 or 256 colours"},
    {.name = "keys",
     .kind = OPTION_STRING,
     .argument = "FILE",
     AT(keys),
     .completion = "file",
     .help = "no terminal: play the keys in this file"},
    {.name = "size",
     .kind = OPTION_STRING,
     .argument = "CxR",
     AT(size),
     .help = "with --keys: columns and rows of the screen (default: 80x24)"},
    {0},
};
static const struct positional positionals[] = {
    {.name = "TRACE", .help = "a trace that `kvstep run -o` or another engine wrote", .completion = "file"},
    {0},
};
const struct command command_view = {
    .name = "view",
    .summary = "the screen: step through tokens, layers, heads and moments",
    .description =
        "Opens a trace on the whole terminal. Space goes from moment to moment, the arrows from token to token, Tab "
        "from view to view; `?` shows every key, and so does the manual's section KEYS (`kvstep man`); `p` asks for "
        "the next number before "
        "it is shown; `q` leaves. A trace that is still being written is followed from "
        "its end on (`G`).\n\n"
        "With the model that decoded it (-m, or a built-in one) the screen decodes on: the next token after the last "
        "step, "
        "`e` another prompt, `f` the same tokens under a fault; steps and runs are added to the trace, and nothing in "
        "it is "
        "changed. --read-only keeps it as it is.\n\n"
        "`kvstep` without a command opens the screen too, on a small model that is part of the program: a prompt is "
        "decoded three times, right and with two faults, into a temporary trace that is gone afterwards.\n\n"
        "With --keys no terminal is needed. Each line of FILE holds names of keys (Left, Space, C-f, a) or of what "
        "they do (next-step, view-map), separated by blanks, or a command after a colon, or a question in SQL after a "
        "semicolon; # begins a comment. "
        "`:save-screen FILE` writes the screen as text, or with the colours of --depth (256, if it is auto) if the "
        "name "
        "ends in .svg. A question that takes SQLite more than a thousand million instructions (some ten seconds) "
        "ends the script.",
    .examples = "  kvstep view my.db\n"
                "  kvstep view my.db -m ~/models/gpt2\n"
                "  kvstep view my.db --step 12 --layer 3 --head 2\n"
                "  printf 'Right Right view-map\\n:save-screen map.svg\\n' > my.keys\n"
                "  kvstep view my.db --keys my.keys --size 100x30\n",
    .positionals = positionals,
    .options = options,
    .run = run_view,
};
