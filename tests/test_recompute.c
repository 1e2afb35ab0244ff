/* test_recompute.c: real runs of the engine, right ones, with every fault, and altered by hand, worked out again from the weights. What is
 * expected is known from how the run was made, or worked out here in double from the formulas. */
#include "trace_maker.h"

#include <sqlite3.h>

#include "base/half.h"
#include "study/check/recompute.h"
#include "tests/support/memory_model.h"

static struct recompute *recompute;
static struct look *look;
static struct facts facts;

/* ---- making traces ---- */

static const unsigned char *no_text(const void *context, int token, size_t *length) {
  (void)context, (void)token;
  *length = 0;
  return NULL;
}

struct feed {
  int prompt, steps; /* tokens of the prompt, and those decoded after it */
  bool singly;       /* the prompt's too */
  const char *fault;
  int from;
  const kvs_log *log;
};

static int token_at(const kvs_model *model, int i) { return (i * 7 + i * i * 3 + 5) % model->config.n_vocab; }

/* Teacher-forced, so that the tokens do not depend on what is right. */
static void run_engine(const kvs_model *model, const struct feed *f, kvs_trace *trace) {
  kvs_engine *engine;
  ok(kvs_engine_create(model, NULL, &engine, &error));
  kvs_observer observer = kvs_trace_observer(trace);
  kvs_engine_observe(engine, &observer);
  if (f->fault) assert_non_null(kvs_fault_find(f->fault));
  if (f->fault) kvs_engine_fault(engine, kvs_fault_find(f->fault), f->from);
  int tokens[2048];
  for (int i = 0; i < f->prompt + f->steps; i++) tokens[i] = token_at(model, i);
  if (!f->singly) ok(kvs_engine_prefill(engine, tokens, f->prompt, KVS_PROMPT, &error));
  for (int i = f->singly ? 0 : f->prompt; i < f->prompt + f->steps; i++) {
    kvs_status status = kvs_engine_decode(engine, tokens[i], i < f->prompt ? KVS_PROMPT : KVS_FORCED, &error);
    if (status == KVS_ERR_CONTEXT) break; /* a position past the table: a fault may end the run */
    ok(status);
  }
  kvs_engine_free(engine);
}

static void make(const kvs_model *model, const struct feed *f) {
  kvs_trace *trace;
  kvs_trace_source source = {&model->config, "made", "00ff", model->config.n_vocab, no_text, NULL, NULL, NULL};
  ok(kvs_trace_create(in_folder("a.db"), KVS_TRACE_REPLACE, &trace, &error));
  ok(kvs_trace_begin_run_from(trace, &source, NULL, f->log, NULL, &error));
  run_engine(model, f, trace);
  ok(kvs_trace_end_run(trace, &error));
  ok(kvs_trace_close(trace, &error));
}

static void sql(const char *statements) { alter(in_folder("a.db"), statements); }

