/* test_import.c: `kvstep import` on files as nobody should make them: cut off, lying about their sizes, contradicting themselves. What
 * good files give is compared with kvstep's own traces in tests/recorders.py. */
#include "tests/trace_maker.h"

#include <sqlite3.h>
#include <zlib.h>

#include "import/array.h"
#include "import/import.h"
#include "import/names.h"

/* ---- files made by hand ---- */

struct bytes {
  unsigned char at[65536];
  size_t count;
};

static void put(struct bytes *b, const void *from, size_t count) {
  assert_true(b->count + count <= sizeof b->at);
  memcpy(b->at + b->count, from, count);
  b->count += count;
}

static void put_number(struct bytes *b, uint64_t value, int size) {
  for (int i = 0; i < size; i++) {
    unsigned char byte = i < 8 ? (unsigned char)(value >> 8 * i) : 0;
    put(b, &byte, 1);
  }
}

/* A .npy of version `version` with this header text. */
static void put_npy(struct bytes *b, int version, const char *header, const void *data, size_t size) {
  put(b, "\x93NUMPY", 6);
  put_number(b, (uint64_t)version, 1);
  put_number(b, 0, 1);
  put_number(b, strlen(header), version == 1 ? 2 : 4);
  put(b, header, strlen(header));
  put(b, data, size);
}

/* One member's local header, its data and its place in the directory. */
struct member {
  const char *name;
  struct bytes data;
  int method;
  uint64_t claimed; /* its size, 0: the true one */
};

static void put_zip(struct bytes *b, const struct member *members, int count) {
  struct bytes directory = {.count = 0};
  for (int i = 0; i < count; i++) {
    const struct member *m = &members[i];
    unsigned char packed[65536];
    uLongf size = sizeof packed;
    const unsigned char *data = m->data.at;
    size_t length = m->data.count;
    if (m->method == 8) { /* zlib's stream without its two bytes in front and four behind is deflate's */
      assert_int_equal(compress(packed, &size, m->data.at, (uLong)m->data.count), Z_OK);
      data = packed + 2, length = size - 6;
    }
    size_t at = b->count;
    uint64_t crc = crc32(0, m->data.at, (uInt)m->data.count), whole = m->claimed ? m->claimed : m->data.count;
    put(b, "PK\3\4\24\0\0\0", 8);
    put_number(b, (uint64_t)m->method, 2);
    put_number(b, 0, 4);
    put_number(b, crc, 4);
    put_number(b, length, 4);
    put_number(b, whole, 4);
    put_number(b, strlen(m->name), 2);
    put_number(b, 0, 2);
    put(b, m->name, strlen(m->name));
    put(b, data, length);
    put(&directory, "PK\1\2\24\0\24\0\0\0", 10);
    put_number(&directory, (uint64_t)m->method, 2);
    put_number(&directory, 0, 4);
    put_number(&directory, crc, 4);
    put_number(&directory, length, 4);
    put_number(&directory, whole, 4);
    put_number(&directory, strlen(m->name), 2);
    put_number(&directory, 0, 2 + 2 + 2 + 2 + 4);
    put_number(&directory, at, 4);
    put(&directory, m->name, strlen(m->name));
  }
  size_t at = b->count;
  put(b, directory.at, directory.count);
  put(b, "PK\5\6\0\0\0\0", 8);
  put_number(b, (uint64_t)count, 2);
  put_number(b, (uint64_t)count, 2);
  put_number(b, directory.count, 4);
  put_number(b, at, 4);
  put_number(b, 0, 2);
}

static const char *put_file(const char *name, const void *bytes, size_t size) {
  const char *path = in_folder(name);
  write_file(path, bytes, size);
  return path;
}

static const char *write_text(const char *name, const char *text) { return put_file(name, text, strlen(text)); }

/* ---- importing ---- */

static char notes[4096];

static void keep_note(void *context, const char *note) {
  (void)context;
  size_t used = strlen(notes);
  snprintf(notes + used, sizeof notes - used, "%s\n", note);
}

static kvs_status import(const char *file, const import_options *options, const char *trace, kvs_trace_open_mode mode) {
  import_result result;
  notes[0] = '\0';
  return import_files(&file, 1, options, trace, mode, keep_note, NULL, &result, &error);
}

