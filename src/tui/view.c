/* view.c: what several views need: numbers in few columns, windows of long lists, saying that something is not there. */
#include "tui/view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const struct view *const views[VIEW_COUNT] = {&view_step,      &view_cache, &view_map,     &view_heads, &view_product,
                                              &view_embedding, &view_next,  &view_compare, &view_sql};

void number_text(double value, int width, char *text) {
  char room[24];
  double size = fabs(value);
  if (isnan(value))
    snprintf(room, sizeof room, "nan");
  else if (isinf(value))
    snprintf(room, sizeof room, value > 0 ? "inf" : "-inf");
  else if (size != 0 && (size < 0.0005 || size >= 99999.5))
    snprintf(room, sizeof room, "%.*e", width > 9 ? 2 : width > 7 ? 1 : 0, value);
  else
    snprintf(room, sizeof room, "%.*f", size >= 999.5 ? 0 : size >= 99.95 ? 1 : size >= 9.995 ? 2 : 3, value);
  snprintf(text, 24, "%*s", width, room);
}

double vector_largest(const float *values, int count) {
  double most = 0;
  for (int i = 0; values && i < count; i++)
    if (fabs((double)values[i]) > most) most = fabs((double)values[i]);
  return most;
}

void draw_absent(struct cells *cells, struct area area, const char *what, const char *remedy) {
  int row = area.rows / 2 - 1;
  int what_at = (area.columns - text_columns(what)) / 2, remedy_at = (area.columns - text_columns(remedy)) / 2;
  cells_put(cells, area, row < 0 ? 0 : row, what_at < 0 ? 0 : what_at, -1, ROLE_TEXT, what);
  cells_put(cells, area, row < 0 ? 1 : row + 1, remedy_at < 0 ? 0 : remedy_at, -1, ROLE_DIM, remedy);
}

void window_of(int count, int room, int at, int *first, int *last) {
  if (room < 0) room = 0;
  *first = at - room / 2;
  if (*first > count - room) *first = count - room;
  if (*first < 0) *first = 0;
  *last = *first + room - 1 < count - 1 ? *first + room - 1 : count - 1;
}

double weight_shade(double weight, int rows) {
  double shares = weight * rows, least = 0.5; /* of an even share: below it brightness is in proportion */
  if (!(shares > least)) return shares / 2;   /* NaN too */
  return 0.25 + 0.75 * log(shares / least) / log(rows / least);
}

const struct look_head *head_in_time(struct cells *cells, struct look *look, int run, int step, int layer, int head,
                                     int *fetched) {
  if (cells->hurried && !look_has_head(look, run, step, layer, head) && ++*fetched > HEADS_PER_FRAME) {
    cells->unfinished = true;
    return NULL;
  }
  return look_head(look, run, step, layer, head);
}

void draw_weight(struct cells *cells, struct area area, int row, int column, double weight, int rows) {
  cells_heat(cells, area, row, column, 1, weight_shade(weight, rows));
  const struct cell *cell = cells_at(cells, area.row + row, area.column + column);
  if (row >= area.rows || column >= area.columns || !cell || strcmp(cell->text, " ") != 0) return;
  cells_put(cells, area, row, column, 1, (enum role)cell->role, cells->ascii ? "," : "·");
}

int heaviest_row(const struct look_head *head) {
  int best = -1;
  for (int row = 0; head && head->weights && row < head->rows; row++)
    if (!isnan(head->weights[row]) && (best < 0 || head->weights[row] > head->weights[best])) best = row;
  return best;
}

const char *root_sign(const struct cells *cells) { return cells->ascii ? "sqrt " : "√"; }

void plain_signs(const struct cells *cells, char *text, size_t size) {
  static const char *const signs[][2] = {{"→", "->"}, {"←", "<-"}, {"√", "sqrt "}, {"Σ", "sum"}};
  for (size_t i = 0; cells->ascii && i < sizeof signs / sizeof *signs; i++) {
    size_t from = strlen(signs[i][0]), to = strlen(signs[i][1]);
    for (char *at = text; (at = strstr(at, signs[i][0])); at += to) {
      size_t rest = strlen(at + from) + 1;
      if ((size_t)(at - text) + to + rest > size) return; /* no words of ours are so long */
      memmove(at + to, at + from, rest);
      memcpy(at, signs[i][1], to);
    }
  }
}

const float *head_part(const struct look_run *run, const float *row, int head) {
  if (!row || run->head_dim <= 0 || head < 0 || head >= run->n_head) return NULL;
  return row + (size_t)head * (size_t)run->head_dim;
}

static int most(int a, int b) { return a > b ? a : b; }

void place_of(const struct state *s, struct look *look, struct place *place) {
  const struct look_append *append = look_append(look, s->run, s->step, s->layer);
  *place = (struct place){.after = append ? append->after : LOOK_NONE, .written = true};
  place->known = append && append->before != LOOK_NONE;
  const struct look_step *step = look_step(look, s->run, s->step);
  place->as_of = reached(s, KVS_APPEND) ? s->step : s->step - 1;
  if (step && step->mode == KVS_PREFILL && reached(s, KVS_APPEND) && s->step < step->prompt_steps)
    place->as_of = step->prompt_steps - 1; /* all rows of a batch are there before one of its tokens attends */
  if (place->known) place->P = append->before;
  place->own = place->P;
  if (append && append->row != LOOK_NONE) place->own = append->row;
  if (append && append->logged && append->row == LOOK_NONE) place->written = false;
  const struct look_head *head = look_head(look, s->run, s->step, s->layer, s->head);
  place->rows = most(most(place->P, place->own) + 1, most(place->after, head ? head->rows : 0));
  place->here = s->row < 0 ? place->own : s->row;
}

const char *origin_words(enum look_origin origin) {
  switch (origin) {
  case LOOK_NEVER:
    return "never written";
  case LOOK_EARLIER:
    return "from before this run";
  default:
    return "not logged";
  }
}

bool reached(const struct state *state, kvs_phase phase) { return state->moment >= phase; }
