/* check.c: one run of a trace through all the rules, and what the verdict rests on. */
#include "study/check/check_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "study/check/diagnose.h"
#include "study/check/recompute.h"

const char *check_verdict_name(enum check_verdict verdict) {
  static const char *const names[] = {"clean", "fault", "cannot tell"};
  return names[verdict];
}

const kvs_fault *finding_fault(const struct finding *finding, int kind) { return kvs_fault_find(finding->kinds[kind]); }

struct fact check_fact(const struct check *check, enum fact_kind kind, int step) {
  return (struct fact){.kind = kind,
                       .run = check->run,
                       .step = step,
                       .layer = -1,
                       .head = -1,
                       .row = -1,
                       .found = NAN,
                       .right = NAN,
                       .distance = NAN,
                       .right_distance = NAN};
}

kvs_status check_note(struct check *check, const struct fact *fact, kvs_error *err) {
  if (check->noted[fact->kind]++ >= FACTS_OF_A_KIND) return KVS_OK;
  return facts_add(&check->facts, fact, err);
}

/* ---- what could not be read ---- */

#define TOLD_AT_MOST 3

/* A failure of reading is a remark; a few of them are enough. */
static kvs_status collect_errors(struct check *check, kvs_error *err) {
  const char *said;
  while ((said = look_error(check->look))) {
    if (strstr(said, "memory")) return kvs_fail_memory(err, "checking a trace");
    check->unreadable++;
    if (check->unreadable <= TOLD_AT_MOST && remark(check->remarks, err, "%s", said) != KVS_OK) return err->status;
  }
  return KVS_OK;
}

/* A rule that cannot be applied is a remark as well; only a lack of memory ends the check. */
static kvs_status apply(struct check *check, kvs_status (*rule)(struct check *, kvs_error *), kvs_error *err) {
  kvs_error own = {0};
  kvs_status status = rule(check, &own);
  if (status == KVS_ERR_MEMORY) return kvs_fail(err, status, "%s", own.message);
  if (status != KVS_OK) {
    check->unreadable++;
    if (remark(check->remarks, err, "%s", own.message) != KVS_OK) return err->status;
  }
  return collect_errors(check, err);
}

/* ---- with weights ---- */

static bool is_of_model(const struct check *check) {
  const kvs_config *c = kvs_model_config(check->model);
  const struct look_run *r = &check->shape;
  return c->n_layer == r->n_layer && c->n_head == r->n_head && c->n_embd == r->n_embd && c->n_vocab == r->n_vocab &&
         c->n_ctx == r->n_ctx;
}

static kvs_status recompute_all(struct check *check, kvs_error *err) {
  struct recompute *recompute = NULL;
  kvs_status status = recompute_open(check->model, &recompute, err);
  if (status == KVS_OK) recompute_padding(recompute, check->pads);
  if (status == KVS_OK) status = recompute_calibrate(recompute, check->look, check->run, &check->tolerance, err);
  for (int i = check->pads; status == KVS_OK && i < check->count; i++) {
    if (check->progress) check->progress->tell(check->progress->context, check->run, i, check->count);
    status = recompute_step(recompute, check->look, check->run, check->steps[i].step, &check->facts, err);
    struct recompute_reach reach = recompute_reached(recompute);
    check->steps[i].k_judged = reach.position;
    check->steps[i].chain_judged = reach.layers > 0;
    check->seen.fingerprints += reach.position;
    check->seen.layers += reach.layers;
    check->seen.logits += reach.logits;
  }
  check->storage = recompute ? (int)recompute_stored_as(recompute) : -1;
  recompute_close(recompute);
  return status;
}

/* ---- the verdict ---- */

/* What another engine says of its positions, or that no row of wpe comes twice, is no proof that the right ones were used: that is in
 * layer 0's K rows, for whoever has the weights. Without them, attention that is whole must do. kvstep's own steps say what was
 * used. */
static bool position_judged(const struct check *check) {
  const struct check_seen *s = &check->seen;
  return s->fingerprints || ((s->claims || s->positions) && (s->scores || check->ours));
}

static kvs_status settle(struct check *check, struct check_report *report, kvs_error *err) {
  bool position = position_judged(check);
  kvs_status status = remark_seen(check, err);
  if (status == KVS_OK) status = remark_unheld(check, err);
  if (status == KVS_OK) status = remark_padding(check, err);
  if (status == KVS_OK) status = remark_storage(check, err);
  if (check->unreadable > TOLD_AT_MOST && status == KVS_OK)
    status = remark(check->remarks, err, "… and %d more things could not be read", check->unreadable - TOLD_AT_MOST);
  if (report->count > 0)
    report->verdict = CHECK_FAULT;
  else if (check->count == 0 || !position || check->unreadable)
    report->verdict = CHECK_CANNOT_TELL;
  else
    report->verdict = CHECK_CLEAN;
  if (status == KVS_OK && check->count == 0) return remark(check->remarks, err, "the run has no steps");
  return status == KVS_OK ? remark_missing(check, position, err) : status;
}

