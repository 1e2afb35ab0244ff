/* test_trace.c: what the writer writes, the views show: every number by hand, in plain SQL and with the extension. */
#include "trace_maker.h"

static sqlite3 *db;

/* Both ways: `main.` is plain SQL, `temp.` the extension's. */
static const char *const ways[] = {"main", "temp"};

static char sql[1024];
#define SQL(...) (snprintf(sql, sizeof sql, __VA_ARGS__), sql)

static int open_trace(void **state) {
  if (make_folder(state)) return -1;
  kvs_log log = {.level = KVS_LOG_FULL, .last_step = -1};
  make_trace(in_folder("a.kvt"), 6, &log);
  return kvs_trace_read(in_folder("a.kvt"), &db, &error);
}

static int close_trace(void **state) {
  sqlite3_close(db);
  return remove_folder(state);
}

static void attention_is_what_was_computed(void **state) {
  (void)state;
  for (int w = 0; w < 2; w++)
    for (int head = 0; head < 2; head++) {
      float *scores = fill(SCORES, 4, 1, 10), weights[10];
      softmax_rows(scores, weights, 2, 5);
      for (int row = 0; row < 5; row++) {
        const char *key = "run = 1 AND step = 4 AND layer = 1";
        double score = number(
            db, SQL("SELECT score FROM %s.attention WHERE %s AND head = %d AND row = %d", ways[w], key, head, row));
        double weight = number(
            db, SQL("SELECT weight FROM %s.attention WHERE %s AND head = %d AND row = %d", ways[w], key, head, row));
        assert_true(score == (double)scores[head * 5 + row]);
        assert_true(weight == (double)weights[head * 5 + row]);
        char letter[2] = {(char)('a' + row), 0};
        assert_text(
            db,
            SQL("SELECT row_token_text FROM %s.attention WHERE %s AND head = %d AND row = %d", ways[w], key, head, row),
            letter);
      }
      free(scores);
    }
  assert_int_equal(number(db, "SELECT count(*) FROM main.attention"), 2 * 2 * (1 + 2 + 3 + 4 + 5 + 6));
  assert_int_equal(number(db, "SELECT count(*) FROM temp.attention"), 2 * 2 * (1 + 2 + 3 + 4 + 5 + 6));
}

static void cache_and_query_are_what_was_computed(void **state) {
  (void)state;
  for (int w = 0; w < 2; w++) {
    for (int i = 0; i < 8; i++) {
      const char *key = SQL("run = 1 AND layer = 1 AND head = %d AND dim = %d", i / 4, i % 4);
      char where[128];
      strcpy(where, key);
      assert_true(number(db, SQL("SELECT k FROM %s.cache WHERE %s AND row = 3", ways[w], where)) ==
                  (double)made(K, 3, 1, i));
      assert_true(number(db, SQL("SELECT v FROM %s.cache WHERE %s AND row = 3", ways[w], where)) ==
                  (double)made(V, 3, 1, i));
      assert_true(number(db, SQL("SELECT q FROM %s.query_vector WHERE %s AND step = 3", ways[w], where)) ==
                  (double)made(Q, 3, 1, i));
      assert_true(number(db, SQL("SELECT out FROM %s.query_vector WHERE %s AND step = 3", ways[w], where)) ==
                  (double)made(OUT, 3, 1, i));
    }
    assert_true(number(db, SQL("SELECT logit FROM %s.logit WHERE run = 1 AND step = 2 AND token = 7", ways[w])) ==
                (double)made(LOGITS, 2, 0, 7));
    assert_text(db, SQL("SELECT token_text FROM %s.cache WHERE row = 2 LIMIT 1", ways[w]), "c");
  }
}

