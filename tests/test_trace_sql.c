/* test_trace_sql.c: the SQL of a trace without the writer: float32 decoding, another engine's INSERTs, stock tools. */
#include "trace_maker.h"

#include <fnmatch.h>

#define SQLITE_CORE /* SQLite is called directly here, not as from a loadable extension */
#include "trace/sql/row_text.h"

static sqlite3 *open_new(const char *path) {
  sqlite3 *db;
  assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
  execute(db, kvs_trace_schema());
  return db;
}

/* ---- float32 --------------------------------------------------------------------------------------------------- */

static uint32_t pattern(uint32_t i) {
  static const uint32_t special[] = {0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x807FFFFF, 0x00800000,
                                     0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0x7FC00000, 0xFFC00000,
                                     0xFFFFFFFF, 0x3F800000, 0x3F7FFFFF, 0x00000100, 0x00010000, 0x01000000};
  if (i < 20) return special[i];
  if (i < 20 + 1024) return ((i - 20) >> 1) << 23 | ((i & 1) ? 0x7FFFFF : 0); /* both ends of every exponent and sign */
  uint64_t x = (uint64_t)i * 0x9E3779B97F4A7C15u;
  return (uint32_t)((x ^ (x >> 29)) * 0xBF58476D1CE4E5B9u >> 32);
}

/* Each bit pattern through SQL, against the machine's own conversion, bit for bit. */
static void check_patterns(sqlite3 *db, const char *view, uint32_t count) {
  char sql[160];
  snprintf(sql, sizeof sql, "SELECT step, row, weight FROM %s.attention", view);
  sqlite3_stmt *select;
  assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &select, NULL), SQLITE_OK);
  uint32_t seen = 0;
  while (sqlite3_step(select) == SQLITE_ROW) {
    uint32_t bits = pattern((uint32_t)sqlite3_column_int(select, 0) * 1000 + (uint32_t)sqlite3_column_int(select, 1));
    float value;
    memcpy(&value, &bits, sizeof value);
    if (isnan(value)) {
      assert_int_equal(sqlite3_column_type(select, 2), SQLITE_NULL);
    } else {
      double wanted = value, got = sqlite3_column_double(select, 2);
      if (sqlite3_column_type(select, 2) != SQLITE_FLOAT || memcmp(&wanted, &got, sizeof got))
        fail_msg("%s: %08X is %.17g, not %.17g", view, bits, got, wanted);
    }
    seen++;
  }
  sqlite3_finalize(select);
  assert_int_equal(seen, count);
}

static void every_float_is_decoded_exactly(void **state) {
  (void)state;
  enum { STEPS = 300 };
  sqlite3 *db = open_new(in_folder("floats.kvt"));
  execute(db, "BEGIN; INSERT INTO run VALUES (1,0,0,0,0,0,0,0, 1,1,1,1,1000,1, 0,0,0,0,0,0,0)");
  sqlite3_stmt *insert;
  sqlite3_prepare_v2(db, "INSERT INTO head_step VALUES (1, ?1, 0, 0, NULL, NULL, ?2, NULL)", -1, &insert, NULL);
  for (uint32_t step = 0; step < STEPS; step++) {
    uint32_t bits[1000];
    for (uint32_t i = 0; i < 1000; i++) bits[i] = pattern(step * 1000 + i);
    sqlite3_bind_int(insert, 1, (int)step);
    sqlite3_bind_blob(insert, 2, bits, sizeof bits, SQLITE_STATIC);
    assert_int_equal(sqlite3_step(insert), SQLITE_DONE);
    sqlite3_reset(insert);
  }
  sqlite3_finalize(insert);
  execute(db, "COMMIT");
  sqlite3_close(db);
  ok(kvs_trace_read(in_folder("floats.kvt"), &db, &error));
  check_patterns(db, "main", STEPS * 1000);
  check_patterns(db, "temp", STEPS * 1000);
  sqlite3_close(db);
}

