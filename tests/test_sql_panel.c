/* test_sql_panel.c: questions in SQL on a small trace: answers, errors, an end to the endless, words to complete, and the view. */
#include "drawn.h"

#include "tui/sql_panel.h"

#define STEPS 6

static struct sql_panel *panel; /* the drive's */

static int open_drive(void **state) {
  if (make_folder(state)) return -1;
  make_trace(in_folder("a.db"), STEPS, NULL);
  if (!try_open(in_folder("a.db"), &(struct start){-1, -1, -1, -1})) return -1;
  panel = drive.sql;
  return 0;
}

static int close_drive(void **state) {
  shut(state);
  return remove_folder(state);
}

/* ---- helpers ---- */

static void type_text(const char *text) {
  for (; *text; text++) drive_key(&drive, (unsigned char)*text);
}

/* As somebody at the screen asks it. */
static void ask(const char *query) {
  drive_key(&drive, ';');
  type_text(query);
  drive_key(&drive, KEYS_ENTER);
  assert_int_equal(drive.state.view, VIEW_SQL);
  assert_int_equal(drive.state.mode, INPUT_KEYS);
}

static void see_value_(int row, int column, const char *wanted, int line) {
  char got[256];
  sql_panel_text(panel, row, column, got, sizeof got);
  if (strcmp(got, wanted)) fail_msg("line %d: (%d, %d) is \"%s\", not \"%s\"", line, row, column, got, wanted);
}
#define see_value(row, column, wanted) see_value_((row), (column), (wanted), __LINE__)

/* One column, from top to bottom, blanks between. */
static void see_column_(int column, const char *wanted, int line) {
  char got[512] = "", value[64];
  for (int r = 0; r < panel->rows; r++) {
    sql_panel_text(panel, r, column, value, sizeof value);
    snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", r ? " " : "", value);
  }
  if (strcmp(got, wanted)) fail_msg("line %d: \"%s\", not \"%s\"", line, got, wanted);
}
#define see_column(column, wanted) see_column_((column), (wanted), __LINE__)

#define see(words) (draw(80, 24), sees(words))
#define see_small(words) (draw(60, 15), sees(words))

static void keys(const char *names) {
  char copy[256], *rest = copy;
  snprintf(copy, sizeof copy, "%s", names);
  for (char *name; (name = strsep(&rest, " "));) {
    assert_int_not_equal(action_key(name), 0);
    drive_key(&drive, action_key(name));
  }
}

/* ---- answers ---- */

static void values_of_every_type(void **state) {
  (void)state;
  ask("SELECT 12 AS i, 0.5 AS r, 'tw' || char(10) || 'o' AS t, x'00112233445566778899' AS b, NULL AS n, x'0a' AS s");
  assert_int_equal(panel->outcome, SQL_ANSWERED);
  assert_int_equal(panel->rows, 1);
  assert_int_equal(panel->columns, 6);
  see_value(0, 0, "12");
  see_value(0, 1, "0.5");
  see_value(0, 2, "tw\\no");
  see_value(0, 3, "x'0011223344556677…' 10 bytes");
  see_value(0, 4, "NULL");
  see_value(0, 5, "x'0a'");
  const enum sql_type types[] = {SQL_INTEGER, SQL_REAL, SQL_TEXT, SQL_BLOB, SQL_NULL, SQL_BLOB};
  for (int c = 0; c < 6; c++) {
    assert_int_equal(sql_panel_value(panel, 0, c)->type, types[c]);
    assert_int_equal(panel->column[c].number, c < 2 || c == 4);
  }
  see("row 1 of 1, column 1 of 6, ");
  ask("SELECT replace(hex(zeroblob(100)), '00', char(233, 769)) AS marks"); /* é and one more accent: four bytes, one column */
  char got[64];
  sql_panel_text(panel, 0, 0, got, 16); /* cut between characters */
  assert_string_equal(got, "\u00e9\u0301\u00e9\u0301\u00e9…");
  ask("SELECT replace(hex(zeroblob(1000)), '00', 'x') AS long, 'a' || char(0) || 'b', '' AS empty");
  see("xxxxxxxxxx…");
  see_value(0, 1, "a\\0b");
  see_value(0, 2, "");
}

