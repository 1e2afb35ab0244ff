/* diagnose_cache.c: mistakes of the cache as a whole: what happens at the context's end, layers that do not agree on the length, and
 * layers that share one buffer. Which row is written, and what of it: diagnose_rows.c. */
#include "study/check/diagnose_parts.h"

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

/* Dropped or overwritten: scores that follow from rows which moved, or from all of them in their places, tell. Where no scores are logged,
 * layers that do not follow from rows in their places tell, unless they did not do so before the end either: that is another mistake's. */
static void which_end(const struct diagnosis *d, const struct group *g, bool *moved, bool *stayed) {
  const unsigned long long odd = BIT(ROW_UNSTABLE) | BIT(ROW_OTHER_LAYER) | BIT(CHAIN) | BIT(CHAIN_HYPOTHESIS) |
                                 BIT(LOGITS_WRONG) | BIT(KEY_WRONG) | BIT(QUERY_WRONG);
  bool judged = false, before = false, shifted = g->kinds & BIT(ROW_SHIFTED);
  for (int i = 0; i < d->check->count; i++) judged = judged || (d->mine[i] && d->check->steps[i].rows_judged);
  for (size_t i = 0; i < d->facts->count; i++) {
    const struct fact *f = &d->facts->at[i];
    shifted = shifted || guessed(f, HYPOTHESIS_WINDOW);
    before = before || ((odd >> f->kind & 1) && !is_full(d, f));
  }
  bool in_place = judged && !(g->kinds & (BIT(ROW_UNSTABLE) | BIT(ROW_OTHER_LAYER)));
  bool could_tell = judged || (d->check->model && d->check->seen.k_rows > d->check->count);
  *moved = shifted || (!in_place && (g->kinds & odd) && !before);
  *stayed = !*moved && (in_place || (could_tell && !(g->kinds & odd)));
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

/* As many scores as this layer holds rows. */
static bool is_its_length(const struct diagnosis *d, const struct fact *f) {
  if (f->kind != FACT_SCORE_COUNT || f->layer == 0) return false;
  for (size_t i = 0; i < d->facts->count; i++) {
    const struct fact *length = &d->facts->at[i];
    if (length->kind == FACT_LENGTH_LAYER && length->step == f->step && length->layer == f->layer &&
        length->found == f->found)
      return true;
  }
  return f->found == f->right + 1;
}

/* The row that was left out, once, in each later layer: attended, and never written. */
static void take_gap(struct diagnosis *d, struct group *g) {
  for (size_t i = 0; i < d->facts->count; i++) {
    const struct fact *f = &d->facts->at[i];
    int s = step_index(d, f->step);
    bool gap = f->kind == FACT_ROW_MISSING || f->kind == FACT_MIX_WRONG || f->kind == FACT_ROW_UNSTABLE ||
               f->kind == FACT_ROW_OVERWRITTEN;
    bool moved_twice = f->kind == FACT_LENGTH_GROWTH && f->found > f->right && s >= 0 && d->mine[s];
    if (d->explained[i] || f->step < g->first_step) continue;
    d->explained[i] = moved_twice || (f->layer > 0 && (gap || is_its_length(d, f)));
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
      "%.0f. Layer 0's append moves the length that the later layers read, so they write one row further on and leave "
      "one empty.",
      when(f), g.first->layer, g.first->found, g.first->right);
  show(f,
       "SELECT k.step, k.layer, k.row, s.cache_length_before AS right_row FROM kv_row AS k JOIN step AS s ON s.run = "
       "k.run AND s.step = k.step WHERE k.run = %d AND k.row <> s.cache_length_before ORDER BY k.step, k.layer",
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
        "wrote there, not from its own K. All layers use one buffer.",
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

kvs_status diagnose_cache(struct diagnosis *d, kvs_error *err) {
  static kvs_status (*const all[])(struct diagnosis *, kvs_error *) = {context_end, layer_lengths, diagnose_rows,
                                                                       shared_buffer};
  kvs_status status = KVS_OK;
  for (size_t i = 0; status == KVS_OK && i < sizeof all / sizeof *all; i++) status = all[i](d, err);
  return status;
}