static void the_functions_do_as_documented(void **state) {
  (void)state;
  make_trace(in_folder("f.kvt"), 3, NULL);
  sqlite3 *db;
  ok(kvs_trace_read(in_folder("f.kvt"), &db, &error));
  static const char *const cases[][2] = {
      {"SELECT group_concat(i || ':' || value || ':' || ifnull(second, '-')) FROM floats(X'0000803F0000C03F', "
       "X'00000040')",
       "0:1.0:2.0,1:1.5:-"},
      {"SELECT group_concat(value) FROM floats(X'0000803F0000C03F00000040') WHERE i = 1", "1.5"},
      {"SELECT count(*) FROM floats(NULL)", "0"},
      {"SELECT count(*) FROM floats(X'') WHERE i = -1", "0"},
      {"SELECT f32(X'0000803F0000C03F', 1)", "1.5"},
      {"SELECT f32(X'0000803F0000C03F', 2) IS NULL AND f32(X'0000803F', -1) IS NULL AND f32(X'0000C07F', 0) IS NULL",
       "1"},
      {"SELECT f32_count(X'0000803F0000C03F') || f32_sum(X'0000803F0000C03F') || "
       "f32_argmax(X'0000803F0000C03F0000C03F')",
       "22.51"},
      {"SELECT f32_of_bits(1069547520) || f32_of_bits(-1077936128) || typeof(f32_of_bits(0)) || "
       "ifnull(f32_of_bits(2143289344), '-')",
       "1.5-1.5real-"}, /* 3FC00000, BFC00000, 7FC00000 */
      {"SELECT f32_of_bits(0.25) || ifnull(f32_of_bits(NULL), '-')", "0.25-"},
      {"SELECT f32_norm(X'0000404000008040')", "5.0"},
      {"SELECT dot(X'0000803F0000C03F', X'0000004000000040')", "5.0"},
      {"SELECT abs(f32_softmax_entropy(X'000000000000000000000000') - 1.0986122886681098) < 1e-15", "1"},
      {"SELECT abs(f32_entropy(X'0000003F0000003F') - 0.6931471805599453) < 1e-15", "1"},
      {"SELECT kvstep_views('main')", "main"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) assert_text(db, cases[i][0], cases[i][1]);
  static const char *const wrong[] = {"SELECT f32('text', 0)", "SELECT * FROM floats", "SELECT * FROM floats(3)",
                                      "SELECT dot(X'0000803F', X'')", "SELECT kvstep_views('nowhere')"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_int_not_equal(sqlite3_exec(db, wrong[i], NULL, NULL, NULL), SQLITE_OK);
  char sql[160];
  make_trace(in_folder("it's.kvt"), 5, NULL);
  snprintf(sql, sizeof sql, "ATTACH '%s/it''s.kvt' AS \"a \"\"b\"; SELECT kvstep_views('a \"b')", folder);
  execute(db, sql);
  assert_int_equal(number(db, "SELECT count(DISTINCT step) FROM attention"), 5);
  assert_int_equal(number(db, "SELECT count(DISTINCT step) FROM main.attention"), 3);
  const char *texts =
      "SELECT group_concat(row_token_text, '') FROM attention WHERE step = %d AND layer = 1 AND head = 0";
  assert_text(db, (snprintf(sql, sizeof sql, texts, 4), sql), "abcde");
  execute(db, "SELECT kvstep_views('main'); DETACH \"a \"\"b\"");
  assert_text(db, (snprintf(sql, sizeof sql, texts, 2), sql), "abc");
  sqlite3_close(db);
}

/* ---- by key ---------------------------------------------------------------------------------------------------- */

/* Every query of the documentation that gives the keys, and the table that has them. */
static const struct keyed {
  const char *query, *search; /* a line of its plan begins so */
} keyed[] = {
    {"%s.attention WHERE run = 1 AND step = 4 AND layer = 1 AND head = 1",
     "SEARCH h USING INDEX sqlite_autoindex_head_step_1 (run=? AND step=? AND layer=? AND head=?)"},
    {"main.attention WHERE run = 1 AND step = 4 AND layer = 1 AND head = 1",
     "SEARCH rk USING COVERING INDEX sqlite_autoindex_kv_row_1 (run=? AND layer=? AND row=? AND step<?)"},
    {"main.attention WHERE run = 1 AND step = 4 AND layer = 1 AND head = 1",
     "SEARCH rl USING COVERING INDEX step_by_length (run=? AND cache_length_before=?)"},
    {"main.attention WHERE run = 1 AND step = 4 AND layer = 1 AND head = 1",
     "SEARCH rs USING PRIMARY KEY (run=? AND step=?)"},
    {"%s.query_vector WHERE run = 1 AND step = 4 AND layer = 1 AND head = 1",
     "SEARCH h USING INDEX sqlite_autoindex_head_step_1 (run=? AND step=? AND layer=? AND head=?)"},
    {"%s.head_summary WHERE run = 1 AND step = 4", "SEARCH *head_stat USING PRIMARY KEY (run=? AND step=?)"},
    {"%s.head_summary WHERE run = 1 AND step = 4",
     "SEARCH h USING INDEX sqlite_autoindex_head_step_1 (run=? AND step=?)"},
    {"%s.step_summary WHERE run = 1 AND step = 4", "SEARCH s USING PRIMARY KEY (run=? AND step=?)"},
    {"%s.rule WHERE run = 1 AND step = 4", "SEARCH *step USING PRIMARY KEY (run=? AND step=?)"},
    {"%s.logit WHERE run = 1 AND step = 4", "SEARCH s USING INDEX sqlite_autoindex_step_vector_1 (run=? AND step=?)"},
    {"%s.cache WHERE run = 1 AND layer = 1 AND row = 3",
     "SEARCH c USING INDEX sqlite_autoindex_kv_row_1 (run=? AND layer=? AND row=?)"},
    {"main.kv_row WHERE run = 1 AND layer = 1 AND row = 3",
     "SEARCH *kv_row USING INDEX sqlite_autoindex_kv_row_1 (run=? AND layer=? AND row=?)"},
    {"main.event WHERE run = 1 AND step = 4 ORDER BY seq", "SEARCH *event USING PRIMARY KEY (run=? AND step=?)"},
    {"main.top_token WHERE run = 1 AND step = 4 ORDER BY rank",
     "SEARCH *top_token USING PRIMARY KEY (run=? AND step=?)"},
    {"main.layer_step WHERE run = 1 AND step = 4 AND layer = 1",
     "SEARCH *layer_step USING INDEX sqlite_autoindex_layer_step_1 (run=? AND step=? AND layer=?)"},
    {"main.step_vector WHERE run = 1 AND step = 4",
     "SEARCH *step_vector USING INDEX sqlite_autoindex_step_vector_1 (run=? AND step=?)"},
};

/* The first line of the plan that reads a whole table of a run's data, or sorts; or the search that is missing. */
static const char *not_by_key(sqlite3 *db, const struct keyed *k, const char *way) {
  static char found[600];
  char query[256], sql[300];
  snprintf(query, sizeof query, k->query, way);
  snprintf(sql, sizeof sql, "EXPLAIN QUERY PLAN SELECT * FROM %s", query);
  sqlite3_stmt *plan;
  if (sqlite3_prepare_v2(db, sql, -1, &plan, NULL) != SQLITE_OK) fail_msg("%s: %s", sql, sqlite3_errmsg(db));
  bool searched = false, bad = false;
  while (!bad && sqlite3_step(plan) == SQLITE_ROW) {
    const char *line = (const char *)sqlite3_column_text(plan, 3);
    searched |= fnmatch(k->search, line, 0) == 0;
    /* What may be read whole: byte_list's one row, what a subquery hands up, a vector's numbers. */
    static const char *const harmless[] = {
        "SCAN l", "SCAN [mo]", "SCAN [qvrz]", "SCAN (subquery-*)", "SCAN *.head_summary", "SCAN f VIRTUAL TABLE*"};
    bad = strncmp(line, "SCAN", 4) == 0 || strstr(line, "AUTOMATIC") || strstr(line, "TEMP B-TREE");
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) bad &= fnmatch(harmless[i], line, 0) != 0;
    if (bad) snprintf(found, sizeof found, "%s: %s", query, line);
  }
  sqlite3_finalize(plan);
  if (!bad && !searched) snprintf(found, sizeof found, "%s: no %s", query, k->search);
  return bad || !searched ? found : NULL;
}

/* The questions that the fast `attention` puts to the tables. */
static void assert_plan(sqlite3 *db, const char *question, const char *search) {
  char *sql = sqlite3_mprintf(question, "main", "main", "main"),
       *explain = sqlite3_mprintf("EXPLAIN QUERY PLAN %s", sql);
  sqlite3_stmt *plan;
  if (sqlite3_prepare_v2(db, explain, -1, &plan, NULL) != SQLITE_OK) fail_msg("%s: %s", sql, sqlite3_errmsg(db));
  assert_int_equal(sqlite3_step(plan), SQLITE_ROW);
  const char *line = (const char *)sqlite3_column_text(plan, 3);
  if (fnmatch(search, line, 0) != 0) fail_msg("%s\n%s", sql, line);
  while (sqlite3_step(plan) == SQLITE_ROW)
    assert_int_equal(strncmp((const char *)sqlite3_column_text(plan, 3), "SEARCH", 6), 0);
  sqlite3_finalize(plan);
  sqlite3_free(explain);
  sqlite3_free(sql);
}

static void documented_queries_search_by_key(void **state) {
  (void)state;
  make_trace(in_folder("keys.kvt"), 5, NULL);
  sqlite3 *db;
  ok(kvs_trace_read(in_folder("keys.kvt"), &db, &error));
  for (size_t i = 0; i < sizeof keyed / sizeof *keyed; i++)
    for (int w = 0; w < 2; w++) {
      const char *bad = not_by_key(db, &keyed[i], w ? "temp" : "main");
      if (bad) fail_msg("%s", bad);
    }
  assert_plan(db, kvs_row_text_logged,
              "SEARCH k USING *INDEX sqlite_autoindex_kv_row_1 (run=? AND layer=? AND row>? AND row<?)");
  assert_plan(db, kvs_row_text_by_length,
              "SEARCH s USING INDEX step_by_length (run=? AND cache_length_before>? AND cache_length_before<?)");
  sqlite3_close(db);
}

/* schema.sql without one table's PRIMARY KEY; the caller frees it. */
static char *schema_without_key(const char *table) {
  char *schema = strdup(kvs_trace_schema()), create[64];
  assert_non_null(schema);
  snprintf(create, sizeof create, "CREATE TABLE %s (", table);
  char *at = strstr(schema, create), *end = at ? strstr(at, ";\n\n") : NULL,
       *key = at ? strstr(at, "PRIMARY KEY (") : NULL;
  assert_true(key && end && key < end);
  for (char *c = key; *c != ')'; c++) *c = ' ';
  memcpy(key, "CHECK (1", 8);
  char *rowid = strstr(at, " WITHOUT ROWID");
  if (rowid && rowid < end) memset(rowid, ' ', strlen(" WITHOUT ROWID"));
  return schema;
}

/* The test above says so where a key is missing. */
static void a_missing_key_is_noticed(void **state) {
  (void)state;
  static const char *const tables[] = {"head_step", "kv_row",     "step",      "event",
                                       "top_token", "layer_step", "head_stat", "step_vector"};
  for (size_t t = 0; t <= sizeof tables / sizeof *tables; t++) {
    sqlite3 *db;
    const bool index = t == sizeof tables / sizeof *tables;
    char *schema = index ? NULL : schema_without_key(tables[t]);
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    execute(db, index ? kvs_trace_schema() : schema);
    if (index) execute(db, "DROP INDEX step_by_length");
    int noticed = 0;
    for (size_t i = 0; i < sizeof keyed / sizeof *keyed; i++) noticed += not_by_key(db, &keyed[i], "main") != NULL;
    if (!noticed) fail_msg("%s", index ? "step_by_length" : tables[t]);
    free(schema);
    sqlite3_close(db);
  }
}

/* ---- where a row came from --------------------------------------------------------------------------------------- */

/* Rows that were written again, or are not logged, or by steps and of tokens that are not there; more than are looked up at
 * once. The view in plain SQL says the same. */
static void both_views_know_a_rows_token(void **state) {
  (void)state;
  sqlite3 *db = open_new(in_folder("rows.kvt"));
  execute(
      db,
      "BEGIN; INSERT INTO run VALUES (1,0,0,0,0,0,0,0, 1,1,1,1,2000,9, 0,0,0,0,0,0,0);"
      "INSERT INTO token SELECT n, NULL, 't' || n FROM number WHERE n < 900 AND n % 7 <> 3;"
      "INSERT INTO step SELECT 1, n, 'decode', n, 'prompt', CASE WHEN n % 5 = 2 THEN n / 2 ELSE n END, n, n + 1, "
      "NULL, NULL FROM number WHERE n < 1000 AND n % 11 <> 4;"
      "INSERT INTO kv_row SELECT 1, 0, n, n, NULL, NULL FROM number WHERE n < 1000 AND n % 3 = 0;"
      "INSERT INTO kv_row SELECT 1, 0, n % 50, n + 1, NULL, NULL FROM number WHERE n BETWEEN 50 AND 900;"
      "INSERT INTO head_step SELECT 1, n, 0, 0, NULL, NULL, zeroblob(4 * 1000), NULL FROM number WHERE n IN "
      "(0, 1, 40, 513, 999);"
      "INSERT INTO head_step SELECT 1, n, 1, 0, NULL, zeroblob(4 * n), NULL, NULL FROM number WHERE n IN (600, 700);"
      "COMMIT");
  sqlite3_close(db);
  ok(kvs_trace_read(in_folder("rows.kvt"), &db, &error));
  for (int w = 0; w < 2; w++) {
    const char *a = w ? "temp" : "main", *b = w ? "main" : "temp";
    char sql[200];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM (SELECT * FROM %s.attention EXCEPT SELECT * FROM %s.attention)", a,
             b);
    assert_int_equal(number(db, sql), 0);
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s.attention", a);
    assert_int_equal(number(db, sql), 6300);
  }
  assert_text(db, "SELECT row_token_text FROM attention WHERE step = 999 AND row = 7 AND layer = 0", "t858");
  sqlite3_close(db);
}

