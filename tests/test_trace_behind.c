/* test_trace_behind.c: a step is written behind the next one, on any thread or on none: the file is the same, and what goes wrong is
 * told by the next call. */
#include "trace_maker.h"

#include <pthread.h>
#include <semaphore.h>

static kvs_trace *trace;
static kvs_observer observer;

/* A step has some 50 KB, so that a batch of 64 steps is more than a tape holds. */
static const kvs_config wide_config = {
    .n_layer = 4, .n_head = 4, .n_embd = 256, .head_dim = 64, .n_ctx = 512, .n_vocab = 2000, .n_inner = 1024};

static void begin_run(const kvs_config *config) {
  const kvs_trace_source source = made_source(config);
  const kvs_log log = {.level = KVS_LOG_FULL, .last_step = -1};
  ok(kvs_trace_begin_run_from(trace, &source, NULL, &log, NULL, &error));
}

static void open_trace(const char *path, const kvs_config *config) {
  ok(kvs_trace_create(path, KVS_TRACE_NEW, &trace, &error));
  begin_run(config);
  observer = kvs_trace_observer(trace);
}

static void close_trace(void) {
  ok(kvs_trace_end_run(trace, &error));
  ok(kvs_trace_close(trace, &error));
}

/* All the moments of a batch, layer by layer as an engine tells them. Not settled. */
static void feed_batch(const kvs_config *config, int count) {
  kvs_step *steps = malloc((size_t)count * sizeof *steps);
  float *logits = fill(LOGITS, 0, 0, config->n_vocab);
  assert_non_null(steps);
  for (int i = 0; i < count; i++) {
    float *wte = fill(WTE, i, 0, config->n_embd), *wpe = fill(WPE, i, 0, config->n_embd);
    steps[i] = made_step(i, KVS_PREFILL);
    kvs_moment m = {.step = &steps[i], .row = -1, .wte = wte, .wpe = wpe, .x = wte};
    ok(tell(&observer, &m, KVS_EMBED, -1, i, &error));
    free(wte), free(wpe);
  }
  for (int layer = 0; layer < config->n_layer; layer++)
    for (int i = 0; i < count; i++) ok(feed_layer(&observer, config, &steps[i], layer, &error));
  for (int i = 0; i < count; i++) {
    kvs_moment m = {.step = &steps[i], .row = -1, .logits = logits};
    ok(tell(&observer, &m, KVS_LOGITS, -1, count, &error));
    ok(observer.step_end(observer.context, &steps[i], &error));
  }
  free(logits);
  free(steps);
}

/* ---- who calls `behind` ------------------------------------------------------------------------------------------ */

enum way { NEVER, AT_ONCE, ON_A_THREAD, SETTLED_EACH, WAYS };

static sem_t left, taken;
static bool ended;

/* An engine's thread: once for each `settled`, and never two at once. */
static void *call_behind(void *argument) {
  (void)argument;
  for (;;) {
    sem_wait(&left);
    if (ended) return NULL;
    observer.behind(observer.context);
    sem_post(&taken);
  }
}

static void settle(enum way way) {
  if (way == ON_A_THREAD) sem_wait(&taken); /* the one before; the engine does not let it run past the next `settled` */
  ok(observer.settled(observer.context, &error));
  if (way == AT_ONCE) observer.behind(observer.context);
  if (way == ON_A_THREAD) sem_post(&left);
  if (way == SETTLED_EACH) ok(kvs_trace_settle(trace, &error));
}

