/* live_serve.h: between the screen and a live session: carries out what the keys ask of it, and goes where its steps appear. */
#ifndef KVS_TUI_LIVE_SERVE_H
#define KVS_TUI_LIVE_SERVE_H

#include <stdbool.h>

#include "tui/state.h"

struct drive;

/* What was ordered, and where to go when it is there. */
struct awaited {
  enum live_wish { AWAIT_NOTHING, AWAIT_TOKENS, AWAIT_PROMPT, AWAIT_AGAIN } wish; /* until its end has been told */
  bool going;              /* to the step that comes, unless somebody goes elsewhere meanwhile */
  int from_run, from_step; /* where the keys were */
  int step;                /* wanted; the last one there is if it does not come */
  kvs_phase moment;
  int other;              /* AWAIT_AGAIN: the run to be set beside */
  const kvs_fault *fault; /* AWAIT_AGAIN; NULL: none */
};

/* Does REQUEST_DECODE, _EDIT_PROMPT, _PROMPT, _FAULT and _STOP; nothing for others. */
void live_serve(struct drive *drive, enum request request);

/* After the session's descriptor woke somebody, and after a key: takes over what is new in the trace, goes there, tells how it
 * ended. Returns whether anything is to be drawn anew. */
bool live_news(struct drive *drive);

/* Whether a step that was ordered is still to come. */
bool live_awaits(const struct drive *drive);

/* What is being decoded now, into state.busy. */
void live_busy(struct drive *drive);

#endif
