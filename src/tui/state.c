/* state.c: from one state and an action to the next state. Nothing here reads a trace or draws. */
#include "tui/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "study/diverge.h"

static const double paces[] = {0.5, 1, 2, 4, 8, 16, 32};
#define PACES ((int)(sizeof paces / sizeof *paces))

double state_pace(const struct state *state) { return paces[state->pace]; }

static int clamp(int value, int low, int high) { return value < low || high < low ? low : value > high ? high : value; }

void state_init(struct state *s, const struct limits *limits) {
  *s = (struct state){.run = 1, .moment = KVS_LOGITS, .row = -1, .pace = 2};
  state_clamp(s, limits);
}

void state_clamp(struct state *s, const struct limits *limits) {
  s->run = clamp(s->run, 1, limits->runs);
  s->step = clamp(s->step, 0, limits->steps - 1);
  s->layer = clamp(s->layer, 0, limits->layers - 1);
  s->head = clamp(s->head, 0, limits->heads - 1);
  if (s->row >= limits->rows) s->row = -1;
  s->sql_row = clamp(s->sql_row, 0, limits->sql_rows - 1);
  s->sql_column = clamp(s->sql_column, 0, limits->sql_columns - 1);
}

void state_say(struct state *s, bool error, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(s->message, sizeof s->message, format, arguments);
  va_end(arguments);
  s->message_is_error = error;
}

/* ---- dials ------------------------------------------------------------------------------------------------------- */

/* To another step, whole: its last moment. */
static void go_to_step(struct state *s, const struct limits *limits, int step) {
  s->step = clamp(step, 0, limits->steps - 1);
  s->moment = KVS_LOGITS;
  s->row = -1;
  s->following = false;
}

/* One moment on; past the last one, the first of the next step. False at the trace's end. */
static bool next_moment(struct state *s, const struct limits *limits) {
  if (s->moment < KVS_LOGITS) {
    s->moment++;
    return true;
  }
  if (s->step + 1 >= limits->steps) return false;
  s->step++;
  s->moment = KVS_READ_LENGTH;
  s->row = -1;
  return true;
}

static void previous_moment(struct state *s) {
  s->following = false;
  if (s->moment > KVS_READ_LENGTH) {
    s->moment--;
  } else if (s->step > 0) {
    s->step--;
    s->moment = KVS_LOGITS;
    s->row = -1;
  } else {
    state_say(s, false, "this is where the run begins");
  }
}

/* The step's own row is −1, so that the cursor stays on it from step to step. */
static void move_row(struct state *s, const struct limits *limits, int by) {
  int at = clamp((s->row < 0 ? limits->own : s->row) + by, 0, limits->rows - 1);
  s->row = at == limits->own ? -1 : at;
}

static void step_action(struct state *s, const struct limits *limits, enum action action) {
  switch (action) {
  case ACTION_NEXT_MOMENT:
    if (!next_moment(s, limits)) state_say(s, false, "this is the trace's last step");
    break;
  case ACTION_PREVIOUS_MOMENT:
    previous_moment(s);
    break;
  case ACTION_NEXT_STEP:
    if (s->step + 1 >= limits->steps) state_say(s, false, "this is the trace's last step");
    go_to_step(s, limits, s->step + 1);
    break;
  case ACTION_PREVIOUS_STEP:
    go_to_step(s, limits, s->step - 1);
    break;
  case ACTION_FIRST_STEP:
    go_to_step(s, limits, 0);
    break;
  case ACTION_LAST_STEP:
    go_to_step(s, limits, limits->steps - 1);
    s->following = true;
    break;
  case ACTION_STEPS_FORWARD:
    go_to_step(s, limits, s->step + 10);
    break;
  case ACTION_STEPS_BACK:
    go_to_step(s, limits, s->step - 10);
    break;
  case ACTION_PLAY:
    s->playing = !s->playing;
    break;
  case ACTION_FASTER:
    s->pace = clamp(s->pace + 1, 0, PACES - 1);
    break;
  case ACTION_SLOWER:
    s->pace = clamp(s->pace - 1, 0, PACES - 1);
    break;
  default:
    break;
  }
  if (action == ACTION_FASTER || action == ACTION_SLOWER || action == ACTION_PLAY)
    state_say(s, false, s->playing ? "playing, %g moments a second" : "stopped; P plays %g moments a second",
              state_pace(s));
}

