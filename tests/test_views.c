/* test_views.c: each view drawn from the sample traces, with numbers that SQL and float64 sums gave. Run it from the
 * repository's root, where traces/ lies. */
#include "drawn.h"

/* ---- helpers ---- */

static const int sizes[][2] = {{80, 24}, {200, 60}};
#define EACH_SIZE(i) for (size_t i = 0; i < sizeof sizes / sizeof *sizes && (draw(sizes[i][0], sizes[i][1]), true); i++)

/* ---- the views ---- */

/* `SELECT row, score, weight FROM attention WHERE run = 1 AND step = 10 AND layer = 3 AND head = 1`: row 8 has most. */
static void step_view(void **state) {
  (void)state;
  open_at("traces/sample-austen.db", 1, 10, 3, 1);
  EACH_SIZE(i) {
    sees("run 1 correct  step 10/19  layer 3/3  head 1/3");
    sees("t = cache length read before the append = 10");
    sees("append: length 10 → 11");
    sees("x = wte[301] + wpe[10]");
    sees("q·K[i]/√32, i = 0..10");
    sees("11 weights, sum 1.000, no mask");
    sees("next: ␠am 0.168");
    sees(" 8 , ");
    sees("-2.405  0.306");
    sees("-4.629  0.033");
    sees("row 10 new");
  }
  draw(60, 15); /* the numbers stay in sight where there is little room */
  sees("-2.405  0.306");
  sees("run 1 correct  step 10/19  layer 3/3  head 1/3");
  drive_command(&drive, "previous-moment");
  for (int i = 0; i < 8; i++) drive_action(&drive, ACTION_PREVIOUS_MOMENT);
  draw(60, 15);
  sees("▸ 1 read    t = cache length 10 ");
  sees("row 10 free");
  sees("free: k, v");
  misses("0.306");
}

static void where_the_prompt_ends(void **state) {
  (void)state;
  open_at("traces/sample-austen.db", -1, -1, -1, -1);
  draw(80, 24);
  sees("step 8/19");
  sees("│8 ,");
}

static void faults_in_words(void **state) {
  (void)state;
  open_at("traces/sample-reverse.db", 2, 9, 1, 0);
  EACH_SIZE(i) {
    sees("run 2 off-by-one  step 9/");
    sees("WRONG: t = 10, read after the append: wpe[10] used, wpe[9] right");
    sees("cache length 9, t = 10");
    sees("x = wte[13] + wpe[10]");
  }
  draw(60, 15);
  sees("WRONG: t = 10: wpe[10] used, wpe[9] right");
  drive_action(&drive, ACTION_NEXT_RUN);
  draw(80, 24);
  sees("run 3 reset-to-zero");
  sees("WRONG: t = 0, started again at 0: wpe[0] used, wpe[9] right");
}

static void cache_view(void **state) {
  (void)state;
  open_at("traces/sample-austen.db", 1, 10, 3, 1);
  drive_action(&drive, ACTION_VIEW_2);
  EACH_SIZE(i) {
    sees("2 cache: the K and V rows of this layer");
    sees("layer 3, head 1: dims 32..63 of 128");
    sees("44.0 KiB now"); /* 11 rows of 2·4·128·4 bytes */
    sees("    5  r            5    7.047");
    sees("▸  10  ␠I          10");
  }
  drive_command(&drive, "layer 1");
  draw(80, 24);
  sees("K and V of this layer were not logged");
}

static void what_was_not_logged(void **state) {
  (void)state;
  open_at("traces/sample-austen.db", 1, 7, 2, 1);
  EACH_SIZE(i) {
    sees("layer 2 head 1: not logged (--layers)");
    sees("8 weights: not logged");
    misses("sum 0.000");
  }
  drive_action(&drive, ACTION_VIEW_3);
  draw(80, 24);
  sees("layer 2 head 1 was not logged in this step");
}

