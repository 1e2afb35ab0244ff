/* view.c: `kvstep view`: the screen on a trace; and what `kvstep` alone opens. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/model_files.h"
#include "cli/out.h"
#include "kvstep/kvstep.h"
#include "study/look.h"
#include "tui/app.h"
#include "tui/script.h"
#include "tui/start.h"

struct values {
  struct start start;
  const char *keys, *size;
  int depth;
  bool ascii;
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

/* The built-in model with these weights; NULL: it was another one. */
static kvs_model *builtin_with(const char *sha256) {
  for (int i = 0; *sha256 && kvs_builtin_at(i); i++) {
    kvs_model *model;
    const char *hex;
    kvs_error err;
    if (kvs_model_open(kvs_builtin_at(i)->name, &model, &err) != KVS_OK) continue;
    if (kvs_model_sha256(model, &hex, &err) == KVS_OK && strcmp(hex, sha256) == 0) return model;
    kvs_model_free(model);
  }
  return NULL;
}

/* Shows the trace that has been opened; closes it. */
static kvs_status show_look(struct sqlite3 *db, struct app_options *app, struct script_options *script,
                            kvs_error *err) {
  struct look *look;
  kvs_status status = look_open(db, &look, err);
  if (status != KVS_OK) return status;
  const struct look_run *run = look_run(look, 1); /* all runs of a file are of one model */
  kvs_model *model = run ? builtin_with(run->model_sha256) : NULL;
  app->model = script->model = model;
  status = script->path ? script_run(look, script, err) : app_run(look, app, err);
  look_close(look);
  kvs_model_free(model);
  return status;
}

static int run_view(const struct command *command, struct arguments *arguments) {
  struct values v = {.start = {-1, -1, -1, -1}};
  int code = parse_options(command, arguments, &v);
  if (code >= 0) return code;
  const char *path = arguments->at[0];
  struct app_options app = {.name = path, .start = &v.start, .ascii = v.ascii, .depth = v.depth - 1};
  struct script_options script = {.name = path,
                                  .start = &v.start,
                                  .path = v.keys,
                                  .rows = 24,
                                  .columns = 80,
                                  .ascii = v.ascii,
                                  .depth = v.depth - 1};
  if (v.size && !v.keys) return usage_error(command, "--size goes with --keys; a terminal has its own");
  code = read_size(command, v.size, &script);
  if (code >= 0) return code;
  kvs_error err;
  struct sqlite3 *db = NULL;
  kvs_status status = kvs_trace_read(path, &db, &err);
  if (status == KVS_OK) status = show_look(db, &app, &script, &err);
  return status == KVS_OK ? EXIT_OK : report(&err);
}

/* ---- kvstep alone --------------------------------------------------------------------------------------------------- */

/* The trace that is made for the occasion: in a folder of its own, gone from the file system as soon as it is open, or when
 * a signal ends us before. */
static char demo_folder[PATH_MAX], demo_path[PATH_MAX + 16], demo_journal[PATH_MAX + 32];

static void remove_demo(void) {
  unlink(demo_path);
  unlink(demo_journal);
  rmdir(demo_folder);
}

static void on_signal(int number) {
  remove_demo();
  raise(number); /* SA_RESETHAND: now it does what it usually does */
}

static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
#define ENDING (sizeof ending / sizeof *ending)

static kvs_status make_folder(kvs_error *err) {
  const char *parent = getenv("TMPDIR");
  if (!parent || !*parent) parent = "/tmp";
  int length = snprintf(demo_folder, sizeof demo_folder, "%s/kvstep-XXXXXX", parent);
  if (length < 0 || (size_t)length >= sizeof demo_folder || !mkdtemp(demo_folder))
    return kvs_fail(err, KVS_ERR_IO, "%s: no folder for a temporary trace can be made: %s; TMPDIR names another place",
                    parent, strerror(errno));
  snprintf(demo_path, sizeof demo_path, "%s/trace", demo_folder);
  snprintf(demo_journal, sizeof demo_journal, "%s-journal", demo_path);
  return KVS_OK;
}

enum { DEMO_TOKENS = 10 };

/* Feeds the prompt and generates, the most probable token each time. */
static kvs_status decode_tokens(kvs_engine *engine, const struct session *s, kvs_sampler *sampler, kvs_error *err) {
  kvs_status status = kvs_engine_prefill(engine, s->tokens, (int)s->token_count, KVS_PROMPT, err);
  int token = -1;
  for (int i = 0; i < DEMO_TOKENS && status == KVS_OK && token != kvs_model_config(s->model)->eos_token; i++) {
    token = kvs_sampler_next(sampler, kvs_engine_logits(engine));
    status = kvs_engine_decode(engine, token, KVS_SAMPLED, err);
  }
  return status;
}

