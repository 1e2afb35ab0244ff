/* test_predict.c: the next number, asked for: which question where, right and wrong, hidden and shown, on the sample traces; and that
 * the manual has every key. KVSTEP names the binary. */
#include "drawn.h"

#include <ctype.h>

#include "tui/predict.h"

#define REVERSE "traces/sample-reverse.db"
#define AUSTEN "traces/sample-austen.db" /* layers 0 and 3 are logged */

/* ---- helpers -------------------------------------------------------------------------------------------------------- */

static void open_trace(const char *path) { open_at(path, -1, -1, -1, -1); }

/* To a step of run 1, at one of its moments. */
static void stand(int run, int step, kvs_phase moment) {
  char line[32];
  drive.state.mode = INPUT_KEYS;
  snprintf(line, sizeof line, "run %d", run);
  drive_command(&drive, line);
  snprintf(line, sizeof line, "step %d", step);
  drive_command(&drive, line);
  drive.state.moment = moment;
}

static void type(const char *text) {
  for (; *text; text++) drive_key(&drive, *text);
}

static void answer(const char *text) {
  drive_action(&drive, ACTION_PREDICT);
  assert_int_equal(drive.state.mode, INPUT_PREDICT);
  type(text);
  drive_key(&drive, KEYS_ENTER);
  assert_int_equal(drive.state.mode, INPUT_KEYS);
}

static void at(int step, kvs_phase moment) {
  assert_int_equal(drive.state.step, step);
  assert_int_equal(drive.state.moment, moment);
}

static void line_of(int row, int from, int to, char *text, size_t size) {
  size_t used = 0;
  *text = '\0';
  for (int column = from; column < to && column < drive.cells.columns; column++) {
    const struct cell *cell = cells_at(&drive.cells, row, column);
    if (cell && cell->width) used += (size_t)snprintf(text + used, size - used, "%s", *cell->text ? cell->text : " ");
    assert_true(used < size);
  }
}

static int by_sql(const char *sql) { return (int)number(look_db(look), sql); }

/* ---- the four questions --------------------------------------------------------------------------------------------- */

static void the_moment_chooses_the_question(void **unused) {
  (void)unused;
  open_trace(REVERSE);
  static const enum prediction_kind kinds[KVS_PHASE_COUNT] = {
      PREDICT_LENGTH,   PREDICT_LENGTH,   PREDICT_LENGTH,   PREDICT_SCORES,   PREDICT_HEAVIEST,
      PREDICT_POSITION, PREDICT_POSITION, PREDICT_POSITION, PREDICT_POSITION, PREDICT_POSITION};
  for (int moment = 0; moment < KVS_PHASE_COUNT; moment++) {
    struct prediction p;
    stand(1, 10, (kvs_phase)moment);
    prediction_open(&drive.state, look, &p);
    assert_int_equal(p.kind, PREDICT_NOTHING); /* none is open yet */
    prediction_find(&drive.state, look, &p);
    assert_int_equal(p.kind, kinds[moment]);
    if (p.kind == PREDICT_HEAVIEST) continue;
    assert_int_equal(p.answer, 11); /* length after, scores, and t of step 11 */
  }
}

static void t_of_the_next_step(void **unused) {
  (void)unused;
  open_trace(REVERSE);
  stand(1, 9, KVS_LOGITS);
  answer("10");
  at(10, KVS_READ_LENGTH);
  assert_string_equal(drive.state.message, "right: t = 10: the cache holds 10 rows before this append  [1 of 1 right]");
  draw(80, 24);
  sees("t = cache length 10");
  static const struct {
    const char *typed, *said;
  } wrong[] = {{"11", "before this append; you said 11, the length after it"},
               {"0", "before this append; you said 0, as if the cache were empty"},
               {"9", "before this append; you said 9, the newest row's number: rows count from 0"},
               {"777", "before this append; you said 777  ["}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    stand(1, 9, KVS_MLP);
    answer(wrong[i].typed);
    at(10, KVS_READ_LENGTH);
    assert_ptr_equal(strstr(drive.state.message, "wrong: t = 10: "), drive.state.message);
    assert_non_null(strstr(drive.state.message, wrong[i].said));
  }
  assert_non_null(strstr(drive.state.message, "[1 of 5 right]"));
}

