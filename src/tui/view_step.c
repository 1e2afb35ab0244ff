/* view_step.c: the nine moments of one token on the left, the rows it attends to on the right. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tui/moment_words.h"
#include "tui/predict.h"
#include "tui/view.h"

/* Columns of the moments' pane, on a narrow screen and on others. */
static int left_columns(int columns) { return columns < 76 ? 32 : 42; }

/* Where a line of the rows' table has what. */
struct table {
  int token;   /* columns of the token's text */
  int graphs;  /* columns of K's and of V's graph; 0: there is no room */
  int numbers; /* where the score begins, and the weight and its bar after it */
};

static struct table table_of(int columns, const struct look_run *run) {
  struct table table = {.token = columns < 34 ? 6 : 9};
  if (columns >= 100 && run->head_dim > 0) table.graphs = (columns - 60) / 2;
  if (table.graphs > run->head_dim) table.graphs = run->head_dim > 0 ? run->head_dim : 0;
  table.numbers = columns < 34 ? 12 : table.graphs > 0 ? 20 + 2 * table.graphs : 16;
  return table;
}

static const char *const labels[KVS_PHASE_COUNT] = {"read",    "embed", "project", "append", "score",
                                                    "softmax", "mix",   "output",  "mlp",    "logits"};

static void draw_moments(struct cells *cells, struct area area, const struct state *s, struct look *look,
                         const struct place *place) {
  int first, last;
  window_of(KVS_PHASE_COUNT, area.rows, (int)s->moment, &first, &last);
  for (int phase = first; phase <= last; phase++) {
    int line = phase - first;
    bool come = reached(s, (kvs_phase)phase), now = s->moment == (kvs_phase)phase;
    enum role role = now ? ROLE_NEW : come ? ROLE_TEXT : ROLE_DIM;
    cells_putf(cells, area, line, 0, -1, role, "%s%2d %s", now ? "▸" : " ", phase + 1, labels[phase]);
    if (!come) continue;
    char text[96];
    int width = area.columns - 12;
    bool kept = moment_words(cells, (kvs_phase)phase, s, look, place, width, text, sizeof text);
    if (!kept) role = ROLE_WRONG;
    if (text_columns(text) <= width)
      cells_put(cells, area, line, 12, width, role, text); /* no colour, no underline behind the words */
    else
      cells_put_field(cells, area, line, 12, width, role, text);
  }
}

static void draw_vector(struct cells *cells, struct area area, int row, const char *name, const float *values,
                        int count) {
  cells_put(cells, area, row, 1, 5, ROLE_DIM, name);
  if (!values) {
    cells_put(cells, area, row, 6, -1, ROLE_DIM, "not logged");
    return;
  }
  double norm = 0;
  for (int i = 0; i < count; i++) norm += (double)values[i] * (double)values[i];
  char number[24];
  number_text(sqrt(norm), 7, number);
  cells_graph(cells, area, row, 6, area.columns - 20, ROLE_BAR, values, count, vector_largest(values, count));
  cells_putf(cells, area, row, area.columns - 13, -1, ROLE_DIM, "norm%s", number);
}

/* The vectors that the current moment is about, as small graphs. */
static void draw_vectors(struct cells *cells, struct area area, const struct state *s, struct look *look,
                         const struct look_run *run, const struct look_head *head, const struct place *place) {
  int d = run->head_dim, n = run->n_embd;
  if (s->moment == KVS_EMBED) {
    const struct look_vectors *v = look_vectors(look, s->run, s->step);
    draw_vector(cells, area, 0, "wte", v ? v->wte : NULL, n);
    draw_vector(cells, area, 1, "wpe", v ? v->wpe : NULL, n);
    draw_vector(cells, area, 2, "x", v ? v->x : NULL, n);
  } else if (s->moment == KVS_OUTPUT || s->moment == KVS_MLP) {
    const struct look_layer *l = look_layer(look, s->run, s->step, s->layer);
    draw_vector(cells, area, 0, s->moment == KVS_OUTPUT ? "attn" : "mlp",
                l ? s->moment == KVS_OUTPUT ? l->attn_out : l->mlp_out : NULL, n);
    draw_vector(cells, area, 1, "x", l ? s->moment == KVS_OUTPUT ? l->x_mid : l->x_out : NULL, n);
  } else if (reached(s, KVS_PROJECT)) {
    const struct look_row *own = look_row(look, s->run, s->step, s->layer, place->own);
    draw_vector(cells, area, 0, "q", head ? head->q : NULL, d);
    /* Of k and v the trace has what was appended. Where that is zeros, it is not what was projected. */
    const char *zeros = s->moment < KVS_APPEND ? zeros_written(s, look, place) : "";
    draw_vector(cells, area, 1, "k", own && !strchr(zeros, 'K') ? head_part(run, own->k, s->head) : NULL, d);
    draw_vector(cells, area, 2, "v", own && !strchr(zeros, 'V') ? head_part(run, own->v, s->head) : NULL, d);
    if (reached(s, KVS_MIX)) draw_vector(cells, area, 3, "out", head ? head->out : NULL, d);
  }
}

