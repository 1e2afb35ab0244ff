/* test_state.c: the table of actions, and what each action does to the screen's state. No terminal, no trace. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "tui/prompt_text.h"
#include "tui/state.h"

static const struct limits limits = {
    .runs = 3, .steps = 20, .layers = 4, .heads = 4, .rows = 13, .own = 12, .help_top = 20};

static struct state fresh(void) {
  struct state s;
  state_init(&s, &limits);
  return s;
}

static void do_all(struct state *s, const char *names) {
  char copy[512], *rest = copy;
  snprintf(copy, sizeof copy, "%s", names);
  for (char *name; (name = strsep(&rest, " "));) {
    enum action action = action_named(name);
    if (action == ACTION_NONE) fail_msg("no action %s", name);
    state_update(s, &limits, action);
  }
}

static void every_action_has_a_name_keys_and_words_of_its_own(void **unused) {
  (void)unused;
  for (int a = ACTION_NONE + 1; a < ACTION_COUNT; a++) {
    const struct action_row *row = action_row((enum action)a);
    assert_true(*row->name && *row->keys && *row->group && *row->help);
    assert_int_equal(action_named(row->name), a);
    assert_true(strlen(row->keys) < 18); /* the help's column */
    char keys[64], *rest = keys;
    snprintf(keys, sizeof keys, "%s", row->keys);
    for (char *name; (name = strsep(&rest, " "));) {
      int key = action_key(name);
      assert_int_not_equal(key, 0);
      assert_int_equal(action_for_key(key), a); /* no key stands twice */
      char back[16];
      action_key_name(key, back);
      assert_int_equal(action_key(back), key);
    }
  }
  assert_int_equal(action_named("nothing-of-the-sort"), ACTION_NONE);
  assert_int_equal(action_for_key('~'), ACTION_NONE);
  assert_int_equal(action_key("Middle"), 0);
  assert_int_equal(action_key("é"), 0xE9);
  assert_int_equal(action_key("C-l"), 12);
}

static void moments_come_one_by_one_and_un_happen(void **unused) {
  (void)unused;
  struct state s = fresh();
  state_command(&s, &limits, "step 5");
  assert_int_equal(s.step, 5);
  assert_int_equal(s.moment, KVS_LOGITS);
  do_all(&s, "next-moment");
  assert_int_equal(s.step, 6);
  assert_int_equal(s.moment, KVS_READ_LENGTH);
  for (int phase = KVS_READ_LENGTH; phase < KVS_LOGITS; phase++) {
    assert_int_equal(s.moment, phase);
    do_all(&s, "next-moment");
  }
  assert_int_equal(s.moment, KVS_LOGITS);
  for (int i = 0; i < 10; i++) do_all(&s, "previous-moment");
  assert_int_equal(s.step, 5);
  assert_int_equal(s.moment, KVS_LOGITS);
  do_all(&s, "first-step previous-moment previous-moment previous-moment previous-moment previous-moment");
  do_all(&s, "previous-moment previous-moment previous-moment previous-moment previous-moment previous-moment");
  assert_int_equal(s.step, 0);
  assert_int_equal(s.moment, KVS_READ_LENGTH);
  assert_string_equal(s.message, "this is where the run begins");
}

static void dials_stop_at_their_ends(void **unused) {
  (void)unused;
  struct state s = fresh();
  do_all(&s, "last-step next-step next-step next-moment");
  assert_int_equal(s.step, 19);
  assert_string_equal(s.message, "this is the trace's last step");
  do_all(&s, "steps-back");
  assert_int_equal(s.step, 9);
  do_all(&s, "steps-back steps-back");
  assert_int_equal(s.step, 0);
  do_all(&s, "previous-layer");
  assert_int_equal(s.layer, 0);
  do_all(&s,
         "next-layer next-layer next-layer next-layer next-layer next-head next-head next-head next-head next-head");
  assert_int_equal(s.layer, 3);
  assert_int_equal(s.head, 3);
  do_all(&s, "next-run next-run");
  assert_int_equal(s.run, 3);
  do_all(&s, "next-run"); /* runs go round */
  assert_int_equal(s.run, 1);
  do_all(&s, "previous-run");
  assert_int_equal(s.run, 3);
}

