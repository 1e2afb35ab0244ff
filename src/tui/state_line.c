/* state_line.c: the line that is being typed after /, : or ; or as an answer: its characters, its keys, and what Enter makes of it. */
#include "tui/state_parts.h"

#include <stdio.h>
#include <string.h>

void state_request_search(struct state *s, int direction) {
  if (!*s->search) {
    state_say(s, true, "nothing to search for yet: / and a text");
    return;
  }
  s->request = REQUEST_SEARCH;
  s->request_direction = direction;
}

void state_begin_line(struct state *s, enum input_mode mode) {
  s->mode = mode;
  s->line[0] = '\0';
  s->cursor = 0;
}

void state_request_sql(struct state *s, const char *query) {
  s->view = VIEW_SQL;
  s->request = REQUEST_SQL;
  snprintf(s->request_text, sizeof s->request_text, "%s", query);
}

static void accept_line(struct state *s, const struct limits *limits) {
  enum input_mode mode = s->mode;
  s->mode = INPUT_KEYS;
  if (mode == INPUT_SQL) {
    state_request_sql(s, s->line);
    return;
  }
  if (mode == INPUT_COMMAND) {
    state_command(s, limits, s->line);
    return;
  }
  if (mode == INPUT_PROMPT) {
    state_accept_prompt(s, limits);
    return;
  }
  if (*s->line) snprintf(s->search, sizeof s->search, "%s", s->line);
  state_request_search(s, 1);
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

void state_edit_action(struct state *s, const struct limits *limits, enum action action) {
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

static void predict_hint(struct state *s) { state_say(s, true, "only digits, Backspace, Enter and Escape here"); }

#define PREDICT_DIGITS 9 /* any number of them fits an int */

void state_predict_action(struct state *s, enum action action) {
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

bool state_is_typing(const struct state *s) {
  return s->mode == INPUT_SEARCH || s->mode == INPUT_COMMAND || s->mode == INPUT_SQL || s->mode == INPUT_PREDICT ||
         s->mode == INPUT_PROMPT;
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
  if ((unsigned char)character[0] < 0x20) return;
  if (used + length >= sizeof s->line) {
    state_say(s, true, "the line is full: it takes %zu bytes, and what came after is not in it", sizeof s->line - 1);
    return;
  }
  memmove(s->line + s->cursor + length, s->line + s->cursor, used - (size_t)s->cursor + 1);
  memcpy(s->line + s->cursor, character, length);
  s->cursor += (int)length;
}
