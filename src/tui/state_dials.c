/* state_dials.c: what the keys do to the dials: moment, step, run, layer, head, row, and which view shows them. */
#include "study/compare/diverge.h"
#include "tui/state_parts.h"

static const double paces[] = {0.5, 1, 2, 4, 8, 16, 32};
#define PACES ((int)(sizeof paces / sizeof *paces))

double state_pace(const struct state *state) { return paces[state->pace]; }

void state_go_to_step(struct state *s, const struct limits *limits, int step) {
  s->step = state_between(step, 0, limits->steps - 1);
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
  int at = state_between((s->row < 0 ? limits->own : s->row) + by, 0, limits->rows - 1);
  s->row = at == limits->own ? -1 : at;
}

void state_step_action(struct state *s, const struct limits *limits, enum action action) {
  switch (action) {
  case ACTION_NEXT_MOMENT:
    if (!next_moment(s, limits)) state_decode(s, limits, 1, true);
    break;
  case ACTION_PREVIOUS_MOMENT:
    previous_moment(s);
    break;
  case ACTION_NEXT_STEP:
    if (s->step + 1 >= limits->steps) state_decode(s, limits, 1, false);
    state_go_to_step(s, limits, s->step + 1);
    break;
  case ACTION_PREVIOUS_STEP:
    state_go_to_step(s, limits, s->step - 1);
    break;
  case ACTION_FIRST_STEP:
    state_go_to_step(s, limits, 0);
    break;
  case ACTION_LAST_STEP:
    state_go_to_step(s, limits, limits->steps - 1);
    s->following = true;
    break;
  case ACTION_STEPS_FORWARD:
    if (s->step + 1 >= limits->steps) state_decode(s, limits, 10, false);
    state_go_to_step(s, limits, s->step + 10);
    break;
  case ACTION_STEPS_BACK:
    state_go_to_step(s, limits, s->step - 10);
    break;
  case ACTION_PLAY:
    s->playing = !s->playing;
    break;
  case ACTION_FASTER:
    s->pace = state_between(s->pace + 1, 0, PACES - 1);
    break;
  case ACTION_SLOWER:
    s->pace = state_between(s->pace - 1, 0, PACES - 1);
    break;
  default:
    break;
  }
  if (action == ACTION_FASTER || action == ACTION_SLOWER || action == ACTION_PLAY)
    state_say(s, false, s->playing ? "playing, %g moments a second" : "stopped; P plays %g moments a second",
              state_pace(s));
}

void state_go_to_run(struct state *s, const struct limits *limits, long long run) {
  if (limits->runs < 2) state_say(s, false, "this trace has one run");
  s->run = limits->runs > 0 ? (int)((run - 1 + limits->runs) % limits->runs) + 1 : 1;
  s->row = -1;
}

void state_dial_action(struct state *s, const struct limits *limits, enum action action) {
  switch (action) {
  case ACTION_NEXT_LAYER:
    s->layer = state_between(s->layer + 1, 0, limits->layers - 1);
    break;
  case ACTION_PREVIOUS_LAYER:
    s->layer = state_between(s->layer - 1, 0, limits->layers - 1);
    break;
  case ACTION_NEXT_HEAD:
    s->head = state_between(s->head + 1, 0, limits->heads - 1);
    break;
  case ACTION_PREVIOUS_HEAD:
    s->head = state_between(s->head - 1, 0, limits->heads - 1);
    break;
  case ACTION_NEXT_RUN:
    state_go_to_run(s, limits, s->run + 1LL);
    break;
  case ACTION_PREVIOUS_RUN:
    state_go_to_run(s, limits, s->run - 1LL);
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
