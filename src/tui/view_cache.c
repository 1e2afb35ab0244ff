/* view_cache.c: the K and V rows of one layer, whole or as this head sees them, the new one marked, and what they cost in bytes. */
#include <math.h>
#include <stdio.h>

#include "base/plural.h"
#include "tui/view.h"

#define LEFT 23  /* columns for row, token and step */
#define NUMBER 8 /* for the norm */

/* What is shown of every row, and where. */
struct part {
  int first, count; /* numbers of the row */
  int heads;        /* that they are, side by side; 1: no lines between */
  int width;        /* columns of one graph with its norm */
};

static double norm_of(const float *values, int count) {
  double sum = 0;
  for (int i = 0; i < count; i++) sum += (double)values[i] * (double)values[i];
  return sqrt(sum);
}

/* The part that the state asks for; heads stand apart if each has room for two columns. */
static struct part part_of(const struct state *s, const struct look_run *run, int columns) {
  struct part part = {s->head * run->head_dim, run->head_dim, 1, (columns - LEFT) / 2};
  if (s->whole) {
    part.first = 0, part.count = run->n_embd;
    int room = part.width - NUMBER - 1;
    if (run->n_head > 1 && run->head_dim > 0 && room >= 3 * run->n_head) part.heads = run->n_head;
  }
  int most = NUMBER + 1 + part.count + part.heads - 1;
  if (part.width > most) part.width = most;
  return part;
}

/* Where the graph of one of the heads begins within a part, and how wide it is. */
static int head_column(const struct part *part, int head, int *width) {
  int room = part->width - NUMBER - 1, each = (room + 1) / part->heads - 1;
  if (part->heads == 1) each = room;
  *width = each;
  return NUMBER + head * (each + 1);
}

/* The part of k or v: its norm and a graph, or one for each head, all of one scale. */
static void draw_part(struct cells *cells, struct area area, int line, int at, const struct part *part, enum role role,
                      const float *values) {
  char number[24];
  const float *shown = values + part->first;
  double scale = vector_largest(shown, part->count);
  number_text(norm_of(shown, part->count), 7, number);
  cells_put(cells, area, line, at, 7, ROLE_DIM, number);
  for (int head = 0, each = part->count / part->heads, width; head < part->heads; head++) {
    int column = head_column(part, head, &width);
    cells_graph(cells, area, line, at + column, width, role, shown + head * each, each, scale);
  }
}

/* Row P until the append, and after it too if k and v went elsewhere. */
static const char *free_words(int row, const struct state *s, const struct place *place) {
  if (row != place->P) return NULL;
  if (!reached(s, KVS_APPEND)) return "free: the append of this step fills it";
  if (!place->written) return "never written: this step stored its k and v nowhere";
  return place->own == place->P ? NULL : "still free: this step wrote its k, v to another row";
}

static void draw_line(struct cells *cells, struct area area, int line, int row, const struct part *part,
                      const struct state *s, struct look *look, const struct look_run *run, const struct place *place) {
  bool own = row == place->own, new = own && place->written &&reached(s, KVS_APPEND);
  cells_putf(cells, area, line, 0, 6, row == place->here ? ROLE_HERE : ROLE_DIM, "%s%4d", own ? "▸" : " ", row);
  const char *words = free_words(row, s, place);
  if (words) {
    cells_put(cells, area, line, 7, -1, reached(s, KVS_APPEND) ? ROLE_WRONG : ROLE_FREE, words);
    return;
  }
  const struct look_row *kv = look_row(look, s->run, place->as_of, s->layer, row);
  if (!kv) {
    enum look_origin origin = look_row_origin(look, s->run, place->as_of, s->layer, row);
    enum role role = origin == LOOK_NOT_LOGGED ? ROLE_DIM : ROLE_WRONG;
    if (origin == LOOK_NOT_LOGGED)
      cells_put(cells, area, line, 7, 9, ROLE_TOKEN, look_row_text(look, s->run, place->as_of, s->layer, row));
    cells_put(cells, area, line, 17, -1, role, origin_words(origin));
    return;
  }
  cells_put(cells, area, line, 7, 9, new ? ROLE_NEW : ROLE_TOKEN,
            look_row_text(look, s->run, place->as_of, s->layer, row));
  if (kv->step != LOOK_NONE)
    cells_putf(cells, area, line, 17, 5, new &&row != place->P ? ROLE_WRONG : ROLE_DIM, "%4d", kv->step);
  enum role role = new ? ROLE_NEW : ROLE_BAR;
  bool shown = run->head_dim > 0 && part->first + part->count <= run->n_embd;
  if (shown && kv->k) draw_part(cells, area, line, LEFT, part, role, kv->k);
  if (shown && kv->v) draw_part(cells, area, line, LEFT + part->width, part, role, kv->v);
}

