/* engine.c: a GPT-2 that decodes with a KV cache of its own, recorded for kvstep; a sixth argument makes a mistake that people make.
 *     cc engine.c weights.c $(pkg-config --cflags --libs kvstep jansson) -lm -o engine
 *     ./engine ../../models/reverse 'position>' mine.db 16
 *     ./engine ../../models/reverse 'position>' bug.db 16 off-by-one
 *     kvstep check bug.db -m reverse
 *
 * Cache, weights and arithmetic are its own. From libkvstep it takes the tokenizer, the model's shape and SHA-256, and the
 * trace: the recorder is kvs_trace_begin_run_from, and an observer whose functions this engine calls where things happen. Every
 * token, the prompt's too, is fed alone. No model with another scale or activation than GPT-2's.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvstep/kvstep.h>

#include "weights.h"

typedef struct engine {
  const kvs_config *c;
  const tensors *w;
  kvs_observer o;
  kvs_error *err;
  const char *bug;
  int bug_from, steps;
  float *k, *v; /* [n_layer][n_ctx][n_embd] */
  int length;
  float *x, *normed, *qkv, *scores, *weights, *out, *attn_out, *x_mid, *inner, *mlp_out, *logits;
} engine;

static int makes(const engine *e, const char *bug) {
  return e->bug && e->steps >= e->bug_from && strcmp(e->bug, bug) == 0;
}

/* ---- arithmetic ---- */

static void layer_norm(const engine *e, const float *x, float *y, const float *gain, const float *bias) {
  int n = e->c->n_embd;
  double mean = 0, variance = 0;
  for (int i = 0; i < n; i++) mean += (double)x[i] / n;
  for (int i = 0; i < n; i++) variance += ((double)x[i] - mean) * ((double)x[i] - mean) / n;
  for (int i = 0; i < n; i++)
    y[i] = (float)(((double)x[i] - mean) / sqrt(variance + (double)e->c->layer_norm_epsilon)) * gain[i] + bias[i];
}

/* y [out] = b + x [in] · w [in][out] */
static void affine(const float *x, int in, float *y, int out, const float *w, const float *b) {
  memcpy(y, b, (size_t)out * sizeof *y);
  for (int i = 0; i < in; i++)
    for (int j = 0; j < out; j++) y[j] += x[i] * w[(size_t)i * (size_t)out + (size_t)j];
}

static float gelu(float x) { return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x))); }

/* ---- telling ---- */

static kvs_status tell(engine *e, kvs_moment *m, kvs_phase phase, int layer, int length) {
  m->phase = phase, m->layer = layer, m->cache_length = length;
  return e->o.moment(e->o.context, m, e->err);
}

/* ---- one step ---- */

/* Scores, weights and out of every head over the first `rows` rows of a layer. */
static void attend(engine *e, int layer, int rows) {
  const int E = e->c->n_embd, D = e->c->head_dim;
  const size_t base = (size_t)layer * (size_t)e->c->n_ctx * (size_t)E;
  float scale = makes(e, "wrong-scale") ? 1 : 1 / sqrtf((float)D);
  for (int h = 0; h < e->c->n_head; h++) {
    float *scores = e->scores + h * rows, *weights = e->weights + h * rows, *out = e->out + h * D, most = -INFINITY,
          sum = 0;
    for (int r = 0; r < rows; r++) {
      float dot = 0;
      for (int d = 0; d < D; d++) dot += e->qkv[h * D + d] * e->k[base + (size_t)(r * E + h * D + d)];
      scores[r] = dot * scale;
      most = fmaxf(most, scores[r]);
    }
    for (int r = 0; r < rows; r++) sum += weights[r] = expf(scores[r] - most);
    for (int r = 0; r < rows; r++) weights[r] /= sum;
    for (int d = 0; d < D; d++) {
      out[d] = 0;
      for (int r = 0; r < rows; r++) out[d] += weights[r] * e->v[base + (size_t)(r * E + h * D + d)];
    }
  }
}

