/* test_fault.c: every fault does what its row in the table says, and its query shows it in a trace, and in no correct one. The numbers
 * expected are worked out here, in double, from the arrays that the engine reports. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "engine/plan.h"
#include "kvstep/kvstep.h"
#include "tests/database.h"
#include "tests/support/memory_model.h"
#include "tests/support/scratch.h"

enum { LAYERS = 2, HEADS = 3, DIM = 4, EMBD = HEADS * DIM, CTX = 16, VOCAB = 23, PROMPT = 4, STEPS = 40 };

static const kvs_config shape = {
    .n_layer = LAYERS, .n_head = HEADS, .n_embd = EMBD, .n_ctx = CTX, .n_vocab = VOCAB, .scale_attn_weights = true};
static const int prompt[PROMPT] = {3, 1, 4, 15};

/* What one step did in one layer. */
typedef struct seen_layer {
  int row, rows, length;
  float q[EMBD], k[EMBD], v[EMBD], row_k[EMBD], row_v[EMBD], scores[HEADS * CTX], weights[HEADS * CTX], out[EMBD];
  float attn_out[EMBD];
} seen_layer;

typedef struct seen_step {
  kvs_step step;
  bool has_wpe;
  seen_layer layer[LAYERS];
  float logits[VOCAB];
} seen_step;

typedef struct seen {
  int count;
  seen_step step[STEPS];
} seen;

static kvs_status watch(void *context, const kvs_moment *m, kvs_error *err) {
  (void)err;
  seen *all = context;
  seen_step *s = &all->step[m->step->step];
  seen_layer *l = m->layer < 0 ? NULL : &s->layer[m->layer];
  size_t n = EMBD * sizeof(float), attended = sizeof(float) * HEADS * (size_t)m->rows;
  if (m->phase == KVS_EMBED) s->has_wpe = m->wpe != NULL;
  if (m->phase == KVS_PROJECT) memcpy(l->q, m->q, n), memcpy(l->k, m->k, n), memcpy(l->v, m->v, n);
  if (m->phase == KVS_APPEND) {
    l->row = m->row, l->length = m->cache_length;
    memcpy(l->row_k, m->row_k, n), memcpy(l->row_v, m->row_v, n);
  }
  if (m->phase == KVS_SCORE) l->rows = m->rows, memcpy(l->scores, m->scores, attended);
  if (m->phase == KVS_SOFTMAX) memcpy(l->weights, m->weights, attended);
  if (m->phase == KVS_MIX) memcpy(l->out, m->out, n);
  if (m->phase == KVS_OUTPUT) memcpy(l->attn_out, m->attn_out, n);
  if (m->phase == KVS_LOGITS) memcpy(s->logits, m->logits, sizeof s->logits);
  return KVS_OK;
}

static kvs_status watch_end(void *context, const kvs_step *step, kvs_error *err) {
  (void)err;
  seen *all = context;
  all->step[step->step].step = *step;
  if (all->count <= step->step) all->count = step->step + 1;
  return KVS_OK;
}

static int greedy(const float *logits) {
  int best = 0;
  for (int i = 1; i < VOCAB; i++)
    if (logits[i] > logits[best]) best = i;
  return best;
}

/* Feeds the prompt and then `more` greedy tokens under the fault; what happened, in memory that the next call reuses. */
static const seen *run_fault(kvs_engine *e, const char *name, int from, int more) {
  static seen all;
  memset(&all, 0, sizeof all);
  kvs_observer observer = {.context = &all, .moment = watch, .step_end = watch_end};
  kvs_error err;
  kvs_engine_observe(e, &observer);
  kvs_engine_fault(e, name ? kvs_fault_find(name) : NULL, from);
  kvs_engine_reset(e);
  assert_int_equal(kvs_engine_prefill(e, prompt, PROMPT, KVS_PROMPT, &err), KVS_OK);
  for (int i = 0; i < more; i++)
    assert_int_equal(kvs_engine_decode(e, greedy(kvs_engine_logits(e)), KVS_SAMPLED, &err), KVS_OK);
  return &all;
}

