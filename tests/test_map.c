/* test_map.c: shades of weights, views that wait for the moment, and frames that somebody waits for. */
#include "drawn.h"

#include "study/look/attention.h"
#include "tui/view.h"

/* Even attention is seen however many rows there are, the heavier weight is the brighter one, and all of it is between 0 and 1. */
static void shades_rise_with_the_weight(void **state) {
  (void)state;
  for (int rows = 1; rows <= 1024; rows++) {
    double before = weight_shade(0, rows);
    assert_true(before == 0 && fabs(weight_shade(1, rows) - 1) < 1e-12 && weight_shade(1.0 / rows, rows) > 0.3);
    for (int i = 1; i <= 200; i++) {
      double shade = weight_shade(i / 200.0, rows);
      assert_true(shade > before && shade < 1 + 1e-12);
      before = shade;
    }
  }
  assert_true(isnan(weight_shade(NAN, 7)));
  open_at("traces/sample-austen.db", 1, 10, 3, 1);
  draw(80, 24);
  for (int i = 0; i < 200; i++) draw_weight(&drive.cells, cells_area(&drive.cells), 0, 0, 1.0 / 200, 200);
  assert_string_equal(cells_at(&drive.cells, 0, 0)->text, "░");
}

/* A row without weight is hidden where its score would have given it one, e^-80 of the largest being none: by definition. */
static void hidden_rows_by_hand(void **state) {
  (void)state;
  const float scores[] = {5, 5, -74, -76, 5}, weights[] = {0, 0.5f, 0, 0, 0.5f}, none[5] = {0};
  assert_int_equal(attention_hidden_rows(scores, weights, 5), 2); /* the first, and that of -74: e^-79 */
  assert_int_equal(attention_hidden_rows(scores, none, 5), 0);    /* from whom? */
  assert_int_equal(attention_hidden_rows(scores + 1, weights + 1, 1), 0);
}

/* What has not happened in this step yet is in none of the views; the steps before stay whole. */
static void views_obey_the_moment(void **state) {
  (void)state;
  open_at("traces/sample-austen.db", 1, 10, 3, 1);
  drive_command(&drive, "row 8");
  while (drive.state.moment > KVS_SCORE) drive_action(&drive, ACTION_PREVIOUS_MOMENT);
  drive_command(&drive, "row 8");
  drive_action(&drive, ACTION_VIEW_3);
  draw(80, 24);
  sees("step 10, row 8 ,: weight not there yet, score -2.405");
  sees("▸  10  ␠I         not there yet");
  sees("   9  ␠and       ░·▒▓");
  drive_action(&drive, ACTION_VIEW_5);
  draw(80, 24);
  sees("score = -13.6059 / √32 = -2.4052");
  misses("0.3060");
  drive_action(&drive, ACTION_VIEW_4);
  draw(80, 24);
  sees("the weights are not there yet");
  drive_action(&drive, ACTION_PREVIOUS_MOMENT); /* append */
  drive_action(&drive, ACTION_VIEW_5);
  draw(80, 24);
  sees("the scores are not there yet");
  misses("-13.6059");
  drive_action(&drive, ACTION_VIEW_3);
  draw(80, 24);
  misses("-2.405");
  while (drive.state.moment > KVS_READ_LENGTH) drive_action(&drive, ACTION_PREVIOUS_MOMENT);
  drive_action(&drive, ACTION_VIEW_6);
  draw(80, 24);
  sees("x is not there yet");
  misses("3.186");
}

/* With somebody waiting a frame fetches few heads and says so; the frames after it bring the others, and the same screen. */
static void a_hurried_frame_fetches_little(void **state) {
  (void)state;
  static const enum action all[] = {ACTION_VIEW_3, ACTION_VIEW_4};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    static char whole[24 * 80][20];
    open_at("traces/sample-reverse.db", 1, 10, 1, 1);
    drive_action(&drive, all[i]);
    draw(80, 24);
    assert_false(drive.cells.unfinished);
    for (int c = 0; c < 24 * 80; c++) memcpy(whole[c], drive.cells.cell[c].text, sizeof whole[c]);
    shut(NULL);
    open_at("traces/sample-reverse.db", 1, 10, 1, 1);
    drive_action(&drive, all[i]);
    drive.cells.hurried = true;
    draw(80, 24);
    sees("reading");
    assert_true(drive.cells.unfinished);
    int frames = 1;
    for (; drive.cells.unfinished && frames < 100; frames++) draw(80, 24);
    assert_true(frames < 20);
    misses("reading");
    for (int c = 0; c < 24 * 80; c++) assert_string_equal(whole[c], drive.cells.cell[c].text);
    shut(NULL);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hidden_rows_by_hand),
      cmocka_unit_test_teardown(shades_rise_with_the_weight, shut),
      cmocka_unit_test_teardown(views_obey_the_moment, shut),
      cmocka_unit_test_teardown(a_hurried_frame_fetches_little, shut),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
