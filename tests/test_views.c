/* test_views.c: each view drawn from the sample traces, with numbers that SQL and float64 sums gave; then any keys, at any size,
 * on traces that were bent in every way. Run it from the repository's root, where traces/ lies. */
#include "trace_maker.h"

#include <sqlite3.h>

#include "study/look.h"
#include "tui/drive.h"
#include "tui/view.h"

static struct look *look;
static struct drive drive;

/* ---- helpers ---- */

static bool try_open(const char *path, const struct start *start) {
  kvs_error err;
  sqlite3 *db;
  if (kvs_trace_read(path, &db, &err) != KVS_OK) return false;
  if (look_open(db, &look, &err) != KVS_OK) return false;
  if (drive_init(&drive, look, path, start, &err) == KVS_OK) return true;
  drive_free(&drive);
  look_close(look);
  look = NULL;
  return false;
}

static void open_at(const char *path, int run, int step, int layer, int head) {
  if (!try_open(path, &(struct start){run, step, layer, head})) fail_msg("%s cannot be opened", path);
}

static int shut(void **state) {
  (void)state;
  if (look) drive_free(&drive);
  if (look) look_close(look);
  look = NULL;
  return 0;
}

static void draw(int columns, int rows) { assert_true(drive_draw(&drive, rows, columns)); }

static void line_text(int row, char *text, size_t size) {
  size_t used = 0;
  *text = '\0';
  for (int column = 0; column < drive.cells.columns; column++) {
    const struct cell *cell = cells_at(&drive.cells, row, column);
    used += (size_t)snprintf(text + used, size - used, "%s", cell->text);
    assert_true(used < size);
  }
}

/* The row where this text stands, from the top; −1: nowhere. */
static int row_of(const char *text) {
  static char line[8192];
  for (int row = 0; row < drive.cells.rows; row++) {
    line_text(row, line, sizeof line);
    if (strstr(line, text)) return row;
  }
  return -1;
}

static void show(void) {
  static char line[8192];
  for (int row = 0; row < drive.cells.rows; row++) {
    line_text(row, line, sizeof line);
    fprintf(stderr, "%s\n", line);
  }
}

static void sees_(const char *text, int line) {
  if (row_of(text) >= 0) return;
  show();
  fail_msg("line %d: \"%s\" is not on the screen", line, text);
}
#define sees(text) sees_((text), __LINE__)

static void misses_(const char *text, int line) {
  if (row_of(text) < 0) return;
  show();
  fail_msg("line %d: \"%s\" is on the screen", line, text);
}
#define misses(text) misses_((text), __LINE__)

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