/* Another run keeps the step, so that two runs can be looked at in turn. */
static void go_to_run(struct state *s, const struct limits *limits, long long run) {
  if (limits->runs < 2) state_say(s, false, "this trace has one run");
  s->run = limits->runs > 0 ? (int)((run - 1 + limits->runs) % limits->runs) + 1 : 1;
  s->row = -1;
}

static void dial_action(struct state *s, const struct limits *limits, enum action action) {
  switch (action) {
  case ACTION_NEXT_LAYER:
    s->layer = clamp(s->layer + 1, 0, limits->layers - 1);
    break;
  case ACTION_PREVIOUS_LAYER:
    s->layer = clamp(s->layer - 1, 0, limits->layers - 1);
    break;
  case ACTION_NEXT_HEAD:
    s->head = clamp(s->head + 1, 0, limits->heads - 1);
    break;
  case ACTION_PREVIOUS_HEAD:
    s->head = clamp(s->head - 1, 0, limits->heads - 1);
    break;
  case ACTION_NEXT_RUN:
    go_to_run(s, limits, s->run + 1LL);
    break;
  case ACTION_PREVIOUS_RUN:
    go_to_run(s, limits, s->run - 1LL);
    break;
  case ACTION_OTHER_RUN:
    s->other_run = diverge_next_other(s->run, s->other_run, limits->runs);
    if (s->other_run)
      state_say(s, false, "compared with run %d", s->other_run);
    else
      state_say(s, false, "this trace has one run");
    break;
  case ACTION_ROW_DOWN:
    move_row(s, limits, 1);
    break;
  case ACTION_ROW_UP:
    move_row(s, limits, -1);
    break;
  case ACTION_VIEW_NEXT:
    s->view = (enum view_id)((s->view + 1) % VIEW_COUNT);
    break;
  case ACTION_VIEW_PREVIOUS:
    s->view = (enum view_id)((s->view + VIEW_COUNT - 1) % VIEW_COUNT);
    break;
  case ACTION_OTHER_FORM:
    if (s->view == VIEW_CACHE)
      s->whole = !s->whole;
    else if (s->view == VIEW_NEXT)
      s->alone = !s->alone;
    else
      state_say(s, false, "w: in view 2 whole rows, in view 7 the logit lens alone");
    break;
  case ACTION_ACCEPT:
    if (s->view == VIEW_HEADS) s->view = VIEW_STEP;
    break;
  default:
    if (action >= ACTION_VIEW_1 && action <= ACTION_VIEW_9) s->view = (enum view_id)(action - ACTION_VIEW_1);
    break;
  }
}

/* ---- finding, typing ------------------------------------------------------------------------------------------------ */

static void request_search(struct state *s, int direction) {
  if (!*s->search) {
    state_say(s, true, "nothing to search for yet: / and a text");
    return;
  }
  s->request = REQUEST_SEARCH;
  s->request_direction = direction;
}

static void begin_line(struct state *s, enum input_mode mode) {
  s->mode = mode;
  s->line[0] = '\0';
  s->cursor = 0;
}

static void request_sql(struct state *s, const char *query) {
  s->view = VIEW_SQL;
  s->request = REQUEST_SQL;
  snprintf(s->request_text, sizeof s->request_text, "%s", query);
}

static void accept_line(struct state *s, const struct limits *limits) {
  enum input_mode mode = s->mode;
  s->mode = INPUT_KEYS;
  if (mode == INPUT_SQL) {
    request_sql(s, s->line);
    return;
  }
  if (mode == INPUT_COMMAND) {
    state_command(s, limits, s->line);
    return;
  }
  if (*s->line) snprintf(s->search, sizeof s->search, "%s", s->line);
  request_search(s, 1);
}

/* Back to the beginning of the character before `at`. */
static int before(const char *line, int at) {
  do at--;
  while (at > 0 && ((unsigned char)line[at] & 0xC0) == 0x80);
  return at < 0 ? 0 : at;
}

static int after(const char *line, int at) {
  if (!line[at]) return at;
  do at++;
  while (((unsigned char)line[at] & 0xC0) == 0x80);
  return at;
}