static kvs_status attend_and_tell(engine *e, kvs_moment *m, int layer, int rows, int length) {
  attend(e, layer, rows);
  m->rows = rows, m->scores = e->scores;
  kvs_status status = tell(e, m, KVS_SCORE, layer, length);
  m->weights = e->weights;
  if (!status) status = tell(e, m, KVS_SOFTMAX, layer, length);
  m->out = e->out;
  return status ? status : tell(e, m, KVS_MIX, layer, length);
}

/* k and v of this token become a row; returns which. */
static int append(engine *e, int layer) {
  const size_t E = (size_t)e->c->n_embd;
  int row = makes(e, "overwrite-last") && e->length > 0 ? e->length - 1 : e->length;
  size_t at = ((size_t)layer * (size_t)e->c->n_ctx + (size_t)row) * E;
  if (!makes(e, "row-never-written")) memcpy(e->k + at, e->qkv + E, E * sizeof(float));
  if (!makes(e, "row-never-written") && !makes(e, "k-without-v")) memcpy(e->v + at, e->qkv + 2 * E, E * sizeof(float));
  return row;
}

static kvs_status block(engine *e, const kvs_step *s, int layer) {
  const int E = e->c->n_embd, I = e->c->n_inner, late = makes(e, "attend-before-append") && e->length > 0;
  const size_t n = (size_t)E, inner = (size_t)I;
#define W(count, name) weights_get(e->w, count, "h.%d." name, layer)
  float *x_in = e->x;
  kvs_moment m = {.step = s, .x_in = x_in, .row = -1};
  layer_norm(e, x_in, e->normed, W(n, "ln_1.weight"), W(n, "ln_1.bias"));
  affine(e->normed, E, e->qkv, 3 * E, W(3 * n * n, "attn.c_attn.weight"), W(3 * n, "attn.c_attn.bias"));
  m.q = e->qkv, m.k = e->qkv + E, m.v = e->qkv + 2 * E;
  kvs_status status = tell(e, &m, KVS_PROJECT, layer, e->length);
  if (!status && late) status = attend_and_tell(e, &m, layer, e->length, e->length);
  m.row = append(e, layer);
  const size_t at = ((size_t)layer * (size_t)e->c->n_ctx + (size_t)m.row) * n;
  m.row_k = e->k + at, m.row_v = e->v + at; /* read back from the cache: what is really there */
  if (!status) status = tell(e, &m, KVS_APPEND, layer, m.row + 1);
  if (!status && !late) status = attend_and_tell(e, &m, layer, m.row + 1, m.row + 1);
  affine(e->out, E, e->attn_out, E, W(n * n, "attn.c_proj.weight"), W(n, "attn.c_proj.bias"));
  for (int i = 0; i < E; i++) e->x_mid[i] = x_in[i] + e->attn_out[i];
  m.attn_out = e->attn_out, m.x_mid = e->x_mid;
  if (!status) status = tell(e, &m, KVS_OUTPUT, layer, m.row + 1);
  layer_norm(e, e->x_mid, e->normed, W(n, "ln_2.weight"), W(n, "ln_2.bias"));
  affine(e->normed, E, e->inner, I, W(n * inner, "mlp.c_fc.weight"), W(inner, "mlp.c_fc.bias"));
  for (int i = 0; i < I; i++) e->inner[i] = gelu(e->inner[i]);
  affine(e->inner, I, e->mlp_out, E, W(n * inner, "mlp.c_proj.weight"), W(n, "mlp.c_proj.bias"));
#undef W
  for (int i = 0; i < E; i++) e->normed[i] = e->x_mid[i] + e->mlp_out[i];
  m.mlp_out = e->mlp_out, m.x_out = e->normed;
  if (!status) status = tell(e, &m, KVS_MLP, layer, m.row + 1);
  memcpy(e->x, e->normed, n * sizeof(float));
  return status;
}

