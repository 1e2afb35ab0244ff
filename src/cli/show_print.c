/* show_print.c: a step's nine moments as text, 80 columns wide, the rule first. */
#include "cli/show.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/plural.h"
#include "study/look/attention.h"

#define SHOWN_NUMBERS 5
#define SHOWN_ROWS 12

/* ---- pieces ---------------------------------------------------------------------------------------------------- */

/* A symbol where the locale has it, else its name. */
static const char *symbol(struct style style, const char *utf8, const char *ascii) { return style.utf8 ? utf8 : ascii; }

static void put_number(double value) {
  double size = fabs(value);
  if (isnan(value))
    printf(" %7s", "NaN");
  else if (size != 0 && (size < 0.0005 || size >= 10000))
    printf(" %7.0e", value);
  else
    printf(" %7.3f", value);
}

static void put_vector(struct style style, const char *name, const struct vector *v, int first, int count) {
  if (!v->values || count > v->count - first) return;
  double sum = 0;
  for (int i = first; i < first + count; i++) sum += (double)v->values[i] * v->values[i];
  fputs("             ", stdout);
  put_padded(stdout, style, name, 10);
  for (int i = first; i < first + count && i < first + SHOWN_NUMBERS; i++) put_number(v->values[i]);
  if (count > SHOWN_NUMBERS) printf(" %s", symbol(style, "…", ".."));
  printf(" %snorm %.3g\n", color(style, INK_DIM), sqrt(sum));
  fputs(color(style, INK_PLAIN), stdout);
}

static void put_moment(struct style style, int number, const char *name) {
  printf("%s%2d %-8s%s  ", color(style, INK_TITLE), number, name, color(style, INK_PLAIN));
}

/* `remedy`: what would log it, of a run that kvstep made. */
static void put_missing(const struct step_view *w, struct style style, const char *what, const char *remedy) {
  printf("             %s%s: not logged (%s)%s\n", color(style, INK_DIM), what,
         w->ours ? remedy : "see docs/recording.md", color(style, INK_PLAIN));
}

/* ---- before attention ------------------------------------------------------------------------------------------ */

static void put_header(const struct step_view *w, struct style style) {
  const char *dot = symbol(style, "·", "-"), *times = symbol(style, "×", "x");
  bool correct = w->fault && strcmp(w->fault, "none") == 0;
  fputs(color(style, INK_TITLE), stdout);
  put_shown(stdout, style, w->model ? w->model : "unnamed model");
  printf("%s %s %d layer%s %s %d head%s %s %d   run %d of %d: %s", color(style, INK_PLAIN), dot, w->n_layer,
         plural(w->n_layer), times, w->n_head, plural(w->n_head), times, w->head_dim, w->at.run, w->last_run,
         color(style, correct    ? INK_GOOD
                      : w->fault ? INK_BAD
                                 : INK_PLAIN));
  put_shown(stdout, style, correct ? "correct" : w->fault ? w->fault : "unchecked");
  printf("%s\nstep %d of 0..%d (", color(style, INK_PLAIN), w->at.step, w->last_step);
  put_shown(stdout, style, w->mode ? w->mode : "mode unknown");
  fputs(", ", stdout);
  put_shown(stdout, style, w->source ? w->source : "source unknown");
  printf(")   layer %d   head %d   token %d ", w->at.layer, w->at.head, w->token);
  put_padded(stdout, style, w->text ? w->text : "?", w->text && text_width(w->text) < 16 ? text_width(w->text) : 16);
  if (!isnan(w->logprob))
    printf("\nthe step before gave this token probability %.3f%s", exp(w->logprob),
           w->source && strcmp(w->source, "prompt") == 0 ? " (the prompt's: given, not chosen)" : "");
  fputs("\n\n", stdout);
}