/* It must be refused with these words, in one clean line, and leave nothing. */
static void refused_file(const char *file, const import_options *options, const char *words, int line) {
  const char *trace = in_folder("refused.db");
  if (import(file, options, trace, KVS_TRACE_NEW) == KVS_OK) fail_msg("line %d: not refused", line);
  if (!strstr(error.message, words)) fail_msg("line %d: \"%s\" does not say \"%s\"", line, error.message, words);
  assert_false(exists(trace, "") || exists(trace, "-wal") || exists(trace, "-journal"));
}

static void refused_bytes(const struct bytes *b, const char *words, int line) {
  static const import_options options = {.n_head = 1};
  refused_file(put_file("bad", b->at, b->count), &options, words, line);
}

static void refused_json(const char *text, const char *words, int line) {
  static const import_options options = {0};
  refused_file(write_text("bad.json", text), &options, words, line);
}

static void accept_json(const char *text, const import_options *options, int line) {
  static const import_options none = {0};
  unlink(in_folder("good.db"));
  if (import(write_text("good.json", text), options ? options : &none, in_folder("good.db"), KVS_TRACE_NEW) != KVS_OK)
    fail_msg("line %d: %s", line, error.message);
}

#define REFUSED_NPY(header, size, words)                                                                               \
  do {                                                                                                                 \
    struct bytes b_ = {.count = 0};                                                                                    \
    put_npy(&b_, 1, header, data, size);                                                                               \
    refused_bytes(&b_, words, __LINE__);                                                                               \
  } while (0)

static void test_npy(void **state) {
  (void)state;
  static const unsigned char data[256] = {0};
  REFUSED_NPY("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }", 47,
              "is cut off: shape [3, 4] needs 48 bytes, and 47");
  REFUSED_NPY("{'descr': '|O', 'fortran_order': False, 'shape': (3,), }", 24, "holds Python objects");
  REFUSED_NPY("{'descr': '>f4', 'fortran_order': False, 'shape': (3,), }", 12,
              "big-endian (>f4); save it as x.astype('<f4')");
  REFUSED_NPY("{'descr': '<c8', 'fortran_order': False, 'shape': (3,), }", 24, "has type <c8");
  REFUSED_NPY("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }", 24, "(a structure?)");
  REFUSED_NPY("{'descr': '<f4', 'fortran_order': False, 'shape': (3", 24, "a shape that is none");
  REFUSED_NPY("{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }", 24, "a shape that is none");
  REFUSED_NPY("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }", 24, "more than 8 dimensions");
  REFUSED_NPY("{'descr': '<f4', 'fortran_order': Maybe, 'shape': (3,), }", 24, "its header is malformed");
  REFUSED_NPY("{'descr': '<f4', 'shape': (3,), }", 24, "its header is incomplete");
  REFUSED_NPY("{'descr': '<f4', 'descr': '<f4', 'shape': (3,), }", 24, "its header is malformed");
  REFUSED_NPY("[]", 0, "its header is no dictionary");
  REFUSED_NPY("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", 24,
              "more than any file holds");
  REFUSED_NPY("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", 24,
              "a dimension that is too large");
  struct bytes huge = {.count = 0};
  put(&huge, "\x93NUMPY\2\0\xff\xff\xff\x7f{'descr'", 20);
  refused_bytes(&huge, "a header of more than 64 KiB", __LINE__);
  struct bytes future = {.count = 0};
  put_npy(&future, 4, "{}", "", 0);
  refused_bytes(&future, "a version of .npy", __LINE__);
}

