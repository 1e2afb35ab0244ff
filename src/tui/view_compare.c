/* view_compare.c: this run beside another: tokens, positions, the best next token and KL step by step, attention head by head. */
#include <limits.h>
#include <stdio.h>

#include "study/compare/diverge.h"
#include "tui/compare_pair.h"

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
  struct side sides[2] = {pair_side(look, p->a, step), pair_side(look, p->b, step)};
  bool here = step == s->step, both = sides[0].there && sides[1].there, late = false;
  bool same = sides[0].token == sides[1].token, parted = p->parted != LOOK_NONE && step >= p->parted;
  const struct numbers *n = pair_numbers(look, p, step, sides, words, &late);
  cells_putf(cells, area, line, 0, 5, here ? ROLE_HERE : ROLE_DIM, "%s%4d", here ? "▸" : " ", step);
  for (int i = 0; i < 2; i++) {
    draw_side(cells, area, line, c, i, &sides[i], both && !same ? ROLE_NEW : ROLE_TOKEN);
    if (n) pair_top_from_logits(&sides[i], n->tops[i]);
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
  struct side a = pair_side(look, p->a, p->first), b = pair_side(look, p->b, p->first);
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

/* ---- all of it ------------------------------------------------------------------------------------------------------ */

static void draw_both(struct cells *cells, struct area area, const struct state *s, struct look *look, struct pair *p) {
  bool beside = area.columns >= 140;
  int layers = p->a->n_layer < 4 ? p->a->n_layer : 4, below = beside || area.rows < 12 ? 0 : layers + 2, first, last;
  int left = !beside ? area.columns : area.columns < 156 ? 84 : 94;
  struct area list = area_columns(area_rows(area, 3, area.rows - 3 - below), 0, left);
  window_of(p->steps, list.rows - 1, s->step, &first, &last);
  pair_find_differences(look, p, last > s->step ? last : s->step);
  draw_words(cells, area_columns(area, 0, left), s, look, p);
  draw_list(cells, list, s, look, p, first, last);
  if (!beside && below == 0) return;
  struct area heads =
      beside ? area_columns(area, left + 2, area.columns - left - 2) : area_rows(area, area.rows - below, below);
  if (beside) cells_divider(cells, area, left);
  cells_rule(cells, heads, 0, "attention distance (0 alike, 1 disjoint)");
  compare_attention(cells, area_rows(heads, 1, heads.rows - 1), s, look, p);
  int used = 3 + p->a->n_layer; /* title, the chosen head's number, the layers, a blank line */
  if (beside) compare_weights(cells, area_rows(heads, used, heads.rows - used), s, look, p);
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
