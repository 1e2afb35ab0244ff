/* state_live.c: what the keys say to a live session: the next token, another prompt, a fault, enough. Carried out in live_serve.c. */
#include "tui/state_parts.h"

#include <stdio.h>
#include <string.h>

/* Whether there is a model at hand that has nothing to do; if not, the reason is said. e and f open what they open all the same, since
 * what is typed after them must not be taken for other keys; Enter is what may be refused. */
static bool ready(struct state *s, const struct limits *limits) {
  if (!limits->live)
    state_say(s, true, "%s", limits->no_live ? limits->no_live : "no model at hand to decode with");
  else if (limits->working)
    state_say(s, false, "still decoding; ^C stops it");
  return limits->live && !limits->working;
}

void state_decode(struct state *s, const struct limits *limits, int tokens, bool moments) {
  if (!limits->live) {
    state_say(s, false, "this is the trace's last step%s%s", limits->no_live ? "; " : "",
              limits->no_live ? limits->no_live : "");
    return;
  }
  if (!ready(s, limits)) return;
  s->request = REQUEST_DECODE;
  s->request_number = tokens;
  s->request_direction = moments;
}

void state_live_action(struct state *s, const struct limits *limits, enum action action) {
  if (action == ACTION_CANCEL && limits->working) {
    s->request = REQUEST_STOP;
  } else if (action == ACTION_EDIT_PROMPT) {
    if (!limits->live) ready(s, limits);
    s->request = REQUEST_EDIT_PROMPT;
  } else if (action == ACTION_CHOOSE_FAULT) {
    if (!limits->live) ready(s, limits);
    s->mode = INPUT_FAULT;
  }
}

void state_accept_prompt(struct state *s, const struct limits *limits) {
  if (!limits->live) {
    ready(s, limits);
    return;
  }
  s->request = REQUEST_PROMPT;
  snprintf(s->request_text, sizeof s->request_text, "%s", s->line);
}

/* ---- the list of faults --------------------------------------------------------------------------------------------- */

static int faults(void) {
  int count = 0;
  while (kvs_fault_at(count)) count++;
  return count;
}

static void request_fault(struct state *s, int fault) {
  s->request = REQUEST_FAULT;
  s->request_number = fault;
}

void state_fault_action(struct state *s, const struct limits *limits, enum action action) {
  switch (action) {
  case ACTION_ROW_DOWN:
    s->fault++;
    break;
  case ACTION_ROW_UP:
    s->fault--;
    break;
  case ACTION_NEXT_STEP:
    s->fault += limits->fault_stride;
    break;
  case ACTION_PREVIOUS_STEP:
    if (s->fault >= limits->fault_stride) s->fault -= limits->fault_stride;
    break;
  case ACTION_STEPS_FORWARD:
    s->fault += 10;
    break;
  case ACTION_STEPS_BACK:
    s->fault -= 10;
    break;
  case ACTION_FIRST_STEP:
    s->fault = 0;
    break;
  case ACTION_LAST_STEP:
    s->fault = faults();
    break;
  case ACTION_ACCEPT:
    s->mode = INPUT_KEYS;
    if (limits->live)
      request_fault(s, s->fault);
    else
      ready(s, limits);
    break;
  case ACTION_CANCEL:
  case ACTION_CHOOSE_FAULT:
  case ACTION_QUIT:
    s->mode = INPUT_KEYS;
    break;
  default:
    break;
  }
  s->fault = state_between(s->fault, 0, faults());
}

/* ---- commands ------------------------------------------------------------------------------------------------------- */

static void fault_command(struct state *s, const char *name) {
  const kvs_fault *fault = kvs_fault_find(name);
  if (!fault && strcmp(name, "none") != 0) {
    state_say(s, true, "there is no fault \"%.60s\"; f lists them", name);
    return;
  }
  int number = 0;
  while (fault && kvs_fault_at(number++) != fault) continue;
  s->fault = number;
  request_fault(s, number);
}

bool state_live_command(struct state *s, const struct limits *limits, const char *word, const char *rest) {
  enum { MOST = 1000000 };
  int tokens;
  bool prompt = strcmp(word, "prompt") == 0, fault = strcmp(word, "fault") == 0, decode = strcmp(word, "decode") == 0;
  if (!prompt && !fault && !decode) return false;
  if (!ready(s, limits)) {
    s->message_is_error = true;
  } else if (prompt) {
    s->request = REQUEST_PROMPT;
    snprintf(s->request_text, sizeof s->request_text, "%s", rest);
  } else if (fault) {
    fault_command(s, rest);
  } else if (state_read_number(s, word, rest, 1, MOST, &tokens)) {
    state_decode(s, limits, tokens, false);
  }
  return true;
}
