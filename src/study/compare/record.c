/* record.c: an observer that keeps of each step what a comparison needs. */
#include "study/compare/record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- fields of a moment ------------------------------------------------------------------------------------------- */

const float *moment_field(const kvs_config *config, const kvs_moment *m, enum compare_field field, float *scalar,
                          int *count) {
  *count = config->n_embd;
  switch (field) {
  case COMPARE_LENGTH:
  case COMPARE_POSITION:
  case COMPARE_ROW:
    *scalar = (float)(field == COMPARE_LENGTH     ? m->step->cache_length_before
                      : field == COMPARE_POSITION ? m->step->position
                                                  : m->row);
    *count = 1;
    return scalar;
  case COMPARE_SCORES:
  case COMPARE_WEIGHTS:
    *count = config->n_head * m->rows;
    return field == COMPARE_SCORES ? m->scores : m->weights;
  case COMPARE_LOGITS:
    *count = config->n_vocab;
    return m->logits;
  default:
    break;
  }
  const float *const vectors[COMPARE_FIELD_COUNT] = {[COMPARE_WTE] = m->wte,
                                                     [COMPARE_WPE] = m->wpe,
                                                     [COMPARE_X] = m->x,
                                                     [COMPARE_Q] = m->q,
                                                     [COMPARE_K] = m->k,
                                                     [COMPARE_V] = m->v,
                                                     [COMPARE_ROW_K] = m->row_k,
                                                     [COMPARE_ROW_V] = m->row_v,
                                                     [COMPARE_OUT] = m->out,
                                                     [COMPARE_X_MID] = m->x_mid,
                                                     [COMPARE_ATTN_OUT] = m->attn_out,
                                                     [COMPARE_MLP_OUT] = m->mlp_out,
                                                     [COMPARE_X_OUT] = m->x_out};
  return vectors[field];
}

/* A number that other bits almost surely do not give; every NaN is the same. Never 0. */
static uint64_t digest_of(const float *values, int count) {
  uint64_t h = 0x9E3779B97F4A7C15u ^ (uint64_t)count;
  for (int i = 0; i < count; i++) {
    uint32_t bits = 0x7FC00000u;
    if (!isnan(values[i])) memcpy(&bits, &values[i], sizeof bits);
    h = (h ^ bits) * 0xBF58476D1CE4E5B9u;
    h ^= h >> 29;
  }
  return h ? h : 1;
}

/* ---- the observer ------------------------------------------------------------------------------------------------- */

static struct record *add_record(struct records *records, const kvs_step *step) {
  if (records->count == records->room) {
    int room = records->room ? 2 * records->room : 64;
    struct record *more = realloc(records->at, (size_t)room * sizeof *more);
    if (!more) return NULL;
    records->at = more, records->room = room;
  }
  size_t layers = (size_t)records->config->n_layer;
  struct record *r = &records->at[records->count++];
  *r = (struct record){.call = records->call, .step = step->step, .token = step->token};
  r->digest = calloc(COMPARE_FIELD_COUNT * (layers + 1), sizeof *r->digest);
  r->logits = calloc((size_t)records->config->n_vocab, sizeof *r->logits);
  r->attention = calloc(layers, sizeof *r->attention);
  return r->digest && r->logits && r->attention ? r : NULL;
}

/* Steps of one call are reported in their order, and numbered without gaps. */
static struct record *record_of(struct records *records, const kvs_step *step) {
  int begin = records->call_begin;
  int at = records->count > begin ? begin + step->step - records->at[begin].step : begin;
  if (at == records->count) return add_record(records, step);
  return at >= begin && at < records->count ? &records->at[at] : NULL;
}

static bool keep_weights(struct records *records, struct record *r, const kvs_moment *m) {
  size_t bytes = (size_t)records->config->n_head * (size_t)m->rows * sizeof(float);
  bool prompt = m->step->mode == KVS_PREFILL && records->first_step == 0;
  size_t most = prompt ? RECORD_MOST_WEIGHTS / 2 : RECORD_MOST_WEIGHTS;
  if (records->bytes + bytes > most || bytes == 0) return true;
  float *weights = malloc(bytes);
  if (!weights) return false;
  memcpy(weights, m->weights, bytes);
  records->bytes += bytes;
  r->attention[m->layer].rows = m->rows;
  r->attention[m->layer].weights = weights;
  return true;
}

static kvs_status watch(void *context, const kvs_moment *m, kvs_error *err) {
  struct records *records = context;
  if (m->step->step < records->first_step) return KVS_OK;
  struct record *r = record_of(records, m->step);
  if (!r) return kvs_fail_memory(err, "comparing two runs");
  for (enum compare_field field = 0; field < COMPARE_FIELD_COUNT; field++) {
    if (compare_field_phase(field) != m->phase) continue;
    float scalar;
    int count;
    const float *values = moment_field(records->config, m, field, &scalar, &count);
    if (values) r->digest[record_slot(records->config, field, m->layer)] = digest_of(values, count);
  }
  if (m->phase == KVS_LOGITS && m->logits)
    memcpy(r->logits, m->logits, (size_t)records->config->n_vocab * sizeof *r->logits);
  if (m->phase == KVS_SOFTMAX && m->weights && !keep_weights(records, r, m))
    return kvs_fail_memory(err, "comparing two runs");
  return KVS_OK;
}

kvs_observer records_observer(struct records *records) { return (kvs_observer){.context = records, .moment = watch}; }

void records_begin(struct records *records, int call) {
  records->call = call;
  records->call_begin = records->count;
}

void records_clear(struct records *records) {
  for (int i = 0; i < records->count; i++) {
    struct record *r = &records->at[i];
    for (int layer = 0; r->attention && layer < records->config->n_layer; layer++) free(r->attention[layer].weights);
    free(r->attention);
    free(r->digest);
    free(r->logits);
  }
  free(records->at);
  *records = (struct records){.config = records->config};
}

/* ---- comparing ---------------------------------------------------------------------------------------------------- */

static bool differs(const kvs_config *config, const struct record *a, const struct record *b, enum compare_field field,
                    int layer) {
  uint64_t da = a->digest[record_slot(config, field, layer)], db = b->digest[record_slot(config, field, layer)];
  return da && db && da != db;
}

bool record_first(const kvs_config *config, const struct record *a, const struct record *b, bool windowed,
                  enum compare_field *field, int *layer) {
  *layer = -1;
  for (*field = windowed ? COMPARE_WTE : COMPARE_LENGTH; *field <= COMPARE_X; ++*field)
    if (differs(config, a, b, *field, -1)) return true;
  for (*layer = 0; *layer < config->n_layer; ++*layer)
    for (*field = COMPARE_Q; *field <= COMPARE_X_OUT; ++*field)
      if (differs(config, a, b, *field, *layer)) return true;
  *layer = -1;
  *field = COMPARE_LOGITS;
  return differs(config, a, b, *field, -1);
}