static void write_in_a_way(const char *path, enum way way) {
  pthread_t thread;
  sem_init(&left, 0, 0), sem_init(&taken, 0, 1);
  ended = false;
  if (way == ON_A_THREAD) assert_int_equal(pthread_create(&thread, NULL, call_behind, NULL), 0);
  open_trace(path, &wide_config);
  feed_batch(&wide_config, 64);
  settle(way);
  for (int step = 64; step < 96; step++) {
    kvs_step s = made_step(step, KVS_DECODE);
    ok(feed_unsettled(&observer, &wide_config, &s, &error));
    settle(way);
    if (step % 7 == 0) ok(kvs_trace_settle(trace, &error)); /* beside the thread, which may have it or not */
  }
  ok(kvs_trace_end_run(trace, &error));
  begin_run(&wide_config);
  ok(feed_unsettled(&observer, &wide_config, &(kvs_step){.step = 0, .cache_length_after = 1}, &error));
  settle(way);
  ok(kvs_trace_end_run(trace, &error));
  if (way == ON_A_THREAD) {
    sem_wait(&taken);
    ended = true;
    sem_post(&left);
    pthread_join(thread, NULL);
  }
  ok(kvs_trace_close(trace, &error));
  sem_destroy(&left), sem_destroy(&taken);
  assert_one_file(path);
}

/* Rows that one of the files has and the other has not. */
static void assert_same(sqlite3 *db, const char *table, const char *columns) {
  char sql[600];
  for (int turn = 0; turn < 2; turn++) {
    snprintf(sql, sizeof sql, "SELECT count(*) FROM (SELECT %s FROM %s.%s EXCEPT SELECT %s FROM %s.%s)", columns,
             turn ? "main" : "other", table, columns, turn ? "other" : "main", table);
    if (number(db, sql) != 0) fail_msg("%s differs", table);
  }
  snprintf(sql, sizeof sql, "SELECT (SELECT count(*) FROM main.%s) - (SELECT count(*) FROM other.%s)", table, table);
  assert_true(number(db, sql) == 0);
  snprintf(sql, sizeof sql, "SELECT count(*) FROM main.%s", table);
  assert_true(number(db, sql) > 0);
}

/* A table's columns, all but those that say when. */
static const char *const tables[][2] = {
    {"run", "run, engine, model, n_embd, finished_at IS NULL"},
    {"step", "run, step, mode, token, source, cache_length_before, position, cache_length_after, logprob"},
    {"token", "*"},
    {"event", "*"},
    {"kv_row", "*"},
    {"head_step", "*"},
    {"head_stat", "*"},
    {"layer_step", "*"},
    {"step_vector", "*"},
    {"step_stat", "*"},
    {"top_token", "*"}};

static sqlite3 *open_beside(const char *path, const char *other) {
  sqlite3 *db;
  char sql[200];
  assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
  snprintf(sql, sizeof sql, "ATTACH '%s' AS other", other);
  execute(db, sql);
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) assert_same(db, tables[i][0], tables[i][1]);
  return db;
}

static void the_file_is_the_same_whoever_writes_it(void **state) {
  (void)state;
  char first[128];
  snprintf(first, sizeof first, "%s/way0.kvt", folder);
  for (enum way way = NEVER; way < WAYS; way++) {
    char path[128];
    snprintf(path, sizeof path, "%s/way%d.kvt", folder, (int)way);
    write_in_a_way(path, way);
    sqlite3 *db = open_beside(path, first);
    assert_int_equal(number(db, "SELECT count(*) FROM step WHERE run = 1"), 96);
    assert_int_equal(number(db, "SELECT count(*) FROM kv_row WHERE run = 1"), 4 * 96);
    assert_int_equal(number(db, "SELECT count(*) FROM event WHERE run = 1"), 64 * 30 + 32 * 31);
    assert_int_equal(number(db, "SELECT max(seq) FROM event WHERE run = 1"), 64 * 30 + 32 * 31 - 1);
    assert_true(number(db, "SELECT count(*) FROM step_vector WHERE wte IS NULL OR x IS NULL OR logits IS NULL") == 0);
    sqlite3_close(db);
  }
}

