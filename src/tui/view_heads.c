/* view_heads.c: every layer × head of one step as a small map of its weights over the rows; one of them is picked. */
#include <stdio.h>

#include "tui/view.h"

#define LEFT 5
#define TOKEN_FROM 14 /* columns of a head from which on its heaviest row's token is shown */

/* The weights of a head in `width` columns: each column shows the largest of its rows. */
static void draw_strip(struct cells *cells, struct area area, int line, int at, int width,
                       const struct look_head *head) {
  for (int c = 0; c < width; c++) {
    int from = (int)((long)head->rows * c / width), to = (int)((long)head->rows * (c + 1) / width);
    double most = 0; /* NaN if one of them is */
    if (head->rows < width) from = c, to = c < head->rows ? c + 1 : c;
    for (int i = from; i < to; i++)
      if (!((double)head->weights[i] <= most)) most = (double)head->weights[i];
    if (to > from) draw_weight(cells, area, line, at + c, most, head->rows);
  }
}

/* The picked head in words, where there is no line for each; returns the columns used. */
static int draw_picked(struct cells *cells, struct area area, int at, const struct state *s, struct look *look) {
  const struct look_head *h = look_head(look, s->run, s->step, s->layer, s->head);
  if (!h || !h->weights || h->rows <= 0) return 0;
  int best = heaviest_row(h);
  if (best < 0) return cells_put(cells, area, 0, at, -1, ROLE_WRONG, "; here: no numbers");
  return cells_putf(cells, area, 0, at, -1, ROLE_HERE, "; here: row %d %s %.2f", best,
                    look_row_text(look, s->run, s->step, s->layer, best), (double)h->weights[best]);
}

static void draw_head(struct cells *cells, struct area area, int line, int at, int width, int lines, int layer,
                      int head, const struct state *s, struct look *look, int *fetched) {
  bool here = layer == s->layer && head == s->head;
  const struct look_head *h = head_in_time(cells, look, s->run, s->step, layer, head, fetched);
  if (here) cells_put(cells, area, line, at - 1, 1, ROLE_HERE, "▸");
  if (!h || !h->weights || h->rows <= 0) {
    const char *words = !h && cells->unfinished ? "reading…" : "not logged";
    cells_put(cells, area, line, at, width, ROLE_DIM, width >= 10 ? words : !h && cells->unfinished ? "…" : "-");
    return;
  }
  draw_strip(cells, area, line, at, width, h);
  if (lines < 2) return;
  int best = heaviest_row(h);
  if (best < 0) {
    cells_put(cells, area, line + 1, at, width, ROLE_WRONG, "no numbers");
    return;
  }
  char text[64], number[24];
  int room = width - snprintf(number, sizeof number, "%d  %.2f", best, (double)h->weights[best]);
  const char *token = look_row_text(look, s->run, s->step, layer, best);
  if (width >= TOKEN_FROM)
    snprintf(text, sizeof text, "%d %.*s %.2f", best, text_fitting(token, room < 9 ? room : 9), token,
             (double)h->weights[best]);
  else
    snprintf(text, sizeof text, width >= 8 ? "%d %.2f" : "%d", best, (double)h->weights[best]);
  cells_put(cells, area, line + 1, at, width, here ? ROLE_HERE : ROLE_DIM, text);
}

/* Also true while that is not known yet. */
static bool layer_logged(struct cells *cells, struct look *look, const struct look_run *run, const struct state *s,
                         int layer, int *fetched) {
  for (int head = 0; head < run->n_head && head < 64; head++) {
    const struct look_head *h = head_in_time(cells, look, s->run, s->step, layer, head, fetched);
    if ((h && h->weights) || *fetched > HEADS_PER_FRAME) return true;
  }
  return false;
}

static void draw(struct cells *cells, struct area area, const struct state *s, struct look *look) {
  const struct look_run *run = look_run(look, s->run);
  if (!run || run->n_head <= 0 || run->n_layer <= 0) return;
  if (!reached(s, KVS_SOFTMAX)) {
    draw_absent(cells, area, "the weights are not there yet", "softmax is the sixth of the ten moments: Space goes on");
    return;
  }
  int width = (area.columns - LEFT) / run->n_head - 2;
  if (width > 40) width = 40;
  if (width < 1) width = 1;
  int per_line = (area.columns - LEFT) / (width + 2), first_head, last_head;
  window_of(run->n_head, per_line, s->head, &first_head, &last_head);
  int lines = (area.rows - 2) / run->n_layer >= 2 ? 2 : 1, first, last;
  if (lines == 2 && (area.rows - 2) / run->n_layer >= 3) lines = 3;
  window_of(run->n_layer, (area.rows - 2) / lines, s->layer, &first, &last);
  int fetched = 0;
  int used = cells_put(cells, area, 0, 0, -1, ROLE_DIM, "weights over the rows, old to new");
  if (lines > 1)
    used += cells_put(cells, area, 0, used, -1, ROLE_DIM,
                      width >= TOKEN_FROM ? "; below: heaviest row, token, weight" : "; below: the heaviest row");
  else
    used += draw_picked(cells, area, used, s, look);
  if (used + 17 <= area.columns) cells_put_right(cells, area, 0, area.columns, -1, ROLE_DIM, "Enter: step view");
  for (int head = first_head; head <= last_head; head++)
    cells_putf(cells, area, 1, LEFT + 1 + (head - first_head) * (width + 2), width,
               head == s->head ? ROLE_HERE : ROLE_DIM, width >= 7 ? "head %d" : "%d", head);
  for (int layer = first; layer <= last; layer++) {
    int line = 2 + (layer - first) * lines;
    cells_putf(cells, area, line, 0, LEFT, layer == s->layer ? ROLE_HERE : ROLE_DIM, "L%d", layer);
    if (!layer_logged(cells, look, run, s, layer, &fetched)) {
      cells_put(cells, area, line, LEFT + 1, -1, ROLE_DIM, "the weights of this layer were not logged");
      continue;
    }
    for (int head = first_head; head <= last_head; head++)
      draw_head(cells, area, line, LEFT + 1 + (head - first_head) * (width + 2), width, lines, layer, head, s, look,
                &fetched);
  }
}

const struct view view_heads = {"heads", "every layer × head in this step", draw};
