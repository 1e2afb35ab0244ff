/* test_screen_words.c: what the screen says where it has little room, and of traces that have little to say or something odd: nothing
 * is cut off at 60 columns, and no number is shown that the trace does not have. */
#include "drawn.h"

static void in_all_views(int columns, int rows, void (*look_at)(void)) {
  for (int view = 0; view < VIEW_COUNT; view++) {
    drive_action(&drive, (enum action)(ACTION_VIEW_1 + view));
    draw(columns, rows);
    look_at();
  }
  drive_action(&drive, ACTION_VIEW_1);
}

/* ---- little room ---------------------------------------------------------------------------------------------------- */

/* The field of the moments' words at 60 columns: columns 12 to 31 of ten rows. */
static void moments_are_whole(void) {
  draw(60, 20);
  for (int row = 6; row < 16; row++)
    for (int column = 12; column < 32; column++) {
      const char *text = cells_at(&drive.cells, row, column)->text;
      bool cut = strcmp(text, "…") == 0 || (drive.cells.ascii && column == 31 && *text == '.');
      if (cut) show();
      if (cut) fail_msg("the moment in row %d is cut", row);
    }
}

static void all_moments_of(const char *path) {
  open_at(path, 1, 0, 0, 0);
  for (int run = 1; run <= drive.limits.runs; run++)
    for (int step = 0; step < drive.limits.steps; step++)
      for (int ascii = 0; ascii < 2; ascii++) {
        char line[64];
        drive.cells.ascii = ascii;
        snprintf(line, sizeof line, "run %d", run);
        drive_command(&drive, line);
        snprintf(line, sizeof line, "step %d", step);
        drive_command(&drive, line);
        moments_are_whole();
      }
  shut(NULL);
}

static void moments_at_60_columns(void **state) {
  (void)state;
  all_moments_of("traces/sample-reverse.db");
  all_moments_of("traces/sample-austen.db");
  open_at("traces/sample-austen.db", 1, 10, 3, 1);
  draw(60, 20);
  sees("5 score   q·K/√32, i = 0..10");
  sees("6 softmax 11 weights, no mask");
  sees("most: 8 , 0.306");
}

/* GPT-2's largest numbers: the last row of its context, the last word of its vocabulary. */
static void moments_of_large_numbers(void **state) {
  (void)state;
  bend("UPDATE run SET n_ctx = 1024, n_vocab = 50257;"
       "UPDATE token SET token = 50256 WHERE token = 5; UPDATE step SET token = 50256 WHERE step = 5;"
       "UPDATE step SET cache_length_before = 1023, position = 1023, cache_length_after = 1024 WHERE step = 5;"
       "UPDATE event SET cache_length = 1023 WHERE step = 5 AND phase < 'append';"
       "UPDATE head_step SET scores = zeroblob(4096), weights = zeroblob(4096) WHERE step = 5");
  moments_are_whole();
  sees("2 embed   wte[50256]+wpe[1023]");
  sees("0..1023");
  drive.cells.ascii = true;
  moments_are_whole();
  shut(NULL);
  bend("UPDATE step SET cache_length_before = 1022, position = 1023, cache_length_after = 1023 WHERE step = 5");
  moments_are_whole();
  sees("length 1022, t 1023");
}

