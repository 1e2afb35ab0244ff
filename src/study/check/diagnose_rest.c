/* diagnose_rest.c: what no named mistake explains. What happened in steps where one was found follows from it; the rest is told as what it is. */
#include "study/check/diagnose_parts.h"

#include <math.h>

/* Notes that are no mistakes by themselves. */
#define HARMLESS (BIT(ROLLED_BACK) | BIT(EVENT_ORDER) | BIT(RERUN) | BIT(POSITION_UNCLEAR))

static void drop_covered(struct diagnosis *d) {
  for (size_t i = 0; i < d->facts->count; i++) {
    const struct fact *f = &d->facts->at[i];
    int s = step_index(d, f->step);
    if ((HARMLESS >> f->kind & 1) ||
        (s >= 0 && d->covered[s] && (RECOMPUTED | ATTENDED | BIT(ROW_OVERWRITTEN)) >> f->kind & 1))
      d->explained[i] = true;
  }
}

/* Rows written again after some were given up are as it should be. */
static void drop_rewritten(struct diagnosis *d) {
  bool rolled_back = false;
  for (size_t i = 0; i < d->facts->count; i++) rolled_back = rolled_back || d->facts->at[i].kind == FACT_ROLLED_BACK;
  for (size_t i = 0; rolled_back && i < d->facts->count; i++) {
    const struct fact *f = &d->facts->at[i];
    if (f->kind == FACT_ROW_OVERWRITTEN && (double)f->row == f->right) d->explained[i] = true;
  }
}

static unsigned long long wanted_kinds;
static bool is_wanted(const struct diagnosis *d, const struct fact *f) {
  (void)d;
  return wanted_kinds >> f->kind & 1;
}

struct rest {
  const char *kind;
  unsigned long long kinds;
  void (*tell)(struct finding *f, const struct diagnosis *d, const struct fact *first);
};

static void tell_length(struct finding *f, const struct diagnosis *d, const struct fact *first) {
  if (first->kind == FACT_LENGTH_STEP && first->found == 0)
    say(f,
        "%s the cache is empty again: step %d finds no rows, and the step before left %.0f. It was thrown away, or is "
        "not handed on from step to step, and the token attends to itself alone.",
        when(f), f->first_step, first->right);
  else if (first->kind == FACT_LENGTH_STEP)
    say(f,
        "%s the cache's length jumps: step %d finds %.0f rows, and the step before left %.0f. Tokens were fed that the "
        "trace does not have, or rows vanished.",
        when(f), f->first_step, first->found, first->right);
  else
    say(f, "%s the length does not grow by one: after step %d it is %.0f, right is %.0f.", when(f), f->first_step,
        first->found, first->right);
  show(f, "SELECT step, cache_length_before, cache_length_after FROM step WHERE run = %d AND step BETWEEN %d AND %d",
       d->check->run, f->first_step - 1, f->first_step + 1);
}