/* The rule: the position is the cache length before the append. */
static int position_of(const engine *e, int prompt_length) {
  if (makes(e, "off-by-one")) return e->length + 1;
  if (makes(e, "reset-to-zero")) return 0;
  if (makes(e, "constant-position")) return prompt_length;
  if (makes(e, "position-jump")) return e->length + prompt_length - 1;
  if (makes(e, "skip-wpe")) return -1;
  return e->length;
}

/* log softmax(logits)[token] of the step before; NaN before the first. */
static double logprob_of(const engine *e, int token) {
  return e->steps ? kvs_logprob(e->logits, e->c->n_vocab, token) : NAN;
}

static kvs_status feed(engine *e, int token, kvs_source source, int prompt_length) {
  const int E = e->c->n_embd, V = e->c->n_vocab, t = position_of(e, prompt_length);
  if (e->length >= e->c->n_ctx || t >= e->c->n_ctx) return kvs_fail(e->err, KVS_ERR_CONTEXT, "the context is full");
  const int after = makes(e, "overwrite-last") && e->length > 0 ? e->length : e->length + 1;
  const kvs_step s = {e->steps, KVS_DECODE, token, source, e->length, t, after, logprob_of(e, token), NAN};
  const float *wte = weights_get(e->w, (size_t)V * (size_t)E, "wte.weight");
  const float *wpe = weights_get(e->w, (size_t)e->c->n_ctx * (size_t)E, "wpe.weight");
  kvs_moment m = {.step = &s, .row = -1};
  kvs_status status = tell(e, &m, KVS_READ_LENGTH, -1, e->length);
  m.wte = wte + (size_t)token * (size_t)E, m.wpe = t < 0 ? NULL : wpe + (size_t)t * (size_t)E, m.x = e->x;
  for (int i = 0; i < E; i++) e->x[i] = m.wte[i] + (m.wpe ? m.wpe[i] : 0);
  if (!status) status = tell(e, &m, KVS_EMBED, -1, e->length);
  for (int layer = 0; !status && layer < e->c->n_layer; layer++) status = block(e, &s, layer);
  layer_norm(e, e->x, e->normed, weights_get(e->w, (size_t)E, "ln_f.weight"),
             weights_get(e->w, (size_t)E, "ln_f.bias"));
  for (int i = 0; i < V; i++) {
    e->logits[i] = 0;
    for (int j = 0; j < E; j++) e->logits[i] += e->normed[j] * wte[(size_t)i * (size_t)E + (size_t)j];
  }
  kvs_moment last = {.step = &s, .row = -1, .logits = e->logits};
  if (!status) status = tell(e, &last, KVS_LOGITS, -1, after);
  if (!status) status = e->o.step_end(e->o.context, &s, e->err);
  if (!status) status = e->o.settled(e->o.context, e->err);
  e->length = after, e->steps++;
  return status;
}

/* ---- a run ---- */

