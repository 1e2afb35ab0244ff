/* plan.c: the shape of a run that is imported, its tokens, positions and steps, from the arrays that there are. */
#include "import/plan.h"

#include <math.h>
#include <stdlib.h>

static const struct piece *find(const struct plan *plan, enum quantity quantity) {
  for (size_t i = 0; i < plan->piece_count; i++)
    if (plan->pieces[i].meaning.quantity == quantity) return &plan->pieces[i];
  return NULL;
}

/* ---- whole numbers ---- */

/* Element i of a one-dimensional array (or row of one) as a whole number from 0 to `most`. */
static kvs_status whole_number(const struct array *array, int64_t at, int64_t place, int most, int *number,
                               kvs_error *err) {
  double value = array_get(array, at);
  if (!(value >= 0) || value > most || value != floor(value))
    return kvs_fail(err, KVS_ERR_INPUT, "%s: `%s`[%lld] is %g, and should be a whole number from 0 to %d", array->file,
                    array->name, (long long)place, value, most);
  *number = (int)value;
  return KVS_OK;
}

/* A list of whole numbers as long as the tokens; *out NULL if there is none. */
static kvs_status read_list(struct plan *plan, enum quantity quantity, int most, int **out, kvs_error *err) {
  const struct piece *piece = find(plan, quantity);
  const char *form;
  if (!piece) return KVS_OK;
  kvs_status status = plan_match(plan, piece->array, "N BN", &form, err);
  if (status != KVS_OK) return status;
  int64_t stride = plan_stride(piece->array, form, 'N');
  *out = calloc((size_t)plan->dim['N'], sizeof **out);
  if (!*out) return kvs_fail_memory(err, "importing");
  for (int64_t i = 0; status == KVS_OK && i < plan->dim['N']; i++)
    status = whole_number(piece->array, i * stride, i, most, &(*out)[i], err);
  return status;
}

/* A single number, unless an option has given it. */
static kvs_status read_single(const struct plan *plan, enum quantity quantity, int *value, kvs_error *err) {
  const struct piece *piece = find(plan, quantity);
  if (!piece || *value) return KVS_OK;
  if (array_elements(piece->array) != 1)
    return kvs_fail(err, KVS_ERR_INPUT, "%s: `%s` should be one number, and has shape %s", piece->array->file,
                    piece->array->name, array_shape_text(piece->array));
  return whole_number(piece->array, 0, 0, PLAN_MOST, value, err);
}

/* ---- the shape ---- */

/* What a model or an option says is binding. */
static kvs_status known_shape(struct plan *plan, const import_options *options, int *n_ctx, int *prompt,
                              kvs_error *err) {
  const kvs_config *c = &plan->config;
  int n_head = options->n_head, n_vocab = 0;
  *n_ctx = options->n_ctx, *prompt = options->prompt_length;
  kvs_status status = read_single(plan, Q_N_HEAD, &n_head, err);
  if (status == KVS_OK) status = read_single(plan, Q_N_CTX, n_ctx, err);
  if (status == KVS_OK) status = read_single(plan, Q_N_VOCAB, &n_vocab, err);
  if (status == KVS_OK) status = read_single(plan, Q_PROMPT_LENGTH, prompt, err);
  if (status != KVS_OK) return status;
  if (c->n_head && n_head && n_head != c->n_head)
    return kvs_fail(err, KVS_ERR_INPUT, "n_head is %d, and the model has %d heads", n_head, c->n_head);
  plan->dim['L'] = c->n_layer, plan->dim['H'] = c->n_head ? c->n_head : n_head, plan->dim['E'] = c->n_embd;
  plan->dim['D'] = c->head_dim, plan->dim['V'] = c->n_vocab ? c->n_vocab : n_vocab;
  return KVS_OK;
}

/* n_layer, where it is told by numbers in names alone. */
static void count_layers(struct plan *plan) {
  for (size_t i = 0; i < plan->piece_count; i++) {
    const struct piece *p = &plan->pieces[i];
    bool attention = p->meaning.quantity == Q_SCORES || p->meaning.quantity == Q_WEIGHTS;
    int which = attention ? p->meaning.numbers - 1 : p->meaning.numbers > 0 ? 0 : -1;
    if (which < 0 || plan->config.n_layer || (attention && p->meaning.numbers == 1 && p->array->split)) continue;
    int64_t layers =
        p->meaning.number[which] + (p->meaning.quantity != Q_HIDDEN); /* of hidden states there is one more */
    if (layers > plan->dim['L']) plan->dim['L'] = layers;
  }
}

/* How many tokens have gone through the model: all, or all but the last, which was chosen and not fed any more. */
static kvs_status count_steps(struct plan *plan, kvs_error *err) {
  int64_t tokens = plan->dim['N'], rows = plan->dim['R'];
  plan->steps = (int)tokens;
  if (rows == 0 || plan->lengths || rows == tokens) return KVS_OK;
  if (rows == tokens - 1) {
    plan->steps = (int)rows;
    plan_note(plan, "%lld tokens and %lld cache rows: the last token was chosen, and not fed", (long long)tokens,
              (long long)rows);
    return KVS_OK;
  }
  return kvs_fail(err, KVS_ERR_INPUT,
                  "%lld tokens, but %lld rows of K or V: give all tokens that were fed, in their order, or with "
                  "`cache_length_before` the row that each of them wrote",
                  (long long)tokens, (long long)rows);
}