/* Changes every number of a table's column. */
static void change(const char *select, const char *update, float (*how)(float value, unsigned long long *state)) {
  sqlite3 *db;
  sqlite3_stmt *read, *write;
  unsigned long long state = 9;
  assert_int_equal(sqlite3_open(in_folder("a.db"), &db), SQLITE_OK);
  execute(db, "BEGIN");
  assert_int_equal(sqlite3_prepare_v2(db, select, -1, &read, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_prepare_v2(db, update, -1, &write, NULL), SQLITE_OK);
  while (sqlite3_step(read) == SQLITE_ROW) {
    int bytes = sqlite3_column_bytes(read, 1);
    float values[4096];
    assert_true(bytes <= (int)sizeof values);
    memcpy(values, sqlite3_column_blob(read, 1), (size_t)bytes);
    for (int i = 0; i < bytes / 4; i++) values[i] = how(values[i], &state);
    sqlite3_bind_int64(write, 1, sqlite3_column_int64(read, 0));
    sqlite3_bind_blob(write, 2, values, bytes, SQLITE_TRANSIENT);
    assert_int_equal(sqlite3_step(write), SQLITE_DONE);
    sqlite3_reset(write);
  }
  sqlite3_finalize(read), sqlite3_finalize(write);
  execute(db, "COMMIT");
  sqlite3_close(db);
}

static void change_cache(float (*how)(float value, unsigned long long *state)) {
  change("SELECT rowid, k FROM kv_row", "UPDATE kv_row SET k = ?2 WHERE rowid = ?1", how);
  change("SELECT rowid, v FROM kv_row", "UPDATE kv_row SET v = ?2 WHERE rowid = ?1", how);
}

/* To the nearest number with so many bits of fraction. */
static float to_bits(float value, int bits) {
  if (value == 0) return 0;
  int exponent;
  double fraction = frexp((double)value, &exponent);
  return (float)ldexp(rint(ldexp(fraction, bits)), exponent - bits);
}
static float as_is(float v, unsigned long long *state) { return (void)state, v; }
static float as_f16(float v, unsigned long long *state) { return (void)state, to_bits(v, 11); }
static float as_bf16(float v, unsigned long long *state) { return (void)state, to_bits(v, 8); }
static float drifted(float v, unsigned long long *state) { return v * (1 + 1e-4f * memory_random(state)); }

/* ---- checking ---- */

static void shut(void) {
  recompute_close(recompute), look_close(look), facts_free(&facts);
  recompute = NULL, look = NULL;
}

/* Works the whole trace out again; the reach is added up. */
static struct recompute_reach check(const kvs_model *model) {
  sqlite3 *db;
  double tolerance;
  struct recompute_reach sum = {0};
  shut();
  ok(kvs_trace_read(in_folder("a.db"), &db, &error));
  ok(look_open(db, &look, &error));
  ok(recompute_open(model, &recompute, &error));
  ok(recompute_calibrate(recompute, look, 1, &tolerance, &error));
  assert_true(tolerance > 0 && tolerance < 0.5);
  for (int step = 0; step < look_run(look, 1)->steps; step++) {
    ok(recompute_step(recompute, look, 1, step, &facts, &error));
    struct recompute_reach reach = recompute_reached(recompute);
    sum.position = (step == 0 || sum.position) && reach.position;
    sum.logits = (step == 0 || sum.logits) && reach.logits;
    sum.layers += reach.layers;
  }
  const char *said = look_error(look);
  if (said) fail_msg("%s", said);
  return sum;
}

static const char *name_of(enum fact_kind kind) {
  static const char *const names[] = {
#define NAME(id, rule, meaning) #id,
      FACTS(NAME)
#undef NAME
  };
  return names[kind];
}

static void no_facts(const char *what, int line) {
  for (size_t i = 0; i < facts.count; i++)
    print_error("%s: %s at step %d, layer %d: found %g, distance %g\n", what, name_of(facts.at[i].kind),
                facts.at[i].step, facts.at[i].layer, facts.at[i].found, facts.at[i].distance);
  if (facts.count > 0) fail_msg("line %d, %s: %zu facts", line, what, facts.count);
}
#define assert_clean(what) no_facts(what, __LINE__)

static void only(enum fact_kind kind, int count, const char *what, int line) {
  int found = 0;
  for (size_t i = 0; i < facts.count; i++) {
    if (facts.at[i].kind != kind)
      fail_msg("line %d, %s: %s at step %d, layer %d", line, what, name_of(facts.at[i].kind), facts.at[i].step,
               facts.at[i].layer);
    found++;
  }
  if (count >= 0 && found != count) fail_msg("line %d, %s: %d facts, not %d", line, what, found, count);
}
#define assert_only(kind, count, what) only(kind, count, what, __LINE__)

static const struct fact *fact_of(enum fact_kind kind) {
  for (size_t i = 0; i < facts.count; i++)
    if (facts.at[i].kind == kind) return &facts.at[i];
  fail_msg("no fact %s among %zu", name_of(kind), facts.count);
  return NULL;
}

/* ---- models ---- */

static const kvs_config shapes[] = {
    {.n_layer = 3, .n_head = 4, .n_embd = 48, .n_ctx = 40, .n_vocab = 61, .scale_attn_weights = true, .tied = true},
    {.n_layer = 2,
     .n_head = 3,
     .n_embd = 27,
     .n_ctx = 33,
     .n_vocab = 53,
     .n_inner = 31,
     .activation = KVS_RELU,
     .scale_attn_weights = true,
     .scale_attn_by_inverse_layer_idx = true},
    {.n_layer = 1,
     .n_head = 2,
     .n_embd = 34,
     .n_ctx = 30,
     .n_vocab = 47,
     .activation = KVS_GELU,
     .tied = true,
     .scale_attn_weights = true},
    {.n_layer = 12, .n_head = 4, .n_embd = 64, .n_ctx = 36, .n_vocab = 99, .tied = true, .scale_attn_weights = true},
    {.n_layer = 48, .n_head = 2, .n_embd = 32, .n_ctx = 36, .n_vocab = 99, .tied = true, .scale_attn_weights = true},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };
static const kvs_dtype dtypes[SHAPES] = {KVS_F32, KVS_F16, KVS_BF16, KVS_F32, KVS_F32};
static const char *const builtin[] = {"reverse", "austen"};

/* Each model in turn. */
static void with_models(void (*test)(const kvs_model *model, const char *name)) {
  for (int i = 0; i < SHAPES; i++) {
    char name[32];
    snprintf(name, sizeof name, "shape %d", i);
    kvs_model *model = memory_model(shapes[i], dtypes[i], (unsigned)i + 3);
    test(model, name);
    shut();
    memory_model_free(model);
  }
  for (int i = 0; i < 2; i++) {
    kvs_model *model;
    ok(kvs_model_open(builtin[i], &model, &error));
    test(model, builtin[i]);
    shut();
    kvs_model_free(model);
  }
}

/* ---- clean ---- */

static void clean_run(const kvs_model *model, const char *name) {
  static float (*const storage[])(float, unsigned long long *) = {as_is, drifted, as_f16, as_bf16};
  static const enum recompute_storage stored[] = {STORAGE_F32, STORAGE_F32, STORAGE_F16, STORAGE_BF16};
  for (int singly = 0; singly < 2; singly++)
    for (int i = 0; i < 4; i++) {
      make(model, &(struct feed){.prompt = 12, .steps = 14, .singly = singly});
      if (i > 0) change_cache(storage[i]);
      struct recompute_reach reach = check(model);
      assert_clean(name);
      assert_int_equal(recompute_stored_as(recompute), stored[i]);
      assert_true(reach.position);
      if (i < 2) assert_true(reach.logits);
      if (i < 2) assert_int_equal(reach.layers, 26 * model->config.n_layer);
    }
}

static void clean_runs_have_no_facts(void **state) {
  (void)state;
  with_models(clean_run);
}

static void half_the_layers_are_seen_half(void **state) {
  (void)state;
  kvs_model *model = memory_model(shapes[0], KVS_F32, 3);
  static const bool first_two[] = {true, true, false}, ends[] = {true, false, true};
  kvs_log log = {.level = KVS_LOG_ATTENTION, .layers = first_two, .last_step = -1};
  make(model, &(struct feed){.prompt = 6, .steps = 6, .log = &log});
  struct recompute_reach reach = check(model);
  assert_clean("layers 0 and 1");
  assert_int_equal(reach.layers, 12); /* layer 0's attention, seen in layer 1's rows */
  assert_false(reach.logits);
  log = (kvs_log){.level = KVS_LOG_FULL, .layers = ends, .last_step = -1};
  make(model, &(struct feed){.prompt = 6, .steps = 6, .log = &log});
  reach = check(model);
  assert_clean("layers 0 and 2");
  assert_int_equal(reach.layers, 24); /* layer 0 by its x_out, layer 2 begun again from its x_in */
  assert_true(reach.logits);
  log = (kvs_log){.level = KVS_LOG_ATTENTION, .first_step = 7, .last_step = -1};
  make(model, &(struct feed){.prompt = 6, .steps = 6, .log = &log});
  reach = check(model);
  assert_clean("from step 7 on");
  assert_int_equal(reach.layers, 0); /* the rows before were not logged */
  log = (kvs_log){.level = KVS_LOG_STEPS, .last_step = -1};
  make(model, &(struct feed){.prompt = 6, .steps = 6, .log = &log});
  assert_false(check(model).position);
  assert_clean("steps alone");
  shut();
  memory_model_free(model);
}

/* ---- D2 ---- */

static double widened(const kvs_tensor *t, int row, int col) {
  size_t at = (size_t)row * (size_t)t->cols + (size_t)col;
  if (t->dtype == KVS_F32) return (double)((const float *)t->data)[at];
  uint16_t bits = ((const uint16_t *)t->data)[at];
  return (double)(t->dtype == KVS_F16 ? kvs_widen_f16(bits) : kvs_widen_bf16(bits));
}

/* k = c_attn(ln_1(wte[token] + wpe[position])), in double. */
static void key_by_hand(const kvs_model *m, int token, int position, double *k) {
  int n = m->config.n_embd;
  double *x = malloc((size_t)n * sizeof *x), mean = 0, variance = 0;
  for (int i = 0; i < n; i++) {
    x[i] = widened(&m->wte, token, i) + (position < 0 ? 0 : widened(&m->wpe, position, i));
    mean += x[i] / n;
  }
  for (int i = 0; i < n; i++) variance += (x[i] - mean) * (x[i] - mean) / n;
  for (int i = 0; i < n; i++)
    x[i] = (x[i] - mean) / sqrt(variance + (double)m->config.layer_norm_epsilon) * (double)m->layer[0].ln_1.g[i] +
           (double)m->layer[0].ln_1.b[i];
  for (int j = 0; j < n; j++) {
    k[j] = (double)m->layer[0].c_attn.b[n + j];
    for (int i = 0; i < n; i++) k[j] += x[i] * widened(&m->layer[0].c_attn.w, i, n + j);
  }
  free(x);
}

static double apart_by_hand(const kvs_model *m, int token, int a, int b) {
  double ka[2048], kb[2048], difference = 0, size = 0;
  key_by_hand(m, token, a, ka), key_by_hand(m, token, b, kb);
  for (int i = 0; i < m->config.n_embd; i++) {
    difference += (ka[i] - kb[i]) * (ka[i] - kb[i]), size += kb[i] * kb[i];
  }
  return sqrt(difference / size);
}

static int at_length_1(int P) { return P + 1; }
static int at_0(int P) { return (void)P, 0; }
static int nowhere(int P) { return (void)P, -1; }
static int at_prompt(int P) { return (void)P, 8; }
static int jumped(int P) { return P + 8 - 1; }
static const struct {
  const char *fault;
  int (*position)(int P);
} position_faults[] = {{"off-by-one", at_length_1},
                       {"reset-to-zero", at_0},
                       {"skip-wpe", nowhere},
                       {"constant-position", at_prompt},
                       {"position-jump", jumped}};

static void positions_of(const kvs_model *model, const char *name, int fault, int from,
                         float (*storage)(float, unsigned long long *)) {
  make(model, &(struct feed){.prompt = 8, .steps = 12, .fault = position_faults[fault].fault, .from = from});
  change_cache(storage);
  sql("UPDATE step SET position = cache_length_before"); /* what it claims is of no account */
  check(model);
  int count = 0;
  for (int P = from; P < 20; P++) {
    int used = position_faults[fault].position(P);
    if (used == P) continue;
    assert_true((size_t)count < facts.count);
    const struct fact *f = &facts.at[count++];
    assert_int_equal(f->step, P), assert_int_equal(f->layer, 0), assert_int_equal(f->row, P);
    assert_close(f->found, used, 0, __LINE__), assert_close(f->right, P, 0, __LINE__);
    assert_true(f->distance < 0.01);
    double right = apart_by_hand(model, token_at(model, P), used, P);
    assert_close(f->right_distance, right, 0.02 * right + 1e-6, __LINE__);
  }
  assert_only(FACT_POSITION_USED, count, name);
}

static void wrong_positions(const kvs_model *model, const char *name) {
  if (model->config.n_layer > 12) return; /* the deepest is for clean runs, where noise grows */
  for (int fault = 0; fault < 5; fault++)
    for (int from = 8; from <= 13; from += 5) {
      positions_of(model, name, fault, from, as_is);
      positions_of(model, name, fault, from, as_bf16);
    }
}

static void the_position_really_used_is_named(void **state) {
  (void)state;
  with_models(wrong_positions);
}

/* One step alone is wrong, the row of any position: found in the whole table. */
static void any_position_is_found(void **state) {
  (void)state;
  kvs_model *model = memory_model(shapes[0], KVS_F32, 3);
  double k[2048];
  make(model, &(struct feed){.prompt = 6, .steps = 1});
  key_by_hand(model, token_at(model, 6), 29, k);
  char statement[4096] = "UPDATE kv_row SET k = X'";
  for (int i = 0; i < 48; i++) {
    float value = (float)k[i];
    unsigned char bytes[4];
    memcpy(bytes, &value, 4);
    for (int b = 0; b < 4; b++) snprintf(statement + strlen(statement), 3, "%02X", bytes[b]);
  }
  strcat(statement, "' WHERE layer = 0 AND row = 6; DELETE FROM kv_row WHERE layer > 0; DELETE FROM head_step;"
                    "UPDATE kv_row SET v = NULL");
  sql(statement);
  check(model);
  assert_only(FACT_POSITION_USED, 1, "29");
  assert_close(facts.at[0].found, 29, 0, __LINE__), assert_int_equal(facts.at[0].step, 6);
  shut();
  memory_model_free(model);
}

/* Another engine may leave out all but the tokens and the rows. */
static void lengths_and_positions_may_be_missing(void **state) {
  (void)state;
  kvs_model *model = memory_model(shapes[0], KVS_F32, 3);
  make(model, &(struct feed){.prompt = 6, .steps = 8, .fault = "off-by-one", .from = 9});
  sql("UPDATE step SET cache_length_before = NULL, cache_length_after = NULL, position = NULL, mode = NULL,"
      " source = NULL; DELETE FROM event; DELETE FROM head_step; DELETE FROM step_vector");
  check(model);
  assert_only(FACT_POSITION_USED, 5, "nothing but rows");
  assert_close(facts.at[0].found, 10, 0, __LINE__);
  /* V alone tells it too. */
  sql("UPDATE kv_row SET k = NULL");
  check(model);
  assert_only(FACT_POSITION_USED, 5, "V alone");
  shut();
  memory_model_free(model);
}

/* ---- D7 ---- */

static const struct {
  const char *fault;
  enum hypothesis hypothesis;
  int from, steps;
  bool above; /* layer 0 is right */
} attention_faults[] = {{"attend-before-append", HYPOTHESIS_WITHOUT_ITSELF, 12, 8, false},
                        {"mask-corner", HYPOTHESIS_FIRST_ROW_ONLY, 12, 8, false},
                        {"prefill-unmasked", HYPOTHESIS_WHOLE_BATCH, 0, 9, false},
                        {"wrong-scale", HYPOTHESIS_NO_SCALE, 12, 8, false},
                        {"wrong-scale-n-embd", HYPOTHESIS_SCALE_N_EMBD, 12, 8, false},
                        {"softmax-extent", HYPOTHESIS_WHOLE_CAPACITY, 12, 8, false},
                        {"softmax-wrong-axis", HYPOTHESIS_WRONG_AXIS, 12, 8, false},
                        {"heads-interleaved", HYPOTHESIS_INTERLEAVED, 12, 8, false},
                        {"cross-layer-length", HYPOTHESIS_LAYER_LENGTH, 12, 8, true},
                        {"cross-layer-shared", HYPOTHESIS_SHARED_BUFFER, 12, 8, true}};

/* Whether every step that is wrong, and no other, has the hypothesis first in each of its layers. */
static void attention_of(const kvs_model *model, const char *name, int i,
                         float (*storage)(float, unsigned long long *)) {
  int n_layer = model->config.n_layer;
  if (attention_faults[i].above && n_layer == 1) return;
  make(model,
       &(struct feed){.prompt = 10, .steps = 10, .fault = attention_faults[i].fault, .from = attention_faults[i].from});
  change_cache(storage);
  check(model);
  char what[96];
  snprintf(what, sizeof what, "%s, %s", name, attention_faults[i].fault);
  int named = 0, last_step = -1, last_layer = -1;
  for (size_t at = 0; at < facts.count; at++) {
    const struct fact *f = &facts.at[at];
    if (f->kind == FACT_HEAD_CUT && attention_faults[i].hypothesis == HYPOTHESIS_INTERLEAVED) continue;
    if (f->kind != FACT_CHAIN_HYPOTHESIS)
      fail_msg("%s: %s at step %d, layer %d", what, name_of(f->kind), f->step, f->layer);
    assert_true(f->step >= attention_faults[i].from);
    assert_true(attention_faults[i].from > 0 || f->step < 10); /* a batch's fault, not decode's */
    bool first = f->step != last_step || f->layer != last_layer;
    last_step = f->step, last_layer = f->layer;
    if (!first) continue;
    if ((int)f->found != (int)attention_faults[i].hypothesis)
      fail_msg("%s: hypothesis %g at step %d, layer %d, distance %g", what, f->found, f->step, f->layer, f->distance);
    named++;
  }
  /* Nearly all: where one row takes all the weight, some of these change nothing. */
  int all = attention_faults[i].steps * n_layer;
  if (named < (storage == as_is ? all / 4 : 1)) fail_msg("%s: named %d times of %d", what, named, all);
}

static void wrong_attention(const kvs_model *model, const char *name) {
  if (model->config.n_layer > 12) return;
  for (size_t i = 0; i < sizeof attention_faults / sizeof *attention_faults; i++)
    attention_of(model, name, (int)i, as_is);
}

static void wrong_attention_is_named(void **state) {
  (void)state;
  with_models(wrong_attention);
}

static void wrong_attention_stored_coarsely(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    kvs_model *model;
    ok(kvs_model_open(builtin[i], &model, &error));
    for (size_t fault = 0; fault < sizeof attention_faults / sizeof *attention_faults; fault++)
      attention_of(model, builtin[i], (int)fault, as_f16);
    shut();
    kvs_model_free(model);
  }
}

