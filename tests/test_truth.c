/* test_truth.c: runs that do not do what the rule says: lengths, rows and layers of the screen are the run's own. Each trace is a
 * correct one, changed by SQL as a fault would have left it. */
#include "drawn.h"

/* A run of the real engine, with this fault, in f.db. */
static void run_with_fault(const char *fault) {
  assert_int_equal(shell("'%s' run -m reverse -p 'position>' -n 10 -o '%s' --force --fault %s >/dev/null 2>&1",
                         kvstep_binary(), in_folder("f.db"), fault),
                   0);
}

static void back_to(kvs_phase moment) {
  while (drive.state.moment > moment) drive_action(&drive, ACTION_PREVIOUS_MOMENT);
  draw(80, 24);
}

/* The cache was not cleared: five rows of another prompt lie before this run's first. */
static void rows_from_before_the_run(void **state) {
  (void)state;
  bend("UPDATE step SET cache_length_before = cache_length_before + 5, position = position + 5,"
       " cache_length_after = cache_length_after + 5; UPDATE kv_row SET row = row + 5;"
       "UPDATE event SET cache_length = cache_length + 5;"
       "UPDATE head_step SET scores = zeroblob(44), weights = zeroblob(44)");
  draw(80, 24);
  sees("t = cache length read before the append = 10");
  sees("cache ?????■■■■■■· row 10 new; 0..4 from before this run");
  sees("11 weights");
  sees("   4 earlier");
  sees("   5 a ");
  sees("▸  10 f ");
  drive_action(&drive, ACTION_VIEW_2);
  draw(80, 24);
  sees("    4            from before this run");
  sees("▸  10  f            5");
  drive_action(&drive, ACTION_VIEW_5);
  drive_command(&drive, "row 2");
  draw(80, 24);
  sees("K[2]: from before this run");
}

/* Row 4 is written a second time, row 5 never. */
static void a_row_written_again(void **state) {
  (void)state;
  bend("UPDATE kv_row SET row = 4 WHERE step = 5; UPDATE step SET cache_length_after = 5 WHERE step = 5;"
       "UPDATE event SET cache_length = 5 WHERE step = 5;"
       "UPDATE head_step SET scores = zeroblob(20), weights = zeroblob(20) WHERE step = 5");
  draw(80, 24);
  sees("WRONG: row 4, not row 5");
  sees("cache ■■■■■□· row 4 again, 5 free");
  sees("row 4 ← k, v; now 5 rows");
  sees("▸   4 f ");
  sees("still free: k, v went to row 4");
  assert_int_equal(drive.limits.own, 4);
  drive_action(&drive, ACTION_VIEW_2);
  draw(80, 24);
  sees("▸   4  f            5");
  sees("still free: this step wrote its k, v to another row");
  back_to(KVS_PROJECT); /* until the append row 4 is that of step 4 */
  sees("▸   4  e            4");
  sees("cache ■■■■■□· row 5 free");
}

static void nothing_written(void **state) {
  (void)state;
  bend("DELETE FROM kv_row WHERE step = 3 OR (step = 5 AND layer = 1)");
  draw(80, 24);
  sees("WRONG: no row was written");
  sees("cache ■■■×■×· row 5 not written");
  sees("k, v stored nowhere; 6 rows");
  sees("   3 unwritten");
  drive_action(&drive, ACTION_VIEW_2);
  draw(80, 24);
  sees("    3            never written");
  sees("▸   5  never written: this step stored its k and v nowhere");
  drive_command(&drive, "layer 0");
  draw(80, 24);
  sees("append: length 5 → 6");
  sees("▸   5  f            5");
}

/* Not logged is not the same as not written. */
static void not_logged_is_not_unwritten(void **state) {
  (void)state;
  bend("DELETE FROM kv_row WHERE step = 3; DELETE FROM head_step WHERE step = 3");
  draw(80, 24);
  sees("cache ■■■■■■· row 5 new");
  misses("unwritten");
  drive_action(&drive, ACTION_VIEW_2);
  draw(80, 24);
  sees("    3  d         not logged");
}

