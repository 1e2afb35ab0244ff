/* test_any_keys.c: any keys, at any size, on traces that were bent in every way. Run it from the repository's root, where traces/
 * lies. KVSTEP_KEYS says how many keys. */
#include "drawn.h"
#include "tests/support/random.h"

static int bad_cells(void) {
  int bad = 0;
  for (int c = 0; c < drive.cells.rows * drive.cells.columns; c++) {
    const struct cell *cell = &drive.cells.cell[c];
    unsigned char first = (unsigned char)cell->text[0];
    bad += cell->width > 2 || cell->role >= ROLE_COUNT || first == 0x7F || (cell->width > 0 && first < ' ');
  }
  return bad;
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
    if (random_below(10) == 0) {
      bool large = random_below(8) == 0;
      rows = 1 + random_below(large ? 150 : 40), columns = 1 + random_below(large ? 500 : 130);
    }
    if (random_below(50) == 0) drive.cells.ascii = !drive.cells.ascii;
    draw(columns, rows);
    assert_int_equal(bad_cells(), 0);
  }
}

static int keys_to_press(void) {
  const char *keys = getenv("KVSTEP_KEYS"), *san = getenv("KVSTEP_SAN");
  bool sanitized = san && *san;
  return keys && atoi(keys) > 0 ? atoi(keys) : sanitized ? 20000 : 100000;
}

static void any_keys(void **state) {
  (void)state;
  static const char *const traces[] = {"traces/sample-austen.db", "traces/sample-reverse.db"};
  random_state = 7;
  for (size_t i = 0; i < 2; i++) {
    open_at(traces[i], -1, -1, -1, -1);
    press_keys(keys_to_press() / 2);
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
    "head_stat.max_weight",
    "head_stat.weight_sum",
    "event.cache_length",
    "event.layer",
    "event.step",
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

static void bend_at_random(sqlite3 *db) {
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
    sqlite3 *db;
    const char *sample = round % 3 ? "reverse" : "austen";
    assert_int_equal(shell("cp traces/sample-%s.db '%s'", sample, in_folder("b.db")), 0);
    assert_int_equal(sqlite3_open(in_folder("b.db"), &db), SQLITE_OK);
    sqlite3_create_function(db, "chance", 1, SQLITE_UTF8, NULL, chance, NULL, NULL);
    sqlite3_create_function(db, "noise", 1, SQLITE_UTF8, NULL, noise, NULL, NULL);
    sqlite3_exec(db, "PRAGMA ignore_check_constraints = 1; PRAGMA foreign_keys = 0; BEGIN", NULL, NULL, NULL);
    for (int i = random_below(6); i >= 0; i--) bend_at_random(db);
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
  execute(db, kvs_trace_schema());
  sqlite3_close(db);
  open_at(in_folder("e.db"), -1, -1, -1, -1);
  draw(80, 24);
  sees("there is no step in this trace yet");
  random_state = 5;
  press_keys(500);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(any_keys, shut),
      cmocka_unit_test_teardown(bent_traces, shut),
      cmocka_unit_test_teardown(an_empty_trace, shut),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
