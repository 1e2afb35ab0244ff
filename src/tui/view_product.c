/* view_product.c: how one score comes about: q·K[row], dimension by dimension, and the sum over √head_dim. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tui/view.h"

#define ENTRY 38 /* columns of one dimension: dim, q, k, product, bar */

/* Order of dimensions by the size of their product, for when not all fit. */
struct product {
  int dim;
  double value;
};

static int by_size(const void *left, const void *right) {
  const struct product *a = left, *b = right;
  if (fabs(a->value) != fabs(b->value)) return fabs(a->value) > fabs(b->value) ? -1 : 1;
  return a->dim - b->dim;
}

static int by_dim(const void *left, const void *right) {
  return ((const struct product *)left)->dim - ((const struct product *)right)->dim;
}

static void draw_product(struct cells *cells, struct area area, const struct product *p, const float *q, const float *k,
                         double most) {
  char a[24], b[24], c[24];
  number_text((double)q[p->dim], 7, a);
  number_text((double)k[p->dim], 7, b);
  number_text(p->value, 7, c);
  cells_putf(cells, area, 0, 0, -1, ROLE_DIM, "%3d", p->dim);
  cells_putf(cells, area, 0, 4, -1, ROLE_TEXT, "%s ×%s =", a, b);
  cells_put(cells, area, 0, 22, 7, ROLE_TEXT, c);
  cells_bar(cells, area, 0, 30, area.columns - 31, p->value < 0 ? ROLE_NEGATIVE : ROLE_BAR,
            most > 0 ? fabs(p->value) / most : 0);
}

static void draw_products(struct cells *cells, struct area area, struct product *products, int count, const float *q,
                          const float *k) {
  int across = area.columns / ENTRY > 0 ? area.columns / ENTRY : 1, room = across * (area.rows - 1), shown = count;
  qsort(products, (size_t)count, sizeof *products, by_size);
  double most = fabs(products[0].value), rest = 0;
  if (count > room) {
    shown = room;
    for (int i = shown; i < count; i++) rest += products[i].value;
    cells_putf(cells, area, area.rows - 1, 0, -1, ROLE_DIM, "… and %d smaller products, together %.3f", count - shown,
               rest);
  }
  qsort(products, (size_t)shown, sizeof *products, by_dim);
  int lines = (shown + across - 1) / across, width = area.columns / across;
  for (int i = 0; i < shown; i++) {
    struct area entry = area_columns(area_rows(area, i % lines, 1), i / lines * width, width);
    draw_product(cells, entry, &products[i], q, k, most);
  }
}

/* From the sum to the logged score. A model may scale in another way (config.json says so), then only the score is told. */
static void draw_score(struct cells *cells, struct area area, const struct state *s, const struct look_head *head,
                       int row, double sum, int d) {
  int at = 0;
  if (row >= head->rows) {
    at = cells_put(cells, area, 1, 0, -1, ROLE_WRONG, "this row was not attended to: it has no score") + 3;
  } else if (head->scores) {
    double score = (double)head->scores[row], scaled = sum / sqrt(d);
    at = cells_putf(cells, area, 1, 0, -1, ROLE_NEW, "score = ");
    if (fabs(scaled - score) <= 1e-4 * (1 + fabs(score)))
      at += cells_putf(cells, area, 1, at, -1, ROLE_NEW, "%.4f / %s%d = ", sum, root_sign(cells), d);
    at += cells_putf(cells, area, 1, at, -1, ROLE_NEW, "%.4f", score) + 3;
  }
  if (head->weights && row < head->rows && reached(s, KVS_SOFTMAX))
    at += cells_putf(cells, area, 1, at, -1, ROLE_NEW, "weight %.4f", (double)head->weights[row]) + 3;
  if (at + 17 <= area.columns) cells_put(cells, area, 1, at, -1, ROLE_DIM, "↑↓: another row");
}

static void draw(struct cells *cells, struct area area, const struct state *s, struct look *look) {
  const struct look_run *run = look_run(look, s->run);
  const struct look_step *step = look_step(look, s->run, s->step);
  const struct look_head *head = look_head(look, s->run, s->step, s->layer, s->head);
  if (!run || !step) return;
  if (!reached(s, KVS_SCORE)) {
    draw_absent(cells, area, "the scores are not there yet", "they are the fifth of the ten moments: Space goes on");
    return;
  }
  struct place place;
  place_of(s, look, &place);
  int row = place.here, d = run->head_dim;
  const struct look_row *kv = look_row(look, s->run, s->step, s->layer, row);
  enum look_origin origin = look_row_origin(look, s->run, s->step, s->layer, row);
  if (!kv && origin != LOOK_NOT_LOGGED) {
    char words[64];
    snprintf(words, sizeof words, "K[%d]: %s", row, origin_words(origin));
    draw_absent(cells, area, words, "so there are no numbers to show; ↑↓ choose another row");
    return;
  }
  struct product *products = calloc((size_t)(d > 0 ? d : 1), sizeof *products);
  if (!head || !head->q || !kv || !head_part(run, kv->k, s->head) || !products) {
    draw_absent(cells, area, "q or K[row] was not logged for this step, layer and head",
                "kvstep run --log attention logs both");
    free(products);
    return;
  }
  const float *k = head_part(run, kv->k, s->head);
  double sum = 0;
  for (int i = 0; i < d; i++) {
    products[i] = (struct product){i, (double)head->q[i] * (double)k[i]};
    sum += products[i].value;
  }
  cells_putf(cells, area, 0, 0, -1, ROLE_TEXT, "q of step %d · K[%d] %s = the sum of the products = %.4f", s->step, row,
             look_row_text(look, s->run, s->step, s->layer, row), sum);
  draw_score(cells, area, s, head, row, sum, d);
  draw_products(cells, area_rows(area, 3, area.rows - 3), products, d, head->q, k);
  free(products);
}

const struct view view_product = {"q·k", "the products that make one score", draw};
