/* test_engine.c: the rule, the same bits every way, faults, the context's end, cancelling; on random models in memory.
 * That the numbers themselves are right is tests/reference's business, which recomputes whole traces in float64. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/share.h"
#include "tests/support/memory_model.h"

/* ---- a recorder: every number of every moment, findable by step, phase and layer ------------------------------------ */

typedef struct record {
  int step, phase, layer, cache_length, position, rows;
  uint64_t hash; /* of all the arrays that this phase brings */
} record;

typedef struct recorder {
  record *records;
  int count, room, steps_ended, settled;
  double logprob[64];
  int stop_at; /* returns an error at this record; 0: never */
  kvs_engine *cancel_at_first_score;
} recorder;

static uint64_t mixed(uint64_t hash, const void *data, size_t size) {
  const unsigned char *bytes = data;
  for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * 1099511628211u; /* FNV-1a */
  return hash;
}

static const kvs_config *shape_of_model; /* of the model under test: the recorder needs array lengths */

static uint64_t hash_of(const kvs_moment *m) {
  const kvs_config *c = shape_of_model;
  size_t n_embd = (size_t)c->n_embd * sizeof(float), attended = (size_t)c->n_head * (size_t)m->rows * sizeof(float);
  const struct {
    kvs_phase phase;
    const float *data;
    size_t size;
  } arrays[] = {
      {KVS_EMBED, m->wte, n_embd},
      {KVS_EMBED, m->wpe, n_embd},
      {KVS_EMBED, m->x, n_embd},
      {KVS_PROJECT, m->q, n_embd},
      {KVS_PROJECT, m->k, n_embd},
      {KVS_PROJECT, m->v, n_embd},
      {KVS_APPEND, m->row_k, n_embd},
      {KVS_APPEND, m->row_v, n_embd},
      {KVS_SCORE, m->scores, attended},
      {KVS_SOFTMAX, m->weights, attended},
      {KVS_MIX, m->out, n_embd},
      {KVS_OUTPUT, m->attn_out, n_embd},
      {KVS_OUTPUT, m->x_mid, n_embd},
      {KVS_MLP, m->mlp_out, n_embd},
      {KVS_MLP, m->x_out, n_embd},
      {KVS_PROJECT, m->x_in, n_embd},
      {KVS_LOGITS, m->logits, (size_t)c->n_vocab * sizeof(float)},
  };
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
    if (arrays[i].phase != m->phase) continue;
    if (!(arrays[i].phase == KVS_EMBED && arrays[i].data == NULL)) assert_non_null(arrays[i].data);
    if (arrays[i].data) hash = mixed(hash, arrays[i].data, arrays[i].size);
  }
  return hash;
}

static kvs_status on_moment(void *context, const kvs_moment *m, kvs_error *err) {
  recorder *r = context;
  if (r->count == r->room) {
    r->room = r->room ? 2 * r->room : 256;
    r->records = realloc(r->records, (size_t)r->room * sizeof *r->records);
    assert_non_null(r->records);
  }
  r->records[r->count++] =
      (record){m->step->step, (int)m->phase, m->layer, m->cache_length, m->step->position, m->rows, hash_of(m)};
  if (r->stop_at == r->count) return kvs_fail(err, KVS_ERR_IO, "the disk is full");
  if (r->cancel_at_first_score && m->phase == KVS_SCORE) kvs_engine_cancel(r->cancel_at_first_score);
  return KVS_OK;
}

static kvs_status on_step_end(void *context, const kvs_step *step, kvs_error *err) {
  (void)err;
  recorder *r = context;
  assert_int_equal(step->cache_length_after, step->cache_length_before + 1);
  if (step->step < 64) r->logprob[step->step] = step->logprob;
  r->steps_ended++;
  return KVS_OK;
}

static kvs_status on_settled(void *context, kvs_error *err) {
  (void)err;
  ((recorder *)context)->settled++;
  return KVS_OK;
}

