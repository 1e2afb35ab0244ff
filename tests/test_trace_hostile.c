/* test_trace_hostile.c: trace files that lie in a way only SQLite's own pages can, or that would keep a writer busy for ever: nothing is
 * written out of place, and each is refused in bounded time. */
#include "trace_file.h"

#include "study/look/look.h"
#include "trace/query.h"

static const char *const shape =
    "INSERT INTO run (run, engine, n_layer, n_head, n_embd, head_dim, n_ctx, n_vocab) "
    "VALUES (1, 'other', 1, 1, 2, 2, 1048576, 3); INSERT INTO token VALUES (0, X'61', 'a')";

/* A row's key where its index does not want it: with its order reversed for one INSERT, SQLite puts a small number behind all larger ones,
 * and then finds it whenever a question goes up to the last of these. */
static void misplace(const char *path, const char *table, const char *order, const char *reversed, const char *insert) {
  char sql[400];
  for (int i = 0; i < 2; i++) {
    snprintf(sql, sizeof sql,
             "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = replace(sql, '%s', '%s') WHERE name = '%s'",
             i ? reversed : order, i ? order : reversed, table);
    alter(path, sql);
    if (i == 0) alter(path, insert);
  }
}

static const char *made_file(const char *name, const char *rows) {
  const char *path = in_folder(name);
  alter(path, kvs_trace_schema());
  alter(path, shape);
  alter(path, rows);
  return path;
}

/* A WHERE clause is no promise: step 2 comes when steps 1000000 to 1000063 are asked for. */
static void a_step_out_of_its_place(void **state) {
  (void)state;
  const char *path =
      made_file("steps.kvt", "INSERT INTO step (run, step, token) VALUES (1, 999999, 0), (1, 1000000, 0), "
                             "(1, 1000001, 0)");
  misplace(path, "step", "PRIMARY KEY (run, step)", "PRIMARY KEY (run, step DESC)",
           "INSERT INTO step (run, step, token) VALUES (1, 2, 0)");
  sqlite3 *db;
  struct look *look;
  ok(kvs_trace_read(path, &db, &error));
  assert_int_equal(number(db, "SELECT count(*) FROM main.step WHERE run = 1 AND step BETWEEN 1000000 AND 1000063"), 3);
  ok(look_open(db, &look, &error));
  assert_int_equal(look_step(look, 1, 1000001)->step, 1000001);
  assert_null(look_step(look, 1, 1000002));
  assert_int_equal(look_step(look, 1, 999999)->step, 999999);
  look_close(look);
}

/* The same of the rows whose texts the fast view of `attention` looks up, 512 at a time. */
static void a_row_out_of_its_place(void **state) {
  (void)state;
  const char *path = made_file("rows.kvt", "INSERT INTO step (run, step, token) VALUES (1, 0, 0); "
                                           "INSERT INTO kv_row (run, layer, row, step) VALUES (1, 0, 1048570, 0); "
                                           "INSERT INTO head_step (run, step, layer, head, weights) VALUES "
                                           "(1, 0, 0, 0, zeroblob(4 * 1048571))");
  misplace(path, "kv_row", "PRIMARY KEY (run, layer, row, step)", "PRIMARY KEY (run, layer, row DESC, step)",
           "PRAGMA ignore_check_constraints = 1; INSERT INTO kv_row (run, layer, row, step) VALUES (1, 0, "
           "-4000000000000, 0)");
  sqlite3 *db;
  ok(kvs_trace_read(path, &db, &error));
  assert_int_equal(
      number(db, "SELECT count(*) FROM main.kv_row WHERE run = 1 AND layer = 0 AND row BETWEEN 1048064 AND 1048575"),
      2);
  assert_text(db, "SELECT group_concat(row || row_token_text) FROM attention WHERE run = 1 AND row_token_text = 'a'",
              "1048570a");
  sqlite3_close(db);
}