static kvs_model *model;
static kvs_engine *engine;

static int set_up(void **state) {
  if (make_folder(state)) return -1;
  model = memory_model(shape, KVS_F32, 7);
  return kvs_engine_create(model, &(const kvs_engine_options){.threads = 1}, &engine, NULL) == KVS_OK ? 0 : -1;
}

static int tear_down(void **state) {
  kvs_engine_free(engine);
  memory_model_free(model);
  return remove_folder(state);
}

static double dot(const float *a, const float *b, int n, int stride) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += (double)a[i] * (double)b[i * stride];
  return sum;
}

static void assert_near(double a, double b) {
  if (fabs(a - b) > 1e-5 * (1 + fabs(b))) fail_msg("%.9g is not %.9g", a, b);
}

/* ---- positions ------------------------------------------------------------------------------------------------------- */

static void positions(void **state) {
  (void)state;
  /* The prompt has positions 0 to 3; then P = 4, 5, 6. -1: none. */
  static const struct {
    const char *name;
    int position[3];
  } expected[] = {{"off-by-one", {5, 6, 7}},
                  {"reset-to-zero", {0, 0, 0}},
                  {"constant-position", {4, 4, 4}},
                  {"skip-wpe", {-1, -1, -1}},
                  {"position-jump", {4 + 3, 5 + 3, 6 + 3}}};
  for (size_t f = 0; f < sizeof expected / sizeof *expected; f++) {
    const seen *all = run_fault(engine, expected[f].name, PROMPT, 3);
    for (int s = 0; s < PROMPT; s++) assert_int_equal(all->step[s].step.position, s);
    for (int s = 0; s < 3; s++) {
      const seen_step *step = &all->step[PROMPT + s];
      assert_int_equal(step->step.position, expected[f].position[s]);
      assert_int_equal(step->has_wpe, expected[f].position[s] >= 0);
      assert_int_equal(step->step.cache_length_before, PROMPT + s);
      assert_int_equal(step->step.cache_length_after, PROMPT + s + 1);
    }
  }
}

static void begins_where_it_is_told(void **state) {
  (void)state;
  const seen *all = run_fault(engine, "off-by-one", 6, 4);
  assert_int_equal(all->step[5].step.position, 5);
  assert_int_equal(all->step[6].step.position, 7);
  all = run_fault(engine, "off-by-one", 2, 1); /* within the prompt */
  assert_int_equal(all->step[1].step.position, 1);
  assert_int_equal(all->step[2].step.position, 3);
}

/* ---- the append ------------------------------------------------------------------------------------------------------ */

static void overwrites_the_last_row(void **state) {
  (void)state;
  const seen *all = run_fault(engine, "overwrite-last", PROMPT, 3);
  for (int s = PROMPT; s < PROMPT + 3; s++) {
    assert_int_equal(all->step[s].step.cache_length_before, PROMPT);
    assert_int_equal(all->step[s].step.cache_length_after, PROMPT);
    assert_int_equal(all->step[s].layer[1].row, PROMPT - 1);
    assert_int_equal(all->step[s].layer[1].rows, PROMPT);
    assert_memory_equal(all->step[s].layer[1].row_k, all->step[s].layer[1].k, sizeof all->step[s].layer[1].k);
  }
}

static void stores_half_a_row_or_none(void **state) {
  (void)state;
  static const float zero[EMBD];
  const seen *all = run_fault(engine, "k-without-v", PROMPT, 2);
  const seen_layer *l = &all->step[PROMPT].layer[0];
  assert_memory_equal(l->row_k, l->k, sizeof l->k);
  assert_memory_equal(l->row_v, zero, sizeof zero);
  assert_memory_not_equal(l->v, zero, sizeof zero);
  all = run_fault(engine, "row-never-written", PROMPT, 2);
  l = &all->step[PROMPT + 1].layer[1];
  assert_int_equal(l->row, PROMPT + 1);
  assert_int_equal(l->length, PROMPT + 2);
  assert_memory_equal(l->row_k, zero, sizeof zero);
  assert_memory_equal(l->row_v, zero, sizeof zero);
  for (int h = 0; h < HEADS; h++) assert_true(l->scores[h * l->rows + PROMPT] == 0); /* q · 0 */
}