/* K and V of this head in a row, side by side. */
static void draw_row_graphs(struct cells *cells, struct area area, int line, int row, int width, enum role role,
                            const struct state *s, struct look *look, const struct look_run *run, int as_of) {
  const struct look_row *kv = look_row(look, s->run, as_of, s->layer, row);
  const float *k = kv ? head_part(run, kv->k, s->head) : NULL, *v = kv ? head_part(run, kv->v, s->head) : NULL;
  int d = run->head_dim;
  if (k) cells_graph(cells, area, line, 16, width, role, k, d, vector_largest(k, d));
  if (v) cells_graph(cells, area, line, 18 + width, width, role, v, d, vector_largest(v, d));
}

/* A row that holds nothing: row P until the append, and after it too if k and v went elsewhere. */
static bool draw_free(struct cells *cells, struct area area, int line, int row, const struct state *s,
                      const struct place *place) {
  bool appended = reached(s, KVS_APPEND), missed = !place->written || place->own != place->P;
  if (row != place->P || (appended && !missed)) return false;
  bool narrow = area.columns < 34, wide = area.columns >= 44;
  char words[64];
  if (!appended)
    snprintf(words, sizeof words, narrow ? "free: k, v go here" : "free: k, v will go here");
  else if (!place->written)
    snprintf(words, sizeof words, wide ? "never written: k, v were not stored" : "never written");
  else
    snprintf(words, sizeof words, narrow ? "free: k, v to %d" : "still free: k, v went to row %d", place->own);
  cells_put_field(cells, area, line, 6, area.columns - 6, appended ? ROLE_WRONG : ROLE_FREE, words);
  return true;
}

/* The score and the weight of a row, as far as the moments have come. Returns whether there is a score or weight at all. */
static bool draw_numbers(struct cells *cells, struct area area, int line, int row, int at, int room,
                         const struct state *s, struct look *look, const struct look_head *head) {
  char number[24];
  struct prediction asked;
  if (!head || row >= head->rows) return false;
  prediction_open(s, look, &asked);
  if (prediction_hides_scores(&asked)) {
    cells_put(cells, area, line, at + 6, 1, ROLE_INPUT, "?");
  } else if (head->scores && reached(s, KVS_SCORE)) {
    number_text((double)head->scores[row], 7, number);
    cells_put(cells, area, line, at, 7, s->moment == KVS_SCORE ? ROLE_NEW : ROLE_TEXT, number);
  }
  if (head->weights && reached(s, KVS_SOFTMAX)) {
    enum role shown = s->moment == KVS_SOFTMAX ? ROLE_NEW : ROLE_TEXT;
    cells_putf(cells, area, line, at + 7, 7, shown, "%7.3f", (double)head->weights[row]);
    cells_bar(cells, area, line, at + 15, room, ROLE_BAR, (double)head->weights[row]);
  }
  return true;
}

/* The heaviest row in words; the token gives way to the numbers. */
static void draw_most(struct cells *cells, struct area area, const struct state *s, struct look *look,
                      const struct place *place, int row, double weight) {
  const char *token = look_row_text(look, s->run, place->as_of, s->layer, row);
  char number[24];
  bool narrow = area.columns < 42;
  int digits = snprintf(number, sizeof number, "%d", row), room = area.columns - 12 - (narrow ? 13 : 18) - digits;
  cells_putf(cells, area, KVS_PHASE_COUNT, 12, -1, ROLE_TITLE,
             narrow ? "most: %d %.*s %.3f" : "most: row %d %.*s, %.3f", row, text_fitting(token, room < 9 ? room : 9),
             token, weight);
}