/* A view in a table's place may have no end; one that has an end would take what is written elsewhere. */
static void a_view_is_no_table_to_write_to(void **state) {
  (void)state;
  static const char *const tables[] = {"token", "kv_row", "number", "event"};
  for (int i = 0; i < 4; i++) {
    char sql[400];
    const char *path = in_folder("view.kvt");
    make_trace(path, 1, NULL);
    snprintf(sql, sizeof sql,
             "PRAGMA legacy_alter_table = 1; ALTER TABLE %s RENAME TO old; CREATE VIEW %s AS WITH RECURSIVE n (i) AS "
             "(SELECT 0 UNION ALL SELECT i + 1 FROM n) SELECT old.* FROM old, n",
             tables[i], tables[i]);
    alter(path, sql);
    kvs_trace_source source = made_source(&small_config);
    ok(kvs_trace_create(path, KVS_TRACE_APPEND, &trace, &error));
    assert_status(begin(&source), KVS_ERR_INPUT, __LINE__);
    assert_says(tables[i]);
    assert_says("plain rows");
    ok(kvs_trace_close(trace, &error));
    unlink(path);
  }
}

static void a_table_with_more_columns_is_no_trace_to_append_to(void **state) {
  (void)state;
  const char *path = in_folder("more.kvt");
  make_trace(path, 1, NULL);
  alter(path, "ALTER TABLE run ADD COLUMN more");
  kvs_trace_source source = made_source(&small_config);
  ok(kvs_trace_create(path, KVS_TRACE_APPEND, &trace, &error));
  assert_status(begin(&source), KVS_ERR_INPUT, __LINE__);
  assert_says("not those of schema.sql");
  ok(kvs_trace_close(trace, &error));
  assert_one_file(path);
  unlink(path);
}

/* Counting on from the least of all numbers would never end; from none, the views would have nothing to count by. */
static void numbers_are_counted_from_zero(void **state) {
  (void)state;
  static const char *const spoilt[] = {
      "UPDATE number SET n = -9223372036854775808 WHERE n = 0; DELETE FROM number WHERE n > 0", "DELETE FROM number"};
  for (int i = 0; i < 2; i++) {
    const char *path = in_folder("numbers.kvt");
    make_trace(path, 1, NULL);
    alter(path, spoilt[i]);
    make_trace(path, 1, NULL);
    sqlite3 *db;
    ok(kvs_trace_read(path, &db, &error));
    assert_true(number(db, "SELECT max(n) FROM number") >= small_config.n_ctx);
    assert_true(number(db, "SELECT min(n) FROM number WHERE n >= 0") == 0);
    sqlite3_close(db);
    unlink(path);
  }
}

/* The number of events goes on where it ends; there must be one to go on with. */
static void after_the_last_number_nothing_follows(void **state) {
  (void)state;
  static const struct {
    const char *sql, *words;
  } ends[] = {{"UPDATE event SET seq = 9223372036854775807 WHERE run = 1 AND seq = (SELECT max(seq) FROM event)",
               "its last event number 9223372036854775807"},
              {"UPDATE step SET step = 2147483647 WHERE run = 1", "the last step of run 1 is number 2147483647"}};
  kvs_model *model;
  kvs_tokenizer *tokenizer;
  ok(kvs_model_open("reverse", &model, &error));
  ok(kvs_tokenizer_open("reverse", &tokenizer, &error));
  for (int i = 0; i < 2; i++) {
    const char *path = in_folder("end.kvt");
    ok(kvs_trace_create(path, KVS_TRACE_NEW, &trace, &error));
    ok(kvs_trace_begin_run(trace, model, tokenizer, NULL, NULL, NULL, &error));
    kvs_observer observer = kvs_trace_observer(trace);
    ok(feed(&observer, kvs_model_config(model), 0, &error));
    ok(kvs_trace_close(trace, &error));
    alter(path, ends[i].sql);
    ok(kvs_trace_create(path, KVS_TRACE_APPEND, &trace, &error));
    assert_status(kvs_trace_resume_run(trace, model, tokenizer, 1, NULL, &error), KVS_ERR_INPUT, __LINE__);
    assert_says(ends[i].words);
    ok(kvs_trace_close(trace, &error));
    unlink(path);
  }
  kvs_tokenizer_free(tokenizer);
  kvs_model_free(model);
}

