/* check_rerun.c: the same tokens fed twice must leave the same rows (D13). */
#include "study/check/check_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Steps that are compared; a difference that is left from before a run shows at once. */
#define MOST_COMPARED 64

/* How far two vectors are apart, as a share of the first. */
static double apart(const float *a, const float *b, int count) {
  double difference = 0, size = 0;
  for (int i = 0; i < count; i++) {
    double d = (double)a[i] - (double)b[i];
    difference += d * d, size += (double)a[i] * (double)a[i];
  }
  return size > 0 ? sqrt(difference / size) : 0;
}

static const float *row_k(struct look *look, int run, int step, int layer, float *copy, int count) {
  const struct look_step *s = look_step(look, run, step);
  const struct look_row *r =
      s ? look_row(look, run, step, layer, s->length_before < 0 ? step : s->length_before) : NULL;
  if (!r || !r->k || r->step != step) return NULL;
  memcpy(copy, r->k, (size_t)count * sizeof *copy);
  return copy;
}

/* The first step and layer where the runs' K rows differ though all tokens so far are the same. */
static bool find_difference(struct look *look, int run_a, int run_b, int *step, int *layer) {
  const struct look_run *found = look_run(look, run_a), *other = look_run(look, run_b);
  if (!found || !other || found->n_embd != other->n_embd || found->n_layer != other->n_layer || found->n_embd <= 0)
    return false;
  int n_embd = found->n_embd, n_layer = found->n_layer < CHECK_LAYERS ? found->n_layer : CHECK_LAYERS;
  float *a = malloc((size_t)n_embd * sizeof *a), *b = malloc((size_t)n_embd * sizeof *b);
  bool differs = false;
  for (*step = 0; a && b && !differs && *step < MOST_COMPARED; ++*step) {
    const struct look_step *s = look_step(look, run_a, *step);
    int token = s ? s->token : LOOK_NONE;
    const struct look_step *t = look_step(look, run_b, *step);
    if (token == LOOK_NONE || !t || t->token != token) break;
    for (*layer = 0; !differs && *layer < n_layer; ++*layer) {
      const float *k = row_k(look, run_a, *step, *layer, a, n_embd), *l = row_k(look, run_b, *step, *layer, b, n_embd);
      differs = k && l && apart(k, l, n_embd) > 2e-2;
      if (differs) break;
    }
    if (differs) break;
  }
  free(a);
  free(b);
  return differs;
}

static kvs_status note_rerun(struct check_report *report, int other, int step, int layer, kvs_error *err) {
  struct finding *grown = realloc(report->findings, (report->count + 1) * sizeof *grown);
  if (!grown) return kvs_fail_memory(err, "comparing runs");
  report->findings = grown;
  struct finding *f = &report->findings[report->count++];
  *f = (struct finding){.kinds = {"not-repeatable"},
                        .kind_count = 1,
                        .rules = {"D13"},
                        .rule_count = 1,
                        .first_step = step,
                        .last_step = step,
                        .steps = 1,
                        .layer = layer,
                        .head = -1,
                        .row = step};
  snprintf(f->sentence, sizeof f->sentence,
           "The same tokens gave other numbers in run %d: layer %d's K row of step %d differs by more than 2%%. "
           "Something of an earlier run is still "
           "there, or the weights changed; each run by itself looks right.",
           other, layer, step);
  snprintf(f->sql, sizeof f->sql,
           "SELECT run, step, layer, row, hex(substr(k, 1, 16)) AS k_begins FROM kv_row WHERE run IN (%d, %d) AND step "
           "= %d AND layer = %d",
           report->run, other, step, layer);
  report->verdict = CHECK_FAULT;
  return KVS_OK;
}

kvs_status check_rerun(struct look *look, struct check_report *reports, size_t count, kvs_error *err) {
  struct check_report *first = NULL;
  for (size_t i = 0; i < count; i++) {
    int step, layer;
    if (reports[i].verdict != CHECK_CLEAN) continue;
    if (!first) {
      first = &reports[i];
      continue;
    }
    if (!find_difference(look, first->run, reports[i].run, &step, &layer)) continue;
    if (note_rerun(&reports[i], first->run, step, layer, err) != KVS_OK) return err->status;
  }
  return KVS_OK;
}