/* Faults that other rules find: each step follows from the rows that it found. */
static void consistent_faults(const kvs_model *model, const char *name) {
  static const char *const names[] = {"overwrite-last",   "stale-cache",   "prompt-twice",
                                      "last-token-twice", "token-skipped", "no-rollback"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    bool at_once = strcmp(names[i], "prompt-twice") == 0 || strcmp(names[i], "stale-cache") == 0;
    make(model, &(struct feed){.prompt = 8, .steps = 6, .fault = names[i], .from = at_once ? 0 : 8});
    struct recompute_reach reach = check(model);
    assert_clean(name);
    if (strcmp(names[i], "stale-cache") == 0) assert_int_equal(reach.layers, 0); /* rows that nobody logged */
  }
}

static void every_step_is_judged_by_itself(void **state) {
  (void)state;
  with_models(consistent_faults);
}

/* V, or K and V, stay zero: the rows are wrong, and all else follows from them. */
static void dead_rows(const kvs_model *model, const char *name) {
  int n_layer = model->config.n_layer;
  make(model, &(struct feed){.prompt = 8, .steps = 5, .fault = "k-without-v", .from = 8});
  check(model);
  assert_only(FACT_VALUE_WRONG, 5 * n_layer, name);
  assert_close(facts.at[0].distance, 1, 0, __LINE__);
  make(model, &(struct feed){.prompt = 8, .steps = 5, .fault = "row-never-written", .from = 8});
  check(model);
  int keys = 0, values = 0;
  for (size_t i = 0; i < facts.count; i++) {
    keys += facts.at[i].kind == FACT_KEY_WRONG && facts.at[i].layer > 0;
    values += facts.at[i].kind == FACT_VALUE_WRONG;
  }
  assert_int_equal(keys + values, facts.count);
  assert_int_equal(keys, 5 * (n_layer - 1)), assert_int_equal(values, 5 * n_layer);
}