static void put_rule(const struct step_view *w, struct style style) {
  int right = w->length_before, used = w->position;
  printf("%sRule%s  t = cache length read BEFORE the append = ", color(style, INK_TITLE), color(style, INK_PLAIN));
  if (right == NOT_LOGGED) {
    printf("not recorded; ");
    if (used == NOT_LOGGED)
      puts("nor is the position");
    else
      printf("this step used wpe[%d]\n", used);
    return;
  }
  if (used == right) {
    printf("%d; this step used wpe[%d]  %sok%s\n", right, used, color(style, INK_GOOD), color(style, INK_PLAIN));
    return;
  }
  printf("%d\n      %s", right, color(style, INK_BAD));
  if (used == NOT_LOGGED)
    printf("no row of wpe was added, or none recorded; wpe[%d] is right", right);
  else if (used == right + 1)
    printf("t = %d used, %d right: one too far (the length was read AFTER the append)", used, right);
  else if (used == 0)
    printf("t = 0 used, %d right: positions start again at 0", right);
  else
    printf("t = %d used, %d right: %d too %s", used, right, abs(used - right), used > right ? "far" : "low");
  printf("%s\n", color(style, INK_PLAIN));
}

/* The length that was read, and what was used if it was not that. */
static void put_read(const struct step_view *w, struct style style) {
  put_moment(style, 1, "read");
  if (w->length_before == NOT_LOGGED) {
    puts("t = cache length: not recorded");
    return;
  }
  printf("cache length = %d, before this append; ", w->length_before);
  if (w->position == w->length_before)
    printf("t = %d\n", w->position);
  else if (w->position == NOT_LOGGED)
    printf("%sno position was used%s\n", color(style, INK_BAD), color(style, INK_PLAIN));
  else
    printf("%sbut t = %d was used%s\n", color(style, INK_BAD), w->position, color(style, INK_PLAIN));
}

static void put_embed(const struct step_view *w, struct style style) {
  char name[32];
  put_moment(style, 2, "embed");
  if (w->position == NOT_LOGGED)
    printf("x = wte[%d], and no position\n", w->token);
  else
    printf("x = wte[%d] + wpe[%d]\n", w->token, w->position);
  if (!w->x.values) put_missing(w, style, "wte, wpe, x", "kvstep run --log attention does");
  snprintf(name, sizeof name, "wte[%d]", w->token);
  put_vector(style, name, &w->wte, 0, w->wte.count);
  snprintf(name, sizeof name, "wpe[%d]", w->position);
  put_vector(style, name, &w->wpe, 0, w->wpe.count);
  put_vector(style, "x", &w->x, 0, w->x.count);
}

static void put_project(const struct step_view *w, struct style style) {
  int first = w->at.head * w->head_dim;
  put_moment(style, 3, "project");
  printf("q, k, v of this one token only; head %d has numbers %d..%d of %d\n", w->at.head, first,
         first + w->head_dim - 1, w->n_embd);
  put_vector(style, "q", &w->q, 0, w->q.count);
  put_vector(style, "k", &w->k, first, w->head_dim);
  put_vector(style, "v", &w->v, first, w->head_dim);
  if (!w->q.values) put_missing(w, style, "q", "kvstep run --log attention does");
  if (!w->k.values) put_missing(w, style, "k, v", "kvstep run --log attention does");
  put_moment(style, 4, "append");
  if (w->row != NOT_LOGGED)
    printf("row %d %s k, v", w->row, symbol(style, "←", "<-"));
  else
    printf("k, v go to the cache");
  if (w->length_before != NOT_LOGGED && w->length_after != NOT_LOGGED)
    printf("   length %d %s %d", w->length_before, symbol(style, "→", "->"), w->length_after);
  putchar('\n');
}

/* ---- attention ------------------------------------------------------------------------------------------------- */

/* Which rows are shown: all, or the first, the last two and the heaviest. `chosen` has room for the count. */
static void choose_rows(const struct vector *weights, int count, bool *chosen) {
  if (count <= SHOWN_ROWS || weights->count < count) { /* another engine's scores may be more than its weights */
    for (int i = 0; i < count; i++) chosen[i] = count <= SHOWN_ROWS || i < 4 || i >= count - 8;
    return;
  }
  chosen[0] = chosen[count - 2] = chosen[count - 1] = true;
  for (int taken = 3; taken < SHOWN_ROWS; taken++) {
    int best = -1;
    for (int i = 0; i < count; i++)
      if (!chosen[i] && (best < 0 || weights->values[i] > weights->values[best])) best = i;
    chosen[best] = true;
  }
  for (int i = 1; i + 1 < count; i++) /* to say that one row is left out takes as much room as the row */
    if (chosen[i - 1] && chosen[i + 1]) chosen[i] = true;
}