/* The same six numbers in every type, order and version that can be read. */
static void test_npy_types(void **state) {
  (void)state;
  const double wanted[2][3] = {{1, 2, 3}, {4, 5, 100}};
  static const struct {
    const char *type;
    int size;
    bool real;
  } types[] = {{"<f4", 4, true},  {"<f8", 8, true},  {"<i4", 4, false}, {"<i8", 8, false},
               {"|i1", 1, false}, {"<u2", 2, false}, {"<f2", 2, true}};
  static const uint16_t halves[] = {0x3C00, 0x4000, 0x4200,
                                    0x4400, 0x4500, 0x5640}; /* 1 2 3 4 5 100, IEEE 754 binary16 */
  for (int version = 1; version <= 3; version++)
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
      for (int fortran = 0; fortran < 2; fortran++) {
        struct bytes data = {.count = 0}, file = {.count = 0};
        for (int k = 0; k < 6; k++) {
          int row = fortran ? k % 2 : k / 3, column = fortran ? k / 2 : k % 3;
          float narrow = (float)wanted[row][column];
          if (types[t].size == 4 && types[t].real)
            put(&data, &narrow, 4);
          else if (types[t].size == 8 && types[t].real)
            put(&data, &wanted[row][column], 8);
          else
            put_number(&data, types[t].real ? halves[row * 3 + column] : (uint64_t)wanted[row][column], types[t].size);
        }
        char header[128];
        snprintf(header, sizeof header, "{'shape': (2, 3), 'descr': '%s', 'fortran_order': %s}\n", types[t].type,
                 fortran ? "True" : "False");
        put_npy(&file, version, header, data.at, data.count);
        struct arrays arrays = {0};
        ok(arrays_read(&arrays, put_file("six.npy", file.at, file.count), &error));
        assert_int_equal(arrays.count, 1);
        assert_string_equal(arrays.at[0].name, "six");
        for (int row = 0; row < 2; row++)
          for (int column = 0; column < 3; column++)
            assert_true(array_get(&arrays.at[0], row * arrays.at[0].stride[0] + column * arrays.at[0].stride[1]) ==
                        wanted[row][column]);
        arrays_free(&arrays);
      }
}

/* tokens [4] and k [1, 4, 2], stored or deflated. */
static void make_npz(struct bytes *b, int method, uint64_t claimed) {
  static struct member members[2];
  const float k[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const int64_t tokens[4] = {3, 1, 2, 0};
  memset(members, 0, sizeof members);
  members[0] = (struct member){.name = "tokens.npy", .method = method};
  members[1] = (struct member){.name = "k.npy", .method = method, .claimed = claimed};
  put_npy(&members[0].data, 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (4,), }   \n", tokens, sizeof tokens);
  put_npy(&members[1].data, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 4, 2), }   \n", k, sizeof k);
  b->count = 0;
  put_zip(b, members, 2);
}

static void test_npz(void **state) {
  (void)state;
  static const import_options options = {.n_head = 1};
  static struct bytes b;
  for (int method = 0; method <= 8; method += 8) {
    make_npz(&b, method, 0);
    const char *trace = in_folder(method ? "packed.db" : "stored.db");
    ok(import(put_file("good.npz", b.at, b.count), &options, trace, KVS_TRACE_NEW));
    assert_one_file(trace);
    sqlite3 *db;
    ok(kvs_trace_read(trace, &db, &error));
    assert_true(number(db, "SELECT f32(k, 1) FROM kv_row WHERE row = 2") == 6);
    assert_true(number(db, "SELECT token FROM step WHERE step = 2") == 2);
    sqlite3_close(db);
  }
  make_npz(&b, 8, 4000000000u); /* a bomb's claim: 4 GB from a hundred bytes */
  refused_bytes(&b, "which cannot be", __LINE__);
  static const import_options four_heads = {.n_head = 4}; /* then the shape is wrong, and nothing large is unpacked */
  refused_file(put_file("bad", b.at, b.count), &four_heads, "array `k` has shape [1, 4, 2]", __LINE__);
  make_npz(&b, 8, 150);
  refused_bytes(&b, "`k` does not unpack to the size that is declared", __LINE__);
  make_npz(&b, 0, 0);
  b.at[b.count - 6] = 0xFF, b.at[b.count - 5] = 0xFF; /* where the directory is */
  refused_bytes(&b, "its directory is cut off", __LINE__);
  make_npz(&b, 3, 0);
  refused_bytes(&b, "packed by method 3", __LINE__);
  make_npz(&b, 0, 0);
  b.at[110] ^= 1; /* within the tokens' numbers */
  refused_bytes(&b, "is damaged: its CRC-32", __LINE__);
  struct bytes empty = {.count = 0};
  put_zip(&empty, NULL, 0);
  refused_bytes(&empty, "no arrays in it", __LINE__);
}

