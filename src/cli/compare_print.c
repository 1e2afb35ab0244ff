/* compare_print.c: comparisons for people: a page about one, or a line each about several. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/plural.h"
#include "cli/compare_out.h"
#include "cli/help.h"

enum { LABEL = 16, NAME = 20, WIDTH = 80 };

/* A number in at most eight columns; good until the eighth call from now. */
static const char *number(double value) {
  static char buffers[8][32];
  static int next;
  char *text = buffers[next++ % 8];
  double size = fabs(value);
  if (isnan(value)) return "-";
  const char *format = isinf(value)                    ? "%f"
                       : size == 0                     ? "%.0f"
                       : size < 0.00095 || size >= 1e5 ? "%.1e"
                       : size < 100                    ? "%.4f"
                                                       : "%.2f";
  snprintf(text, sizeof buffers[0], format, value);
  return text;
}

static void put_label(const struct compare_view *view, const char *label) {
  fputs(color(view->style, INK_TITLE), stdout);
  put_padded(stdout, view->style, label, LABEL);
  fputs(color(view->style, INK_PLAIN), stdout);
}

static const char *form(const struct compare_view *view, const char *utf8, const char *ascii) {
  return view->style.utf8 ? utf8 : ascii;
}

/* A bar of ten columns, with the blanks that are left. */
static void put_ten(const struct compare_view *view, double fraction) {
  enum { COLUMNS = 10 };
  int eighths = fraction > 0 ? (int)((fraction > 1 ? 1 : fraction) * COLUMNS * 8 + 0.5) : 0;
  int used = view->style.utf8 ? (eighths + 7) / 8 : (eighths + 4) / 8;
  put_bar(stdout, view->style, fraction, COLUMNS);
  printf("%*s", COLUMNS - used, "");
}

/* ---- the first number that differs --------------------------------------------------------------------------------- */

static void put_place(const struct compare_first *f) {
  printf("step %d, %s", f->step, kvs_phase_name(compare_field_phase(f->field)));
  if (f->layer != LOOK_NONE) printf(", layer %d", f->layer);
  if (f->head != LOOK_NONE) printf(", head %d", f->head);
}

/* A whole number as one; a float32 with all its digits. */
static void put_value(const struct compare_first *f, double value) {
  if (f->field == COMPARE_POSITION && value < 0)
    fputs("none", stdout);
  else if (value == floor(value) && fabs(value) < 1e9)
    printf("%.0f", value);
  else
    printf("%.9g", value);
}

static void put_first(const struct compare_view *view, const struct comparison *c) {
  const struct compare_first *f = &c->first;
  put_label(view, "first difference");
  putchar(' ');
  switch (f->what) {
  case COMPARE_NOTHING:
    puts(c->blind ? "nothing to compare" : "none");
    return;
  case COMPARE_EXTRA:
    printf("before step %d: %.0f step%s of its own\n", f->step, f->value_b, f->value_b == 1 ? "" : "s");
    return;
  case COMPARE_MISSING:
    printf("step %d: no step is made for this token\n", f->step);
    return;
  case COMPARE_ENDED:
    printf("step %d: cannot be made, the context ends here\n", f->step);
    return;
  default:
    break;
  }
  put_place(f);
  fputs(": ", stdout);
  if (f->what == COMPARE_COUNT) {
    printf("%.0f %ss, not %.0f\n", f->value_b, compare_field_name(f->field), f->value_a);
    return;
  }
  printf("%s", compare_field_name(f->field));
  if (f->index != LOOK_NONE) printf("[%d]", f->index);
  putchar(' ');
  put_value(f, f->value_b);
  fputs(", not ", stdout);
  put_value(f, f->value_a);
  putchar('\n');
}

/* ---- sums --------------------------------------------------------------------------------------------------------- */

