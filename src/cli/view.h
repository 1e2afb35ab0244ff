/* view.h: what `kvstep view` and `kvstep` alone share: a trace shown, with a model to decode on. */
#ifndef KVS_CLI_VIEW_H
#define KVS_CLI_VIEW_H

#include "kvstep/kvstep.h"
#include "study/live/live.h"
#include "tui/app.h"
#include "tui/script.h"
#include "tui/start.h"

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

/* Opens the trace, shows it, and closes all of it: first who reads, then who writes, so that one file is left. *signal_number: to be
 * raised in the end; 0: none. */
kvs_status show_trace(struct show *show, int *signal_number, kvs_error *err);

#endif
