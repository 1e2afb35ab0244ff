/* weights.c: a GPT-2's tensors put together, and what in a file is missing, left over, or at odds with config.json. */
#include "model/weights.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/binder.h"
#include "model/config.h"

void kvs_model_warn(kvs_model *model, const char *format, ...) {
  struct kvs_model_files *files = model->files;
  if (files->warnings_count == KVS_MOST_WARNINGS) return;
  kvs_error line; /* for its rule of one printable line */
  char text[sizeof line.message];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  kvs_fail(&line, KVS_OK, "%s", text);
  char *copy = strdup(line.message);
  if (copy) files->warnings[files->warnings_count++] = copy;
}

static kvs_linear linear(kvs_binder *b, const char *name, int in, int out) {
  char weight[64], bias[64];
  snprintf(weight, sizeof weight, "%s.weight", name);
  snprintf(bias, sizeof bias, "%s.bias", name);
  kvs_linear made = {kvs_binder_matrix(b, kvs_binder_need(b, weight), in, out, b->linear_layout), NULL};
  made.b = kvs_binder_vector(b, bias, out);
  return made;
}

static kvs_norm norm(kvs_binder *b, const char *name) {
  char gain[64], bias[64];
  snprintf(gain, sizeof gain, "%s.weight", name);
  snprintf(bias, sizeof bias, "%s.bias", name);
  kvs_norm made = {kvs_binder_vector(b, gain, b->model->config.n_embd), NULL};
  made.b = kvs_binder_vector(b, bias, b->model->config.n_embd);
  return made;
}

/* An embedding table [rows][n_embd]. *rows is 0 where config.json left it to the table; it is never 0 afterwards. */
static kvs_tensor table(kvs_binder *b, const char *name, int *rows) {
  const kvs_stored_tensor *t = kvs_binder_need(b, name);
  if (t && *rows == 0) {
    if (t->dimensions != 2 || t->shape[0] < 1 || t->shape[0] > KVS_MOST_SIZE) {
      char expected[64];
      snprintf(expected, sizeof expected, "[from 1 to %d, %d]", KVS_MOST_SIZE, b->model->config.n_embd);
      kvs_binder_refuse(b, t, expected);
    } else {
      *rows = (int)t->shape[0];
    }
  }
  return kvs_binder_matrix(b, t, *rows, b->model->config.n_embd, false);
}

/* Conv1D is [in][out], Linear is [out][in]. c_attn tells, since it is not square; c_proj could not. */
static void decide_layout(kvs_binder *b) {
  int n_embd = b->model->config.n_embd;
  const kvs_stored_tensor *t = kvs_binder_need(b, "h.0.attn.c_attn.weight");
  b->linear_layout = t && t->dimensions == 2 && t->shape[0] == 3 * (int64_t)n_embd && t->shape[1] == n_embd;
}

static bool same_numbers(const kvs_tensor *a, const kvs_tensor *b) {
  return a->dtype == b->dtype &&
         memcmp(a->data, b->data, (size_t)a->rows * (size_t)a->cols * kvs_dtype_width(a->dtype)) == 0;
}

/* Absent and tied: wte. Present: used, and if config.json says tied although it differs, that is worth a word. */
static void bind_lm_head(kvs_binder *b) {
  kvs_model *model = b->model;
  kvs_config *c = &model->config;
  const kvs_stored_tensor *t = b->status ? NULL : kvs_binder_find(b, "lm_head.weight");
  if (!t && !c->tied && !b->status)
    b->status =
        kvs_fail(b->err, KVS_ERR_INPUT,
                 "%s: tensor lm_head.weight is missing and config.json says \"tie_word_embeddings\": false: copy the "
                 "weights again, or set it to true if lm_head is wte",
                 model->files->weights[0].path);
  model->lm_head = model->wte;
  if (!t || b->status) return;
  long long parameters = model->files->parameters;
  kvs_tensor head = kvs_binder_matrix(b, t, c->n_vocab, c->n_embd, false);
  if (b->status) return;
  bool same = same_numbers(&head, &model->wte);
  if (same) {
    model->files->parameters = parameters; /* counted with wte */
  } else {
    model->lm_head = head;
    if (c->tied)
      kvs_model_warn(
          model,
          "%s: lm_head.weight differs from wte.weight although config.json says they are tied; lm_head.weight is used",
          t->path);
  }
  c->tied = same;
}

static void bind_layers(kvs_binder *b) {
  kvs_model *model = b->model;
  const kvs_config *c = &model->config;
  model->layer = calloc((size_t)c->n_layer, sizeof *model->layer);
  if (!model->layer) {
    b->status = kvs_fail_memory(b->err, "loading the weights");
    return;
  }
  for (b->layer = 0; b->layer < c->n_layer && !b->status; b->layer++) {
    kvs_layer *layer = &model->layer[b->layer];
    layer->ln_1 = norm(b, "ln_1");
    layer->c_attn = linear(b, "attn.c_attn", c->n_embd, 3 * c->n_embd);
    layer->c_proj = linear(b, "attn.c_proj", c->n_embd, c->n_embd);
    layer->ln_2 = norm(b, "ln_2");
    layer->mlp_c_fc = linear(b, "mlp.c_fc", c->n_embd, c->n_inner);
    layer->mlp_c_proj = linear(b, "mlp.c_proj", c->n_inner, c->n_embd);
  }
  b->layer = -1;
}

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* Buffers that old files carry: the causal mask and its fill value. Not c_attn.bias, which ends in "c_attn.bias". */
static bool is_mask(const char *name) { return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias"); }

/* Tensors nobody asked for: more layers than n_layer would be a mistake worth knowing of; so is anything else. */
static void warn_of_unused(kvs_binder *b) {
  const kvs_tensor_list *list = &b->model->files->tensors;
  size_t unused = 0;
  const char *example = NULL;
  for (size_t i = 0; i < list->count; i++)
    if (!b->used[i] && !is_mask(list->tensor[i].name)) {
      unused++;
      if (!example) example = list->tensor[i].name;
    }
  if (unused)
    kvs_model_warn(b->model, "%s: %zu tensor%s a GPT-2 of this shape does not have %s ignored, such as %s",
                   b->model->files->weights[0].path, unused, unused == 1 ? " that" : "s that",
                   unused == 1 ? "is" : "are", example);
}

kvs_status kvs_weights_bind(kvs_model *model, kvs_error *err) {
  kvs_binder b;
  kvs_status status = kvs_binder_begin(&b, model, err);
  if (status) return status;
  decide_layout(&b);
  model->wte = table(&b, "wte.weight", &model->config.n_vocab);
  model->wpe = table(&b, "wpe.weight", &model->config.n_ctx);
  if (!b.status) bind_layers(&b);
  if (!b.status) model->ln_f = norm(&b, "ln_f");
  bind_lm_head(&b);
  if (!b.status) warn_of_unused(&b);
  free(b.used);
  return b.status;
}
