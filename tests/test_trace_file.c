/* test_trace_file.c: the trace as a file: who may open it, what is refused, and what a file brings along. */
#include "trace_file.h"

static void refuse(const char *path, kvs_trace_open_mode mode, kvs_status status, const char *words) {
  assert_status(kvs_trace_create(path, mode, &trace, &error), status, __LINE__);
  assert_null(trace);
  assert_says(words);
}

static void cannot_read(const char *path, kvs_status status, const char *words) {
  sqlite3 *db;
  assert_status(kvs_trace_read(path, &db, &error), status, __LINE__);
  assert_null(db);
  assert_says(words);
  assert_says(path);
}

/* ---- paths ----------------------------------------------------------------------------------------------------- */

static void writing_refuses_what_it_cannot_write(void **state) {
  (void)state;
  static const kvs_trace_open_mode modes[] = {KVS_TRACE_NEW, KVS_TRACE_REPLACE, KVS_TRACE_APPEND};
  const char *fifo = in_folder("fifo");
  assert_int_equal(mkfifo(fifo, 0600), 0);
  for (int i = 0; i < 3; i++) {
    refuse(folder, modes[i], KVS_ERR_IO, "a folder");
    refuse("/dev/null", modes[i], KVS_ERR_IO, "not a regular file");
    refuse(fifo, modes[i], KVS_ERR_IO, "not a regular file");
    refuse(in_folder("none/a.kvt"), modes[i], KVS_ERR_IO, "does not exist");
    refuse("", modes[i], KVS_ERR_IO, "empty");
  }
  unlink(fifo);
}

static void new_refuses_what_exists(void **state) {
  (void)state;
  const char *path = in_folder("here");
  write_file(path, "x", 1);
  refuse(path, KVS_TRACE_NEW, KVS_ERR_IO, "exists already");
  refuse(path, KVS_TRACE_APPEND, KVS_ERR_INPUT, "not an SQLite file");
  unlink(path);
  /* … also when somebody makes the file between the two calls. */
  ok(kvs_trace_create(path, KVS_TRACE_NEW, &trace, &error));
  write_file(path, "x", 1);
  kvs_trace_source source = made_source(&small_config);
  assert_status(begin(&source), KVS_ERR_IO, __LINE__);
  assert_says("exists already");
  ok(kvs_trace_close(trace, &error));
  assert_true(exists(path, ""));
  unlink(path);
}

static void replace_replaces_when_the_run_begins(void **state) {
  (void)state;
  const char *path = in_folder("r.kvt");
  make_trace(path, 3, NULL);
  struct stat before, after;
  stat(path, &before);
  ok(kvs_trace_create(path, KVS_TRACE_REPLACE, &trace, &error));
  ok(kvs_trace_close(trace, &error));
  stat(path, &after);
  assert_true(before.st_ino == after.st_ino && before.st_size == after.st_size);
  write_file(in_folder("r.kvt-wal"), "old", 3);
  ok(kvs_trace_create(path, KVS_TRACE_REPLACE, &trace, &error));
  kvs_trace_source source = made_source(&small_config);
  ok(begin(&source));
  ok(kvs_trace_close(trace, &error));
  assert_one_file(path);
  sqlite3 *db;
  ok(kvs_trace_read(path, &db, &error));
  assert_int_equal(number(db, "SELECT count(*) FROM step"), 0);
  sqlite3_close(db);
}

static const unsigned char *other_letters(const void *context, int token, size_t *length) {
  (void)context, (void)token;
  *length = 1;
  return (const unsigned char *)"z";
}

static void append_adds_runs_of_the_same_model_only(void **state) {
  (void)state;
  const char *path = in_folder("append.kvt");
  make_trace(path, 2, NULL);
  make_trace(path, 2, NULL);
  kvs_config other = small_config;
  other.n_ctx = 128;
  kvs_trace_source source = made_source(&small_config);
  kvs_trace_source shape = made_source(&other), weights = source, tokens = source;
  weights.sha256 = "1234", tokens.bytes = other_letters;
  const struct {
    const kvs_trace_source *source;
    const char *words;
  } refused[] = {{&shape, "shape differs"}, {&weights, "weights differ"}, {&tokens, "another tokenizer"}};
  for (int i = 0; i < 3; i++) {
    ok(kvs_trace_create(path, KVS_TRACE_APPEND, &trace, &error));
    assert_status(begin(refused[i].source), KVS_ERR_INPUT, __LINE__);
    assert_says(refused[i].words);
    ok(kvs_trace_close(trace, &error));
    assert_one_file(path);
  }
  sqlite3 *db;
  ok(kvs_trace_read(path, &db, &error));
  assert_text(db, "SELECT group_concat(run) FROM run", "1,2");
  assert_int_equal(number(db, "SELECT count(*) FROM step"), 4);
  sqlite3_close(db);
}

