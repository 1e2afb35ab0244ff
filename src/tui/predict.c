/* predict.c: asks for the next number in the step, judges what is typed, and says which places must hide it meanwhile. */
#include "tui/predict.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/plural.h"
#include "tui/view.h"

/* ---- which question ------------------------------------------------------------------------------------------------- */

static void find_position(const struct state *s, struct look *look, struct prediction *p) {
  const struct look_step *next = look_step(look, s->run, s->step + 1);
  if (!next) {
    snprintf(p->absent, sizeof p->absent, "nothing to predict: the trace ends with this step");
    return;
  }
  if (next->length_before == LOOK_NONE) {
    snprintf(p->absent, sizeof p->absent, "nothing to predict: the next step's cache length is not in the trace");
    return;
  }
  p->kind = PREDICT_POSITION;
  p->answer = p->P = next->length_before;
  p->used = next->position;
  p->step = s->step + 1;
  p->moment = KVS_READ_LENGTH;
}

static void find_length(const struct look_step *step, struct prediction *p) {
  if (step->length_before == LOOK_NONE || step->length_after == LOOK_NONE) {
    snprintf(p->absent, sizeof p->absent, "nothing to predict: this step's cache lengths are not in the trace");
    return;
  }
  p->kind = PREDICT_LENGTH;
  p->P = step->length_before;
  p->answer = p->P + 1;
  p->used = step->length_after;
  p->moment = KVS_APPEND;
}

static void find_in_head(const struct state *s, struct look *look, const struct look_step *step, struct prediction *p) {
  const struct look_head *head = look_head(look, s->run, s->step, s->layer, s->head);
  bool scores = s->moment == KVS_APPEND;
  int most = scores ? 0 : heaviest_row(head);
  if (!head || head->rows < 1 || most < 0) {
    snprintf(p->absent, sizeof p->absent, "nothing to predict: the %s of layer %d head %d %s",
             scores ? "scores" : "weights", s->layer, s->head,
             head && head->weights && !scores ? "are no numbers" : "were not logged");
    return;
  }
  p->kind = scores ? PREDICT_SCORES : PREDICT_HEAVIEST;
  p->P = step->length_before == LOOK_NONE ? head->rows - 1 : step->length_before;
  p->moment = scores ? KVS_SCORE : KVS_SOFTMAX;
  p->rows = head->rows;
  if (scores) {
    p->answer = p->P + 1;
    p->used = head->rows;
    return;
  }
  p->weights = head->weights;
  p->used = p->answer = most;
}

void prediction_find(const struct state *s, struct look *look, struct prediction *p) {
  *p = (struct prediction){.kind = PREDICT_NOTHING, .step = s->step, .layer = s->layer, .head = s->head};
  const struct look_step *step = look_step(look, s->run, s->step);
  if (!step)
    snprintf(p->absent, sizeof p->absent, "nothing to predict: this step is not in the trace");
  else if (s->moment < KVS_APPEND)
    find_length(step, p);
  else if (s->moment == KVS_APPEND || s->moment == KVS_SCORE)
    find_in_head(s, look, step, p);
  else
    find_position(s, look, p);
}

void prediction_open(const struct state *s, struct look *look, struct prediction *p) {
  if (s->mode == INPUT_PREDICT)
    prediction_find(s, look, p);
  else
    *p = (struct prediction){.kind = PREDICT_NOTHING};
}

/* ---- judging -------------------------------------------------------------------------------------------------------- */

/* The right answer and its reason. */
static void tell(const struct prediction *p, char *text, size_t size) {
  switch (p->kind) {
  case PREDICT_POSITION:
    snprintf(text, size, "t = %d: the cache holds %d row%s before this append", p->P, p->P, plural(p->P));
    break;
  case PREDICT_LENGTH:
    snprintf(text, size, "length %d: %d before this append, and one new row", p->answer, p->P);
    break;
  case PREDICT_SCORES:
    snprintf(text, size, "%d score%s: q meets K[0] to K[%d], its own row the last", p->answer, plural(p->answer), p->P);
    break;
  case PREDICT_HEAVIEST:
    snprintf(text, size, "row %d weighs most, %.3f", p->answer, (double)p->weights[p->answer]);
    break;
  default:
    snprintf(text, size, "%s", p->absent);
  }
}

/* What a wrong number is, where it is one that is often taken for the right one; "" otherwise. */
static const char *mistake(const struct prediction *p, int given) {
  switch (p->kind) {
  case PREDICT_POSITION:
    if (given == p->P + 1) return ", the length after it";
    if (given == 0) return ", as if the cache were empty";
    if (given == p->P - 1) return ", the newest row's number: rows count from 0";
    return "";
  case PREDICT_LENGTH:
    return given == p->P ? ", the length before it" : "";
  case PREDICT_SCORES:
    return given == p->P ? ", the length before its own row came in" : "";
  default:
    return "";
  }
}

bool prediction_judge(const struct prediction *p, int given, char *text, size_t size) {
  char reason[128], said[96] = "", run[48] = "";
  tell(p, reason, sizeof reason);
  bool heaviest = p->kind == PREDICT_HEAVIEST, known = heaviest && given >= 0 && given < p->rows;
  bool equal = known && p->weights[given] >= p->weights[p->answer]; /* of two heaviest rows, either is right */
  bool right = given == p->answer || equal;
  if (right && given != p->answer)
    snprintf(said, sizeof said, ", and row %d as much", given);
  else if (!right && known)
    snprintf(said, sizeof said, "; you said row %d, which weighs %.3f", given, (double)p->weights[given]);
  else if (!right && heaviest)
    snprintf(said, sizeof said, "; you said row %d, but there are rows 0 to %d", given, p->rows - 1);
  else if (!right)
    snprintf(said, sizeof said, "; you said %d%s", given, mistake(p, given));
  if (p->used == LOOK_NONE)
    snprintf(run, sizeof run, "; this run used none");
  else if (p->used != p->answer)
    snprintf(run, sizeof run, "; this run %s %d", p->kind == PREDICT_POSITION ? "used" : "has", p->used);
  snprintf(text, size, "%s%s%s", reason, said, run);
  return right;
}