static kvs_status check_lengths(const struct plan *plan, kvs_error *err) {
  for (int i = 0; plan->lengths && i < plan->steps; i++)
    if (plan->dim['R'] && plan->lengths[i] >= plan->dim['R'])
      return kvs_fail(err, KVS_ERR_INPUT, "`cache_length_before`[%d] is %d, and K and V have %lld rows", i,
                      plan->lengths[i], (long long)plan->dim['R']);
  return KVS_OK;
}

/* How long a context this needs at least. */
static int rows_seen(const struct plan *plan) {
  int64_t most = plan->dim['R'] > plan->steps ? plan->dim['R'] : plan->steps;
  for (int i = 0; i < plan->steps; i++) {
    if (plan->positions && plan->positions[i] >= most) most = plan->positions[i] + 1;
    if (plan->lengths && plan->lengths[i] >= most) most = plan->lengths[i] + 1;
  }
  return (int)most;
}

/* Fewer logits than steps are those from the prompt's last token on: the ones that chose the tokens after it. */
static kvs_status place_logits(struct plan *plan, int prompt, kvs_error *err) {
  int rows = plan->logits_rows;
  if (rows == 0 || rows >= plan->steps) return KVS_OK;
  if (prompt && prompt - 1 + rows <= plan->steps) {
    plan->logits_first = prompt - 1;
    return KVS_OK;
  }
  return kvs_fail(err, KVS_ERR_INPUT,
                  "%d rows of logits, but %d steps%s: fewer must be those from the prompt's last token on, and then "
                  "--prompt-length N says which that is",
                  rows, plan->steps, prompt ? ", and with this prompt there is no room for them" : "");
}

static kvs_status settle_shape(struct plan *plan, int n_ctx, int prompt, kvs_error *err) {
  int64_t *dim = plan->dim, most = 0;
  for (int i = 0; i < plan->dim['N']; i++) most = plan->tokens[i] > most ? plan->tokens[i] : most;
  if (dim['E'] && !dim['H'])
    return kvs_fail(err, KVS_ERR_INPUT, "how many heads share n_embd %lld is not known: give --n-head N, or -m MODEL",
                    (long long)dim['E']);
  if (!dim['H'] && !dim['E']) dim['H'] = dim['E'] = dim['D'] = 1; /* nothing here has a width */
  if (!dim['E']) dim['E'] = dim['H'], dim['D'] = 1;               /* attention alone: the heads' width is not known */
  if (dim['V'] == 0) dim['V'] = plan->vocabulary > most ? plan->vocabulary : most + 1;
  if (most >= dim['V'])
    return kvs_fail(err, KVS_ERR_INPUT, "token %lld is outside of the vocabulary of %lld", (long long)most,
                    (long long)dim['V']);
  if (prompt > plan->dim['N'])
    return kvs_fail(err, KVS_ERR_INPUT,
                    "a prompt of %d tokens, and there are only %lld; correct --prompt-length, or "
                    "`prompt_length` in the file",
                    prompt, (long long)dim['N']);
  kvs_config *c = &plan->config;
  if (c->n_ctx && n_ctx && n_ctx != c->n_ctx)
    return kvs_fail(err, KVS_ERR_INPUT, "n_ctx is %d, and the model has %d positions", n_ctx, c->n_ctx);
  if (!c->n_ctx) c->n_ctx = n_ctx ? n_ctx : rows_seen(plan);
  c->n_layer = dim['L'] ? (int)dim['L'] : 1;
  c->n_head = (int)dim['H'], c->n_embd = (int)dim['E'], c->head_dim = (int)dim['D'], c->n_vocab = (int)dim['V'];
  plan->prompt_length = prompt ? prompt : (int)dim['N'];
  return KVS_OK;
}

kvs_status plan_make(struct plan *plan, const import_options *options, kvs_error *err) {
  int n_ctx, prompt;
  if (!find(plan, Q_TOKENS))
    return kvs_fail(err, KVS_ERR_INPUT,
                    "%s: the tokens that were fed are missing: an array `tokens` (or `input_ids`) of their ids, or in "
                    "JSON of their texts",
                    plan->arrays.count ? plan->arrays.at[0].file : "no array at all");
  kvs_status status = known_shape(plan, options, &n_ctx, &prompt, err);
  if (status != KVS_OK) return status;
  count_layers(plan);
  status = read_list(plan, Q_TOKENS, PLAN_MOST - 1, &plan->tokens, err);
  if (status == KVS_OK) status = read_list(plan, Q_POSITIONS, PLAN_MOST - 1, &plan->positions, err);
  if (status == KVS_OK) status = read_list(plan, Q_LENGTHS, PLAN_MOST - 1, &plan->lengths, err);
  if (status == KVS_OK) status = plan_vectors(plan, err);
  if (status == KVS_OK) status = count_steps(plan, err);
  if (status == KVS_OK) status = check_lengths(plan, err);
  if (status == KVS_OK) status = plan_attention(plan, err);
  if (status == KVS_OK) status = settle_shape(plan, n_ctx, prompt, err);
  if (status == KVS_OK) status = place_logits(plan, prompt, err);
  for (size_t i = 0; status == KVS_OK && i < plan->piece_count; i++)
    status = array_need(&plan->arrays, plan->pieces[i].array, err);
  if (status == KVS_OK && !plan->positions)
    plan_note(plan, "there are no `position_ids`: each position is taken to be the cache length, as the rule says");
  return status;
}

void plan_free(struct plan *plan) {
  for (int i = 0; i < Q_COUNT; i++) free(plan->vectors[i]);
  for (int i = 0; i < 2; i++) free(plan->attention[i]), free(plan->attended[i]);
  free(plan->tokens);
  free(plan->positions);
  free(plan->lengths);
  free(plan->pieces);
  arrays_free(&plan->arrays);
}
