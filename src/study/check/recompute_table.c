/* recompute_table.c: layer 0's rows for every position, and how near a row of the trace is to them.
 *
 * With h = ln_1(wte + wpe[p]) = (wte + wpe[p] − mean)·inverse·g + b, a row is
 * c_attn(h) = inverse·(wte·g·W + wpe[p]·g·W − mean·g·W) + b·W + bias. The middle product is worked out once for all p, so each token's whole table costs little more than reading it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ops.h"
#include "study/check/recompute_parts.h"

static struct match compare(const float *row, const float *entry, int n, int token, int position) {
  double rr = 0, re = 0, ee = 0;
  for (int i = 0; i < n; i++) {
    rr += (double)row[i] * (double)row[i], re += (double)row[i] * (double)entry[i];
    ee += (double)entry[i] * (double)entry[i];
  }
  /* |row − s·entry|² by expansion loses half the digits, so the distances are summed directly. */
  double scale = re / ee, difference = 0, rest = 0;
  for (int i = 0; i < n; i++) {
    double d = (double)row[i] - (double)entry[i], e = (double)row[i] - scale * (double)entry[i];
    difference += d * d, rest += e * e;
  }
  return (struct match){token, position, sqrt(difference / ee), scale, sqrt(rest / rr)};
}

static kvs_status build_table(struct recompute *r, kvs_error *err) {
  if (r->table) return KVS_OK;
  const kvs_config *c = &r->model->config;
  const kvs_layer *layer = &r->model->layer[0];
  size_t n = (size_t)c->n_embd, wide = 3 * n, rows = (size_t)c->n_ctx;
  float *input = malloc((rows + 2) * n * sizeof(float)), *output = malloc((rows + 2) * wide * sizeof(float));
  float *none = calloc(wide, sizeof(float));
  if (!input || !output || !none) {
    free(input), free(output), free(none);
    return kvs_fail_memory(err, "working out layer 0's rows for every position");
  }
  for (size_t p = 0; p < rows; p++) {
    const kvs_tensor *t = &r->model->wpe;
    const char *from = (const char *)t->data + p * n * (t->dtype == KVS_F32 ? 4 : 2);
    r->engine->kernels->widen(input + p * n, from, t->dtype, c->n_embd);
    for (size_t i = 0; i < n; i++) input[p * n + i] *= layer->ln_1.g[i];
  }
  memcpy(input + rows * n, layer->ln_1.g, n * sizeof(float));
  memcpy(input + (rows + 1) * n, layer->ln_1.b, n * sizeof(float));
  const kvs_linear linear = {layer->c_attn.w, none};
  kvs_op_linear(r->engine, output, input, c->n_ctx + 2, &linear);
  r->table = output, r->gains = output + rows * wide, r->biases = r->gains + wide;
  for (size_t i = 0; i < wide; i++) r->biases[i] += layer->c_attn.b[i];
  free(input), free(none);
  return KVS_OK;
}

/* c_attn of wte[token]·g, without bias, for the table's other part; into r->next. */
static void token_part(struct recompute *r, int token, float *x) {
  const kvs_layer *layer = &r->model->layer[0];
  float *scaled = r->engine->s.attn_out;
  recompute_embed(r, token, KVS_NO_POSITION, x);
  for (int i = 0; i < r->model->config.n_embd; i++) scaled[i] = x[i] * layer->ln_1.g[i];
  kvs_op_linear(r->engine, r->engine->s.qkv, scaled, 1, &layer->c_attn);
  for (int i = 0; i < 3 * r->model->config.n_embd; i++) r->next[i] = r->engine->s.qkv[i] - layer->c_attn.b[i];
}

static void entry_of(const struct recompute *r, enum carrier carrier, const float *x, int position, float *entry) {
  int n = r->model->config.n_embd;
  double sum = 0, square = 0;
  for (int i = 0; i < n; i++) sum += (double)x[i];
  double mean = sum / n;
  for (int i = 0; i < n; i++) square += ((double)x[i] - mean) * ((double)x[i] - mean);
  double inverse = 1 / sqrt(square / n + (double)r->model->config.layer_norm_epsilon);
  size_t from = (size_t)carrier * (size_t)n;
  const float *table = position < 0 ? NULL : r->table + (size_t)position * 3 * (size_t)n + from;
  for (int i = 0; i < n; i++) {
    double whole =
        (double)r->next[from + (size_t)i] + (table ? (double)table[i] : 0) - mean * (double)r->gains[from + (size_t)i];
    entry[i] = (float)(inverse * whole + (double)r->biases[from + (size_t)i]);
  }
}

kvs_status recompute_search(struct work *w, int token, enum carrier carrier, const float *row, bool scaled,
                            struct match *best, kvs_error *err) {
  struct recompute *r = w->r;
  if (build_table(r, err)) return err->status;
  float *wte = r->engine->s.x_mid, *x = r->engine->s.x, *entry = r->engine->s.mlp_out, *wpe = r->engine->s.wpe;
  token_part(r, token, wte);
  *best = (struct match){token, KVS_NO_POSITION, INFINITY, 1, INFINITY};
  for (int p = KVS_NO_POSITION; p < w->config->n_ctx; p++) {
    memcpy(x, wte, (size_t)w->config->n_embd * sizeof(float));
    if (p >= 0) {
      const kvs_tensor *t = &r->model->wpe;
      r->engine->kernels->widen(wpe,
                                (const char *)t->data + (size_t)p * (size_t)t->cols * (t->dtype == KVS_F32 ? 4 : 2),
                                t->dtype, w->config->n_embd);
      kvs_op_add(x, wte, wpe, (size_t)w->config->n_embd);
    }
    entry_of(r, carrier, x, p, entry);
    struct match m = compare(row, entry, w->config->n_embd, token, p);
    if (scaled ? m.rest < best->rest : m.distance < best->distance) *best = m;
  }
  return KVS_OK;
}

void recompute_compare(struct work *w, int token, enum carrier carrier, const float *row, const int *positions,
                       int count, struct match *matches) {
  struct recompute *r = w->r;
  size_t n = (size_t)w->config->n_embd;
  for (int i = 0; i < count; i++) recompute_embed(r, token, positions[i], r->tried + (size_t)i * n);
  const float *qkv = recompute_project(w, 0, r->tried, count);
  for (int i = 0; i < count; i++)
    matches[i] = compare(row, qkv + (size_t)i * 3 * n + (size_t)carrier * n, w->config->n_embd, token, positions[i]);
}