/* Every length and every byte of a good file spoilt: refused or read, but never past its end (which the sanitizers see). */
static void test_spoilt(void **state) {
  (void)state;
  static struct bytes b;
  int refusals = 0;
  volatile double last = 0; /* reads what is at the arrays' ends */
  for (int method = 0; method <= 8; method += 8) {
    make_npz(&b, method, 0);
    for (size_t length = 0; length < b.count; length++) {
      struct arrays arrays = {0};
      const char *path = put_file("cut.npz", b.at, length);
      if (arrays_read(&arrays, path, &error) != KVS_OK) refusals++;
      arrays_free(&arrays);
    }
    assert_int_equal(refusals, (int)b.count);
    refusals = 0;
    for (size_t i = 0; i < b.count; i++)
      for (int bit = 0; bit < 8; bit++) {
        struct arrays arrays = {0};
        b.at[i] ^= (unsigned char)(1 << bit);
        kvs_status status = arrays_read(&arrays, put_file("flipped.npz", b.at, b.count), &error);
        for (size_t k = 0; status == KVS_OK && k < arrays.count; k++) {
          status = array_need(&arrays, &arrays.at[k], &error);
          int64_t count = array_elements(&arrays.at[k]);
          if (status == KVS_OK && count > 0)
            last += array_get(&arrays.at[k], count - 1);
          else if (status != KVS_OK)
            refusals++;
        }
        b.at[i] ^= (unsigned char)(1 << bit);
        arrays_free(&arrays);
      }
    assert_true(refusals > 0);
    refusals = 0;
  }
}

static void test_json(void **state) {
  (void)state;
  refused_json("", "an empty file", __LINE__);
  refused_json("hello", "neither .npy, .npz nor JSON", __LINE__);
  refused_json("[1, 2]", "put the arrays into an object", __LINE__);
  refused_json("{\"tokens\": [1, 2", "line 1, column", __LINE__);
  refused_json("{\"tokens\": [1], \"tokens\": [1]}", "duplicate", __LINE__);
  refused_json("{}", "no arrays in it", __LINE__);
  refused_json("{\"k\": [[1]]}", ".json: the tokens that were fed are missing", __LINE__);
  refused_json("{\"tokens\": [1, NaN]}", "`tokens`[1] is nan", __LINE__);
  refused_json("{\"tokens\": [1, 2.5]}", "`tokens`[1] is 2.5, and should be a whole number", __LINE__);
  refused_json("{\"tokens\": [1, -1]}", "`tokens`[1] is -1", __LINE__);
  refused_json("{\"tokens\": [[[[[[[[[1]]]]]]]]]}", "array `tokens.0` has shape [1, 1, 1, 1, 1, 1, 1, 1]", __LINE__);
  refused_json("{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":1}}}}}}}}}", "nested more than 8 deep",
               __LINE__);
  refused_json("{\"tokens\": []}", "`tokens` has shape [0]", __LINE__);
  static char deep[40000] = "{\"tokens\": ";
  memset(deep + strlen(deep), '[', 30000);
  refused_json(deep, "not valid JSON", __LINE__);
  accept_json("{\"tokens\": [0, 1], \"n_head\": 1, \"k\": [[[1, NaN], [Infinity, -Infinity]]], \"v\": [[[null, 2], [3, "
              "1e300]]]}",
              NULL, __LINE__);
  sqlite3 *db;
  ok(kvs_trace_read(in_folder("good.db"), &db, &error));
  assert_text(db, "SELECT hex(k) || ' ' || hex(v) FROM kv_row WHERE row = 1", "0000807F000080FF 000040400000807F");
  assert_text(db, "SELECT f32(k, 0) || ' ' || (f32(k, 1) IS NULL) FROM kv_row WHERE row = 0", "1.0 1");
  sqlite3_close(db);
}