static void the_row_cursor_rests_on_the_new_row(void **unused) {
  (void)unused;
  struct state s = fresh();
  assert_int_equal(s.row, -1);
  do_all(&s, "row-up");
  assert_int_equal(s.row, 11);
  do_all(&s, "row-up row-down row-down row-down");
  assert_int_equal(s.row, -1);
  for (int i = 0; i < 30; i++) do_all(&s, "row-up");
  assert_int_equal(s.row, 0);
  do_all(&s, "next-step");
  assert_int_equal(s.row, -1);
}

static void views_by_digit_and_in_a_circle(void **unused) {
  (void)unused;
  struct state s = fresh();
  do_all(&s, "view-map");
  assert_int_equal(s.view, VIEW_MAP);
  do_all(&s, "view-previous view-previous view-previous");
  assert_int_equal(s.view, VIEW_COUNT - 1);
  do_all(&s, "view-next");
  assert_int_equal(s.view, VIEW_STEP);
  do_all(&s, "view-heads accept");
  assert_int_equal(s.view, VIEW_STEP);
}

static void a_search_is_typed_edited_and_asked_for(void **unused) {
  (void)unused;
  struct state s = fresh();
  do_all(&s, "search-next");
  assert_true(s.message_is_error);
  assert_int_equal(s.request, REQUEST_NONE);
  do_all(&s, "search");
  assert_int_equal(s.mode, INPUT_SEARCH);
  const char *typed[] = {"t", "r", "ü", "x"};
  for (int i = 0; i < 4; i++) state_type(&s, typed[i]);
  assert_string_equal(s.line, "trüx");
  do_all(&s, "previous-moment previous-moment"); /* Backspace, over a character of two bytes */
  assert_string_equal(s.line, "tr");
  do_all(&s, "previous-step");
  state_type(&s, "o");
  assert_string_equal(s.line, "tor");
  state_type(&s, "\x01"); /* no control characters */
  assert_string_equal(s.line, "tor");
  int step = s.step;
  do_all(&s, "accept");
  assert_int_equal(s.mode, INPUT_KEYS);
  assert_string_equal(s.search, "tor");
  assert_int_equal(s.request, REQUEST_SEARCH);
  assert_int_equal(s.request_direction, 1);
  assert_int_equal(s.step, step); /* the caller looks, not update */
  s.request = REQUEST_NONE;
  do_all(&s, "search-previous");
  assert_int_equal(s.request_direction, -1);
  do_all(&s, "search cancel");
  assert_int_equal(s.mode, INPUT_KEYS);
  assert_string_equal(s.search, "tor");
}

static void a_line_does_not_grow_without_end(void **unused) {
  (void)unused;
  struct state s = fresh();
  do_all(&s, "command");
  for (int i = 0; i < 1000; i++) state_type(&s, "€");
  assert_int_equal(strlen(s.line), (LINE_SIZE - 1) / 3 * 3);
  for (int i = 0; i < 1000; i++) do_all(&s, "previous-moment");
  assert_string_equal(s.line, "");
}