static void later_layers_read_the_moved_length(void **state) {
  (void)state;
  const seen *all = run_fault(engine, "cross-layer-length", PROMPT, 2);
  for (int s = PROMPT; s < PROMPT + 2; s++) {
    assert_int_equal(all->step[s].layer[0].row, s);
    assert_int_equal(all->step[s].layer[0].rows, s + 1);
    assert_int_equal(all->step[s].layer[1].row, s + 1);
    assert_int_equal(all->step[s].layer[1].rows, s + 2);
    assert_int_equal(all->step[s].layer[1].length, s + 2);
    for (int h = 0; h < HEADS; h++) /* row PROMPT of layer 1 was never written */
      assert_true(all->step[s].layer[1].scores[h * (s + 2) + PROMPT] == 0);
  }
}

static void layers_share_one_buffer(void **state) {
  (void)state;
  const seen *all = run_fault(engine, "cross-layer-shared", PROMPT, 2);
  const seen_layer *l = &all->step[PROMPT + 1].layer[0], *above = &all->step[PROMPT + 1].layer[1];
  double scale = 1 / sqrt((double)DIM);
  for (int h = 0; h < HEADS; h++) {
    /* Layer 0 finds in row 4 what layer 1 left there a step ago; layer 1 finds layer 0's prompt rows. */
    assert_near(l->scores[h * l->rows + PROMPT],
                scale * dot(l->q + h * DIM, all->step[PROMPT].layer[1].k + h * DIM, DIM, 1));
    assert_near(above->scores[h * above->rows + 2],
                scale * dot(above->q + h * DIM, all->step[2].layer[0].k + h * DIM, DIM, 1));
  }
}

static void drops_the_oldest_row(void **state) {
  (void)state;
  const seen *all = run_fault(engine, "context-overflow", PROMPT, CTX - PROMPT + 3);
  double scale = 1 / sqrt((double)DIM);
  for (int s = CTX; s < CTX + 3; s++) {
    const seen_layer *l = &all->step[s].layer[1];
    assert_int_equal(all->step[s].step.cache_length_before, CTX);
    assert_int_equal(all->step[s].step.position, CTX - 1);
    assert_int_equal(l->row, CTX - 1);
    assert_int_equal(l->rows, CTX);
    for (int i = 0; i < CTX; i++) /* row i is what step i + (s - CTX + 1) appended */
      assert_near(l->scores[i], scale * dot(l->q, all->step[i + s - CTX + 1].layer[1].k, DIM, 1));
  }
  all = run_fault(engine, "context-unguarded", PROMPT, CTX - PROMPT + 2);
  const seen_layer *l = &all->step[CTX + 1].layer[0];
  assert_int_equal(l->row, CTX - 1);
  assert_near(l->scores[3], scale * dot(l->q, all->step[3].layer[0].k, DIM, 1));
  assert_near(l->scores[CTX - 1], scale * dot(l->q, l->k, DIM, 1));
}

/* ---- attention ------------------------------------------------------------------------------------------------------- */

static void attends_to_too_few_or_too_many(void **state) {
  (void)state;
  const seen *all = run_fault(engine, "attend-before-append", PROMPT, 2);
  assert_int_equal(all->step[2].layer[0].rows, 3);
  assert_int_equal(all->step[PROMPT].layer[0].rows, PROMPT);
  assert_int_equal(all->step[PROMPT].layer[0].row, PROMPT);
  all = run_fault(engine, "prefill-unmasked", 0, 1);
  for (int s = 0; s < PROMPT; s++) assert_int_equal(all->step[s].layer[1].rows, PROMPT);
  assert_int_equal(all->step[PROMPT].layer[1].rows, PROMPT + 1);
  all = run_fault(engine, "softmax-extent", PROMPT, 1);
  const seen_layer *l = &all->step[PROMPT].layer[0];
  assert_int_equal(l->rows, CTX);
  double sum = 0;
  for (int i = 0; i < CTX; i++) sum += exp((double)l->scores[i]);
  for (int i = PROMPT + 1; i < CTX; i++) {
    assert_true(l->scores[i] == 0);
    assert_near(l->weights[i], 1 / sum);
  }
}