static void reading_tells_wrong_files_apart(void **state) {
  (void)state;
  const char *path = in_folder("bad.kvt");
  cannot_read(path, KVS_ERR_IO, "no such file");
  cannot_read(folder, KVS_ERR_IO, "a folder");
  write_file(path, "", 0);
  cannot_read(path, KVS_ERR_INPUT, "a file with nothing in it");
  write_file(
      path,
      "just a text, and longer than a hundred bytes, because a header has a hundred bytes; this is no header at all",
      108);
  cannot_read(path, KVS_ERR_INPUT, "not an SQLite file");
  unlink(path);
  alter(path, "CREATE TABLE t (x)");
  cannot_read(path, KVS_ERR_INPUT, "not a kvstep trace");
  refuse(path, KVS_TRACE_APPEND, KVS_ERR_INPUT, "not a kvstep trace");
  alter(path, "PRAGMA application_id = 0x4B565354");
  cannot_read(path, KVS_ERR_INPUT, "user_version is 0");
  alter(path, "PRAGMA user_version = 1");
  cannot_read(path, KVS_ERR_INPUT, "`run` is missing");
  unlink(path);
  make_trace(path, 2, NULL);
  alter(path, "PRAGMA user_version = 2");
  cannot_read(path, KVS_ERR_INPUT, "a newer kvstep is needed");
  refuse(path, KVS_TRACE_APPEND, KVS_ERR_INPUT, "a newer kvstep is needed");
  alter(path, "PRAGMA user_version = 1");
  struct stat st;
  stat(path, &st);
  assert_int_equal(truncate(path, st.st_size - 5000), 0);
  cannot_read(path, KVS_ERR_INPUT, "truncated");
  assert_int_equal(truncate(path, 60), 0);
  cannot_read(path, KVS_ERR_INPUT, "truncated");
  unlink(path);
}

static void odd_names_are_names_of_files(void **state) {
  (void)state;
  char *old = getcwd(NULL, 0);
  assert_int_equal(chdir(folder), 0);
  static const char *const names[] = {":memory:", "file:x?mode=memory", "100%25 #1?.kvt"};
  for (int i = 0; i < 3; i++) {
    make_trace(names[i], 1, NULL);
    assert_one_file(names[i]);
    sqlite3 *db;
    ok(kvs_trace_read(names[i], &db, &error));
    assert_int_equal(number(db, "SELECT count(*) FROM step"), 1);
    sqlite3_close(db);
  }
  assert_int_equal(chdir(old), 0);
  free(old);
}

/* ---- what is in it ----------------------------------------------------------------------------------------------- */

static void a_number_that_steps_still_have_is_not_given_again(void **state) {
  (void)state;
  const char *path = in_folder("orphans.kvt");
  kvs_trace_source source = made_source(&small_config);
  for (int run = 1; run <= 3; run++) {
    make_trace(path, 1, NULL);
    if (run == 2) alter(path, "DELETE FROM run WHERE run = 2; DELETE FROM step WHERE run = 2");
  }
  sqlite3 *db;
  ok(kvs_trace_read(path, &db, &error));
  assert_text(db, "SELECT group_concat(run) FROM run", "1,3");
  sqlite3_close(db);
  alter(path, "UPDATE run SET run = 9223372036854775807 WHERE run = 3");
  ok(kvs_trace_create(path, KVS_TRACE_APPEND, &trace, &error));
  assert_status(begin(&source), KVS_ERR_INPUT, __LINE__);
  assert_says("write to another file");
  ok(kvs_trace_close(trace, &error));
}

/* Every column can be read where a TEXT must be UTF-8. */
static void what_is_no_text_is_stored_as_a_blob(void **state) {
  (void)state;
  const char *path = in_folder("bytes.kvt");
  kvs_trace_source source = made_source(&small_config);
  source.model = "m\xFF";
  const kvs_run_info info = {.command = "kvstep run -p '\xC3'", .sampling = {.top_p = 1}};
  ok(kvs_trace_create(path, KVS_TRACE_NEW, &trace, &error));
  ok(kvs_trace_begin_run_from(trace, &source, &info, NULL, NULL, &error));
  ok(kvs_trace_end_run(trace, &error));
  ok(kvs_trace_close(trace, &error));
  sqlite3 *db;
  ok(kvs_trace_read(path, &db, &error));
  assert_text(db, "SELECT typeof(model) || ' ' || hex(model) || ' ' || typeof(command) FROM run", "blob 6DFF blob");
  sqlite3_close(db);
}

/* Somebody else's file may have triggers; appending to it runs none. */
static void triggers_of_a_file_do_not_run(void **state) {
  (void)state;
  const char *path = in_folder("trigger.kvt");
  kvs_trace_source source = made_source(&small_config);
  ok(kvs_trace_create(path, KVS_TRACE_NEW, &trace, &error));
  ok(begin(&source));
  ok(kvs_trace_end_run(trace, &error));
  ok(kvs_trace_close(trace, &error));
  alter(path, "CREATE TRIGGER a BEFORE UPDATE ON run BEGIN SELECT raise(ABORT, 'never'); END;"
              "CREATE TRIGGER b AFTER INSERT ON step BEGIN DELETE FROM step; END");
  sqlite3 *db;
  make_trace(path, 1, NULL);
  ok(kvs_trace_read(path, &db, &error));
  assert_int_equal(number(db, "SELECT count(*) FROM step"), 1);
  sqlite3_close(db);
}

/* SQLite's own files beside the trace have longer names: what leaves no room for them is refused before it is made. */
static void a_name_without_room_for_the_journal_is_refused(void **state) {
  (void)state;
  char path[300] = "/tmp/";
  memset(path + 5, 'n', 250);
  refuse(path, KVS_TRACE_NEW, KVS_ERR_IO, "at most 247 bytes");
  assert_int_equal(access(path, F_OK), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(writing_refuses_what_it_cannot_write),
      cmocka_unit_test(new_refuses_what_exists),
      cmocka_unit_test(replace_replaces_when_the_run_begins),
      cmocka_unit_test(append_adds_runs_of_the_same_model_only),
      cmocka_unit_test(reading_tells_wrong_files_apart),
      cmocka_unit_test(odd_names_are_names_of_files),
      cmocka_unit_test(a_number_that_steps_still_have_is_not_given_again),
      cmocka_unit_test(what_is_no_text_is_stored_as_a_blob),
      cmocka_unit_test(triggers_of_a_file_do_not_run),
      cmocka_unit_test(a_name_without_room_for_the_journal_is_refused),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