static void commands_move_dials_or_say_why_not(void **unused) {
  (void)unused;
  const struct {
    const char *line, *message;
    int step, layer;
  } cases[] = {
      {"step 7", "", 7, 0},
      {"12", "", 12, 0},
      {"layer 2", "", 0, 2},
      {"step 20", "step 20: there are 0 to 19", 0, 0},
      {"layer -1", "layer -1: there are 0 to 3", 0, 0},
      {"layer two", "layer: \"two\" is no number", 0, 0},
      {"step", "step: \"\" is no number", 0, 0},
      {"run 4", "run 4: there are 1 to 3", 0, 0},
      {"fly",
       "no command \"fly\"; there are step, layer, head, row, run, sql, prompt, fault, decode, save-screen, help, quit",
       0, 0},
      {"save-screen", "save-screen needs a file's name: .svg with colours, any other as text", 0, 0},
      {"next-layer", "", 0, 1},
      {"7.2.1", "", 7, 2},
      {"7.2.1.5", "", 7, 2},
      {"7.4", "layer 4: there are 0 to 3", 0, 0},
      {"7.2.1.5.0", "7.2.1.5.0: at most step.layer.head.row", 0, 0},
      {"7..1", "layer: \"\" is no number", 0, 0},
      {"", "", 0, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct state s = fresh();
    s.step = 0;
    state_command(&s, &limits, cases[i].line);
    assert_string_equal(s.message, cases[i].message);
    assert_int_equal(s.step, cases[i].step);
    assert_int_equal(s.layer, cases[i].layer);
  }
  struct state s = fresh();
  state_command(&s, &limits, "save-screen  a b.svg");
  assert_int_equal(s.request, REQUEST_SAVE_SCREEN);
  assert_string_equal(s.request_text, "a b.svg");
  state_command(&s, &limits, "quit");
  assert_true(s.quit);
}

static void help_takes_its_own_keys_and_closes(void **unused) {
  (void)unused;
  struct state s = fresh();
  do_all(&s, "help");
  assert_int_equal(s.mode, INPUT_HELP);
  int step = s.step;
  do_all(&s, "row-down row-down next-step steps-forward row-up");
  assert_int_equal(s.help_top, 11);
  do_all(&s, "steps-forward row-down");
  assert_int_equal(s.help_top, 20); /* not beyond its end */
  do_all(&s, "first-step row-up");
  assert_int_equal(s.help_top, 0);
  do_all(&s, "last-step");
  assert_int_equal(s.help_top, 20);
  assert_int_equal(s.step, step);
  do_all(&s, "quit"); /* q closes the help, not the program */
  assert_int_equal(s.mode, INPUT_KEYS);
  assert_false(s.quit);
  do_all(&s, "quit");
  assert_true(s.quit);
}

static void playing_starts_stops_and_has_a_pace(void **unused) {
  (void)unused;
  struct state s = fresh();
  double pace = state_pace(&s);
  do_all(&s, "play");
  assert_true(s.playing);
  do_all(&s, "faster");
  assert_true(state_pace(&s) == 2 * pace);
  for (int i = 0; i < 20; i++) do_all(&s, "slower");
  assert_true(state_pace(&s) == 0.5);
  do_all(&s, "cancel");
  assert_false(s.playing);
}

static void an_empty_trace_holds_every_dial_still(void **unused) {
  (void)unused;
  const struct limits none = {0};
  struct state nowhere;
  state_init(&nowhere, &none);
  state_command(&nowhere, &none, "step 2");
  assert_string_equal(nowhere.message, "step 2: there is none in this trace");
  struct state s;
  state_init(&s, &none);
  for (int a = ACTION_NONE + 1; a < ACTION_COUNT; a++) {
    s.mode = INPUT_KEYS;
    state_update(&s, &none, (enum action)a);
    assert_true(s.step == 0 && s.layer == 0 && s.head == 0 && s.run == 1 && s.row == -1);
  }
}

static void the_difference_is_sought_from_run_1(void **unused) {
  (void)unused;
  struct state s = fresh();
  do_all(&s, "first-difference");
  assert_true(s.message_is_error);
  do_all(&s, "next-run first-difference");
  assert_int_equal(s.request, REQUEST_DIFFERENCE);
  assert_int_equal(s.request_number, 1);
}

/* ---- a model at hand ------------------------------------------------------------------------------------------------ */

static const struct limits at_hand = {
    .runs = 3, .steps = 20, .layers = 4, .heads = 4, .rows = 13, .own = 12, .help_top = 20, .live = true};

static struct state do_with(const struct limits *with, int step, const char *name) {
  struct state s;
  state_init(&s, with);
  s.step = step;
  state_update(&s, with, action_named(name));
  return s;
}

static void after_the_last_step_a_token_is_asked_for(void **unused) {
  (void)unused;
  static const struct {
    const char *action;
    int tokens, by_moments;
  } asks[] = {{"next-step", 1, 0}, {"next-moment", 1, 1}, {"steps-forward", 10, 0}};
  for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
    struct state s = do_with(&at_hand, 19, asks[i].action);
    assert_int_equal(s.request, REQUEST_DECODE);
    assert_int_equal(s.request_number, asks[i].tokens);
    assert_int_equal(s.request_direction, asks[i].by_moments);
    assert_int_equal(s.step, 19); /* until it is there */
    assert_int_equal(do_with(&at_hand, 18, asks[i].action).request, REQUEST_NONE);
  }
  struct limits busy = at_hand;
  busy.working = true;
  struct state s = do_with(&busy, 19, "next-step");
  assert_int_equal(s.request, REQUEST_NONE);
  assert_string_equal(s.message, "still decoding; ^C stops it");
  assert_int_equal(do_with(&busy, 3, "cancel").request, REQUEST_STOP);
  assert_int_equal(do_with(&at_hand, 3, "cancel").request, REQUEST_NONE);
}

