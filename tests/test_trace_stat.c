/* test_trace_stat.c: the numbers of head_summary that are stored, bit for bit: how the file keeps them, and what every reader makes of
 * them, in a new file and in one whose tables are those of an earlier schema.sql. */
#include "trace_maker.h"

#include <float.h>

#include "study/look/look.h"

/* What four rows may weigh in a correct run, a faulty one and one that has gone astray. */
enum { ROWS = 4, CASES = 10 };
static const float cases[CASES][ROWS] = {
    {0.5f, 0.25f, 0.125f, 0.125f},
    {1, 0, 0, 0},
    {0.25f, 0.25f, 0.25f, 0.25f + 0x1p-25f},
    {0.3f, 0.3f, 0.3f, 0.1f},
    {0x1p-149f, 0x1p-127f, 1, -0.0f},
    {-0.0f, 0x1.fffffcp-127f, -0x1p-149f, 0.75f},
    {-1.5f, -2, -0.5f, -1},
    {NAN, 0.5f, NAN, 0.25f},
    {NAN, NAN, NAN, NAN},
    {FLT_MAX, -FLT_MAX, -INFINITY, INFINITY},
};

/* A trace in which step i's head h has the weights of case 2i + h. Its own row is the last. */
static void write_cases(const char *path) {
  kvs_trace *trace;
  kvs_trace_source source = made_source(&small_config);
  ok(kvs_trace_create(path, KVS_TRACE_APPEND, &trace, &error));
  ok(kvs_trace_begin_run_from(trace, &source, NULL, NULL, NULL, &error));
  kvs_observer o = kvs_trace_observer(trace);
  for (int i = 0; i < CASES / 2; i++) {
    kvs_step step = made_step(i, KVS_DECODE);
    step.cache_length_before = ROWS - 1;
    kvs_moment m = {.step = &step, .row = -1, .rows = ROWS, .weights = cases[2 * i]};
    ok(tell(&o, &m, KVS_MIX, 0, ROWS, &error));
    ok(o.step_end(o.context, &step, &error));
    ok(o.settled(o.context, &error));
  }
  ok(kvs_trace_end_run(trace, &error));
  ok(kvs_trace_close(trace, &error));
}

/* max_weight, self_weight, first_weight, previous_weight, weight_sum; NaN where there is none. */
enum { NUMBERS = 5 };
static void expect(const float *w, double *numbers) {
  double most = NAN, sum = 0;
  for (int i = 0; i < ROWS; i++) {
    if (!isnan(w[i]) && !((double)w[i] <= most)) most = (double)w[i];
    sum += (double)w[i];
  }
  const double wanted[NUMBERS] = {most, (double)w[ROWS - 1], (double)w[0], (double)w[ROWS - 2], sum};
  memcpy(numbers, wanted, sizeof wanted);
}

/* `bits`: -0 is not 0. A REAL column does not keep its sign. */
static void assert_numbers(const double *got, const double *wanted, bool bits, int which, const char *reader) {
  for (int i = 0; i < NUMBERS; i++) {
    bool same = bits ? memcmp(&got[i], &wanted[i], sizeof *got) == 0 : got[i] == wanted[i];
    if (!(isnan(wanted[i]) ? isnan(got[i]) : same))
      fail_msg("%s: case %d, number %d: %.17g, not %.17g", reader, which, i, got[i], wanted[i]);
  }
}

static void read_view(sqlite3 *db, const char *way, int which, double *got) {
  char sql[256];
  snprintf(sql, sizeof sql,
           "SELECT max_weight, self_weight, first_weight, previous_weight, weight_sum FROM %s.head_summary WHERE run = "
           "1 AND step = %d AND layer = 0 AND head = %d",
           way, which / 2, which % 2);
  sqlite3_stmt *row = first_row(db, sql);
  for (int i = 0; i < NUMBERS; i++) {
    int type = sqlite3_column_type(row, i);
    assert_true(type == SQLITE_NULL || type == SQLITE_FLOAT);
    got[i] = type == SQLITE_NULL ? NAN : sqlite3_column_double(row, i);
  }
  sqlite3_finalize(row);
}