static void decode(const char *path, kvs_model *model, const kvs_tokenizer *tokenizer, int threads) {
  const kvs_engine_options options = {.threads = threads};
  const kvs_log log = {.level = KVS_LOG_FULL, .last_step = -1};
  const kvs_run_info info = {.sampling = {.top_p = 1}};
  kvs_engine *engine;
  ok(kvs_engine_create(model, &options, &engine, &error));
  ok(kvs_trace_create(path, KVS_TRACE_NEW, &trace, &error));
  ok(kvs_trace_begin_run(trace, model, tokenizer, &info, &log, NULL, &error));
  observer = kvs_trace_observer(trace);
  kvs_engine_observe(engine, &observer);
  static const int prompt[] = {5, 6, 7, 8, 9};
  ok(kvs_engine_prefill(engine, prompt, 5, KVS_PROMPT, &error));
  for (int i = 0; i < 40; i++) ok(kvs_engine_decode(engine, 3 + i % 7, KVS_FORCED, &error));
  if (threads == 2) ok(kvs_trace_end_run(trace, &error)); /* with the engine still there, or without */
  kvs_engine_observe(engine, NULL);
  if (threads != 2) ok(kvs_trace_end_run(trace, &error));
  ok(kvs_trace_close(trace, &error));
  kvs_engine_free(engine);
}

static void the_engine_writes_the_same_with_any_number_of_threads(void **state) {
  (void)state;
  kvs_model *model;
  kvs_tokenizer *tokenizer;
  char first[128];
  ok(kvs_model_open("austen", &model, &error));
  ok(kvs_tokenizer_open("austen", &tokenizer, &error));
  snprintf(first, sizeof first, "%s/threads1.kvt", folder);
  for (int threads = 1; threads <= 3; threads++) {
    char path[128];
    snprintf(path, sizeof path, "%s/threads%d.kvt", folder, threads);
    decode(path, model, tokenizer, threads);
    sqlite3 *db = open_beside(path, first);
    assert_int_equal(number(db, "SELECT count(*) FROM step"), 45);
    sqlite3_close(db);
  }
  kvs_tokenizer_free(tokenizer);
  kvs_model_free(model);
}

/* Of one head, all that is logged of it among all heads. */
static void one_head_is_what_it_is_among_all(void **state) {
  (void)state;
  static const bool heads[] = {false, true};
  const kvs_log all = {.level = KVS_LOG_ATTENTION, .last_step = -1};
  const kvs_log one = {.level = KVS_LOG_ATTENTION, .heads = heads, .last_step = -1};
  make_trace(in_folder("heads.kvt"), 5, &all);
  make_trace(in_folder("heads.kvt"), 5, &one);
  sqlite3 *db;
  ok(kvs_trace_read(in_folder("heads.kvt"), &db, &error));
  assert_int_equal(number(db, "SELECT count(*) FROM head_step WHERE run = 2"), 5 * 2);
  assert_int_equal(
      number(db, "SELECT count(*) FROM head_step AS a JOIN head_step AS b USING (step, layer, head, q, scores, "
                 "weights, out) WHERE a.run = 1 AND b.run = 2"),
      5 * 2);
  assert_int_equal(number(db, "SELECT count(*) FROM head_stat WHERE run = 2 AND head = 1"), 5 * 2);
  sqlite3_close(db);
}

/* ---- what is in the file, and when ------------------------------------------------------------------------------- */

/* A batch is far more than what is held of it. */
static void a_large_batch_is_not_held_in_memory(void **state) {
  (void)state;
  const char *path = in_folder("batch.kvt");
  sqlite3 *db;
  open_trace(path, &wide_config);
  ok(kvs_trace_read(path, &db, &error));
  feed_batch(&wide_config, 400);
  assert_true(trace->tapes[0].room + trace->tapes[1].room < 8 << 20);
  assert_int_equal(number(db, "SELECT count(*) FROM event"), 0);
  ok(kvs_trace_settle(trace, &error));
  assert_int_equal(number(db, "SELECT count(*) FROM event"), 0);
  ok(observer.settled(observer.context, &error));
  ok(kvs_trace_settle(trace, &error));
  assert_int_equal(number(db, "SELECT count(*) FROM step"), 400);
  assert_true(number(db, "SELECT sum(length(k) + length(v)) FROM kv_row") == 400 * 4 * 2 * 1024.0);
  assert_true(number(db, "SELECT sum(length(weights)) FROM head_step") == 4 * 4 * 4 * (400 * 401 / 2.0));
  assert_true(number(db, "SELECT sum(length(wte) + length(wpe) + length(x)) FROM step_vector") == 400 * 3 * 1024.0);
  sqlite3_close(db);
  close_trace();
}

