/* state.c: from one state and an action to the next state. Nothing here reads a trace or draws. What is typed: state_line.c;
 * commands: state_command.c; step, run, layer, head, row, view: state_dials.c. */
#include "tui/state_parts.h"

#include <stdarg.h>
#include <stdio.h>

int state_between(int value, int low, int high) {
  return value < low || high < low ? low : value > high ? high : value;
}

void state_init(struct state *s, const struct limits *limits) {
  *s = (struct state){.run = 1, .moment = KVS_LOGITS, .row = -1, .pace = 2};
  state_clamp(s, limits);
}

void state_clamp(struct state *s, const struct limits *limits) {
  s->run = state_between(s->run, 1, limits->runs);
  s->step = state_between(s->step, 0, limits->steps - 1);
  s->layer = state_between(s->layer, 0, limits->layers - 1);
  s->head = state_between(s->head, 0, limits->heads - 1);
  if (s->row >= limits->rows) s->row = -1;
  s->sql_row = state_between(s->sql_row, 0, limits->sql_rows - 1);
  s->sql_column = state_between(s->sql_column, 0, limits->sql_columns - 1);
}

void state_say(struct state *s, bool error, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(s->message, sizeof s->message, format, arguments);
  va_end(arguments);
  s->message_is_error = error;
}

/* ---- all actions ---------------------------------------------------------------------------------------------------- */

static void help_action(struct state *s, const struct limits *limits, enum action action) {
  switch (action) {
  case ACTION_ROW_DOWN:
    s->help_top++;
    break;
  case ACTION_ROW_UP:
    s->help_top -= s->help_top > 0;
    break;
  case ACTION_STEPS_FORWARD:
    s->help_top += 10;
    break;
  case ACTION_STEPS_BACK:
    s->help_top = s->help_top > 10 ? s->help_top - 10 : 0;
    break;
  case ACTION_FIRST_STEP:
    s->help_top = 0;
    break;
  case ACTION_LAST_STEP:
    s->help_top = limits->help_top;
    break;
  case ACTION_CANCEL:
  case ACTION_HELP:
  case ACTION_ACCEPT:
  case ACTION_QUIT:
    s->mode = INPUT_KEYS;
    break;
  default:
    break;
  }
  s->help_top = state_between(s->help_top, 0, limits->help_top);
}

/* In the SQL view the keys that move by rows and steps move in the answer. False: the action means what it always does. */
static bool sql_action(struct state *s, const struct limits *limits, enum action action) {
  switch (action) {
  case ACTION_ROW_DOWN:
    s->sql_row++;
    return true;
  case ACTION_ROW_UP:
    s->sql_row--;
    return true;
  case ACTION_STEPS_FORWARD:
    s->sql_row += 10;
    return true;
  case ACTION_STEPS_BACK:
    s->sql_row -= 10;
    return true;
  case ACTION_FIRST_STEP:
    s->sql_row = 0;
    return true;
  case ACTION_LAST_STEP:
    s->sql_row = limits->sql_rows - 1;
    return true;
  case ACTION_NEXT_STEP:
    s->sql_column++;
    return true;
  case ACTION_PREVIOUS_STEP:
    s->sql_column--;
    return true;
  case ACTION_SORT:
    if (limits->sql_rows == 0 || limits->sql_columns == 0) {
      state_say(s, true, "there are no rows to sort");
      return true;
    }
    s->sql_sort = s->sql_sort == s->sql_column + 1 ? -s->sql_sort : s->sql_column + 1;
    s->request = REQUEST_SQL_SORT;
    return true;
  case ACTION_ACCEPT:
    if (limits->sql_rows > 0) s->request = limits->sql_columns > 0 ? REQUEST_SQL_JUMP : REQUEST_SQL_EXAMPLE;
    return true;
  default:
    return false;
  }
}

static void other_action(struct state *s, enum action action) {
  switch (action) {
  case ACTION_SEARCH:
    state_begin_line(s, INPUT_SEARCH);
    break;
  case ACTION_SEARCH_NEXT:
    state_request_search(s, 1);
    break;
  case ACTION_SEARCH_PREVIOUS:
    state_request_search(s, -1);
    break;
  case ACTION_DIFFERENCE:
    if (s->run == 1 && !s->other_run && s->view != VIEW_COMPARE) {
      state_say(s, true, "this is run 1; r goes to another run, d then finds where it differs from run 1");
      break;
    }
    s->request = REQUEST_DIFFERENCE;
    s->request_number = s->other_run ? s->other_run : 1;
    break;
  case ACTION_SQL:
    state_begin_line(s, INPUT_SQL);
    s->sql_recalled = 0;
    break;
  case ACTION_SORT:
    state_say(s, false, "s sorts the answer to a question in SQL: view 9");
    break;
  case ACTION_COMMAND:
    state_begin_line(s, INPUT_COMMAND);
    break;
  case ACTION_HELP:
    s->mode = INPUT_HELP;
    s->help_top = 0;
    break;
  case ACTION_REDRAW:
    s->request = REQUEST_REDRAW;
    break;
  case ACTION_SUSPEND:
    s->request = REQUEST_SUSPEND;
    break;
  case ACTION_CANCEL:
    s->playing = false;
    break;
  case ACTION_PREDICT:
    s->request = REQUEST_ASK;
    break;
  case ACTION_QUIT:
    s->quit = true;
    break;
  default:
    break;
  }
}

void state_update(struct state *s, const struct limits *limits, enum action action) {
  s->message[0] = '\0';
  if (action == ACTION_REDRAW || action == ACTION_SUSPEND) {
    other_action(s, action);
  } else if (s->mode == INPUT_HELP) {
    help_action(s, limits, action);
  } else if (s->mode == INPUT_FAULT) {
    state_fault_action(s, limits, action);
  } else if (s->mode == INPUT_PREDICT) {
    state_predict_action(s, action);
  } else if (s->mode != INPUT_KEYS) {
    state_edit_action(s, limits, action);
  } else if (s->view != VIEW_SQL || !sql_action(s, limits, action)) {
    state_step_action(s, limits, action);
    state_dial_action(s, limits, action);
    other_action(s, action);
    state_live_action(s, limits, action);
  }
  state_clamp(s, limits);
}