static void put_sums(const struct compare_view *view, const struct comparison *c) {
  const char *delta = form(view, "Δ", "d");
  put_label(view, "KL");
  printf(" mean %s", number(c->kl_mean));
  if (c->kl_max_step != LOOK_NONE) printf(", most %s in step %d", number(c->kl_max), c->kl_max_step);
  putchar('\n');
  put_label(view, "top-1 kept");
  if (c->with_top)
    printf(" %d of %d, %.0f%%\n", c->top1_kept, c->with_top, 100.0 * c->top1_kept / c->with_top);
  else
    puts(" not logged");
  put_label(view, form(view, "max |Δ logit|", "max |d logit|"));
  printf(" %s", number(c->max_abs_logit));
  if (c->max_abs_step != LOOK_NONE) printf(" in step %d", c->max_abs_step);
  putchar('\n');
  put_label(view, "log-probability");
  printf(" mean %s %s; perplexity %s, not %s\n", delta, number(c->logprob_delta), number(c->own.perplexity_b),
         number(c->own.perplexity_a));
  put_label(view, "attention");
  printf(" mean distance %s", number(c->attention_mean));
  int most = -1;
  for (int i = 0; i < c->n_layer * c->n_head; i++)
    if (!isnan(c->head_distance[i]) && (most < 0 || c->head_distance[i] > c->head_distance[most])) most = i;
  if (most >= 0)
    printf(", most %s in layer %d head %d", number(c->head_distance[most]), most / c->n_head, most % c->n_head);
  putchar('\n');
  if (c->text.tokens) {
    put_label(view, "text");
    printf(" perplexity %s, not %s, on %s token%s of the text given\n", number(c->text.perplexity_b),
           number(c->text.perplexity_a), grouped(c->text.tokens), plural(c->text.tokens));
  }
  if (c->answers.count) {
    put_label(view, "answers");
    printf(" %d of %d word%s spelled backwards rightly, not %d\n", c->answers.b, c->answers.count,
           plural(c->answers.count), c->answers.a);
  }
}

/* Around where the texts part, as much as a line takes: of both from the same token on. */
static void put_text(const struct compare_view *view, const char *name, const int *tokens, int length, int from) {
  char *text = vocabulary_text(view->vocabulary, tokens + from, length - from);
  fputs("  ", stdout);
  put_padded(stdout, view->style, name, NAME);
  fputs(from ? form(view, " …", " ~") : "  ", stdout);
  const char *shown = text ? text : "";
  int room = WIDTH - NAME - 4, width = text_width(shown);
  put_padded(stdout, view->style, shown, width < room ? width : room);
  putchar('\n');
  free(text);
}

static void put_texts(const struct compare_view *view, const struct comparison *c) {
  put_label(view, c->run_a ? "the texts" : "free-running");
  if (c->parted == LOOK_NONE)
    printf(" %s%s\n", c->forced ? "the same tokens, fed to both" : "the same text",
           c->ended_b ? ", as far as it goes" : "");
  else
    printf(" the texts part at token %d of %d\n", c->parted + 1, c->length_a);
  int from = c->parted > 8 ? c->parted - 8 : 0;
  if (from > c->length_b) from = c->length_b;
  put_text(view, c->name_a, c->text_a, c->length_a, from);
  put_text(view, c->name_b, c->text_b, c->length_b, from);
}

/* ---- details ------------------------------------------------------------------------------------------------------ */

static void put_steps(const struct compare_view *view, const struct comparison *c) {
  printf("\n%5s  %-12s %8s  %-10s %5s ", "step", "token", "KL", "", "top-1");
  put_padded(stdout, view->style, form(view, "max |Δ|", "max |d|"), -8);
  putchar(' ');
  put_padded(stdout, view->style, form(view, "Δ log p", "d log p"), -8);
  printf(" %8s\n", "attn");
  for (int i = 0; i < c->count; i++) {
    const struct compare_step *s = &c->steps[i];
    if (s->extra) printf("%5s  %d step%s of its own\n", "", s->extra, plural(s->extra));
    char *text = vocabulary_text(view->vocabulary, &s->token, s->token != LOOK_NONE);
    printf("%5d  ", s->step);
    put_padded(stdout, view->style, text ? text : "", 12);
    free(text);
    printf(" %8s  ", number(s->kl));
    put_ten(view, c->kl_max > 0 ? s->kl / c->kl_max : 0);
    const char *kept = s->top1_same == LOOK_NONE ? "-" : s->top1_same ? "kept" : "other";
    printf(" %5s %8s %8s %8s\n", kept, number(s->max_abs_logit), number(s->logprob_b - s->logprob_a),
           number(s->attention_distance));
  }
}

