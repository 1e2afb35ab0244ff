/* diagnose_cache.c: mistakes of the append and of the length: which row is written, what of it, in whose buffer, and what happens at the
 * context's end. */
#include "study/check/diagnose_parts.h"

#include <math.h>

/* ---- past the context's end ---- */

static bool is_full(const struct diagnosis *d, const struct fact *f) {
  int i = step_index(d, f->step);
  return i >= 0 && (d->check->steps[i].before >= d->check->shape.n_ctx || check_full_again(d->check, i));
}

static bool past_context(const struct diagnosis *d, const struct fact *f) {
  if (f->kind == FACT_CONTEXT_LENGTH) return true;
  bool follows =
      (BIT(LENGTH_GROWTH) | BIT(LENGTH_STEP) | BIT(ROLLED_BACK) | BIT(ROW_OVERWRITTEN) | BIT(POSITION_CLAIMED) |
       BIT(POSITION_USED) | BIT(POSITION_SAME) | BIT(CONTEXT_POSITION) | RECOMPUTED | ATTENDED) >>
          f->kind &
      1;
  return follows && is_full(d, f);
}

/* Dropped or overwritten: rows that moved tell, and where no scores are logged, layers that do not follow from rows in their places. */
static void which_end(const struct diagnosis *d, const struct group *g, bool *moved, bool *stayed) {
  bool judged = false;
  for (int i = 0; i < d->check->count; i++) judged = judged || (d->mine[i] && d->check->steps[i].rows_judged);
  bool odd = g->kinds & (BIT(ROW_SHIFTED) | BIT(ROW_UNSTABLE) | BIT(CHAIN) | BIT(CHAIN_HYPOTHESIS) | BIT(LOGITS_WRONG) |
                         BIT(KEY_WRONG) | BIT(QUERY_WRONG));
  *moved = odd;
  *stayed = !odd && (judged || (d->check->model && d->check->seen.k_rows > d->check->count));
}

static kvs_status context_end(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  bool moved, stayed;
  group_start(d);
  take(d, &g, past_context);
  if (!(g.kinds & BIT(CONTEXT_LENGTH))) {
    if (g.facts == 0) return KVS_OK;
  }
  which_end(d, &g, &moved, &stayed);
  struct finding *f = find(d, &g, true, stayed ? "context-unguarded" : "context-overflow",
                           moved || stayed ? NULL : "context-unguarded", err);
  if (!f) return err->status;
  int n_ctx = d->check->shape.n_ctx;
  say(f, "%s the context is full (n_ctx = %d rows) and the run goes on all the same: ", when(f), n_ctx);
  if (moved)
    say(f, "the oldest row is dropped and the others move down, but they keep the positions that they were made with");
  else if (stayed)
    say(f, "row %d is written again and again, each time over the token before", n_ctx - 1);
  else
    say(f, "either the oldest row is dropped, or the last is overwritten; q and scores (head_step) would tell which");
  say(f, ", and each new token claims position %d.", n_ctx - 1);
  show(f,
       "SELECT step, cache_length_before, cache_length_after, position FROM step WHERE run = %d AND "
       "coalesce(cache_length_after, cache_length_before + 1) >= %d",
       d->check->run, n_ctx);
  return KVS_OK;
}

/* ---- layers that disagree ---- */

static bool other_length(const struct diagnosis *d, const struct fact *f) {
  (void)d;
  return f->kind == FACT_LENGTH_LAYER || (f->kind == FACT_CHAIN_HYPOTHESIS && (int)f->found == HYPOTHESIS_LAYER_LENGTH);
}

static bool one_row_more(const struct fact *f) {
  return f->kind == FACT_SCORE_COUNT && f->layer > 0 && f->found == f->right + 1;
}

/* The row that was left out, once, in each later layer: attended, and never written. */
static void take_gap(struct diagnosis *d, struct group *g) {
  for (size_t i = 0; i < d->facts->count; i++) {
    const struct fact *f = &d->facts->at[i];
    bool gap = f->kind == FACT_ROW_MISSING || one_row_more(f) || f->kind == FACT_MIX_WRONG ||
               f->kind == FACT_ROW_UNSTABLE || f->kind == FACT_ROW_OVERWRITTEN;
    if (!d->explained[i] && gap && f->layer > 0 && f->step >= g->first_step) d->explained[i] = true;
  }
}

