/* decode.c: prefill and decode steps, the text as it comes, signals, and how a run ends. */
#include "cli/decode.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/plural.h"
#include "cli/out.h"

/* ---- signals --------------------------------------------------------------------------------------------------- */

static kvs_engine *volatile cancel_engine;
static volatile sig_atomic_t caught;

/* The first signal asks the engine to stop; SA_RESETHAND lets the second one kill. */
static void on_signal(int number) {
  caught = number;
  if (cancel_engine) kvs_engine_cancel(cancel_engine);
}

/* SIGPIPE is held back so that the trace can be closed first; if it was ignored before, EPIPE is an error as any other. */
static bool pipe_kills;

int decode_failed(const kvs_error *err) {
  int code = report(err);
  return caught ? 128 + caught : code;
}

void decode_watch(kvs_trace *trace) { kvs_trace_interrupted_by(trace, &caught); }

void decode_catch_signals(kvs_engine *engine) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND}, old;
  cancel_engine = engine;
  static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    sigaction(numbers[i], NULL, &old);
    if (old.sa_handler != SIG_IGN) sigaction(numbers[i], &action, NULL); /* nohup stays in force */
  }
  sigaction(SIGPIPE, NULL, &old);
  pipe_kills = old.sa_handler == SIG_DFL;
  signal(SIGPIPE, SIG_IGN);
}

/* ---- text ------------------------------------------------------------------------------------------------------ */

static kvs_status write_text(struct decode *d, const char *text, size_t length, kvs_error *err) {
  if (length == 0) return KVS_OK;
  d->newline = text[length - 1] == '\n';
  errno = 0;
  /* On a terminal a token's control characters must not act; in a file or a pipe the text is what was generated. */
  if (isatty(STDOUT_FILENO))
    put_safe(stdout, text, length);
  else
    fwrite(text, 1, length, stdout);
  fflush(stdout); /* into a pipe as well: whoever reads it sees each token when it comes */
  if (!ferror(stdout)) return KVS_OK;
  d->write_error = errno ? errno : EIO;
  if (caught && d->write_error == EINTR)
    return kvs_fail(err, KVS_ERR_CANCELLED, "interrupted"); /* nobody was reading */
  return kvs_fail(err, KVS_ERR_IO, "cannot write to standard output: %s", strerror(d->write_error));
}

static kvs_status print_bytes(struct decode *d, const unsigned char *bytes, size_t length, kvs_error *err) {
  char *text = malloc(3 * (length + 3) + 1);
  if (!text) return kvs_fail_memory(err, "printing the text");
  size_t ready = kvs_utf8_push(&d->stream, bytes, length, text);
  kvs_status status = write_text(d, text, ready, err);
  free(text);
  return status;
}

static kvs_status print_token(struct decode *d, int token, kvs_error *err) {
  size_t length;
  const unsigned char *bytes = kvs_tokenizer_bytes(d->session->tokenizer, token, &length);
  return bytes ? print_bytes(d, bytes, length, err) : KVS_OK;
}

/* What the stream holds back, and a newline if the text has none at its end. */
static kvs_status print_end(struct decode *d, kvs_error *err) {
  char text[4];
  size_t ready = kvs_utf8_flush(&d->stream, text);
  kvs_status status = write_text(d, text, ready, err);
  if (status == KVS_OK && !d->newline) status = write_text(d, "\n", 1, err);
  if (status != KVS_OK || fflush(stdout) == 0) return status;
  d->write_error = errno;
  return kvs_fail(err, KVS_ERR_IO, "cannot write to standard output: %s", strerror(d->write_error));
}

/* ---- steps ----------------------------------------------------------------------------------------------------- */

static kvs_status generate(struct decode *d, kvs_error *err) {
  const kvs_config *config = kvs_model_config(d->session->model);
  while (d->generated < d->generate && !caught) {
    const float *logits = kvs_engine_logits(d->engine);
    int token = kvs_sampler_next(d->sampler, logits);
    if (isnan(logits[token]) && !d->warned) {
      d->warned = true; /* NaN is chosen only where there is no number at all */
      fprintf(stderr,
              "kvstep: note: after step %d no logit is a number: the weights hold NaN or infinities; token 0 is "
              "taken\n",
              d->fed - 1);
    }
    double start = kvs_now();
    kvs_status status = kvs_engine_decode(d->engine, token, KVS_SAMPLED, err);
    if (status != KVS_OK) return status;
    d->seconds += kvs_now() - start;
    d->generated++;
    d->fed++;
    if (token == config->eos_token) return KVS_OK; /* the mark itself is no text */
    status = print_token(d, token, err);
    if (status != KVS_OK) return status;
  }
  return KVS_OK;
}

/* A fault can want a position past wpe's last row within the prompt, and the engine then feeds nothing of the batch:
 * everything up to there is fed, so that the trace holds it, and the status still says where the context ended. */