static void length_after_the_append(void **unused) {
  (void)unused;
  open_trace(REVERSE);
  stand(1, 10, KVS_READ_LENGTH);
  answer("11");
  at(10, KVS_APPEND);
  assert_non_null(strstr(drive.state.message, "right: length 11: 10 before this append, and one new row"));
  draw(80, 24);
  sees("length 10 → 11");
  stand(1, 10, KVS_PROJECT);
  answer("10");
  at(10, KVS_APPEND);
  assert_non_null(strstr(drive.state.message, "; you said 10, the length before it"));
  stand(1, 0, KVS_EMBED); /* an empty cache */
  answer("1");
  assert_non_null(strstr(drive.state.message, "right: length 1: 0 before this append"));
}

static void how_many_scores(void **unused) {
  (void)unused;
  open_trace(REVERSE);
  stand(1, 10, KVS_APPEND);
  answer("11");
  at(10, KVS_SCORE);
  assert_non_null(strstr(drive.state.message, "right: 11 scores: q meets K[0] to K[10], its own row the last"));
  stand(1, 10, KVS_APPEND);
  answer("10");
  assert_non_null(strstr(drive.state.message, "; you said 10, the length before its own row came in"));
  stand(1, 3, KVS_APPEND); /* in prefill the mask leaves as many */
  answer("4");
  assert_non_null(strstr(drive.state.message, "right: 4 scores"));
}

static void the_heaviest_row(void **unused) {
  (void)unused;
  open_trace(REVERSE);
  for (int layer = 0; layer < 2; layer++)
    for (int head = 0; head < 4; head++) {
      char sql[200], typed[16], words[48];
      snprintf(sql, sizeof sql,
               "SELECT row FROM attention WHERE run = 1 AND step = 10 AND layer = %d AND head = %d"
               " ORDER BY weight DESC LIMIT 1",
               layer, head);
      int row = by_sql(sql);
      stand(1, 10, KVS_SCORE);
      drive.state.layer = layer;
      drive.state.head = head;
      snprintf(typed, sizeof typed, "%d", row);
      answer(typed);
      at(10, KVS_SOFTMAX);
      assert_int_equal(drive.state.row, row == 10 ? -1 : row); /* the cursor is on it */
      snprintf(words, sizeof words, "right: row %d weighs most, 0.", row);
      assert_non_null(strstr(drive.state.message, words));
    }
  assert_int_equal(drive.state.predicted, 8);
  assert_int_equal(drive.state.predicted_right, 8);
  stand(1, 10, KVS_SCORE);
  drive.state.layer = drive.state.head = 0;
  answer("3");
  assert_non_null(strstr(drive.state.message, "wrong: row 8 weighs most, 0.163; you said row 3, which weighs 0.105"));
  stand(1, 10, KVS_SCORE);
  answer("11");
  assert_non_null(strstr(drive.state.message, "; you said row 11, but there are rows 0 to 10"));
}

static void of_two_heaviest_rows_either_is_right(void **unused) {
  (void)unused;
  const float weights[] = {0.25f, 0.375f, 0.375f};
  const struct prediction p = {.kind = PREDICT_HEAVIEST, .answer = 1, .used = 1, .P = 2, .weights = weights, .rows = 3};
  char text[128];
  assert_true(prediction_judge(&p, 2, text, sizeof text));
  assert_string_equal(text, "row 1 weighs most, 0.375, and row 2 as much");
  assert_true(prediction_judge(&p, 1, text, sizeof text));
  assert_false(prediction_judge(&p, 0, text, sizeof text));
}

/* The right t is asked for; what the run used comes with the verdict. */
static void a_faulty_run_is_asked_for_what_is_right(void **unused) {
  (void)unused;
  open_trace(REVERSE);
  stand(2, 9, KVS_LOGITS);
  answer("10");
  assert_string_equal(drive.state.message, "right: t = 10: the cache holds 10 rows before this append; this run used 11"
                                           "  [1 of 1 right]");
  draw(80, 24);
  assert_true(row_of("; this run used 11") >= 0); /* on two lines: it is longer than one */
  sees("[1 of 1 right]");
  draw(60, 15); /* the smallest screen has it whole, too */
  sees("right: t = 10: the cache holds 10 rows");
  sees("[1 of 1 right]");
  stand(2, 9, KVS_LOGITS);
  answer("11");
  assert_non_null(strstr(drive.state.message, "wrong: t = 10"));
  assert_non_null(strstr(drive.state.message, "you said 11, the length after it; this run used 11"));
  draw(60, 15); /* three lines */
  sees("wrong: t = 10");
  sees("you said 11");
  sees("right]");
  stand(3, 9, KVS_LOGITS);
  answer("0");
  assert_non_null(strstr(drive.state.message, "you said 0, as if the cache were empty; this run used 0"));
  const struct prediction p = {.kind = PREDICT_POSITION, .answer = 5, .used = LOOK_NONE, .P = 5};
  char text[128];
  assert_true(prediction_judge(&p, 5, text, sizeof text));
  assert_string_equal(text, "t = 5: the cache holds 5 rows before this append; this run used none");
}

