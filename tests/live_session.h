/* live_session.h: what the tests of a live session share: a folder, a trace made by `kvstep run`, a session on it, and how a file is
 * compared with another. KVSTEP names the binary. */
#ifndef KVS_TESTS_LIVE_SESSION_H
#define KVS_TESTS_LIVE_SESSION_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kvstep/kvstep.h"
#include "study/live/live.h"
#include "tests/database.h"
#include "tests/support/scratch.h"

#define UNUSED __attribute__((unused))

static char path[128], other[128];
static struct live *live;
static kvs_model *model;
static kvs_tokenizer *tokenizer;
static sqlite3 *db;
static kvs_error err;

/* A run in the trace that is to be gone on with, or in the one that it is compared with. */
static UNUSED void record(const char *to, const char *options) {
  assert_int_equal(shell("'%s' run -o '%s' %s >/dev/null 2>&1", kvstep_binary(), to, options), 0);
}

static UNUSED int start(void **state) {
  (void)state;
  snprintf(path, sizeof path, "%s/live.db", folder);
  snprintf(other, sizeof other, "%s/other.db", folder);
  return shell("rm -f '%s'/*", folder);
}

static UNUSED void free_model(void) {
  kvs_tokenizer_free(tokenizer);
  kvs_model_free(model);
  tokenizer = NULL;
  model = NULL;
}

/* The screen's order: who reads is closed before who writes. */
static UNUSED void shut(void) {
  assert_int_equal(sqlite3_close(db), SQLITE_OK);
  db = NULL;
  kvs_status status = live_close(live, &err);
  live = NULL;
  free_model();
  if (status != KVS_OK) fail_msg("%s", err.message);
}

static UNUSED int stop(void **state) {
  (void)state;
  sqlite3_close(db);
  live_close(live, NULL);
  db = NULL;
  live = NULL;
  free_model();
  return 0;
}

static UNUSED kvs_status open_with(const char *name) {
  assert_int_equal(kvs_model_open(name, &model, &err), KVS_OK);
  assert_int_equal(kvs_tokenizer_open(name, &tokenizer, &err), KVS_OK);
  return live_open(path, model, tokenizer, &live, &err);
}

static UNUSED void open_live(const char *name) {
  if (open_with(name) != KVS_OK) fail_msg("%s", err.message);
  if (kvs_trace_read(path, &db, &err) != KVS_OK) fail_msg("%s", err.message);
}

static UNUSED void ask(const struct live_order *order) {
  if (live_ask(live, db, order, &err) != KVS_OK) fail_msg("%s", err.message);
}

static UNUSED struct live_status done(void) {
  struct live_status status;
  live_wait(live);
  live_status(live, &status);
  assert_false(status.working);
  return status;
}

static UNUSED struct live_status go_on(int run, int tokens) {
  ask(&(struct live_order){.kind = LIVE_GO_ON, .run = run, .tokens = tokens});
  return done();
}

/* One file, whole, not in WAL mode. */
static UNUSED void is_one_whole_file(void) {
  sqlite3 *file;
  assert_int_equal(shell("test \"$(ls '%s' | grep -c '^live.db')\" = 1", folder), 0);
  assert_int_equal(sqlite3_open(path, &file), SQLITE_OK);
  assert_int_equal(number(file, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"), 1);
  assert_int_equal(number(file, "SELECT count(*) FROM pragma_journal_mode WHERE journal_mode = 'delete'"), 1);
  assert_int_equal(number(file, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
  sqlite3_close(file);
}

/* What may differ: when, and how fast. */
static const struct {
  const char *table, *columns;
} tables[] = {
    {"run", "model, model_sha256, n_layer, n_head, n_embd, head_dim, n_ctx, n_vocab, fault, fault_from_step, seed, "
            "temperature, top_k, top_p, prompt, finished_at IS NULL"},
    {"step", "step, mode, token, source, cache_length_before, position, cache_length_after, logprob"},
    {"event", "step, seq, phase, layer, cache_length"},
    {"kv_row", "layer, row, step, k, v"},
    {"head_step", "step, layer, head, q, scores, weights, out"},
    {"head_stat", "*"},
    {"layer_step", "step, layer, x_in, attn_out, x_mid, mlp_out, x_out"},
    {"step_vector", "step, wte, wpe, x, logits"},
    {"step_stat", "*"},
    {"top_token", "step, rank, token, token_text, logit, probability"},
};

/* Run `run` of the session's file against run `theirs` of the other one; only the columns that begin a list with a word. */
static UNUSED void is_row_for_row(int run, int theirs, size_t from) {
  sqlite3 *file;
  char sql[8192];
  assert_int_equal(sqlite3_open(path, &file), SQLITE_OK);
  snprintf(sql, sizeof sql, "ATTACH '%s' AS other", other);
  execute(file, sql);
  for (size_t i = from; i < sizeof tables / sizeof *tables; i++) {
    bool all = strcmp(tables[i].columns, "*") == 0;
    if (all && run != theirs) continue; /* the run's number is among them */
    for (int way = 0; way < 2; way++) {
      const char *a = way ? "other" : "main", *b = way ? "main" : "other";
      int ra = way ? theirs : run, rb = way ? run : theirs;
      snprintf(sql, sizeof sql,
               "SELECT count(*) FROM (SELECT %s FROM %s.%s WHERE run = %d EXCEPT SELECT %s FROM %s.%s WHERE run = %d)",
               tables[i].columns, a, tables[i].table, ra, tables[i].columns, b, tables[i].table, rb);
      double missing = number(file, sql);
      if (missing != 0) fail_msg("%.0f rows of %s differ", missing, tables[i].table);
    }
  }
  snprintf(sql, sizeof sql, "SELECT (SELECT count(*) FROM main.event WHERE run = %d) > 0", run);
  assert_int_equal(number(file, sql), 1);
  sqlite3_close(file);
}

#define LIVE_TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

#endif
