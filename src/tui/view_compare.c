/* view_compare.c: this run beside another: tokens, positions, the best next token and KL step by step, attention head by head. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "study/compare/diverge.h"
#include "tui/view.h"

/* Two runs at a time. `a` is this run, `b` the other. */
struct pair {
  const struct look_run *a, *b;
  int steps;  /* of the longer one */
  int first;  /* the first step that differs; LOOK_NONE */
  int parted; /* the first step whose tokens differ, as far as the list shows; LOOK_NONE */
};

/* One step of both, copied: what look gives out does not hold for a whole list. */
struct side {
  bool there, wrong;
  int token, position, top;
  char text[64], top_text[64];
  double top_logit; /* NaN: no top token was logged */
};

/* ---- numbers that take long ---------------------------------------------------------------------------------------- */

/* Two logits vectors of 50,257 words take about a millisecond, so what was reckoned is kept, and a frame reckons only so many
 * words; the steps nearest the current one come first, the others in the next frames. */
#define WORDS_PER_FRAME 400000
#define KEPT 256 /* more than a screen has lines, so that the lines of one screen never push each other out */

struct numbers {
  unsigned long look; /* look_id */
  int run_a, run_b, step;
  int tokens[2], positions[2];
  double top_logits[2];
  double kl, max_abs;
  int tops[2];
};
static struct numbers kept[KEPT];

/* NaN is like NaN here. */
static bool alike(double x, double y) { return x == y || (isnan(x) && isnan(y)); }

static bool is_of(const struct numbers *n, const struct look *look, const struct pair *p, int step,
                  const struct side *sides) {
  bool same = n->look == look_id(look) && n->run_a == p->a->run && n->run_b == p->b->run && n->step == step;
  for (int i = 0; i < 2; i++)
    same = same && n->tokens[i] == sides[i].token && n->positions[i] == sides[i].position &&
           alike(n->top_logits[i], sides[i].top_logit);
  return same;
}

/* NULL: the logits were not logged, or *words is used up (then *late is set). */
static const struct numbers *numbers_of(struct look *look, const struct pair *p, int step, const struct side *sides,
                                        long *words, bool *late) {
  struct numbers *n = &kept[step % KEPT];
  if (!sides[0].there || !sides[1].there || p->a->n_vocab != p->b->n_vocab) return NULL;
  if (is_of(n, look, p, step, sides)) return n;
  if (*words <= 0) {
    *late = true;
    return NULL;
  }
  const struct look_vectors *a = look_vectors(look, p->a->run, step), *b = look_vectors(look, p->b->run, step);
  if (!a || !b || !a->logits || !b->logits) return NULL;
  int count = p->a->n_vocab;
  *words -= count;
  *n = (struct numbers){.look = look_id(look),
                        .run_a = p->a->run,
                        .run_b = p->b->run,
                        .step = step,
                        .tokens = {sides[0].token, sides[1].token},
                        .positions = {sides[0].position, sides[1].position},
                        .top_logits = {sides[0].top_logit, sides[1].top_logit},
                        .kl = diverge_kl(a->logits, b->logits, count),
                        .max_abs = diverge_max_abs(a->logits, b->logits, count),
                        .tops = {diverge_top(a->logits, count), diverge_top(b->logits, count)}};
  return n;
}

/* ---- where they part ------------------------------------------------------------------------------------------------ */

/* Finished steps do not change: what was once looked through is not looked through again. */
static struct search {
  unsigned long look; /* look_id */
  int run_a, run_b;
  char created[2][32];
  int sought; /* no difference before this step */
  int same;   /* the same tokens before this one */
} search;

static void search_for(const struct look *look, const struct pair *p) {
  if (search.look == look_id(look) && search.run_a == p->a->run && search.run_b == p->b->run &&
      strcmp(search.created[0], p->a->created_at) == 0 && strcmp(search.created[1], p->b->created_at) == 0)
    return;
  search = (struct search){.look = look_id(look), .run_a = p->a->run, .run_b = p->b->run};
  snprintf(search.created[0], sizeof search.created[0], "%s", p->a->created_at);
  snprintf(search.created[1], sizeof search.created[1], "%s", p->b->created_at);
}