/* The names over the columns: |K| and K, or over each head's part its number. */
static void draw_header(struct cells *cells, struct area area, const struct part *part, const struct state *s) {
  static const char *const names[] = {"K", "V"};
  cells_put(cells, area, 1, 0, -1, ROLE_DIM, "  row  token     step");
  for (int i = 0; i < 2; i++) {
    int at = LEFT + i * part->width;
    cells_putf(cells, area, 1, at + 3, 5, ROLE_DIM, "|%s|", names[i]);
    for (int head = 0, width; head < part->heads; head++) {
      int column = head_column(part, head, &width);
      if (part->heads == 1)
        cells_put(cells, area, 1, at + column, width, ROLE_DIM, names[i]);
      else
        cells_putf(cells, area, 1, at + column, width, head == s->head ? ROLE_HERE : ROLE_DIM,
                   width >= 6 ? "head %d" : "%d", head);
    }
  }
}

/* What the whole cache costs, as far as there is room for it. */
static void draw_cost(struct cells *cells, struct area area, int at, const struct look_run *run, int rows) {
  double bytes = 2.0 * run->n_layer * run->n_embd * 4;
  char now[48], cost[128];
  if (rows < 0 || run->n_layer <= 0 || run->n_embd <= 0) return;
  snprintf(now, sizeof now, "%.1f KiB now", bytes * rows / 1024);
  snprintf(cost, sizeof cost, "%.0f bytes a row (2·%d·%d·4), %s", bytes, run->n_layer, run->n_embd, now);
  const char *told = at + text_columns(cost) <= area.columns ? cost : now;
  if (at + text_columns(told) <= area.columns) cells_put_right(cells, area, 0, area.columns, -1, ROLE_DIM, told);
}

/* Whether any row up to here was logged; the first may be missing when its step was, and the newest under a fault. */
static bool any_logged(const struct state *s, struct look *look, const struct place *place) {
  const struct look_append *append = look_append(look, s->run, s->step, s->layer);
  return (append && append->logged) || look_row(look, s->run, s->step, s->layer, 0) ||
         look_row(look, s->run, s->step, s->layer, place->here);
}

static void draw(struct cells *cells, struct area area, const struct state *s, struct look *look) {
  const struct look_run *run = look_run(look, s->run);
  struct place place;
  if (!run || !look_step(look, s->run, s->step)) return;
  place_of(s, look, &place);
  if (!any_logged(s, look, &place)) {
    draw_absent(cells, area, "K and V of this layer were not logged in this step",
                "kvstep run --log attention logs them");
    return;
  }
  struct part part = part_of(s, run, area.columns);
  int used = 0, first, last;
  if (s->whole)
    used = cells_putf(cells, area, 0, 0, -1, ROLE_TEXT, "layer %d, whole rows: %d head%s × %d", s->layer, run->n_head,
                      plural(run->n_head), run->head_dim);
  else
    used = cells_putf(cells, area, 0, 0, -1, ROLE_TEXT, "layer %d, head %d: dims %d..%d of %d", s->layer, s->head,
                      part.first, part.first + part.count - 1, run->n_embd);
  draw_cost(cells, area, used + 2, run, reached(s, KVS_APPEND) ? place.after : place.P);
  draw_header(cells, area, &part, s);
  window_of(place.rows, area.rows - 2, place.here, &first, &last);
  for (int row = first; row <= last; row++) draw_line(cells, area, 2 + row - first, row, &part, s, look, run, &place);
}

const struct view view_cache = {"cache", "the K and V rows of this layer (w: whole rows)", draw};
