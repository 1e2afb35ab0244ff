/* check_events.c: the order in which the phases of a step ran, and the length that each layer had after its append. */
#include "study/check/check_parts.h"

#include <string.h>

#include "trace/query.h"

/* Pairs whose order is the rule's. Others may differ from engine to engine without harm. `same_layer`: counted layer by layer. */
static const struct order {
  kvs_phase first, then;
  bool same_layer;
} orders[] = {{KVS_READ_LENGTH, KVS_APPEND, false}, {KVS_READ_LENGTH, KVS_EMBED, false},
              {KVS_EMBED, KVS_PROJECT, false},      {KVS_APPEND, KVS_SCORE, true},
              {KVS_SCORE, KVS_SOFTMAX, true},       {KVS_SOFTMAX, KVS_MIX, true}};
enum { ORDERS = sizeof orders / sizeof *orders };

/* What of the present step has happened so far. */
struct so_far {
  int step, layer;
  unsigned in_step, in_layer; /* bits: phases */
};

static int phase_named(const unsigned char *name) {
  for (int p = 0; name && p < KVS_PHASE_COUNT; p++)
    if (strcmp((const char *)name, kvs_phase_name((kvs_phase)p)) == 0) return p;
  return -1;
}

static kvs_status check_order(struct check *check, struct so_far *so_far, int phase, kvs_error *err) {
  kvs_status status = KVS_OK;
  for (int o = 0; status == KVS_OK && o < ORDERS; o++) {
    unsigned happened = orders[o].same_layer ? so_far->in_layer : so_far->in_step;
    if (orders[o].first != (kvs_phase)phase || !(happened >> orders[o].then & 1) || happened >> phase & 1) continue;
    struct fact fact = check_fact(check, FACT_EVENT_ORDER, so_far->step);
    fact.layer = orders[o].same_layer ? so_far->layer : -1;
    fact.found = orders[o].then, fact.right = orders[o].first;
    status = check_note(check, &fact, err);
  }
  so_far->in_step |= 1u << phase;
  so_far->in_layer |= 1u << phase;
  return status;
}

/* After its append each layer holds as many rows as the step says. */
static kvs_status check_length(struct check *check, const struct so_far *so_far, int length, kvs_error *err) {
  int i = check_index(check, so_far->step);
  if (i < 0 || length == LOOK_NONE || so_far->layer < 1 || check->steps[i].after == LOOK_NONE ||
      length == check->steps[i].after)
    return KVS_OK;
  struct fact fact = check_fact(check, FACT_LENGTH_LAYER, so_far->step);
  fact.layer = so_far->layer, fact.found = length, fact.right = check->steps[i].after;
  return check_note(check, &fact, err);
}

kvs_status check_events(struct check *check, kvs_error *err) {
  sqlite3_stmt *statement = NULL;
  bool row = false;
  struct so_far so_far = {.step = -1, .layer = -1};
  kvs_status status = check_query(check,
                                  "SELECT step, phase, layer, cache_length FROM main.event WHERE run = ?1"
                                  " ORDER BY step, seq",
                                  &statement, err);
  while (status == KVS_OK && (status = check_row(check, statement, &row, err)) == KVS_OK && row) {
    int step = look_int(statement, 0), phase = phase_named(sqlite3_column_text(statement, 1));
    int layer = look_int(statement, 2);
    if (step == LOOK_NONE || phase < 0) continue;
    if (step != so_far.step) so_far = (struct so_far){.step = step, .layer = layer};
    if (layer != so_far.layer && layer != LOOK_NONE) so_far.layer = layer, so_far.in_layer = 0;
    check->seen.events++;
    status = check_order(check, &so_far, phase, err);
    if (status == KVS_OK && phase == KVS_APPEND) status = check_length(check, &so_far, look_int(statement, 3), err);
  }
  sqlite3_finalize(statement);
  return status;
}
