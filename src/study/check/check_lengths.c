/* check_lengths.c: the numbers alone: lengths that start at 0 and grow by one, positions that are the length before the append, and nothing
 * past the context's end (D1, D14); and which rows were written, by whom, in which layer. */
#include "study/check/check_parts.h"

#include <stdlib.h>

#include "trace/query.h"

/* fact `kind` in step i: what was found, and what is right. */
static kvs_status note(struct check *check, int i, enum fact_kind kind, double found, double right, kvs_error *err) {
  struct fact fact = check_fact(check, kind, check->steps[i].step);
  fact.found = found, fact.right = right;
  fact.row = check->steps[i].before;
  return check_note(check, &fact, err);
}

/* Step i finds fewer rows than the step before it left. */
static bool gives_up(const struct check *check, int i) {
  const struct check_step *s = &check->steps[i];
  return i > 0 && s[-1].step + 1 == s->step && s->before != LOOK_NONE && s->before < s[-1].after;
}

static bool at_end(const struct check *check, int i) {
  return gives_up(check, i) && check->steps[i].before == check->shape.n_ctx - 1;
}

bool check_full_again(const struct check *check, int i) { return !check->rolls_back && at_end(check, i); }

/* Rows may be given up down to the last: then a text is fed anew, and not the one token that was chosen. */
static bool may_start_anew(const struct check_step *s) {
  return s->prefill || s->prompt || (s->has_source && !s->sampled);
}

static kvs_status check_continuity(struct check *check, int i, kvs_error *err) {
  const struct check_step *s = &check->steps[i], *last = i ? s - 1 : NULL;
  if (s->before == LOOK_NONE) return KVS_OK;
  if (s->step == 0 && s->before > 0) return note(check, i, FACT_LENGTH_START, s->before, 0, err);
  if (!last || last->step + 1 != s->step || s->before == last->after) return KVS_OK;
  if (check_full_again(check, i)) return note(check, i, FACT_CONTEXT_LENGTH, last->after, check->shape.n_ctx, err);
  if (s->before < last->after && (s->before > 0 || may_start_anew(s)))
    return note(check, i, FACT_ROLLED_BACK, last->after - s->before, last->after, err);
  return note(check, i, FACT_LENGTH_STEP, s->before, last->after, err);
}

static kvs_status check_context(struct check *check, int i, kvs_error *err) {
  const struct check_step *s = &check->steps[i];
  int n_ctx = check->shape.n_ctx;
  kvs_status status = KVS_OK;
  if (s->before >= n_ctx || s->after > n_ctx)
    status = note(check, i, FACT_CONTEXT_LENGTH, s->before >= n_ctx ? s->before : s->after, n_ctx, err);
  if (status == KVS_OK && s->position >= n_ctx)
    status = note(check, i, FACT_CONTEXT_POSITION, s->position, n_ctx - 1, err);
  return status;
}

kvs_status check_lengths(struct check *check, kvs_error *err) {
  kvs_status status = KVS_OK;
  for (int i = 0; i < check->count; i++) check->rolls_back |= gives_up(check, i) && !at_end(check, i);
  for (int i = 0; status == KVS_OK && i < check->count; i++) {
    const struct check_step *s = &check->steps[i];
    status = check_continuity(check, i, err);
    if (status == KVS_OK && s->before != LOOK_NONE && s->after != s->before + 1)
      status = note(check, i, FACT_LENGTH_GROWTH, s->after, s->before + 1, err);
    int right = check_right_position(check, i);
    if (status == KVS_OK && s->claims && right != LOOK_NONE && s->position != right && i >= check->pads)
      status = note(check, i, FACT_POSITION_CLAIMED, s->position, right, err);
    if (status == KVS_OK) status = check_context(check, i, err);
  }
  return status;
}

/* ---- the rows of one layer, by the key's index alone ---- */

struct writes {
  struct write {
    int row, step;
  } * at; /* ordered by row, then step */
  int count, room;
};