static kvs_status layer_lengths(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, other_length);
  if (g.facts == 0) return KVS_OK;
  take_with(d, &g, RECOMPUTED | BIT(ROW_UNSTABLE) | BIT(MIX_WRONG));
  take_gap(d, &g);
  struct finding *f = find(d, &g, true, "cross-layer-length", NULL, err);
  if (!f) return err->status;
  say(f,
      "%s the layers do not agree on the cache's length: after its append layer %d holds %.0f rows and layer 0 holds "
      "%.0f. Layer 0's "
      "append moves the length that the later layers read, so they write one row further on and leave one empty.",
      when(f), g.first->layer, g.first->found, g.first->right);
  show(f,
       "SELECT k.step, k.layer, k.row, s.cache_length_before AS right_row FROM kv_row AS k JOIN step AS s ON s.run = "
       "k.run AND "
       "s.step = k.step WHERE k.run = %d AND k.row <> s.cache_length_before ORDER BY k.step, k.layer",
       d->check->run);
  if (g.first->row >= 0) return KVS_OK;
  f->sql[0] = '\0';
  show(f,
       "SELECT step, layer, cache_length FROM event WHERE run = %d AND phase = 'append' AND step = %d ORDER BY layer",
       d->check->run, f->first_step);
  return KVS_OK;
}

static bool other_layers_row(const struct diagnosis *d, const struct fact *f) {
  (void)d;
  return f->kind == FACT_ROW_OTHER_LAYER ||
         (f->kind == FACT_CHAIN_HYPOTHESIS && (int)f->found == HYPOTHESIS_SHARED_BUFFER);
}

static kvs_status shared_buffer(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, other_layers_row);
  if (g.facts == 0) return KVS_OK;
  take_with(d, &g, RECOMPUTED | BIT(ROW_UNSTABLE) | BIT(MIX_WRONG) | BIT(V_READ_AS_ZERO));
  struct finding *f = find(d, &g, true, "cross-layer-shared", NULL, err);
  if (!f) return err->status;
  if (g.first->kind == FACT_ROW_OTHER_LAYER)
    say(f,
        "%s layers read each other's rows: in step %d layer %d's scores against row %d follow from what layer %.0f "
        "wrote there, not from "
        "its own K. All layers use one buffer.",
        when(f), f->first_step, f->layer, f->row, g.first->found);
  else
    say(f,
        "%s layer %d follows from the layer below only if all layers share one buffer: each reads what the last one "
        "left.",
        when(f), f->layer);
  show(f,
       "SELECT layer, row, step, hex(substr(k, 1, 16)) AS k_begins FROM kv_row WHERE run = %d AND row = %d AND step <= "
       "%d ORDER BY layer",
       d->check->run, f->row < 0 ? 0 : f->row, f->first_step);
  return KVS_OK;
}

/* ---- one layer's rows ---- */

static bool stays(const struct diagnosis *d, const struct fact *f) {
  (void)d;
  return f->kind == FACT_LENGTH_GROWTH && f->found == f->right - 1;
}

static bool over_the_last(const struct diagnosis *d, const struct fact *f) {
  int i = step_index(d, f->step);
  return (f->kind == FACT_ROW_OVERWRITTEN || f->kind == FACT_ROW_ELSEWHERE) && i >= 0 &&
         d->check->steps[i].before > 0 && f->row == d->check->steps[i].before - 1;
}

/* One row more than the length says is attended to, in the group's steps: that of the length before. */
static void take_one_more(struct diagnosis *d) {
  for (size_t i = 0; i < d->facts->count; i++) {
    const struct fact *f = &d->facts->at[i];
    int s = step_index(d, f->step);
    if (s >= 0 && d->mine[s] && f->kind == FACT_SCORE_COUNT && f->found == f->right + 1) d->explained[i] = true;
  }
}

static kvs_status overwrite_last(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, stays);
  take(d, &g, over_the_last);
  if (g.facts == 0) return KVS_OK;
  take_with(d, &g, (RECOMPUTED | ATTENDED) & ~BIT(SCORE_COUNT));
  take_one_more(d);
  struct finding *f = find(d, &g, true, "overwrite-last", NULL, err);
  if (!f) return err->status;
  int i = step_index(d, f->first_step), before = d->check->steps[i].before;
  f->row = before - 1;
  say(f, "%s the new row goes over the last one: step %d writes row %d, not row %d, and the length stays %d.", when(f),
      f->first_step, before - 1, before, before);
  if (g.kinds & BIT(ROW_OVERWRITTEN))
    show(f,
         "SELECT layer, row, count(*) AS times_written, group_concat(step) AS by_steps FROM kv_row WHERE run = %d "
         "GROUP BY layer, row "
         "HAVING count(*) > 1",
         d->check->run);
  else
    show(f,
         "SELECT step, cache_length_before, cache_length_after FROM step WHERE run = %d AND cache_length_after <= "
         "cache_length_before",
         d->check->run);
  return KVS_OK;
}