/* Who asks for each head of each step comes to an end. */
static void so_many_heads_are_no_model(void **state) {
  (void)state;
  const char *path = made_file("heads.kvt", "UPDATE run SET n_layer = 3, n_head = 10000, n_embd = 20000");
  sqlite3 *db;
  struct look *look;
  ok(kvs_trace_read(path, &db, &error));
  ok(look_open(db, &look, &error));
  assert_int_equal(look_run(look, 1)->n_head, LOOK_NONE);
  assert_int_equal(look_run(look, 1)->n_layer, LOOK_NONE);
  look_close(look);
}

static void a_wrong_argument_is_told_by_its_function(void **state) {
  (void)state;
  static const char *const names[] = {
      "f32_count", "f32_sum", "f32_max", "f32_argmax", "f32_norm", "f32_entropy", "f32_softmax_entropy"};
  sqlite3 *db;
  ok(kvs_trace_read(made_file("functions.kvt", ""), &db, &error));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char sql[64], words[96], *message = NULL;
    snprintf(sql, sizeof sql, "SELECT %s('x')", names[i]);
    snprintf(words, sizeof words, "%s() needs a BLOB of float32 numbers, not a text", names[i]);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, &message), SQLITE_ERROR);
    assert_string_equal(message, words);
    sqlite3_free(message);
  }
  sqlite3_close(db);
}

enum { PAGE = 4096 };

/* Puts between the leaf of a table and its root four floors of pages on which all branches lead to the same page below. In a tree of keys
 * each branch has a key of its own, here one without a value, which is less than all others.
 * https://www.sqlite.org/fileformat.html#b_tree_pages */
static void branch_out(const char *path, int root) {
  enum { LEAF_OF_KEYS = 10, LEAF_OF_ROWS = 13, CELLS = 400 };
  unsigned char page[PAGE];
  FILE *file = fopen(path, "r+b");
  assert_non_null(file);
  fseek(file, (root - 1) * PAGE, SEEK_SET);
  assert_int_equal(fread(page, 1, PAGE, file), PAGE);
  bool keys = page[0] == LEAF_OF_KEYS;
  assert_true(keys || page[0] == LEAF_OF_ROWS);
  fseek(file, 0, SEEK_END);
  int below = (int)(ftell(file) / PAGE) + 1, size = keys ? 6 : 5;
  for (int floor = 0; floor <= 4; floor++) {
    if (floor == 4) fseek(file, (root - 1) * PAGE, SEEK_SET);
    if (floor > 0) {
      memset(page, 0, sizeof page);
      int at = PAGE - size * CELLS;
      page[0] = keys ? 2 : 5, page[3] = CELLS >> 8, page[4] = CELLS & 255;
      page[5] = (unsigned char)(at >> 8), page[6] = (unsigned char)at, page[11] = (unsigned char)below;
      for (int i = 0; i < CELLS; i++, at += size) {
        page[12 + 2 * i] = (unsigned char)(at >> 8), page[13 + 2 * i] = (unsigned char)at;
        page[at + 3] = (unsigned char)below;
        memset(page + at + 4, 1, (size_t)size - 4); /* row 1, or the one byte that says "nothing follows" */
      }
      below++;
    }
    assert_int_equal(fwrite(page, 1, PAGE, file), PAGE);
  }
  unsigned char pages[4] = {0, 0, 0, (unsigned char)(below - 1)};
  fseek(file, 28, SEEK_SET);
  assert_int_equal(fwrite(pages, 1, 4, file), 4);
  fclose(file);
}

/* 400⁴ rows in a file of some 200 kB. */
static void endless_rows_come_to_an_end(void **state) {
  (void)state;
  const char *path = in_folder("endless.kvt");
  sqlite3 *db;
  make_trace(path, 1, NULL);
  ok(kvs_trace_read(path, &db, &error));
  int root = (int)number(db, "SELECT rootpage FROM sqlite_schema WHERE name = 'run'");
  sqlite3_close(db);
  branch_out(path, root);
  ok(kvs_trace_read(path, &db, &error));
  struct query_budget budget;
  long long count;
  query_limit(db, &budget);
  assert_status(query_number(db, "SELECT count(engine) FROM run", NULL, 0, 0, &count, &error), KVS_ERR_INPUT, __LINE__);
  assert_says("more rows than a file of its size can have");
  query_limit(db, NULL);
  assert_true(number(db, "SELECT count(*) FROM (SELECT run FROM run LIMIT 1000)") == 1000);
  sqlite3_close(db);
  kvs_trace_source source = made_source(&small_config);
  ok(kvs_trace_create(path, KVS_TRACE_APPEND, &trace, &error));
  assert_status(begin(&source), KVS_ERR_INPUT, __LINE__);
  assert_says("runs are not in order");
  ok(kvs_trace_close(trace, &error));
}

