/* test_check_hostile.c: files that are no traces, or are meant to do harm: `kvstep check` says a clear word, in bounded time and memory, and runs
 * nothing that is in them. KVSTEP names the binary (./kvstep). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/database.h"
#include "tests/support/scratch.h"

static char trace[128], output[20000];

/* The exit code of kvstep with 2 GB of memory and 20 seconds of time; what it said is in `output`. */
static int run(const char *arguments) {
  return shell_says(output, sizeof output, "%s ulimit -t 20; timeout 40 '%s' %s 2>&1 </dev/null",
                    sanitized() ? "" : "ulimit -v 2000000;", kvstep_binary(), arguments);
}

static int make(void **state) {
  if (make_folder(state)) return -1;
  strcpy(trace, in_folder("t.db"));
  return 0;
}

/* A right run of `reverse`, altered so, ends with this code and says this. */
static void expect(const char *sql, int code, const char *words, int line) {
  char arguments[300];
  snprintf(arguments, sizeof arguments, "run -m reverse -p 'abc>' -n 5 -o %s --force", trace);
  assert_int_equal(run(arguments), 0);
  alter(trace, sql);
  for (int with = 0; with < 2; with++) {
    snprintf(arguments, sizeof arguments, "check %s %s", trace, with ? "-m reverse" : "--no-model");
    int got = run(arguments);
    if (got != code || !strstr(output, words))
      fail_msg("line %d: exit %d, not %d, or no \"%s\": %s", line, got, code, words, output);
  }
}
#define EXPECT(sql, code, words) expect(sql, code, words, __LINE__)

static void test_tables(void **state) {
  (void)state;
  EXPECT("DROP TABLE step", 2, "the table `step` is missing");
  EXPECT("DROP TABLE kv_row; CREATE VIEW kv_row AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
         "SELECT 1 AS run, 0 AS layer, i AS "
         "row, i AS step, NULL AS k, NULL AS v FROM n",
         2, "the table `kv_row` is missing");
  EXPECT("DROP TABLE event; CREATE TABLE event (run, step, seq, phase, layer, cache_length AS (length(printf('%.*c', "
         "1000000000, 'x'))))",
         2, "none of plain rows");
  EXPECT("ALTER TABLE step RENAME COLUMN token TO tokens", 2, "no such column");
  EXPECT("DELETE FROM run", 2, "there are no runs");
  EXPECT("DELETE FROM step", 2, "the run has no steps");
}

/* Views, triggers and private tables are not looked at. */
static void test_schema(void **state) {
  (void)state;
  EXPECT("DROP VIEW rule; CREATE VIEW rule AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT "
         "* FROM n; "
         "CREATE TRIGGER harm AFTER INSERT ON step BEGIN DELETE FROM run; END",
         0, "CLEAN");
  EXPECT("WITH RECURSIVE n (i) AS (SELECT 5000 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) INSERT INTO number "
         "SELECT i FROM n",
         0, "CLEAN");
}

static void test_shapes(void **state) {
  (void)state;
  EXPECT("PRAGMA ignore_check_constraints = 1; UPDATE run SET n_layer = 2147483648", 2,
         "no shape that a GPT-2 can have");
  EXPECT("PRAGMA ignore_check_constraints = 1; UPDATE run SET n_embd = -1", 2, "no shape that a GPT-2 can have");
  EXPECT("PRAGMA ignore_check_constraints = 1; UPDATE run SET n_ctx = 'many'", 2, "no shape that a GPT-2 can have");
}

static void test_blobs(void **state) {
  (void)state;
  EXPECT("UPDATE kv_row SET k = zeroblob(8) WHERE step = 5", 2, "`k` has 8 bytes, not");
  EXPECT("UPDATE head_step SET q = zeroblob(4000000)", 2, "`q` has 4000000 bytes, not");
  EXPECT("UPDATE step_vector SET logits = X'0000C07F'", 2, "`logits` has 4 bytes, not");
  EXPECT("UPDATE kv_row SET k = CAST(X'0000C07F' || substr(k, 5) AS BLOB) WHERE step = 5 AND layer = 0", 1, "NaN");
}

static void test_numbers(void **state) {
  (void)state;
  EXPECT("UPDATE kv_row SET row = 1073741824 WHERE step = 7", 1, "FAULT");
  EXPECT("UPDATE step SET position = 9000000000000000000 WHERE step = 7", 1, "FAULT");
  EXPECT("UPDATE step SET token = 1000000 WHERE step = 7; UPDATE step SET logprob = 'x' WHERE step = 6", 1, "FAULT");
  EXPECT("WITH RECURSIVE n (i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < 1200000) INSERT INTO step (run, "
         "step, token) SELECT 1, i, 0 FROM n",
         2, "more than 1048576 steps");
}

/* Runs of other engines and shapes in one file: each is judged by itself. */
static void test_mixed(void **state) {
  (void)state;
  EXPECT("INSERT INTO run (run, engine, n_layer, n_head, n_embd, head_dim, n_ctx, n_vocab) VALUES (7, 'other', 1, 1, "
         "2, 2, 8, 3); "
         "INSERT INTO step (run, step, token, position) VALUES (7, 0, 1, 0), (7, 1, 2, 2)",
         1, "run 1: CLEAN");
  assert_non_null(strstr(output, "run 7: FAULT"));
  assert_non_null(strstr(output, "another shape"));
}

static void test_no_trace(void **state) {
  (void)state;
  char arguments[200];
  write_file(trace, "no database", 11);
  snprintf(arguments, sizeof arguments, "check %s", trace);
  assert_int_equal(run(arguments), 2);
  assert_non_null(strstr(output, "not an SQLite file"));
  assert_int_equal(run("check /nowhere/at/all.db"), 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_tables),  cmocka_unit_test(test_schema),
                                     cmocka_unit_test(test_shapes),  cmocka_unit_test(test_blobs),
                                     cmocka_unit_test(test_numbers), cmocka_unit_test(test_mixed),
                                     cmocka_unit_test(test_no_trace)};
  return cmocka_run_group_tests(tests, make, remove_folder);
}