/* A step's K row in this layer is dead too. */
static bool has(const struct diagnosis *d, enum fact_kind kind, const struct fact *f) {
  for (size_t i = 0; i < d->facts->count; i++) {
    const struct fact *other = &d->facts->at[i];
    if (other->kind == kind && other->step == f->step && other->layer == f->layer && other->row == f->row) return true;
  }
  return false;
}

static bool is_seen_again(const struct diagnosis *d, const struct fact *f) {
  for (size_t i = 0; i < d->facts->count; i++) {
    const struct fact *g = &d->facts->at[i];
    if (g->kind == f->kind && g->layer == f->layer && g->row == f->row && g->step > f->step) return true;
  }
  return false;
}

bool not_stored_yet(const struct diagnosis *d, const struct fact *f) {
  int s = step_index(d, f->step);
  if (f->kind != FACT_K_READ_AS_ZERO || s < 0 || f->row != d->check->steps[s].before || is_seen_again(d, f))
    return false;
  if (s + 1 < d->check->count) return true;
  for (size_t i = 0; i < d->facts->count; i++) { /* nobody reads the last step's row: as with the others, then */
    const struct fact *g = &d->facts->at[i];
    if (g->step < f->step && not_stored_yet(d, g)) return true;
  }
  return false;
}

static bool dead_both(const struct diagnosis *d, const struct fact *f) {
  if (f->kind == FACT_ROW_MISSING) return true;
  if (not_stored_yet(d, f)) return false;
  if (f->kind == FACT_ROW_DEAD_K) return !isnan(f->found) && (has(d, FACT_ROW_DEAD_V, f) || d->check->seen.v_rows == 0);
  if (f->kind == FACT_ROW_DEAD_V) return !isnan(f->found) && has(d, FACT_ROW_DEAD_K, f);
  return f->kind == FACT_K_READ_AS_ZERO || (f->kind == FACT_CHAIN_HYPOTHESIS && (int)f->found == HYPOTHESIS_ZERO_K_V);
}

/* The row's K is merely not stored yet, and its V neither. */
static bool is_too_early(const struct diagnosis *d, const struct fact *f) {
  for (size_t i = 0; i < d->facts->count; i++) {
    const struct fact *k = &d->facts->at[i];
    if (k->step == f->step && k->layer == f->layer && k->row == f->row && not_stored_yet(d, k)) return true;
  }
  return false;
}

static bool dead_v(const struct diagnosis *d, const struct fact *f) {
  if (f->kind == FACT_V_READ_AS_ZERO && is_too_early(d, f)) return false;
  return (f->kind == FACT_ROW_DEAD_V && !isnan(f->found)) || f->kind == FACT_V_READ_AS_ZERO ||
         (f->kind == FACT_CHAIN_HYPOTHESIS && (int)f->found == HYPOTHESIS_ZERO_V);
}

static bool dead_rest(const struct diagnosis *d, const struct fact *f) {
  (void)d;
  return f->kind == FACT_ROW_DEAD_K || f->kind == FACT_ROW_DEAD_V;
}