void state_replace(struct state *s, int from, int to, const char *text) {
  size_t length = strlen(text), rest = strlen(s->line + to);
  if ((size_t)from + length + rest >= sizeof s->line) return;
  memmove(s->line + (size_t)from + length, s->line + to, rest + 1);
  memcpy(s->line + from, text, length);
  s->cursor = from + (int)length;
}

static void erase(struct state *s, int from, int to) {
  memmove(s->line + from, s->line + to, strlen(s->line + to) + 1);
  s->cursor = from;
}

/* What only a question in SQL has: earlier ones, and words of the schema. */
static void edit_sql(struct state *s, enum action action) {
  if (action == ACTION_VIEW_NEXT) { /* Tab */
    s->request = REQUEST_SQL_COMPLETE;
  } else if (action == ACTION_ROW_UP || action == ACTION_ROW_DOWN) {
    s->request = REQUEST_SQL_RECALL;
    s->request_direction = action == ACTION_ROW_UP ? 1 : -1;
  }
}

/* Keys keep their editing meaning while a line is typed; the caller hands over their usual actions. */
static void edit_action(struct state *s, const struct limits *limits, enum action action) {
  switch (action) {
  case ACTION_ACCEPT:
    accept_line(s, limits);
    break;
  case ACTION_CANCEL:
    s->mode = INPUT_KEYS;
    break;
  case ACTION_PREVIOUS_MOMENT: /* Backspace; on an empty line it leaves, as in vi */
    if (!*s->line)
      s->mode = INPUT_KEYS;
    else if (s->cursor > 0)
      erase(s, before(s->line, s->cursor), s->cursor);
    break;
  case ACTION_PREVIOUS_STEP:
    s->cursor = before(s->line, s->cursor);
    break;
  case ACTION_NEXT_STEP:
    s->cursor = after(s->line, s->cursor);
    break;
  case ACTION_FIRST_STEP:
    s->cursor = 0;
    break;
  case ACTION_LAST_STEP:
    s->cursor = (int)strlen(s->line);
    break;
  default:
    if (s->mode == INPUT_SQL) edit_sql(s, action);
    break;
  }
}

/* A prediction takes a number and nothing else, so that no dial moves under the question. */
static void predict_hint(struct state *s) { state_say(s, true, "only digits, Backspace, Enter and Escape here"); }

#define PREDICT_DIGITS 9 /* any number of them fits an int */

static void predict_action(struct state *s, enum action action) {
  if (action == ACTION_ACCEPT && *s->line)
    s->request = REQUEST_JUDGE;
  else if (action == ACTION_CANCEL)
    s->request = REQUEST_SKIP;
  else if (action == ACTION_PREVIOUS_MOMENT && s->cursor > 0) /* Backspace; the letters are typed, not done */
    erase(s, s->cursor - 1, s->cursor);
  else if (action == ACTION_ACCEPT)
    state_say(s, true, "a number first; Escape skips and shows it");
  else if (action != ACTION_PREVIOUS_MOMENT)
    predict_hint(s);
}

void state_type(struct state *s, const char *character) {
  if (s->mode == INPUT_PREDICT) {
    s->message[0] = '\0';
    if (*character < '0' || *character > '9' || s->cursor >= PREDICT_DIGITS) {
      predict_hint(s);
      return;
    }
  }
  size_t length = strlen(character), used = strlen(s->line);
  s->message[0] = '\0'; /* what was said about the line as it was */
  if (used + length >= sizeof s->line || (unsigned char)character[0] < 0x20) return;
  memmove(s->line + s->cursor + length, s->line + s->cursor, used - (size_t)s->cursor + 1);
  memcpy(s->line + s->cursor, character, length);
  s->cursor += (int)length;
}

/* ---- commands ------------------------------------------------------------------------------------------------------- */

/* A whole number from `low` to `high`, or a message. */
static bool read_number(struct state *s, const char *what, const char *text, int low, int high, int *number) {
  char *end;
  long value = strtol(text, &end, 10);
  if (end == text || *end) {
    state_say(s, true, "%s: \"%.60s\" is no number", what, text);
    return false;
  }
  if (value < low || value > high) {
    state_say(s, true, "%s %ld: there are %d to %d", what, value, low, high);
    return false;
  }
  *number = (int)value;
  return true;
}