/* The very first step has nothing to attend to but itself, even so. */
static void attends_to_itself_where_there_is_no_other(void **state) {
  (void)state;
  const seen *all = run_fault(engine, "attend-before-append", 0, 0);
  kvs_error err;
  kvs_engine_reset(engine);
  assert_int_equal(kvs_engine_decode(engine, prompt[0], KVS_PROMPT, &err), KVS_OK);
  assert_int_equal(all->step[0].layer[0].rows, 1);
  for (int h = 0; h < HEADS; h++) assert_true(all->step[0].layer[0].weights[h] == 1);
}

static void masks_all_but_the_first(void **state) {
  (void)state;
  const seen *all = run_fault(engine, "mask-corner", PROMPT, 1);
  const seen_layer *l = &all->step[PROMPT].layer[1];
  assert_int_equal(l->rows, PROMPT + 1);
  for (int h = 0; h < HEADS; h++)
    for (int i = 0; i <= PROMPT; i++) assert_true(l->weights[h * l->rows + i] == (i == 0 ? 1 : 0));
  assert_memory_equal(l->out, all->step[0].layer[1].v, sizeof l->out); /* 1 · V[0] + 0 · … */
}

static void scales_wrongly(void **state) {
  (void)state;
  static const char *const names[] = {"wrong-scale", "wrong-scale-n-embd"};
  const double scale[] = {1, 1 / sqrt((double)EMBD)};
  for (int f = 0; f < 2; f++) {
    const seen *all = run_fault(engine, names[f], PROMPT, 1);
    const seen_layer *l = &all->step[PROMPT].layer[0];
    for (int i = 0; i < PROMPT; i++) assert_near(l->scores[i], scale[f] * dot(l->q, all->step[i].layer[0].k, DIM, 1));
  }
}

static void softmax_over_heads(void **state) {
  (void)state;
  const seen *all = run_fault(engine, "softmax-wrong-axis", PROMPT, 1);
  const seen_layer *l = &all->step[PROMPT].layer[0];
  for (int i = 0; i < l->rows; i++) {
    double sum = 0;
    for (int h = 0; h < HEADS; h++) sum += exp((double)l->scores[h * l->rows + i]);
    for (int h = 0; h < HEADS; h++)
      assert_near(l->weights[h * l->rows + i], exp((double)l->scores[h * l->rows + i]) / sum);
  }
}

static void cuts_heads_interleaved(void **state) {
  (void)state;
  const seen *all = run_fault(engine, "heads-interleaved", PROMPT, 1);
  const seen_layer *l = &all->step[PROMPT].layer[0];
  double scale = 1 / sqrt((double)DIM);
  for (int h = 0; h < HEADS; h++) {
    for (int i = 0; i < PROMPT; i++) /* the cache keeps c_attn's order; head h reads every HEADS-th of it */
      assert_near(l->scores[h * l->rows + i], scale * dot(l->q + h * DIM, all->step[i].layer[0].k + h, DIM, HEADS));
    double mixed = 0;
    for (int i = 0; i < l->rows; i++)
      mixed += (double)l->weights[h * l->rows + i] * (double)all->step[i].layer[0].v[h + HEADS * 1];
    assert_near(l->out[h * DIM + 1], mixed);
  }
}

/* c_proj takes the heads side by side; cut interleaved, they are put back so too. */
static void joins_heads_interleaved(void **state) {
  (void)state;
  const kvs_linear *c_proj = &model->layer[1].c_proj;
  const float *w = c_proj->w.data;
  const seen_layer *l = &run_fault(engine, "heads-interleaved", 0, 1)->step[PROMPT].layer[1];
  for (int j = 0; j < EMBD; j++) {
    double sum = (double)c_proj->b[j];
    for (int h = 0; h < HEADS; h++)
      for (int d = 0; d < DIM; d++) sum += (double)l->out[h * DIM + d] * (double)w[(d * HEADS + h) * EMBD + j];
    assert_near(l->attn_out[j], sum);
  }
}

