/* rule_lines.c: the rule in words, and the cache of one layer as a line of slots with where t points below it. */
#include "tui/rule_lines.h"

#include <stdio.h>
#include <string.h>

#include "base/plural.h"
#include "tui/moment_words.h"

/* What the append did, or that it is still to come; *wrong: not what the rule says. */
static void append_words(char *text, size_t size, const struct state *s, struct look *look, const struct look_step *t,
                         const struct place *place, const struct prediction *asked, bool *wrong) {
  char number[16];
  prediction_number(asked, place->after, number);
  const char *zeros = reached(s, KVS_APPEND) ? zeros_written(s, look, place) : "";
  *wrong = true;
  if (place->P != t->length_before)
    snprintf(text, size, "WRONG: layer %d holds %d row%s", s->layer, place->P, plural(place->P));
  else if (!reached(s, KVS_APPEND))
    snprintf(text, size, "it still holds %d row%s ", place->P, plural(place->P)), *wrong = false;
  else if (!place->written)
    snprintf(text, size, "WRONG: no row was written");
  else if (*zeros)
    snprintf(text, size, "WRONG: row %d: %s zeros", place->own, zeros);
  else if (place->own != place->P)
    snprintf(text, size, "WRONG: row %d, not row %d", place->own, place->P);
  else if (place->after == LOOK_NONE)
    *text = '\0', *wrong = false; /* nobody says how long it is now */
  else if (place->after != place->P + 1)
    snprintf(text, size, "WRONG: length %d → %s", place->P, number);
  else
    snprintf(text, size, "append: length %d → %s ", place->P, number), *wrong = false;
}

/* The rule in words where the position is right; the append's own mistakes at the right. */
static void draw_kept(struct cells *cells, struct area area, int at, const struct state *s, struct look *look,
                      const struct look_step *t, const struct place *place, const struct prediction *asked) {
  char rule[64], append[64];
  bool wrong;
  append_words(append, sizeof append, s, look, t, place, asked, &wrong);
  plain_signs(cells, append, sizeof append);
  snprintf(rule, sizeof rule, "t = cache length read before the append = %d", t->length_before);
  int room = area.columns - at - 2 - text_columns(append);
  if (wrong && text_columns(rule) > room) snprintf(rule, sizeof rule, "t = length before = %d", t->length_before);
  cells_put(cells, area, 0, at, -1, ROLE_RIGHT, rule);
  enum role role = wrong ? ROLE_WRONG : reached(s, KVS_APPEND) ? ROLE_NEW : ROLE_DIM;
  if (text_columns(rule) <= room) cells_put_right(cells, area, 0, area.columns, 40, role, append);
}

/* The rule in words: what t is, or under a fault what was used instead. */
static void draw_words(struct cells *cells, struct area area, const struct state *s, struct look *look,
                       const struct look_step *t, const struct place *place, const struct prediction *asked) {
  int P = t->length_before;
  char number[16];
  int at = 1 + cells_put(cells, area, 0, 1, -1, ROLE_TITLE, "rule") + 2;
  if (P == LOOK_NONE) {
    cells_put(cells, area, 0, at, -1, ROLE_DIM, "the trace does not say how long the cache was");
  } else if (t->position == P) {
    draw_kept(cells, area, at, s, look, t, place, asked);
  } else if (t->position == LOOK_NONE) {
    cells_putf(cells, area, 0, at, -1, ROLE_WRONG, "WRONG: no position was added; wpe[%d] is right", P);
  } else {
    prediction_number(asked, t->position, number);
    const char *how = t->position == P + 1 ? ", read after the append" : t->position == 0 ? ", started again at 0" : "";
    char words[128];
    snprintf(words, sizeof words, "WRONG: t = %s%s: wpe[%s] used, wpe[%d] right", number, how, number, P);
    if (at + text_columns(words) > area.columns) /* the numbers matter more than the reason */
      snprintf(words, sizeof words, "WRONG: t = %s: wpe[%s] used, wpe[%d] right", number, number, P);
    cells_put(cells, area, 0, at, -1, ROLE_WRONG, words);
  }
}