static void rows_of_zeros(void **state) {
  (void)state;
  with_models(dead_rows);
}

static void past_the_end(const kvs_model *model, const char *name) {
  int n_ctx = model->config.n_ctx, n_layer = model->config.n_layer;
  make(model, &(struct feed){.prompt = n_ctx - 4, .steps = 9, .fault = "context-overflow", .from = n_ctx - 4});
  check(model);
  assert_true(facts.count > 0);
  for (size_t i = 0; i < facts.count; i++) {
    assert_int_equal(facts.at[i].kind, FACT_CHAIN_HYPOTHESIS);
    assert_true(facts.at[i].step >= n_ctx);
  }
  assert_close(facts.at[0].found, HYPOTHESIS_WINDOW, 0, __LINE__);
  assert_true(n_layer > 0);
  make(model, &(struct feed){.prompt = n_ctx - 4, .steps = 9, .fault = "context-unguarded", .from = n_ctx - 4});
  check(model);
  assert_clean(name);
}

static void past_the_context(void **state) {
  (void)state;
  with_models(past_the_end);
}

/* ---- altered by hand ---- */

/* One step, so that attention sees one row and its K does not matter. */
static void one_row_changed(void **state) {
  (void)state;
  kvs_model *model = memory_model(shapes[0], KVS_F32, 3);
  const struct feed one = {.prompt = 1, .steps = 0, .singly = true};
  make(model, &(struct feed){.prompt = 1, .steps = 0});
  check(model);
  assert_clean("as it was");

  make(model, &(struct feed){.prompt = 1, .steps = 0});
  sql("UPDATE kv_row SET k = v WHERE layer = 0");
  check(model);
  assert_int_equal(facts.count, 2);
  assert_int_equal(fact_of(FACT_OFF_GRID)->row, 0);
  assert_close(fact_of(FACT_ROW_SWAPPED)->found, 2, 0, __LINE__);

  make(model, &one);
  sql("UPDATE kv_row SET k = zeroblob(length(k)) WHERE layer = 1");
  check(model);
  assert_only(FACT_KEY_WRONG, 1, "layer 1's K is zero");
  assert_int_equal(facts.at[0].layer, 1);

  make(model, &(struct feed){.prompt = 5, .steps = 3});
  sql("UPDATE head_step SET q = (SELECT q FROM head_step WHERE step = 6 AND layer = 1 AND head = 3)"
      " WHERE step = 6 AND layer = 1 AND head = 2");
  check(model);
  assert_only(FACT_QUERY_WRONG, 1, "head 2's q is head 3's");
  assert_int_equal(facts.at[0].head, 2), assert_int_equal(facts.at[0].layer, 1), assert_int_equal(facts.at[0].step, 6);
  shut();
  memory_model_free(model);
}