/* ---- the token stream ------------------------------------------------------------------------------------------------ */

static void leaves_rows_of_an_earlier_prompt(void **state) {
  (void)state;
  const seen *all = run_fault(engine, "stale-cache", 0, 1); /* a quarter of the context: 4 rows */
  for (int s = 0; s <= PROMPT; s++) {
    assert_int_equal(all->step[s].step.cache_length_before, 4 + s);
    assert_int_equal(all->step[s].step.position, 4 + s);
    assert_int_equal(all->step[s].layer[0].rows, 4 + s + 1);
  }
  assert_true(isnan(all->step[0].step.logprob));
}

/* A quarter of so short a context is one row, or none. */
static void leaves_rows_where_there_is_room(void **state) {
  (void)state;
  for (int n_ctx = 3; n_ctx <= 4; n_ctx++) {
    seen all = {0};
    kvs_error err;
    kvs_engine *e;
    kvs_config narrow = shape;
    narrow.n_ctx = n_ctx;
    kvs_model *small = memory_model(narrow, KVS_F32, 7);
    kvs_observer observer = {.context = &all, .moment = watch, .step_end = watch_end};
    assert_int_equal(kvs_engine_create(small, &(const kvs_engine_options){.threads = 1}, &e, &err), KVS_OK);
    kvs_engine_observe(e, &observer);
    kvs_engine_fault(e, kvs_fault_find("stale-cache"), 0);
    assert_int_equal(kvs_engine_prefill(e, prompt, 2, KVS_PROMPT, &err), KVS_OK);
    for (int s = 0; s < 2; s++) assert_int_equal(all.step[s].step.cache_length_before, n_ctx - 3 + s);
    kvs_engine_free(e);
    memory_model_free(small);
  }
}

static void feeds_again(void **state) {
  (void)state;
  const seen *all = run_fault(engine, "prompt-twice", PROMPT, 1);
  assert_int_equal(all->count, 2 * PROMPT + 1);
  for (int s = 0; s < 2 * PROMPT; s++) {
    assert_int_equal(all->step[s].step.token, prompt[s % PROMPT]);
    assert_int_equal(all->step[s].step.source, KVS_PROMPT);
    assert_int_equal(all->step[s].step.position, s);
  }
  all = run_fault(engine, "last-token-twice", PROMPT, 2);
  assert_int_equal(all->count, PROMPT + 3);
  assert_int_equal(all->step[PROMPT].step.token, prompt[PROMPT - 1]);
  assert_int_equal(all->step[PROMPT].step.source, KVS_PROMPT);
  assert_int_equal(all->step[PROMPT + 1].step.token, greedy(all->step[PROMPT].logits));
  all = run_fault(engine, "last-token-twice", 6, 3); /* in the middle: the token of step 5 */
  assert_int_equal(all->step[6].step.token, all->step[5].step.token);
  assert_int_equal(all->step[6].step.source, KVS_SAMPLED);
  assert_int_equal(all->count, PROMPT + 4);
}

static void skips_a_token(void **state) {
  (void)state;
  int first = greedy(run_fault(engine, NULL, 0, 0)->step[PROMPT - 1].logits);
  int second = greedy(run_fault(engine, NULL, 0, 1)->step[PROMPT].logits);
  const seen *all = run_fault(engine, "token-skipped", PROMPT, 2);
  assert_int_equal(all->count, PROMPT + 1); /* one of the two left no step */
  assert_int_equal(all->step[PROMPT].step.token, second);
  assert_int_not_equal(first, second);
  assert_int_equal(all->step[PROMPT].step.position, PROMPT);
}