/* One row of the cache as a slot: ■ holds a row, □ is free, × was skipped; in a colour of its own what was there before the run. */
static void draw_slot(struct cells *cells, struct area area, int at, int slot, const struct state *s, struct look *look,
                      const struct place *place) {
  bool appended = reached(s, KVS_APPEND);
  const char *zeros = appended && place->written && slot == place->own ? zeros_written(s, look, place) : "";
  bool right = place->written && place->own == place->P && !*zeros, nothing = strchr(zeros, 'K') && strchr(zeros, 'V');
  enum look_origin origin = look_row_origin(look, s->run, place->as_of, s->layer, slot);
  if (appended && place->written && slot == place->own)
    cells_put(cells, area, 1, at, 1, right ? ROLE_NEW : ROLE_WRONG, nothing ? "×" : "■");
  else if (slot == place->P)
    cells_put(cells, area, 1, at, 1, appended ? ROLE_WRONG : ROLE_FREE, place->written || !appended ? "□" : "×");
  else if (slot > place->P)
    cells_put(cells, area, 1, at, 1, ROLE_DIM, "·");
  else if (origin == LOOK_NEVER)
    cells_put(cells, area, 1, at, 1, ROLE_WRONG, "×");
  else
    cells_put(cells, area, 1, at, 1, origin == LOOK_EARLIER ? ROLE_WRONG : ROLE_BAR,
              origin == LOOK_EARLIER ? "?" : "■");
}

/* What is to be said of the slots. */
static void slot_words(char *text, size_t size, const struct state *s, struct look *look, const struct place *place) {
  const struct look_append *first = look_append(look, s->run, 0, s->layer);
  int used = 0;
  if (!reached(s, KVS_APPEND))
    used = snprintf(text, size, "row %d free", place->P);
  else if (!place->written)
    used = snprintf(text, size, "row %d not written", place->P);
  else if (place->own == place->P && *zeros_written(s, look, place))
    used = snprintf(text, size, "row %d: %s zeros", place->P, zeros_written(s, look, place));
  else if (place->own == place->P)
    used = snprintf(text, size, "row %d new", place->P);
  else
    used = snprintf(text, size, "row %d %s, %d free", place->own, place->own < place->P ? "again" : "new", place->P);
  if (first && first->before > 0)
    snprintf(text + used, size - (size_t)used, "; 0..%d from before this run", first->before - 1);
}

/* Where t points; beyond the line's end at its end, with an arrow that way. */
static void draw_pointer(struct cells *cells, struct area area, int label, int first, const struct look_step *t,
                         const struct prediction *asked) {
  if (t->position == LOOK_NONE) return;
  int at = t->position >= first ? t->position - first < area.columns ? label + t->position - first : area.columns
                                : label - 1;
  const char *arrow = at > area.columns - 2 ? "→" : "↑";
  if (at > area.columns - 2) at = area.columns - 2;
  enum role role = t->position == t->length_before ? ROLE_RIGHT : ROLE_WRONG;
  char pointer[32], number[16];
  snprintf(pointer, sizeof pointer, "t = %s", prediction_number(asked, t->position, number));
  cells_put(cells, area, 2, at, 1, role, arrow);
  cells_put(cells, area, 2, at + 2 + text_columns(pointer) < area.columns ? at + 2 : at - 1 - text_columns(pointer), -1,
            role, pointer);
}

/* The cache as a line of slots, one for each row of this layer, and below them where t points. */
static void draw_slots(struct cells *cells, struct area area, const struct state *s, struct look *look,
                       const struct look_step *t, const struct place *place, const struct prediction *asked) {
  int P = place->P, label = 7;
  char words[96];
  slot_words(words, sizeof words, s, look, place);
  int wide = text_columns(words) + 2, room = area.columns - label - (wide < 40 ? wide : 40);
  if (!place->known || room < 4) return;
  int first = P + 2 > room ? P + 2 - room : 0;
  cells_put(cells, area, 1, 1, -1, ROLE_DIM, "cache");
  if (prediction_hides_slots(asked, s)) {
    cells_put(cells, area, 1, label, -1, ROLE_INPUT, "?");
    cells_putf(cells, area, 1, label + 2, -1, ROLE_DIM, "slot %d new", P);
    return; /* nor where t points, since that is one of the slots */
  }
  if (first > 0) cells_put(cells, area, 1, label - 1, -1, ROLE_DIM, "…");
  for (int slot = first; slot <= P + 1; slot++) draw_slot(cells, area, label + slot - first, slot, s, look, place);
  cells_put(cells, area, 1, label + P + 2 - first + 1, -1, ROLE_DIM, words);
  draw_pointer(cells, area, label, first, t, asked);
}

void rule_lines_draw(struct cells *cells, struct area area, const struct state *s, struct look *look,
                     const struct look_step *t, const struct place *place, const struct prediction *asked) {
  draw_words(cells, area, s, look, t, place, asked);
  draw_slots(cells, area, s, look, t, place, asked);
}