static kvs_observer observer_of(recorder *r) {
  return (kvs_observer){.context = r, .moment = on_moment, .step_end = on_step_end, .settled = on_settled};
}

static int by_place(const void *left, const void *right) {
  const record *a = left, *b = right;
  if (a->step != b->step) return a->step - b->step;
  if (a->layer != b->layer) return a->layer - b->layer;
  return a->phase - b->phase;
}

/* The same moments with the same bits, in whatever order prefill interleaved them. */
static void assert_same_records(const char *what, recorder *a, recorder *b) {
  qsort(a->records, (size_t)a->count, sizeof *a->records, by_place);
  qsort(b->records, (size_t)b->count, sizeof *b->records, by_place);
  assert_int_equal(a->count, b->count);
  for (int i = 0; i < a->count; i++)
    if (memcmp(&a->records[i], &b->records[i], sizeof *a->records) != 0)
      fail_msg("%s: step %d layer %d %s differs", what, a->records[i].step, a->records[i].layer,
               kvs_phase_name((kvs_phase)a->records[i].phase));
}

/* ---- models and runs ------------------------------------------------------------------------------------------------ */

static const kvs_config shapes[] = {
    {.n_layer = 1, .n_head = 1, .n_embd = 8, .n_ctx = 24, .n_vocab = 11, .tied = true, .scale_attn_weights = true},
    {.n_layer = 3,
     .n_head = 4,
     .n_embd = 52,
     .n_ctx = 40,
     .n_vocab = 101,
     .scale_attn_weights = true,
     .activation = KVS_GELU},
    {.n_layer = 2,
     .n_head = 3,
     .n_embd = 99,
     .n_ctx = 33,
     .n_vocab = 65,
     .tied = true,
     .n_inner = 70,
     .activation = KVS_RELU},
    /* wide enough for its matrices to be shared among threads */
    {.n_layer = 2,
     .n_head = 6,
     .n_embd = 192,
     .n_ctx = 30,
     .n_vocab = 400,
     .tied = true,
     .scale_attn_weights = true,
     .scale_attn_by_inverse_layer_idx = true},
};
#define SHAPES (int)(sizeof shapes / sizeof *shapes)

static void make_tokens(int *tokens, int n, int n_vocab) {
  unsigned long long state = 5;
  for (int i = 0; i < n; i++) tokens[i] = (int)((memory_random(&state) + 1) / 2 * (float)(n_vocab - 1));
}

static kvs_engine *new_engine(const kvs_model *model, int threads, const char *kernel) {
  kvs_error err;
  kvs_engine *engine;
  const kvs_engine_options options = {threads, kernel};
  if (kvs_engine_create(model, &options, &engine, &err)) fail_msg("%s", err.message);
  return engine;
}

static void must(kvs_status status, const kvs_error *err) {
  if (status) fail_msg("%s", err->message);
}

/* Feeds n tokens: the first `batch` by prefill in pieces of `piece`, the others by decode. Returns the last logits' hash. */
static uint64_t feed(kvs_engine *engine, const int *tokens, int n, int batch, int piece) {
  kvs_error err;
  for (int i = 0; i < batch; i += piece)
    must(kvs_engine_prefill(engine, tokens + i, i + piece < batch ? piece : batch - i, KVS_PROMPT, &err), &err);
  for (int i = batch; i < n; i++) must(kvs_engine_decode(engine, tokens[i], KVS_FORCED, &err), &err);
  assert_int_equal(kvs_engine_cache_length(engine), n);
  return mixed(0, kvs_engine_logits(engine), (size_t)shape_of_model->n_vocab * sizeof(float));
}

/* ---- tests ---------------------------------------------------------------------------------------------------------- */