static float scaled(float v, unsigned long long *state) { return (void)state, v * 1.05f; }

static void a_scaled_row_and_another_tokens(void **state) {
  (void)state;
  kvs_model *model = memory_model(shapes[0], KVS_F32, 3);
  make(model, &(struct feed){.prompt = 1, .steps = 0});
  change("SELECT rowid, k FROM kv_row WHERE layer = 0", "UPDATE kv_row SET k = ?2 WHERE rowid = ?1", scaled);
  check(model);
  assert_int_equal(facts.count, 2);
  assert_close(fact_of(FACT_OFF_GRID)->distance, 0.05, 1e-5, __LINE__);
  assert_close(fact_of(FACT_ROW_SCALED)->found, 1.05, 1e-5, __LINE__);

  /* Both rows of the step are those of the token before, and so is all above: it was worked out for another token. */
  make(model, &(struct feed){.prompt = 6, .steps = 2});
  sql("UPDATE step SET token = (SELECT token FROM step WHERE step = 6) WHERE step = 7;"
      "UPDATE step SET token = (token + 1) % 61 WHERE step = 6");
  sqlite3 *db;
  ok(kvs_trace_read(in_folder("a.db"), &db, &error));
  sqlite3_close(db);
  check(model);
  assert_true(facts.count >= 2); /* steps 6 and 7 are off the grid of the tokens they claim */
  for (size_t i = 0; i < facts.count; i++) assert_true(facts.at[i].step >= 6);
  assert_int_equal(fact_of(FACT_OFF_GRID)->step, 6);
  shut();
  memory_model_free(model);
}

