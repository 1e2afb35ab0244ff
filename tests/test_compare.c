/* test_compare.c: two runs beside each other: the numbers by hand, and the view as it is drawn. */
#include "drawn.h"

#include "study/compare/diverge.h"

#define SAMPLE "traces/sample-reverse.db"
#define LN2 0.69314718055994530942

/* ---- numbers -------------------------------------------------------------------------------------------------------- */

/* p = (½, ¼, ¼), q = (¼, ½, ¼): ½·ln 2 + ¼·ln ½ + 0 = ¼·ln 2. */
static void kl_by_hand(void **unused) {
  (void)unused;
  const float p[] = {logf(0.5F), logf(0.25F), logf(0.25F)}, q[] = {logf(0.25F), logf(0.5F), logf(0.25F)};
  assert_float_equal(diverge_kl(p, q, 3), LN2 / 4, 1e-6);
  assert_float_equal(diverge_kl(q, p, 3), LN2 / 4, 1e-6);
  assert_true(diverge_kl(p, p, 3) == 0);
  /* (¾, ¼) and (½, ½): ¾·ln 1.5 + ¼·ln ½, and the other way ½·ln ⅔ + ½·ln 2. */
  const float r[] = {logf(3), 0}, s[] = {7, 7};
  assert_float_equal(diverge_kl(r, s, 2), 0.75 * log(1.5) - 0.25 * LN2, 1e-6);
  assert_float_equal(diverge_kl(s, r, 2), 0.5 * log(2.0 / 3) + 0.5 * LN2, 1e-6);
}

/* A constant added to all logits changes no probability, and nothing overflows. */
static void kl_of_huge_logits(void **unused) {
  (void)unused;
  const float a[] = {3e38F, 3e38F}, b[] = {-3e38F, -3e38F}, c[] = {1000, 0}, d[] = {0, 1000};
  assert_float_equal(diverge_kl(a, b, 2), 0, 1e-12);
  assert_float_equal(diverge_kl(c, d, 2), 1000, 1e-9); /* p = (1, 0): −ln q₀ = 1000 */
}

static void kl_at_its_borders(void **unused) {
  (void)unused;
  const float one[] = {5}, other[] = {-5}, half[] = {0, 0}, sure[] = {0, -INFINITY};
  assert_true(diverge_kl(one, other, 1) == 0); /* a single word has probability 1 in both */
  assert_float_equal(diverge_kl(sure, half, 2), LN2, 1e-12);
  assert_true(isinf(diverge_kl(half, sure, 2)));
  assert_true(diverge_kl(sure, sure, 2) == 0);
  const float none[] = {-INFINITY, -INFINITY}, nan[] = {0, NAN}, infinite[] = {INFINITY, 0};
  assert_true(isnan(diverge_kl(none, half, 2)));
  assert_true(isnan(diverge_kl(half, none, 2)));
  assert_true(isnan(diverge_kl(nan, half, 2)));
  assert_true(isnan(diverge_kl(sure, nan, 2)));
  assert_true(isnan(diverge_kl(infinite, half, 2)));
  assert_true(isnan(diverge_kl(half, half, 0)));
}

static void largest_difference_and_top(void **unused) {
  (void)unused;
  const float a[] = {1, -2, 3, -INFINITY}, b[] = {1.5F, 2, 3, -INFINITY}, nan[] = {NAN, 1, 1}, nothing[] = {NAN};
  assert_true(diverge_max_abs(a, b, 4) == 4);
  assert_true(diverge_max_abs(a, a, 4) == 0);
  assert_true(isinf(diverge_max_abs(a + 2, b, 2) + diverge_max_abs(a + 3, b, 1)));
  assert_true(isnan(diverge_max_abs(nan, b, 3)));
  assert_true(isnan(diverge_max_abs(a, b, 0)));
  assert_int_equal(diverge_top(a, 4), 2);
  assert_int_equal(diverge_top(nan, 3), 1); /* the first of equal ones */
  assert_int_equal(diverge_top(nothing, 1), -1);
  assert_int_equal(diverge_top(a + 3, 1), 0);
}