/* `SELECT f32_norm(k), f32_norm(v) FROM kv_row`: the whole row, not one head's 32 numbers of it. */
static void whole_rows(void **state) {
  (void)state;
  open_at("traces/sample-austen.db", 1, 10, 3, 1);
  drive_action(&drive, ACTION_VIEW_2);
  drive_key(&drive, 'w');
  EACH_SIZE(i) {
    sees("layer 3, whole rows: 4 heads × 32");
    sees("▸  10  ␠I          10    12.27");
    sees("7.862");
  }
  draw(200, 60);
  sees("head 0"); /* and each head's part by itself */
  sees("head 3");
  drive_key(&drive, 'w');
  draw(80, 24);
  sees("layer 3, head 1: dims 32..63 of 128");
  drive_action(&drive, ACTION_VIEW_1);
  drive_key(&drive, 'w');
  draw(80, 24);
  sees("in view 2 whole rows");
}

static void map_view(void **state) {
  (void)state;
  open_at("traces/sample-austen.db", 1, 10, 3, 1);
  drive_action(&drive, ACTION_VIEW_3);
  EACH_SIZE(i) {
    sees("step 10, row 10 ␠I: weight 0.0861, score -3.673");
    sees("▾10");
    /* The eleven weights in even shares: 0.36 0.63 0.59 1.07 0.26 1.01 0.36 0.59 3.37 1.81 0.95, as SQL has them. */
    sees("▸  10  ␠I         ░░░▒░▒░░▓▒▒");
    sees("1/rows  - masked");
    sees("--"); /* the prompt's rows that the mask hides */
  }
  for (int i = 0; i < 2; i++) drive_action(&drive, ACTION_ROW_UP);
  draw(80, 24);
  sees("step 10, row 8 ,: weight 0.3060, score -2.405");
  sees("▾8"); /* and 10 gives way */
  misses("▾810");
}

static void heads_view(void **state) {
  (void)state;
  open_at("traces/sample-austen.db", 1, 10, 3, 1);
  drive_action(&drive, ACTION_VIEW_4);
  EACH_SIZE(i) {
    sees("8 , 0.41");
    sees("0 I 0.14");
    sees("2 ␠is 0.61");
    sees("9 ␠and 0.46");
    sees("L1    the weights of this layer were not logged");
  }
  drive_action(&drive, ACTION_ACCEPT);
  draw(80, 24);
  sees("1 step");
}

static void product_view(void **state) {
  (void)state;
  open_at("traces/sample-austen.db", 1, 10, 3, 1);
  drive_action(&drive, ACTION_VIEW_5);
  drive_command(&drive, "row 8");
  EACH_SIZE(i) {
    sees("q of step 10 · K[8] , = the sum of the products = -13.6059");
    sees("score = -13.6059 / √32 = -2.4052   weight 0.3060");
    sees("17  -2.828 ×  3.160 = -8.937");
  }
}

static void embedding_view(void **state) {
  (void)state;
  open_at("traces/sample-austen.db", 1, 10, 3, 1);
  drive_action(&drive, ACTION_VIEW_6);
  EACH_SIZE(i) {
    sees("wte[301] ␠I");
    sees("norm   2.486");
    sees("norm   1.871");
    sees("norm   3.186");
  }
  shut(NULL);
  open_at("traces/sample-reverse.db", 2, 9, -1, -1); /* no step of run 2 used wpe[9]; run 1 did */
  drive_action(&drive, ACTION_VIEW_6);
  EACH_SIZE(i) sees("distance from wpe[9] 2.295, cosine -0.367   ← this one was used");
  draw(60, 20);
  sees("distance 2.295, cosine -0.367 ← used ");
  drive_action(&drive, ACTION_NEXT_RUN); /* reset-to-zero used wpe[0], none of the three */
  EACH_SIZE(i) sees("distance from wpe[9] 2.525, cosine 0.013   ← this one was used");
}