/* The view in plain SQL, the one of the extension, and what the screen shows. */
static void check_readers(const char *path, bool bits) {
  sqlite3 *db;
  struct look *look;
  ok(kvs_trace_read(path, &db, &error));
  assert_int_equal(number(db, "SELECT count(*) FROM head_stat"), CASES);
  double wanted[NUMBERS], got[NUMBERS];
  for (int i = 0; i < CASES; i++) {
    expect(cases[i], wanted);
    read_view(db, "main", i, got);
    assert_numbers(got, wanted, bits, i, "plain SQL");
    read_view(db, "temp", i, got);
    assert_numbers(got, wanted, bits, i, "the extension");
  }
  ok(look_open(db, &look, &error)); /* which closes db */
  for (int i = 0; i < CASES; i++) {
    expect(cases[i], wanted);
    const struct look_summary *s = look_summary(look, 1, i / 2, 0, i % 2);
    assert_non_null(s);
    const double shown[NUMBERS] = {s->max_weight, s->self_weight, s->first_weight, s->previous_weight, s->weight_sum};
    assert_numbers(shown, wanted, bits, i, "the screen");
  }
  look_close(look);
}

/* Which types the columns of head_stat have. */
static void assert_types(const char *path, const char *weights, const char *sums) {
  sqlite3 *db;
  assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
  assert_text(
      db,
      "WITH t (t) AS (SELECT typeof(max_weight) FROM head_stat UNION SELECT typeof(self_weight) FROM head_stat UNION "
      "SELECT typeof(first_weight) FROM head_stat UNION SELECT typeof(previous_weight) FROM head_stat) "
      "SELECT group_concat(t) FROM (SELECT t FROM t ORDER BY t)",
      weights);
  assert_text(db, "SELECT group_concat(typeof(weight_sum)) FROM (SELECT weight_sum FROM head_stat ORDER BY step, head)",
              sums);
  sqlite3_close(db);
}

static void a_new_file_keeps_the_bits(void **state) {
  (void)state;
  write_cases(in_folder("new.kvt"));
  assert_types(in_folder("new.kvt"), "integer,null",
               "integer,integer,integer,integer,integer,real,real,null,null,null");
  check_readers(in_folder("new.kvt"), true);
}

static const char earlier_tables[] =
    "DROP TABLE head_stat;"
    "CREATE TABLE head_stat (run INTEGER NOT NULL, step INTEGER NOT NULL, layer INTEGER NOT NULL, head INTEGER NOT "
    "NULL,"
    " entropy REAL, max_weight REAL, max_row INTEGER, self_weight REAL, first_weight REAL, previous_weight REAL,"
    " weight_sum REAL, PRIMARY KEY (run, step, layer, head),"
    " FOREIGN KEY (run, step, layer, head) REFERENCES head_step DEFERRABLE INITIALLY DEFERRED) WITHOUT ROWID;"
    "DROP TABLE step;"
    "CREATE TABLE step (run INTEGER NOT NULL REFERENCES run DEFERRABLE INITIALLY DEFERRED, step INTEGER NOT NULL,"
    " mode TEXT, token INTEGER NOT NULL REFERENCES token DEFERRABLE INITIALLY DEFERRED, source TEXT,"
    " cache_length_before INTEGER, position INTEGER, cache_length_after INTEGER, logprob REAL, seconds REAL,"
    " PRIMARY KEY (run, step));"
    "CREATE INDEX step_by_length ON step (run, cache_length_before);";

static void earlier_file(const char *name) {
  const char *path = in_folder(name);
  alter(path, kvs_trace_schema());
  alter(path, earlier_tables);
}

static void an_earlier_file_is_read_and_added_to(void **state) {
  (void)state;
  earlier_file("earlier.kvt");
  write_cases(in_folder("earlier.kvt"));
  assert_types(in_folder("earlier.kvt"), "null,real", "real,real,real,real,real,real,real,null,null,null");
  check_readers(in_folder("earlier.kvt"), false);
  /* A whole run in it reads as in a new file. */
  earlier_file("a.kvt");
  make_trace(in_folder("a.kvt"), 5, NULL);
  make_trace(in_folder("b.kvt"), 5, NULL);
  sqlite3 *db;
  ok(kvs_trace_read(in_folder("a.kvt"), &db, &error));
  char *attach = sqlite3_mprintf("ATTACH %Q AS b", in_folder("b.kvt"));
  execute(db, attach);
  sqlite3_free(attach);
  static const char *const views[] = {"attention", "rule", "head_summary", "step_summary"};
  for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
    char sql[400];
    snprintf(sql, sizeof sql,
             "SELECT (SELECT count(*) FROM main.%s) > 0 AND NOT EXISTS (SELECT * FROM main.%s EXCEPT SELECT * FROM "
             "b.%s) AND NOT EXISTS (SELECT * FROM temp.%s EXCEPT SELECT * FROM b.%s)",
             views[i], views[i], views[i], views[i], views[i]);
    if (number(db, sql) != 1) fail_msg("%s", views[i]);
  }
  sqlite3_close(db);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_new_file_keeps_the_bits),
      cmocka_unit_test(an_earlier_file_is_read_and_added_to),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