/* ---- another engine -------------------------------------------------------------------------------------------- */

/* The example of docs/trace-schema.md, as it stands there. */
static char *documented_example(void) {
  FILE *file = fopen("docs/trace-schema.md", "r");
  if (!file) return NULL;
  static char page[65536];
  page[fread(page, 1, sizeof page - 1, file)] = '\0';
  fclose(file);
  char *begin = strstr(page, "```sql\n"), *end = begin ? strstr(begin + 7, "```") : NULL;
  assert_non_null(end);
  *end = '\0';
  return begin + 7;
}

static void the_documented_inserts_make_a_trace(void **state) {
  (void)state;
  char *example = documented_example();
  if (!example) {
    print_message("skipped: docs/trace-schema.md is not here; run from the project's folder\n");
    skip();
  }
  sqlite3 *db = open_new(in_folder("foreign.kvt"));
  execute(db, "PRAGMA foreign_keys = ON");
  execute(db, example);
  sqlite3_close(db);
  ok(kvs_trace_read(in_folder("foreign.kvt"), &db, &error));
  static const char *const ways[] = {"main", "temp"};
  char sql[512];
#define SQL(...) (snprintf(sql, sizeof sql, __VA_ARGS__), sql)
  for (int w = 0; w < 2; w++) {
    assert_text(db, SQL("SELECT group_concat(k) FROM (SELECT k FROM %s.cache ORDER BY row, dim)", ways[w]),
                "1.0,2.0,-0.5,0.25");
    assert_text(db,
                SQL("SELECT group_concat(row_token_text || weight || (score IS NULL)) FROM %s.attention WHERE step = 1",
                    ways[w]),
                "a0.751,b0.251");
    const char *row = "max_weight || ' ' || max_row || ' ' || self_weight || ' ' || first_weight || ' ' || "
                      "ifnull(previous_weight, '-') || ' ' || weight_sum";
    assert_text(db, SQL("SELECT %s FROM %s.head_summary WHERE step = 1", row, ways[w]), "0.75 0 0.25 0.75 0.75 1.0");
    assert_text(db, SQL("SELECT %s FROM %s.head_summary WHERE step = 0", row, ways[w]), "1.0 0 1.0 1.0 - 1.0");
    assert_close(number(db, SQL("SELECT entropy FROM %s.head_summary WHERE step = 1", ways[w])), 0.56233514461880829,
                 1e-15, __LINE__);
    assert_close(number(db, SQL("SELECT entropy FROM %s.step_summary WHERE step = 1", ways[w])), log(3), 1e-14,
                 __LINE__);
    assert_true(isnan(number(db, SQL("SELECT entropy FROM %s.step_summary WHERE step = 0", ways[w]))));
    assert_text(db, SQL("SELECT top_token_text FROM %s.step_summary WHERE step = 1", ways[w]), "a");
  }
  assert_text(db, "SELECT group_concat(verdict) FROM rule", "ok,ok");
  sqlite3_close(db);
}