/* Up to the step `last`, which is as far as the list shows. */
static void find_differences(struct look *look, struct pair *p, int last) {
  int common = p->a->steps < p->b->steps ? p->a->steps : p->b->steps;
  search_for(look, p);
  p->first = look_first_difference(look, p->a->run, p->b->run, search.sought);
  search.sought = p->first != LOOK_NONE ? p->first : common > 0 ? common - 1 : 0;
  p->parted = LOOK_NONE;
  if (p->first == LOOK_NONE) return;
  if (search.same < p->first) search.same = p->first;
  for (int step = search.same; step < common && step <= last; step++) {
    const struct look_step *a = look_step(look, p->a->run, step), *b = look_step(look, p->b->run, step);
    search.same = step;
    if (a && b && a->token != b->token) {
      p->parted = step;
      return;
    }
  }
}

/* ---- one step of one run -------------------------------------------------------------------------------------------- */

static struct side side_of(struct look *look, const struct look_run *run, int step) {
  struct side side = {.token = LOOK_NONE, .position = LOOK_NONE, .top = LOOK_NONE, .top_logit = NAN};
  const struct look_step *found = step < run->steps ? look_step(look, run->run, step) : NULL;
  if (!found) return side;
  side.there = true;
  side.token = found->token;
  side.position = found->position;
  side.wrong = found->length_before != LOOK_NONE && found->position != found->length_before;
  memcpy(side.text, found->text, sizeof side.text);
  const struct look_top *top = look_top(look, run->run, step);
  if (!top || top->count == 0) return side;
  side.top = top->token[0].token;
  side.top_logit = top->token[0].logit;
  memcpy(side.top_text, top->token[0].text, sizeof side.top_text);
  return side;
}

/* Without a list of the best, the logits themselves tell which token it is, though not how it reads. */
static void top_from_logits(struct side *side, int top) {
  if (side->top != LOOK_NONE || top < 0) return;
  side->top = top;
  snprintf(side->top_text, sizeof side->top_text, "#%d", top);
}

/* ---- the list ------------------------------------------------------------------------------------------------------- */

/* Columns of the list: where each field begins. */
struct columns {
  int width;                                            /* of a token's text */
  int step, token[2], position[2], top[2], kl, max_abs; /* max_abs −1: no room */
  int word;                                             /* "first", "parted" */
};

static struct columns columns_for(int columns) {
  struct columns c = {.step = 1};
  bool wide = columns >= 74;
  c.width = (columns - (wide ? 47 : 36)) / 4;
  if (c.width > 16) c.width = 16;
  if (c.width < 2) c.width = 2;
  c.token[0] = 6;
  c.position[0] = c.token[0] + c.width;
  c.token[1] = c.position[0] + 8;
  c.position[1] = c.token[1] + c.width;
  c.top[0] = c.position[1] + 6;
  c.top[1] = c.top[0] + c.width + 2;
  c.kl = c.top[1] + c.width;
  c.max_abs = wide ? c.kl + 9 : -1;
  c.word = wide ? c.kl + 17 : c.kl + 9;
  return c;
}

static void draw_header(struct cells *cells, struct area area, const struct columns *c, const struct pair *p) {
  cells_put(cells, area, 0, c->step, 4, ROLE_DIM, "step");
  for (int i = 0; i < 2; i++) {
    int run = i ? p->b->run : p->a->run;
    cells_putf(cells, area, 0, c->token[i], c->width, ROLE_TITLE, c->width >= 8 ? "run %d" : "%d", run);
    cells_put(cells, area, 0, c->position[i] + 3, 1, ROLE_DIM, "t");
    cells_putf(cells, area, 0, c->top[i], c->width, ROLE_DIM, c->width >= 8 ? "top-1 %d" : "top", run);
  }
  char kl[32];
  snprintf(kl, sizeof kl, "KL(%d%s%d)", p->a->run, cells->ascii ? "|" : "‖", p->b->run);
  cells_put_right(cells, area, 0, c->kl + 8, 9, ROLE_DIM, kl);
  if (c->max_abs >= 0) cells_put_right(cells, area, 0, c->max_abs + 7, 7, ROLE_DIM, "max|Δ|");
}