static kvs_status read_writes(struct check *check, int layer, struct writes *writes, kvs_error *err) {
  sqlite3_stmt *statement = NULL;
  bool more = false;
  const int parameters[] = {check->run, layer};
  writes->count = 0;
  kvs_status status = query_prepare(look_db(check->look),
                                    "SELECT row, step FROM main.kv_row WHERE run = ?1 AND layer = ?2"
                                    " ORDER BY row, step LIMIT 4194304",
                                    parameters, 2, &statement, err);
  while (status == KVS_OK && (status = query_step(statement, &more, err)) == KVS_OK && more) {
    if (writes->count == writes->room) {
      int room = writes->room ? 2 * writes->room : 256;
      struct write *grown = realloc(writes->at, (size_t)room * sizeof *grown);
      if (!grown) {
        status = kvs_fail_memory(err, "reading which rows were written");
        break;
      }
      writes->at = grown, writes->room = room;
    }
    writes->at[writes->count++] = (struct write){look_int(statement, 0), look_int(statement, 1)};
  }
  sqlite3_finalize(statement);
  return status;
}

static kvs_status check_write(struct check *check, int layer, const struct write *write, const struct write *before,
                              kvs_error *err) {
  int i = check_index(check, write->step);
  if (i < 0 || check->steps[i].before == LOOK_NONE) return KVS_OK;
  struct fact fact = check_fact(check, FACT_LENGTH_LAYER, write->step);
  fact.layer = layer, fact.row = write->row;
  kvs_status status = KVS_OK;
  if (layer > 0 && write->row != check->steps[i].before && write->row == check->steps[i].before + 1) {
    fact.found = write->row + 1, fact.right = check->steps[i].after;
    status = check_note(check, &fact, err);
  } else if (write->row != check->steps[i].before && check->steps[i].before < check->shape.n_ctx) {
    fact.kind = FACT_ROW_ELSEWHERE, fact.found = write->row, fact.right = check->steps[i].before;
    status = check_note(check, &fact, err);
  }
  if (status == KVS_OK && before && before->row == write->row) {
    fact.kind = FACT_ROW_OVERWRITTEN, fact.found = before->step, fact.right = check->steps[i].before;
    status = check_note(check, &fact, err);
  }
  return status;
}

/* Marks who wrote a row; false if everybody between the first and the last did. */
static bool find_gaps(const struct check *check, const struct writes *writes, bool *wrote, int *first) {
  int last = -1, gaps = 0;
  *first = check->count;
  for (int w = 0; w < writes->count; w++) {
    int i = check_index(check, writes->at[w].step);
    if (i < 0) continue;
    wrote[i] = true;
    if (i < *first) *first = i;
    if (i > last) last = i;
  }
  for (int i = *first; i < check->count; i++) gaps += !wrote[i];
  return gaps > 0 && last >= 0;
}

/* Steps after the first row's that left no row, though their attention in this layer was logged. */
static kvs_status check_missing(struct check *check, int layer, const struct writes *writes, kvs_error *err) {
  int first;
  bool *wrote = calloc((size_t)check->count + 1, sizeof *wrote), row = false;
  if (!wrote) return kvs_fail_memory(err, "reading which rows were written");
  if (!find_gaps(check, writes, wrote, &first)) {
    free(wrote);
    return KVS_OK;
  }
  sqlite3_stmt *statement = NULL;
  const int parameters[] = {check->run, layer};
  kvs_status status =
      query_prepare(look_db(check->look), "SELECT DISTINCT step FROM main.head_step WHERE run = ?1 AND layer = ?2",
                    parameters, 2, &statement, err);
  while (status == KVS_OK && (status = query_step(statement, &row, err)) == KVS_OK && row) {
    int i = check_index(check, look_int(statement, 0));
    if (i < first || wrote[i]) continue;
    struct fact fact = check_fact(check, FACT_ROW_MISSING, check->steps[i].step);
    fact.layer = layer, fact.row = check->steps[i].before;
    status = check_note(check, &fact, err);
  }
  sqlite3_finalize(statement);
  free(wrote);
  return status;
}

kvs_status check_rows(struct check *check, kvs_error *err) {
  struct writes writes = {0};
  kvs_status status = KVS_OK;
  for (int layer = 0; status == KVS_OK && layer < check->shape.n_layer && layer < CHECK_LAYERS; layer++) {
    status = read_writes(check, layer, &writes, err);
    for (int w = 0; status == KVS_OK && w < writes.count; w++)
      status = check_write(check, layer, &writes.at[w], w ? &writes.at[w - 1] : NULL, err);
    if (status == KVS_OK && writes.count) status = check_missing(check, layer, &writes, err);
  }
  free(writes.at);
  return status;
}