/* What SQLite counts in one instruction, by a table's own pages or by those of its key's index, and then finds one by one. The program
 * `timeout` ends what would go on for days. */
static void endless_rows_are_counted_in_bounded_time(void **state) {
  (void)state;
  static const char *const trees[] = {"event", "sqlite_autoindex_head_step_1"}, *const tables[] = {"event",
                                                                                                   "head_step"};
  for (int i = 0; i < 2; i++) {
    const char *path = in_folder("count.kvt");
    sqlite3 *db;
    char sql[100], said[2000];
    long long rows;
    make_trace(path, 1, NULL);
    ok(kvs_trace_read(path, &db, &error));
    ok(query_rows(db, tables[i], &rows, &error));
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s WHERE run = 1", tables[i]);
    assert_true(rows > 0 && rows == (long long)number(db, sql));
    snprintf(sql, sizeof sql, "SELECT rootpage FROM sqlite_schema WHERE name = '%s'", trees[i]);
    int root = (int)number(db, sql);
    sqlite3_close(db);
    branch_out(path, root);
    assert_int_equal(shell_says(said, sizeof said, "timeout 120 %s info %s", kvstep_binary(), path), 0);
    snprintf(sql, sizeof sql, "%-11s %lld rows", tables[i], rows);
    if (!strstr(said, sql)) fail_msg("%s: not in: %s", sql, said);
    unlink(path);
  }
}

/* The list of tables itself; the rows of indexes that SQLite makes by itself may come more than once. */
static void an_endless_list_of_tables_is_told(void **state) {
  (void)state;
  unsigned char page[PAGE];
  const char *path = in_folder("list.kvt");
  make_trace(path, 1, NULL);
  alter(path, "PRAGMA writable_schema = 1; INSERT INTO sqlite_schema SELECT type, name, tbl_name, rootpage, sql FROM "
              "sqlite_schema CROSS JOIN number WHERE name = 'sqlite_autoindex_head_step_1' AND n BETWEEN 1 AND 300");
  sqlite3 *db;
  ok(kvs_trace_read(path, &db, &error));
  sqlite3_close(db);
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  assert_int_equal(fread(page, 1, PAGE, file), PAGE);
  fclose(file);
  assert_int_equal(page[100], 5); /* the list's root has other pages below it; the last one has such rows alone */
  branch_out(path, page[110] << 8 | page[111]);
  assert_status(kvs_trace_read(path, &db, &error), KVS_ERR_INPUT, __LINE__);
  assert_says("its list of tables has no end");
  kvs_trace_source source = made_source(&small_config);
  ok(kvs_trace_create(path, KVS_TRACE_APPEND, &trace, &error));
  assert_status(begin(&source), KVS_ERR_INPUT, __LINE__);
  assert_says("its list of tables has no end");
  ok(kvs_trace_close(trace, &error));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_step_out_of_its_place),
      cmocka_unit_test(a_row_out_of_its_place),
      cmocka_unit_test(a_view_is_no_table_to_write_to),
      cmocka_unit_test(a_table_with_more_columns_is_no_trace_to_append_to),
      cmocka_unit_test(numbers_are_counted_from_zero),
      cmocka_unit_test(after_the_last_number_nothing_follows),
      cmocka_unit_test(so_many_heads_are_no_model),
      cmocka_unit_test(endless_rows_come_to_an_end),
      cmocka_unit_test(endless_rows_are_counted_in_bounded_time),
      cmocka_unit_test(an_endless_list_of_tables_is_told),
      cmocka_unit_test(a_wrong_argument_is_told_by_its_function),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
