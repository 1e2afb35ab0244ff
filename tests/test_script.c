/* test_script.c: key scripts without the program: what a picture has in it, and questions that have no end. */
#include "drawn.h"

#include "tui/script.h"

static const struct start anywhere = {-1, -1, -1, -1};

/* Plays the lines on the sample trace. */
static kvs_status play(const char *lines, int depth, long long patience) {
  sqlite3 *db;
  const char *path = in_folder("keys");
  write_file(path, lines, strlen(lines));
  ok(kvs_trace_read("traces/sample-reverse.db", &db, &error));
  ok(look_open(db, &look, &error));
  const struct script_options options = {
      .name = "t", .start = &anywhere, .path = path, .rows = 24, .columns = 80, .depth = depth, .patience = patience};
  kvs_status status = script_run(look, &options, &error);
  look_close(look);
  look = NULL;
  return status;
}

/* The file that a script saved, to be freed. */
static char *saved(const char *name) {
  static const size_t most = 1 << 20;
  FILE *file = fopen(in_folder(name), "r");
  assert_non_null(file);
  char *bytes = calloc(1, most);
  assert_non_null(bytes);
  assert_true(fread(bytes, 1, most - 1, file) > 0);
  fclose(file);
  return bytes;
}

static void a_picture_has_what_was_said(void **state) {
  (void)state;
  char lines[512];
  snprintf(lines, sizeof lines, ":step 10\np 1 Enter\n:save-screen %s\n", in_folder("said.txt"));
  ok(play(lines, -1, 0));
  char *text = saved("said.txt");
  assert_non_null(strstr(text, "wrong: t = 11"));
  assert_null(strstr(text, "saved"));
  free(text);
  snprintf(lines, sizeof lines, ":step 10\n:layer 1\n:save-screen %s\n", in_folder("silent.txt"));
  ok(play(lines, -1, 0));
  text = saved("silent.txt");
  assert_null(strstr(text, "wrong"));
  free(text);
}

/* The colours that one picture has; xterm's 31 and 130 are roles of 256 colours alone. */
static void a_picture_has_the_depth_that_was_asked_for(void **state) {
  (void)state;
  static const struct {
    int depth;
    bool teal, brown, red;
  } cases[] = {{-1, true, true, false},
               {DEPTH_256, true, true, false},
               {DEPTH_16, false, false, true},
               {DEPTH_MONO, false, false, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char lines[512];
    snprintf(lines, sizeof lines, ":run 2\n:step 10\n:save-screen %s\n", in_folder("depth.svg"));
    ok(play(lines, cases[i].depth, 0));
    char *svg = saved("depth.svg");
    assert_int_equal(strstr(svg, "#0087af") != NULL, cases[i].teal);
    assert_int_equal(strstr(svg, "#af5f00") != NULL, cases[i].brown);
    assert_int_equal(strstr(svg, "#cd0000") != NULL, cases[i].red); /* WRONG on the terminal's own red */
    assert_non_null(strstr(svg, "<svg"));
    free(svg);
  }
}

static const char endless[] = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";

static void a_question_without_an_end_ends_the_script(void **state) {
  (void)state;
  char lines[512];
  snprintf(lines, sizeof lines, "1\n:sql %s\n", endless);
  assert_int_equal(play(lines, -1, 1000000), KVS_ERR_INPUT);
  assert_says("keys:2: the question was stopped after 1 million instructions");
  snprintf(lines, sizeof lines, ";%s\n", endless);
  assert_int_equal(play(lines, -1, 1000000), KVS_ERR_INPUT);
  assert_says("keys:1: ");
  ok(play(";SELECT 1\n;SELECT count(*) FROM attention\n;SELECT 2\n", -1, 0));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_picture_has_what_was_said),
      cmocka_unit_test(a_picture_has_the_depth_that_was_asked_for),
      cmocka_unit_test(a_question_without_an_end_ends_the_script),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