static void attention_by_hand(void **unused) {
  (void)unused;
  const float a[] = {0.5F, 0.25F, 0.25F}, b[] = {0.25F, 0.25F, 0.5F}, first[] = {1}, last[] = {0, 0, 1};
  assert_true(diverge_attention(a, 3, a, 3) == 0);
  assert_true(diverge_attention(a, 3, b, 3) == 0.25);
  assert_true(diverge_attention(first, 1, last, 3) == 1); /* rows in one of them only count too */
  assert_true(diverge_attention(last, 3, first, 1) == 1);
  assert_true(diverge_attention(a, 3, first, 1) == 0.5);
  assert_true(diverge_attention(first, 1, first, 1) == 0);
}

static void the_other_run_is_another(void **unused) {
  (void)unused;
  assert_int_equal(diverge_other(1, 0, 3), 2);
  assert_int_equal(diverge_other(2, 0, 3), 1);
  assert_int_equal(diverge_other(2, 3, 3), 3);
  assert_int_equal(diverge_other(3, 3, 3), 1); /* chosen, then made this run */
  assert_int_equal(diverge_other(1, 9, 3), 2);
  assert_int_equal(diverge_other(1, 0, 1), 0);
  assert_int_equal(diverge_other(1, 0, 0), 0);
  assert_int_equal(diverge_next_other(1, 0, 3), 3);
  assert_int_equal(diverge_next_other(1, 3, 3), 2); /* round, past this run */
  assert_int_equal(diverge_next_other(2, 1, 3), 3);
  assert_int_equal(diverge_next_other(2, 3, 3), 1);
  assert_int_equal(diverge_next_other(2, 1, 2), 1);
  assert_int_equal(diverge_next_other(1, 0, 1), 0);
}

/* ---- the view ------------------------------------------------------------------------------------------------------- */

static char copy[128];

static void open_trace(const char *path) {
  open_at(path, -1, -1, -1, -1);
  drive_action(&drive, ACTION_VIEW_8);
}

/* The line of the list for a step, found by its mark and number; what it holds. */
static void line_shows(const char *begin, const char *text) {
  const char *list = strstr(screen_text(), "KL("), *line = list ? strstr(list, begin) : NULL;
  const char *end = line ? strchr(line + 1, '\n') : NULL;
  assert_non_null(end);
  char whole[1024];
  snprintf(whole, sizeof whole, "%.*s", (int)(end - line - 1), line + 1);
  if (!strstr(whole, text)) fail_msg("no \"%s\" in \"%s\"", text, whole);
}

static int ask(const char *sql) { return (int)number(look_db(look), sql); }

static void two_runs_side_by_side(void **unused) {
  (void)unused;
  open_trace(SAMPLE);
  int first = ask("SELECT min(a.step) FROM step AS a JOIN step AS b USING (step) WHERE a.run = 1 AND b.run = 2 AND"
                  " (a.token <> b.token OR a.position <> b.position)");
  int parted = ask("SELECT min(a.step) FROM step AS a JOIN step AS b USING (step) WHERE a.run = 1 AND b.run = 2 AND"
                   " a.token <> b.token");
  assert_true(first == 9 && parted == 10);
  draw(80, 24);
  sees("run 1 correct  beside  run 2 off-by-one");
  sees("first difference: step 9, position 9 / 10, top-1");
  sees("from step 10 on the texts have parted");
  line_shows("\n▸   9 n ", "9  = n         10! o       ≠ i ");
  line_shows("\n▸   9 n ", " first");
  line_shows("\n   10 o ", "10  ≠ i         11! i       ≠ t ");
  line_shows("\n   10 o ", " parted");
  line_shows("\n    8 > ", "8  = >          8  n       = n          0.000   0.000");
  drive.cells.ascii = true; /* a wrong position and another token have each a sign of their own there too */
  draw(80, 24);
  line_shows("\n   10 o ", "10  / i         11! i       / t ");
  line_shows("\n    8 > ", "8  = >          8  n       = n ");
  drive.cells.ascii = false;
  draw(80, 24);
  sees("KL(1‖2)");
  sees("layer 0 head 0: 0.1309");
}

