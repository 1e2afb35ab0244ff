/* screen.c: the whole screen: the title, the tokens, and where the rule, the view and the foot stand. */
#include <stdio.h>
#include <string.h>

#include "tui/fault_list.h"
#include "tui/foot.h"
#include "tui/help.h"
#include "tui/predict.h"
#include "tui/rule_lines.h"
#include "tui/view.h"

#define LEAST_ROWS 15
#define LEAST_COLUMNS 60

/* ---- the lines that are always there ------------------------------------------------------------------------------ */

/* The dials matter most: where the line is narrow, the names give way. */
static void draw_title(struct cells *cells, struct area area, const struct state *s, const struct look_run *run,
                       const char *trace_name, const struct prediction *asked) {
  char name[sizeof run->fault + 1] = "", places[96] = "", dials[sizeof name + sizeof places + 32], last[16];
  bool fault = run && *run->fault && strcmp(run->fault, "none") != 0;
  if (run && run->steps > 0)
    snprintf(places, sizeof places, "  step %d/%s  layer %d/%d  head %d/%d ", s->step,
             prediction_number(asked, run->steps - 1, last), s->layer, run->n_layer - 1, s->head, run->n_head - 1);
  else
    snprintf(places, sizeof places, run ? "  no step yet " : "no run yet ");
  int room = area.columns - text_columns(places) - 12; /* whatever a trace calls its fault */
  if (run) snprintf(name, sizeof name, "%.*s", text_fitting(look_run_name(run), room), look_run_name(run));
  if (run)
    snprintf(dials, sizeof dials, "run %d %s%s", s->run, name, places);
  else
    snprintf(dials, sizeof dials, "%s", places);
  int left = area.columns - text_columns(dials);
  if (left > 8) cells_put(cells, area, 0, 1, -1, ROLE_TITLE, "kvstep");
  if (left > 14) cells_put_field(cells, area, 0, 9, left - 10, ROLE_TEXT, run ? run->model : trace_name);
  cells_put_right(cells, area, 0, area.columns, area.columns, fault ? ROLE_WRONG : ROLE_TEXT, dials);
}

/* Tokens around the current one, each with its step; the current one stands out, and a line stands where the prompt ends. */
static void draw_tokens(struct cells *cells, struct area area, const struct state *s, struct look *look, int steps,
                        const struct prediction *asked) {
  const int field = 12;
  int count = (area.columns - 1) / field, first, last;
  window_of(steps, count, s->step, &first, &last);
  for (int step = first; step <= last; step++) {
    const struct look_step *t = look_step(look, s->run, step);
    if (!t) continue;
    char number[16], text[80];
    prediction_label(asked, step, number);
    snprintf(text, sizeof text, "%s", t->text);
    int at = 1 + (step - first) * field, used = cells_put(cells, area, 1, at, 5, ROLE_DIM, number);
    enum role role = step == s->step ? ROLE_HERE : t->mode == KVS_PREFILL ? ROLE_DIM : ROLE_TOKEN;
    cells_put(cells, area, 1, at + used + 1, field - used - 2, role, text);
    if (step > 0 && step == t->prompt_steps) cells_put(cells, area, 1, at - 1, 1, ROLE_FRAME, "│");
  }
}

/* ---- all of it -------------------------------------------------------------------------------------------------------- */

static void draw_too_small(struct cells *cells, struct area area) {
  cells_putf(cells, area, 0, 0, -1, ROLE_ERROR, "%d × %d: kvstep needs %d × %d", area.columns, area.rows, LEAST_COLUMNS,
             LEAST_ROWS);
  cells_put(cells, area, 1, 0, -1, ROLE_TEXT, "make the window larger; q quits");
}

static void draw_view(struct cells *cells, struct area area, const struct state *s, struct look *look,
                      const struct prediction *asked) {
  const struct view *view = views[s->view];
  char title[160];
  snprintf(title, sizeof title, "%d %s: %s", (int)s->view + 1, view->name, view->title);
  cells_rule(cells, area, 0, title);
  struct area room = area_rows(area, 1, area.rows - 1);
  if (prediction_covers(asked, s->view))
    draw_absent(cells, room, "hidden while the question is open", "it would show the answer");
  else
    view->draw(cells, room, s, look);
}

static void draw_no_step(struct cells *cells, struct area area, const struct state *s, struct look *look) {
  char words[64] = "there is no step in this trace yet";
  bool others = look_runs(look) > 1;
  if (others) snprintf(words, sizeof words, "run %d has no step yet", s->run);
  draw_absent(cells, area, words,
              others ? "r goes to the next run; q quits" : "the screen follows it as it grows; q quits");
}

void screen_draw(struct cells *cells, const struct state *s, struct look *look, const char *trace_name) {
  cells_clear(cells);
  struct area area = cells_area(cells);
  if (area.rows < LEAST_ROWS || area.columns < LEAST_COLUMNS) {
    draw_too_small(cells, area);
    return;
  }
  const struct look_run *run = look_run(look, s->run);
  struct prediction asked;
  prediction_open(s, look, &asked);
  draw_title(cells, area, s, run, trace_name, &asked);
  foot_draw(cells, area, s, look);
  if (s->mode == INPUT_HELP) {
    help_draw(cells, area, s->help_top);
    return;
  }
  if (s->mode == INPUT_FAULT) {
    fault_list_draw(cells, area_rows(area, 1, area.rows - 2 - foot_lines(cells, area, s)), s);
    return;
  }
  struct area body = area_rows(area, 5, area.rows - 6 - foot_lines(cells, area, s));
  bool steps = run && run->steps > 0;
  if (steps) draw_tokens(cells, area, s, look, run->steps, &asked);
  const struct look_step *step = steps ? look_step(look, s->run, s->step) : NULL;
  if (step) {
    struct place place;
    place_of(s, look, &place);
    rule_lines_draw(cells, area_rows(area, 2, 3), s, look, step, &place, &asked);
  }
  if (steps || s->view == VIEW_SQL) /* SQL asks the whole trace */
    draw_view(cells, body, s, look, &asked);
  else
    draw_no_step(cells, body, s, look);
  foot_draw_over(cells, area, s);
}