static void without_a_model_the_reason_is_said(void **unused) {
  (void)unused;
  struct limits with = limits;
  struct state s = do_with(&with, 19, "next-step");
  assert_int_equal(s.request, REQUEST_NONE);
  assert_string_equal(s.message, "this is the trace's last step");
  with.no_live = "no model: give -m";
  s = do_with(&with, 19, "next-moment");
  assert_string_equal(s.message, "this is the trace's last step; no model: give -m");
  s = do_with(&with, 3, "edit-prompt");
  assert_int_equal(s.request, REQUEST_EDIT_PROMPT); /* the line opens: what is typed next must not be other keys */
  assert_string_equal(s.message, "no model: give -m");
  s.request = REQUEST_NONE;
  s.mode = INPUT_PROMPT;
  state_type(&s, "q");
  state_update(&s, &with, ACTION_ACCEPT);
  assert_int_equal(s.request, REQUEST_NONE);
  assert_int_equal(s.mode, INPUT_KEYS);
  assert_string_equal(s.message, "no model: give -m");
  s = do_with(&with, 3, "choose-fault");
  assert_int_equal(s.mode, INPUT_FAULT); /* it can be read */
  assert_string_equal(s.message, "no model: give -m");
  state_update(&s, &with, ACTION_ACCEPT);
  assert_int_equal(s.request, REQUEST_NONE);
  assert_string_equal(s.message, "no model: give -m");
  assert_true(s.message_is_error);
  state_command(&s, &with, "decode 3");
  assert_int_equal(s.request, REQUEST_NONE);
}

static void a_full_line_says_so(void **unused) {
  (void)unused;
  struct state s = do_with(&at_hand, 3, "edit-prompt");
  s.mode = INPUT_PROMPT;
  for (int i = 0; i < LINE_SIZE - 1; i++) state_type(&s, "a");
  assert_string_equal(s.message, "");
  state_type(&s, "b");
  assert_non_null(strstr(s.message, "the line is full"));
  assert_int_equal(strlen(s.line), LINE_SIZE - 1);
  assert_null(strchr(s.line, 'b'));
}

static void a_fault_is_chosen_from_the_list(void **unused) {
  (void)unused;
  int last = 0;
  while (kvs_fault_at(last)) last++;
  struct state s = do_with(&at_hand, 3, "choose-fault");
  assert_int_equal(s.mode, INPUT_FAULT);
  assert_int_equal(s.fault, 0);
  state_update(&s, &at_hand, ACTION_ROW_UP);
  assert_int_equal(s.fault, 0);
  state_update(&s, &at_hand, ACTION_LAST_STEP);
  state_update(&s, &at_hand, ACTION_ROW_DOWN);
  assert_int_equal(s.fault, last);
  state_update(&s, &at_hand, ACTION_STEPS_BACK);
  assert_int_equal(s.fault, last > 10 ? last - 10 : 0);
  state_update(&s, &at_hand, ACTION_FIRST_STEP);
  state_update(&s, &at_hand, ACTION_ROW_DOWN);
  assert_int_equal(s.step, 3); /* the dials rest meanwhile */
  state_update(&s, &at_hand, ACTION_ACCEPT);
  assert_int_equal(s.mode, INPUT_KEYS);
  assert_int_equal(s.request, REQUEST_FAULT);
  assert_int_equal(s.request_number, 1);
  s.request = REQUEST_NONE;
  state_update(&s, &at_hand, ACTION_CHOOSE_FAULT);
  state_update(&s, &at_hand, ACTION_CANCEL);
  assert_int_equal(s.mode, INPUT_KEYS);
  assert_int_equal(s.request, REQUEST_NONE);
  assert_int_equal(s.fault, 1); /* where it was, when it is opened again */
}