/* A row that holds nothing, or what is not this run's. */
static void rows_at_60_columns(void **state) {
  (void)state;
  bend("DELETE FROM kv_row WHERE step = 3 OR (step = 5 AND layer = 1)");
  draw(60, 20);
  sees("   3 never ");
  sees("   5 never ");
  drive_action(&drive, ACTION_VIEW_2);
  draw(60, 20);
  sees("never written: this step stored its k and v nowhere");
  shut(NULL);
  bend("UPDATE kv_row SET row = 4 WHERE step = 5; UPDATE step SET cache_length_after = 5 WHERE step = 5;"
       "UPDATE event SET cache_length = 5 WHERE step = 5;"
       "UPDATE head_step SET scores = zeroblob(20), weights = zeroblob(20) WHERE step = 5");
  draw(60, 20);
  sees("   5 free: k, v to 4");
  drive_action(&drive, ACTION_VIEW_2);
  draw(60, 20);
  sees("still free: this step wrote its k, v to another row");
  drive_action(&drive, ACTION_VIEW_1);
  while (drive.state.moment > KVS_PROJECT) drive_action(&drive, ACTION_PREVIOUS_MOMENT);
  draw(60, 20);
  sees("free: k, v go here");
  shut(NULL);
  open_at("traces/sample-austen.db", 1, 10, 3, 1); /* the heaviest row, 8, out of sight */
  drive_command(&drive, "row 0");
  draw(60, 15);
  sees("most: row 8, 0.306");
}

static void titles_and_first_lines_at_60_columns(void **state) {
  (void)state;
  open_at("traces/sample-reverse.db", 1, 9, 0, 0);
  drive_action(&drive, ACTION_VIEW_4);
  draw(60, 20);
  sees("old to new; below: the heaviest row");
  drive_action(&drive, ACTION_VIEW_7);
  draw(60, 20);
  sees("(w: alone) ─");
  drive_action(&drive, ACTION_VIEW_8);
  draw(60, 20);
  sees("first");
  sees("apart");
  drive_action(&drive, ACTION_VIEW_9);
  draw(60, 20);
  sees("about where the dials are:");
}

/* ---- lines and lists that are open ---------------------------------------------------------------------------------- */

static void an_empty_line_says_what_may_be_typed(void **state) {
  (void)state;
  bend("");
  drive_action(&drive, ACTION_COMMAND);
  draw(60, 15);
  sees("7.2.1.5 is step, layer, head, row");
  sees("help");
  drive_key(&drive, '7');
  draw(60, 15);
  misses("7.2.1.5 is step");
  drive_action(&drive, ACTION_CANCEL);
  drive_action(&drive, ACTION_SEARCH);
  draw(60, 15);
  sees("a token's text");
  drive_action(&drive, ACTION_CANCEL);
  drive_action(&drive, ACTION_SQL);
  draw(60, 15);
  sees("SELECT * FROM rule");
}

static void open_mode(int mode) {
  static const enum action opens[] = {ACTION_NONE, ACTION_SEARCH,  ACTION_COMMAND,     ACTION_HELP,
                                      ACTION_SQL,  ACTION_PREDICT, ACTION_EDIT_PROMPT, ACTION_CHOOSE_FAULT};
  if (opens[mode] == ACTION_NONE) return;
  drive_action(&drive, opens[mode]);
  assert_int_equal(drive.state.mode, mode);
}

/* Whatever sizes it went through, the screen is the one that this size always has; the place where is typed is in sight. */
static void sizes_under_whatever_is_open(void **state) {
  (void)state;
  static const int sizes[][2] = {{1, 1}, {60, 15}, {59, 14}, {300, 100}, {61, 40}, {0, 0}, {200, 16}, {80, 24}};
  enum { SIZES = sizeof sizes / sizeof *sizes };
  static struct cells first[SIZES];
  bend("");
  for (int view = 0; view < VIEW_COUNT; view++)
    for (int mode = INPUT_KEYS; mode <= INPUT_FAULT; mode++) {
      drive_action(&drive, (enum action)(ACTION_VIEW_1 + view));
      open_mode(mode);
      for (int round = 0; round < 2; round++)
        for (int at = 0; at < SIZES; at++) {
          int i = round ? SIZES - 1 - at : at;
          draw(sizes[i][0], sizes[i][1]);
          struct cells *was = &first[i];
          size_t bytes = (size_t)drive.cells.rows * (size_t)drive.cells.columns * sizeof *was->cell;
          if (round == 0) {
            assert_true(cells_resize(was, sizes[i][1], sizes[i][0]));
            if (bytes) memcpy(was->cell, drive.cells.cell, bytes);
          } else if (bytes) {
            assert_memory_equal(was->cell, drive.cells.cell, bytes);
          }
          bool large = sizes[i][0] >= 60 && sizes[i][1] >= 15, cursor = false;
          for (int column = 0; large && column < drive.cells.columns; column++)
            cursor |= (cells_at(&drive.cells, drive.cells.rows - 2, column)->attributes & ATTR_REVERSE) != 0;
          if (large) assert_int_equal(cursor, state_is_typing(&drive.state));
        }
      drive_action(&drive, ACTION_CANCEL);
      assert_int_equal(drive.state.mode, INPUT_KEYS);
      drive_command(&drive, "step 5"); /* where a prediction has gone on from */
    }
  for (int i = 0; i < SIZES; i++) cells_free(&first[i]);
}

