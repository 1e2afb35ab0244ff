/* moment_words.c: the ten moments in words, by what the run did. */
#include "tui/moment_words.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/plural.h"
#include "study/look/attention.h"
#include "tui/predict.h"

/* What the words are about, and where they go. */
struct about {
  struct cells *cells;
  const struct state *s;
  struct look *look;
  const struct look_run *run;
  const struct look_step *step;
  const struct look_head *head; /* NULL: not logged */
  const struct place *place;
  struct prediction asked;
  int columns;
  char *text;
  size_t size;
};

/* Writes the words; false if they are too wide, and shorter ones are to be tried. */
static bool __attribute__((format(printf, 2, 3))) say(const struct about *a, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(a->text, a->size, format, arguments);
  va_end(arguments);
  plain_signs(a->cells, a->text, a->size);
  return text_columns(a->text) <= a->columns;
}

/* ---- read, embed, append ---------------------------------------------------------------------------------------------- */

/* A trace that does not say how long the cache was cannot be judged. */
static bool right_position(const struct look_step *t) {
  return t->length_before == LOOK_NONE || t->position == t->length_before;
}

static bool read_words(const struct about *a) {
  const struct look_step *t = a->step;
  char number[16];
  prediction_number(&a->asked, t->position, number);
  if (t->length_before == LOOK_NONE && t->position == LOOK_NONE) {
    say(a, "length not logged");
  } else if (t->length_before == LOOK_NONE) {
    if (!say(a, "t = %s, length not logged", number)) say(a, "t = %s", number);
  } else if (t->position == LOOK_NONE) {
    say(a, "cache length %d", t->length_before);
  } else if (t->position == t->length_before) {
    if (!say(a, "t = cache length %d", t->length_before)) say(a, "t = length %d", t->length_before);
  } else if (!say(a, "cache length %d, t = %s", t->length_before, number)) {
    say(a, "length %d, t %s", t->length_before, number);
  }
  return right_position(t);
}

static bool embed_words(const struct about *a) {
  const struct look_step *t = a->step;
  char number[16];
  prediction_number(&a->asked, t->position, number);
  if (t->position == LOOK_NONE) {
    if (!say(a, "x = wte[%d], no position", t->token)) say(a, "wte[%d], no wpe", t->token);
  } else if (!say(a, "x = wte[%d] + wpe[%s]", t->token, number)) {
    say(a, "wte[%d]+wpe[%s]", t->token, number);
  }
  return right_position(t);
}

static bool all_zero(const float *values, int count) {
  for (int i = 0; values && i < count; i++)
    if (values[i] != 0) return false;
  return values && count > 0;
}

const char *zeros_written(const struct state *s, struct look *look, const struct place *place) {
  const struct look_run *run = look_run(look, s->run);
  const struct look_row *own = place->written ? look_row(look, s->run, s->step, s->layer, place->own) : NULL;
  if (!run || !own || own->step != s->step) return "";
  bool k = all_zero(own->k, run->n_embd), v = all_zero(own->v, run->n_embd);
  return k && v ? "K, V" : k ? "K" : v ? "V" : "";
}

static bool append_words(const struct about *a) {
  const struct place *p = a->place;
  char after[16], now[32] = "";
  const char *zeros = zeros_written(a->s, a->look, p);
  prediction_number(&a->asked, p->after, after);
  if (p->after != LOOK_NONE)
    snprintf(now, sizeof now, "; %s%s row%s", p->written && !*zeros ? "now " : "", after,
             strcmp(after, "1") == 0 ? "" : "s");
  if (!p->written) {
    if (!say(a, "k, v stored nowhere%s", now)) say(a, "k, v stored nowhere");
  } else if (*zeros) {
    if (!say(a, "row %d: %s zeros%s", p->own, zeros, now)) say(a, "row %d: %s zeros", p->own, zeros);
  } else if (!p->known && p->after == LOOK_NONE && !a->head) {
    say(a, "not logged");
  } else if (!say(a, "row %d ← k, v%s", p->own, now)) {
    say(a, "row %d ← k, v", p->own);
  }
  return !p->known || (p->written && !*zeros && p->own == p->P && (p->after == LOOK_NONE || p->after == p->P + 1));
}

/* ---- score, softmax ------------------------------------------------------------------------------------------------------ */

/* score / q·K[row]; NaN where they are not in the trace, or the product is too near 0 to tell. */
static double scale_of(const struct about *a, int row) {
  const struct look_head *h = a->head;
  const struct look_row *kv = look_row(a->look, a->s->run, a->place->as_of, a->s->layer, row);
  const float *k = kv ? head_part(a->run, kv->k, a->s->head) : NULL;
  double sum = 0, size = 0;
  if (!h || !h->q || !h->scores || !k || row >= h->rows) return NAN;
  for (int i = 0; i < a->run->head_dim; i++) {
    double product = (double)h->q[i] * (double)k[i];
    sum += product;
    size += fabs(product);
  }
  return fabs(sum) > 0.01 * size ? (double)h->scores[row] / sum : NAN;
}

/* By the first two rows that tell: both by 1/√head_dim, both by something else (a model's config may say so), or by nothing that
 * they have in common. */