static void a_prompt_is_typed_and_commands_decode(void **unused) {
  (void)unused;
  struct state s = do_with(&at_hand, 3, "edit-prompt");
  assert_int_equal(s.request, REQUEST_EDIT_PROMPT);
  s.request = REQUEST_NONE;
  s.mode = INPUT_PROMPT;
  assert_true(state_is_typing(&s));
  state_type(&s, "a");
  state_type(&s, ">");
  state_update(&s, &at_hand, ACTION_PREVIOUS_STEP);
  state_type(&s, "b");
  state_update(&s, &at_hand, ACTION_ACCEPT);
  assert_int_equal(s.request, REQUEST_PROMPT);
  assert_string_equal(s.request_text, "ab>");
  assert_int_equal(s.mode, INPUT_KEYS);
  static const struct {
    const char *line;
    enum request request;
    const char *message;
  } commands[] = {{"prompt  two words", REQUEST_PROMPT, ""},
                  {"decode 20", REQUEST_DECODE, ""},
                  {"decode none", REQUEST_NONE, "decode: \"none\" is no number"},
                  {"decode 0", REQUEST_NONE, "decode 0: there are 1 to 1000000"},
                  {"fault none", REQUEST_FAULT, ""},
                  {"fault off-by-one", REQUEST_FAULT, ""},
                  {"fault of-by-one", REQUEST_NONE, "there is no fault \"of-by-one\"; f lists them"}};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    state_init(&s, &at_hand);
    state_command(&s, &at_hand, commands[i].line);
    assert_int_equal(s.request, commands[i].request);
    assert_string_equal(s.message, commands[i].message);
  }
  state_command(&s, &at_hand, "prompt two");
  assert_string_equal(s.request_text, "two");
  state_command(&s, &at_hand, "fault off-by-one");
  assert_ptr_equal(kvs_fault_at(s.request_number - 1), kvs_fault_find("off-by-one"));
}

static void a_prompt_is_shown_and_read_with_escapes(void **unused) {
  (void)unused;
  static const struct {
    const char *bytes;
    size_t length;
    const char *line;
  } pairs[] = {{"plain text", 10, "plain text"},
               {"a\nb\tc\rd\\", 8, "a\\nb\\tc\\rd\\\\"},
               {"\x1b[0m\0", 5, "\\x1B[0m\\x00"},
               {"\xC3\xA9 \xE6\xAD", 5, "\xC3\xA9 \\xE6\\xAD"}, /* a character cut in two */
               {"\xC2\x9B", 2, "\\xC2\\x9B"},                   /* a control character of its own */
               {"", 0, ""}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    char line[64], bytes[64];
    size_t length;
    assert_true(prompt_show(pairs[i].bytes, pairs[i].length, line, sizeof line));
    assert_string_equal(line, pairs[i].line);
    assert_int_equal(prompt_read(line, bytes, &length), -1);
    assert_int_equal(length, pairs[i].length);
    assert_memory_equal(bytes, pairs[i].bytes, length);
  }
  char line[8], bytes[64];
  size_t length;
  assert_true(prompt_show("1234567", 7, line, sizeof line));
  assert_false(prompt_show("12345678", 8, line, sizeof line)); /* never cut in silence */
  assert_string_equal(line, "");
  assert_int_equal(prompt_read("ab\\q", bytes, &length), 2);
  assert_int_equal(prompt_read("\\x4", bytes, &length), 0);
  assert_int_equal(prompt_read("\\", bytes, &length), 0);
  assert_int_equal(prompt_read("\\x4a", bytes, &length), -1);
  assert_int_equal(bytes[0], 'J');
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_action_has_a_name_keys_and_words_of_its_own),
      cmocka_unit_test(moments_come_one_by_one_and_un_happen),
      cmocka_unit_test(dials_stop_at_their_ends),
      cmocka_unit_test(the_row_cursor_rests_on_the_new_row),
      cmocka_unit_test(views_by_digit_and_in_a_circle),
      cmocka_unit_test(a_search_is_typed_edited_and_asked_for),
      cmocka_unit_test(a_line_does_not_grow_without_end),
      cmocka_unit_test(commands_move_dials_or_say_why_not),
      cmocka_unit_test(help_takes_its_own_keys_and_closes),
      cmocka_unit_test(playing_starts_stops_and_has_a_pace),
      cmocka_unit_test(an_empty_trace_holds_every_dial_still),
      cmocka_unit_test(the_difference_is_sought_from_run_1),
      cmocka_unit_test(after_the_last_step_a_token_is_asked_for),
      cmocka_unit_test(without_a_model_the_reason_is_said),
      cmocka_unit_test(a_full_line_says_so),
      cmocka_unit_test(a_fault_is_chosen_from_the_list),
      cmocka_unit_test(a_prompt_is_typed_and_commands_decode),
      cmocka_unit_test(a_prompt_is_shown_and_read_with_escapes),
  };
  return cmocka_run_group_tests_name("state", tests, NULL, NULL);
}