/* Layer 0's append has moved the length that layer 1 reads. */
static void layers_of_different_lengths(void **state) {
  (void)state;
  bend("UPDATE event SET cache_length = cache_length + 2 WHERE layer = 1 AND step = 5;"
       "UPDATE kv_row SET row = 7 WHERE layer = 1 AND step = 5;"
       "UPDATE head_step SET scores = zeroblob(32), weights = zeroblob(32) WHERE layer = 1 AND step = 5");
  draw(80, 24);
  sees("WRONG: layer 1 holds 7 rows");
  sees("cache ■■■■■××■· row 7 new");
  sees("row 7 ← k, v; now 8 rows");
  sees("   6 unwritten");
  drive_command(&drive, "layer 0");
  draw(80, 24);
  sees("append: length 5 → 6");
  sees("cache ■■■■■■· row 5 new");
}

/* Softmax over the whole capacity: 64 scores, 58 of them of rows that nobody wrote; all can be scrolled to. */
static void scores_of_rows_beyond_the_cache(void **state) {
  (void)state;
  bend("UPDATE head_step SET scores = zeroblob(256), weights = zeroblob(256) WHERE step = 5");
  draw(80, 24);
  sees("i = 0..63");
  sees("64 weights, sum 0.000");
  assert_int_equal(drive.limits.rows, 64);
  assert_int_equal(drive.limits.own, 5);
  drive_command(&drive, "row 63");
  draw(80, 24);
  sees("  63 unwritten");
  drive_action(&drive, ACTION_VIEW_3);
  draw(80, 24);
  sees("step 5, row 63 ?: weight 0.0000, score 0.000");
  drive_command(&drive, "row 5"); /* the step's own */
  drive_action(&drive, ACTION_ROW_DOWN);
  assert_int_equal(drive.state.row, 6);
  drive_action(&drive, ACTION_ROW_UP);
  assert_int_equal(drive.state.row, -1);
}

static void itself_not_attended(void **state) {
  (void)state;
  bend("UPDATE head_step SET scores = zeroblob(20), weights = zeroblob(20) WHERE step = 5");
  draw(80, 24);
  sees("i = 0..4");
  sees("not attended");
  drive_action(&drive, ACTION_VIEW_5);
  draw(80, 24);
  sees("this row was not attended to: it has no score");
  drive_action(&drive, ACTION_VIEW_3);
  draw(80, 24);
  sees("step 5, row 5 f: not attended to");
}

/* The prompt a second time on top of its own cache: the tokens say so, and the rows are those of the steps. */
static void the_prompt_twice(void **state) {
  (void)state;
  bend("UPDATE step SET source = 'prompt', mode = 'prefill', token = step % 4");
  draw(80, 24);
  sees("2 c         3 d         4 a         5 b");
  sees("▸   5 b ");
}

/* A position far beyond the line is pointed to from its end. */
static void a_position_far_away(void **state) {
  (void)state;
  bend("UPDATE step SET position = 500 WHERE step = 5");
  draw(80, 24);
  sees("WRONG: t = 500: wpe[500] used, wpe[5] right");
  sees("t = 500 →");
}

