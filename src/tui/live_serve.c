/* live_serve.c: requests to a live session, and its answers. */
#include "tui/live_serve.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plural.h"
#include "study/live/live.h"
#include "study/look/look.h"
#include "tui/drive.h"
#include "tui/prompt_text.h"
#include "tui/state_parts.h"

/* ---- asking ---------------------------------------------------------------------------------------------------------- */

static bool ask(struct drive *d, const struct live_order *order, enum live_wish wish) {
  kvs_error err;
  if (live_ask(d->live, look_db(d->look), order, &err) != KVS_OK) {
    state_say(&d->state, true, "%s", err.message);
    d->state.playing = false;
    return false;
  }
  d->state.following = false;
  d->awaited = (struct awaited){.wish = wish,
                                .going = true,
                                .from_run = d->state.run,
                                .from_step = d->state.step,
                                .step = INT_MAX,
                                .moment = KVS_LOGITS};
  return true;
}

static void decode(struct drive *d) {
  struct state *s = &d->state;
  const struct live_order order = {.kind = LIVE_GO_ON, .run = s->run, .tokens = s->request_number};
  if (!ask(d, &order, AWAIT_TOKENS)) return;
  d->awaited.step = d->limits.steps;
  if (s->request_direction) d->awaited.moment = KVS_READ_LENGTH;
  s->following = order.tokens > 1; /* each as it comes */
  d->awaited.going = !s->following;
}

static void edit_prompt(struct drive *d) {
  struct state *s = &d->state;
  char *prompt;
  size_t length;
  kvs_error err;
  state_begin_line(s, INPUT_PROMPT); /* whatever comes: what is typed now is text */
  if (live_prompt(look_db(d->look), s->run, &prompt, &length, &err) != KVS_OK) {
    state_say(s, true, "%s", err.message);
    return;
  }
  if (prompt_show(prompt ? prompt : "", length, s->line, sizeof s->line))
    s->cursor = (int)strlen(s->line);
  else
    state_say(s, true,
              "%zu bytes, too many to edit here: type another; `kvstep run -f FILE -o TRACE --append` takes any length",
              length);
  free(prompt);
}

static void decode_prompt(struct drive *d) {
  struct state *s = &d->state;
  char bytes[LINE_SIZE], line[LINE_SIZE];
  size_t length;
  int wrong = prompt_read(s->request_text, bytes, &length);
  snprintf(line, sizeof line, "%s", s->request_text);
  if (wrong >= 0) {
    state_say(s, true, "\"%.4s\" is no escape; there are \\n, \\t, \\r, \\\\ and \\xHH", line + wrong);
  } else {
    const struct live_order order = {
        .kind = LIVE_PROMPT, .run = s->run, .tokens = 1, .prompt = bytes, .prompt_length = length};
    if (ask(d, &order, AWAIT_PROMPT)) return;
  }
  s->mode = INPUT_PROMPT; /* to be mended */
  snprintf(s->line, sizeof s->line, "%s", line);
  s->cursor = (int)strlen(s->line);
}

static bool is_correct(struct drive *d, int run) {
  const struct look_run *r = run > 0 ? look_run(d->look, run) : NULL;
  return r && strcmp(r->fault, "none") == 0;
}

/* The run beside which the new one is set: a correct one if it can be. */
static int beside(struct drive *d) {
  const struct state *s = &d->state;
  return !is_correct(d, s->run) && is_correct(d, s->other_run) ? s->other_run : s->run;
}

static void decode_again(struct drive *d) {
  struct state *s = &d->state;
  const kvs_fault *fault = kvs_fault_at(s->request_number - 1);
  const struct live_order order = {.kind = LIVE_AGAIN, .run = s->run, .fault = fault};
  const struct look_step *first = look_step(d->look, s->run, 0);
  int generated = first ? first->prompt_steps : 0, other = beside(d);
  if (!ask(d, &order, AWAIT_AGAIN)) return;
  d->awaited.step = s->step > generated ? s->step : generated; /* before it, nothing is different */
  d->awaited.moment = s->moment;
  d->awaited.other = other;
  d->awaited.fault = fault;
  if (fault && fault->fills_context)
    d->awaited.step = INT_MAX, d->awaited.moment = KVS_LOGITS; /* it shows at the end */
}

void live_serve(struct drive *d, enum request request) {
  if (request == REQUEST_EDIT_PROMPT) edit_prompt(d); /* it can be read without a model too */
  if (!d->live) return;
  if (request == REQUEST_DECODE) decode(d);
  if (request == REQUEST_PROMPT) decode_prompt(d);
  if (request == REQUEST_FAULT) decode_again(d);
  if (request == REQUEST_STOP) {
    live_stop(d->live);
    state_say(&d->state, false, "stopping");
  }
}