/* What was written of it before it broke off is taken back. */
static void a_large_batch_that_breaks_off_leaves_nothing(void **state) {
  (void)state;
  const char *path = in_folder("broken.kvt");
  sqlite3 *db;
  open_trace(path, &wide_config);
  ok(feed(&observer, &wide_config, 0, &error));
  kvs_trace_leave_run(trace);
  begin_run(&wide_config);
  feed_batch(&wide_config, 100);
  assert_true(trace->in_transaction);
  kvs_trace_leave_run(trace);
  begin_run(&wide_config);
  feed_batch(&wide_config, 100);
  ok(kvs_trace_end_run(trace, &error));
  ok(kvs_trace_close(trace, &error));
  assert_one_file(path);
  ok(kvs_trace_read(path, &db, &error));
  assert_text(db, "SELECT group_concat(run || ':' || (finished_at IS NULL)) FROM run", "1:1,2:0");
  assert_text(db, "SELECT group_concat(run || ':' || step) FROM step", "1:0");
  assert_int_equal(number(db, "SELECT count(*) FROM event WHERE run = 2"), 0);
  assert_int_equal(number(db, "SELECT count(*) FROM kv_row"), 4);
  sqlite3_close(db);
}

static void a_step_that_waits_is_kept(void **state) {
  (void)state;
  for (int how = 0; how < 3; how++) {
    char path[128];
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/waits%d.kvt", folder, how);
    open_trace(path, &small_config);
    ok(feed(&observer, &small_config, 0, &error));
    kvs_step half = made_step(1, KVS_DECODE);
    ok(feed_layer(&observer, &small_config, &half, 0, &error));
    ok(kvs_trace_read(path, &db, &error));
    assert_int_equal(number(db, "SELECT count(*) FROM step"), 0);
    if (how == 0) ok(kvs_trace_settle(trace, &error));
    if (how == 1) kvs_trace_leave_run(trace);
    if (how == 2) begin_run(&small_config);
    assert_int_equal(number(db, "SELECT count(*) FROM step"), 1);
    assert_int_equal(number(db, "SELECT count(*) FROM kv_row"), 2);
    observer.behind(observer.context); /* has nothing to do any more */
    sqlite3_close(db);
    ok(kvs_trace_close(trace, &error));
    assert_one_file(path);
  }
}

/* Whatever is written together: who reads the file while nobody asks for it finds no more than seven steps missing. */
static void a_few_steps_wait_and_no_more(void **state) {
  (void)state;
  sqlite3 *db;
  const char *path = in_folder("few.kvt");
  open_trace(path, &small_config);
  ok(kvs_trace_read(path, &db, &error));
  for (int step = 0; step < 40; step++) {
    ok(feed(&observer, &small_config, step, &error));
    if (step % 2) observer.behind(observer.context);
    assert_in_range((int)number(db, "SELECT count(*) FROM step"), step < 7 ? 0 : step - 6, step + 1);
  }
  ok(kvs_trace_settle(trace, &error)); /* after that the next one does not wait */
  ok(feed(&observer, &small_config, 40, &error));
  observer.behind(observer.context);
  assert_int_equal(number(db, "SELECT count(*) FROM step"), 41);
  sqlite3_close(db);
  close_trace();
}

static sem_t inside;

/* Tells that a transaction is about to be committed, and is in no hurry with it. */
static int in_no_hurry(void *context) {
  (void)context;
  sem_post(&inside);
  usleep(20000);
  return 0;
}

static void *call_behind_once(void *argument) {
  (void)argument;
  observer.behind(observer.context);
  return NULL;
}

/* Feeds as many steps as make the trace hand over what it has in any case. */
static kvs_status feed_some(int first) {
  kvs_status status = KVS_OK;
  for (int i = 0; i < 4 && status == KVS_OK; i++) status = feed(&observer, &small_config, first + i, &error);
  return status;
}