static void a_question_to_the_trace_itself(void **state) {
  (void)state;
  ask("SELECT step, position, verdict FROM rule ORDER BY step");
  assert_int_equal(panel->rows, STEPS);
  assert_string_equal(panel->column[2].name, "verdict");
  see_column(0, "0 1 2 3 4 5");
  see_column(2, "ok ok ok ok ok ok");
  see("   step  position  verdict");
  see(" ▸    0         0  ok"); /* numbers at the right, text at the left */
  ask("SELECT f32_count(scores) FROM head_step WHERE layer = 0 AND head = 0 ORDER BY step"); /* the fast functions */
  see_column(0, "1 2 3 4 5 6");
}

static void points_stand_one_below_the_other(void **state) {
  (void)state;
  ask("VALUES (0.25), (-12.5), (3), (NULL), (1e-9), (123456.75)");
  see_column(0, "0.25 -12.50 3 NULL 1e-09 123456.75");
}

static void several_statements_leave_the_last_answer(void **state) {
  (void)state;
  ask("SELECT 1; SELECT 2, 3; -- no more");
  assert_int_equal(panel->columns, 2);
  see_value(0, 1, "3");
  ask("BEGIN; SELECT 1");
  assert_true(sqlite3_get_autocommit(look_db(look))); /* no snapshot is held */
}

static void an_empty_answer_says_so(void **state) {
  (void)state;
  ask("SELECT * FROM rule WHERE step > 99");
  assert_int_equal(panel->outcome, SQL_ANSWERED);
  assert_int_equal(panel->rows, 0);
  see("no row answers this");
  see("no row, ");
  keys("j k l h G g PageDown Enter"); /* nothing to move among */
  assert_int_equal(drive.state.view, VIEW_SQL);
  keys("s");
  see("there are no rows to sort");
}

static void no_more_rows_than_a_screen_can_use(void **state) {
  (void)state;
  ask("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n");
  assert_int_equal(panel->ending, SQL_AT_MOST);
  assert_int_equal(panel->rows, SQL_ROWS_MOST);
  see("row 1 of 10000, ");
  see("there are more, LIMIT and WHERE choose");
  keys("G");
  see("row 10000 of 10000");
  see_small("row 10000 of 10000");
  ask("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 10000) SELECT i FROM n");
  assert_int_equal(panel->ending, SQL_COMPLETE); /* just as many are all */
}

/* ---- errors ---- */