static int make_engine(engine *e) {
  const size_t E = (size_t)e->c->n_embd, C = (size_t)e->c->n_ctx, V = (size_t)e->c->n_vocab, I = (size_t)e->c->n_inner;
  const size_t cache = (size_t)e->c->n_layer * C * E, heads = (size_t)e->c->n_head * C;
  struct {
    float **to;
    size_t count;
  } all[] = {{&e->k, cache},      {&e->v, cache},       {&e->x, E},     {&e->normed, E},   {&e->qkv, 3 * E},
             {&e->scores, heads}, {&e->weights, heads}, {&e->out, E},   {&e->attn_out, E}, {&e->x_mid, E},
             {&e->inner, I},      {&e->mlp_out, E},     {&e->logits, V}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (!(*all[i].to = calloc(all[i].count, sizeof(float)))) return 0;
  return 1;
}

static void free_engine(engine *e) {
  float *all[] = {e->k,   e->v,        e->x,     e->normed, e->qkv,     e->scores, e->weights,
                  e->out, e->attn_out, e->x_mid, e->inner,  e->mlp_out, e->logits};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static int best(const engine *e) {
  int at = 0;
  for (int i = 1; i < e->c->n_vocab; i++)
    if (e->logits[i] > e->logits[at]) at = i;
  return at;
}

static kvs_status generate(engine *e, const int *tokens, int count, int more) {
  kvs_status status = KVS_OK;
  for (int i = 0; !status && i < count; i++) status = feed(e, tokens[i], KVS_PROMPT, count);
  for (int i = 0; !status && i < more && best(e) != e->c->eos_token; i++) status = feed(e, best(e), KVS_SAMPLED, count);
  return status == KVS_ERR_CONTEXT ? KVS_OK : status; /* a full context ends a text, it is no failure */
}

static const unsigned char *bytes_of(const void *tokenizer, int token, size_t *length) {
  return kvs_tokenizer_bytes(tokenizer, token, length);
}

int main(int argc, char **argv) {
  if (argc < 4 || argc > 6) return fprintf(stderr, "usage: engine FOLDER PROMPT TRACE [TOKENS [BUG]]\n"), 2;
  kvs_error err;
  kvs_model *model = NULL;
  kvs_tokenizer *tokenizer = NULL;
  kvs_trace *trace = NULL;
  const char *sha256 = NULL;
  int *tokens = NULL;
  size_t count = 0;
  engine e = {.err = &err, .bug = argc > 5 ? argv[5] : NULL};

  kvs_status status = kvs_model_open(argv[1], &model, &err);
  if (!status) status = kvs_model_sha256(model, &sha256, &err);
  if (!status) status = kvs_tokenizer_open(argv[1], &tokenizer, &err);
  if (!status) status = kvs_tokenizer_encode(tokenizer, argv[2], strlen(argv[2]), 0, &tokens, &count, &err);
  if (!status) e.c = kvs_model_config(model), e.w = weights_open(argv[1]);
  if (e.c && (!e.c->tied || !e.c->scale_attn_weights || e.c->scale_attn_by_inverse_layer_idx ||
              e.c->activation != KVS_GELU_NEW))
    status = kvs_fail(&err, KVS_ERR_INPUT, "%s: this small engine knows GPT-2's usual scale, activation and head only",
                      argv[1]);
  if (!status && (!e.w || !make_engine(&e))) status = kvs_fail(&err, KVS_ERR_MEMORY, "no weights, or no memory");
  e.bug_from = (int)count;

  /* The recorder: who the engine is, then an observer to tell what happens. */
  const kvs_trace_source source = {.config = e.c,
                                   .model = model ? kvs_model_name(model) : NULL,
                                   .sha256 = sha256,
                                   .tokens = tokenizer ? kvs_tokenizer_size(tokenizer) : 0,
                                   .bytes = bytes_of,
                                   .context = tokenizer,
                                   .engine = "engine.c",
                                   .engine_version = "1"};
  char command[64];
  snprintf(command, sizeof command, "engine%s%.40s", e.bug ? " " : "", e.bug ? e.bug : "");
  const kvs_run_info info = {
      .command = command, .sampling = {.top_p = 1}, .prompt = argv[2], .prompt_length = strlen(argv[2])};
  const kvs_log log = {.level = KVS_LOG_FULL, .last_step = -1};
  if (!status) status = kvs_trace_create(argv[3], KVS_TRACE_APPEND, &trace, &err);
  if (!status) status = kvs_trace_begin_run_from(trace, &source, &info, &log, NULL, &err);
  if (!status) e.o = kvs_trace_observer(trace);

  if (!status) status = generate(&e, tokens, (int)count, argc > 4 ? atoi(argv[4]) : 16);
  if (!status) status = kvs_trace_end_run(trace, &err);
  if (trace && kvs_trace_close(trace, status ? NULL : &err) && !status) status = KVS_ERR_IO;
  if (status) fprintf(stderr, "engine: %s\n", err.message);
  free(tokens);
  free_engine(&e);
  weights_close((tensors *)e.w);
  if (tokenizer) kvs_tokenizer_free(tokenizer);
  if (model) kvs_model_free(model);
  return status ? 1 : 0;
}