/* As many heads in a line as it takes. */
static void put_heads(const struct compare_view *view, const struct comparison *c) {
  enum { CELL = 9, PER_LINE = (WIDTH - 10) / CELL };
  puts("\nattention distance, mean over the steps: 0 alike, 1 disjoint");
  for (int begin = 0; begin < c->n_head; begin += PER_LINE) {
    int end = begin + PER_LINE < c->n_head ? begin + PER_LINE : c->n_head;
    printf("%10s", "");
    for (int head = begin; head < end; head++) printf("%*s%d", head < 10 ? 8 : 7, "h", head);
    putchar('\n');
    for (int layer = 0; layer < c->n_layer; layer++) {
      printf("layer %-4d", layer);
      for (int head = begin; head < end; head++) {
        double distance = c->head_distance[layer * c->n_head + head];
        fputs(distance > 0.1 ? color(view->style, INK_BAD) : "", stdout);
        printf("%*s", CELL, number(distance));
        fputs(distance > 0.1 ? color(view->style, INK_PLAIN) : "", stdout);
      }
      putchar('\n');
    }
  }
}

static void put_sentence(const struct compare_view *view, const struct comparison *c) {
  char sentence[512];
  compare_sentence(c, sentence, sizeof sentence);
  fputs(color(view->style, compare_verdict(c) == COMPARE_SAME ? INK_GOOD : INK_BAD), stdout);
  sentence[0] = (char)toupper((unsigned char)sentence[0]);
  char *delta = strstr(sentence, "Δ");
  if (delta && !view->style.utf8) memmove(delta, "d", 1), memmove(delta + 1, delta + 2, strlen(delta + 2) + 1);
  put_wrapped(sentence, 0, 0);
  fputs(color(view->style, INK_PLAIN), stdout);
}

/* Where one made steps that the other did not, their numbers do not agree. */
static void put_pairing(const struct comparison *c) {
  int extra = 0, missing = 0;
  for (int i = 0; i < c->count; i++) {
    extra += c->steps[i].extra;
    missing += c->steps[i].step_b == LOOK_NONE;
  }
  if (extra || missing) printf("(paired by the tokens fed: %d step%s of its own", extra, plural(extra));
  if (missing) printf(", none for %d token%s", missing, plural(missing));
  if (extra || missing) puts(")");
  putchar('\n');
}

void compare_put_one(const struct compare_view *view, const struct comparison *c) {
  put_shown(stdout, view->style, c->name_b);
  if (c->run_b) printf(" (run %d)", c->run_b);
  fputs(" against ", stdout);
  put_shown(stdout, view->style, c->name_a);
  if (c->run_a) printf(" (run %d)", c->run_a);
  printf("\n%d step%s%s, the same tokens fed to both\n", c->summed, plural(c->summed),
         c->summed < c->count ? " after the prompt" : "");
  put_pairing(c);
  put_first(view, c);
  put_sums(view, c);
  put_texts(view, c);
  if (view->per_step) put_steps(view, c);
  if (view->heads) put_heads(view, c);
  putchar('\n');
  put_sentence(view, c);
}

/* ---- a line each -------------------------------------------------------------------------------------------------- */