/* ---- D10 ---- */

static float added(float v, unsigned long long *state) { return (void)state, v + 3; }
static float stretched(float v, unsigned long long *state) { return (void)state, v * 1.01f; }

static void logits_of(const kvs_model *model, const char *name) {
  const struct feed f = {.prompt = 5, .steps = 4};
  make(model, &f);
  sql("UPDATE step_vector SET logits = (SELECT logits FROM step_vector WHERE step = 6) WHERE step = 7");
  check(model);
  assert_only(FACT_LOGITS_OTHER_ROW, 1, name);
  assert_close(facts.at[0].found, 6, 0, __LINE__), assert_int_equal(facts.at[0].step, 7);
  make(model, &f);
  sql("UPDATE step_vector SET logits = (SELECT logits FROM step_vector WHERE step = 0) WHERE step = 4");
  check(model);
  assert_only(FACT_LOGITS_OTHER_ROW, 1, name);
  assert_close(facts.at[0].found, 0, 0, __LINE__), assert_int_equal(facts.at[0].step, 4);
  make(model, &f);
  change("SELECT rowid, logits FROM step_vector WHERE step = 6", "UPDATE step_vector SET logits = ?2 WHERE rowid = ?1",
         stretched);
  check(model);
  assert_only(FACT_LOGITS_WRONG, 1, name);
  make(model, &f); /* log probabilities, say: only their differences count */
  change("SELECT rowid, logits FROM step_vector", "UPDATE step_vector SET logits = ?2 WHERE rowid = ?1", added);
  check(model);
  assert_clean(name);
  make(model, &f); /* the best twenty alone */
  sql("UPDATE step_vector SET logits = NULL");
  assert_true(check(model).logits);
  assert_clean(name);
  sql("UPDATE top_token SET logit = 1.5 * logit WHERE step = 7");
  check(model);
  assert_only(FACT_LOGITS_WRONG, 1, name);
}