static void draw_side(struct cells *cells, struct area area, int line, const struct columns *c, int i,
                      const struct side *side, enum role role) {
  if (!side->there) {
    cells_put(cells, area, line, c->token[i], 1, ROLE_DIM, "–");
    return;
  }
  cells_put_field(cells, area, line, c->token[i], c->width, role, side->text);
  enum role at = side->wrong ? ROLE_WRONG : ROLE_TEXT;
  if (side->position == LOOK_NONE)
    cells_putf(cells, area, line, c->position[i], 5, at, "none%s", side->wrong ? "!" : "");
  else
    cells_putf(cells, area, line, c->position[i], 5, at, "%4d%s", side->position, side->wrong ? "!" : "");
}

static void draw_tops(struct cells *cells, struct area area, int line, const struct columns *c,
                      const struct side *sides) {
  bool both = sides[0].top != LOOK_NONE && sides[1].top != LOOK_NONE, same = sides[0].top == sides[1].top;
  for (int i = 0; i < 2; i++)
    cells_put_field(cells, area, line, c->top[i], c->width, both && !same ? ROLE_NEW : ROLE_TOKEN,
                    *sides[i].top_text ? sides[i].top_text : "–");
  if (both) cells_put(cells, area, line, c->top[1] - 2, 1, same ? ROLE_DIM : ROLE_NEW, same ? "=" : "≠");
}

static void draw_numbers(struct cells *cells, struct area area, int line, const struct columns *c,
                         const struct numbers *n, bool late, bool other_texts) {
  char text[24];
  enum role role = !n || other_texts ? ROLE_DIM : ROLE_TEXT;
  snprintf(text, sizeof text, "%s", late ? "…" : "–");
  if (n) number_text(n->kl, 8, text);
  cells_put_right(cells, area, line, c->kl + 8, 8, role, text);
  if (c->max_abs < 0) return;
  if (n) number_text(n->max_abs, 7, text);
  cells_put_right(cells, area, line, c->max_abs + 7, 7, role, text);
}

/* Returns whether its numbers are still to come. */
static bool draw_step(struct cells *cells, struct area area, int line, const struct columns *c, const struct state *s,
                      struct look *look, const struct pair *p, int step, long *words) {
  struct side sides[2] = {side_of(look, p->a, step), side_of(look, p->b, step)};
  bool here = step == s->step, both = sides[0].there && sides[1].there, late = false;
  bool same = sides[0].token == sides[1].token, parted = p->parted != LOOK_NONE && step >= p->parted;
  const struct numbers *n = numbers_of(look, p, step, sides, words, &late);
  cells_putf(cells, area, line, 0, 5, here ? ROLE_HERE : ROLE_DIM, "%s%4d", here ? "▸" : " ", step);
  for (int i = 0; i < 2; i++) {
    draw_side(cells, area, line, c, i, &sides[i], both && !same ? ROLE_NEW : ROLE_TOKEN);
    if (n) top_from_logits(&sides[i], n->tops[i]);
    if (late && sides[i].top == LOOK_NONE) snprintf(sides[i].top_text, sizeof sides[i].top_text, "…");
  }
  if (both) cells_put(cells, area, line, c->token[1] - 2, 1, same ? ROLE_DIM : ROLE_NEW, same ? "=" : "≠");
  if (step == p->first)
    cells_put(cells, area, line, c->word, -1, ROLE_HERE, "first");
  else if (step == p->parted)
    cells_put(cells, area, line, c->word, -1, ROLE_NEW, area.columns - c->word < 6 ? "apart" : "parted");
  if (here && !reached(s, KVS_LOGITS)) { /* the moments have not come so far */
    cells_put(cells, area, line, c->top[0], -1, ROLE_DIM, "·");
    return false;
  }
  draw_tops(cells, area, line, c, sides);
  draw_numbers(cells, area, line, c, n, late, parted);
  return late;
}