static void check_summary(const char *way) {
  for (int step = 0; step < 6; step++) {
    int rows = step + 1, best = 0;
    float *scores = fill(SCORES, step, 1, 2 * rows), weights[12];
    softmax_rows(scores, weights, 2, rows);
    const float *w = weights + rows; /* head 1 */
    double entropy = 0, sum = 0;
    for (int i = 0; i < rows; i++) {
      entropy -= (double)w[i] * log((double)w[i]), sum += (double)w[i];
      if (w[i] > w[best]) best = i;
    }
    char from[160];
    snprintf(from, sizeof from, "FROM %s.head_summary WHERE run = 1 AND step = %d AND layer = 1 AND head = 1", way,
             step);
    assert_close(number(db, SQL("SELECT entropy %s", from)), entropy, 1e-14, __LINE__);
    assert_close(number(db, SQL("SELECT weight_sum %s", from)), sum, 1e-15, __LINE__);
    assert_true(number(db, SQL("SELECT max_weight %s", from)) == (double)w[best]);
    assert_true(number(db, SQL("SELECT max_row %s", from)) == best);
    assert_true(number(db, SQL("SELECT self_weight %s", from)) == (double)w[step]);
    assert_true(number(db, SQL("SELECT first_weight %s", from)) == (double)w[0]);
    double previous = number(db, SQL("SELECT previous_weight %s", from));
    assert_true(step ? previous == (double)w[step - 1] : isnan(previous));
    float *logits = fill(LOGITS, step, 0, 30);
    double reckoned = number(db, SQL("SELECT entropy FROM %s.step_summary WHERE run = 1 AND step = %d", way, step));
    assert_close(reckoned, kvs_entropy(logits, 30), 1e-13, __LINE__);
    free(scores), free(logits);
  }
}

/* Stored, then reckoned from the BLOBs: a copy of the file without the stored numbers must say the same. */
static void summaries_are_right_both_stored_and_reckoned(void **state) {
  (void)state;
  for (int w = 0; w < 2; w++) check_summary(ways[w]);
  sqlite3 *stored = db;
  execute(db, SQL("VACUUM INTO '%s'", in_folder("bare.kvt")));
  sqlite3 *writable;
  sqlite3_open(in_folder("bare.kvt"), &writable);
  execute(writable, "DELETE FROM head_stat; DELETE FROM step_stat");
  sqlite3_close(writable);
  ok(kvs_trace_read(in_folder("bare.kvt"), &db, &error));
  for (int w = 0; w < 2; w++) check_summary(ways[w]);
  assert_int_equal(number(db, "SELECT count(*) FROM main.head_summary"), 24);
  execute(db, SQL("ATTACH '%s' AS whole", in_folder("a.kvt"))); /* with the SQL functions, to the bit */
  assert_int_equal(number(db,
                          "SELECT count(*) FROM temp.head_summary AS r JOIN whole.head_summary AS s USING (run, step, "
                          "layer, head) WHERE r.entropy = s.entropy AND r.weight_sum = s.weight_sum AND r.max_weight = "
                          "s.max_weight AND r.max_row = s.max_row"),
                   24);
  sqlite3_close(db);
  db = stored;
}