static kvs_status row_never_written(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, dead_both);
  if (g.facts == 0) return KVS_OK;
  take_with(d, &g,
            RECOMPUTED | BIT(V_READ_AS_ZERO) | BIT(K_READ_AS_ZERO) | BIT(MIX_WRONG) | BIT(ROW_DEAD_V) |
                BIT(ROW_UNSTABLE));
  struct finding *f = find(d, &g, true, "row-never-written", NULL, err);
  if (!f) return err->status;
  say(f, "%s the length grows, but nothing is stored: ", when(f));
  if (g.first->kind == FACT_ROW_MISSING)
    say(f, "no step wrote row %d of layer %d, and it is attended to.", f->row, f->layer);
  else if (g.first->kind == FACT_ROW_DEAD_K)
    say(f,
        d->check->seen.v_rows ? "K and V of row %d in layer %d are all zero."
                              : "K of row %d in layer %d is all zero (V is not in the trace).",
        f->row, f->layer);
  else
    say(f, "row %d of layer %d is read as zeros, whatever k and v were logged.", f->row, f->layer);
  if (g.first->kind == FACT_ROW_MISSING)
    show(f,
         "SELECT s.step, s.cache_length_before AS row FROM step AS s WHERE s.run = %d AND s.step >= %d AND NOT EXISTS "
         "(SELECT 1 FROM "
         "kv_row AS k WHERE k.run = s.run AND k.layer = %d AND k.step = s.step)",
         d->check->run, f->first_step, f->layer);
  else if (g.first->kind == FACT_ROW_DEAD_K)
    show(f,
         "SELECT layer, row, step FROM kv_row WHERE run = %d AND k = zeroblob(length(k)) AND (v IS NULL OR v = "
         "zeroblob(length(v)))",
         d->check->run);
  else
    show(f,
         "SELECT layer, head, row, score, weight FROM attention WHERE run = %d AND step = %d AND layer = %d AND row = "
         "%d",
         d->check->run, f->first_step, f->layer < 0 ? 0 : f->layer, f->row);
  return KVS_OK;
}

static kvs_status k_without_v(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, dead_v);
  if (g.facts == 0) return KVS_OK;
  take_with(d, &g, RECOMPUTED | BIT(V_READ_AS_ZERO) | BIT(MIX_WRONG));
  struct finding *f = find(d, &g, true, "k-without-v", NULL, err);
  if (!f) return err->status;
  say(f, "%s K is appended, V is not: ", when(f));
  if (g.kinds & BIT(ROW_DEAD_V)) {
    say(f, "V of row %d in layer %d is all zero, K is not.", f->row, f->layer);
    show(f, "SELECT layer, row, step FROM kv_row WHERE run = %d AND v = zeroblob(length(v))", d->check->run);
    return KVS_OK;
  }
  if (f->row < 0) f->row = d->check->steps[step_index(d, f->first_step)].before;
  say(f, "layer %d's output follows only if V of the new row is zero, whatever v was logged.", f->layer);
  show(f, "SELECT head, row, weight FROM attention WHERE run = %d AND step = %d AND layer = %d AND row = %d",
       d->check->run, f->first_step, f->layer < 0 ? 0 : f->layer, f->row);
  return KVS_OK;
}

/* NaN, or V without K: a dead row of a kind that has no name of its own. */
static kvs_status dead_row(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, dead_rest);
  if (g.facts == 0) return KVS_OK;
  take_with(d, &g, RECOMPUTED | ATTENDED | BIT(SOFTMAX_SUM) | BIT(SOFTMAX_WRONG));
  struct finding *f = find(d, &g, true, "dead-row", NULL, err);
  if (!f) return err->status;
  bool nan = isnan(g.first->found), of_k = g.first->kind == FACT_ROW_DEAD_K;
  say(f, "%s %s of row %d in layer %d %s.", when(f), of_k ? "K" : "V", f->row, f->layer,
      nan ? "holds NaN: whatever attends to it becomes NaN" : "is all zero");
  if (nan) { /* NaN attends everywhere afterwards */
    for (size_t i = 0; i < d->facts->count; i++)
      if (d->facts->at[i].step >= f->first_step &&
          (RECOMPUTED | ATTENDED | BIT(SOFTMAX_SUM) | BIT(SOFTMAX_WRONG)) >> d->facts->at[i].kind & 1)
        d->explained[i] = true;
    show(f,
         "SELECT layer, head, row, dim, k, v FROM cache WHERE run = %d AND layer = %d AND row = %d AND (k IS NULL OR v "
         "IS NULL)",
         d->check->run, f->layer, f->row);
  } else {
    show(f, "SELECT layer, row, step FROM kv_row WHERE run = %d AND %s = zeroblob(length(%s))", d->check->run,
         of_k ? "k" : "v", of_k ? "k" : "v");
  }
  return KVS_OK;
}

kvs_status diagnose_cache(struct diagnosis *d, kvs_error *err) {
  static kvs_status (*const all[])(struct diagnosis *, kvs_error *) = {
      context_end, layer_lengths, overwrite_last, row_never_written, k_without_v, dead_row, shared_buffer};
  kvs_status status = KVS_OK;
  for (size_t i = 0; status == KVS_OK && i < sizeof all / sizeof *all; i++) status = all[i](d, err);
  return status;
}
