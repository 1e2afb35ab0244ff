/* test_check_command.c: `kvstep check` seen from outside: exit codes, the three formats, which weights it takes, and that its queries can be pasted.
 * KVSTEP names the binary (./kvstep). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>
#include <sqlite3.h>

#include "tests/database.h"
#include "tests/support/scratch.h"

static char trace[128], output[40000];

static int run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int run(const char *format, ...) {
  char arguments[1600];
  va_list list;
  va_start(list, format);
  vsnprintf(arguments, sizeof arguments, format, list);
  va_end(list);
  return shell_says(output, sizeof output, "'%s' %s 2>&1 </dev/null", kvstep_binary(), arguments);
}

static void says(const char *words) {
  if (!strstr(output, words)) fail_msg("no \"%s\" in: %s", words, output);
}

/* Run 1 right, run 2 off by one from the first decode step on (4), run 3 without V from step 6 on. */
static int make(void **state) {
  if (make_folder(state)) return -1;
  strcpy(trace, in_folder("t.db"));
  bool good = run("run -m reverse -p 'abc>' -n 4 -o %s", trace) == 0 &&
              run("run -m reverse -p 'abc>' -n 4 -o %s --append --fault off-by-one", trace) == 0 &&
              run("run -m reverse -p 'abc>' -n 4 -o %s --append --fault k-without-v --fault-from 6", trace) == 0;
  return good ? 0 : -1;
}

static void test_codes(void **state) {
  (void)state;
  assert_int_equal(run("check %s --run 1", trace), 0);
  says("run 1: CLEAN  (reverse, 8 steps, held against its weights)"); /* the built-in model, by its SHA-256 */
  assert_int_equal(run("check %s --run 1 --no-model", trace), 0);
  says("without weights");
  assert_int_equal(run("check %s", trace), 1);
  assert_int_equal(run("check %s --run 9", trace), 2);
  says(": there is no run 9");
  assert_int_equal(run("check %s -m reverse --no-model", trace), 2);
  assert_int_equal(run("check %s -m /nowhere", trace), 2);
  assert_int_equal(run("check %s -m austen --run 1", trace), 2);
  says("another shape");
  assert_int_equal(run("check"), 2);
}

/* What another engine says of its positions proves nothing: with layer 0's K rows and no weights it cannot be told whether they are
 * right. kvstep's own steps say what was used, and nothing was held against weights where there is nothing to hold. */
static void test_claims(void **state) {
  (void)state;
  const char *bare = in_folder("bare.db");
  assert_int_equal(shell("cp '%s' '%s'", trace, bare), 0);
  alter(bare, "DELETE FROM run WHERE run > 1; DELETE FROM head_stat; DELETE FROM head_step; DELETE FROM step_vector; "
              "DELETE FROM layer_step; DELETE FROM kv_row WHERE layer > 0; UPDATE run SET engine = 'other'");
  assert_int_equal(run("check %s --run 1 --no-model", bare), 2);
  says("CANNOT TELL");
  assert_int_equal(run("check %s --run 1", bare), 0);
  says("held against its weights");
  alter(bare, "DELETE FROM kv_row; UPDATE run SET engine = 'kvstep'");
  assert_int_equal(run("check %s --run 1", bare), 0);
  says("without weights");
}

/* D2 without weights: the same token in another place has another K row in layer 0, since another row of wpe was added. The fourth token is
 * the first again; it gets the first one's row, and nothing else tells. */
static void test_first_row_again(void **state) {
  (void)state;
  const char *again = in_folder("again.db");
  assert_int_equal(run("run -m reverse -p 'abca>' -n 2 -o %s", again), 0);
  alter(again, "DELETE FROM head_stat; DELETE FROM head_step; DELETE FROM step_vector");
  assert_int_equal(run("check %s --no-model", again), 0);
  says("log head_step (q, scores, weights, out)"); /* what was not there to be checked */
  alter(again,
        "UPDATE kv_row SET k = (SELECT k FROM kv_row WHERE step = 0 AND layer = 0) WHERE step = 3 AND layer = 0");
  assert_int_equal(run("check %s --no-model", again), 1);
  says("reset-to-zero");
  says("in step 3, a position comes twice");
  assert_int_equal(run("check %s --run 1", trace), 0);
  if (strstr(output, "log head_step")) fail_msg("asks for what is there: %s", output);
}

/* D13: two clean runs of the same tokens hold the same rows. One K row of layer 1 is made that of the row before; layer 1's attention,
 * which would show it by itself, is not logged. */
