/* diagnose_rows.c: mistakes of the append in one layer: which row is written, and what of it. */
#include "study/check/diagnose_parts.h"

#include <math.h>

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
    show_overwritten_rows(f, d->check->run);
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

/* A token that was chosen was cut off again (D8), and its row is still there: nothing was stored over it. */
static bool is_left_over(const struct diagnosis *d, const struct fact *f) {
  for (size_t i = 0; i < d->facts->count; i++) {
    const struct fact *skipped = &d->facts->at[i];
    if (skipped->kind != FACT_TOKEN_NOT_SAMPLED || skipped->step != f->step) continue;
    if (f->kind == FACT_VALUE_WRONG) return true;
    if (f->kind == FACT_ROW_OTHER_TOKEN) return f->found == skipped->right;
  }
  return false;
}

static bool dead_both(const struct diagnosis *d, const struct fact *f) {
  if (f->kind == FACT_ROW_MISSING || f->kind == FACT_ROW_KEPT) return true;
  if (f->kind == FACT_ROW_OTHER_TOKEN) return is_left_over(d, f);
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
  return (f->kind == FACT_ROW_DEAD_V && !isnan(f->found)) || f->kind == FACT_ROW_KEPT_V ||
         f->kind == FACT_V_READ_AS_ZERO || (f->kind == FACT_CHAIN_HYPOTHESIS && (int)f->found == HYPOTHESIS_ZERO_V);
}

static bool dead_rest(const struct diagnosis *d, const struct fact *f) {
  (void)d;
  return f->kind == FACT_ROW_DEAD_K || f->kind == FACT_ROW_DEAD_V;
}

/* Rows written twice of which something did not change. */
static void show_kept(struct finding *f, const struct diagnosis *d, const char *same) {
  show(
      f,
      "SELECT a.layer, a.row, a.step AS first_written, b.step AS and_again, hex(substr(b.k, 1, 8)) AS k_begins, "
      "hex(substr(b.v, 1, 8)) AS v_begins FROM kv_row AS a JOIN kv_row AS b ON b.run = a.run AND b.layer = a.layer AND "
      "b.row = a.row AND b.step > a.step WHERE a.run = %d AND %s",
      d->check->run, same);
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
  say(f, "%s %s: ", when(f),
      g.kinds & BIT(ROW_KEPT) ? "the new row is not stored" : "the length grows, but nothing is stored");
  if (g.first->kind == FACT_ROW_KEPT)
    say(f, "K and V of row %d in layer %d are still those of step %.0f, another token's.", f->row, f->layer,
        g.first->found);
  else if (g.first->kind == FACT_ROW_OTHER_TOKEN)
    say(f, "row %d of layer %d is still that of token %.0f, which was cut off.", f->row, f->layer, g.first->found);
  else if (g.first->kind == FACT_ROW_MISSING)
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
         "(SELECT 1 FROM kv_row AS k WHERE k.run = s.run AND k.layer = %d AND k.step = s.step)",
         d->check->run, f->first_step, f->layer);
  else if (g.first->kind == FACT_ROW_KEPT)
    show_kept(f, d, "a.k = b.k AND a.v IS b.v");
  else if (g.first->kind == FACT_ROW_OTHER_TOKEN)
    show(f, "SELECT layer, row, step, hex(substr(k, 1, 16)) AS k_begins FROM kv_row WHERE run = %d AND step = %d",
         d->check->run, f->first_step);
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
  for (size_t i = 0; i < d->facts->count; i++)
    if (!d->explained[i] && d->facts->at[i].kind == FACT_VALUE_WRONG && is_left_over(d, &d->facts->at[i]))
      take_fact(d, &g, i);
  take_with(d, &g, RECOMPUTED | BIT(V_READ_AS_ZERO) | BIT(MIX_WRONG));
  struct finding *f = find(d, &g, true, "k-without-v", NULL, err);
  if (!f) return err->status;
  say(f, "%s K is appended, V is not: ", when(f));
  if (g.first->kind == FACT_VALUE_WRONG) {
    say(f, "V of row %d in layer %d is not this token's, K is; that of a token that was cut off is still there.",
        f->row, f->layer);
    show(f, "SELECT layer, row, step, hex(substr(v, 1, 16)) AS v_begins FROM kv_row WHERE run = %d AND step = %d",
         d->check->run, f->first_step);
    return KVS_OK;
  }
  if (g.first->kind == FACT_ROW_KEPT_V) {
    say(f, "V of row %d in layer %d is still that of step %.0f, K is new.", f->row, f->layer, g.first->found);
    show_kept(f, d, "a.v = b.v AND a.k <> b.k");
    return KVS_OK;
  }
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

kvs_status diagnose_rows(struct diagnosis *d, kvs_error *err) {
  static kvs_status (*const all[])(struct diagnosis *, kvs_error *) = {overwrite_last, row_never_written, k_without_v,
                                                                       dead_row};
  kvs_status status = KVS_OK;
  for (size_t i = 0; status == KVS_OK && i < sizeof all / sizeof *all; i++) status = all[i](d, err);
  return status;
}