/* ---- one run ---- */

static kvs_status apply_all(struct check *check, kvs_error *err) {
  static kvs_status (*const rules[])(struct check *, kvs_error *) = {check_padding, check_lengths, check_rows,
                                                                     check_events,  check_tokens,  check_attention};
  kvs_status status = KVS_OK;
  for (size_t r = 0; status == KVS_OK && r < sizeof rules / sizeof *rules; r++) status = apply(check, rules[r], err);
  if (status == KVS_OK) status = apply(check, check->model ? recompute_all : check_positions, err);
  /* Weights, and nothing that they could be held against. */
  if (status == KVS_OK && check->model && check->seen.fingerprints == 0) status = apply(check, check_positions, err);
  return status;
}

/* How many tokens are left padding by the positions that layer 0's K rows were made with; 0: none; -1: no memory. */
static int padded_by_rows(const struct check *check) {
  int *positions = malloc(((size_t)check->count + 1) * sizeof *positions), n;
  if (!positions) return -1;
  for (int i = 0; i < check->count; i++) positions[i] = check->steps[i].k_judged ? check->steps[i].before : LOOK_NONE;
  for (size_t f = 0; f < check->facts.count; f++) {
    const struct fact *fact = &check->facts.at[f];
    int i = check_index(check, fact->step);
    if (fact->kind == FACT_POSITION_USED && i >= 0 && check->steps[i].k_judged) positions[i] = (int)fact->found;
  }
  n = check_padded(check, positions);
  free(positions);
  return n;
}

static void forget(struct check *check, const struct check_seen *seen) {
  facts_free(&check->facts);
  remarks_free(check->remarks);
  memset(check->noted, 0, sizeof check->noted);
  check->seen = *seen;
}

/* Padding that only layer 0's rows show is known when all has been looked at: then once more. */
static kvs_status apply_rules(struct check *check, kvs_error *err) {
  const struct check_seen seen = check->seen;
  int unreadable = check->unreadable;
  kvs_status status = apply_all(check, err);
  if (status != KVS_OK || check->pads > 0 || !check->model) return status;
  check->pads = padded_by_rows(check);
  if (check->pads < 0) return kvs_fail_memory(err, "looking for padding");
  if (check->pads == 0) return KVS_OK;
  forget(check, &seen);
  check->unreadable = unreadable;
  return apply_all(check, err);
}

static void check_free(struct check *check) {
  free(check->steps);
  facts_free(&check->facts);
}

kvs_status check_run(struct look *look, int run, const kvs_model *model, const struct check_progress *progress,
                     struct check_report *report, kvs_error *err) {
  *report = (struct check_report){.run = run, .verdict = CHECK_CANNOT_TELL};
  const struct look_run *shape = look_run(look, run);
  if (!shape) {
    const char *said = look_error(look);
    return said ? kvs_fail(err, KVS_ERR_INPUT, "%s", said) : kvs_fail(err, KVS_ERR_INPUT, "there is no run %d", run);
  }
  struct check check = {.look = look,
                        .model = model,
                        .progress = progress,
                        .run = run,
                        .shape = *shape,
                        .remarks = &report->remarks,
                        .storage = -1};
  memcpy(report->model, shape->model, sizeof report->model);
  kvs_error own = {0};
  kvs_status status = check_load(&check, &own);
  report->steps = check.count;
  if (status == KVS_ERR_INPUT) { /* it cannot be checked, and says why */
    check_free(&check);
    return remark(&report->remarks, err, "%s", own.message);
  }
  if (status != KVS_OK) {
    check_free(&check);
    return kvs_fail(err, status, "%s", own.message);
  }
  if (model && !is_of_model(&check)) {
    check.model = NULL;
    check.unreadable++; /* what was asked for could not be done */
    status = remark(&report->remarks, err, "%s has another shape than the model of run %d, so its weights are not used",
                    kvs_model_name(model), run);
  }
  if (status == KVS_OK) status = apply_rules(&check, err);
  report->weights = check.seen.fingerprints || check.seen.layers || check.seen.logits;
  if (status == KVS_OK) status = diagnose(&check, &report->findings, &report->count, err);
  if (status == KVS_OK) status = settle(&check, report, err);
  check_free(&check);
  return status;
}

void check_report_free(struct check_report *report) {
  remarks_free(&report->remarks);
  free(report->findings);
  *report = (struct check_report){0};
}
