/* app.h: the screen on a terminal, from opening to `q`. */
#ifndef KVS_TUI_APP_H
#define KVS_TUI_APP_H

#include <stdbool.h>

#include "kvstep/error.h"
#include "kvstep/model.h"

struct live;
struct look;
struct start;

struct app_options {
  const char *name; /* of the trace, as shown */
  const struct start *start;
  const kvs_model *model; /* that decoded the trace, as in drive_set_model; NULL: none is at hand */
  struct live *live;      /* as in drive_set_live */
  const char *no_live;
  bool ascii; /* nothing but ASCII, whatever the locale */
  int depth;  /* an enum depth; −1: what the terminal has, and 256 colours in pictures */
};

/* Returns when the user leaves, or the terminal does; or with a live session when a signal wants the program to end: *signal, else 0,
 * is to be raised once everything is closed. The look stays the caller's.
 * Errors: KVS_ERR_USAGE (no terminal for it), KVS_ERR_INPUT (no such run, step, …), KVS_ERR_IO (the terminal has gone). */
kvs_status app_run(struct look *look, const struct app_options *options, int *signal, kvs_error *err);

#endif