static void logits_of_another_step(void **state) {
  (void)state;
  with_models(logits_of);
}

/* ---- what is no trace of this model ---- */

static void another_models_trace(void **state) {
  (void)state;
  kvs_model *model = memory_model(shapes[0], KVS_F32, 3), *other = memory_model(shapes[3], KVS_F32, 3);
  make(model, &(struct feed){.prompt = 5, .steps = 4});
  sqlite3 *db;
  double tolerance;
  ok(kvs_trace_read(in_folder("a.db"), &db, &error));
  ok(look_open(db, &look, &error));
  ok(recompute_open(other, &recompute, &error));
  assert_int_equal(recompute_calibrate(recompute, look, 1, &tolerance, &error), KVS_ERR_INPUT);
  assert_says("n_layer is 3, and this model's is 12");
  assert_int_equal(recompute_step(recompute, look, 1, 0, &facts, &error), KVS_ERR_INPUT);
  ok(recompute_step(recompute, look, 7, 0, &facts, &error)); /* no such run: nothing to say */
  assert_clean("no run");
  shut();
  memory_model_free(model), memory_model_free(other);
}

static float not_a_number(float v, unsigned long long *state) { return (void)v, (void)state, NAN; }

static void numbers_that_are_none(void **state) {
  (void)state;
  kvs_model *model = memory_model(shapes[0], KVS_F32, 3);
  make(model, &(struct feed){.prompt = 5, .steps = 4});
  change_cache(not_a_number);
  check(model);
  for (size_t i = 0; i < facts.count; i++) assert_true(facts.at[i].kind != FACT_POSITION_USED);
  make(model, &(struct feed){.prompt = 5, .steps = 4});
  sql("PRAGMA foreign_keys = 0; PRAGMA ignore_check_constraints = 1;"
      "UPDATE step SET token = 999999 WHERE step = 6; UPDATE step SET token = -5 WHERE step = 7;"
      "UPDATE step SET cache_length_before = 1000000000 WHERE step = 8;"
      "UPDATE kv_row SET row = 2000000000 WHERE row = 3 AND layer = 1;"
      "UPDATE top_token SET logit = 9e999 WHERE step = 5");
  check(model);
  shut();
  memory_model_free(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(clean_runs_have_no_facts),
      cmocka_unit_test(half_the_layers_are_seen_half),
      cmocka_unit_test(the_position_really_used_is_named),
      cmocka_unit_test(any_position_is_found),
      cmocka_unit_test(lengths_and_positions_may_be_missing),
      cmocka_unit_test(wrong_attention_is_named),
      cmocka_unit_test(wrong_attention_stored_coarsely),
      cmocka_unit_test(every_step_is_judged_by_itself),
      cmocka_unit_test(rows_of_zeros),
      cmocka_unit_test(past_the_context),
      cmocka_unit_test(one_row_changed),
      cmocka_unit_test(a_scaled_row_and_another_tokens),
      cmocka_unit_test(logits_of_another_step),
      cmocka_unit_test(another_models_trace),
      cmocka_unit_test(numbers_that_are_none),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