/* ---- little to say -------------------------------------------------------------------------------------------------- */

static void no_minus_one(void) {
  misses("-1 ");
  misses("/-1");
  misses("-1]");
  misses("-1:");
}

/* Another engine may leave these out. */
static void lengths_and_positions_that_are_not_there(void **state) {
  (void)state;
  static const char none[] = "UPDATE step SET position = NULL, cache_length_before = NULL, cache_length_after = NULL;"
                             "UPDATE top_token SET logit = 2; UPDATE step_vector SET logits = NULL;";
  bend(none);
  in_all_views(80, 24, no_minus_one);
  in_all_views(60, 15, no_minus_one);
  draw(80, 24);
  sees("1 read    length not logged");
  shut(NULL);
  bend("UPDATE step SET position = NULL, cache_length_before = NULL, cache_length_after = NULL;"
       "DELETE FROM event; DELETE FROM kv_row; DELETE FROM head_step");
  draw(80, 24);
  sees("the trace does not say");
  sees("4 append  not logged");
  misses("i = 0..0");
  misses("k, v will go here");
  shut(NULL);
  bend("UPDATE step SET cache_length_before = NULL");
  draw(80, 24);
  sees("t = 5, length not logged");
  drive_action(&drive, ACTION_VIEW_6);
  draw(80, 24);
  sees("+ wpe[5]");
  sees("The rows of wpe around position 5:");
}

static void a_length_after_that_is_not_there(void **state) {
  (void)state;
  bend("UPDATE step SET cache_length_after = NULL; UPDATE event SET cache_length = NULL WHERE phase = 'append'");
  in_all_views(80, 24, no_minus_one);
  draw(80, 24);
  sees("row 5 ← k, v ");
  misses("append: length 5 →");
}

static void one_row_is_one_row(void **state) {
  (void)state;
  bend("");
  drive_command(&drive, "step 0");
  draw(80, 24);
  sees("now 1 row ");
  drive_command(&drive, "step 1");
  while (drive.state.moment > KVS_PROJECT) drive_action(&drive, ACTION_PREVIOUS_MOMENT);
  draw(80, 24);
  sees("it still holds 1 row ");
  drive_command(&drive, "step 0");
  draw(80, 24);
  sees("1 weight, sum 1.000");
}

/* The weights of step 5, layer 1, head 0, as float32. */
static void weights_that_are_no_numbers(void **state) {
  (void)state;
  bend("UPDATE head_step SET weights = x'0000C07F0000C07F0000C07F0000C07F0000C07F0000C07F' WHERE step = 5");
  draw(80, 24);
  misses("most:");
  sees("sum nan");
  drive_action(&drive, ACTION_VIEW_4);
  draw(80, 24);
  sees("▸??????");
  sees("no numbers");
  drive_action(&drive, ACTION_VIEW_1);
  while (drive.state.moment > KVS_SCORE) drive_action(&drive, ACTION_PREVIOUS_MOMENT);
  drive_action(&drive, ACTION_PREDICT);
  draw(80, 24);
  sees("nothing to predict: the weights of layer 1 head 0 are no numbers");
  shut(NULL);
  /* NaN, 0.25, 0.5, 0, 0, 0 */
  bend("UPDATE head_step SET weights = x'0000C07F0000803E0000003F000000000000000000000000' WHERE step = 5");
  draw(80, 24);
  sees("most: row 2 c, 0.500");
  drive_action(&drive, ACTION_VIEW_4);
  draw(80, 24);
  sees("▸?");
  sees("2 c 0.50");
}

