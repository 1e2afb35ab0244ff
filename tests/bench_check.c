/* bench_check.c: does check name every fault, and nothing else? Each kind of fault × prompts × models × starting steps, traced by the real engine,
 * with and without weights; and right runs, stored coarsely, drifted, logged in part. Prints what came of it.
 *
 * With the argument `pairs`: two faults at once, every pair, or those with the fault that is named next.
 * With the argument `124M`: on random weights of GPT-2 small's shape instead (some minutes, 2 GB).
 */
#include <string.h>

#include "tests/support/check_pairs.h"

static const char *const austen[] = {
    "It is a truth", "She was", "The", "Mr. Darcy said nothing of the matter to", "I hope you will", "no, no, no, no"};
static const char *const reverse[] = {"position>", "abc>", "kvstep>", "letters>", "banana>", "queue>"};

/* A context is not filled that is longer than this: what happens at its end is the same in a short one. */
#define LONGEST_CONTEXT 512

static void put_line(const struct matrix_line *l) {
  printf("%-22s %5d %7d %6d %7d %6d %6d %6d\n", l->name, l->runs, l->unseen, l->named, l->among, l->more, l->wrong,
         l->missed);
}

static void add(struct matrix_line *sum, const struct matrix_line *l) {
  sum->runs += l->runs, sum->unseen += l->unseen, sum->named += l->named, sum->among += l->among;
  sum->mute += l->mute, sum->more += l->more, sum->wrong += l->wrong, sum->missed += l->missed;
}

static struct matrix_line bench(const struct matrix_model *models, int count, const struct matrix_options *o,
                                int *alarms) {
  static const char *const sights[] = {"", ", tokens and rows only", ", no scores", ", no claims"};
  struct matrix_line all = {.name = "all"};
  printf("\n%s weights%s\n%-22s %5s %7s %6s %7s %6s %6s %6s\n", o->weights ? "With" : "Without", sights[o->sight],
         "fault", "runs", "no-op", "named", "alike", "more", "wrong", "missed");
  for (int i = 0; kvs_fault_at(i); i++) {
    struct matrix_line line = {0};
    for (int m = 0; m < count; m++)
      if (!kvs_fault_at(i)->fills_context || kvs_model_config(models[m].model)->n_ctx <= LONGEST_CONTEXT)
        matrix_fault(&models[m], kvs_fault_at(i), o, &line);
    put_line(&line);
    fflush(stdout);
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

/* The models of the matrix; how many. */
static int usual_models(struct matrix_model *models) {
  const kvs_config small = {
      .n_layer = 3, .n_head = 5, .n_embd = 40, .n_ctx = 40, .n_vocab = 90, .scale_attn_weights = true, .tied = true};
  const kvs_config wide = {
      .n_layer = 4, .n_head = 2, .n_embd = 64, .n_ctx = 48, .n_vocab = 200, .scale_attn_weights = true};
  models[0] = matrix_builtin("reverse", reverse, 6);
  models[1] = matrix_builtin("austen", austen, 6);
  models[2] = matrix_random("random 3x5x8", small, 11, 6);
  models[3] = matrix_random("random 4x2x32", wide, 5, 6);
  return 4;
}

/* GPT-2 small's shape; and once more with a short context, for what happens at its end. */
static int large_models(struct matrix_model *models) {
  kvs_config shape = {.n_layer = 12,
                      .n_head = 12,
                      .n_embd = 768,
                      .n_ctx = 1024,
                      .n_vocab = 50257,
                      .scale_attn_weights = true,
                      .tied = true};
  models[0] = matrix_random("random 124M", shape, 3, 2);
  shape.n_ctx = 64;
  models[1] = matrix_random("random 124M, n_ctx 64", shape, 4, 1);
  return 2;
}

static bool is_named(const kvs_fault *fault, const char *name) { return strcmp(fault->name, name) == 0; }

/* Every two faults at once (or those with this one): which of them are not both named. */
static int bench_pairs(const char *only) {
  const kvs_config small = {
      .n_layer = 3, .n_head = 5, .n_embd = 40, .n_ctx = 40, .n_vocab = 90, .scale_attn_weights = true, .tied = true};
  struct matrix_model models[] = {matrix_builtin("reverse", reverse, 2), matrix_random("random 3x5x8", small, 11, 2)};
  enum { MODELS = sizeof models / sizeof *models };
  int runs = 0, right = 0;
  for (int weights = 1; weights >= 0; weights--) {
    const struct matrix_options o = {.weights = weights, .generate = 12, .details = stderr};
    printf("\n%s weights\n%-22s %-22s %5s %6s %8s %6s\n", weights ? "With" : "Without", "fault", "and", "runs", "right",
           "missing", "extra");
    for (int i = 0; kvs_fault_at(i); i++)
      for (int j = i + 1; kvs_fault_at(j); j++) {
        struct pair_line line = {0};
        if (only && !is_named(kvs_fault_at(i), only) && !is_named(kvs_fault_at(j), only)) continue;
        for (int m = 0; m < MODELS; m++) pairs_of(&models[m], kvs_fault_at(i), kvs_fault_at(j), &o, &line);
        runs += line.runs, right += line.right;
        if (line.right < line.runs)
          printf("%-22s %-22s %5d %6d %8d %6d\n", line.names[0], line.names[1], line.runs, line.right, line.missing,
                 line.extra);
        fflush(stdout);
      }
  }
  printf("\n%d of %d runs with two faults: each that shows is named, and nothing else\n", right, runs);
  for (int m = 0; m < MODELS; m++) matrix_model_free(&models[m]);
  return right == runs ? 0 : 1;
}

int main(int argc, char **argv) {
  struct matrix_model models[4];
  int alarms = 0, mute = 0;
  bool large = argc > 1 && strcmp(argv[1], "124M") == 0;
  int count = large ? large_models(models) : usual_models(models);
  if (argc > 1 && strcmp(argv[1], "pairs") == 0) return bench_pairs(argc > 2 ? argv[2] : NULL);
  struct matrix_options o = {.generate = large ? 5 : 12, .late = !large, .details = stderr};
  struct matrix_line total[2];
  for (int weights = 1; weights >= 0; weights--) {
    o.weights = weights;
    total[weights] = bench(models, count, &o, &alarms);
    mute += total[weights].mute;
  }
  o.weights = true;
  for (int sight = SIGHT_ROWS; sight < SIGHT_COUNT && !large; sight++) {
    o.sight = (enum matrix_sight)sight;
    bench(models, count, &o, &alarms);
  }
  for (int m = 0; m < count; m++) matrix_model_free(&models[m]);
  putchar('\n');
  if (mute) printf("%d queries show nothing\n", mute);
  bool all = alarms == 0 && mute == 0;
  for (int weights = 1; weights >= 0; weights--) {
    int seen = total[weights].runs - total[weights].unseen, named = total[weights].named + total[weights].among;
    printf("%s weights %d of %d named (%.1f%%)\n", weights ? "with" : "without", named, seen, 100.0 * named / seen);
    all = all && (named == seen || !weights);
  }
  printf("%d false alarms\n", alarms);
  return all ? 0 : 1;
}
