/* test_lens.c: what each layer would say: against float64 numbers reckoned elsewhere, against the engine's own logits, a piece at a
 * time; and where it cannot be had. */
#include "drawn.h"

#include <limits.h>

#include "study/look/lens.h"
#include "tests/support/memory_model.h"

static kvs_model *model;
static struct lens *lens;

static int open_model(void **state) {
  (void)state;
  return kvs_model_open("reverse", &model, &error) == KVS_OK && lens_create(model, &lens, &error) == KVS_OK ? 0 : -1;
}

static int close_all(void **state) {
  lens_free(lens);
  kvs_model_free(model);
  return shut(state);
}

static struct lens_layer ask(int step, int layer, int token) {
  struct lens_layer answer;
  long work = LONG_MAX;
  assert_int_equal(lens_ask(lens, look, 1, step, layer, token, &work, &answer), LENS_READY);
  return answer;
}

/* NumPy in float64, from model.safetensors and layer_step.x_out: in layer 0 token 27 leads with 0.99999398, token 8 is the 27th
 * with 7.9143707e-11; in layer 1 token 8 leads with 0.99999988. */
static void numbers_of_another_program(void **state) {
  (void)state;
  open_at("traces/sample-reverse.db", 1, 10, 0, 0);
  struct lens_layer first = ask(10, 0, 8), last = ask(10, 1, 8);
  assert_int_equal(first.top, 27);
  assert_close(first.top_probability, 0.999993982531066, 1e-8, __LINE__);
  assert_int_equal(first.rank, 27);
  assert_close(first.probability, 7.914370674536526e-11, 1e-15, __LINE__);
  assert_int_equal(last.top, 8);
  assert_int_equal(last.rank, 1);
  assert_close(last.probability, 0.9999998780281589, 1e-9, __LINE__);
}

/* Through the last layer the lens sees what the step said, in every step of every run. */
static void the_last_layer_is_the_step(void **state) {
  (void)state;
  open_at("traces/sample-reverse.db", 1, 10, 0, 0);
  for (int run = 1; run <= look_runs(look); run++)
    for (int step = 0; step < look_run(look, run)->steps; step++) {
      const struct look_top *top = look_top(look, run, step);
      struct lens_layer answer;
      long work = LONG_MAX;
      for (int i = 0; i < top->count; i++) {
        assert_int_equal(lens_ask(lens, look, run, step, 1, top->token[i].token, &work, &answer), LENS_READY);
        assert_int_equal(answer.top, top->token[0].token);
        assert_int_equal(answer.rank, i + 1);
        assert_close(answer.probability, top->token[i].probability, 1e-12, __LINE__);
      }
    }
}

/* However little is done at a time, the answer is the same, and another question between does not disturb it. */
static void a_piece_at_a_time(void **state) {
  (void)state;
  kvs_model_free(model);
  lens_free(lens);
  ok(kvs_model_open("austen", &model, &error));
  ok(lens_create(model, &lens, &error));
  assert_int_equal(shell("'%s' run -n 2 --log full -o '%s' >/dev/null 2>&1", kvstep_binary(), in_folder("a.db")), 0);
  open_at(in_folder("a.db"), 1, 2, 0, 0);
  struct lens_layer whole = ask(2, 1, 5), slow = {0};
  int vocabulary = kvs_model_config(model)->n_vocab, asked = 0;
  lens_free(lens);
  ok(lens_create(model, &lens, &error));
  long work;
  do {
    work = 1;
    if (asked++ > 1000) fail();
  } while (lens_ask(lens, look, 1, 2, 1, 5, &work, &slow) == LENS_LATE);
  assert_true(asked > vocabulary / 1024);
  assert_memory_equal(&whole, &slow, sizeof whole);
  work = 0;
  assert_int_equal(lens_ask(lens, look, 1, 2, 1, 5, &work, &slow), LENS_READY); /* kept: it costs nothing */
  assert_int_equal(lens_ask(lens, look, 1, 2, 2, 5, &work, &slow), LENS_LATE);
  bool late = true; /* as the screen asks: all layers in turn in every frame, and a little is done in each */
  for (int frames = 0; late; frames++) {
    late = false;
    work = 1;
    for (int layer = 0; layer < 4; layer++) late |= lens_ask(lens, look, 1, 2, layer, 6, &work, &slow) == LENS_LATE;
    assert_true(frames < 100);
  }
}