static void steps_events_and_tokens(void **state) {
  (void)state;
  assert_text(
      db, "SELECT group_concat(phase || ifnull(layer, ''), ' ') FROM (SELECT * FROM event WHERE step = 1 ORDER BY seq)",
      "read_length embed project0 append0 score0 softmax0 mix0 output0 mlp0 project1 append1 score1 softmax1 mix1 "
      "output1 mlp1 logits");
  assert_int_equal(number(db, "SELECT max(seq) FROM event"), 6 * 17 - 1);
  assert_int_equal(number(db, "SELECT count(DISTINCT seq) FROM event"), 6 * 17);
  assert_int_equal(number(db, "SELECT count(*) FROM token"), 30);
  assert_text(db, "SELECT typeof(bytes) || text FROM token WHERE token = 29", "null#29");
  assert_int_equal(number(db, "SELECT count(*) FROM top_token WHERE step = 3"), 20);
  assert_true(isnan(number(db, "SELECT logprob FROM step WHERE step = 0")));
  assert_true(number(db, "SELECT logprob FROM step WHERE step = 3") == -1.5);
  for (int w = 0; w < 2; w++) {
    assert_text(db, SQL("SELECT chosen_token_text FROM %s.step_summary WHERE step = 2", ways[w]), "d");
    assert_true(isnan(number(db, SQL("SELECT chosen_token_text FROM %s.step_summary WHERE step = 5", ways[w]))));
  }
  float *logits = fill(LOGITS, 3, 0, 30);
  int best = (int)number(db, "SELECT token FROM top_token WHERE step = 3 AND rank = 1");
  for (int i = 0; i < 30; i++) assert_true(logits[i] <= logits[best]);
  assert_close(number(db, "SELECT probability FROM top_token WHERE step = 3 AND rank = 1"),
               exp(kvs_logprob(logits, 30, best)), 1e-15, __LINE__);
  int ninth = (int)number(db, "SELECT token FROM top_token WHERE step = 3 AND rank = 9");
  assert_close(number(db, "SELECT probability FROM top_token WHERE step = 3 AND rank = 9"),
               exp(kvs_logprob(logits, 30, ninth)), 1e-14, __LINE__);
  free(logits);
  assert_true(number(db, "SELECT f32(mlp_out, 5) FROM layer_step WHERE step = 2 AND layer = 1") ==
              (double)made(MLP_OUT, 2, 1, 5));
  assert_true(number(db, "SELECT f32(wpe, 5) FROM step_vector WHERE step = 2") == (double)made(WPE, 2, 0, 5));
  assert_text(db, "SELECT fault || engine FROM run", "nonekvstep");
  assert_int_equal(number(db, "SELECT finished_at GLOB '20[0-9][0-9]-*T*Z' FROM run"), 1);
}

static void views_have_the_promised_columns(void **state) {
  (void)state;
  static const char *const promised[][2] = {
      {"run",
       "run,created_at,finished_at,engine,engine_version,command,model,model_sha256,n_layer,n_head,n_embd,head_dim,"
       "n_ctx,n_vocab,fault,fault_from_step,seed,temperature,top_k,top_p,prompt"},
      {"token", "token,bytes,text"},
      {"step", "run,step,mode,token,source,cache_length_before,position,cache_length_after,logprob,seconds"},
      {"event", "run,step,seq,phase,layer,cache_length"},
      {"kv_row", "run,layer,row,step,k,v"},
      {"head_step", "run,step,layer,head,q,scores,weights,out"},
      {"layer_step", "run,step,layer,x_in,attn_out,x_mid,mlp_out,x_out"},
      {"step_vector", "run,step,wte,wpe,x,logits"},
      {"attention", "run,step,position,token_text,layer,head,row,row_token_text,score,weight"},
      {"cache", "run,layer,head,row,step,token_text,dim,k,v"},
      {"query_vector", "run,step,layer,head,dim,q,out"},
      {"top_token", "run,step,rank,token,token_text,logit,probability"},
      {"rule", "run,step,cache_length_before,position,off_by,verdict"},
      {"head_summary",
       "run,step,layer,head,entropy,max_weight,max_row,self_weight,first_weight,previous_weight,weight_sum"},
      {"step_summary", "run,step,mode,token_text,position,chosen_token_text,logprob,entropy,top_token_text"},
      {"divergence", "run_a,run_b,step,kl,max_abs_logit,top1_same,logprob_a,logprob_b,attention_distance"}};
  for (size_t i = 0; i < sizeof promised / sizeof *promised; i++)
    for (int w = 0; w < 2; w++) {
      if (w && number(db, SQL("SELECT count(*) FROM sqlite_temp_schema WHERE name = '%s'", promised[i][0])) == 0)
        continue;
      assert_text(db,
                  SQL("SELECT group_concat(name) FROM (SELECT name FROM pragma_table_info('%s', '%s') ORDER BY cid)",
                      promised[i][0], ways[w]),
                  promised[i][1]);
    }
}