/* ---- keys, ends ----------------------------------------------------------------------------------------------------- */

static void escape_skips_and_shows(void **unused) {
  (void)unused;
  open_trace(REVERSE);
  stand(1, 9, KVS_LOGITS);
  drive_action(&drive, ACTION_PREDICT);
  type("4");
  drive_key(&drive, KEYS_ESCAPE);
  at(10, KVS_READ_LENGTH);
  assert_int_equal(drive.state.mode, INPUT_KEYS);
  assert_string_equal(drive.state.message,
                      "skipped: t = 10: the cache holds 10 rows before this append  [0 of 0 right]");
  stand(2, 9, KVS_LOGITS);
  drive_action(&drive, ACTION_PREDICT);
  drive_key(&drive, KEYS_ESCAPE);
  assert_non_null(strstr(drive.state.message, "skipped: t = 10"));
  assert_non_null(strstr(drive.state.message, "this run used 11"));
}

static void only_digits_are_taken(void **unused) {
  (void)unused;
  open_trace(REVERSE);
  stand(1, 9, KVS_LOGITS);
  drive.state.playing = true;
  drive_action(&drive, ACTION_PREDICT);
  assert_false(drive.state.playing);
  static const int others[] = {'q', 'b', ' ', ',', '-', 'p', 0xE9, KEYS_LEFT, KEYS_HOME, KEYS_TAB, KEYS_DELETE};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    drive_key(&drive, '7');
    assert_string_equal(drive.state.message, "");
    drive_key(&drive, others[i]);
    assert_string_equal(drive.state.message, "only digits, Backspace, Enter and Escape here");
    assert_string_equal(drive.state.line, "7");
    drive_key(&drive, KEYS_BACKSPACE);
    assert_string_equal(drive.state.line, "");
    assert_int_equal(drive.state.mode, INPUT_PREDICT);
  }
  drive_key(&drive, KEYS_BACKSPACE);
  assert_int_equal(drive.state.mode, INPUT_PREDICT); /* it does not leave */
  drive_key(&drive, KEYS_ENTER);
  assert_non_null(strstr(drive.state.message, "a number first"));
  at(9, KVS_LOGITS);
  assert_false(drive.state.quit);
  type("99999999999999999999");
  assert_int_equal(strlen(drive.state.line), 9);
  draw(80, 24);
  sees("only digits, Backspace");
  drive_key(&drive, KEYS_ENTER);
  assert_non_null(strstr(drive.state.message, "; you said 999999999"));
}

static void what_is_not_there_is_not_asked(void **unused) {
  (void)unused;
  open_trace(REVERSE);
  stand(1, 17, KVS_LOGITS);
  drive_action(&drive, ACTION_PREDICT);
  assert_int_equal(drive.state.mode, INPUT_KEYS);
  assert_string_equal(drive.state.message, "nothing to predict: the trace ends with this step");
  stand(1, 17, KVS_SCORE);
  answer("0"); /* the last step's other numbers are there */
  shut(NULL);
  open_trace(AUSTEN);
  stand(1, 10, KVS_APPEND);
  drive_command(&drive, "layer 1");
  drive_action(&drive, ACTION_PREDICT);
  assert_string_equal(drive.state.message, "nothing to predict: the scores of layer 1 head 0 were not logged");
  drive.state.moment = KVS_SCORE;
  drive_action(&drive, ACTION_PREDICT);
  assert_string_equal(drive.state.message, "nothing to predict: the weights of layer 1 head 0 were not logged");
  drive_command(&drive, "layer 3");
  drive_action(&drive, ACTION_PREDICT);
  assert_int_equal(drive.state.mode, INPUT_PREDICT);
  drive_command(&drive, "layer 1"); /* a script may do this under an open question */
  draw(80, 24);
  sees("were not logged");
  drive_key(&drive, KEYS_ESCAPE);
  assert_int_equal(drive.state.mode, INPUT_KEYS);
}

/* ---- hiding --------------------------------------------------------------------------------------------------------- */