static void test_contradictions(void **state) {
  (void)state;
  refused_json("{\"tokens\": [0, 1], \"n_head\": 1, \"k\": [[[1], [2], [3], [4]]]}", "2 tokens, but 4 rows of K or V",
               __LINE__);
  refused_json("{\"tokens\": [0, 1], \"k\": [[[1], [2]]]}", "how many heads share n_embd 1 is not known", __LINE__);
  refused_json("{\"tokens\": [0, 1], \"n_head\": 2, \"k\": [[[1, 2, 3], [2, 3, 4]]]}",
               "it can be [n_layer, 1, n_head, rows, head_dim]", __LINE__);
  refused_json("{\"tokens\": [0, 1], \"n_head\": 1, \"k\": [[[1], [2]]], \"v\": [[[1, 2], [2, 3]]]}",
               "array `v` has shape [1, 2, 2]", __LINE__);
  refused_json("{\"tokens\": [0, 1], \"n_head\": 1, \"k\": [[[1], [2]]], \"keys\": [[[1], [2]]]}", "are both k",
               __LINE__);
  refused_json("{\"tokens\": [0, 1], \"positions\": [0]}", "array `positions` has shape [1]", __LINE__);
  refused_json("{\"tokens\": [0, 9], \"n_vocab\": 5}", "token 9 is outside of the vocabulary of 5", __LINE__);
  refused_json("{\"tokens\": [0, 1], \"cache_length_before\": [0, 2000000000]}", "a whole number from 0 to 1048575",
               __LINE__);
  refused_json("{\"tokens\": [0, 16000000]}", "a whole number from 0 to 1048575", __LINE__);
  refused_json("{\"tokens\": [0, 1], \"prompt_length\": 3}", "a prompt of 3 tokens", __LINE__);
  refused_json("{\"tokens\": [0, 1, 0, 1], \"logits\": [[1, 2], [1, 2]]}", "2 rows of logits, but 4 steps", __LINE__);
  refused_json("{\"tokens\": [0, 1], \"attentions\": [[[[1, 0, 0], [0, 1, 0], [0, 0, 1]]]]}",
               "3 queries from step 0 on, and there are 2 steps", __LINE__);
  refused_json("{\"tokens\": [0], \"k.0\": [[1]], \"k.0.0\": [[1]], \"n_head\": 1}", "has more numbers in its name",
               __LINE__);
  const import_options wrong_model = {.model = "reverse"};
  const char *file = write_text("bad.json", "{\"tokens\": [0], \"k\": [[[1, 2]]]}");
  refused_file(file, &wrong_model, "with n_layer 2", __LINE__);
  const import_options no_map = {.map = "k"}, no_array = {.map = "k=there"}, no_name = {.map = "mine=k"};
  refused_file(file, &no_map, "--map takes NAME=ARRAY", __LINE__);
  refused_file(file, &no_array, "there is no array `there`", __LINE__);
  refused_file(file, &no_name, "`mine` is no name that is known", __LINE__);
  refused_file(in_folder("nowhere.npz"), &no_map, "cannot be opened", __LINE__);
  refused_file(folder, &no_map, "a folder", __LINE__);
}

/* Rows before the run's own, told by cache_length_before; a mask that lets a later row through keeps it. */
static void test_lengths_and_masks(void **state) {
  (void)state;
  accept_json("{\"tokens\": [0, 1], \"cache_length_before\": [1, 2], \"n_head\": 1, \"k\": [[[7], [8], [9]]]}", NULL,
              __LINE__);
  sqlite3 *db;
  ok(kvs_trace_read(in_folder("good.db"), &db, &error));
  assert_text(db, "SELECT group_concat(step || ':' || row || ':' || f32(k, 0)) FROM kv_row", "0:1:8.0,1:2:9.0");
  sqlite3_close(db);
  accept_json("{\"tokens\": [0, 1, 2], \"attentions\": [[[[1, 0, 0], [0.5, 0, 0.5], [0, 1, 0]]]], \"unknown\": [1]}",
              NULL, __LINE__);
  assert_non_null(strstr(notes, "array `unknown` [1] is left out"));
  ok(kvs_trace_read(in_folder("good.db"), &db, &error));
  assert_text(db, "SELECT group_concat(f32_count(weights)) FROM head_step", "1,3,3");
  sqlite3_close(db);
}

/* What is refused while it is written leaves the trace as it was. */
static void test_append_whole_or_not(void **state) {
  (void)state;
  const char *trace = in_folder("append.db");
  make_trace(trace, 3, NULL);
  static const import_options options = {0};
  const char *file = write_text("other.json", "{\"tokens\": [0, 1], \"n_head\": 1, \"k\": [[[1], [2]]]}");
  assert_int_equal(import(file, &options, trace, KVS_TRACE_APPEND), KVS_ERR_INPUT);
  assert_says("another model");
  assert_one_file(trace);
  sqlite3 *db;
  ok(kvs_trace_read(trace, &db, &error));
  assert_true(number(db, "SELECT count(*) FROM run") == 1 && number(db, "SELECT count(*) FROM step") == 3);
  sqlite3_close(db);
  assert_int_equal(import(file, &options, trace, KVS_TRACE_NEW), KVS_ERR_IO);
  assert_says("exists already");
  ok(import(file, &options, trace, KVS_TRACE_REPLACE));
  ok(kvs_trace_read(trace, &db, &error));
  assert_true(number(db, "SELECT count(*) FROM run") == 1 && number(db, "SELECT count(*) FROM step") == 2);
  assert_true(number(db, "SELECT finished_at IS NOT NULL FROM run") == 1);
  sqlite3_close(db);
}