static void views_search_by_key(void **state) {
  (void)state;
  static const char *const queries[] = {
      "SELECT * FROM %s.attention WHERE run = 1 AND step = 4 AND layer = 1 AND head = 1",
      "SELECT * FROM %s.head_summary WHERE run = 1 AND step = 4 AND layer = 1 AND head = 1",
      "SELECT * FROM %s.query_vector WHERE run = 1 AND step = 4 AND layer = 1 AND head = 1"};
  for (int w = 0; w < 2; w++)
    for (int q = 0; q < 3; q++) {
      char query[256], plan[4096] = "";
      snprintf(query, sizeof query, queries[q], ways[w]);
      sqlite3_stmt *statement;
      sqlite3_prepare_v2(db, SQL("EXPLAIN QUERY PLAN %s", query), -1, &statement, NULL);
      while (sqlite3_step(statement) == SQLITE_ROW) {
        const char *line = (const char *)sqlite3_column_text(statement, 3);
        if (strlen(plan) + strlen(line) + 2 < sizeof plan) strcat(strcat(plan, line), "\n");
      }
      sqlite3_finalize(statement);
      if (!strstr(plan, "SEARCH h USING INDEX sqlite_autoindex_head_step_1 (run=? AND step=? AND layer=? AND head=?)"))
        fail_msg("%s\n%s", query, plan);
    }
}

static void the_rule_gets_its_verdict(void **state) {
  (void)state;
  kvs_trace *trace;
  kvs_trace_source source = made_source(&small_config);
  ok(kvs_trace_create(in_folder("rule.kvt"), KVS_TRACE_NEW, &trace, &error));
  ok(kvs_trace_begin_run_from(trace, &source, NULL, NULL, NULL, &error));
  kvs_observer observer = kvs_trace_observer(trace);
  static const int positions[] = {0, 2, 0, -1, 2, 5};
  for (int i = 0; i < 6; i++) {
    kvs_step s = made_step(i, KVS_DECODE);
    s.position = positions[i];
    ok(feed_unsettled(&observer, &small_config, &s, &error));
    ok(observer.settled(observer.context, &error));
  }
  ok(kvs_trace_close(trace, &error));
  sqlite3 *rule;
  ok(kvs_trace_read(in_folder("rule.kvt"), &rule, &error));
  assert_text(rule, "SELECT group_concat(ifnull(off_by, 'NULL') || ' ' || verdict, ', ') FROM rule",
              "0 ok, 1 one too far, -2 reset to 0, NULL wrong, -2 wrong, 0 ok");
  assert_text(rule, "SELECT typeof(wpe) FROM step_vector WHERE step = 3", "null");
  assert_true(isnan(number(rule, "SELECT finished_at FROM run")));
  sqlite3_close(rule);
}

static void the_log_filter_leaves_out(void **state) {
  (void)state;
  bool layers[] = {false, true}, heads[] = {true, false};
  kvs_log log = {KVS_LOG_ATTENTION, layers, heads, 2, 3};
  make_trace(in_folder("some.kvt"), 5, &log);
  kvs_log least = {.level = KVS_LOG_STEPS, .last_step = -1};
  make_trace(in_folder("some.kvt"), 2, &least);
  sqlite3 *some;
  ok(kvs_trace_read(in_folder("some.kvt"), &some, &error));
  assert_text(some, "SELECT group_concat(step || '.' || layer || '.' || head) FROM head_step", "2.1.0,3.1.0");
  assert_text(some, "SELECT group_concat(step || '.' || layer) FROM kv_row", "2.1,3.1");
  assert_text(some, "SELECT group_concat(step) FROM step_vector", "2,3");
  assert_int_equal(number(some, "SELECT count(*) FROM layer_step"), 0);
  assert_int_equal(number(some, "SELECT count(*) FROM step"), 7);
  assert_int_equal(number(some, "SELECT count(*) FROM event WHERE run = 2"), 34);
  /* Row 0 was not logged, and its token is known all the same. */
  for (int w = 0; w < 2; w++)
    assert_text(some, SQL("SELECT group_concat(row_token_text, '') FROM %s.attention WHERE step = 3", ways[w]), "abcd");
  assert_text(
      some,
      "SELECT group_concat(a.token = b.token) FROM step AS a JOIN step AS b USING (step) WHERE a.run = 1 AND b.run = 2",
      "1,1");
  sqlite3_close(some);
}