/* Who needs the file while another thread writes the step waits for that thread: so does a `settled` that hands over the next ones. */
static void a_step_that_is_being_written_is_waited_for(void **state) {
  (void)state;
  const char *path = in_folder("waited.kvt");
  sqlite3 *db;
  pthread_t thread;
  sem_init(&inside, 0, 0);
  open_trace(path, &small_config);
  ok(kvs_trace_read(path, &db, &error));
  sqlite3_commit_hook(trace->db, in_no_hurry, NULL);
  for (int step = 0; step < 2; step++) {
    ok(feed(&observer, &small_config, step, &error));
    assert_int_equal(pthread_create(&thread, NULL, call_behind_once, NULL), 0);
    sem_wait(&inside);
    ok(step ? feed_some(2) : kvs_trace_settle(trace, &error));
    assert_int_equal(number(db, "SELECT count(*) FROM step"), step + 1); /* and the others still wait */
    pthread_join(thread, NULL);
  }
  sqlite3_close(db);
  sqlite3_commit_hook(trace->db, NULL, NULL);
  close_trace();
  sem_destroy(&inside);
}

/* ---- what goes wrong --------------------------------------------------------------------------------------------- */

enum call { MOMENT, STEP_END, SETTLED, SETTLE, END_RUN, BEGIN_RUN, CLOSE, CALLS };

static kvs_status make(enum call call) {
  const kvs_trace_source source = made_source(&small_config);
  kvs_step s = made_step(4, KVS_DECODE);
  kvs_moment m = {.step = &s, .phase = KVS_READ_LENGTH, .layer = -1};
  switch (call) {
  case MOMENT:
    return observer.moment(observer.context, &m, &error);
  case STEP_END:
    return observer.step_end(observer.context, &s, &error);
  case SETTLED:
    return observer.settled(observer.context, &error);
  case SETTLE:
    return kvs_trace_settle(trace, &error);
  case END_RUN:
    return kvs_trace_end_run(trace, &error);
  case BEGIN_RUN:
    return kvs_trace_begin_run_from(trace, &source, NULL, NULL, NULL, &error);
  default:
    return kvs_trace_close(trace, &error);
  }
}

/* After three steps the file is locked: the fourth is lost. */
static void lose_a_step(const char *path, bool begun, sqlite3 **lock) {
  open_trace(path, &small_config);
  for (int step = 0; step < 3; step++) ok(feed(&observer, &small_config, step, &error));
  ok(kvs_trace_settle(trace, &error));
  sqlite3_busy_timeout(trace->db, 0);
  assert_int_equal(sqlite3_open(path, lock), SQLITE_OK);
  execute(*lock, "BEGIN IMMEDIATE");
  ok(feed(&observer, &small_config, 3, &error));
  if (begun) observer.behind(observer.context);
}

/* Told once by the next call, whichever it is; then the run takes no more. */
static void an_error_is_told_by_the_next_call(void **state) {
  (void)state;
  for (enum call call = MOMENT; call < CALLS; call++) {
    char path[128];
    sqlite3 *lock, *db;
    snprintf(path, sizeof path, "%s/lost%d.kvt", folder, (int)call);
    lose_a_step(path, true, &lock);
    sqlite3_close(lock);
    error.message[0] = '\0';
    assert_status(make(call), KVS_ERR_IO, __LINE__);
    assert_says("locked by another program; steps 0..2 of run 1 are kept");
    if (call != CLOSE) {
      for (enum call next = MOMENT; next <= SETTLE; next++) {
        assert_status(make(next), KVS_ERR_USAGE, __LINE__);
        assert_says("a step of this run was lost");
      }
      ok(kvs_trace_end_run(trace, &error));
      ok(kvs_trace_close(trace, &error));
    }
    assert_one_file(path);
    ok(kvs_trace_read(path, &db, &error));
    assert_text(db, "SELECT group_concat(step) FROM step", "0,1,2");
    assert_int_equal(number(db, "SELECT count(*) FROM event"), 3 * 17);
    assert_int_equal(number(db, "SELECT count(*) FROM top_token"), 3 * 20);
    assert_true(isnan(number(db, "SELECT finished_at FROM run")));
    sqlite3_close(db);
  }
}