/* Another engine's run by the public call: who it was is written, and what nobody has said is not. */
static void test_foreign_run(void **state) {
  (void)state;
  kvs_trace *trace;
  const char *path = in_folder("foreign.db");
  kvs_trace_source source = made_source(&small_config);
  source.engine = "theirs", source.engine_version = "7";
  ok(kvs_trace_create(path, KVS_TRACE_NEW, &trace, &error));
  ok(kvs_trace_begin_run_from(trace, &source, NULL, NULL, NULL, &error));
  kvs_observer observer = kvs_trace_observer(trace);
  ok(feed(&observer, &small_config, 0, &error));
  ok(kvs_trace_end_run(trace, &error));
  const kvs_run_info info = {.sampling = {.temperature = 0.5, .top_p = 1, .seed = 3}};
  ok(kvs_trace_begin_run_from(trace, &source, &info, NULL, NULL, &error));
  kvs_config wrong = small_config;
  wrong.head_dim = 5;
  source.config = &wrong;
  assert_int_equal(kvs_trace_begin_run_from(trace, &source, NULL, NULL, NULL, &error), KVS_ERR_USAGE);
  assert_says("2 heads of 5 numbers, n_embd 8");
  ok(kvs_trace_close(trace, &error));
  sqlite3 *db;
  ok(kvs_trace_read(path, &db, &error));
  assert_text(db,
              "SELECT group_concat(engine || engine_version || ifnull(fault, '-') || ifnull(seed, '-') || "
              "ifnull(top_p, '-'), ' ') FROM run",
              "theirs7--- theirs7-31.0");
  assert_true(number(db, "SELECT count(*) FROM event") == 3 + 2 * 7);
  sqlite3_close(db);
}

static void test_names(void **state) {
  (void)state;
  static const struct {
    const char *name;
    enum quantity quantity;
    int numbers, first, second;
  } wanted[] = {{"past_key_values.3.key", Q_K, 1, 3, 0},
                {"past_key_values_11_value", Q_V, 1, 11, 0},
                {"past_key_values[2][1]", Q_KV, 2, 2, 1},
                {"key_cache.7", Q_K, 1, 7, 0},
                {"layers.5.values", Q_V, 1, 5, 0},
                {"present.0.key", Q_K, 1, 0, 0},
                {"attentions/4/0", Q_WEIGHTS, 2, 4, 0},
                {"k_0", Q_K, 1, 0, 0},
                {"input_ids", Q_TOKENS, 0, 0, 0},
                {"keyboard", Q_COUNT, 0, 0, 0},
                {"12", Q_COUNT, 1, 12, 0},
                {"k.1.2.3", Q_COUNT, 2, 1, 2}};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    struct meaning m = name_meaning(wanted[i].name);
    if (m.quantity != wanted[i].quantity || m.numbers != wanted[i].numbers || m.number[0] != wanted[i].first ||
        m.number[1] != wanted[i].second)
      fail_msg("%s: quantity %d, %d numbers: %d, %d", wanted[i].name, (int)m.quantity, m.numbers, m.number[0],
               m.number[1]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_npy),
      cmocka_unit_test(test_npy_types),
      cmocka_unit_test(test_npz),
      cmocka_unit_test(test_spoilt),
      cmocka_unit_test(test_json),
      cmocka_unit_test(test_contradictions),
      cmocka_unit_test(test_names),
      cmocka_unit_test(test_foreign_run),
      cmocka_unit_test(test_lengths_and_masks),
      cmocka_unit_test(test_append_whole_or_not),
  };
  return cmocka_run_group_tests_name("import", tests, make_folder, remove_folder);
}
