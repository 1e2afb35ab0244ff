/* state.h: everything that decides what is on the screen, and the one pure function that changes it. */
#ifndef KVS_TUI_STATE_H
#define KVS_TUI_STATE_H

#include <stdbool.h>

#include "kvstep/engine.h"
#include "tui/action.h"

struct lens;
struct sql_panel;

enum view_id {
  VIEW_STEP,
  VIEW_CACHE,
  VIEW_MAP,
  VIEW_HEADS,
  VIEW_PRODUCT,
  VIEW_EMBEDDING,
  VIEW_NEXT,
  VIEW_COMPARE,
  VIEW_SQL,
  VIEW_COUNT
};

/* What the keys do now. */
enum input_mode {
  INPUT_KEYS,
  INPUT_SEARCH,
  INPUT_COMMAND,
  INPUT_HELP,
  INPUT_SQL,
  INPUT_PREDICT,
  INPUT_PROMPT,
  INPUT_FAULT
};

/* How far the dials go: from the trace, read before each update, so that update needs no trace. */
struct limits {
  int runs, steps, layers, heads;
  int rows, own;             /* the cache rows that are listed, and which of them row −1 is: this step's own */
  int help_top;              /* the last line of the help that can be the first one shown */
  int fault_stride;          /* how many names of faults ← and → go */
  int sql_rows, sql_columns; /* of the last answer; before the first one, the example questions and 0 */
  bool live, working;        /* a model is at hand to decode on; it is decoding */
  const char *no_live;       /* why not, in words; NULL: none were given */
};

#define LINE_SIZE 1024

struct state {
  /* the dials */
  int run; /* from 1 */
  int step, layer, head;
  bool live;        /* a model is at hand: past the last step tokens can be decoded */
  kvs_phase moment; /* everything up to and including it has happened */
  int other_run;    /* the run set beside this one; 0: not chosen, run 1 or beside run 1 run 2 */
  int row;          /* the cache row that the row cursor is on; −1: this step's own */
  enum view_id view;
  bool whole; /* the cache view shows whole rows, not one head's part */
  bool alone; /* the next token's view shows the logit lens alone */

  bool playing;
  int pace;       /* index into paces[] of state_dials.c: moments per second */
  bool following; /* stays on the last step of a trace that grows */

  enum input_mode mode;
  char line[LINE_SIZE]; /* what is being typed after /, : or ; */
  int cursor;           /* byte offset in line */
  char search[LINE_SIZE];
  int help_top; /* first line of the help that is shown */

  int predicted, predicted_right; /* numbers asked for and answered; those skipped do not count */
  /* the SQL view */
  int sql_row, sql_column;     /* chosen in the answer, or among the examples */
  int sql_sort;                /* column + 1 that it is sorted by, negative: the other way; 0: as it came */
  int sql_recalled;            /* which earlier question is in the line; 0: none, 1: the newest */
  const struct sql_panel *sql; /* the answer, for the view to draw; update does not look into it. NULL: none */

  struct lens *lens; /* reckons the logit lens for the view of the next token; NULL: no model is at hand */

  int fault; /* chosen in the list: 0 none, then those of kvs_fault_at */

  char busy[128]; /* what is being decoded, for the foot; update does not look into it */
  char message[LINE_SIZE];
  bool message_is_error;
  bool quit;

  /* What the caller must do, since it needs the trace or the world outside; reset by the caller. */
  enum request {
    REQUEST_NONE,
    REQUEST_SEARCH,       /* from step, direction in request_direction, for search */
    REQUEST_DIFFERENCE,   /* the first step that differs from run request_number */
    REQUEST_ROW,          /* the row cursor to row request_number of the step that was gone to */
    REQUEST_SAVE_SCREEN,  /* to the path in request_text */
    REQUEST_SQL,          /* ask request_text */
    REQUEST_SQL_EXAMPLE,  /* ask the example sql_row */
    REQUEST_SQL_RECALL,   /* request_direction 1: an earlier question into the line, −1: a later one */
    REQUEST_SQL_COMPLETE, /* the word before the cursor */
    REQUEST_SQL_SORT,     /* by sql_sort */
    REQUEST_SQL_JUMP,     /* to where the row sql_row points */
    REQUEST_ASK,          /* the next number, instead of showing it */
    REQUEST_JUDGE,        /* the number in line */
    REQUEST_SKIP,         /* show what was asked for */
    REQUEST_DECODE, /* request_number tokens more; request_direction 1: then to the first one's first moment, 0: whole */
    REQUEST_EDIT_PROMPT, /* this run's prompt into the line */
    REQUEST_PROMPT,      /* a new run of the prompt request_text, with visible escapes */
    REQUEST_FAULT,       /* this run's tokens once more under the fault request_number, as in state.fault */
    REQUEST_STOP,        /* stop decoding */
    REQUEST_SUSPEND,
    REQUEST_REDRAW
  } request;
  int request_direction, request_number;
  char request_text[LINE_SIZE];
};

void state_init(struct state *state, const struct limits *limits);

/* Applies an action. Pure: the same state, limits and action give the same state. */
void state_update(struct state *state, const struct limits *limits, enum action action);

/* Whether characters are typed into the line now. */
bool state_is_typing(const struct state *state);

/* A character typed in INPUT_SEARCH, INPUT_COMMAND, INPUT_SQL, INPUT_PROMPT or (digits only) INPUT_PREDICT, UTF-8, 1 to 4 bytes and NUL. */
void state_type(struct state *state, const char *character);

/* Puts a text in the place of bytes `from` … `to` of the line, the cursor behind it; nothing if it does not fit. */
void state_replace(struct state *state, int from, int to, const char *text);

/* Runs a command line as typed after ':', such as "step 7", "7.2.1" (step, layer, head), "head 2", "sql SELECT 1", "save-screen out.svg", "quit". */
void state_command(struct state *state, const struct limits *limits, const char *line);

/* Puts the dials back within the limits (after the trace grew, or another run was chosen). */
void state_clamp(struct state *state, const struct limits *limits);

void state_say(struct state *state, bool error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Moments per second now. */
double state_pace(const struct state *state);

#endif
