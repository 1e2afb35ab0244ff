/* view_next.c: the most probable next tokens and which of them was taken; beside them what each layer would have said. */
#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "study/look/lens.h"
#include "tui/view.h"

#define LIST 40       /* columns of the list without bars */
#define LENS 36       /* the least that the lens takes */
#define WORK 8000000L /* multiplications in a hurried frame: a few milliseconds */

/* ---- the list ------------------------------------------------------------------------------------------------------- */

static void draw_list(struct cells *cells, struct area area, const struct state *s, struct look *look,
                      const struct look_run *run, const struct look_top *top) {
  const struct look_step *next = s->step + 1 < run->steps ? look_step(look, s->run, s->step + 1) : NULL;
  int taken = next ? next->token : LOOK_NONE;
  char chosen[80] = "";
  if (next)
    snprintf(chosen, sizeof chosen, "%s  %s", next->source == KVS_SAMPLED ? "taken:" : "given next:", next->text);
  const char *mark = !next ? "" : next->source == KVS_SAMPLED ? "(▸ taken)" : "(▸ given)";
  cells_putf(cells, area, 0, 1, -1, ROLE_DIM, "rank  token %s", mark);
  cells_put(cells, area, 0, 26, -1, ROLE_DIM, "logit   prob.");
  if (area.columns >= LIST + 16)
    cells_put_right(cells, area, 0, area.columns - 1, area.columns - 44, ROLE_TEXT, chosen);
  int lines = top->count < area.rows - 1 ? top->count : area.rows - 1;
  bool seen = !next;
  for (int i = 0; i < lines; i++) seen |= top->token[i].token == taken;
  if (!seen) /* a surprise must not stay out of sight */
    cells_putf(cells, area, lines == area.rows - 1 ? lines-- : lines + 1, 1, -1, ROLE_HERE, "▸ %s", chosen);
  for (int i = 0; i < lines; i++) {
    bool here = top->token[i].token == taken;
    char logit[24];
    number_text(top->token[i].logit, 7, logit);
    cells_putf(cells, area, 1 + i, 1, 5, here ? ROLE_HERE : ROLE_DIM, "%s%3d", here ? "▸" : " ", i + 1);
    cells_put(cells, area, 1 + i, 7, 16, here ? ROLE_NEW : ROLE_TOKEN, top->token[i].text);
    cells_putf(cells, area, 1 + i, 24, -1, ROLE_TEXT, "%s  %.4f", logit, top->token[i].probability);
    cells_bar(cells, area, 1 + i, 41, area.columns - 42, ROLE_BAR, top->token[i].probability);
  }
}

/* ---- the logit lens --------------------------------------------------------------------------------------------------- */

/* One layer: what it would say, and how it sees the token that the last one says. Returns whether it is there. */
static enum lens_answer draw_layer(struct cells *cells, struct area area, int line, int layer, int token,
                                   const struct state *s, struct look *look, long *work) {
  struct lens_layer says;
  enum lens_answer answer = lens_ask(s->lens, look, s->run, s->step, layer, token, work, &says);
  cells_putf(cells, area, line, 1, 3, layer == s->layer ? ROLE_HERE : ROLE_DIM, "%2d", layer);
  if (answer == LENS_LATE) cells_put(cells, area, line, 5, -1, ROLE_DIM, "reckoning…");
  if (answer == LENS_NOT_LOGGED) cells_put(cells, area, line, 5, -1, ROLE_DIM, "not logged");
  if (answer != LENS_READY) return answer;
  bool same = says.top == token;
  cells_put(cells, area, line, 5, 9, same ? ROLE_NEW : ROLE_TOKEN, look_token_text(look, says.top));
  cells_putf(cells, area, line, 15, 5, ROLE_TEXT, "%.3f", says.top_probability);
  cells_putf(cells, area, line, 21, 6, same ? ROLE_NEW : ROLE_TEXT, "%6d", says.rank);
  cells_putf(cells, area, line, 28, 5, same ? ROLE_NEW : ROLE_TEXT, "%.3f", says.probability);
  cells_bar(cells, area, line, 34, area.columns - 35, ROLE_BAR, says.probability);
  return answer;
}

/* Text over as many lines as it needs. */
static void draw_words(struct cells *cells, struct area area, int line, const char *const *words) {
  for (; *words; words++) cells_put(cells, area, line++, 1, -1, ROLE_DIM, *words);
}

static void draw_lens(struct cells *cells, struct area area, const struct state *s, struct look *look,
                      const struct look_run *run, const struct look_top *top) {
  static const char *const no_model[] = {"If each layer were the last:", "the logit lens needs the model, and",
                                         "none is at hand. A built-in one is", "found by itself.", NULL};
  static const char *const not_logged[] = {"If each layer were the last:", "the logit lens needs each layer's",
                                           "x_out, which `kvstep run --log full`", "logs.", NULL};
  static const char *const other[] = {"The logit lens: this run was not", "made by the model at hand.", NULL};
  if (!s->lens) {
    draw_words(cells, area, 0, no_model);
    return;
  }
  long work = cells->hurried ? WORK : LONG_MAX;
  int first, last, ready = 0;
  enum lens_answer answer = LENS_READY;
  window_of(run->n_layer, area.rows - 2, s->layer, &first, &last);
  for (int layer = first; layer <= last; layer++) {
    answer = draw_layer(cells, area, 2 + layer - first, layer, top->token[0].token, s, look, &work);
    cells->unfinished |= answer == LENS_LATE;
    ready += answer == LENS_READY || answer == LENS_LATE;
  }
  if (answer == LENS_OTHER_MODEL || ready == 0) {
    for (int line = 2; line < area.rows; line++) cells_put_field(cells, area, line, 0, -1, ROLE_TEXT, "");
    draw_words(cells, area, 0, answer == LENS_OTHER_MODEL ? other : not_logged);
    return;
  }
  cells_put(cells, area, 0, 1, 20, ROLE_TEXT, "if it were the last");
  cells_putf(cells, area, 0, 22, -1, ROLE_NEW, "for %s", top->token[0].text);
  cells_put(cells, area, 1, 1, -1, ROLE_DIM, "L   says      prob.   rank  prob.");
  if (first > 0) cells_put(cells, area, 1, 0, 1, ROLE_DIM, "↑");
  if (last < run->n_layer - 1) cells_put(cells, area, area.rows - 1, 0, 1, ROLE_DIM, "↓");
}

static void draw(struct cells *cells, struct area area, const struct state *s, struct look *look) {
  const struct look_run *run = look_run(look, s->run);
  const struct look_top *top = look_top(look, s->run, s->step);
  if (!run) return;
  if (!top || top->count == 0) {
    draw_absent(cells, area, "the next token's probabilities were not logged",
                "kvstep run -o TRACE logs the best twenty");
    return;
  }
  if (!reached(s, KVS_LOGITS)) {
    draw_absent(cells, area, "the logits are not there yet", "they are the last of the ten moments: Space goes on");
    return;
  }
  bool beside = area.columns >= LIST + 2 + LENS;
  int list = area.columns - LENS - 2 > 2 * area.columns / 3 ? 2 * area.columns / 3 : area.columns - LENS - 2;
  if (s->alone) {
    draw_lens(cells, area, s, look, run, top);
  } else if (beside) {
    draw_list(cells, area_columns(area, 0, list), s, look, run, top);
    cells_divider(cells, area, list);
    draw_lens(cells, area_columns(area, list + 1, area.columns - list - 1), s, look, run, top);
  } else {
    draw_list(cells, area, s, look, run, top);
  }
}

const struct view view_next = {"next token", "the most probable; by layer (w: alone)", draw};