/* Where nobody has written it yet, a call that writes it tells it too; leaving the run does not swallow it. */
static void an_error_without_behind_is_told_too(void **state) {
  (void)state;
  for (enum call call = SETTLED; call < CALLS; call++)
    for (int leave = 0; leave < (call == SETTLE || call >= BEGIN_RUN ? 2 : 1); leave++) {
      char path[128];
      sqlite3 *lock, *db;
      snprintf(path, sizeof path, "%s/late%d%d.kvt", folder, (int)call, leave);
      lose_a_step(path, false, &lock);
      if (leave) kvs_trace_leave_run(trace);
      if (call == CLOSE) execute(lock, "COMMIT");
      if (call == CLOSE && !leave) { /* it is written after all */
        ok(make(CLOSE));
      } else {
        /* The next steps are lost with it. */
        assert_status(call == SETTLED ? feed_some(4) : make(call), KVS_ERR_IO, __LINE__);
        assert_says("locked by another program; steps 0..2 of run 1 are kept");
      }
      sqlite3_close(lock);
      if (call != CLOSE) ok(kvs_trace_close(trace, &error));
      ok(kvs_trace_read(path, &db, &error));
      assert_text(db, "SELECT group_concat(step) FROM step", call == CLOSE && !leave ? "0,1,2,3" : "0,1,2");
      sqlite3_close(db);
    }
}

/* What still holds the file at the end was told, with what it means: that the file is in two parts. */
static void a_lock_is_told_once(void **state) {
  (void)state;
  sqlite3 *lock, *db;
  const char *path = in_folder("held.kvt");
  lose_a_step(path, true, &lock);
  assert_status(make(SETTLE), KVS_ERR_IO, __LINE__);
  assert_says("locked by another program; steps 0..2 of run 1 are kept (if there is a -wal file beside the trace, keep "
              "that too)");
  ok(kvs_trace_end_run(trace, &error));
  ok(kvs_trace_close(trace, &error));
  assert_true(exists(path, "-wal"));
  sqlite3_close(lock);
  ok(kvs_trace_read(path, &db, &error));
  assert_text(db, "SELECT group_concat(step) FROM step", "0,1,2");
  sqlite3_close(db);
}