/* Two tokens with the same row of lm_head: the first of them leads, as where the engine takes the best token. */
static void of_equal_tokens_the_first_leads(void **state) {
  (void)state;
  kvs_model *made = memory_model(small_config, KVS_F32, 5);
  lens_free(lens);
  ok(lens_create(made, &lens, &error));
  bend("");
  int best = ask(5, 1, 0).top, other = best == 0 ? 1 : best - 1;
  int first = best < other ? best : other, second = best < other ? other : best;
  float *rows = (float *)(uintptr_t)made->lm_head.data;
  memcpy(rows + other * small_config.n_embd, rows + best * small_config.n_embd,
         (size_t)small_config.n_embd * sizeof *rows);
  lens_free(lens);
  ok(lens_create(made, &lens, &error));
  assert_int_equal(ask(5, 1, first).top, first);
  assert_int_equal(ask(5, 1, first).rank, 1);
  assert_int_equal(ask(5, 1, second).rank, 2);
  memory_model_free(made);
}

static void where_it_cannot_be_had(void **state) {
  (void)state;
  struct lens_layer answer;
  long work = LONG_MAX;
  open_at("traces/sample-austen.db", 1, 10, 3, 1);
  assert_int_equal(lens_ask(lens, look, 1, 10, 3, 5, &work, &answer), LENS_OTHER_MODEL);
  drive_action(&drive, ACTION_VIEW_7);
  draw(80, 24);
  sees("the logit lens needs the model");
  drive_command(&drive, "other-form");
  ok(drive_set_model(&drive, model, &error));
  draw(80, 24);
  sees("this run was not");
  kvs_model *austen;
  ok(kvs_model_open("austen", &austen, &error));
  ok(drive_set_model(&drive, austen, &error));
  draw(60, 15);
  sees("`kvstep run --log full`");
  ok(drive_set_model(&drive, NULL, &error));
  kvs_model_free(austen);
}

static void on_the_screen(void **state) {
  (void)state;
  open_at("traces/sample-reverse.db", 1, 10, 1, 1);
  ok(drive_set_model(&drive, model, &error));
  drive_action(&drive, ACTION_VIEW_7);
  draw(80, 24);
  sees(" 0  \\n        1.000     27 0.000");
  sees(" 1  i         1.000      1 1.000");
  sees("▸  1  i                  20.63  1.0000");
  draw(60, 15); /* there is no room for both */
  misses("if it were the last");
  drive_key(&drive, 'w');
  draw(60, 15);
  sees(" 0  \\n        1.000     27 0.000");
  drive_key(&drive, 'w');
  drive.cells.hurried = true;
  for (int frames = 0; frames == 0 || drive.cells.unfinished; frames++) {
    draw(80, 24);
    assert_true(frames < 10);
  }
  sees(" 1  i         1.000      1 1.000");
  while (drive.state.moment > KVS_MLP) drive_action(&drive, ACTION_PREVIOUS_MOMENT);
  draw(80, 24);
  misses("if it were the last"); /* the logits are not there yet */
}

int main(void) {
#define LENS_TEST(f) cmocka_unit_test_setup_teardown(f, open_model, close_all)
  const struct CMUnitTest tests[] = {
      LENS_TEST(numbers_of_another_program),      LENS_TEST(the_last_layer_is_the_step), LENS_TEST(a_piece_at_a_time),
      LENS_TEST(of_equal_tokens_the_first_leads), LENS_TEST(where_it_cannot_be_had),     LENS_TEST(on_the_screen),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