/* From the current step outwards, so that it and its neighbours are reckoned first. */
static void draw_list(struct cells *cells, struct area area, const struct state *s, struct look *look,
                      const struct pair *p, int first, int last) {
  struct columns c = columns_for(area.columns);
  long words = cells->hurried ? WORDS_PER_FRAME : LONG_MAX;
  bool late = false;
  draw_header(cells, area, &c, p);
  for (int away = 0; s->step - away >= first || s->step + away <= last; away++) {
    int before = s->step - away, after = s->step + away;
    if (before >= first && before <= last)
      late |= draw_step(cells, area, 1 + before - first, &c, s, look, p, before, &words);
    if (away > 0 && after >= first && after <= last)
      late |= draw_step(cells, area, 1 + after - first, &c, s, look, p, after, &words);
  }
  if (late) cells_put(cells, area, 0, c.word, -1, ROLE_DIM, "reading…"); /* the next frame reckons more */
  cells->unfinished |= late;
  if (first > 0) cells_put(cells, area, 0, 0, 1, ROLE_DIM, "↑");
  if (last < p->steps - 1) cells_put(cells, area, area.rows - 1, 0, 1, ROLE_DIM, "↓");
}

/* ---- what it comes to, in words ------------------------------------------------------------------------------------- */

/* What differs at the first step that does: "position 9 / 10, top-1". */
static void difference_words(struct look *look, const struct pair *p, char *text, size_t size) {
  struct side a = side_of(look, p->a, p->first), b = side_of(look, p->b, p->first);
  char positions[48] = "";
  if (a.position != b.position) {
    char ta[16] = "none", tb[16] = "none";
    if (a.position != LOOK_NONE) snprintf(ta, sizeof ta, "%d", a.position);
    if (b.position != LOOK_NONE) snprintf(tb, sizeof tb, "%d", b.position);
    snprintf(positions, sizeof positions, ", position %s / %s", ta, tb);
  }
  snprintf(text, size, "%s%s%s", a.token != b.token ? ", token" : "", positions,
           a.top != LOOK_NONE && b.top != LOOK_NONE && a.top != b.top ? ", top-1" : "");
}

/* At the line's right end, if what stands there up to `used` leaves room. */
static void draw_hint(struct cells *cells, struct area area, int line, int used, const char *hint) {
  if (used + 2 + text_columns(hint) < area.columns)
    cells_put_right(cells, area, line, area.columns - 1, area.columns, ROLE_DIM, hint);
}

static void draw_words(struct cells *cells, struct area area, const struct state *s, struct look *look,
                       const struct pair *p) {
  char words[128];
  int at = 1 + cells_putf(cells, area, 0, 1, -1, ROLE_TITLE, "run %d", p->a->run);
  at += 1 + cells_putf(cells, area, 0, at + 1, 30, ROLE_TEXT, "%s", look_run_name(p->a));
  at += 2 + cells_put(cells, area, 0, at + 2, -1, ROLE_DIM, "beside");
  at += 2 + cells_putf(cells, area, 0, at + 2, -1, ROLE_TITLE, "run %d", p->b->run);
  at += 1 + cells_putf(cells, area, 0, at + 1, 30, ROLE_TEXT, "%s", look_run_name(p->b));
  draw_hint(cells, area, 0, at, "o: another run");
  if (p->first == LOOK_NONE) {
    at = cells_put(cells, area, 1, 1, -1, ROLE_RIGHT, "no step differs in token, position or top-1");
  } else {
    difference_words(look, p, words, sizeof words);
    at = cells_putf(cells, area, 1, 1, -1, ROLE_TEXT, "first difference: step %d%s", p->first, words);
  }
  draw_hint(cells, area, 1, 1 + at, "KL in nats, Δ of logits");
  if (p->parted == LOOK_NONE)
    cells_put(cells, area, 2, 1, -1, ROLE_DIM, "the same tokens so far: the numbers compare the same text");
  else
    cells_putf(cells, area, 2, 1, -1, s->step >= p->parted ? ROLE_NEW : ROLE_DIM,
               area.columns > 76 ? "from step %d on the texts have parted: the numbers compare different texts"
                                 : "texts parted at step %d: different texts compared",
               p->parted);
}