static kvs_status feed_prompt(struct decode *d, int count, kvs_error *err) {
  const int *tokens = d->session->tokens;
  kvs_status status = kvs_engine_prefill(d->engine, tokens, count, KVS_PROMPT, err), part = status;
  kvs_error part_error;
  while (part == KVS_ERR_CONTEXT && --count > 0)
    part = kvs_engine_prefill(d->engine, tokens, count, KVS_PROMPT, &part_error);
  if (part == KVS_OK) d->fed = count;
  if (part == KVS_OK || part == KVS_ERR_CONTEXT) return status;
  if (status == KVS_ERR_CONTEXT && part == KVS_ERR_USAGE && err) { /* the fault has fed it once, and cannot again */
    kvs_error first = *err;
    return kvs_fail(err, KVS_ERR_USAGE, "%s; this fault feeds the prompt more than once", first.message);
  }
  if (status == KVS_ERR_CONTEXT && err) *err = part_error;
  return part;
}

static kvs_status decode_steps(struct decode *d, kvs_error *err) {
  const struct session *s = d->session;
  if (caught) return kvs_fail(err, KVS_ERR_CANCELLED, "interrupted");
  kvs_status status = print_bytes(d, (const unsigned char *)s->prompt, s->prompt_length, err);
  if (status != KVS_OK) return status;
  int count = (int)s->token_count;
  bool telling = isatty(STDERR_FILENO) && !isatty(STDOUT_FILENO) && count > 256;
  if (telling) fprintf(stderr, "reading %d tokens of prompt …", count);
  status = feed_prompt(d, count, err);
  if (telling) fputs("\r\033[K", stderr);
  return status == KVS_OK ? generate(d, err) : status;
}

/* Why there are fewer tokens than asked for; the engine's own words say which position was wanted. */
static void note_context(const struct decode *d, const kvs_error *err) {
  const char *message = err->message;
  if (d->generate && d->generated == 0 && d->fed == kvs_model_config(d->session->model)->n_ctx)
    fprintf(stderr, "kvstep: note: the prompt fills the whole context: no token can be generated after it (%s)\n",
            message);
  else
    fprintf(stderr, "kvstep: note: %s; %d of %d token%s generated\n", message, d->generated, d->generate,
            d->generate == 1 ? " was" : "s were");
}

/* How many steps were made of a run that a signal has stopped; with a trace, how many are in it: a fault may feed more or less. */
static int interrupted(const struct decode *d) {
  int steps = d->trace ? kvs_trace_leave_run(d->trace) : d->fed;
  if (steps == 0)
    fprintf(stderr, "kvstep: interrupted before the first step%s\n", d->trace ? "; nothing of the run is kept" : "");
  else
    fprintf(stderr, "kvstep: interrupted after %d step%s%s\n", steps, plural(steps),
            !d->trace    ? ""
            : steps == 1 ? "; the trace holds it, and says that the run was not finished"
                         : "; the trace holds them, and says that the run was not finished");
  return 128 + caught;
}

/* What the loop's status means for the run, said on stderr. */
static int conclude(struct decode *d, kvs_status status, const kvs_error *err) {
  if (status == KVS_ERR_CANCELLED || (status == KVS_OK && caught)) return interrupted(d);
  d->ended = status == KVS_OK || status == KVS_ERR_CONTEXT;
  if (status == KVS_ERR_CONTEXT) note_context(d, err);
  if (d->ended) return EXIT_OK;
  return d->stopped_quietly ? EXIT_BAD : decode_failed(err);
}

/* All steps are in the trace, or the error says which are. */
static kvs_status settle(struct decode *d, kvs_status status, kvs_error *err) {
  kvs_error settle_err;
  bool whole = status == KVS_OK || status == KVS_ERR_CONTEXT || status == KVS_ERR_CANCELLED;
  if (!d->trace || !whole || kvs_trace_settle(d->trace, &settle_err) == KVS_OK) return status;
  *err = settle_err;
  return err->status;
}

int decode_run(struct decode *d) {
  kvs_error err, end_err;
  kvs_status status = settle(d, decode_steps(d, &err), &err), printed = KVS_OK;
  if (!d->write_error) printed = print_end(d, &end_err);
  d->stopped_quietly = d->write_error == EPIPE && pipe_kills;
  int code = conclude(d, status, &err);
  if (printed != KVS_OK && printed != KVS_ERR_CANCELLED && !d->stopped_quietly) code = report(&end_err);
  if (d->trace && d->ended && kvs_trace_end_run(d->trace, &end_err) != KVS_OK) code = decode_failed(&end_err);
  if (d->trace) kvs_trace_leave_run(d->trace); /* where it did not end */
  return code;
}

int decode_end(const struct decode *d, int code) {
  cancel_engine = NULL;
  if (d->stopped_quietly) {
    signal(SIGPIPE, SIG_DFL);
    raise(SIGPIPE);
  }
  if (code != EXIT_OK || !d->ended || !(isatty(STDERR_FILENO) || d->path)) return code;
  int prompt = d->fed - d->generated;
  fprintf(stderr, "kvstep: %d prompt token%s + %d generated", prompt, plural(prompt), d->generated);
  if (d->generated && d->seconds > 0) fprintf(stderr, ", %.1f tokens/s", d->generated / d->seconds);
  if (d->path) {
    fprintf(stderr, "; run %d in ", d->run);
    put_shown(stderr, style_of_stdout(false), d->path);
  }
  fputc('\n', stderr);
  return code;
}