static bool score_words(const struct about *a) {
  int rows = a->head ? a->head->rows : a->place->P + 1, d = a->run->head_dim, found = 0;
  double scale[2] = {NAN, NAN};
  for (int row = 0; row < rows && row < 16 && found < 2; row++)
    if (!isnan(scale[found] = scale_of(a, row))) found++;
  double root = sqrt(d > 0 ? d : 1);
  bool usual = found == 0 || (fabs(scale[0] * root - 1) < 1e-3 && (found == 1 || fabs(scale[1] * root - 1) < 1e-3));
  bool alike = found < 2 || fabs(scale[0] - scale[1]) <= 1e-3 * fabs(scale[0]);
  char times[32];
  snprintf(times, sizeof times, usual ? "/√%.0f" : "·%.4g", usual ? (double)d : scale[0] + 0.0); /* 0 has no sign */
  if (!a->head && !a->place->known) {
    say(a, "q·K[i]/√%d", d);
  } else if (usual || alike) {
    if (!say(a, "q·K[i]%s, i = 0..%d", times, rows - 1) && !say(a, "q·K%s, i = 0..%d", times, rows - 1))
      say(a, "q·K%s, 0..%d", times, rows - 1);
  } else if (!say(a, "i = 0..%d, not of this q·K[i]", rows - 1)) {
    say(a, "not of this q·K[i]");
  }
  bool extent = !a->place->known || !a->head || a->head->rows == 0 || a->head->rows == a->place->P + 1;
  return extent && (usual || alike);
}

static bool softmax_words(const struct about *a) {
  const struct look_head *h = a->head;
  int rows = h ? h->rows : a->place->P + 1,
      hidden = h && h->scores && h->weights ? attention_hidden_rows(h->scores, h->weights, h->rows) : 0;
  bool batch = a->step->mode == KVS_PREFILL, extent = !a->place->known || !h || rows == 0 || rows == a->place->P + 1;
  double sum = 0;
  char number[16];
  for (int i = 0; h && h->weights && i < rows; i++) sum += (double)h->weights[i];
  bool one = !h || !h->weights || fabs(sum - 1) < 1e-3; /* NaN is not */
  prediction_number(&a->asked, rows, number);
  const char *s = strcmp(number, "1") == 0 ? "" : "s", *mask = batch && extent ? "masked" : "no mask";
  if (!h || !h->weights) {
    bool count = h || a->place->known;
    if (!count || !say(a, "%s weight%s: not logged", number, s)) say(a, "weights: not logged");
  } else if (hidden > 0) {
    if (!say(a, "%s weight%s, %d of them masked", number, s, hidden) &&
        !say(a, "%s weights, %d masked", number, hidden))
      say(a, "%s, %d masked", number, hidden);
  } else if (!say(a, "%s weight%s%s sum %.3f, %s", number, s, rows < 100 ? "," : "", sum, mask)) {
    if (!one && !say(a, "%s weights sum %.3f", number, sum)) say(a, "%s sum %.3f", number, sum);
    if (one && !say(a, "%s weight%s, %s", number, s, mask)) say(a, "%s, %s", number, mask);
  }
  return extent && hidden == 0 && one;
}

/* ---- all of them ----------------------------------------------------------------------------------------------------------- */

/* The token gives way to its probability. */
static void last_words(const struct about *a) {
  const struct look_top *top = look_top(a->look, a->s->run, a->s->step);
  if (!top || !top->count) {
    say(a, "ln_f, %d logits", a->run->n_vocab);
    return;
  }
  const char *token = top->token[0].text;
  int room = a->columns - 12; /* "next: " and " 0.123" */
  say(a, "next: %.*s %.3f", text_fitting(token, room < 20 ? room : 20), token, top->token[0].probability);
}

static void plain_words(const struct about *a, kvs_phase phase) {
  int d = a->run->head_dim, heads = a->run->n_head, n = a->run->n_embd;
  if (phase == KVS_PROJECT) {
    if (!say(a, "q, k, v of this token only")) say(a, "this token's q, k, v");
  } else if (phase == KVS_MIX) {
    if (!say(a, "Σ w[i]·V[i] → %d number%s", d, plural(d))) say(a, "Σ w[i]·V[i] → %d", d);
  } else if (phase == KVS_OUTPUT) {
    const char *s = plural(heads);
    if (!say(a, "%d head%s, c_proj → %d number%s", heads, s, n, plural(n))) say(a, "%d head%s, c_proj", heads, s);
  } else if (phase == KVS_MLP) {
    if (!say(a, "residual, ln_2, MLP, residual")) say(a, "ln_2, MLP, residuals");
  } else {
    last_words(a);
  }
}

bool moment_words(struct cells *cells, kvs_phase phase, const struct state *s, struct look *look,
                  const struct place *place, int columns, char *text, size_t size) {
  struct about a = {
      .cells = cells, .s = s, .look = look, .place = place, .columns = columns, .text = text, .size = size};
  a.run = look_run(look, s->run);
  a.step = look_step(look, s->run, s->step);
  a.head = look_head(look, s->run, s->step, s->layer, s->head);
  *text = '\0';
  if (!a.run || !a.step) return true;
  prediction_open(s, look, &a.asked);
  if (phase == KVS_READ_LENGTH) return read_words(&a);
  if (phase == KVS_EMBED) return embed_words(&a);
  if (phase == KVS_APPEND) return append_words(&a);
  if (phase == KVS_SCORE) return score_words(&a);
  if (phase == KVS_SOFTMAX) return softmax_words(&a);
  plain_words(&a, phase);
  return true;
}