/* ---- attention ------------------------------------------------------------------------------------------------------ */

/* NaN: one of them was not logged. */
static double distance_of(struct look *look, const struct pair *p, int step, int layer, int head) {
  const struct look_head *a = look_head(look, p->a->run, step, layer, head),
                         *b = look_head(look, p->b->run, step, layer, head);
  if (!a || !b || !a->weights || !b->weights) return NAN;
  return diverge_attention(a->weights, a->rows, b->weights, b->rows);
}

/* One head: a heat cell, and the number where there is room for it. */
static void draw_distance(struct cells *cells, struct area area, int line, int at, int width, double distance,
                          bool here) {
  if (here) cells_put(cells, area, line, at - 1, 1, ROLE_HERE, "▸");
  if (isnan(distance)) {
    cells_put(cells, area, line, at, width, ROLE_DIM, "–");
    return;
  }
  int heat = width >= 6 ? width - 5 : width;
  cells_heat(cells, area, line, at, heat, distance);
  if (heat < width) cells_putf(cells, area, line, at + heat + 1, 4, here ? ROLE_HERE : ROLE_TEXT, "%.2f", distance);
}

static void draw_attention(struct cells *cells, struct area area, const struct state *s, struct look *look,
                           const struct pair *p) {
  if (!reached(s, KVS_SOFTMAX)) {
    cells_put(cells, area, 0, 1, -1, ROLE_DIM, "the weights are not there yet: Space goes on");
    return;
  }
  if (s->step >= p->b->steps) {
    cells_putf(cells, area, 0, 1, -1, ROLE_DIM, "run %d has no step %d", p->b->run, s->step);
    return;
  }
  int room = area.columns - 6, width = room / (p->a->n_head > 0 ? p->a->n_head : 1) - 2;
  if (width > 12) width = 12;
  if (width < 1) width = 1;
  int first_head, last_head, first, last;
  window_of(p->a->n_head, room / (width + 2), s->head, &first_head, &last_head);
  window_of(p->a->n_layer, area.rows - 1, s->layer, &first, &last);
  double chosen = distance_of(look, p, s->step, s->layer, s->head);
  if (isnan(chosen))
    cells_putf(cells, area, 0, 1, -1, ROLE_DIM, "layer %d head %d: not logged in both runs, or no numbers", s->layer,
               s->head);
  else
    cells_putf(cells, area, 0, 1, -1, ROLE_TEXT, "layer %d head %d: %.4f", s->layer, s->head, chosen);
  for (int layer = first; layer <= last; layer++) {
    int line = 1 + layer - first;
    cells_putf(cells, area, line, 0, 5, layer == s->layer ? ROLE_HERE : ROLE_DIM, "L%d", layer);
    for (int head = first_head; head <= last_head; head++)
      draw_distance(cells, area, line, 6 + (head - first_head) * (width + 2), width,
                    distance_of(look, p, s->step, layer, head), layer == s->layer && head == s->head);
  }
}

/* One row of the chosen head's weights in both runs. */
static void draw_weights_row(struct cells *cells, struct area area, int line, int row, const struct state *s,
                             struct look *look, const struct look_head *const heads[2]) {
  int half = (area.columns - 6) / 2;
  cells_putf(cells, area, line, 0, 5, ROLE_DIM, "%5d", row);
  for (int i = 0; i < 2; i++) {
    int at = 7 + i * half;
    if (row >= heads[i]->rows) {
      cells_put(cells, area, line, at, 1, ROLE_DIM, "–");
      continue;
    }
    double weight = (double)heads[i]->weights[row];
    char number[24];
    number_text(weight, 7, number);
    cells_put_field(cells, area, line, at, 8, ROLE_TOKEN, look_row_text(look, heads[i]->run, s->step, s->layer, row));
    cells_put(cells, area, line, at + 8, 7, ROLE_TEXT, number);
    cells_bar(cells, area, line, at + 16, half - 18, ROLE_BAR, weight);
  }
}