static void same_bits_for(const kvs_model *model, const char *what) {
  int n = model->config.n_ctx, tokens[64];
  make_tokens(tokens, n, model->config.n_vocab);
  shape_of_model = &model->config;
  recorder first = {0};
  const kvs_observer first_observer = observer_of(&first);
  kvs_engine *engine = new_engine(model, 1, "reference");
  kvs_engine_observe(engine, &first_observer);
  uint64_t expected = feed(engine, tokens, n, 0, 1);
  kvs_engine_free(engine);
  for (int k = 0; kvs_kernel_name(k); k++)
    for (int threads = 1; threads <= 3; threads++) {
      engine = new_engine(model, threads, kvs_kernel_name(k));
      const int batches[] = {0, n, n, n / 2, 1}, pieces[] = {1, n, 5, n, 1};
      /* The plain C kernel is slow: two ways will do for it. */
      int ways = strcmp(kvs_kernel_name(k), "reference") == 0 ? 2 : 5;
      for (int way = 0; way < ways; way++) {
        recorder other = {0};
        const kvs_observer observer = observer_of(&other);
        kvs_engine_reset(engine);
        kvs_engine_observe(engine, &observer);
        assert_true(feed(engine, tokens, n, batches[way], pieces[way]) == expected);
        assert_same_records(what, &first, &other);
        assert_int_equal(other.steps_ended, n);
        assert_memory_equal(first.logprob + 1, other.logprob + 1, (size_t)(n < 64 ? n - 1 : 63) * sizeof(double));
        free(other.records);
        kvs_engine_reset(engine); /* and with nobody watching */
        kvs_engine_observe(engine, NULL);
        assert_true(feed(engine, tokens, n, batches[way], pieces[way]) == expected);
      }
      kvs_engine_free(engine);
    }
  free(first.records);
}

static void same_bits_every_way(void **unused) {
  (void)unused;
  for (int i = 0; i < SHAPES; i++)
    for (kvs_dtype dtype = KVS_F32; dtype <= KVS_BF16; dtype++) {
      kvs_model *model = memory_model(shapes[i], dtype, (unsigned)i + 1);
      char what[64];
      snprintf(what, sizeof what, "shape %d, dtype %d", i, (int)dtype);
      same_bits_for(model, what);
      memory_model_free(model);
    }
}

/* Many times the chunk that prefill attends at once, and more rows than any block of a sum. */
static void a_long_prompt_gives_the_same_bits(void **unused) {
  (void)unused;
  enum { LENGTH = 300 };
  kvs_config shape = shapes[1];
  shape.n_ctx = LENGTH;
  kvs_model *model = memory_model(shape, KVS_F32, 3);
  shape_of_model = &model->config;
  int tokens[LENGTH];
  make_tokens(tokens, LENGTH, model->config.n_vocab);
  kvs_engine *engine = new_engine(model, 2, NULL);
  uint64_t expected = feed(engine, tokens, LENGTH, 0, 1);
  static const int pieces[] = {LENGTH, 97, 1};
  for (int i = 0; i < 3; i++) {
    kvs_engine_reset(engine);
    assert_null(kvs_engine_logits(engine)); /* so the next first step has no logprob */
    assert_true(feed(engine, tokens, LENGTH, LENGTH, pieces[i]) == expected);
  }
  kvs_engine_free(engine);
  memory_model_free(model);
}

