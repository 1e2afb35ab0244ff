/* bench_check.c: does check name every fault, and nothing else? Each kind of fault × prompts × models × starting steps, traced by the real engine,
 * with and without weights; and right runs, stored coarsely, drifted, logged in part. Prints what came of it.
 *
 * With an argument: a model directory that is checked besides; `124M` is random weights of GPT-2 small's shape.
 */
#include <string.h>

#include "tests/support/check_matrix.h"

static const char *const austen[] = {
    "It is a truth", "She was", "The", "Mr. Darcy said nothing of the matter to", "I hope you will", "no, no, no, no"};
static const char *const reverse[] = {"position>", "abc>", "kvstep>", "letters>", "banana>", "queue>"};

static void put_line(const struct matrix_line *l) {
  printf("%-22s %5d %7d %6d %7d %6d %6d %6d\n", l->name, l->runs, l->unseen, l->named, l->among, l->more, l->wrong,
         l->missed);
}

static void add(struct matrix_line *sum, const struct matrix_line *l) {
  sum->runs += l->runs, sum->unseen += l->unseen, sum->named += l->named, sum->among += l->among;
  sum->more += l->more, sum->wrong += l->wrong, sum->missed += l->missed;
}

static struct matrix_line bench(const struct matrix_model *models, int count, const struct matrix_options *o,
                                int *alarms) {
  static const char *const sights[] = {"", ", tokens and rows only", ", no scores", ", no claims"};
  struct matrix_line all = {.name = "all"};
  printf("\n%s weights%s\n%-22s %5s %7s %6s %7s %6s %6s %6s\n", o->weights ? "With" : "Without", sights[o->sight],
         "fault", "runs", "no-op", "named", "alike", "more", "wrong", "missed");
  for (int i = 0; kvs_fault_at(i); i++) {
    struct matrix_line line = {0};
    for (int m = 0; m < count; m++) matrix_fault(&models[m], kvs_fault_at(i), o, &line);
    put_line(&line);
    add(&all, &line);
  }
  put_line(&all);
  printf("\n%-22s %5s %6s %6s %6s\n", "no fault", "runs", "clean", "alarms", "unsure");
  for (int c = 0; c < CONTROL_COUNT; c++) {
    struct matrix_line line = {0};
    for (int m = 0; m < count; m++) matrix_control(&models[m], (enum matrix_control)c, o, &line);
    printf("%-22s %5d %6d %6d %6d\n", line.name, line.runs, line.named, line.wrong, line.missed);
    *alarms += line.wrong;
  }
  fflush(stdout);
  return all;
}

int main(int argc, char **argv) {
  struct matrix_model models[5];
  int count = 0, alarms = 0;
  bool small = argc > 1 && strcmp(argv[1], "124M") == 0;
  models[count++] = matrix_builtin("reverse", reverse, 6);
  models[count++] = matrix_builtin("austen", austen, 6);
  models[count++] = matrix_random("random 3x5x8",
                                  (kvs_config){.n_layer = 3,
                                               .n_head = 5,
                                               .n_embd = 40,
                                               .n_ctx = 40,
                                               .n_vocab = 90,
                                               .scale_attn_weights = true,
                                               .tied = true},
                                  11, 6);
  models[count++] = matrix_random(
      "random 4x2x32",
      (kvs_config){.n_layer = 4, .n_head = 2, .n_embd = 64, .n_ctx = 48, .n_vocab = 200, .scale_attn_weights = true}, 5,
      6);
  if (small) {
    kvs_config shape = {.n_layer = 12,
                        .n_head = 12,
                        .n_embd = 768,
                        .n_ctx = 1024,
                        .n_vocab = 50257,
                        .scale_attn_weights = true,
                        .tied = true};
    models[0] = models[--count], models[0] = matrix_random("random 124M", shape, 3, 5), count = 1;
  }
  const struct matrix_options with = {.weights = true, .generate = 12, .late = true, .details = stderr};
  const struct matrix_options without = {.weights = false, .generate = 12, .late = true, .details = stderr};
  struct matrix_line a = bench(models, count, &with, &alarms), b = bench(models, count, &without, &alarms);
  for (int sight = SIGHT_ROWS; sight < SIGHT_COUNT; sight++) {
    struct matrix_options less = with;
    less.sight = (enum matrix_sight)sight;
    bench(models, count, &less, &alarms);
  }
  for (int m = 0; m < count; m++) matrix_model_free(&models[m]);
  int seen = a.runs - a.unseen, named = a.named + a.among, seen_b = b.runs - b.unseen, named_b = b.named + b.among;
  printf("\nwith weights %d of %d named (%.1f%%), without %d of %d (%.1f%%); %d false alarms\n", named, seen,
         100.0 * named / seen, named_b, seen_b, 100.0 * named_b / seen_b, alarms);
  return named == seen && alarms == 0 ? 0 : 1;
}