/* What the view shows is what SQL and plain arithmetic give. */
static void numbers_are_the_trace_s(void **unused) {
  (void)unused;
  open_trace(SAMPLE);
  const char *sql =
      "SELECT sum(abs(a.weight - b.weight)) / 2 FROM attention AS a JOIN attention AS b USING (step, layer, head, row)"
      " WHERE a.run = 1 AND b.run = 2 AND step = 9 AND layer = 1 AND head = 0";
  char text[64];
  snprintf(text, sizeof text, "layer 1 head 0: %.4f", number(look_db(look), sql));
  drive_command(&drive, "layer 1");
  draw(80, 24);
  sees(text);
  double kl = 0, all_a = 0, all_b = 0;
  const struct look_vectors *a = look_vectors(look, 1, 9), *b = look_vectors(look, 2, 9);
  int words = look_run(look, 1)->n_vocab;
  for (int i = 0; i < words; i++) all_a += exp((double)a->logits[i]), all_b += exp((double)b->logits[i]);
  for (int i = 0; i < words; i++) {
    double p = exp((double)a->logits[i]) / all_a, q = exp((double)b->logits[i]) / all_b;
    kl += p * log(p / q);
  }
  number_text(kl, 8, text);
  line_shows("\n▸   9 n ", text);
}

static void o_goes_round_past_this_run(void **unused) {
  (void)unused;
  open_trace(SAMPLE);
  drive_action(&drive, ACTION_OTHER_RUN);
  draw(80, 24);
  sees("run 1 correct  beside  run 3 reset-to-zero");
  sees("first difference: step 9, position 9 / 0");
  drive_action(&drive, ACTION_OTHER_RUN);
  draw(80, 24);
  sees("beside  run 2 off-by-one");
  drive_command(&drive, "run 2");
  draw(80, 24);
  sees("run 2 off-by-one  beside  run 1 correct");
  sees("KL(2‖1)");
  drive_action(&drive, ACTION_OTHER_RUN);
  draw(80, 24);
  sees("run 2 off-by-one  beside  run 3 reset-to-zero");
}

static void d_goes_to_the_first_difference(void **unused) {
  (void)unused;
  open_trace(SAMPLE);
  drive_command(&drive, "step 2");
  drive_action(&drive, ACTION_DIFFERENCE);
  assert_int_equal(drive.state.step, 9);
  assert_string_equal(drive.state.message, "step 9 is the first that differs from run 2");
  drive_action(&drive, ACTION_OTHER_RUN);
  drive_action(&drive, ACTION_DIFFERENCE);
  assert_string_equal(drive.state.message, "step 9 is the first that differs from run 3");
}

/* Run 3 has a step more; nothing is made up for run 1, whichever of them is this run. */
static void a_shorter_run_has_ended(void **unused) {
  (void)unused;
  open_trace(SAMPLE);
  drive_command(&drive, "run 3");
  drive_action(&drive, ACTION_LAST_STEP);
  draw(80, 24);
  line_shows("\n▸  18 o ", "0!   –             o         – ");
  line_shows("\n▸  18 o ", "–       –");
  sees("run 1 has no step 18");
}

static void what_has_not_come_is_not_shown(void **unused) {
  (void)unused;
  open_trace(SAMPLE);
  drive_action(&drive, ACTION_PREVIOUS_MOMENT);
  draw(80, 24);
  line_shows("\n▸   9 n ", "10! ·");
  sees("layer 0 head 0: 0.1309");
  for (int i = 0; i < 4; i++) drive_action(&drive, ACTION_PREVIOUS_MOMENT);
  draw(80, 24);
  sees("the weights are not there yet");
  misses("layer 0 head 0: ");
}