static kvs_status put_row(sqlite3 *db, const struct step_view *w, struct style style, int row, double largest,
                          kvs_error *err) {
  char *text = NULL;
  kvs_status status = row_token(db, w, row, &text, err);
  if (status != KVS_OK) return status;
  bool itself = w->row == NOT_LOGGED ? row == w->length_before : row == w->row;
  printf("           %s%s%5d ", color(style, itself ? INK_SELF : INK_PLAIN), itself ? symbol(style, "▸", ">") : " ",
         row);
  put_padded(stdout, style, text ? text : "?", 14);
  free(text);
  if (row < w->scores.count)
    put_number(w->scores.values[row]);
  else
    printf(" %7s", "-");
  if (row < w->weights.count) {
    printf("  %6.3f  ", w->weights.values[row]);
    put_bar(stdout, style, largest > 0 ? w->weights.values[row] / largest : 0, 16);
  }
  printf("%s%s%s\n", itself ? " " : "", itself ? symbol(style, "← itself", "<- itself") : "", color(style, INK_PLAIN));
  return KVS_OK;
}

static kvs_status put_rows(sqlite3 *db, const struct step_view *w, struct style style, int count, kvs_error *err) {
  bool *chosen = calloc((size_t)count, sizeof *chosen);
  if (!chosen) return kvs_fail_memory(err, "showing the rows");
  choose_rows(&w->weights, count, chosen);
  double largest = 0;
  for (int i = 0; i < w->weights.count; i++)
    if (w->weights.values[i] > largest) largest = w->weights.values[i];
  printf("           %s   row %-14s %7s  %6s%s\n", color(style, INK_DIM), "token", "score", "weight",
         color(style, INK_PLAIN));
  kvs_status status = KVS_OK;
  for (int i = 0; i < count && status == KVS_OK; i++) {
    if (chosen[i]) {
      status = put_row(db, w, style, i, largest, err);
      continue;
    }
    int left_out = 0;
    double sum = 0;
    for (; i < count && !chosen[i]; i++, left_out++) sum += i < w->weights.count ? w->weights.values[i] : 0;
    i--;
    printf("                 %s%s %d row%s left out", color(style, INK_DIM), symbol(style, "…", ".."), left_out,
           plural(left_out));
    if (w->weights.values) printf(", together %.3f", sum);
    printf("%s\n", color(style, INK_PLAIN));
  }
  free(chosen);
  return status;
}

static void put_extent(const struct step_view *w, struct style style, int count) {
  int right = w->length_before == NOT_LOGGED ? count : w->length_before + 1;
  if (count == right) return;
  printf("             %s%d row%s attended, %d right: %s%s\n", color(style, INK_BAD), count, plural(count), right,
         count < right ? "its past and itself are not all there" : "more than its past and itself",
         color(style, INK_PLAIN));
}

/* What the weights show of a mask. */
static void put_mask(const struct step_view *w, struct style style, bool prefill) {
  int hidden = 0;
  if (w->scores.count == w->weights.count)
    hidden = attention_hidden_rows(w->scores.values, w->weights.values, w->weights.count);
  if (hidden)
    printf("%s%d of them masked: a finite score and weight 0%s\n", color(style, INK_BAD), hidden,
           color(style, INK_PLAIN));
  else
    puts(prefill ? "the mask hid the batch's later rows" : "no mask: all is past, or itself");
}