/* ---- hiding --------------------------------------------------------------------------------------------------------- */

/* A number of rows is asked for: it may stand anywhere that lengths, positions and steps do. */
static bool counts(const struct prediction *p) {
  return p->kind == PREDICT_POSITION || p->kind == PREDICT_LENGTH || p->kind == PREDICT_SCORES;
}

const char *prediction_number(const struct prediction *p, int number, char *text) {
  if (counts(p) && number == p->answer)
    snprintf(text, 16, "?");
  else
    snprintf(text, 16, "%d", number);
  return text;
}

const char *prediction_label(const struct prediction *p, int number, char *text) {
  return prediction_number(p, counts(p) && number > p->answer ? p->answer : number, text);
}

bool prediction_hides_slots(const struct prediction *p, const struct state *s) {
  return counts(p) && reached(s, KVS_APPEND);
}

bool prediction_hides_scores(const struct prediction *p) { return p->kind == PREDICT_HEAVIEST; }

bool prediction_covers(const struct prediction *p, enum view_id view) {
  if (p->kind == PREDICT_NOTHING) return false;
  switch (view) {
  case VIEW_MAP: /* its columns are numbered, and it has the weights */
  case VIEW_COMPARE:
  case VIEW_SQL: /* may have been asked anything */
    return true;
  case VIEW_HEADS:
  case VIEW_PRODUCT:
    return prediction_hides_scores(p);
  case VIEW_EMBEDDING:
    return counts(p);
  default:
    return false;
  }
}

/* ---- asking --------------------------------------------------------------------------------------------------------- */

static void ask(struct state *s, const struct prediction *p) {
  if (p->kind == PREDICT_NOTHING) {
    state_say(s, false, "%s", p->absent);
    return;
  }
  s->mode = INPUT_PREDICT;
  s->line[0] = '\0';
  s->cursor = 0;
  s->playing = s->following = false; /* the question stands until it is answered */
}

/* To where the answer is seen, the row cursor on the row that was asked for. */
static void show(struct state *s, const struct prediction *p) {
  if (s->step != p->step) s->row = -1;
  s->step = p->step;
  s->moment = p->moment;
  if (p->kind == PREDICT_HEAVIEST) s->row = p->answer == p->P ? -1 : p->answer;
}

void predict_serve(struct state *s, struct look *look, enum request request) {
  struct prediction p;
  prediction_find(s, look, &p);
  if (request == REQUEST_ASK) {
    ask(s, &p);
    return;
  }
  s->mode = INPUT_KEYS;
  if (p.kind == PREDICT_NOTHING) { /* a command moved the dials away from under the question */
    state_say(s, false, "%s", p.absent);
    return;
  }
  char text[LINE_SIZE - 64];
  bool right = false;
  if (request == REQUEST_JUDGE) {
    right = prediction_judge(&p, atoi(s->line), text, sizeof text);
    s->predicted++;
    s->predicted_right += right;
  } else {
    prediction_judge(&p, p.answer, text, sizeof text); /* for what a faulty run has instead */
  }
  const char *verdict = request == REQUEST_SKIP ? "skipped" : right ? "right" : "wrong";
  show(s, &p);
  state_say(s, request == REQUEST_JUDGE && !right, "%s: %s  [%d of %d right]", verdict, text, s->predicted_right,
            s->predicted);
}

void predict_draw(struct cells *cells, struct area area, const struct state *s, struct look *look) {
  struct prediction p;
  prediction_find(s, look, &p);
  char question[128];
  switch (p.kind) {
  case PREDICT_POSITION:
    snprintf(question, sizeof question, "which t will the next token get, its row of wpe?");
    break;
  case PREDICT_LENGTH:
    snprintf(question, sizeof question, "how long is the cache after this append?");
    break;
  case PREDICT_SCORES:
    snprintf(question, sizeof question, "how many scores are made in layer %d head %d?", p.layer, p.head);
    break;
  case PREDICT_HEAVIEST:
    snprintf(question, sizeof question, "which row will weigh most in layer %d head %d?", p.layer, p.head);
    break;
  default:
    snprintf(question, sizeof question, "%s", p.absent);
  }
  int row = area.rows - 1 - PREDICT_LINES, at = 1;
  cells_put_field(cells, area, row, 0, area.columns, ROLE_TEXT, "");
  at += cells_put(cells, area, row, at, -1, ROLE_TITLE, "predict") + 2;
  cells_put(cells, area, row, at, -1, ROLE_TEXT, question);
  at = 1 + cells_put(cells, area, row + 1, 1, -1, ROLE_INPUT, s->line);
  cells_put(cells, area, row + 1, at, 1, ROLE_INPUT, " ");
  cells_mark(cells, area, row + 1, at, 1, ATTR_REVERSE);
  cells_put(cells, area, row + 1, at + 3, -1, *s->message ? ROLE_ERROR : ROLE_DIM,
            *s->message ? s->message : "a number and Enter; Escape skips and shows it");
}
