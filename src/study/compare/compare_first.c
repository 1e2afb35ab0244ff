/* compare_first.c: the first number of a step that two runs of a trace do not have in common, in the order of the moments. */
#include "study/compare/compare_trace.h"

struct pair {
  struct look *look;
  const struct look_run *a, *b;
};

/* A field of one run: its numbers, or NULL. `layer`, `head` as the field's scope has them. */
struct numbers {
  const float *values;
  int count;
};

static struct numbers of_step(struct look *look, const struct look_run *run, int step, enum compare_field field) {
  const struct look_vectors *v = look_vectors(look, run->run, step);
  if (!v) return (struct numbers){0};
  const float *values = field == COMPARE_WTE   ? v->wte
                        : field == COMPARE_WPE ? v->wpe
                        : field == COMPARE_X   ? v->x
                                               : v->logits;
  return (struct numbers){values, field == COMPARE_LOGITS ? run->n_vocab : run->n_embd};
}

static struct numbers of_layer(struct look *look, const struct look_run *run, int step, enum compare_field field,
                               int layer) {
  const struct look_layer *l = look_layer(look, run->run, step, layer);
  if (!l) return (struct numbers){0};
  const float *values = field == COMPARE_ATTN_OUT  ? l->attn_out
                        : field == COMPARE_X_MID   ? l->x_mid
                        : field == COMPARE_MLP_OUT ? l->mlp_out
                                                   : l->x_out;
  return (struct numbers){values, run->n_embd};
}

/* The row that this very step wrote: the one after those it found, or under a fault the last. */
static int row_written(struct look *look, const struct look_run *run, int step, int layer) {
  const struct look_step *s = look_step(look, run->run, step);
  const int rows[] = {s ? s->length_before : LOOK_NONE, s ? s->length_after - 1 : LOOK_NONE};
  for (int i = 0; i < 2; i++) {
    const struct look_row *row = look_row(look, run->run, step, layer, rows[i]);
    if (row && row->step == step) return rows[i];
  }
  return LOOK_NONE;
}

static struct numbers of_row(struct look *look, const struct look_run *run, int step, enum compare_field field,
                             int layer) {
  const struct look_row *row = look_row(look, run->run, step, layer, row_written(look, run, step, layer));
  if (!row) return (struct numbers){0};
  return (struct numbers){field == COMPARE_ROW_K ? row->k : row->v, run->n_embd};
}

static struct numbers of_head(struct look *look, const struct look_run *run, int step, enum compare_field field,
                              int layer, int head) {
  const struct look_head *h = look_head(look, run->run, step, layer, head);
  if (!h) return (struct numbers){0};
  switch (field) {
  case COMPARE_SCORES:
    return (struct numbers){h->scores, h->rows};
  case COMPARE_WEIGHTS:
    return (struct numbers){h->weights, h->rows};
  case COMPARE_Q:
    return (struct numbers){h->q, run->head_dim};
  default:
    return (struct numbers){h->out, run->head_dim};
  }
}

static bool both(struct compare_first *first, const struct numbers *a, const struct numbers *b) {
  bool there = a->values && b->values;
  first->compared += there;
  return there;
}

static bool number_differs(struct compare_first *first, enum compare_field field, int layer, int a, int b) {
  if (a == b) return false;
  first->what = COMPARE_NUMBER;
  first->field = field;
  first->layer = layer;
  first->head = first->index = LOOK_NONE;
  first->value_a = a, first->value_b = b;
  return true;
}

/* A position of NULL is a number here: none was added. But not if no position of the run is known. */
static bool step_field_differs(const struct pair *p, struct compare_first *first, enum compare_field field) {
  int a = first->step, b = first->step_b;
  if (field == COMPARE_LENGTH || field == COMPARE_POSITION) {
    const struct look_step *sa = look_step(p->look, p->a->run, a), *sb = look_step(p->look, p->b->run, b);
    if (!sa || !sb) return false;
    if (field == COMPARE_POSITION) return number_differs(first, field, LOOK_NONE, sa->position, sb->position);
    bool known = sa->length_before != LOOK_NONE && sb->length_before != LOOK_NONE;
    return known && number_differs(first, field, LOOK_NONE, sa->length_before, sb->length_before);
  }
  struct numbers na = of_step(p->look, p->a, a, field), nb = of_step(p->look, p->b, b, field);
  return both(first, &na, &nb) &&
         compare_vectors(first, field, LOOK_NONE, LOOK_NONE, 0, na.values, na.count, nb.values, nb.count);
}

static bool layer_field_differs(const struct pair *p, struct compare_first *first, enum compare_field field,
                                int layer) {
  struct look *look = p->look;
  int a = first->step, b = first->step_b;
  bool rows = field == COMPARE_ROW_K || field == COMPARE_ROW_V;
  switch (compare_field_scope(field)) {
  case COMPARE_HEAD:
    for (int head = 0; head < p->a->n_head; head++) {
      struct numbers na = of_head(look, p->a, a, field, layer, head), nb = of_head(look, p->b, b, field, layer, head);
      if (both(first, &na, &nb) &&
          compare_vectors(first, field, layer, head, 0, na.values, na.count, nb.values, nb.count))
        return true;
    }
    return false;
  default:
    if (field == COMPARE_K || field == COMPARE_V) return false; /* a trace has them in its rows */
    if (field == COMPARE_ROW) {
      int row_a = row_written(look, p->a, a, layer), row_b = row_written(look, p->b, b, layer);
      return row_a != LOOK_NONE && row_b != LOOK_NONE && number_differs(first, field, layer, row_a, row_b);
    }
    struct numbers na = rows ? of_row(look, p->a, a, field, layer) : of_layer(look, p->a, a, field, layer);
    struct numbers nb = rows ? of_row(look, p->b, b, field, layer) : of_layer(look, p->b, b, field, layer);
    return both(first, &na, &nb) && compare_vectors(first, field, layer, LOOK_NONE, rows ? p->a->head_dim : 0,
                                                    na.values, na.count, nb.values, nb.count);
  }
}

/* In the order of the moments: the fields before the layers, all fields of each layer, the logits. */
bool compare_find_first(struct look *look, const struct look_run *a, const struct look_run *b,
                        struct compare_first *first) {
  const struct pair pair = {look, a, b}, *p = &pair;
  for (enum compare_field field = COMPARE_LENGTH; field <= COMPARE_X; field++)
    if (step_field_differs(p, first, field)) return true;
  for (int layer = 0; layer < p->a->n_layer; layer++)
    for (enum compare_field field = COMPARE_Q; field <= COMPARE_X_OUT; field++)
      if (layer_field_differs(p, first, field, layer)) return true;
  return step_field_differs(p, first, COMPARE_LOGITS);
}
