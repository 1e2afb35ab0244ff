/* view_cache.c: the K and V rows of one layer as this head sees them, the new one marked, and what they cost in bytes. */
#include <math.h>
#include <stdio.h>

#include "tui/view.h"

static double norm_of(const float *values, int count) {
  double sum = 0;
  for (int i = 0; i < count; i++) sum += (double)values[i] * (double)values[i];
  return sqrt(sum);
}

/* A head's part of k or v: its norm and a graph in `width` columns. */
static void draw_part(struct cells *cells, struct area area, int line, int at, int width, enum role role,
                      const float *values, int count) {
  char number[24];
  number_text(norm_of(values, count), 7, number);
  cells_put(cells, area, line, at, 7, ROLE_DIM, number);
  cells_graph(cells, area, line, at + 8, width - 9, role, values, count, vector_largest(values, count));
}

static void draw_line(struct cells *cells, struct area area, int line, int row, int width, const struct state *s,
                      struct look *look, const struct look_run *run, const struct look_step *step) {
  bool own = row == step->length_before, here = row == s->row || (s->row < 0 && own);
  cells_putf(cells, area, line, 0, 6, here ? ROLE_HERE : ROLE_DIM, "%s%4d", own ? "▸" : " ", row);
  if (own && !reached(s, KVS_APPEND)) {
    cells_put(cells, area, line, 7, -1, ROLE_FREE, "free: the append of this step fills it");
    return;
  }
  cells_put(cells, area, line, 7, 9, own ? ROLE_NEW : ROLE_TOKEN, look_row_text(look, s->run, s->step, s->layer, row));
  const struct look_row *kv = look_row(look, s->run, s->step, s->layer, row);
  enum role role = own ? ROLE_NEW : ROLE_BAR;
  if (!kv) {
    cells_put(cells, area, line, 17, -1, ROLE_DIM, "not logged");
    return;
  }
  if (kv->step != LOOK_NONE) cells_putf(cells, area, line, 17, 5, ROLE_DIM, "%4d", kv->step);
  const float *k = head_part(run, kv->k, s->head), *v = head_part(run, kv->v, s->head);
  if (k) draw_part(cells, area, line, 23, width, role, k, run->head_dim);
  if (v) draw_part(cells, area, line, 23 + width, width, role, v, run->head_dim);
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

static void draw(struct cells *cells, struct area area, const struct state *s, struct look *look) {
  const struct look_run *run = look_run(look, s->run);
  const struct look_step *step = look_step(look, s->run, s->step);
  if (!run || !step) return;
  if (!look_row(look, s->run, s->step, s->layer, 0)) {
    draw_absent(cells, area, "K and V of this layer were not logged in this step",
                "kvstep run --log attention logs them");
    return;
  }
  int used = cells_putf(cells, area, 0, 0, -1, ROLE_TEXT, "layer %d, head %d: dims %d..%d of %d", s->layer, s->head,
                        s->head * run->head_dim, (s->head + 1) * run->head_dim - 1, run->n_embd);
  draw_cost(cells, area, used + 2, run, reached(s, KVS_APPEND) ? step->length_after : step->length_before);
  int width = (area.columns - 23) / 2, first, last, count = step->length_before + 1;
  if (width > run->head_dim + 9) width = run->head_dim + 9;
  cells_put(cells, area, 1, 0, -1, ROLE_DIM, "  row  token     step");
  cells_put(cells, area, 1, 26, width - 4, ROLE_DIM, "|K|  K");
  cells_put(cells, area, 1, 26 + width, width - 4, ROLE_DIM, "|V|  V");
  window_of(count, area.rows - 2, s->row < 0 ? count - 1 : s->row, &first, &last);
  for (int row = first; row <= last; row++) draw_line(cells, area, 2 + row - first, row, width, s, look, run, step);
}

const struct view view_cache = {"cache", "the K and V rows of this layer", draw};
