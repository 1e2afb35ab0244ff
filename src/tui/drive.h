/* drive.h: what lies between a key and the screen, with or without a terminal: the limits that the trace sets, the state's
 * requests to it, and the grid that is drawn. */
#ifndef KVS_TUI_DRIVE_H
#define KVS_TUI_DRIVE_H

#include <stdbool.h>

#include "kvstep/error.h"
#include "kvstep/model.h"
#include "tui/cells.h"
#include "tui/live_serve.h"
#include "tui/start.h"
#include "tui/state.h"

struct live;
struct look;
struct sql_panel;

struct drive {
  struct state state;
  struct limits limits;
  struct look *look;     /* not owned */
  struct sql_panel *sql; /* questions in SQL and the last answer; the state points to it for the views */
  struct lens *lens;     /* of the model that was set */
  struct live *live;     /* decodes on; not owned. NULL: none, and no_live may say why */
  const char *no_live;
  struct awaited awaited;  /* of the live session */
  const char *name;        /* of the trace, as shown */
  bool pasting;            /* keys are pasted text */
  char trouble[LINE_SIZE]; /* what was last said of trouble with reading */
  struct cells cells;
  enum depth depth; /* of pictures that are saved */
};

/* Errors: KVS_ERR_INPUT when the trace has no such run, step, layer or head. Free it with drive_free, also after a failure. */
kvs_status drive_init(struct drive *drive, struct look *look, const char *name, const struct start *start,
                      kvs_error *err);
void drive_free(struct drive *drive);

/* Sets the model that decoded the trace, not owned, for the logit lens. Errors: KVS_ERR_MEMORY. */
kvs_status drive_set_model(struct drive *drive, const kvs_model *model, kvs_error *err);
/* Lets the keys decode: `live`, not owned, is on the same trace. NULL: `why` is told to who tries; it may be NULL too. */
void drive_set_live(struct drive *drive, struct live *live, const char *why);

/* A key: in a line that is being typed a character, else what the table of actions says. Pasted text goes into a line, or nowhere. */
void drive_key(struct drive *drive, int key);
void drive_action(struct drive *drive, enum action action);
void drive_command(struct drive *drive, const char *line);

/* Sees whether the trace has grown; a state that follows it goes along. Returns whether anything is to be drawn anew. */
bool drive_refresh(struct drive *drive);

/* Puts the dials into the limits that the trace has now. */
void drive_settle(struct drive *drive);

/* For whoever has no time, as scripts have none: waits until nothing is being decoded, and takes that over. */
void drive_wait(struct drive *drive);

/* One moment on, as Space; stops playing at the trace's end. */
void drive_play(struct drive *drive);

/* Draws into drive->cells at this size. False when out of memory: the grid is then 0 × 0. */
bool drive_draw(struct drive *drive, int rows, int columns);

#endif