/* ---- stock tools ----------------------------------------------------------------------------------------------- */

/* Where the loadable extension was built: beside the tests, or in the plain build. One with sanitizers cannot be loaded
 * by a program without them. */
static const char *extension(void) { return access("build/kvstep.so", R_OK) == 0 ? "build/kvstep" : NULL; }

static void python_reads_a_trace(void **state) {
  (void)state;
  const char *python = "/usr/bin/python3";
  if (access(python, X_OK) || access("tests/trace_views.py", R_OK) || !extension() ||
      shell("%s -c 'import sqlite3'", python)) {
    print_message("skipped: needs %s with sqlite3, build/kvstep.so, and the project's folder\n", python);
    skip();
  }
  make_trace(in_folder("py.kvt"), 5, NULL);
  int status = shell("LD_PRELOAD= %s tests/trace_views.py %s %s", python, in_folder("py.kvt"), extension());
  if (status == 77) {
    print_message("skipped in part: this Python loads no extensions\n");
    skip();
  }
  assert_int_equal(status, 0);
}

static void the_stock_shell_reads_a_trace(void **state) {
  (void)state;
  if (shell("command -v sqlite3 >/dev/null")) {
    print_message("skipped: there is no sqlite3 shell\n");
    skip();
  }
  const char *path = in_folder("shell.kvt");
  make_trace(path, 12, NULL);
  make_trace(path, 12, NULL);
  chmod(path, 0444);
  assert_int_equal(shell("test \"$(sqlite3 -readonly %s 'SELECT count(*) FROM attention')\" = 624", path), 0);
  assert_int_equal(shell("sqlite3 %s '.schema attention' | grep -q 'which cache row is attended to'", path), 0);
  if (extension())
    assert_int_equal(shell("test \"$(sqlite3 -readonly %s '.load %s' \"SELECT count(*), (SELECT count(*) FROM "
                           "sqlite_temp_schema) > 5 FROM attention\")\" = '624|1'",
                           path, extension()),
                     0);
  else
    print_message("skipped in part: build/kvstep.so is not built\n");
  if (access("examples/queries", R_OK) == 0)
    assert_int_equal(
        shell("for q in examples/queries/*.sql; do test -n \"$(sqlite3 -bail %s < $q)\" || exit 1; done", path), 0);
}