/* What the chosen head attends to in both runs, row by row: what makes its distance. */
static void draw_weights(struct cells *cells, struct area area, const struct state *s, struct look *look,
                         const struct pair *p) {
  const struct look_head *const heads[2] = {look_head(look, p->a->run, s->step, s->layer, s->head),
                                            look_head(look, p->b->run, s->step, s->layer, s->head)};
  if (area.rows < 4 || !reached(s, KVS_SOFTMAX)) return;
  if (!heads[0] || !heads[1] || !heads[0]->weights || !heads[1]->weights) return;
  char title[64];
  snprintf(title, sizeof title, "weights of layer %d head %d, row by row", s->layer, s->head);
  cells_rule(cells, area, 0, title);
  int rows = heads[0]->rows > heads[1]->rows ? heads[0]->rows : heads[1]->rows, first, last;
  cells_put(cells, area, 1, 2, 3, ROLE_DIM, "row");
  for (int i = 0; i < 2; i++)
    cells_putf(cells, area, 1, 7 + i * ((area.columns - 6) / 2), 12, ROLE_TITLE, "run %d", heads[i]->run);
  window_of(rows, area.rows - 2, s->row < 0 ? rows - 1 : s->row, &first, &last);
  for (int row = first; row <= last; row++) draw_weights_row(cells, area, 2 + row - first, row, s, look, heads);
  if (first > 0) cells_put(cells, area, 1, 0, 1, ROLE_DIM, "↑");
  if (last < rows - 1) cells_put(cells, area, area.rows - 1, 0, 1, ROLE_DIM, "↓");
}

/* ---- all of it ------------------------------------------------------------------------------------------------------ */

static void draw_both(struct cells *cells, struct area area, const struct state *s, struct look *look, struct pair *p) {
  bool beside = area.columns >= 140;
  int layers = p->a->n_layer < 4 ? p->a->n_layer : 4, below = beside || area.rows < 12 ? 0 : layers + 2, first, last;
  int left = !beside ? area.columns : area.columns < 156 ? 84 : 94;
  struct area list = area_columns(area_rows(area, 3, area.rows - 3 - below), 0, left);
  window_of(p->steps, list.rows - 1, s->step, &first, &last);
  find_differences(look, p, last > s->step ? last : s->step);
  draw_words(cells, area_columns(area, 0, left), s, look, p);
  draw_list(cells, list, s, look, p, first, last);
  if (!beside && below == 0) return;
  struct area heads =
      beside ? area_columns(area, left + 2, area.columns - left - 2) : area_rows(area, area.rows - below, below);
  if (beside) cells_divider(cells, area, left);
  cells_rule(cells, heads, 0, "attention distance (0 alike, 1 disjoint)");
  draw_attention(cells, area_rows(heads, 1, heads.rows - 1), s, look, p);
  int used = 3 + p->a->n_layer; /* title, the chosen head's number, the layers, a blank line */
  if (beside) draw_weights(cells, area_rows(heads, used, heads.rows - used), s, look, p);
}

static void draw(struct cells *cells, struct area area, const struct state *s, struct look *look) {
  struct pair p = {.a = look_run(look, s->run)};
  int other = diverge_other(s->run, s->other_run, look_runs(look));
  if (!p.a) return;
  if (!other) {
    draw_absent(cells, area, "this trace has one run; comparing takes another",
                "kvstep run … -o TRACE --append --fault off-by-one");
    return;
  }
  p.b = look_run(look, other);
  if (!p.b) return;
  p.steps = p.a->steps > p.b->steps ? p.a->steps : p.b->steps;
  draw_both(cells, area, s, look, &p);
}

const struct view view_compare = {"compare", "this run beside another one, step by step", draw};