static void every_size_is_drawn(void **unused) {
  (void)unused;
  open_trace(SAMPLE);
  for (int rows = 1; rows < 70; rows += 3)
    for (int columns = 1; columns < 260; columns += 7) assert_true(drive_draw(&drive, rows, columns));
  draw(200, 60);
  sees("weights of layer 0 head 0, row by row");
  draw(60, 15);
  sees("first");
  sees("▸   9");
}

/* ---- traces that lack something ------------------------------------------------------------------------------------- */

static int make_copy(void **state) {
  if (make_folder(state)) return -1;
  strcpy(copy, in_folder("copy.db"));
  return shell("cp " SAMPLE " '%s'", copy);
}

static int drop_copy(void **state) {
  shut(state);
  return remove_folder(state);
}

static void change(const char *sql) { alter(copy, sql); }

static void one_run_says_how_to_get_another(void **unused) {
  (void)unused;
  change("DELETE FROM step WHERE run > 1; DELETE FROM run WHERE run > 1");
  open_trace(copy);
  draw(80, 24);
  sees("this trace has one run");
  sees("--append --fault off-by-one");
  drive_action(&drive, ACTION_OTHER_RUN);
  assert_string_equal(drive.state.message, "this trace has one run");
  drive_action(&drive, ACTION_DIFFERENCE);
  assert_string_equal(drive.state.message, "this trace has one run");
}

static void without_logits_the_top_tokens_remain(void **unused) {
  (void)unused;
  change("UPDATE step_vector SET logits = NULL WHERE run = 2");
  open_trace(copy);
  draw(80, 24);
  line_shows("\n▸   9 n ", "o       ≠ i              –       –");
  change("DELETE FROM top_token WHERE run = 1; DELETE FROM head_step WHERE run = 2");
  shut(NULL);
  open_trace(copy);
  draw(80, 24);
  line_shows("\n▸   9 n ", "10! –         i              –       –");
  sees("layer 0 head 0: not logged in both runs");
}

static void logits_alone_tell_the_top_token(void **unused) {
  (void)unused;
  change("DELETE FROM top_token");
  open_trace(copy);
  draw(80, 24);
  line_shows("\n▸   9 n ", "10! #14     ≠ #8 "); /* o and i */
}

static void like_runs_do_not_differ(void **unused) {
  (void)unused;
  change("UPDATE step SET position = cache_length_before;"
         "UPDATE step SET token = (SELECT a.token FROM step AS a WHERE a.run = 1 AND a.step = step.step) WHERE run = 2;"
         "UPDATE top_token SET token = (SELECT a.token FROM top_token AS a WHERE a.run = 1 AND a.step = top_token.step"
         " AND a.rank = top_token.rank) WHERE run = 2");
  open_trace(copy);
  draw(80, 24);
  sees("no step differs in token, position or top-1");
  sees("the same tokens so far");
  misses("first");
}

int main(void) {
#define VIEW_TEST(name) cmocka_unit_test_teardown(name, shut)
#define COPY_TEST(name) cmocka_unit_test_setup_teardown(name, make_copy, drop_copy)
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(kl_by_hand),
      cmocka_unit_test(kl_of_huge_logits),
      cmocka_unit_test(kl_at_its_borders),
      cmocka_unit_test(largest_difference_and_top),
      cmocka_unit_test(attention_by_hand),
      cmocka_unit_test(the_other_run_is_another),
      VIEW_TEST(two_runs_side_by_side),
      VIEW_TEST(numbers_are_the_trace_s),
      VIEW_TEST(o_goes_round_past_this_run),
      VIEW_TEST(d_goes_to_the_first_difference),
      VIEW_TEST(a_shorter_run_has_ended),
      VIEW_TEST(what_has_not_come_is_not_shown),
      VIEW_TEST(every_size_is_drawn),
      COPY_TEST(one_run_says_how_to_get_another),
      COPY_TEST(without_logits_the_top_tokens_remain),
      COPY_TEST(logits_alone_tell_the_top_token),
      COPY_TEST(like_runs_do_not_differ),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
