/* tables.c: where in which array the numbers of a step lie. */
#include <stdlib.h>

#include "import/plan.h"

/* ---- vectors ---- */

/* The forms of a quantity, with 0, 1 or 2 numbers in its arrays' names. B before H: a dimension of 1 is a batch of one. */
static const char *forms_of(enum quantity quantity, int numbers) {
  switch (quantity) {
  case Q_K:
  case Q_V:
    return numbers == 0 ? "LBHRD LBRE LHRD LRE" : numbers == 1 ? "BHRD BRE HRD RE" : NULL;
  case Q_KV:
    return numbers == 0 ? "L2BHRD L2BRE L2HRD L2RE" : numbers == 1 ? "2BHRD 2BRE 2HRD 2RE" : "BHRD BRE HRD RE";
  case Q_Q:
  case Q_OUT:
    return numbers == 0 ? "LBHND LBNE LHND LNE" : numbers == 1 ? "BHND BNE HND NE" : NULL;
  case Q_HIDDEN:
    return numbers == 0 ? "MBNE MNE" : numbers == 1 ? "BNE NE" : NULL;
  case Q_X_IN:
  case Q_ATTN_OUT:
  case Q_X_MID:
  case Q_MLP_OUT:
  case Q_X_OUT:
    return numbers == 0 ? "LBNE LNE" : numbers == 1 ? "BNE NE" : NULL;
  case Q_WTE:
  case Q_WPE:
  case Q_X:
    return numbers == 0 ? "BNE NE" : NULL;
  default:
    return NULL;
  }
}

/* As many tables as there can be of this quantity. */
static int64_t tables_of(const struct plan *plan, enum quantity quantity) {
  int64_t layers = plan->dim['L'] ? plan->dim['L'] : 1;
  if (quantity == Q_WTE || quantity == Q_WPE || quantity == Q_X) return 1;
  return quantity == Q_HIDDEN ? layers + 1 : layers;
}

static kvs_status set_table(struct plan *plan, enum quantity quantity, int64_t layer, const struct array *array,
                            const char *form, int64_t offset, kvs_error *err) {
  int64_t tables = tables_of(plan, quantity);
  if (layer >= tables)
    return kvs_fail(err, KVS_ERR_INPUT, "%s: array `%s` is of layer %lld, and there are %lld", array->file, array->name,
                    (long long)layer, (long long)plan->dim['L']);
  if (!plan->vectors[quantity]) plan->vectors[quantity] = calloc((size_t)tables, sizeof *plan->vectors[quantity]);
  struct vectors *all = plan->vectors[quantity];
  if (!all) return kvs_fail_memory(err, "importing");
  bool by_head = plan_stride(array, form, 'D') != 0;
  int64_t width = plan_size(array, form, by_head ? 'D' : 'E');
  if (all[layer].array)
    return kvs_fail(err, KVS_ERR_INPUT, "%s: array `%s` gives %s of layer %lld a second time; leave one out",
                    array->file, array->name, quantity_name(quantity), (long long)layer);
  all[layer] = (struct vectors){.array = array,
                                .offset = offset,
                                .step = plan_stride(array, form, 'R') + plan_stride(array, form, 'N'),
                                .head = by_head ? plan_stride(array, form, 'H') : 0,
                                .dim = plan_stride(array, form, by_head ? 'D' : 'E'),
                                .part = width};
  return KVS_OK;
}

/* Queries and the like may lack the last token, if it was not fed; K and V are counted apart. */
static kvs_status match_steps(struct plan *plan, const struct array *array, const char *forms, const char **form,
                              kvs_error *err) {
  int64_t tokens = plan->dim['N'];
  kvs_error first = {0}, ignored;
  kvs_status status = plan_match(plan, array, forms, form, &first);
  if (status == KVS_OK) return status;
  plan->dim['N'] = tokens - 1;
  if (tokens > 1) status = plan_match(plan, array, forms, form, &ignored);
  plan->dim['N'] = tokens;
  return status == KVS_OK ? KVS_OK : kvs_fail(err, first.status, "%s", first.message);
}