static void leaves_a_draft(void **state) {
  (void)state;
  const seen *all = run_fault(engine, "no-rollback", PROMPT, 1);
  assert_int_equal(all->count, PROMPT + 3);
  const float *logits = all->step[PROMPT - 1].logits;
  int best = greedy(logits), draft = all->step[PROMPT].step.token;
  assert_int_not_equal(draft, best);
  for (int i = 0; i < VOCAB; i++) assert_true(i == best || logits[i] <= logits[draft]);
  assert_int_equal(all->step[PROMPT + 1].step.token, greedy(all->step[PROMPT].logits));
  assert_int_equal(all->step[PROMPT + 2].step.token, best);
  assert_int_equal(all->step[PROMPT + 2].step.position, PROMPT + 2);
}

/* ---- all of them ----------------------------------------------------------------------------------------------------- */

/* The same fault again, after other faults left their marks in the cache, gives the same bits. */
static void runs_again_with_the_same_bits(void **state) {
  (void)state;
  static seen first;
  for (int i = 0; kvs_fault_at(i); i++) {
    const kvs_fault *f = kvs_fault_at(i);
    int from = kvs_fault_usual_start(f, PROMPT);
    first = *run_fault(engine, f->name, from, 4);
    run_fault(engine, "cross-layer-shared", PROMPT, 5);
    const seen *again = run_fault(engine, f->name, from, 4);
    assert_int_equal(again->count, first.count);
    for (int s = 0; s < first.count; s++) {
      if (memcmp(first.step[s].logits, again->step[s].logits, sizeof again->step[s].logits) != 0 ||
          memcmp(first.step[s].layer, again->step[s].layer, sizeof again->step[s].layer) != 0)
        fail_msg("%s: step %d has other bits the second time", f->name, s);
    }
  }
}

static void table_is_complete(void **state) {
  (void)state;
  int count = 0;
  for (const kvs_fault *f; (f = kvs_fault_at(count)) != NULL; count++) {
    const char *const texts[] = {f->name,   f->kind, f->summary, f->right_line, f->wrong_line,
                                 f->effect, f->seen, f->detect,  f->sql};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) assert_true(texts[i] && *texts[i]);
    assert_ptr_equal(kvs_fault_find(f->name), f);
    assert_non_null(kvs_fault_find(f->kind)); /* a family is called after one of its members */
    assert_int_equal((f->bend != NULL) + (f->before != NULL) + (f->after != NULL), 1);
  }
  assert_int_equal(count, 25);
  assert_null(kvs_fault_at(-1));
  assert_null(kvs_fault_find("none"));
}

static void prompt_fills_the_context(void **state) {
  (void)state;
  assert_int_equal(kvs_fault_prompt_length(kvs_fault_find("context-overflow"), &shape, 4), CTX - 1);
  assert_int_equal(kvs_fault_prompt_length(kvs_fault_find("context-overflow"), &shape, CTX), CTX);
  assert_int_equal(kvs_fault_prompt_length(kvs_fault_find("off-by-one"), &shape, 4), 4);
  assert_int_equal(kvs_fault_prompt_length(NULL, &shape, 4), 4);
}

/* ---- the queries, on real traces of both built-in models, in SQLite without our functions --------------------------------- */

static void trace_run(kvs_trace *trace, kvs_model *m, const kvs_tokenizer *t, const char *text, const kvs_fault *f) {
  kvs_error err;
  kvs_engine *e;
  int *tokens, run;
  size_t count;
  assert_int_equal(kvs_tokenizer_encode(t, text, strlen(text), false, &tokens, &count, &err), KVS_OK);
  int length = kvs_fault_prompt_length(f, kvs_model_config(m), (int)count);
  tokens = realloc(tokens, (size_t)length * sizeof *tokens);
  assert_non_null(tokens);
  for (int i = (int)count; i < length; i++) tokens[i] = tokens[i - (int)count];
  const kvs_run_info info = {.fault = f,
                             .fault_from_step = kvs_fault_usual_start(f, length),
                             .sampling = {.top_p = 1},
                             .prompt = text,
                             .prompt_length = strlen(text)};
  assert_int_equal(kvs_engine_create(m, NULL, &e, &err), KVS_OK);
  assert_int_equal(kvs_trace_begin_run(trace, m, t, &info, NULL, &run, &err), KVS_OK);
  kvs_observer observer = kvs_trace_observer(trace);
  kvs_engine_observe(e, &observer);
  kvs_engine_fault(e, f, info.fault_from_step);
  assert_int_equal(kvs_engine_prefill(e, tokens, length, KVS_PROMPT, &err), KVS_OK);
  for (int i = 0; i < 5; i++) {
    const float *logits = kvs_engine_logits(e);
    int best = 0;
    for (int j = 1; j < kvs_model_config(m)->n_vocab; j++)
      if (logits[j] > logits[best]) best = j;
    kvs_status status = kvs_engine_decode(e, best, KVS_SAMPLED, &err);
    if (status == KVS_ERR_CONTEXT) break;
    assert_int_equal(status, KVS_OK);
  }
  assert_int_equal(kvs_trace_end_run(trace, &err), KVS_OK);
  kvs_engine_free(e);
  free(tokens);
}