/* What the faults of the engine itself leave, in words. FAULTS: step 12 of `position>` in the backwards speller, layer 1, head 1. */
static void faults_of_the_engine(void **state) {
  (void)state;
  static const struct {
    const char *fault;
    int step;
    const char *words[3];
  } cases[] = {
      {"overwrite-last", 12, {"row 8 again, 9 free", "row 8 ← k, v; now 9 rows", "i = 0..8"}},
      {"k-without-v", 12, {"WRONG: row 12: V zeros", "row 12: V zeros; 13 rows", "norm  0.000"}},
      {"row-never-written", 12, {"WRONG: row 12: K, V zeros", "row 12: K, V zeros; 13 rows", "norm  0.000"}},
      {"cross-layer-length", 12, {"WRONG: layer 1 holds 13 rows", "row 13 ← k, v; now 14 rows", "unwritten"}},
      {"attend-before-append", 12, {"12 weights, sum 1.000, no mask", "i = 0..11", "not attended"}},
      {"mask-corner", 12, {"13 weights, 12 of them masked", "most: row 0 p, 1.000", "length 12 → 13"}},
      {"prefill-unmasked", 5, {"9 weights, sum 1.000, no mask", "i = 0..8", "     8 > "}},
      {"wrong-scale", 12, {"q·K[i]·1, i = 0..12", "13 weights", "length 12 → 13"}},
      {"wrong-scale-n-embd", 12, {"q·K[i]·0.1443, i = 0..12", "13 weights", "length 12 → 13"}}, /* 1/√48 */
      {"heads-interleaved", 12, {"i = 0..12, not of this q·K[i]", "13 weights", "length 12 → 13"}},
      {"softmax-extent", 12, {"32 weights, sum 1.000, no mask", "i = 0..31", "    13 unwritten"}},
      {"stale-cache", 12, {"0..7 from before this run", "t = cache length 20", "length 20 → 21"}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    run_with_fault(cases[i].fault);
    open_at(in_folder("f.db"), 1, cases[i].step, 1, 1);
    draw(80, 24);
    for (int w = 0; w < 3; w++)
      if (row_of(cases[i].words[w]) < 0) {
        show();
        fail_msg("%s: \"%s\" is not on the screen", cases[i].fault, cases[i].words[w]);
      }
    shut(NULL);
  }
}

/* The trace has k and v as they were appended. Zeros that were stored are not what was projected, and no row that is new. */
static void zeros_are_no_projection(void **state) {
  (void)state;
  run_with_fault("row-never-written");
  open_at(in_folder("f.db"), 1, 12, 1, 1);
  draw(80, 24);
  sees("cache ■■■■■■■■■■■■×· row 12: K, V zeros");
  while (drive.state.moment > KVS_PROJECT) drive_action(&drive, ACTION_PREVIOUS_MOMENT);
  draw(80, 24);
  sees(" k    not logged");
  sees(" v    not logged");
  misses("norm  0.000");
}

static int blocks_in(int row) {
  static char line[8192];
  int blocks = 0;
  line_text(row, line, sizeof line);
  for (const char *at = line; (at = strstr(at, "█")); at += strlen("█")) blocks++;
  return blocks;
}

static void equal_weights_have_equal_bars(void **state) {
  (void)state;
  bend("UPDATE head_step SET weights = x'000000000000000000000000000000000000003f0000003f' WHERE step = 5");
  drive_action(&drive, ACTION_VIEW_1);
  for (int columns = 80; columns <= 140; columns += 30) {
    draw(columns, 24);
    int other = row_of("│     4 e "), own = row_of("▸   5 f ");
    assert_true(other >= 0 && own >= 0);
    if (columns > 80) sees("itself");
    assert_true(blocks_in(own) >= 2);
    assert_int_equal(blocks_in(other), blocks_in(own));
  }
}

/* "9 > 10" would be a comparison. */
static void arrows_of_ascii_are_arrows(void **state) {
  (void)state;
  open_at("traces/sample-reverse.db", 1, 9, 0, 0);
  drive.cells.ascii = true;
  draw(80, 24);
  sees("append: length 9 -> 10");
  sees("row 9 <- k, v; now 10 rows");
  sees("sum w[i].V[i] -> 12 numbers");
}

/* A reason is read to its end, however narrow the screen, while the line stands open. */
static void a_refused_prompt_says_all_of_why(void **state) {
  (void)state;
  bend("");
  drive_set_live(&drive, NULL,
                 "nothing can be decoded: some/folder/t.db: cannot be written (Permission denied); chmod it");
  drive_action(&drive, ACTION_EDIT_PROMPT);
  draw(60, 15);
  sees("nothing can be decoded: some/folder/t.db: cannot be ");
  sees("(Permission denied); chmod it");
  assert_int_equal(drive.state.mode, INPUT_PROMPT);
}

/* What a small screen has no room for is not left out in silence. */
static void a_fault_that_is_cut_says_so(void **state) {
  (void)state;
  bend("");
  drive_action(&drive, ACTION_CHOOSE_FAULT);
  for (int i = 0; kvs_fault_at(i); i++) {
    char rest[64], seen[12];
    drive_action(&drive, ACTION_ROW_DOWN);
    draw(60, 15);
    snprintf(rest, sizeof rest, "the rest: kvstep faults %s", kvs_fault_at(i)->name);
    snprintf(seen, sizeof seen, "%s", kvs_fault_at(i)->seen);
    if (row_of(rest) < 0) sees(seen);
    draw(80, 24);
    misses("the rest: kvstep");
    sees(seen);
  }
}

/* All names at once where they fit; where they do not, how many are out of sight, and each is seen when it is chosen. */
static void no_fault_is_out_of_sight_in_silence(void **state) {
  (void)state;
  static const int sizes[][2] = {{60, 15}, {60, 20}, {80, 24}, {100, 24}, {120, 40}};
  int count = 0;
  while (kvs_fault_at(count)) count++;
  bend("");
  for (size_t size = 0; size < sizeof sizes / sizeof *sizes; size++) {
    draw(sizes[size][0], sizes[size][1]);
    drive_action(&drive, ACTION_CHOOSE_FAULT);
    draw(sizes[size][0], sizes[size][1]);
    int seen = 1; /* none */
    char more[32], chosen[40];
    for (int i = 0; i < count; i++) seen += row_of(kvs_fault_at(i)->name) >= 0;
    if (sizes[size][0] >= 80) assert_int_equal(seen, count + 1);
    snprintf(more, sizeof more, "↓ %d more", count + 1 - seen);
    if (seen <= count)
      sees(more);
    else
      misses(" more ");
    for (int i = 0; i < count; i++) {
      drive_action(&drive, ACTION_ROW_DOWN);
      draw(sizes[size][0], sizes[size][1]);
      snprintf(chosen, sizeof chosen, "▸ %s", kvs_fault_at(i)->name);
      sees(chosen);
      sees("Escape leave");
    }
    if (seen <= count) sees(" before");
    drive_action(&drive, ACTION_FIRST_STEP);
    drive_action(&drive, ACTION_CANCEL);
  }
}

/* To the name beside it, and nowhere if there is none. */
static void right_goes_a_column_of_faults_on(void **state) {
  (void)state;
  bend("");
  drive_action(&drive, ACTION_CHOOSE_FAULT);
  drive_action(&drive, ACTION_ROW_DOWN);
  draw(80, 24);
  assert_int_equal(drive.state.fault, 1);
  int row = row_of("▸ off-by-one");
  drive_action(&drive, ACTION_NEXT_STEP);
  draw(80, 24);
  assert_int_equal(row_of("▸ "), row);
  assert_true(drive.state.fault > 1);
  drive_action(&drive, ACTION_PREVIOUS_STEP);
  drive_action(&drive, ACTION_PREVIOUS_STEP);
  assert_int_equal(drive.state.fault, 1);
  draw(120, 40);
  drive_action(&drive, ACTION_ROW_UP);
  drive_action(&drive, ACTION_NEXT_STEP);
  assert_int_equal(drive.state.fault, 0);
}

#define test(f) cmocka_unit_test_teardown(f, shut)

int main(void) {
  const struct CMUnitTest tests[] = {
      test(rows_from_before_the_run),
      test(a_row_written_again),
      test(nothing_written),
      test(not_logged_is_not_unwritten),
      test(layers_of_different_lengths),
      test(scores_of_rows_beyond_the_cache),
      test(itself_not_attended),
      test(the_prompt_twice),
      test(a_position_far_away),
      test(faults_of_the_engine),
      test(zeros_are_no_projection),
      test(equal_weights_have_equal_bars),
      test(a_refused_prompt_says_all_of_why),
      test(a_fault_that_is_cut_says_so),
      test(no_fault_is_out_of_sight_in_silence),
      test(right_goes_a_column_of_faults_on),
      test(arrows_of_ascii_are_arrows),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
