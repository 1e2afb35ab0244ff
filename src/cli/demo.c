/* demo.c: `kvstep` alone: the screen on a trace that is made for the occasion. */
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
#include "cli/view.h"

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
