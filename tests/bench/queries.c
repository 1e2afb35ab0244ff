/* queries.c: what SQL on a trace takes, in plain SQLite and with the extension's functions, and what a frame of the screen
 * takes. The trace has GPT-2 small's shape and 512 steps of made-up numbers. */
#include "tests/bench/bench.h"

#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/share.h"
#include "kvstep/trace.h"
#include "study/look/look.h"
#include "tests/support/scratch.h"
#include "tui/drive.h"

enum { STEPS = 512, ROUNDS = 9, LAYERS = 12, EMBD = 768 };

static const unsigned char *word(const void *context, int token, size_t *length) {
  static char text[16];
  (void)context;
  *length = (size_t)snprintf(text, sizeof text, "w%d", token);
  return (const unsigned char *)text;
}

typedef struct writer {
  kvs_observer observer;
  kvs_moment m;
  const float *numbers; /* as many as any vector has */
} writer;

static void tell(writer *w, kvs_phase phase) {
  kvs_error err;
  w->m.phase = phase;
  bench_must(w->observer.moment(w->observer.context, &w->m, &err), &err);
}

static void tell_step(writer *w, int t) {
  kvs_error err;
  const float *x = w->numbers;
  const kvs_step step = {.step = t,
                         .mode = KVS_DECODE,
                         .token = t,
                         .source = KVS_FORCED,
                         .cache_length_before = t,
                         .position = t,
                         .cache_length_after = t + 1};
  w->m = (kvs_moment){.step = &step, .layer = -1};
  tell(w, KVS_READ_LENGTH);
  w->m.wte = w->m.wpe = w->m.x = x;
  tell(w, KVS_EMBED);
  for (int layer = 0; layer < LAYERS; layer++) {
    w->m = (kvs_moment){.step = &step, .layer = layer, .q = x, .k = x, .v = x, .x_in = x, .rows = t + 1};
    tell(w, KVS_PROJECT);
    w->m.row = t, w->m.row_k = w->m.row_v = x;
    tell(w, KVS_APPEND);
    w->m.scores = w->m.weights = w->m.out = x;
    tell(w, KVS_MIX);
  }
  w->m = (kvs_moment){.step = &step, .layer = -1, .logits = x};
  tell(w, KVS_LOGITS);
  bench_must(w->observer.step_end(w->observer.context, &step, &err), &err);
  bench_must(w->observer.settled(w->observer.context, &err), &err);
}

void bench_made_up_trace(const char *path, int runs, int steps) {
  kvs_error err;
  kvs_trace *trace;
  const kvs_config c = {
      .n_layer = LAYERS, .n_head = 12, .n_embd = EMBD, .head_dim = EMBD / 12, .n_ctx = 1024, .n_vocab = 50257};
  const kvs_trace_source source = {.config = &c, .model = "bench", .tokens = c.n_vocab, .bytes = word};
  float *numbers = malloc((size_t)c.n_vocab * sizeof *numbers);
  if (!numbers) abort();
  for (int i = 0; i < c.n_vocab; i++) numbers[i] = (float)(i * 37 % 1009) / 50000;
  bench_must(kvs_trace_create(path, KVS_TRACE_NEW, &trace, &err), &err);
  for (int r = 0; r < runs; r++) {
    bench_must(kvs_trace_begin_run_from(trace, &source, NULL, NULL, NULL, &err), &err);
    writer w = {.observer = kvs_trace_observer(trace), .numbers = numbers};
    for (int t = 0; t < steps; t++) tell_step(&w, t);
    bench_must(kvs_trace_end_run(trace, &err), &err);
  }
  bench_must(kvs_trace_close(trace, &err), &err);
  free(numbers);
}

static double query(sqlite3 *db, const char *sql) {
  sqlite3_stmt *statement;
  double start = kvs_now();
  if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) != SQLITE_OK) {
    bench_say("bench: %s", sqlite3_errmsg(db));
    exit(1);
  }
  while (sqlite3_step(statement) == SQLITE_ROW)
    for (int i = 0; i < sqlite3_column_count(statement); i++) sqlite3_column_double(statement, i);
  sqlite3_finalize(statement);
  return kvs_now() - start;
}

static void measure(sqlite3 *db, const char *how, const char *what, const char *sql, double at_most) {
  double seconds[ROUNDS];
  query(db, sql);
  for (int r = 0; r < ROUNDS; r++) seconds[r] = query(db, sql);
  bench_result result = bench_alone("queries", seconds, ROUNDS, 1e3, "ms");
  snprintf(result.what, sizeof result.what, "%s, %s", what, how);
  if (!isnan(at_most)) snprintf(result.bound, sizeof result.bound, "at most %g ms", at_most);
  bench_add(&result);
}

void bench_queries(void) {
  static const char one[] = "SELECT row, row_token_text, score, weight FROM attention WHERE run = 1 AND step = 511 AND "
                            "layer = 6 AND head = 5";
  static const char average[] = "SELECT avg(weight), count(*) FROM attention WHERE run = 1 AND layer = 6 AND head < 8";
  static const char summary[] = "SELECT count(*), avg(entropy), max(max_weight) FROM head_summary WHERE run = 1";
  if (make_folder(NULL)) abort();
  const char *path = in_folder("trace.db");
  bench_made_up_trace(path, 1, STEPS);
  kvs_error err;
  sqlite3 *plain, *fast;
  if (sqlite3_open_v2(path, &plain, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK) abort();
  bench_must(kvs_trace_read(path, &fast, &err), &err);
  measure(plain, "plain", "one head of one step, 512 rows", one, 3);
  measure(fast, "extension", "one head of one step, 512 rows", one, 0.5);
  measure(fast, "extension", "AVG over 1.05 million weights", average, 150);
  measure(plain, "plain", "head_summary of 512 steps", summary, 300);
  measure(fast, "extension", "head_summary of 512 steps", summary, 300);
  sqlite3_close(plain);
  sqlite3_close(fast);
  remove_folder(NULL);
}

/* ---- the screen -------------------------------------------------------------------------------------------------- */

static void frames(struct drive *drive, const char *what, enum action action, int rows, int columns) {
  double seconds[ROUNDS_MOST];
  int count = 40;
  for (int r = -3; r < count; r++) {
    double start = kvs_now();
    drive_action(drive, action);
    if (!drive_draw(drive, rows, columns)) abort();
    if (r >= 0) seconds[r] = kvs_now() - start;
  }
  bench_result result = bench_alone("screen", seconds, count, 1e3, "ms/frame");
  snprintf(result.what, sizeof result.what, "%s, %dx%d", what, columns, rows);
  bench_add(&result);
}

void bench_screen(void) {
  if (make_folder(NULL)) abort();
  const char *path = in_folder("trace.db");
  bench_made_up_trace(path, 1, STEPS);
  kvs_error err;
  sqlite3 *db;
  struct look *look;
  struct drive drive = {0};
  const struct start start = {-1, 256, -1, -1};
  bench_must(kvs_trace_read(path, &db, &err), &err);
  bench_must(look_open(db, &look, &err), &err);
  bench_must(drive_init(&drive, look, "bench", &start, &err), &err);
  frames(&drive, "next moment", ACTION_NEXT_MOMENT, 24, 80);
  frames(&drive, "next step", ACTION_NEXT_STEP, 24, 80);
  frames(&drive, "next step", ACTION_NEXT_STEP, 60, 200);
  drive_free(&drive);
  look_close(look);
  remove_folder(NULL);
}