static kvs_status decode_demo_run(kvs_trace *trace, const struct session *s, const kvs_fault *fault, kvs_error *err) {
  kvs_engine *engine = NULL;
  kvs_sampler *sampler = NULL;
  const kvs_engine_options options = {.threads = 1};
  const kvs_log log = {.level = KVS_LOG_FULL, .last_step = -1};
  kvs_run_info info = {
      .command = "kvstep",
      .fault = fault,
      .fault_from_step = (int)s->token_count,
      .sampling = {.top_p = 1},
      .prompt = s->prompt,
      .prompt_length = s->prompt_length,
  };
  int run;
  kvs_status status = kvs_sampler_create(&info.sampling, kvs_model_config(s->model)->n_vocab, &sampler, err);
  if (status == KVS_OK) status = kvs_engine_create(s->model, &options, &engine, err);
  if (status == KVS_OK) status = kvs_trace_begin_run(trace, s->model, s->tokenizer, &info, &log, &run, err);
  if (status == KVS_OK) {
    kvs_observer observer = kvs_trace_observer(trace);
    kvs_engine_fault(engine, fault, info.fault_from_step);
    kvs_engine_observe(engine, &observer);
    status = decode_tokens(engine, s, sampler, err);
  }
  if (status == KVS_OK) status = kvs_trace_end_run(trace, err);
  if (engine) kvs_engine_free(engine);
  if (sampler) kvs_sampler_free(sampler);
  return status;
}

/* Three runs of the same prompt: as it should be, and with the two commonest faults. */
static kvs_status write_demo(const struct session *s, kvs_error *err) {
  static const char *const faults[] = {NULL, "off-by-one", "reset-to-zero"};
  kvs_trace *trace;
  kvs_error close_err;
  kvs_status status = kvs_trace_create(demo_path, KVS_TRACE_NEW, &trace, err);
  if (status != KVS_OK) return status;
  for (size_t i = 0; i < sizeof faults / sizeof *faults && status == KVS_OK; i++) {
    const kvs_fault *fault = NULL;
    if (faults[i] && find_fault(&command_view, faults[i], &fault) >= 0)
      status = kvs_fail(err, KVS_ERR_USAGE, "there is no fault `%s`", faults[i]);
    if (status == KVS_OK) status = decode_demo_run(trace, s, fault, err);
  }
  kvs_status closed = kvs_trace_close(trace, &close_err);
  if (status != KVS_OK || closed == KVS_OK) return status;
  *err = close_err;
  return closed;
}

/* Makes the trace, opens it and removes its name: nothing is left over, however the program ends. */
static kvs_status open_demo(const struct session *s, struct sqlite3 **db, kvs_error *err) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND}, before[ENDING];
  kvs_status status = make_folder(err);
  if (status != KVS_OK) return status;
  for (size_t i = 0; i < ENDING; i++) {
    sigaction(ending[i], NULL, &before[i]);
    if (before[i].sa_handler != SIG_IGN) sigaction(ending[i], &action, NULL);
  }
  status = write_demo(s, err);
  if (status == KVS_OK) status = kvs_trace_read(demo_path, db, err);
  remove_demo();
  for (size_t i = 0; i < ENDING; i++) sigaction(ending[i], &before[i], NULL);
  return status;
}

int view_demo(void) {
  struct session session = {0};
  struct sqlite3 *db = NULL;
  kvs_error err;
  const struct prompt_source prompt = {.text = "position>"};
  const struct start start = {-1, -1, -1, -1};
  struct app_options app = {.name = "a temporary trace", .start = &start, .depth = -1};
  int code = session_open(&session, &command_view, "reverse", &prompt);
  if (code < 0) {
    kvs_status status = open_demo(&session, &db, &err);
    if (status == KVS_OK) status = show_look(db, &app, &(struct script_options){0}, &err);
    code = status == KVS_OK ? EXIT_OK : report(&err);
  }
  session_free(&session);
  return code;
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
     .help = "begin at this run (default: 1)"},
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
                "  kvstep view my.db --step 12 --layer 3 --head 2\n"
                "  printf 'Right Right view-map\\n:save-screen map.svg\\n' > my.keys\n"
                "  kvstep view my.db --keys my.keys --size 100x30\n",
    .positionals = positionals,
    .options = options,
    .run = run_view,
};