static void the_file_is_clean(void **state) {
  (void)state;
  assert_one_file(in_folder("a.kvt"));
  assert_text(db, "PRAGMA integrity_check", "ok");
  assert_int_equal(number(db, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
  assert_text(db, "PRAGMA journal_mode", "delete");
  assert_true(number(db, "PRAGMA application_id") == KVS_TRACE_APPLICATION_ID);
  assert_int_equal(number(db, "PRAGMA user_version"), 1);
  assert_int_not_equal(sqlite3_exec(db, "DELETE FROM run", NULL, NULL, NULL), SQLITE_OK);
}

/* A batch is one transaction, its moments come layer by layer, and seq tells their real order. */
static void a_batch_is_one_transaction(void **state) {
  (void)state;
  kvs_trace *trace;
  kvs_trace_source source = made_source(&small_config);
  ok(kvs_trace_create(in_folder("batch.kvt"), KVS_TRACE_NEW, &trace, &error));
  ok(kvs_trace_begin_run_from(trace, &source, &(kvs_run_info){.prompt = "a\xFF", .prompt_length = 2}, NULL, NULL,
                              &error));
  kvs_observer o = kvs_trace_observer(trace);
  kvs_step steps[] = {made_step(0, KVS_PREFILL), made_step(1, KVS_PREFILL)};
  float *x = fill(X, 0, 0, 8), *logits = fill(LOGITS, 0, 0, 30);
  logits[3] = logits[9] = 5, logits[4] = NAN;
  for (int i = 0; i < 2; i++) {
    kvs_moment m = {.step = &steps[i], .wte = x, .wpe = x, .x = x};
    ok(tell(&o, &m, KVS_EMBED, -1, i, &error));
  }
  sqlite3 *reader;
  ok(kvs_trace_read(in_folder("batch.kvt"), &reader, &error));
  for (int layer = 0; layer < 2; layer++)
    for (int i = 0; i < 2; i++) ok(feed_layer(&o, &small_config, &steps[i], layer, &error));
  for (int i = 0; i < 2; i++) {
    kvs_moment m = {.step = &steps[i], .logits = logits};
    ok(tell(&o, &m, KVS_LOGITS, -1, 2, &error));
  }
  ok(o.step_end(o.context, &steps[0], &error));
  assert_int_equal(number(reader, "SELECT count(*) FROM step"), 0);
  ok(o.step_end(o.context, &steps[1], &error));
  assert_int_equal(number(reader, "SELECT count(*) FROM event"), 0);
  ok(o.settled(o.context, &error));
  ok(kvs_trace_settle(trace, &error));
  assert_int_equal(number(reader, "SELECT count(*) FROM step"), 2);
  assert_text(reader, "SELECT group_concat(step, '') FROM (SELECT step FROM event WHERE phase = 'append' ORDER BY seq)",
              "0101");
  assert_text(reader,
              "SELECT group_concat(token) FROM (SELECT token FROM top_token WHERE step = 0 AND rank < 3 ORDER BY rank)",
              "3,9");
  assert_true(isnan(number(reader, "SELECT logit FROM main.logit WHERE step = 0 AND token = 4")));
  assert_true(isnan(number(reader, "SELECT logit FROM temp.logit WHERE step = 0 AND token = 4")));
  assert_text(reader, "SELECT typeof(prompt) FROM run", "blob");
  sqlite3_close(reader);
  free(x), free(logits);
  ok(kvs_trace_close(trace, &error));
  assert_one_file(in_folder("batch.kvt"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(attention_is_what_was_computed),
      cmocka_unit_test(cache_and_query_are_what_was_computed),
      cmocka_unit_test(summaries_are_right_both_stored_and_reckoned),
      cmocka_unit_test(steps_events_and_tokens),
      cmocka_unit_test(views_have_the_promised_columns),
      cmocka_unit_test(views_search_by_key),
      cmocka_unit_test(the_rule_gets_its_verdict),
      cmocka_unit_test(the_log_filter_leaves_out),
      cmocka_unit_test(the_file_is_clean),
      cmocka_unit_test(a_batch_is_one_transaction),
  };
  return cmocka_run_group_tests(tests, open_trace, close_trace);
}