/* ---- answers --------------------------------------------------------------------------------------------------------- */

bool live_awaits(const struct drive *d) { return d->awaited.wish != AWAIT_NOTHING; }

static bool moved(const struct drive *d) {
  return d->state.run != d->awaited.from_run || d->state.step != d->awaited.from_step;
}

/* To the step that was waited for, if it is there; when nothing more comes, to the last there is. */
static void arrive(struct drive *d, const struct live_status *status) {
  struct awaited *a = &d->awaited;
  struct state *s = &d->state;
  const struct look_run *run = status->run ? look_run(d->look, status->run) : NULL;
  int before = a->wish == AWAIT_TOKENS ? a->step : 0;
  if (!a->going || !run || run->steps <= before) return;
  if (run->steps <= a->step && status->working) return;
  a->going = false;
  if (moved(d)) return;
  s->run = status->run;
  s->step = a->step < run->steps ? a->step : run->steps - 1;
  s->moment = a->moment;
  s->row = -1;
  if (a->other) s->other_run = a->other;
}

static void say_done(struct drive *d, const struct live_status *status, bool at_end) {
  struct state *s = &d->state;
  const struct awaited *a = &d->awaited;
  int last = status->steps - 1;
  const char *end = at_end ? "; the model ends the text here" : "";
  if (a->wish == AWAIT_AGAIN && a->fault && a->fault->fills_context)
    state_say(s, false,
              "run %d: the prompt of run %d again and again until the context is nearly full, since %s shows "
              "only at its end%s",
              status->run, a->from_run, a->fault->name, end);
  else if (a->wish == AWAIT_AGAIN)
    state_say(s, false, "run %d: the tokens of run %d %s%s; 8 sets it beside run %d, d finds where they first differ",
              status->run, a->from_run, a->fault ? "under " : "without a fault", a->fault ? a->fault->name : "",
              a->other);
  else if (a->wish == AWAIT_PROMPT)
    state_say(s, false, "run %d begins with this prompt; step %d is its first generated token%s", status->run, last,
              end);
  else if (s->run != status->run || s->step > last || (s->step < last && !s->following))
    state_say(s, false, "step %d of run %d is decoded and logged%s", last, status->run, end);
  else
    state_say(s, false, "step %d was decoded just now, and is logged%s", last, end);
}

static void conclude(struct drive *d, const struct live_status *status) {
  struct state *s = &d->state;
  if (status->end != LIVE_DONE) s->playing = false;
  switch (status->end) {
  case LIVE_NOT_YET:
    break;
  case LIVE_DONE:
  case LIVE_END_TOKEN:
    say_done(d, status, status->end == LIVE_END_TOKEN);
    break;
  case LIVE_CONTEXT:
    state_say(s, false, "%s", status->text);
    break;
  case LIVE_STOPPED:
    if (status->run && status->steps > 0)
      state_say(s, false, "stopped: steps 0 to %d of run %d are in the trace", status->steps - 1, status->run);
    else
      state_say(s, false, "stopped before the first step");
    break;
  case LIVE_FAILED:
    state_say(s, true, "%s", status->text);
    break;
  }
  d->awaited.wish = AWAIT_NOTHING;
}

bool live_news(struct drive *d) {
  struct live_status status;
  if (!d->live || !live_awaits(d)) return false;
  live_woken(d->live);
  live_status(d->live, &status); /* first: what it tells is in the trace by now */
  bool changed = drive_refresh(d);
  if (d->state.mode != INPUT_KEYS && d->state.mode != INPUT_HELP)
    return changed; /* nothing moves under what is typed */
  arrive(d, &status);
  drive_settle(d);
  if (!status.working) {
    conclude(d, &status);
    drive_settle(d);
  }
  return true;
}

void live_busy(struct drive *d) {
  struct live_status status;
  struct state *s = &d->state;
  s->busy[0] = '\0';
  if (!d->live || !live_awaits(d)) return;
  live_status(d->live, &status);
  if (!status.working) return;
  if (status.catching_up)
    snprintf(s->busy, sizeof s->busy, "feeding what run %d was fed, to have its cache again: %d token%s; ^C stops it",
             status.run, status.fed, plural(status.fed));
  else if (status.run)
    snprintf(s->busy, sizeof s->busy, "decoding step %d of run %d; ^C stops it", status.steps, status.run);
  else
    snprintf(s->busy, sizeof s->busy, "decoding; ^C stops it");
}