/* One line of the rows' table; what the moment has not reached stays empty. */
static void draw_row(struct cells *cells, struct area area, int line, int row, const struct state *s, struct look *look,
                     const struct look_run *run, const struct look_head *head, const struct place *place) {
  bool own = row == place->own, new = own && place->written &&reached(s, KVS_APPEND);
  struct table table = table_of(area.columns, run);
  bool itself =
      area.columns - table.numbers > 24; /* there is room for the word, behind every row's bar: one scale for all */
  int at = table.numbers, room = area.columns - at - 15 - (itself ? 7 : 0);
  cells_putf(cells, area, line, 0, 5, row == place->here ? ROLE_HERE : ROLE_DIM, "%s%4d", own ? "▸" : " ", row);
  bool empty = draw_free(cells, area, line, row, s, place);
  if (empty && (!head || row >= head->rows || !reached(s, KVS_SCORE))) return;
  if (empty) cells_put_field(cells, area, line, 6, area.columns - 6, ROLE_TEXT, ""); /* its numbers are needed more */
  enum look_origin origin = look_row_origin(look, s->run, place->as_of, s->layer, row);
  if (origin == LOOK_NEVER || origin == LOOK_EARLIER)
    cells_put(cells, area, line, 6, 9, ROLE_WRONG,
              origin == LOOK_NEVER ? table.token < 9 ? "never" : "unwritten"
              : table.token < 9    ? "older"
                                   : "earlier");
  else
    cells_put(cells, area, line, 6, table.token, new ? ROLE_NEW : ROLE_TOKEN,
              look_row_text(look, s->run, place->as_of, s->layer, row));
  if (table.graphs > 0)
    draw_row_graphs(cells, area, line, row, table.graphs, new ? ROLE_NEW : ROLE_TEXT, s, look, run, place->as_of);
  bool attended = draw_numbers(cells, area, line, row, at, room, s, look, head);
  if (!attended && head && head->rows > 0 && reached(s, KVS_SCORE))
    cells_put(cells, area, line, at + 1, -1, own ? ROLE_WRONG : ROLE_DIM, "not attended");
  else if (own && itself)
    cells_put_right(cells, area, line, area.columns, 6, ROLE_DIM, "itself");
}

static void draw_rows(struct cells *cells, struct area area, const struct state *s, struct look *look,
                      const struct look_run *run, const struct look_head *head, const struct place *place) {
  int first, last;
  struct table table = table_of(area.columns, run);
  cells_put(cells, area, 0, 1, -1, ROLE_DIM, " row token");
  if (table.graphs > 0) {
    cells_put(cells, area, 0, 16, table.graphs, ROLE_DIM, "K");
    cells_put(cells, area, 0, 18 + table.graphs, table.graphs, ROLE_DIM, "V");
  }
  cells_put(cells, area, 0, table.numbers + 2, -1, ROLE_DIM, head ? "score weight" : "not logged");
  if (!place->known && (!head || head->rows <= 0)) {
    cells_put(cells, area, 2, 2, -1, ROLE_DIM, "the trace does not say");
    cells_put(cells, area, 3, 2, -1, ROLE_DIM, "which rows there were");
    return;
  }
  int most = reached(s, KVS_SOFTMAX) ? heaviest_row(head) : -1;
  window_of(place->rows, area.rows - 1, place->here, &first, &last);
  for (int row = first; row <= last; row++) draw_row(cells, area, 1 + row - first, row, s, look, run, head, place);
  if (most >= 0 && (most < first || most > last)) {
    cells_put_field(cells, area, 0, 1, area.columns - 1, ROLE_TEXT, "");
    cells_putf(cells, area, 0, 2, -1, ROLE_TITLE,
               area.columns < 34 ? "most: row %d, %.3f" : "most: row %d, weight %.3f", most,
               (double)head->weights[most]);
  }
  if (first > 0) cells_putf(cells, area, 0, 0, 1, ROLE_DIM, "↑");
  if (last < place->rows - 1) cells_put_right(cells, area, area.rows - 1, area.columns, 1, ROLE_DIM, "↓");
}

static void draw(struct cells *cells, struct area area, const struct state *s, struct look *look) {
  const struct look_run *run = look_run(look, s->run);
  const struct look_step *step = look_step(look, s->run, s->step);
  const struct look_head *head = look_head(look, s->run, s->step, s->layer, s->head);
  struct place place;
  if (!run || !step) return;
  place_of(s, look, &place);
  int width = left_columns(area.columns);
  struct area left = area_columns(area, 0, width);
  struct area right = area_columns(area, width + 2, area.columns - width - 2);
  cells_divider(cells, area, width);
  draw_moments(cells, left, s, look, &place);
  int most = reached(s, KVS_SOFTMAX) ? heaviest_row(head) : -1;
  if (most >= 0 && left.rows > KVS_PHASE_COUNT)
    draw_most(cells, left, s, look, &place, most, (double)head->weights[most]);
  if (!head)
    cells_putf(cells, left, KVS_PHASE_COUNT, 1, -1, ROLE_TITLE, "layer %d head %d: not logged%s", s->layer, s->head,
               width < 42 ? "" : " (--layers)");
  if (left.rows > KVS_PHASE_COUNT + 1)
    draw_vectors(cells, area_rows(left, KVS_PHASE_COUNT + 1, left.rows - KVS_PHASE_COUNT - 1), s, look, run, head,
                 &place);
  draw_rows(cells, right, s, look, run, head, &place);
}

const struct view view_step = {"step", "this token's moments and the rows it attends to", draw};