/* ---- size and speed -------------------------------------------------------------------------------------------- */

static const unsigned char *words(const void *context, int token, size_t *length) {
  (void)context;
  static char word[16];
  *length = (size_t)snprintf(word, sizeof word, " %d", token);
  return (const unsigned char *)word;
}

/* The shape of GPT-2 124M: the file may be little larger than its floats. The vocabulary, once per file, is not counted. */
static void a_large_trace_is_little_more_than_its_floats(void **state) {
  (void)state;
  enum { STEPS = 64 };
  kvs_config c = {.n_layer = 12, .n_head = 12, .n_embd = 768, .head_dim = 64, .n_ctx = 1024, .n_vocab = 50257};
  kvs_trace_source source = {.config = &c, .model = "wide", .sha256 = "00", .tokens = c.n_vocab, .bytes = words};
  kvs_trace *trace;
  const char *path = in_folder("large.kvt");
  ok(kvs_trace_create(path, KVS_TRACE_NEW, &trace, &error));
  ok(kvs_trace_begin_run_from(trace, &source, NULL, NULL, NULL, &error));
  kvs_observer observer = kvs_trace_observer(trace);
  ok(kvs_trace_end_run(trace, &error));
  ok(kvs_trace_close(trace, &error));
  struct stat before, after;
  stat(path, &before);
  ok(kvs_trace_create(path, KVS_TRACE_APPEND, &trace, &error));
  ok(kvs_trace_begin_run_from(trace, &source, NULL, NULL, NULL, &error));
  observer = kvs_trace_observer(trace);
  for (int i = 0; i < STEPS; i++) ok(feed(&observer, &c, i, &error));
  ok(kvs_trace_close(trace, &error));
  stat(path, &after);
  double floats = 0;
  for (int i = 0; i < STEPS; i++) floats += 12.0 * (2 * 768 + 2 * 768 + 2 * 12 * (i + 1)) + 3 * 768 + 50257;
  double ratio = (double)(after.st_size - before.st_size) / (4 * floats);
  print_message("%d steps: %.1f MB, %.3f of their floats; the vocabulary %.1f MB\n", STEPS,
                (double)(after.st_size - before.st_size) / 1e6, ratio, (double)before.st_size / 1e6);
  assert_true(ratio < 1.07);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_float_is_decoded_exactly),
      cmocka_unit_test(the_functions_do_as_documented),
      cmocka_unit_test(both_views_know_a_rows_token),
      cmocka_unit_test(documented_queries_search_by_key),
      cmocka_unit_test(a_missing_key_is_noticed),
      cmocka_unit_test(the_documented_inserts_make_a_trace),
      cmocka_unit_test(python_reads_a_trace),
      cmocka_unit_test(the_stock_shell_reads_a_trace),
      cmocka_unit_test(a_large_trace_is_little_more_than_its_floats),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