static void tell_rows(struct finding *f, const struct diagnosis *d, const struct fact *first) {
  if (first->kind == FACT_ROW_OVERWRITTEN)
    say(f, "%s a row is written again: step %d writes row %d of layer %d, which step %.0f wrote.", when(f),
        f->first_step, f->row, f->layer, first->found);
  else if (first->kind == FACT_ROW_ELSEWHERE)
    say(f, "%s a row is written in the wrong place: step %d writes row %d of layer %d, right is row %.0f.", when(f),
        f->first_step, f->row, f->layer, first->right);
  else if (first->kind == FACT_ROW_SHIFTED)
    say(f, "%s the rows have moved: layer %d's scores in step %d follow from rows appended %.0f places further on.",
        when(f), f->layer, f->first_step, first->found);
  else
    say(f,
        "%s scores do not follow from the rows that were appended: in step %d, layer %d, row %d scores %.4f, and q.K "
        "of the row appended there gives "
        "%.4f. Rows were changed after they were logged, or others are read.",
        when(f), f->first_step, f->layer, f->row, first->found, first->right);
  if (first->kind == FACT_ROW_ELSEWHERE)
    show(f,
         "SELECT k.step, k.layer, k.row, s.cache_length_before AS right_row FROM kv_row AS k JOIN step AS s ON s.run = "
         "k.run AND s.step = k.step WHERE "
         "k.run = %d AND k.row <> s.cache_length_before ORDER BY k.step, k.layer",
         d->check->run);
  else if (first->kind == FACT_ROW_OVERWRITTEN)
    show_overwritten_rows(f, d->check->run);
  else
    show(f,
         "SELECT a.head, a.row, a.score, sum(q.q * c.k) / sqrt(%d) AS q_times_k_scaled FROM attention AS a JOIN "
         "query_vector AS q ON q.run = a.run AND q.step = a.step AND q.layer = a.layer AND q.head = a.head JOIN cache "
         "AS c ON c.run = a.run AND c.layer = a.layer AND c.head = a.head AND c.row = a.row AND c.dim = q.dim WHERE "
         "a.run = %d AND a.step = %d AND a.layer = %d AND a.row = %d GROUP BY a.head, a.row",
         d->check->shape.head_dim, d->check->run, f->first_step, f->layer, f->row < 0 ? 0 : f->row);
}

static void tell_mix(struct finding *f, const struct diagnosis *d, const struct fact *first) {
  say(f,
      "%s out is not the sum of weights times V: in step %d, layer %d, head %d it is off by %.4f of its size. The V "
      "rows that are read are not those "
      "that were logged.",
      when(f), f->first_step, f->layer, f->head, first->distance);
  show(f, "SELECT dim, out FROM query_vector WHERE run = %d AND step = %d AND layer = %d AND head = %d", d->check->run,
       f->first_step, f->layer, f->head);
}

static void tell_context(struct finding *f, const struct diagnosis *d, const struct fact *first) {
  say(f, "%s position %.0f is past the end of wpe, whose last row is %.0f.", when(f), first->found, first->right);
  show(f, "SELECT step, cache_length_before, position FROM step WHERE run = %d AND position >= %d", d->check->run,
       d->check->shape.n_ctx);
}

static void tell_token(struct finding *f, const struct diagnosis *d, const struct fact *first) {
  say(f,
      "%s layer 0's K row is that of another token: step %d says it fed token %.0f, and the row was made from token "
      "%.0f.",
      when(f), f->first_step, first->right, first->found);
  show(f, "SELECT step, token, source, position FROM step WHERE run = %d AND step = %d", d->check->run, f->first_step);
}

static void tell_grid(struct finding *f, const struct diagnosis *d, const struct fact *first) {
  if (first->kind == FACT_ROW_SWAPPED)
    say(f, "%s the rows are mixed up: what lies as K in layer 0 row %d is the token's %s.", when(f), f->row,
        first->found < 1 ? "q" : "v");
  else if (first->kind == FACT_ROW_SCALED)
    say(f, "%s layer 0's K rows are %.4f times what they should be.", when(f), first->found);
  else
    say(f,
        "%s layer 0's K row %d is that of no position: the nearest, %.0f, is %.4f away. Other weights, another "
        "LayerNorm epsilon or no bias, or K is changed before it is stored.",
        when(f), f->row, first->found, first->distance);
  show(f, "SELECT step, row, token_text, dim, k FROM cache WHERE run = %d AND layer = 0 AND head = 0 AND row = %d",
       d->check->run, f->row < 0 ? 0 : f->row);
}

