/* state_command.c: a command line as typed after ':'. */
#include "tui/state_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool state_read_number(struct state *s, const char *what, const char *text, int low, int high, int *number) {
  char *end;
  long value = strtol(text, &end, 10);
  if (end == text || *end) {
    state_say(s, true, "%s: \"%.60s\" is no number", what, text);
    return false;
  }
  if (value < low || value > high) {
    if (high < low)
      state_say(s, true, "%s %ld: there is none in this trace", what, value);
    else
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
    if (!state_read_number(s, name, part, 0, count < 3 ? ends[count] : LINE_SIZE * LINE_SIZE, &numbers[count]))
      return false;
    count++;
  }
  state_go_to_step(s, limits, numbers[0]);
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
    if (state_read_number(s, word, rest, 0, limits->steps - 1, &number)) state_go_to_step(s, limits, number);
  } else if (strcmp(word, "layer") == 0) {
    state_read_number(s, word, rest, 0, limits->layers - 1, &s->layer);
  } else if (strcmp(word, "head") == 0) {
    state_read_number(s, word, rest, 0, limits->heads - 1, &s->head);
  } else if (strcmp(word, "row") == 0) {
    state_read_number(s, word, rest, 0, limits->rows - 1, &s->row);
  } else if (strcmp(word, "run") == 0) {
    if (state_read_number(s, word, rest, 1, limits->runs, &number)) state_go_to_run(s, limits, number);
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
  } else if (state_live_command(s, limits, word, rest)) {
    return;
  } else if (strcmp(word, "q") == 0 || strcmp(word, "quit") == 0) {
    s->quit = true;
  } else if (strcmp(word, "help") == 0) {
    s->mode = INPUT_HELP;
  } else if (strcmp(word, "sql") == 0 && *rest) {
    state_request_sql(s, rest);
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
    state_say(s, true,
              "no command \"%.60s\"; there are step, layer, head, row, run, sql, prompt, fault, decode, save-screen, "
              "help, quit",
              word);
  }
}