static kvs_status add_vectors(struct plan *plan, const struct piece *piece, kvs_error *err) {
  const struct array *array = piece->array;
  const enum quantity quantity = piece->meaning.quantity;
  const char *forms = forms_of(quantity, piece->meaning.numbers), *form;
  if (!forms)
    return kvs_fail(err, KVS_ERR_INPUT, "%s: array `%s` has more numbers in its name than `%s` can have", array->file,
                    array->name, quantity_name(quantity));
  kvs_status status = match_steps(plan, array, forms, &form, err);
  if (status != KVS_OK) return status;
  bool all_layers = plan_stride(array, form, 'L') || plan_stride(array, form, 'M');
  if (quantity == Q_HIDDEN && all_layers && !plan->dim['L']) plan->dim['L'] = plan_size(array, form, 'M') - 1;
  int64_t layers = all_layers ? tables_of(plan, quantity) : 1;
  int64_t first = !all_layers && piece->meaning.numbers ? piece->meaning.number[0] : 0;
  for (int64_t i = 0; status == KVS_OK && i < layers; i++) {
    int64_t at = i * (plan_stride(array, form, 'L') + plan_stride(array, form, 'M'));
    if (quantity != Q_KV) {
      status = set_table(plan, quantity, first + i, array, form, at, err);
    } else if (piece->meaning.numbers == 2) { /* past_key_values.3.1: V of layer 3 */
      if (piece->meaning.number[1] > 1)
        return kvs_fail(err, KVS_ERR_INPUT, "%s: array `%s`: 0 is K and 1 is V, and there is no %d", array->file,
                        array->name, piece->meaning.number[1]);
      status = set_table(plan, piece->meaning.number[1] ? Q_V : Q_K, first, array, form, at, err);
    } else {
      status = set_table(plan, Q_K, first + i, array, form, at, err);
      if (status == KVS_OK)
        status = set_table(plan, Q_V, first + i, array, form, at + plan_stride(array, form, '2'), err);
    }
  }
  return status;
}

/* Logits of every step; or of the last few, which is what a generating loop has: those that chose the tokens after the prompt. */
static kvs_status add_logits(struct plan *plan, const struct piece *piece, kvs_error *err) {
  const char *form;
  int64_t tokens = plan->dim['N'];
  struct array *array = piece->array;
  int64_t rows = array->dimensions >= 2 ? array->shape[array->dimensions - 2] : 1;
  if (rows >= 1 && rows < tokens) plan->dim['N'] = rows;
  kvs_status status = plan_match(plan, array, "BNV NV", &form, err);
  plan->dim['N'] = tokens;
  if (status != KVS_OK) return status;
  plan->vectors[Q_LOGITS] = calloc(1, sizeof *plan->vectors[Q_LOGITS]);
  if (!plan->vectors[Q_LOGITS]) return kvs_fail_memory(err, "importing");
  plan->vectors[Q_LOGITS][0] = (struct vectors){.array = array,
                                                .step = plan_stride(array, form, 'N'),
                                                .dim = plan_stride(array, form, 'V'),
                                                .part = plan_size(array, form, 'V')};
  plan->logits_rows = (int)rows;
  return KVS_OK;
}

kvs_status plan_vectors(struct plan *plan, kvs_error *err) {
  kvs_status status = KVS_OK;
  for (size_t i = 0; status == KVS_OK && i < plan->piece_count; i++) {
    enum quantity q = plan->pieces[i].meaning.quantity;
    if (q == Q_LOGITS)
      status = add_logits(plan, &plan->pieces[i], err);
    else if ((q >= Q_K && q <= Q_OUT) || (q >= Q_WTE && q <= Q_X_OUT))
      status = add_vectors(plan, &plan->pieces[i], err);
  }
  return status;
}