/* The whole number stands in the text; token ids and the root's head_dim are other numbers, as are parts of decimal ones. */
static bool has_number(const char *text, int number) {
  const char *p = text;
  while ((p += strcspn(p, "0123456789")), *p) {
    char *end;
    long value = strtol(p, &end, 10);
    bool other =
        (p - text >= 4 && strncmp(p - 4, "wte[", 4) == 0) || (p - text >= 3 && strncmp(p - 3, "√", strlen("√")) == 0);
    bool decimal = end[0] == '.' && isdigit((unsigned char)end[1]);
    if (decimal) strtol(end + 1, &end, 10);
    if (!other && !decimal && value == number) return true;
    p = end;
  }
  return false;
}

static void no_number(int row, int from, int to, int number) {
  char text[4096];
  line_of(row, from, to, text, sizeof text);
  if (has_number(text, number))
    fail_msg("run %d step %d moment %d: %d in \"%s\"", drive.state.run, drive.state.step, drive.state.moment, number,
             text);
}

/* Title (its step and total), tokens, rule, slots, the moments' lines. */
static void count_is_hidden(const struct prediction *p) {
  char text[4096];
  line_of(0, 0, drive.cells.columns, text, sizeof text);
  char *from = strstr(text, "  step "), *to = strstr(text, "  layer ");
  assert_true(from && to);
  *to = '\0';
  assert_false(has_number(from, p->answer));
  for (int row = 1; row <= 4; row++) no_number(row, 0, drive.cells.columns, p->answer);
  static const int moments[] = {KVS_READ_LENGTH, KVS_EMBED, KVS_APPEND, KVS_SCORE, KVS_SOFTMAX};
  for (size_t i = 0; drive.state.view == VIEW_STEP && i < sizeof moments / sizeof *moments; i++)
    no_number(6 + moments[i], 12, 42, p->answer);
  for (int row = 6; drive.state.view != VIEW_NEXT && row < drive.cells.rows - 3; row++)
    no_number(row, drive.state.view == VIEW_STEP ? 43 : 0, drive.state.view == VIEW_STEP ? 49 : 23, p->answer);
  if (prediction_hides_slots(p, &drive.state)) {
    line_of(3, 0, drive.cells.columns, text, sizeof text);
    assert_null(strstr(text, "■"));
  }
}

/* No score, weight or bar in the rows' table. */
static void scores_are_hidden(void) {
  for (int row = 7; row < drive.cells.rows - 3; row++)
    for (int column = 59; column < drive.cells.columns; column++) {
      const struct cell *cell = cells_at(&drive.cells, row, column);
      assert_true(!isdigit((unsigned char)*cell->text) && cell->role != ROLE_BAR);
    }
}

static void nothing_gives_the_answer_away(void **unused) {
  (void)unused;
  open_trace(REVERSE);
  for (int run = 1; run <= 3; run++)
    for (int step = 0; step < 18; step++)
      for (int moment = 0; moment < KVS_PHASE_COUNT; moment++) {
        stand(run, step, (kvs_phase)moment);
        if (drive.state.step != step) continue;
        drive_command(&drive, "predict");
        struct prediction p;
        prediction_open(&drive.state, look, &p);
        if (p.kind == PREDICT_NOTHING) continue;
        static const enum view_id open_views[] = {VIEW_STEP, VIEW_CACHE, VIEW_NEXT};
        for (int i = 0; i < 3; i++) {
          drive.state.view = open_views[i];
          draw(90, 26); /* under 100 columns there are no graphs among the rows */
          misses("hidden while");
          if (p.kind != PREDICT_HEAVIEST)
            count_is_hidden(&p);
          else if (i == 0)
            scores_are_hidden();
        }
        drive.state.view = VIEW_STEP;
      }
}