/* But not where it comes after the file was free again. */
static void a_lock_after_a_lost_step_is_told_anew(void **state) {
  (void)state;
  sqlite3 *lock;
  const char *path = in_folder("anew.kvt");
  lose_a_step(path, true, &lock);
  assert_status(make(SETTLE), KVS_ERR_IO, __LINE__);
  assert_int_equal(sqlite3_exec(lock, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
  begin_run(&small_config);
  ok(feed(&observer, &small_config, 0, &error));
  ok(kvs_trace_end_run(trace, &error));
  assert_int_equal(sqlite3_exec(lock, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
  assert_status(kvs_trace_close(trace, &error), KVS_ERR_IO, __LINE__);
  assert_says("still open in another program");
  sqlite3_close(lock);
}

/* Where the lock comes after the last step, the run can still be ended once the file is free. */
static void a_run_is_ended_at_the_second_try(void **state) {
  (void)state;
  const char *path = in_folder("twice.kvt");
  sqlite3 *lock, *db;
  open_trace(path, &small_config);
  for (int step = 0; step < 3; step++) ok(feed(&observer, &small_config, step, &error));
  ok(kvs_trace_settle(trace, &error));
  sqlite3_busy_timeout(trace->db, 0);
  assert_int_equal(sqlite3_open(path, &lock), SQLITE_OK);
  execute(lock, "BEGIN IMMEDIATE");
  for (int i = 0; i < 2; i++) {
    assert_status(kvs_trace_end_run(trace, &error), KVS_ERR_IO, __LINE__);
    assert_says("locked by another program; steps 0..2 of run 1 are kept");
  }
  sqlite3_close(lock);
  ok(kvs_trace_end_run(trace, &error));
  ok(kvs_trace_close(trace, &error));
  assert_one_file(path);
  ok(kvs_trace_read(path, &db, &error));
  assert_text(db, "SELECT group_concat(step) FROM step", "0,1,2");
  assert_true(number(db, "SELECT finished_at IS NOT NULL FROM run") == 1);
  sqlite3_close(db);
}

/* SQLite's sleep while it waits for a lock: it takes no time here, and the first one is when the signal comes. */
static volatile sig_atomic_t caught;
static int slept;

static int signal_while_asleep(sqlite3_vfs *vfs, int microseconds) {
  (void)vfs;
  if (slept++ == 0) caught = SIGTERM;
  return microseconds;
}

/* Without the flag every wait is gone through; with it the one that is going on is the last. */
static void a_signal_ends_the_wait_for_a_lock(void **state) {
  (void)state;
  const char *path = in_folder("signal.kvt");
  sqlite3 *lock;
  sqlite3_vfs sleepless = *sqlite3_vfs_find(NULL);
  kvs_trace_source source = made_source(&small_config);
  make_trace(path, 1, NULL);
  sleepless.zName = "sleepless", sleepless.xSleep = signal_while_asleep;
  assert_int_equal(sqlite3_vfs_register(&sleepless, 1), SQLITE_OK);
  assert_int_equal(sqlite3_open(path, &lock), SQLITE_OK);
  execute(lock, "BEGIN EXCLUSIVE");
  for (int flagged = 0; flagged < 2; flagged++) {
    caught = 0, slept = 0;
    ok(kvs_trace_create(path, KVS_TRACE_APPEND, &trace, &error));
    if (flagged) kvs_trace_interrupted_by(trace, &caught);
    assert_status(kvs_trace_begin_run_from(trace, &source, NULL, NULL, NULL, &error), KVS_ERR_IO, __LINE__);
    assert_says("locked by another program");
    assert_true(flagged ? slept == 1 : slept > 100);
    kvs_trace_close(trace, NULL);
  }
  sqlite3_close(lock);
  sqlite3_vfs_unregister(&sleepless);
  caught = 0;
  make_trace(path, 1, NULL); /* nothing is left of it */
}

/* A new run of the same trace takes steps again. */
static void after_an_error_a_new_run_begins(void **state) {
  (void)state;
  const char *path = in_folder("again.kvt");
  sqlite3 *lock, *db;
  lose_a_step(path, true, &lock);
  sqlite3_close(lock);
  assert_status(make(SETTLED), KVS_ERR_IO, __LINE__);
  begin_run(&small_config);
  ok(feed(&observer, &small_config, 0, &error));
  close_trace();
  ok(kvs_trace_read(path, &db, &error));
  assert_text(db, "SELECT group_concat(run || ':' || step) FROM step", "1:0,1:1,1:2,2:0");
  sqlite3_close(db);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_file_is_the_same_whoever_writes_it),
      cmocka_unit_test(the_engine_writes_the_same_with_any_number_of_threads),
      cmocka_unit_test(one_head_is_what_it_is_among_all),
      cmocka_unit_test(a_large_batch_is_not_held_in_memory),
      cmocka_unit_test(a_large_batch_that_breaks_off_leaves_nothing),
      cmocka_unit_test(a_step_that_waits_is_kept),
      cmocka_unit_test(a_few_steps_wait_and_no_more),
      cmocka_unit_test(a_step_that_is_being_written_is_waited_for),
      cmocka_unit_test(an_error_is_told_by_the_next_call),
      cmocka_unit_test(an_error_without_behind_is_told_too),
      cmocka_unit_test(a_lock_is_told_once),
      cmocka_unit_test(a_lock_after_a_lost_step_is_told_anew),
      cmocka_unit_test(a_run_is_ended_at_the_second_try),
      cmocka_unit_test(a_signal_ends_the_wait_for_a_lock),
      cmocka_unit_test(after_an_error_a_new_run_begins),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