/* ---- attention ---- */

static kvs_status add_attention(struct plan *plan, int which, const struct piece *piece, int64_t first,
                                int64_t *queries, kvs_error *err) {
  const struct array *array = piece->array;
  const int numbers = piece->meaning.numbers;
  bool one_layer = numbers == 2 || (numbers == 1 && !array->split);
  const char *form, *forms = one_layer ? (numbers == 2 ? "BHQW HQW HW" : "BHQW HQW") : "LBHQW LHQW LHW";
  kvs_status status = plan_match(plan, array, forms, &form, err);
  if (status != KVS_OK) return status;
  int64_t layers = one_layer ? 1 : plan->dim['L'];
  if (one_layer && piece->meaning.number[numbers - 1] >= plan->dim['L'])
    return kvs_fail(err, KVS_ERR_INPUT, "%s: array `%s` is of layer %d, and there are %lld", array->file, array->name,
                    piece->meaning.number[numbers - 1], (long long)plan->dim['L']);
  *queries = plan_size(array, form, 'Q');
  if (first + *queries > plan->steps)
    return kvs_fail(err, KVS_ERR_INPUT,
                    "%s: array `%s` has shape %s: %lld queries from step %lld on, and there are %d steps", array->file,
                    array->name, array_shape_text(array), (long long)*queries, (long long)first, plan->steps);
  struct attention *all =
      realloc(plan->attention[which], (plan->attention_count[which] + (size_t)layers) * sizeof *all);
  if (!all) return kvs_fail_memory(err, "importing");
  plan->attention[which] = all;
  for (int64_t i = 0; i < layers; i++)
    all[plan->attention_count[which]++] =
        (struct attention){.array = array,
                           .layer = one_layer ? piece->meaning.number[numbers - 1] : (int)i,
                           .first = (int)first,
                           .queries = (int)*queries,
                           .width = (int)plan_size(array, form, 'W'),
                           .offset = i * plan_stride(array, form, 'L'),
                           .head = plan_stride(array, form, 'H'),
                           .query = plan_stride(array, form, 'Q'),
                           .row = plan_stride(array, form, 'W')};
  return KVS_OK;
}

/* Which piece has a layer's step. */
static kvs_status index_attention(struct plan *plan, int which, kvs_error *err) {
  size_t layers = plan->dim['L'] ? (size_t)plan->dim['L'] : 1, steps = (size_t)plan->steps;
  if (plan->attention_count[which] == 0) return KVS_OK;
  plan->attended[which] = calloc(layers * steps, sizeof *plan->attended[which]);
  if (!plan->attended[which]) return kvs_fail_memory(err, "importing");
  for (size_t i = 0; i < plan->attention_count[which]; i++) {
    const struct attention *a = &plan->attention[which][i];
    for (int s = a->first; s < a->first + a->queries; s++)
      plan->attended[which][(size_t)a->layer * steps + (size_t)s] = a;
  }
  return KVS_OK;
}

kvs_status plan_attention(struct plan *plan, kvs_error *err) {
  kvs_status status = KVS_OK;
  for (int which = 0; status == KVS_OK && which < 2; which++) {
    int64_t first = 0, queries = 0;
    int call = -1;
    for (size_t i = 0; status == KVS_OK && i < plan->piece_count; i++) {
      const struct piece *p = &plan->pieces[i];
      if (p->meaning.quantity != (which ? Q_WEIGHTS : Q_SCORES)) continue;
      bool by_call = p->meaning.numbers == 2 || (p->meaning.numbers == 1 && p->array->split);
      if (by_call && call >= 0 && p->meaning.number[0] != call)
        first += queries; /* pieces are in the order of their calls */
      if (by_call) call = p->meaning.number[0];
      status = add_attention(plan, which, p, first, &queries, err);
    }
    if (status == KVS_OK) status = index_attention(plan, which, err);
  }
  return status;
}