static void put_line(const struct compare_view *view, const struct comparison *c, double most) {
  char parts[24] = "-", kept[16] = "-";
  put_padded(stdout, view->style, c->name_b, 20);
  printf(" %8s ", number(c->kl_mean));
  put_ten(view, most > 0 ? c->kl_mean / most : 0);
  if (c->with_top) snprintf(kept, sizeof kept, "%.0f%%", 100.0 * c->top1_kept / c->with_top);
  if (c->parted != LOOK_NONE) snprintf(parts, sizeof parts, "%d", c->parted + 1);
  printf(" %5s %8s %8s %6s", kept, number(c->max_abs_logit), number(c->attention_mean),
         c->same     ? c->blind ? "-" : "same"
         : c->forced ? "fed"
                     : parts);
  if (c->answers.count) printf(" %7d", c->answers.b);
  putchar('\n');
}

/* "Invisible in the text, visible in the numbers: off-by-one, prompt-twice". */
static void put_names(const struct compare_view *view, const struct comparison *const *sorted, int count,
                      enum compare_verdict verdict, const char *words) {
  int column = 0;
  for (int i = 0; i < count; i++) {
    if (compare_verdict(sorted[i]) != verdict) continue;
    const char *name = sorted[i]->name_b;
    if (column == 0)
      column = printf("\n%s: ", words) - 1;
    else if (column + text_width(name) + 2 > WIDTH)
      column = printf(",\n  ") - 2;
    else
      column += printf(", ");
    put_shown(stdout, view->style, name);
    column += text_width(name);
  }
  if (column) putchar('\n');
}

/* What the columns say, and of how many tokens. */
static void put_what_numbers_mean(const struct comparison *const *sorted, int count, bool answers) {
  int fewest = sorted[0]->summed, most = sorted[0]->summed;
  for (int i = 1; i < count; i++) {
    if (sorted[i]->summed < fewest) fewest = sorted[i]->summed;
    if (sorted[i]->summed > most) most = sorted[i]->summed;
  }
  char tokens[40], text[240];
  if (fewest == most)
    snprintf(tokens, sizeof tokens, "%d token%s", most, plural(most));
  else
    snprintf(tokens, sizeof tokens, "%d to %d tokens", fewest, most);
  snprintf(text, sizeof text,
           "The numbers are of the same %s through both; parts is the first token in which the texts differ when each "
           "goes its own way%s.",
           tokens, answers ? "; answers are right ones" : "");
  putchar('\n');
  put_wrapped(text, 0, 0);
}

void compare_put_list(const struct compare_view *view, const struct comparison *const *sorted, int count) {
  double most = 0;
  bool answers = false;
  for (int i = 0; i < count; i++) {
    if (sorted[i]->kl_mean > most && !isinf(sorted[i]->kl_mean)) most = sorted[i]->kl_mean;
    answers |= sorted[i]->answers.count > 0;
  }
  fputs(color(view->style, INK_TITLE), stdout);
  printf("%-20s %8s %-10s %5s ", "", "KL", "", "top-1");
  put_padded(stdout, view->style, form(view, "max |Δ|", "max |d|"), -8);
  printf(" %8s %6s%s\n", "attn", "parts", answers ? " answers" : "");
  fputs(color(view->style, INK_PLAIN), stdout);
  for (int i = 0; i < count; i++) put_line(view, sorted[i], most);
  put_what_numbers_mean(sorted, count, answers);
  put_names(view, sorted, count, COMPARE_INVISIBLE, "Invisible in the text, visible in the numbers");
  put_names(view, sorted, count, COMPARE_ANSWERS, "Invisible in this text, visible in the answers");
  put_names(view, sorted, count, COMPARE_FED, "The same tokens were fed to both, the numbers differ");
  put_names(view, sorted, count, COMPARE_SAME, "No difference, not one bit");
  put_names(view, sorted, count, COMPARE_BLIND, "Nothing was logged in both");
  put_names(view, sorted, count, COMPARE_LONGER, "No difference, not one bit, as far as the correct run goes");
}
