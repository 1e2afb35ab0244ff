/* view_embedding.c: wte[token] + wpe[t] = x, and the rows of wpe that the steps around this one used, so that "one slot too
 * far" can be seen as a vector. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tui/view.h"

/* A vector of this name is missing because there is none; any other, because it was not logged. */
static const char no_position[] = "no position";

enum { MOST = 8192 }; /* numbers of a row that is compared */

static double dot(const float *a, const float *b, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
  return sum;
}

static void draw_vector(struct cells *cells, struct area area, int line, const char *name, const float *values, int n,
                        double scale, enum role role) {
  cells_put(cells, area, line, 1, 14, role, name);
  if (!values) {
    cells_put(cells, area, line, 16, -1, ROLE_DIM, strcmp(name, no_position) == 0 ? "none was added" : "not logged");
    return;
  }
  char norm[24];
  number_text(sqrt(dot(values, values, n)), 7, norm);
  cells_graph(cells, area, line, 16, area.columns - 32, ROLE_BAR, values, n, scale);
  cells_putf(cells, area, line, area.columns - 14, -1, ROLE_DIM, "norm %s", norm);
}

/* The row of wpe at position t, as some step of this run used it; copied, since the look may forget. False if none did. */
static bool wpe_row_of(struct look *look, int run, int steps, int t, float *copy, int n) {
  for (int step = t - 2 < 0 ? 0 : t - 2; step < steps && step <= t + 2; step++) {
    const struct look_step *s = look_step(look, run, step);
    if (!s || s->position != t) continue;
    const struct look_vectors *v = look_vectors(look, run, step);
    if (!v || !v->wpe) continue;
    memcpy(copy, v->wpe, (size_t)n * sizeof *copy);
    return true;
  }
  return false;
}

/* The same, from another run of this model if this one never used the row: a fault leaves one out. */
static bool wpe_row(struct look *look, int run, int t, float *copy) {
  enum { MOST_RUNS = 16 };
  const struct look_run *own = look_run(look, run);
  if (!own) return false;
  char model[sizeof own->model];
  int n = own->n_embd, runs = look_runs(look);
  snprintf(model, sizeof model, "%s", own->model);
  if (wpe_row_of(look, run, own->steps, t, copy, n)) return true;
  for (int i = 1; i <= runs && i <= MOST_RUNS; i++) {
    const struct look_run *other = look_run(look, i);
    if (i == run || !other || other->n_embd != n || strcmp(other->model, model) != 0) continue;
    if (wpe_row_of(look, i, other->steps, t, copy, n)) return true;
  }
  return false;
}

/* One row of wpe and, unless it is the right one (NULL: that is not known), its distance from that. Returns the next line. */
static int draw_wpe_row(struct cells *cells, struct area area, int line, const struct state *s, struct look *look,
                        int n, int t, int P, int used, const float *right) {
  static float row[MOST];
  char name[32];
  snprintf(name, sizeof name, "wpe[%d]", t);
  enum role role = t == P ? ROLE_RIGHT : t == used ? ROLE_WRONG : ROLE_TEXT;
  if (!wpe_row(look, s->run, t, row)) {
    cells_put(cells, area, line, 1, 14, ROLE_DIM, name);
    cells_put(cells, area, line, 16, -1, ROLE_DIM,
              area.columns < 74 ? "not in the trace: no step near there used it"
                                : "no step near there used it, so the trace does not have it");
    return line + 1;
  }
  draw_vector(cells, area, line++, name, row, n, vector_largest(row, n), role);
  if (!right || t == P) return line;
  double distance = 0, cosine = dot(right, row, n) / sqrt(dot(right, right, n) * dot(row, row, n));
  for (int i = 0; i < n; i++) distance += pow((double)right[i] - (double)row[i], 2);
  char words[128];
  if (area.columns < 74)
    snprintf(words, sizeof words, "distance %.3f, cosine %.3f%s", sqrt(distance), cosine, t == used ? " ← used" : "");
  else
    snprintf(words, sizeof words, "distance from wpe[%d] %.3f, cosine %.3f%s", P, sqrt(distance), cosine,
             t == used ? "   ← this one was used" : "");
  plain_signs(cells, words, sizeof words);
  cells_put(cells, area, line, 16, -1, ROLE_DIM, words);
  return line + 1;
}

/* Three rows of wpe around P, each with its distance from the right one; and the one that was used, if it is none of them. */
static void draw_neighbours(struct cells *cells, struct area area, int line, const struct state *s, struct look *look,
                            const struct look_run *run, int P, int used) {
  static float copy[MOST];
  int n = run->n_embd;
  if (n > MOST) return;
  const float *right = P >= 0 && wpe_row(look, s->run, P, copy) ? copy : NULL;
  for (int t = P - 1 < 0 ? 0 : P - 1; t <= P + 1; t++)
    line = draw_wpe_row(cells, area, line, s, look, n, t, P, used, right);
  if (used != LOOK_NONE && (used < P - 1 || used > P + 1))
    draw_wpe_row(cells, area, line, s, look, n, used, P, used, right);
}

/* wte[token], wpe[t] and x, one below the other. */
static void draw_sum(struct cells *cells, struct area area, const struct look_step *step, const struct look_vectors *v,
                     int n) {
  char name[sizeof step->text + 32];
  bool right = step->length_before == LOOK_NONE || step->position == step->length_before;
  snprintf(name, sizeof name, "wte[%d] %s", step->token, step->text);
  draw_vector(cells, area, 0, name, v->wte, n, vector_largest(v->wte, n), ROLE_TEXT);
  if (step->position == LOOK_NONE)
    snprintf(name, sizeof name, "%s", v->wpe ? "+ wpe[?]" : no_position);
  else
    snprintf(name, sizeof name, "+ wpe[%d]", step->position);
  draw_vector(cells, area, 1, name, v->wpe, n, v->wpe ? vector_largest(v->wpe, n) : 1, right ? ROLE_RIGHT : ROLE_WRONG);
  draw_vector(cells, area, 2, "= x", v->x, n, vector_largest(v->x, n), ROLE_NEW);
}

static void draw(struct cells *cells, struct area area, const struct state *s, struct look *look) {
  const struct look_run *run = look_run(look, s->run);
  const struct look_step *step = look_step(look, s->run, s->step);
  const struct look_vectors *v = look_vectors(look, s->run, s->step);
  if (!run || !step) return;
  if (!v || !v->wte || !v->x) {
    draw_absent(cells, area, "the embedding of this step was not logged", "kvstep run --log attention logs it");
    return;
  }
  int used = step->position, P = step->length_before != LOOK_NONE ? step->length_before : used;
  if (reached(s, KVS_EMBED))
    draw_sum(cells, area, step, v, run->n_embd);
  else
    cells_put(cells, area, 0, 1, -1, ROLE_DIM,
              "x is not there yet: embed is the second of the ten moments, Space goes on");
  if (P == LOOK_NONE) {
    cells_put(cells, area, 4, 1, -1, ROLE_DIM, "The trace has neither a position nor the cache's length.");
    return;
  }
  cells_putf(cells, area, 4, 1, -1, ROLE_TEXT, "The rows of wpe around position %d:", P);
  draw_neighbours(cells, area, 5, s, look, run, P, used);
}

const struct view view_embedding = {"embedding", "wte + wpe = x", draw};