static void test_rerun(void **state) {
  (void)state;
  const char *twice = in_folder("twice.db");
  assert_int_equal(run("run -m reverse -p 'abc>' -n 4 -o %s", twice), 0);
  assert_int_equal(run("run -m reverse -p 'abc>' -n 4 -o %s --append", twice), 0);
  alter(twice, "DELETE FROM head_stat WHERE layer = 1; DELETE FROM head_step WHERE layer = 1");
  assert_int_equal(run("check %s --no-model", twice), 0);
  alter(twice, "UPDATE kv_row SET k = (SELECT b.k FROM kv_row AS b WHERE b.run = 2 AND b.layer = 1 AND b.row = 4) "
               "WHERE run = 2 AND layer = 1 AND row = 5");
  assert_int_equal(run("check %s --no-model", twice), 1);
  says("not-repeatable");
  says("D13");
}

static void test_table(void **state) {
  (void)state;
  assert_int_equal(run("check %s", trace), 1);
  says("run 2: FAULT");
  says("off-by-one  (rule, D2)");
  says("from step 4 on, position = length + 1: the length is read after the append.");
  says("wpe[5], right is wpe[4]");
  says("wrong append(cache, k, v); t = cache.length;");
  says("run 3: FAULT");
  says("k-without-v");
  char *line = output;
  for (char *end; (end = strchr(line, '\n')); line = end + 1) {
    int columns = 0; /* of UTF-8 */
    for (char *c = line; c < end; c++) columns += ((unsigned char)*c & 0xC0) != 0x80;
    if (columns > 80 && !strstr(line, "see it")) fail_msg("%d columns: %.*s", columns, (int)(end - line), line);
  }
}

static void test_json(void **state) {
  (void)state;
  assert_int_equal(run("check %s -o json", trace), 1);
  json_error_t error;
  json_t *all = json_loads(output, 0, &error);
  if (!all) fail_msg("%s: %s", error.text, output);
  assert_int_equal(json_integer_value(json_object_get(all, "exit")), 1);
  json_t *runs = json_object_get(all, "runs");
  assert_int_equal(json_array_size(runs), 3);
  static const char *const verdicts[] = {"clean", "fault", "fault"};
  for (size_t i = 0; i < 3; i++)
    assert_string_equal(json_string_value(json_object_get(json_array_get(runs, i), "verdict")), verdicts[i]);
  json_t *finding = json_array_get(json_object_get(json_array_get(runs, 2), "findings"), 0);
  assert_string_equal(json_string_value(json_array_get(json_object_get(finding, "kinds"), 0)), "k-without-v");
  assert_int_equal(json_integer_value(json_object_get(finding, "first_step")), 6);
  assert_true(json_is_true(json_object_get(finding, "to_end")));
  assert_true(json_is_null(json_object_get(finding, "head")));
  /* The query, in a plain SQLite, finds rows 6 and 7 of both layers. */
  sqlite3 *db;
  sqlite3_stmt *statement;
  int rows = 0;
  assert_int_equal(sqlite3_open(trace, &db), SQLITE_OK);
  assert_int_equal(sqlite3_prepare_v2(db, json_string_value(json_object_get(finding, "sql")), -1, &statement, NULL),
                   SQLITE_OK);
  while (sqlite3_step(statement) == SQLITE_ROW) rows++;
  assert_int_equal(rows, 4);
  sqlite3_finalize(statement);
  sqlite3_close(db);
  assert_int_equal(run("sql %s \"%s\"", trace, json_string_value(json_object_get(finding, "sql"))), 0);
  json_decref(all);
}

static void test_csv(void **state) {
  (void)state;
  assert_int_equal(run("check %s -o csv", trace), 1);
  says("run,verdict,kinds,rules,first_step,last_step,steps,layer,head,row,sentence,sql\r\n1,clean,,,,,,,,,,\r\n2,fault,"
       "off-by-one,rule|D2,4,");
}

/* As a person would write it: padding, which this run has none of, does not show in it. */
static void test_plain_query(void **state) {
  (void)state;
  assert_int_equal(run("check %s --run 2 -o json", trace), 1);
  says("\"SELECT step, cache_length_before, position, position - cache_length_before AS off_by FROM step WHERE run = 2 "
       "AND "
       "position IS NOT cache_length_before\"");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_codes),  cmocka_unit_test(test_plain_query),
                                     cmocka_unit_test(test_claims), cmocka_unit_test(test_first_row_again),
                                     cmocka_unit_test(test_rerun),  cmocka_unit_test(test_table),
                                     cmocka_unit_test(test_json),   cmocka_unit_test(test_csv)};
  return cmocka_run_group_tests(tests, make, remove_folder);
}