static void a_decode_step_reads_the_length_before_it_appends(void **unused) {
  (void)unused;
  kvs_model *model = memory_model(shapes[1], KVS_F32, 9);
  shape_of_model = &model->config;
  kvs_engine *engine = new_engine(model, 1, NULL);
  recorder r = {0};
  const kvs_observer observer = observer_of(&r);
  int tokens[6];
  make_tokens(tokens, 6, model->config.n_vocab);
  feed(engine, tokens, 5, 5, 5);
  kvs_engine_observe(engine, &observer);
  kvs_error err;
  must(kvs_engine_decode(engine, tokens[5], KVS_SAMPLED, &err), &err);
  int n_layer = model->config.n_layer;
  assert_int_equal(r.count, 2 + 7 * n_layer + 1);
  for (int i = 0; i < r.count; i++) {
    const record *seen = &r.records[i];
    int phase = i < 2 ? i : i == r.count - 1 ? KVS_LOGITS : KVS_PROJECT + (i - 2) % 7;
    int layer = i < 2 || i == r.count - 1 ? -1 : (i - 2) / 7;
    assert_int_equal(seen->step, 5);
    assert_int_equal(seen->phase, phase);
    assert_int_equal(seen->layer, layer);
    assert_int_equal(seen->position, 5);
    assert_int_equal(seen->cache_length, phase < KVS_APPEND ? 5 : 6);
    if (phase >= KVS_SCORE && phase <= KVS_MLP) assert_int_equal(seen->rows, 6);
  }
  assert_int_equal(r.settled, 1);
  free(r.records);
  kvs_engine_free(engine);
  memory_model_free(model);
}

/* Two layers of nothing but attention by hand: q, k and v are chosen by biases alone, so the scores are known. */
static void one_head_by_hand(void **unused) {
  (void)unused;
  const kvs_config shape = {.n_layer = 1,
                            .n_head = 1,
                            .n_embd = 4,
                            .n_ctx = 4,
                            .n_vocab = 3,
                            .n_inner = 1,
                            .tied = true,
                            .scale_attn_weights = true};
  kvs_model *model = memory_model(shape, KVS_F32, 3);
  shape_of_model = &model->config;
  kvs_linear *c_attn = &model->layer[0].c_attn;
  memset((void *)c_attn->w.data, 0, 4 * 12 * sizeof(float));
  const float bias[12] = {1, 2, 3, 4, /* k */ 0.5f, 0, 0, 0.25f, /* v */ 8, -8, 0.5f, 1};
  memcpy((void *)c_attn->b, bias, sizeof bias);
  kvs_engine *engine = new_engine(model, 1, NULL);
  const int tokens[] = {0, 1, 2};
  feed(engine, tokens, 3, 0, 1);
  /* q·k = 0.5 + 1 = 1.5, over sqrt(4) = 0.75, for every row; so each weight is 1/3 and out is v. */
  for (int i = 0; i < 3; i++) {
    assert_true(fabsf(engine->s.scores[i] - 0.75f) < 1e-7f);
    assert_true(fabsf(engine->s.weights[i] - 1.0f / 3) < 1e-7f);
    assert_memory_equal(kvs_engine_k(engine, 0, i), bias + 4, 4 * sizeof(float));
    assert_memory_equal(kvs_engine_v(engine, 0, i), bias + 8, 4 * sizeof(float));
  }
  for (int d = 0; d < 4; d++) assert_true(fabsf(engine->s.out[d] - bias[8 + d]) < 1e-6f);
  assert_null(kvs_engine_k(engine, 0, 3));
  assert_null(kvs_engine_v(engine, 1, 0));
  kvs_engine_free(engine);
  memory_model_free(model);
}