static void map_view(void **state) {
  (void)state;
  open_at("traces/sample-austen.db", 1, 10, 3, 1);
  drive_action(&drive, ACTION_VIEW_3);
  EACH_SIZE(i) {
    sees("step 10, row 10 ␠I: weight 0.0861, score -3.673");
    sees("▾10");
    sees("▸  10  ␠I         ········░░·"); /* 0.306 and 0.164 have a shade, the others are there and small */
    sees("· < 0.125  - masked");
    sees("·---"); /* the prompt's rows that the mask hides */
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
}

static void next_view(void **state) {
  (void)state;
  open_at("traces/sample-austen.db", 1, 10, 3, 1);
  drive_action(&drive, ACTION_VIEW_7);
  EACH_SIZE(i) {
    sees("▸  1  ␠am                7.953  0.1676");
    sees("   2  ␠think             7.071  0.0694");
    sees("taken:  ␠am");
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
  sees("↓ more");
  for (int i = 0; i < 300; i++) drive_key(&drive, 'j');
  draw(80, 24);
  sees("leave kvstep");
  sees("head 1, run 2, save-screen"); /* a long line goes on in the next one */
  sees("                      FILE, quit");
  misses("↓ more");
  misses("steps-forward");
  draw(110, 60);
  sees("ten tokens on");
  sees("steps-forward"); /* where there is room, what scripts call it */
  draw(80, 24);
  drive_key(&drive, 'k'); /* one line back at once, whatever was pressed before */
  draw(80, 24);
  sees("↓ more");
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

/* ---- anything at all ---- */

static unsigned random_state;
static int random_below(int n) {
  random_state = random_state * 1664525U + 1013904223U;
  return (int)((random_state >> 8) % (unsigned)n);
}

/* Every key but q and what writes files; at sizes that change. Every cell stays a cell. */
static void press_keys(int count) {
  static const int others[] = {KEYS_LEFT,
                               KEYS_RIGHT,
                               KEYS_UP,
                               KEYS_DOWN,
                               KEYS_HOME,
                               KEYS_END,
                               KEYS_PAGE_UP,
                               KEYS_PAGE_DOWN,
                               KEYS_SHIFT_TAB,
                               KEYS_DELETE,
                               KEYS_F1,
                               KEYS_RESIZE,
                               27,
                               13,
                               9,
                               127,
                               3,
                               7,
                               0xE9,
                               0x4E2D,
                               0x301};
  int rows = 24, columns = 80;
  for (int i = 0; i < count; i++) {
    int key = random_below(3) ? ' ' + random_below(95) : others[random_below((int)(sizeof others / sizeof *others))];
    if (key != 'q') drive_key(&drive, key);
    drive.state.quit = false;
    drive.state.request = REQUEST_NONE;
    if (random_below(20) == 0) drive.state.mode = INPUT_KEYS;
    if (random_below(10) == 0) rows = 1 + random_below(100), columns = 1 + random_below(300);
    if (random_below(50) == 0) drive.cells.ascii = !drive.cells.ascii;
    draw(columns, rows);
    for (int c = 0; c < rows * columns; c++) {
      const struct cell *cell = &drive.cells.cell[c];
      assert_true(cell->width <= 2 && cell->role < ROLE_COUNT && (unsigned char)cell->text[0] != 0x7F);
      assert_true(cell->width == 0 || (unsigned char)cell->text[0] >= ' ');
    }
  }
}

static void any_keys(void **state) {
  (void)state;
  static const char *const traces[] = {"traces/sample-austen.db", "traces/sample-reverse.db"};
  random_state = 7;
  for (size_t i = 0; i < 2; i++) {
    open_at(traces[i], -1, -1, -1, -1);
    press_keys(2000);
    shut(NULL);
  }
}

/* What a writer gone mad might leave in a column. */
static const char *const values[] = {
    "NULL",
    "-1",
    "0",
    "1",
    "2147483647",
    "2147483646",
    "1073741824",
    "9223372036854775807",
    "-9223372036854775807",
    "1e300",
    "-1e300",
    "9e999",
    "1048576",
    "X''",
    "zeroblob(4)",
    "zeroblob(1000000)",
    "X'0000C07F0000807F000080FF'",
    "''",
    "'none'",
    "'\xE4\xB8\xAD\xE6\x96\x87 e\xCC\x81\xCC\x82 \xD7\xA9\xD7\x9C\xE2\x80\xAE' || char(27, 10, 9, 0, 127, 155)",
    "X'FFFEC080'",
    "printf('%.*c', 5000, 'w')",
    "noise(48)",
    "noise(512)",
};
#define VALUES ((int)(sizeof values / sizeof *values))

static const char *const places[] = {
    "run.n_layer",
    "run.n_head",
    "run.n_embd",
    "run.head_dim",
    "run.n_ctx",
    "run.n_vocab",
    "run.model",
    "run.fault",
    "run.fault_from_step",
    "run.prompt",
    "run.run",
    "step.step",
    "step.mode",
    "step.token",
    "step.source",
    "step.cache_length_before",
    "step.position",
    "step.cache_length_after",
    "token.text",
    "token.bytes",
    "kv_row.k",
    "kv_row.v",
    "kv_row.row",
    "kv_row.step",
    "head_step.q",
    "head_step.scores",
    "head_step.weights",
    "head_step.out",
    "head_step.head",
    "layer_step.x_mid",
    "layer_step.attn_out",
    "step_vector.wte",
    "step_vector.wpe",
    "step_vector.x",
    "top_token.token",
    "top_token.token_text",
    "top_token.logit",
    "top_token.probability",
    "head_stat.max_row",
};
#define PLACES ((int)(sizeof places / sizeof *places))

/* chance(n) and noise(bytes) in SQL, from our own numbers, so that a failure can be had again. */
static void chance(sqlite3_context *context, int count, sqlite3_value **arguments) {
  (void)count;
  sqlite3_result_int(context, random_below(sqlite3_value_int(arguments[0])) == 0);
}

static void noise(sqlite3_context *context, int count, sqlite3_value **arguments) {
  (void)count;
  unsigned char bytes[512];
  int length = sqlite3_value_int(arguments[0]);
  for (int i = 0; i < length && i < (int)sizeof bytes; i++) bytes[i] = (unsigned char)random_below(256);
  sqlite3_result_blob(context, bytes, length, SQLITE_TRANSIENT);
}

static void bend(sqlite3 *db) {
  const char *place = places[random_below(PLACES)], *column = strchr(place, '.') + 1;
  int table = (int)(column - 1 - place), of = 1 + random_below(4);
  char sql[512];
  if (random_below(8) == 0)
    snprintf(sql, sizeof sql, "DELETE FROM %.*s WHERE chance(4)", table, place);
  else
    snprintf(sql, sizeof sql, "UPDATE OR IGNORE %.*s SET %s = %s WHERE chance(%d)", table, place, column,
             values[random_below(VALUES)], of);
  sqlite3_exec(db, sql, NULL, NULL, NULL); /* what the schema will not have at all stays as it is */
}

static void bent_traces(void **state) {
  (void)state;
  int opened = 0, rounds = 60;
  random_state = 20250101;
  for (int round = 0; round < rounds; round++) {
    char command[512];
    sqlite3 *db;
    snprintf(command, sizeof command, "cp traces/sample-%s.db '%s'", round % 3 ? "reverse" : "austen",
             in_folder("b.db"));
    assert_int_equal(system(command), 0);
    assert_int_equal(sqlite3_open(in_folder("b.db"), &db), SQLITE_OK);
    sqlite3_create_function(db, "chance", 1, SQLITE_UTF8, NULL, chance, NULL, NULL);
    sqlite3_create_function(db, "noise", 1, SQLITE_UTF8, NULL, noise, NULL, NULL);
    sqlite3_exec(db, "PRAGMA ignore_check_constraints = 1; PRAGMA foreign_keys = 0; BEGIN", NULL, NULL, NULL);
    for (int i = random_below(6); i >= 0; i--) bend(db);
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    sqlite3_close(db);
    if (!try_open(in_folder("b.db"), &(struct start){-1, -1, -1, -1})) continue;
    opened++;
    for (int view = 0; view < VIEW_SQL; view++) {
      drive_action(&drive, (enum action)(ACTION_VIEW_1 + view));
      draw(200, 60);
    }
    press_keys(200);
    shut(NULL);
  }
  assert_true(opened > rounds / 2);
}

/* No run, no step: said, not drawn. */
static void an_empty_trace(void **state) {
  (void)state;
  sqlite3 *db;
  assert_int_equal(sqlite3_open(in_folder("e.db"), &db), SQLITE_OK);
  assert_int_equal(sqlite3_exec(db, kvs_trace_schema(), NULL, NULL, NULL), SQLITE_OK);
  sqlite3_close(db);
  open_at(in_folder("e.db"), -1, -1, -1, -1);
  draw(80, 24);
  sees("there is no step in this trace yet");
  random_state = 5;
  press_keys(500);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(step_view, shut),
      cmocka_unit_test_teardown(where_the_prompt_ends, shut),
      cmocka_unit_test_teardown(faults_in_words, shut),
      cmocka_unit_test_teardown(cache_view, shut),
      cmocka_unit_test_teardown(map_view, shut),
      cmocka_unit_test_teardown(heads_view, shut),
      cmocka_unit_test_teardown(product_view, shut),
      cmocka_unit_test_teardown(embedding_view, shut),
      cmocka_unit_test_teardown(next_view, shut),
      cmocka_unit_test_teardown(help_and_quit_are_always_in_sight, shut),
      cmocka_unit_test_teardown(help_ends_at_its_end, shut),
      cmocka_unit_test_teardown(ascii_has_its_own_signs, shut),
      cmocka_unit_test_teardown(any_keys, shut),
      cmocka_unit_test_teardown(bent_traces, shut),
      cmocka_unit_test_teardown(an_empty_trace, shut),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