/* "7.2.1.5": step, layer, head, row, as many as are given. All or none of them is taken. */
static bool place_command(struct state *s, const struct limits *limits, const char *word) {
  static const char *const names[] = {"step", "layer", "head"};
  const int ends[] = {limits->steps - 1, limits->layers - 1, limits->heads - 1};
  int numbers[4], count = 0;
  char copy[LINE_SIZE], *rest = copy;
  snprintf(copy, sizeof copy, "%s", word);
  for (char *part; (part = strsep(&rest, "."));) {
    if (count == 4) {
      state_say(s, true, "%.60s: at most step.layer.head.row", word);
      return false;
    }
    const char *name = count < 3 ? names[count] : "row";
    if (!read_number(s, name, part, 0, count < 3 ? ends[count] : LINE_SIZE * LINE_SIZE, &numbers[count])) return false;
    count++;
  }
  go_to_step(s, limits, numbers[0]);
  if (count > 1) s->layer = numbers[1];
  if (count > 2) s->head = numbers[2];
  if (count > 3) { /* how many rows that step has is not known here */
    s->request = REQUEST_ROW;
    s->request_number = numbers[3];
  }
  return true;
}

static bool dial_command(struct state *s, const struct limits *limits, const char *word, const char *rest) {
  int number;
  if (strcmp(word, "step") == 0) {
    if (read_number(s, word, rest, 0, limits->steps - 1, &number)) go_to_step(s, limits, number);
  } else if (strcmp(word, "layer") == 0) {
    read_number(s, word, rest, 0, limits->layers - 1, &s->layer);
  } else if (strcmp(word, "head") == 0) {
    read_number(s, word, rest, 0, limits->heads - 1, &s->head);
  } else if (strcmp(word, "row") == 0) {
    read_number(s, word, rest, 0, limits->rows - 1, &s->row);
  } else if (strcmp(word, "run") == 0) {
    if (read_number(s, word, rest, 1, limits->runs, &number)) go_to_run(s, limits, number);
  } else {
    return false;
  }
  return true;
}

void state_command(struct state *s, const struct limits *limits, const char *line) {
  char word[LINE_SIZE];
  size_t length = strcspn(line, " ");
  snprintf(word, sizeof word, "%.*s", (int)length, line);
  const char *rest = line + length + strspn(line + length, " ");
  if (!*word) return;
  if (*word >= '0' && *word <= '9') { /* a bare number is a step, as a line number is in an editor */
    place_command(s, limits, word);
  } else if (dial_command(s, limits, word, rest)) {
    return;
  } else if (strcmp(word, "q") == 0 || strcmp(word, "quit") == 0) {
    s->quit = true;
  } else if (strcmp(word, "help") == 0) {
    s->mode = INPUT_HELP;
  } else if (strcmp(word, "sql") == 0 && *rest) {
    request_sql(s, rest);
  } else if (strcmp(word, "save-screen") == 0) {
    if (!*rest) {
      state_say(s, true, "save-screen needs a file's name: .svg with colours, any other as text");
      return;
    }
    s->request = REQUEST_SAVE_SCREEN;
    snprintf(s->request_text, sizeof s->request_text, "%s", rest);
  } else if (action_named(word) != ACTION_NONE) {
    state_update(s, limits, action_named(word));
  } else {
    state_say(s, true, "no command \"%.60s\"; there are step, layer, head, row, run, sql, save-screen, help, quit",
              word);
  }
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
  s->help_top = clamp(s->help_top, 0, limits->help_top);
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
    begin_line(s, INPUT_SEARCH);
    break;
  case ACTION_SEARCH_NEXT:
    request_search(s, 1);
    break;
  case ACTION_SEARCH_PREVIOUS:
    request_search(s, -1);
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
    begin_line(s, INPUT_SQL);
    s->sql_recalled = 0;
    break;
  case ACTION_SORT:
    state_say(s, false, "s sorts the answer to a question in SQL: view 9");
    break;
  case ACTION_COMMAND:
    begin_line(s, INPUT_COMMAND);
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
  } else if (s->mode == INPUT_PREDICT) {
    predict_action(s, action);
  } else if (s->mode != INPUT_KEYS) {
    edit_action(s, limits, action);
  } else if (s->view != VIEW_SQL || !sql_action(s, limits, action)) {
    step_action(s, limits, action);
    dial_action(s, limits, action);
    other_action(s, action);
  }
  state_clamp(s, limits);
}