static void tell_chain(struct finding *f, const struct diagnosis *d, const struct fact *first) {
  static const char *const what[FACT_KIND_COUNT] = {
      [FACT_CHAIN] = "what it hands on is not what the next layer's rows were made of",
      [FACT_CHAIN_HYPOTHESIS] = "what it hands on follows only from a mistake",
      [FACT_WEIGHTS_WRONG] = "the weights are not what q and the cached K give",
      [FACT_QUERY_WRONG] = "q is not what the layer's input gives",
      [FACT_KEY_WRONG] = "the K row is not what the layer's input gives",
      [FACT_VALUE_WRONG] = "the V row is not what the layer's input gives",
      [FACT_LOGITS_WRONG] = "the logits do not follow from the last layer",
      [FACT_LOGITS_OTHER_ROW] = "the logits are those of another step"};
  say(f, "%s something is wrong in ", when(f));
  if (f->layer >= 0) say(f, "layer %d", f->layer);
  if (f->layer < 0) say(f, "the last LayerNorm or lm_head");
  if (f->head >= 0) say(f, ", head %d", f->head);
  say(f, ": %s", what[first->kind]);
  if (first->kind == FACT_LOGITS_OTHER_ROW) say(f, " (step %.0f)", first->found);
  if (first->distance >= 0) say(f, " (distance %.4f)", first->distance);
  if (f->first_step == d->check->steps[0].step && f->to_end)
    say(f, ". So it is from the first token on, before anything is cached: no mistake of the cache, but other "
           "arithmetic than this model's. Compare weights, biases, the LayerNorm epsilon and the activation function.");
  else
    say(f, ". It is none of the mistakes known by name.");
  if (first->kind == FACT_LOGITS_WRONG || first->kind == FACT_LOGITS_OTHER_ROW)
    show(f,
         "SELECT step, rank, token, token_text, logit FROM top_token WHERE run = %d AND step = %d AND rank <= 5 UNION "
         "ALL SELECT step, NULL, NULL, 'logits begin ' || hex(substr(logits, 1, 16)), NULL FROM step_vector WHERE run "
         "= %d AND step = %d AND logits IS NOT NULL",
         d->check->run, f->first_step, d->check->run, f->first_step);
  else if (first->kind == FACT_WEIGHTS_WRONG)
    show(f,
         "SELECT row, row_token_text, weight FROM attention WHERE run = %d AND step = %d AND layer = %d AND head = %d",
         d->check->run, f->first_step, f->layer, f->head);
  else
    show(f,
         "SELECT step, layer, row, hex(substr(k, 1, 16)) AS k_begins, hex(substr(v, 1, 16)) AS v_begins FROM kv_row "
         "WHERE run = %d AND step = %d",
         d->check->run, f->first_step);
}

static const struct rest rests[] = {
    {"wrong-length", BIT(LENGTH_START) | BIT(LENGTH_STEP) | BIT(LENGTH_GROWTH) | BIT(CONTEXT_LENGTH), tell_length},
    {"wrong-position", BIT(CONTEXT_POSITION), tell_context},
    {"wrong-rows", BIT(ROW_ELSEWHERE) | BIT(ROW_OVERWRITTEN) | BIT(ROW_SHIFTED) | BIT(ROW_UNSTABLE), tell_rows},
    {"wrong-token", BIT(ROW_OTHER_TOKEN), tell_token},
    {"wrong-k", BIT(OFF_GRID) | BIT(ROW_SCALED) | BIT(ROW_SWAPPED), tell_grid},
    {"wrong-mix", BIT(MIX_WRONG), tell_mix},
    {"wrong-layer",
     BIT(CHAIN) | BIT(CHAIN_HYPOTHESIS) | BIT(QUERY_WRONG) | BIT(WEIGHTS_WRONG) | BIT(KEY_WRONG) | BIT(VALUE_WRONG) |
         BIT(LOGITS_WRONG) | BIT(LOGITS_OTHER_ROW),
     tell_chain},
};

kvs_status diagnose_rest(struct diagnosis *d, kvs_error *err) {
  drop_rewritten(d);
  drop_covered(d);
  for (size_t r = 0; r < sizeof rests / sizeof *rests; r++) {
    struct group g = {0};
    group_start(d);
    wanted_kinds = rests[r].kinds;
    take(d, &g, is_wanted);
    if (g.facts == 0) continue;
    struct finding *f = find(d, &g, true, rests[r].kind, NULL, err);
    if (!f) return err->status;
    rests[r].tell(f, d, g.first);
    drop_covered(d);
  }
  return KVS_OK;
}
