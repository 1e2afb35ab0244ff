/* memory_model.c: random weights in memory. */
#include "tests/support/memory_model.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

float memory_random(unsigned long long *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (float)(int32_t)(*state >> 32) * 0x1p-31f;
}

/* float32 → binary16 or bfloat16 by cutting bits off: any value will do, it need not be the nearest. */
static uint16_t narrow(float value, kvs_dtype dtype) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (dtype == KVS_BF16) return (uint16_t)(bits >> 16);
  int exponent = (int)(bits >> 23 & 255) - 112;
  uint32_t sign = bits >> 16 & 0x8000;
  return (uint16_t)(exponent <= 0 ? sign : sign | (uint32_t)exponent << 10 | (bits >> 13 & 0x3FF));
}

void *memory_large(size_t bytes) {
  enum { LARGE = 2 << 20 };
  size_t alignment = bytes < LARGE ? 64 : LARGE, size = (bytes + alignment - 1) / alignment * alignment;
  void *data = aligned_alloc(alignment, size);
  if (!data) abort();
#ifdef MADV_HUGEPAGE
  if (alignment == LARGE) madvise(data, size, MADV_HUGEPAGE);
#endif
  return data;
}

static void *numbers(size_t n, kvs_dtype dtype, float scale, float offset, unsigned long long *state) {
  void *data = memory_large(n * (dtype == KVS_F32 ? 4 : 2));
  for (size_t i = 0; i < n; i++) {
    float value = offset + scale * memory_random(state);
    if (dtype == KVS_F32)
      ((float *)data)[i] = value;
    else
      ((uint16_t *)data)[i] = narrow(value, dtype);
  }
  return data;
}

static kvs_tensor matrix(int rows, int cols, kvs_dtype dtype, float scale, unsigned long long *state) {
  return (kvs_tensor){dtype, rows, cols, numbers((size_t)rows * (size_t)cols, dtype, scale, 0, state)};
}

static kvs_linear linear(int in, int out, kvs_dtype dtype, unsigned long long *state) {
  kvs_linear l = {matrix(in, out, dtype, 1.7f / sqrtf((float)in), state), NULL};
  l.b = numbers((size_t)out, KVS_F32, 0.3f, 0, state);
  return l;
}

static kvs_norm norm(int n, unsigned long long *state) {
  kvs_norm made = {numbers((size_t)n, KVS_F32, 0.3f, 1.0f, state), NULL};
  made.b = numbers((size_t)n, KVS_F32, 0.3f, 0, state);
  return made;
}

kvs_model *memory_model(kvs_config c, kvs_dtype dtype, unsigned seed) {
  kvs_model *model = calloc(1, sizeof *model);
  if (!model) abort();
  unsigned long long state = seed;
  c.head_dim = c.n_embd / c.n_head;
  if (!c.n_inner) c.n_inner = 4 * c.n_embd;
  if (!(c.layer_norm_epsilon > 0)) c.layer_norm_epsilon = 1e-5f;
  if (!c.eos_token) c.eos_token = -1;
  model->config = c;
  model->wte = matrix(c.n_vocab, c.n_embd, dtype, 0.8f, &state);
  model->wpe = matrix(c.n_ctx, c.n_embd, dtype, 0.8f, &state);
  model->layer = calloc((size_t)c.n_layer, sizeof *model->layer);
  if (!model->layer) abort();
  for (int l = 0; l < c.n_layer; l++)
    model->layer[l] = (kvs_layer){norm(c.n_embd, &state),
                                  linear(c.n_embd, 3 * c.n_embd, dtype, &state),
                                  linear(c.n_embd, c.n_embd, dtype, &state),
                                  norm(c.n_embd, &state),
                                  linear(c.n_embd, c.n_inner, dtype, &state),
                                  linear(c.n_inner, c.n_embd, dtype, &state)};
  model->ln_f = norm(c.n_embd, &state);
  model->lm_head = c.tied ? model->wte : matrix(c.n_vocab, c.n_embd, dtype, 0.8f, &state);
  return model;
}

static void linear_free(kvs_linear *l) {
  free((void *)l->w.data);
  free((void *)l->b);
}

static void norm_free(kvs_norm *n) {
  free((void *)n->g);
  free((void *)n->b);
}

void memory_model_free(kvs_model *model) {
  if (!model->config.tied) free((void *)model->lm_head.data);
  free((void *)model->wte.data);
  free((void *)model->wpe.data);
  for (int l = 0; l < model->config.n_layer; l++) {
    kvs_layer *layer = &model->layer[l];
    norm_free(&layer->ln_1);
    linear_free(&layer->c_attn);
    linear_free(&layer->c_proj);
    norm_free(&layer->ln_2);
    linear_free(&layer->mlp_c_fc);
    linear_free(&layer->mlp_c_proj);
  }
  norm_free(&model->ln_f);
  free(model->layer);
  free(model);
}
