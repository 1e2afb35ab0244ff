/* logging.c: what a trace costs. Two engines decode the same tokens, one with a trace and one without, in turn some steps each; where
 * all cores decode, and where one is left over. */
#include "tests/bench/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/pool.h"
#include "engine/share.h"
#include "model/weights.h"
#include "tests/support/memory_model.h"
#include "tests/support/scratch.h"
#include "trace/store.h"

enum { STEPS = 512, WINDOW = 32 };

static const unsigned char *word(const void *context, int token, size_t *length) {
  static char text[16];
  (void)context;
  *length = (size_t)snprintf(text, sizeof text, "w%d", token);
  return (const unsigned char *)text;
}

kvs_trace *bench_trace(const kvs_model *model, const char *path, kvs_log_level level) {
  kvs_error err;
  kvs_trace *trace;
  const kvs_trace_source source = {
      .config = &model->config, .model = "bench", .sha256 = "", .tokens = model->config.n_vocab, .bytes = word};
  const kvs_log log = {.level = level, .last_step = -1};
  bench_must(kvs_trace_create(path, KVS_TRACE_REPLACE, &trace, &err), &err);
  bench_must(kvs_trace_begin_run_from(trace, &source, NULL, &log, NULL, &err), &err);
  return trace;
}

/* Bytes of all the floats that a run of `steps` decode steps logs. */
static double raw_bytes(const kvs_config *c, int steps, bool full) {
  double floats = 0;
  for (int t = 0; t < steps; t++)
    floats += c->n_layer * (4.0 * c->n_embd + 2.0 * c->n_head * (t + 1) + (full ? 5.0 * c->n_embd : 0)) +
              3.0 * c->n_embd + c->n_vocab;
  return 4 * floats;
}

/* Resident memory in MiB. */
static double resident(void) {
  long pages = 0, shared = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file) return (double)NAN;
  int found = fscanf(file, "%*d %ld %ld", &pages, &shared);
  fclose(file);
  return found == 2 ? (double)(pages - shared) * (double)sysconf(_SC_PAGESIZE) / 1048576 : (double)NAN;
}

static double step(kvs_engine *engine, int token) {
  kvs_error err;
  double start = kvs_now();
  bench_must(kvs_engine_decode(engine, token, KVS_FORCED, &err), &err);
  return kvs_now() - start;
}

static void add(const char *what, double ours, const char *unit, double target) {
  bench_result result = bench_alone("logging", &ours, 1, 1, unit);
  snprintf(result.what, sizeof result.what, "%s", what);
  if (!isnan(target)) snprintf(result.bound, sizeof result.bound, "at most %.2f", target);
  bench_add(&result);
}

/* The file's size, the longest of the steps, and memory. */
static void add_rest(const kvs_model *model, const char *name, const char *path, const double *each, double grown) {
  struct stat st;
  double raw = raw_bytes(&model->config, STEPS, strcmp(name, "full") == 0);
  if (stat(path, &st) != 0) abort();
  char what[72];
  snprintf(what, sizeof what, "  %s: file / raw floats (%.0f MB)", name, raw / 1e6);
  add(what, (double)st.st_size / raw, "times", 1.06);
  double slowest = 0, steps[64];
  for (int t = 1; t < STEPS; t++) slowest = each[t] > slowest ? each[t] : slowest;
  for (int t = 0; t < 64; t++) steps[t] = each[t * STEPS / 64];
  snprintf(what, sizeof what, "  %s: longest step / median step", name);
  add(what, slowest / bench_median(steps, 64), "times", 2);
  snprintf(what, sizeof what, "  %s: memory grown beside the KV cache", name);
  add(what, grown, "MiB", NAN);
}

static void measure(const kvs_model *model, kvs_log_level level, int threads, const char *path) {
  kvs_error err;
  kvs_engine *plain, *logged;
  const kvs_engine_options options = {.threads = threads};
  bool full = level == KVS_LOG_FULL;
  const char *name = full ? "full" : "attention";
  bench_must(kvs_engine_create(model, &options, &plain, &err), &err);
  bench_must(kvs_engine_create(model, &options, &logged, &err), &err);
  kvs_trace *trace = bench_trace(model, path, level);
  kvs_observer observer = kvs_trace_observer(trace);
  kvs_engine_observe(logged, &observer);
  /* Rounds of some steps: ours is with a trace, until the last step is written; the bound is without. */
  double with[STEPS / WINDOW] = {0}, without[STEPS / WINDOW] = {0}, each[STEPS], before = 0;
  for (int round = 0; round < STEPS / WINDOW; round++) {
    int first = round * WINDOW;
    double start = kvs_now();
    for (int t = first; t < first + WINDOW; t++) step(plain, t * 37 % model->config.n_vocab);
    without[round] = kvs_now() - start;
    start = kvs_now();
    for (int t = first; t < first + WINDOW; t++) each[t] = step(logged, t * 37 % model->config.n_vocab);
    bench_must(kvs_trace_settle(trace, &err), &err);
    with[round] = kvs_now() - start;
    if (round == STEPS / WINDOW / 4 - 1) before = resident();
  }
  double cache = 2 * (STEPS * 3 / 4) * (double)(bench_step_bytes(model, 1) - bench_step_bytes(model, 0));
  double grown = resident() - before - cache / 1048576;
  kvs_engine_observe(logged, NULL);
  bench_must(kvs_trace_end_run(trace, &err), &err);
  bench_must(kvs_trace_close(trace, &err), &err);
  bench_result result = bench_pair("logging", with, without, STEPS / WINDOW, 1e3 / WINDOW, "ms/token");
  snprintf(result.what, sizeof result.what, "124M --log %s, %d thread%s", name, threads, threads > 1 ? "s" : "");
  snprintf(result.bound, sizeof result.bound, "unlogged %.2f ms/token",
           1e3 / WINDOW * bench_median(without, STEPS / WINDOW));
  result.target = full ? 1 / 1.10 : 1 / 1.05;
  bench_add(&result);
  if (threads == kvs_pool_default_threads()) add_rest(model, name, path, each, grown);
  kvs_engine_free(plain);
  kvs_engine_free(logged);
}

void bench_logging(void) {
  kvs_model *model = bench_model_124m(KVS_F32);
  if (make_folder(NULL)) abort();
  const char *file = in_folder("trace.db");
  int most = kvs_pool_default_threads();
  if (most > 1) measure(model, KVS_LOG_ATTENTION, most - 1, file);
  measure(model, KVS_LOG_ATTENTION, most, file);
  measure(model, KVS_LOG_FULL, most, file);
  remove_folder(NULL);
  memory_model_free(model);
}