static void faults_bend_the_position_from_their_step_on(void **unused) {
  (void)unused;
  kvs_model *model = memory_model(shapes[1], KVS_F32, 9);
  shape_of_model = &model->config;
  int tokens[10];
  make_tokens(tokens, 10, model->config.n_vocab);
  const struct {
    const char *name;
    int from, batch;
    int positions[10];
  } cases[] = {
      {"off-by-one", 5, 5, {0, 1, 2, 3, 4, 6, 7, 8, 9, 10}},   {"off-by-one", 7, 5, {0, 1, 2, 3, 4, 5, 6, 8, 9, 10}},
      {"off-by-one", 2, 5, {0, 1, 3, 4, 5, 6, 7, 8, 9, 10}}, /* in a batch as well */
      {"reset-to-zero", 5, 5, {0, 1, 2, 3, 4, 0, 0, 0, 0, 0}}, {"reset-to-zero", 99, 5, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    recorder r = {0};
    const kvs_observer observer = observer_of(&r);
    kvs_engine *engine = new_engine(model, 1, NULL);
    assert_non_null(kvs_fault_find(cases[i].name));
    kvs_engine_fault(engine, kvs_fault_find(cases[i].name), cases[i].from);
    kvs_engine_observe(engine, &observer);
    feed(engine, tokens, 10, cases[i].batch, 5);
    for (int j = 0; j < r.count; j++) assert_int_equal(r.records[j].position, cases[i].positions[r.records[j].step]);
    free(r.records);
    kvs_engine_free(engine);
  }
  memory_model_free(model);
}

/* A faulty step is a correct step with another row of wpe: x says so, to the bit. */
static const float *expected_wpe;
static kvs_status check_wpe(void *context, const kvs_moment *m, kvs_error *err) {
  (void)context, (void)err;
  if (m->phase == KVS_EMBED && m->step->step == 3)
    assert_ptr_equal(memcmp(m->wpe, expected_wpe, 52 * sizeof(float)), 0);
  return KVS_OK;
}

static void off_by_one_adds_the_next_row_of_wpe(void **unused) {
  (void)unused;
  kvs_model *model = memory_model(shapes[1], KVS_F32, 9);
  shape_of_model = &model->config;
  expected_wpe = (const float *)model->wpe.data + 4 * 52;
  kvs_engine *engine = new_engine(model, 1, NULL);
  const kvs_observer observer = {.moment = check_wpe};
  kvs_engine_observe(engine, &observer);
  kvs_engine_fault(engine, kvs_fault_find("off-by-one"), 3);
  const int tokens[] = {1, 2, 3, 4};
  feed(engine, tokens, 4, 3, 3);
  kvs_engine_free(engine);
  memory_model_free(model);
}

static void every_fault_explains_itself(void **unused) {
  (void)unused;
  for (int i = 0; kvs_fault_at(i); i++) {
    const kvs_fault *f = kvs_fault_at(i);
    const char *texts[] = {f->name, f->summary, f->right_line, f->wrong_line, f->effect, f->seen};
    for (size_t j = 0; j < sizeof texts / sizeof *texts; j++) assert_true(texts[j] && *texts[j]);
    assert_ptr_equal(kvs_fault_find(f->name), f);
    assert_string_not_equal(f->right_line, f->wrong_line);
  }
  assert_null(kvs_fault_find("none"));
  assert_null(kvs_fault_find(""));
}

static void the_context_ends_in_words(void **unused) {
  (void)unused;
  kvs_model *model = memory_model(shapes[0], KVS_F32, 2); /* n_ctx 24 */
  shape_of_model = &model->config;
  kvs_engine *engine = new_engine(model, 1, NULL);
  int tokens[25];
  make_tokens(tokens, 25, model->config.n_vocab);
  kvs_error err;
  assert_int_equal(kvs_engine_prefill(engine, tokens, 25, KVS_PROMPT, &err), KVS_ERR_CONTEXT);
  assert_non_null(strstr(err.message, "25 tokens do not fit: the context has room for 24 more"));
  assert_int_equal(kvs_engine_cache_length(engine), 0);
  uint64_t logits = feed(engine, tokens, 24, 24, 24); /* exactly full is fine */
  assert_int_equal(kvs_engine_decode(engine, tokens[24], KVS_SAMPLED, &err), KVS_ERR_CONTEXT);
  assert_non_null(strstr(err.message, "the context is full: step 24 would be position 24"));
  assert_int_equal(kvs_engine_cache_length(engine), 24); /* nothing was touched */
  assert_true(logits == mixed(0, kvs_engine_logits(engine), 11 * sizeof(float)));
  kvs_engine_reset(engine);
  assert_true(feed(engine, tokens, 24, 3, 3) == logits);
  kvs_engine_free(engine);
  memory_model_free(model);
}

static void a_position_past_wpe_is_reported_not_read(void **unused) {
  (void)unused;
  kvs_model *model = memory_model(shapes[0], KVS_F32, 2);
  shape_of_model = &model->config;
  kvs_engine *engine = new_engine(model, 1, NULL);
  int tokens[24];
  make_tokens(tokens, 24, model->config.n_vocab);
  kvs_engine_fault(engine, kvs_fault_find("off-by-one"), 4);
  feed(engine, tokens, 23, 4, 4);
  kvs_error err;
  assert_int_equal(kvs_engine_decode(engine, tokens[23], KVS_SAMPLED, &err), KVS_ERR_CONTEXT);
  assert_non_null(strstr(err.message, "step 23 would use wpe[24] under the fault off-by-one"));
  assert_int_equal(kvs_engine_cache_length(engine), 23);
  kvs_engine_reset(engine); /* in a batch: nothing is fed */
  kvs_engine_fault(engine, kvs_fault_find("off-by-one"), 0);
  assert_int_equal(kvs_engine_prefill(engine, tokens, 24, KVS_PROMPT, &err), KVS_ERR_CONTEXT);
  assert_int_equal(kvs_engine_cache_length(engine), 0);
  kvs_engine_free(engine);
  memory_model_free(model);
}

static void nonsense_is_refused(void **unused) {
  (void)unused;
  kvs_model *model = memory_model(shapes[0], KVS_F32, 2);
  kvs_engine *engine;
  kvs_error err;
  assert_int_equal(kvs_engine_create(model, &(kvs_engine_options){0, "gpu"}, &engine, &err), KVS_ERR_USAGE);
  assert_non_null(strstr(err.message, "no kernel 'gpu'"));
  assert_null(engine);
  assert_int_equal(kvs_engine_create(model, &(kvs_engine_options){-1, NULL}, &engine, &err), KVS_ERR_USAGE);
  assert_int_equal(kvs_engine_create(model, &(kvs_engine_options){100000, NULL}, &engine, NULL), KVS_ERR_USAGE);
  engine = new_engine(model, 0, NULL);
  assert_true(kvs_engine_threads(engine) >= 1);
  assert_null(kvs_engine_logits(engine));
  const int bad[] = {0, 11};
  assert_int_equal(kvs_engine_decode(engine, 11, KVS_SAMPLED, &err), KVS_ERR_USAGE);
  assert_non_null(strstr(err.message, "token 11 is not in the vocabulary; ids run from 0 to 10"));
  assert_int_equal(kvs_engine_decode(engine, -1, KVS_SAMPLED, &err), KVS_ERR_USAGE);
  assert_int_equal(kvs_engine_prefill(engine, bad, 2, KVS_PROMPT, &err), KVS_ERR_USAGE);
  assert_int_equal(kvs_engine_prefill(engine, bad, 0, KVS_PROMPT, NULL), KVS_ERR_USAGE);
  assert_int_equal(kvs_engine_cache_length(engine), 0);
  kvs_engine_free(engine);
  memory_model_free(model);
}

static void an_observers_error_ends_the_step(void **unused) {
  (void)unused;
  kvs_model *model = memory_model(shapes[1], KVS_F32, 2);
  shape_of_model = &model->config;
  kvs_error err;
  int tokens[8];
  make_tokens(tokens, 8, model->config.n_vocab);
  for (int batch = 0; batch < 2; batch++)
    for (int stop_at = 1; stop_at < 24; stop_at++) {
      kvs_engine *engine = new_engine(model, 1, NULL);
      recorder r = {.stop_at = stop_at};
      const kvs_observer observer = observer_of(&r);
      kvs_engine_observe(engine, &observer);
      kvs_status status = batch ? kvs_engine_prefill(engine, tokens, 8, KVS_PROMPT, &err)
                                : kvs_engine_decode(engine, tokens[0], KVS_PROMPT, &err);
      assert_int_equal(status, KVS_ERR_IO);
      assert_string_equal(err.message, "the disk is full");
      assert_int_equal(r.count, stop_at);
      assert_int_equal(r.settled, 0);
      assert_int_equal(kvs_engine_decode(engine, tokens[0], KVS_PROMPT, &err), KVS_ERR_USAGE);
      kvs_engine_observe(engine, NULL);
      kvs_engine_reset(engine);
      feed(engine, tokens, 8, 4, 4);
      free(r.records);
      kvs_engine_free(engine);
    }
  memory_model_free(model);
}

static void a_step_can_be_cancelled(void **unused) {
  (void)unused;
  kvs_model *model = memory_model(shapes[1], KVS_F32, 2);
  shape_of_model = &model->config;
  kvs_error err;
  kvs_engine *engine = new_engine(model, 2, NULL);
  recorder r = {.cancel_at_first_score = engine};
  const kvs_observer observer = observer_of(&r);
  kvs_engine_observe(engine, &observer);
  assert_int_equal(kvs_engine_decode(engine, 1, KVS_PROMPT, &err), KVS_ERR_CANCELLED);
  assert_int_equal(r.records[r.count - 1].phase, KVS_SCORE);
  r.cancel_at_first_score = NULL;
  kvs_engine_reset(engine);
  must(kvs_engine_decode(engine, 1, KVS_PROMPT, &err), &err);
  free(r.records);
  kvs_engine_free(engine);
  memory_model_free(model);
}

typedef struct left_behind {
  int settled, behind; /* the second is written on another thread, and read after settling */
} left_behind;

static kvs_status count_settled(void *context, kvs_error *err) {
  (void)err;
  left_behind *left = context;
  /* Never later than the next `settled`. */
  if (left->behind != left->settled) return kvs_fail(err, KVS_ERR_USAGE, "settled while something is behind");
  left->settled++;
  return KVS_OK;
}

static void count_behind(void *context) { ((left_behind *)context)->behind++; }

static void each_settled_step_is_followed_behind(void **unused) {
  (void)unused;
  kvs_model *model = memory_model(shapes[0], KVS_F32, 9);
  for (int threads = 1; threads <= 3; threads++) {
    kvs_engine *engine = new_engine(model, threads, NULL);
    left_behind left = {0, 0};
    kvs_error err;
    const kvs_observer observer = {.context = &left, .settled = count_settled, .behind = count_behind};
    kvs_engine_observe(engine, &observer);
    const int tokens[] = {1, 2, 3};
    assert_int_equal(kvs_engine_prefill(engine, tokens, 3, KVS_PROMPT, &err), KVS_OK);
    for (int i = 0; i < 5; i++) assert_int_equal(kvs_engine_decode(engine, i, KVS_FORCED, &err), KVS_OK);
    kvs_engine_settle(engine);
    assert_int_equal(left.settled, 6); /* the batch, and each step */
    assert_int_equal(left.behind, 6);
    /* A step that failed is not settled, and nothing follows it. */
    assert_int_equal(kvs_engine_decode(engine, -1, KVS_FORCED, &err), KVS_ERR_USAGE);
    kvs_engine_observe(engine, NULL);
    assert_int_equal(left.behind, 6);
    kvs_engine_free(engine);
  }
  memory_model_free(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_settled_step_is_followed_behind),
      cmocka_unit_test(same_bits_every_way),
      cmocka_unit_test(a_long_prompt_gives_the_same_bits),
      cmocka_unit_test(a_decode_step_reads_the_length_before_it_appends),
      cmocka_unit_test(one_head_by_hand),
      cmocka_unit_test(faults_bend_the_position_from_their_step_on),
      cmocka_unit_test(off_by_one_adds_the_next_row_of_wpe),
      cmocka_unit_test(every_fault_explains_itself),
      cmocka_unit_test(the_context_ends_in_words),
      cmocka_unit_test(a_position_past_wpe_is_reported_not_read),
      cmocka_unit_test(nonsense_is_refused),
      cmocka_unit_test(an_observers_error_ends_the_step),
      cmocka_unit_test(a_step_can_be_cancelled),
  };
  return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