static void errors_show_where(void **state) {
  (void)state;
  static const struct {
    const char *query, *says;
    int offset;
  } cases[] = {
      {"SELECT stp FROM rule", "no such column: stp", 7},
      {"SELECT 1; SELEC 2", "near \"SELEC\": syntax error", 10},
      {"SELECT * FROM", "incomplete input", 13},
      {"SELECT * FROM nowhere", "no such table: nowhere", -1},
      {"DELETE FROM run", "a trace is only read here", 0},
      {"SELECT 1;  CREATE TABLE t (a)", "a trace is only read here", 11},
      {"VACUUM INTO '/tmp/kvstep-no-such.db'", "a trace is only read here", 0},
      {"PRAGMA journal_mode = wal", "a trace is only read here", 0},
      {"SELECT abs(-9223372036854775808)", "integer overflow", -1},
      {"SELECT randomblob(100000000)", "string or blob too big", -1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ask(cases[i].query);
    assert_int_equal(panel->outcome, SQL_FAILED);
    if (!strstr(panel->error, cases[i].says)) fail_msg("%s: %s", cases[i].query, panel->error);
    if (cases[i].offset >= 0) assert_int_equal(panel->error_offset, cases[i].offset);
    assert_int_equal(panel->rows, 0);
    see(cases[i].says);
  }
  assert_int_equal((int)number(look_db(look), "SELECT count(*) FROM run"), 1);
}

static void the_caret_stands_under_its_place(void **state) {
  (void)state;
  ask("SELECT stp FROM rule");
  see("\n SELECT stp FROM rule ");
  see("\n        ^ ");
  ask("SELECT 'ééé', stp FROM rule"); /* typed byte by byte: shown as something, and the caret still fits */
  drive_command(&drive, "sql SELECT 'ééé', stp FROM rule");
  see("\n SELECT 'ééé', stp FROM rule ");
  see("\n               ^ ");
  drive_command(&drive, "sql SELECT step, step, step, step, step, step, step, step, step, step, stp FROM rule");
  see_small("\n SELECT step, step, step, step, step, step, step, step,     \n step, step, stp FROM rule");
  see_small("\n             ^ ");
  char query[LINE_SIZE] = "sql SELECT 1";
  for (int i = 0; i < 60; i++) strcat(query, " + 12345678");
  strcat(query, " FROM rule WHERE stp");
  drive_command(&drive, query);
  see_small("\n…12345678 + ");
  see_small("WHERE stp ");
  see_small("^ ");
  see_small("no such column: stp");
}

/* ---- stopping ---- */

static int polls;
static bool stop_at_the_fifth(void *context) {
  assert_ptr_equal(context, &polls);
  return ++polls == 5;
}

static void a_query_without_end_is_stopped(void **state) {
  (void)state;
  panel->interrupted = stop_at_the_fifth;
  panel->context = &polls;
  const char *const endless[] = {
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n WHERE i < 3",
      "SELECT 1 FROM attention a, attention b, attention c, attention d, attention e WHERE a.row < 0 AND b.row < "
      "-c.row",
  };
  for (int i = 0; i < 2; i++) {
    polls = 0;
    ask(endless[i]);
    assert_int_equal(polls, 5); /* not asked again once it said so */
    assert_int_equal(panel->outcome, SQL_ANSWERED);
    assert_int_equal(panel->ending, SQL_STOPPED);
    assert_int_equal(panel->rows, i ? 2 : 0); /* what had come is kept */
    see(i ? "stopped, there may be more" : "it was stopped before the first row");
  }
  polls = 0;
  ask("SELECT 1");
  assert_int_equal(panel->ending, SQL_COMPLETE);
  assert_true(polls < 5);
  polls = 0;
  assert_non_null(look_step(look, 1, 1)); /* the screen's own questions are not asked about */
  assert_int_equal((int)number(look_db(look), "SELECT count(*) FROM attention a, attention b"), 84 * 84);
  assert_int_equal(polls, 0);
}

/* ---- moving, sorting, going there ---- */

static void keys_move_in_the_answer_and_not_the_dials(void **state) {
  (void)state;
  ask("SELECT step, layer, head FROM head_step ORDER BY step, layer, head");
  int step = drive.state.step;
  keys("j j l l l");
  assert_int_equal(drive.state.sql_row, 2);
  assert_int_equal(drive.state.sql_column, 2); /* the last */
  keys("PageDown Up h");
  assert_int_equal(drive.state.sql_row, 11);
  assert_int_equal(drive.state.sql_column, 1);
  keys("G");
  assert_int_equal(drive.state.sql_row, 4 * STEPS - 1);
  keys("j g");
  assert_int_equal(drive.state.sql_row, 0);
  keys("k h h Left");
  assert_int_equal(drive.state.sql_row, 0);
  assert_int_equal(drive.state.sql_column, 0);
  assert_int_equal(drive.state.step, step);
  keys("1 l");
  assert_int_equal(drive.state.step, step + 1); /* elsewhere they are what they were */
  keys("s");
  see("view 9");
}

static void sorting_knows_numbers_and_leaves_equals_alone(void **state) {
  (void)state;
  ask("VALUES (2, 'a'), ('b', 'b'), (NULL, 'c'), (10, 'd'), (2.5, 'e'), ('B', 'f'), (2, 'g'), (x'00', 'h'), (NULL, "
      "'i')");
  keys("s");
  see_column(0, "2 2 2.5 10 B b x'00' NULL NULL");
  see_column(1, "a g e d f b h c i");
  see("column1 ↑");
  keys("s");
  see_column(0, "x'00' b B 10 2.5 2 2 NULL NULL");
  see_column(1, "h b f d e a g c i"); /* NULL last again, equals in their order */
  see("column1 ↓");
  keys("l s");
  see_column(1, "a b c d e f g h i");
  keys("s h s"); /* by the other column downwards, then by the first: that order shows among equals */
  see_column(1, "g a e d f b h i c");
  assert_int_equal(drive.state.sql_sort, 1);
  ask("SELECT 1");
  assert_int_equal(drive.state.sql_sort, 0);
}

static void large_numbers_are_not_rounded_together(void **state) {
  (void)state;
  ask("VALUES (9223372036854775807), (9223372036854775806), (-9223372036854775807)");
  keys("s");
  see_column(0, "-9223372036854775807 9223372036854775806 9223372036854775807");
}

static void a_row_leads_to_its_place(void **state) {
  (void)state;
  ask("SELECT step, layer, head, row FROM attention WHERE step = 4 AND layer = 1 AND head = 1 ORDER BY row");
  keys("j j Enter");
  assert_int_equal(drive.state.view, VIEW_STEP);
  assert_int_equal(drive.state.step, 4);
  assert_int_equal(drive.state.layer, 1);
  assert_int_equal(drive.state.head, 1);
  assert_int_equal(drive.state.row, 2);
  assert_int_equal(drive.state.moment, KVS_LOGITS);
  see("step 4, layer 1, head 1, row 2: from row 3 of the answer; 9 shows it again");
  keys("9");
  assert_int_equal(drive.state.sql_row, 2);
  ask("SELECT 99 AS Run, 3 AS STEP, -5 AS head, 'x' AS layer, 1 AS more"); /* put within the limits; no number, no change */
  keys("Enter");
  assert_int_equal(drive.state.run, 1);
  assert_int_equal(drive.state.step, 3);
  assert_int_equal(drive.state.head, 0);
  assert_int_equal(drive.state.layer, 1);
  assert_int_equal(drive.state.row, -1);
  see("run 1, step 3, head 0: from row 1");
  ask("SELECT count(*) FROM step");
  keys("Enter");
  assert_int_equal(drive.state.view, VIEW_SQL);
  see("this row has no column run, step, layer, head or row to go to");
  ask("SELECT 2 AS step, 9999999999 AS row");
  keys("Enter");
  assert_int_equal(drive.state.row, -1); /* the last row is the new one */
}

/* ---- typing ---- */

static void history_goes_up_and_down(void **state) {
  (void)state;
  keys("; Up");
  see("no question was asked before");
  keys("Escape");
  ask("SELECT 1");
  ask("SELECT 2");
  ask("SELECT 2"); /* once is enough */
  keys(";");
  type_text("SEL");
  keys("Up");
  assert_string_equal(drive.state.line, "SELECT 2");
  assert_int_equal(drive.state.cursor, 8);
  keys("Up Up");
  assert_string_equal(drive.state.line, "SELECT 1");
  see("this is the first question");
  keys("Down Down");
  assert_string_equal(drive.state.line, "SEL"); /* what was being typed */
  keys("Down Up Up Enter");
  see_value(0, 0, "1");
  char query[32];
  for (int i = 0; i < SQL_HISTORY + 10; i++) {
    snprintf(query, sizeof query, "SELECT %d", i + 100);
    ask(query);
  }
  assert_int_equal(panel->asked, SQL_HISTORY);
  assert_string_equal(sql_panel_recall(panel, 1), query);
  assert_null(sql_panel_recall(panel, SQL_HISTORY + 1));
}

static void see_words_(const char *text, const char *common, const char *wanted, int line) {
  struct sql_words words;
  char got[4096] = "";
  sql_complete(look_db(look), text, (int)strlen(text), &words);
  for (int i = 0; i < words.count && strlen(got) + SQL_WORD < sizeof got; i++)
    snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", i ? " " : "", words.word[i]);
  if (strcmp(got, wanted) || strcmp(words.common, common))
    fail_msg("line %d: \"%s\" and \"%s\", not \"%s\" and \"%s\"", line, words.common, got, common, wanted);
  sql_words_free(&words);
}
#define see_words(text, common, wanted) see_words_((text), (common), (wanted), __LINE__)

static void words_complete_from_the_schema(void **state) {
  (void)state;
  see_words("SELECT * FROM ru", "ru", "rule run");
  see_words("SELECT * FROM step JOIN kv", "kv_row", "kv_row");
  see_words("sel", "sel", "select self_weight"); /* keywords in the letters that are typed */
  see_words("SELE", "SELECT", "SELECT");
  see_words("SELECT verd", "verdict", "verdict");
  see_words("SELECT * FROM rule WHERE p", "p", "partition position"); /* of the table that the line names */
  see_words("SELECT a.wei, x FROM attention AS a WHERE a.wei", "weight", "weight");
  see_words("SELECT * FROM step s JOIN rule r WHERE s.cache_length_", "cache_length_",
            "cache_length_after cache_length_before");
  see_words("SELECT * FROM step s JOIN rule r WHERE r.cache_length_", "cache_length_before", "cache_length_before");
  see_words("SELECT f32_so", "f32_softmax_entropy", "f32_softmax_entropy");
  see_words("SELECT xyzzy", "", "");
}

static void tab_puts_the_word_in(void **state) {
  (void)state;
  keys(";");
  type_text("SELECT verd FROM rule");
  for (int i = 0; i < 10; i++) keys("Left");
  keys("Tab");
  assert_string_equal(drive.state.line, "SELECT verdict FROM rule");
  assert_int_equal(drive.state.cursor, 14);
  keys("End");
  type_text(" JOIN ru");
  keys("Tab");
  see("rule  run");
  see_small("rule  run");
  type_text("n");
  assert_string_equal(drive.state.message, "");
  assert_string_equal(drive.state.line, "SELECT verdict FROM rule JOIN run");
  type_text(" xyzzy");
  keys("Tab");
  see("no table, column or word of SQL begins so");
  keys("Escape");
  assert_int_equal(drive.state.mode, INPUT_KEYS);
}

static void a_long_line_scrolls(void **state) {
  (void)state;
  keys(";");
  for (int i = 0; i < 30; i++) type_text("abcdefgh ");
  see_small("\n…");
  see_small("abcdefgh  \n"); /* the end, and the cursor behind it */
  keys("Home");
  see_small("\n;abcdefgh abcdefgh");
  for (int i = 0; i < 200; i++) type_text("0123456789");
  assert_int_equal(strlen(drive.state.line), LINE_SIZE - 1);
  keys("Enter");
  see("unrecognized token");
  see_small("unrecognized token");
}

/* ---- examples ---- */

static void examples_run_by_enter(void **state) {
  (void)state;
  keys("9");
  see("Which steps broke the rule?");
  see("Enter ask it");
  for (int i = 0; i < SQL_EXAMPLES; i++) {
    ask(""); /* back to the examples */
    assert_int_equal(panel->outcome, SQL_NOTHING_ASKED);
    keys("g");
    for (int down = 0; down < i; down++) keys("j");
    see_small(sql_example_title(i));
    keys("Enter");
    if (panel->outcome != SQL_ANSWERED) fail_msg("%s: %s", sql_example_title(i), panel->error);
    if (i > 0) assert_true(panel->rows > 0);
    see("row");
  }
}

static void examples_have_the_dials_in_them(void **state) {
  (void)state;
  char query[LINE_SIZE];
  sql_example_query(1, 1, 3, 1, 0, query, sizeof query);
  assert_non_null(strstr(query, "run = 1 AND step = 3 AND layer = 1 AND head = 0"));
  drive_command(&drive, "step 3");
  keys("9 j Enter");
  assert_int_equal(panel->rows, 4);
  keys("Enter");
  assert_int_equal(drive.state.step, 3);
}

/* ---- the screen ---- */

static void columns_scroll_to_the_chosen_one(void **state) {
  (void)state;
  ask("SELECT 1 AS alpha, 'a text that is longer than any column may be wide' AS beta, 2 AS gamma, 3 AS delta, 4 AS "
      "epsilon, NULL AS zeta");
  see_small("alpha  beta ");
  see_small("a text that is longer than any …");
  keys("l l l l l");
  see_small("gamma  delta  epsilon  zeta");
  draw(60, 15);
  misses("alpha ");
  see_small("column 6 of 6");
}

static void every_size_draws(void **state) {
  (void)state;
  const char *const queries[] = {"", "SELECT * FROM attention", "SELEC", "SELECT 1 WHERE 0", "PRAGMA foreign_keys = 1"};
  for (size_t i = 0; i < sizeof queries / sizeof *queries; i++) {
    ask(queries[i]);
    keys("G l l l s");
    for (int rows = 1; rows < 60; rows += 7)
      for (int columns = 1; columns < 200; columns += 13) assert_true(drive_draw(&drive, rows, columns));
    keys(";");
    type_text("SELECT a very long line that does not fit in sixty columns of a screen FROM t");
    for (int columns = 60; columns < 90; columns++) assert_true(drive_draw(&drive, 15, columns));
    keys("Escape");
  }
}

#define test(function) cmocka_unit_test_setup_teardown(function, open_drive, close_drive)

int main(void) {
  const struct CMUnitTest tests[] = {
      test(values_of_every_type),
      test(a_question_to_the_trace_itself),
      test(points_stand_one_below_the_other),
      test(several_statements_leave_the_last_answer),
      test(an_empty_answer_says_so),
      test(no_more_rows_than_a_screen_can_use),
      test(errors_show_where),
      test(the_caret_stands_under_its_place),
      test(a_query_without_end_is_stopped),
      test(keys_move_in_the_answer_and_not_the_dials),
      test(sorting_knows_numbers_and_leaves_equals_alone),
      test(large_numbers_are_not_rounded_together),
      test(a_row_leads_to_its_place),
      test(history_goes_up_and_down),
      test(words_complete_from_the_schema),
      test(tab_puts_the_word_in),
      test(a_long_line_scrolls),
      test(examples_run_by_enter),
      test(examples_have_the_dials_in_them),
      test(columns_scroll_to_the_chosen_one),
      test(every_size_draws),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