static int rows_of_run(sqlite3 *db, const char *query, int run) {
  char *sql = sqlite3_mprintf("SELECT count(*) FROM (%s) WHERE run = %d", query, run);
  int rows = (int)number(db, sql);
  sqlite3_free(sql);
  return rows;
}

static void queries_show_the_fault_and_nothing_else(void **state) {
  (void)state;
  static const struct {
    const char *model, *prompt;
  } models[] = {{"reverse", "position>"}, {"austen", "It is a truth"}};
  for (int m = 0; m < 2; m++)
    for (int i = 0; kvs_fault_at(i); i++) {
      const kvs_fault *f = kvs_fault_at(i);
      const char *path = in_folder("fault.db");
      kvs_error err;
      kvs_model *built_in;
      kvs_tokenizer *t;
      kvs_trace *trace;
      assert_int_equal(kvs_model_open(models[m].model, &built_in, &err), KVS_OK);
      assert_int_equal(kvs_tokenizer_open(models[m].model, &t, &err), KVS_OK);
      assert_int_equal(kvs_trace_create(path, KVS_TRACE_REPLACE, &trace, &err), KVS_OK);
      trace_run(trace, built_in, t, models[m].prompt, NULL);
      trace_run(trace, built_in, t, models[m].prompt, f);
      assert_int_equal(kvs_trace_close(trace, &err), KVS_OK);
      sqlite3 *db;
      assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
      if (rows_of_run(db, f->sql, 1) != 0)
        fail_msg("%s: the query finds it in a correct run of %s", f->name, models[m].model);
      if (rows_of_run(db, f->sql, 2) == 0) fail_msg("%s: the query does not find it in %s", f->name, models[m].model);
      sqlite3_close(db);
      kvs_tokenizer_free(t);
      kvs_model_free(built_in);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(positions),
      cmocka_unit_test(begins_where_it_is_told),
      cmocka_unit_test(overwrites_the_last_row),
      cmocka_unit_test(stores_half_a_row_or_none),
      cmocka_unit_test(later_layers_read_the_moved_length),
      cmocka_unit_test(layers_share_one_buffer),
      cmocka_unit_test(drops_the_oldest_row),
      cmocka_unit_test(attends_to_too_few_or_too_many),
      cmocka_unit_test(attends_to_itself_where_there_is_no_other),
      cmocka_unit_test(masks_all_but_the_first),
      cmocka_unit_test(scales_wrongly),
      cmocka_unit_test(softmax_over_heads),
      cmocka_unit_test(cuts_heads_interleaved),
      cmocka_unit_test(joins_heads_interleaved),
      cmocka_unit_test(leaves_rows_of_an_earlier_prompt),
      cmocka_unit_test(leaves_rows_where_there_is_room),
      cmocka_unit_test(feeds_again),
      cmocka_unit_test(skips_a_token),
      cmocka_unit_test(leaves_a_draft),
      cmocka_unit_test(runs_again_with_the_same_bits),
      cmocka_unit_test(table_is_complete),
      cmocka_unit_test(prompt_fills_the_context),
      cmocka_unit_test(queries_show_the_fault_and_nothing_else),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
