/* decode.h: the loop of `kvstep run`: prefill, then one token at a time, with its text on stdout. */
#ifndef KVS_CLI_DECODE_H
#define KVS_CLI_DECODE_H

#include "cli/model_files.h"
#include "kvstep/kvstep.h"

struct decode {
  const struct session *session;
  kvs_engine *engine;
  kvs_sampler *sampler;
  kvs_trace *trace; /* NULL: nothing is logged */
  const char *path; /* of the trace, to be named */
  int generate, run;

  int generated;        /* tokens generated and fed */
  int fed;              /* steps made */
  double seconds;       /* spent in decode steps */
  bool ended;           /* finished as intended: by N, by the text's end or by the context's */
  bool newline;         /* what was printed last was one */
  bool warned;          /* of logits that are no numbers */
  int write_error;      /* errno of a failed write to stdout, or 0 */
  bool stopped_quietly; /* the reader of stdout has gone */
  kvs_utf8_stream stream;
};

/* From here on the first ^C only asks the run to stop (a second one kills), and SIGPIPE waits for the trace to be closed.
 * Call it before the trace is opened; decode_end before the engine is freed. */
void decode_catch_signals(kvs_engine *engine);

/* Has the trace wait for no lock after the first ^C. */
void decode_watch(kvs_trace *trace);

/* Reports what went wrong; the exit code, which is that of a signal if one came meanwhile. */
int decode_failed(const kvs_error *err);

/* Decodes, prints, ends the run in the trace. Returns the exit code; messages have been given. */
int decode_run(struct decode *d);

/* After the trace is closed: says what was done, and dies of the signal that was held back. Returns the exit code. */
int decode_end(const struct decode *d, int code);

#endif