static void views_that_would_tell_are_covered_and_no_others(void **unused) {
  (void)unused;
  open_trace(REVERSE);
  static const struct {
    kvs_phase moment;
    const char *covered; /* by view: 1 covered */
  } cases[] = {
      {KVS_READ_LENGTH, "001001011"}, {KVS_APPEND, "001001011"}, {KVS_SCORE, "001110011"}, {KVS_LOGITS, "001001011"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int view = 0; view < VIEW_COUNT; view++) {
      stand(1, 10, cases[i].moment);
      drive.state.view = (enum view_id)view;
      drive_key(&drive, 'p');
      draw(80, 24);
      assert_int_equal(row_of("hidden while the question is open") >= 0, cases[i].covered[view] == '1');
      drive_key(&drive, KEYS_ESCAPE);
      draw(80, 24);
      misses("hidden while the question is open");
      assert_int_equal(drive.state.view, view);
    }
}

static void only_the_answer_is_hidden(void **unused) {
  (void)unused;
  open_trace(REVERSE);
  stand(1, 9, KVS_LOGITS);
  drive_key(&drive, 'p');
  draw(80, 24);
  static const char *const there[] = {"step 9/17",
                                      "9 n  ",
                                      "read before the append = 9",
                                      "length 9 → ?",
                                      "? weights, sum 1.000",
                                      "slot 9 new",
                                      "predict  which t",
                                      "logits  next: o",
                                      "i = 0..9"};
  for (size_t i = 0; i < sizeof there / sizeof *there; i++) sees(there[i]);
  stand(1, 16, KVS_LOGITS); /* t will be 17, which is the last step's number as well */
  drive_key(&drive, 'p');
  draw(80, 24);
  sees("step 16/?");
  draw(60, 15);
  sees("predict  which t");
  sees("Escape skip and show");
  draw(10, 3); /* too small for anything */
}

/* ---- the manual ----------------------------------------------------------------------------------------------------- */

/* Text as the manual's source has it. */
static void in_troff(const char *text, char *out, size_t size) {
  static const char special[] = "\\-`^~";
  static const char *const escaped[] = {"\\e", "\\-", "\\(ga", "\\(ha", "\\(ti"};
  size_t used = 0;
  *out = '\0';
  for (const char *p = text; *p; p++) {
    const char *found = strchr(special, *p);
    if (p == text && (*p == '.' || *p == '\'')) used += (size_t)snprintf(out + used, size - used, "\\&");
    used += found ? (size_t)snprintf(out + used, size - used, "%s", escaped[found - special])
                  : (size_t)snprintf(out + used, size - used, "%c", *p);
    assert_true(used < size);
  }
}

static void the_manual_has_every_action_with_its_keys(void **unused) {
  (void)unused;
  static char text[1 << 20];
  assert_int_equal(shell_says(text, sizeof text, "'%s' man", kvstep_binary()), 0);
  const char *section = strstr(text, ".SH KEYS\n");
  assert_non_null(section);
  char *end = strstr(section + 1, "\n.SH ");
  assert_non_null(end);
  *end = '\0';
  const char *group = "";
  for (int a = ACTION_NONE + 1; a < ACTION_COUNT; a++) {
    const struct action_row *row = action_row((enum action)a);
    char keys[128], name[128], help[512], entry[1024];
    in_troff(row->keys, keys, sizeof keys);
    in_troff(row->name, name, sizeof name);
    in_troff(row->help, help, sizeof help);
    snprintf(entry, sizeof entry, "\n.TP\n\\fB%s\\fR   \\fI%s\\fR\n%s", keys, name, help);
    const char *found = strstr(section, entry);
    if (!found) fail_msg("the manual lacks:%s", entry);
    if (strcmp(group, row->group) != 0) {
      group = row->group;
      snprintf(entry, sizeof entry, "\n.SS %s\n", group);
      section = strstr(section, entry);
      assert_true(section && section < found);
    }
  }
}

static void the_manual_renders_without_warnings(void **unused) {
  (void)unused;
  if (shell("command -v man >/dev/null && command -v groff >/dev/null") != 0) skip();
  assert_int_equal(
      shell("said=$('%s' man | LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z /dev/stdin"
            " 2>&1 >/dev/null) && test -z \"$said\"",
            kvstep_binary()),
      0);
}

#define ON_TRACE(test) cmocka_unit_test_teardown(test, shut)

int main(void) {
  const struct CMUnitTest tests[] = {
      ON_TRACE(the_moment_chooses_the_question),
      ON_TRACE(t_of_the_next_step),
      ON_TRACE(length_after_the_append),
      ON_TRACE(how_many_scores),
      ON_TRACE(the_heaviest_row),
      cmocka_unit_test(of_two_heaviest_rows_either_is_right),
      ON_TRACE(a_faulty_run_is_asked_for_what_is_right),
      ON_TRACE(escape_skips_and_shows),
      ON_TRACE(only_digits_are_taken),
      ON_TRACE(what_is_not_there_is_not_asked),
      ON_TRACE(nothing_gives_the_answer_away),
      ON_TRACE(views_that_would_tell_are_covered_and_no_others),
      ON_TRACE(only_the_answer_is_hidden),
      cmocka_unit_test(the_manual_has_every_action_with_its_keys),
      cmocka_unit_test(the_manual_renders_without_warnings),
  };
  return cmocka_run_group_tests_name("predict", tests, NULL, NULL);
}
