/* view.c: `kvstep view`: the screen on a trace; and what `kvstep` alone opens. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include "cli/commands.h"
#include "cli/model_files.h"
#include "cli/out.h"
#include "kvstep/kvstep.h"
#include "study/live.h"
#include "study/look.h"
#include "tui/app.h"
#include "tui/script.h"
#include "tui/start.h"

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

/* What is shown, and how. */
struct show {
  const char *path; /* of the trace */
  struct app_options app;
  struct script_options script;
  kvs_model *model; /* that decoded the trace; NULL: none is at hand */
  kvs_tokenizer *tokenizer;
  struct live *live;  /* decodes on with it; NULL: … */
  char no_live[1100]; /* … this is why */
};

/* Opens the trace, shows it, and closes all of it: first who reads, then who writes, so that one file is left. *signal: to be
 * raised in the end; 0: none. */
static kvs_status show_trace(struct show *show, int *signal_number, kvs_error *err) {
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
  if (signal_number) raise(signal_number);
  return status == KVS_OK ? EXIT_OK : report(&err);
}

/* ---- kvstep alone --------------------------------------------------------------------------------------------------- */

/* The trace that is made for the occasion, in a folder of its own. It grows while it is looked at, so it stays until the screen is
 * left, or a signal ends us: the screen's own handlers hand over to this one. */
static const char *const demo_ends[] = {"", "-journal", "-wal", "-shm"};
#define DEMO_FILES (sizeof demo_ends / sizeof *demo_ends)
static char demo_folder[PATH_MAX], demo_files[DEMO_FILES][PATH_MAX + 32];

static void remove_demo(void) {
  for (size_t i = 0; i < DEMO_FILES; i++) unlink(demo_files[i]);
  rmdir(demo_folder);
}

static void on_signal(int number) {
  remove_demo();
  raise(number); /* SA_RESETHAND: now it does what it usually does */
}

static const int ending[] = {SIGINT, SIGTERM, SIGHUP,  SIGQUIT, SIGABRT, SIGSEGV, SIGBUS,  SIGFPE, SIGILL,
                             SIGSYS, SIGPIPE, SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ, SIGTRAP};
#define ENDING (sizeof ending / sizeof *ending)

static kvs_status make_folder(kvs_error *err) {
  const char *parent = getenv("TMPDIR");
  if (!parent || !*parent) parent = "/tmp";
  int length = snprintf(demo_folder, sizeof demo_folder, "%s/kvstep-XXXXXX", parent);
  if (length < 0 || (size_t)length >= sizeof demo_folder || !mkdtemp(demo_folder))
    return kvs_fail(err, KVS_ERR_IO, "%s: no folder for a temporary trace can be made: %s; TMPDIR names another place",
                    parent, strerror(errno));
  for (size_t i = 0; i < DEMO_FILES; i++)
    snprintf(demo_files[i], sizeof demo_files[i], "%s/trace%s", demo_folder, demo_ends[i]);
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
  kvs_status status = kvs_trace_create(demo_files[0], KVS_TRACE_NEW, &trace, err);
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

/* Makes the trace, shows it with the model at hand, and removes it: nothing is left over, however the program ends. */
static kvs_status show_demo(struct session *s, struct show *show, int *signal_number, kvs_error *err) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND}, before[ENDING];
  kvs_status status = make_folder(err);
  if (status != KVS_OK) return status;
  for (size_t i = 0; i < ENDING; i++) {
    sigaction(ending[i], NULL, &before[i]);
    if (before[i].sa_handler != SIG_IGN) sigaction(ending[i], &action, NULL);
  }
  status = write_demo(s, err);
  show->path = demo_files[0];
  show->model = s->model; /* the session's */
  if (status == KVS_OK) status = live_open(show->path, s->model, s->tokenizer, &show->live, err);
  if (status == KVS_OK) status = show_trace(show, signal_number, err);
  remove_demo();
  for (size_t i = 0; i < ENDING; i++) sigaction(ending[i], &before[i], NULL);
  return status;
}

int view_demo(void) {
  struct session session = {0};
  int signal_number = 0;
  kvs_error err;
  const struct prompt_source prompt = {.text = "position>"};
  const struct start start = {-1, -1, -1, -1};
  struct show show = {.app = {.name = "a temporary trace", .start = &start, .depth = -1}};
  int code = session_open(&session, &command_view, "reverse", &prompt);
  if (code < 0) {
    kvs_status status = show_demo(&session, &show, &signal_number, &err);
    if (signal_number) raise(signal_number);
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