static kvs_status put_attention(sqlite3 *db, const struct step_view *w, struct style style, kvs_error *err) {
  int count = w->scores.count > w->weights.count ? w->scores.count : w->weights.count;
  bool prefill = w->mode && strcmp(w->mode, "prefill") == 0;
  put_moment(style, 5, "score");
  if (count)
    printf("%s / %s%d for i = 0..%d, itself included\n", symbol(style, "q·K[i]", "q.K[i]"), symbol(style, "√", "sqrt "),
           w->head_dim, count - 1);
  else
    printf("%s / %s%d\n", symbol(style, "q·K[i]", "q.K[i]"), symbol(style, "√", "sqrt "), w->head_dim);
  put_extent(w, style, count ? count : w->length_before + 1);
  put_moment(style, 6, "softmax");
  if (w->weights.values) {
    double sum = 0;
    for (int i = 0; i < w->weights.count; i++) sum += w->weights.values[i];
    printf("%d weight%s, sum %.3f, ", w->weights.count, plural(w->weights.count), sum);
    put_mask(w, style, prefill);
  } else {
    puts("over the scores, no row masked but those to come");
  }
  if (count == 0) put_missing(w, style, "scores, weights", "kvstep run --log attention does");
  kvs_status status = count ? put_rows(db, w, style, count, err) : KVS_OK;
  if (status != KVS_OK) return status;
  put_moment(style, 7, "mix");
  printf("out = %s %s: %d number%s\n", symbol(style, "Σ", "sum of"), symbol(style, "w[i]·V[i]", "w[i]*V[i]"),
         w->head_dim, plural(w->head_dim));
  put_vector(style, "out", &w->out, 0, w->out.count);
  return KVS_OK;
}

/* ---- after attention ------------------------------------------------------------------------------------------- */

static void put_output(const struct step_view *w, struct style style) {
  const char *arrow = symbol(style, "→", "->");
  put_moment(style, 8, "output");
  printf("%d head%s side by side %s c_proj %s %d number%s\n", w->n_head, plural(w->n_head), arrow, arrow, w->n_embd,
         plural(w->n_embd));
  put_vector(style, "attn_out", &w->attn_out, 0, w->attn_out.count);
  put_moment(style, 9, "mlp");
  printf("residual, ln_2, MLP, residual; %s\n",
         w->at.layer < w->n_layer - 1 ? "next layer; last ln_f, the logits" : "then ln_f and the logits");
  put_vector(style, "x_mid", &w->x_mid, 0, w->x_mid.count);
  put_vector(style, "mlp_out", &w->mlp_out, 0, w->mlp_out.count);
  put_vector(style, "x_out", &w->x_out, 0, w->x_out.count);
  if (!w->x_out.values) put_missing(w, style, "attn_out, x_mid, mlp_out, x_out", "run --log full does");
}

static void put_next(const struct step_view *w, struct style style) {
  printf("\n%sNext token%s\n", color(style, INK_TITLE), color(style, INK_PLAIN));
  if (w->next_count == 0) put_missing(w, style, "top_token", "another engine may leave it out");
  for (int i = 0; i < w->next_count; i++) {
    printf("           %6d ", i + 1);
    put_padded(stdout, style, w->next[i].text ? w->next[i].text : "?", 23);
    printf("  %6.3f%s", w->next[i].probability, w->next[i].probability >= 1.0 / 256 ? "  " : "");
    put_bar(stdout, style, w->next[i].probability, 16);
    putchar('\n');
  }
}

kvs_status step_view_print(sqlite3 *db, const struct step_view *w, struct style style, kvs_error *err) {
  put_header(w, style);
  put_rule(w, style);
  putchar('\n');
  put_read(w, style);
  put_embed(w, style);
  put_project(w, style);
  kvs_status status = put_attention(db, w, style, err);
  if (status != KVS_OK) return status;
  put_output(w, style);
  put_next(w, style);
  if (!w->x.values || !w->q.values || !w->k.values || !w->weights.values)
    puts(w->ours ? "\nWhat is not logged may be so for this step, layer or head only: `kvstep run` has\n"
                   "--log, --steps, --layers, --heads to choose; `kvstep info` says what is there."
                 : "\nWhat is not logged may be so for this step, layer or head only; `kvstep info` says\n"
                   "what is there.");
  return KVS_OK;
}