/* A place in one command; its row is one of the step that it goes to, not of the one it comes from. */
static void a_place_in_one_command(void **state) {
  (void)state;
  open_at("traces/sample-reverse.db", 1, 2, 0, 0);
  for (const char *key = ":10.1.1.5"; *key; key++) drive_key(&drive, *key);
  drive_key(&drive, KEYS_ENTER);
  draw(80, 24);
  sees("layer 1/1  head 1/3");
  assert_int_equal(drive.state.row, 5);
  sees("most: row 5 i, 0.994");
  drive_command(&drive, "3.0.0.9");
  draw(80, 24);
  sees("row 9: there are 0 to 3");
}

static void next_view(void **state) {
  (void)state;
  open_at("traces/sample-austen.db", 1, 10, 3, 1);
  drive_action(&drive, ACTION_VIEW_7);
  EACH_SIZE(i) {
    sees("▸  1  ␠am                7.953  0.1676");
    sees("   2  ␠think             7.071  0.0694");
    sees("rank  token (▸ taken)    logit   prob.");
  }
}

/* ---- the lines around them ---- */

static void help_and_quit_are_always_in_sight(void **state) {
  (void)state;
  open_at("traces/sample-austen.db", 1, 10, 3, 1);
  for (int columns = 60; columns <= 240; columns++) {
    draw(columns, 24);
    assert_int_equal(row_of("? help  q quit"), 23);
    assert_int_equal(row_of("Space on  b back  ←→ token  Tab view"), 23);
  }
  draw(80, 24);
  assert_int_equal(row_of("r run  [] layer  {} head"), 23);
}

static void help_ends_at_its_end(void **state) {
  (void)state;
  open_at("traces/sample-austen.db", 1, 10, 3, 1);
  drive_action(&drive, ACTION_HELP);
  draw(80, 24);
  char more[32];
  snprintf(more, sizeof more, "↓ %d more", drive.limits.help_top);
  sees(more); /* how often Down is to be pressed until the end is seen */
  for (int i = 0; i < 300; i++) drive_key(&drive, 'j');
  draw(80, 24);
  sees("leave kvstep");
  sees("a command: step 7, layer 2, head 1, row 5, run 2, prompt"); /* a long line goes on in the next one */
  sees("                      TEXT, fault NAME, decode 20, sql QUERY, save-screen");
  misses("↓ 0 more");
  misses("↓ 1 more");
  misses("steps-forward");
  draw(110, 66);
  sees("ten tokens on");
  sees("steps-forward"); /* where there is room, what scripts call it */
  draw(80, 24);
  drive_key(&drive, 'k'); /* one line back at once, whatever was pressed before */
  draw(80, 24);
  sees("↓ 1 more");
}

static void ascii_has_its_own_signs(void **state) {
  (void)state;
  open_at("traces/sample-austen.db", 1, 10, 3, 1);
  drive.cells.ascii = true;
  draw(80, 24);
  sees("cache ##########");
  sees("q.K[i]/sqrt 32");
  for (int view = 0; view < VIEW_SQL; view++) {
    drive_action(&drive, (enum action)(ACTION_VIEW_1 + view));
    draw(200, 60);
    for (int i = 0; i < drive.cells.rows * drive.cells.columns; i++)
      for (const char *c = drive.cells.cell[i].text; *c; c++) assert_in_range(*c, ' ', '~');
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(step_view, shut),
      cmocka_unit_test_teardown(where_the_prompt_ends, shut),
      cmocka_unit_test_teardown(faults_in_words, shut),
      cmocka_unit_test_teardown(cache_view, shut),
      cmocka_unit_test_teardown(what_was_not_logged, shut),
      cmocka_unit_test_teardown(whole_rows, shut),
      cmocka_unit_test_teardown(map_view, shut),
      cmocka_unit_test_teardown(heads_view, shut),
      cmocka_unit_test_teardown(product_view, shut),
      cmocka_unit_test_teardown(embedding_view, shut),
      cmocka_unit_test_teardown(next_view, shut),
      cmocka_unit_test_teardown(a_place_in_one_command, shut),
      cmocka_unit_test_teardown(help_and_quit_are_always_in_sight, shut),
      cmocka_unit_test_teardown(help_ends_at_its_end, shut),
      cmocka_unit_test_teardown(ascii_has_its_own_signs, shut),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