/* ---- something odd -------------------------------------------------------------------------------------------------- */

/* Cut between characters, not between bytes; a fault of any name leaves the dials in sight. */
static void long_texts_of_a_trace(void **state) {
  (void)state;
  bend("UPDATE token SET text = '漢字仮名交じり文'; UPDATE top_token SET token_text = '漢字仮名交じり文';"
       "UPDATE run SET fault = 'a-fault-of-a-name-that-is-longer-than-any-that-is-known'");
  draw(80, 24);
  sees("step 5/7  layer 1/1  head 0/1");
  sees("a-fault-of-a-name");
  misses("文?");
  drive_action(&drive, ACTION_VIEW_4);
  draw(80, 24);
  misses("文?");
  draw(60, 20);
  sees("step 5/7  layer 1/1  head 0/1");
  drive_action(&drive, ACTION_VIEW_1);
  draw(60, 20);
  sees("漢");
}

/* SQL can be asked of any trace, and another run may have steps. */
static void a_run_without_steps(void **state) {
  (void)state;
  bend("INSERT INTO run (run, n_layer, n_head, n_embd, head_dim, n_ctx, n_vocab, fault)"
       " SELECT 2, n_layer, n_head, n_embd, head_dim, n_ctx, n_vocab, 'none' FROM run");
  drive_command(&drive, "run 2");
  draw(80, 24);
  sees("run 2 has no step yet");
  sees("run 2 correct  no step yet");
  misses("/-1");
  drive_command(&drive, "sql SELECT 41 + 1 AS answer");
  draw(80, 24);
  sees("answer");
  sees("42");
  drive_action(&drive, ACTION_VIEW_1);
  drive_action(&drive, ACTION_NEXT_RUN);
  draw(80, 24);
  sees("/7");
}

/* ---- trouble ------------------------------------------------------------------------------------------------------------ */

/* Another program's lock is told while it is there. A frame that could be read, which a step decoded here brings without any key,
 * says nothing of it any more. */
static void trouble_that_is_over_is_said_no_more(void **state) {
  (void)state;
  sqlite3 *other;
  bend("");
  draw(80, 24);
  assert_int_equal(sqlite3_open(in_folder("t.kvt"), &other), SQLITE_OK);
  assert_int_equal(sqlite3_exec(other, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
  drive_action(&drive, ACTION_VIEW_3); /* the map has not been read yet */
  draw(80, 24);
  assert_true(row_of("locked by another program") >= 0);
  assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
  sqlite3_close(other);
  draw(80, 24);
  assert_true(row_of("locked by another program") < 0);
}

#define test(f) cmocka_unit_test_teardown(f, shut)

int main(void) {
  const struct CMUnitTest tests[] = {
      test(moments_at_60_columns),
      test(moments_of_large_numbers),
      test(rows_at_60_columns),
      test(titles_and_first_lines_at_60_columns),
      test(an_empty_line_says_what_may_be_typed),
      test(sizes_under_whatever_is_open),
      test(lengths_and_positions_that_are_not_there),
      test(a_length_after_that_is_not_there),
      test(one_row_is_one_row),
      test(weights_that_are_no_numbers),
      test(long_texts_of_a_trace),
      test(a_run_without_steps),
      test(trouble_that_is_over_is_said_no_more),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
