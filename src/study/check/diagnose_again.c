/* diagnose_again.c: what shows of positions without weights and claims: one that comes twice, and a length that is read too late. */
#include "study/check/diagnose_parts.h"

#define MOST_PAIRS 1000 /* facts that are compared with each other */

static bool is_again(const struct diagnosis *d, const struct fact *f) {
  (void)d;
  return f->kind == FACT_POSITION_SAME;
}

/* No position comes more than twice: then it need not be that positions stand still; the earlier step of each pair may have been too far
 * on. `mine` are the steps of the group. */
static bool is_pairs(const struct diagnosis *d) {
  const struct facts *facts = d->facts;
  for (size_t i = 0; i < facts->count; i++)
    for (size_t j = 0; j < i && j < MOST_PAIRS; j++)
      if (facts->at[i].kind == FACT_POSITION_SAME && facts->at[j].kind == FACT_POSITION_SAME &&
          facts->at[i].found == facts->at[j].found && facts->at[i].step != facts->at[j].step)
        return false;
  return true;
}

static kvs_status tell_pair(struct diagnosis *d, const struct group *g, kvs_error *err) {
  int earlier = (int)g->first->found, apart = g->first->step - earlier;
  bool jump = apart > 1 && apart == d->check->prompt_length - 1;
  struct finding *f = find(d, g, false,
                           apart == 1 ? "off-by-one"
                           : jump     ? "position-jump"
                                      : "wrong-position",
                           "constant-position", err);
  if (!f) return err->status;
  f->kinds[f->kind_count++] = "skip-wpe";
  f->kinds[f->kind_count++] = "reset-to-zero";
  say(f,
      "%s a position comes twice: step %d has the same row of wpe, or with the same token the same layer 0 K row, as "
      "step %d. Either step %d was %d too far on, or step %d stayed behind; the model's weights (-m) tell which.",
      when(f), f->first_step, earlier, earlier, apart, f->first_step);
  show(f,
       "SELECT step, row, hex(substr(k, 1, 16)) AS k_begins FROM kv_row WHERE run = %d AND layer = 0 AND step IN "
       "(%d, %d)",
       d->check->run, earlier, f->first_step);
  return KVS_OK;
}

static kvs_status tell_again(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, is_again);
  if (g.facts == 0) return KVS_OK;
  if (is_pairs(d)) return tell_pair(d, &g, err);
  struct finding *f = find(d, &g, false, "constant-position", "skip-wpe", err);
  if (!f) return err->status;
  f->kinds[f->kind_count++] = "reset-to-zero";
  say(f,
      "%s the position does not move on: step %d has the same row of wpe, or with the same token the same layer 0 K "
      "row, as step %.0f. Either one "
      "position is used for all, or none is added; the model's weights (-m) tell which.",
      when(f), f->first_step, g.first->found);
  show(f,
       "SELECT step, row, hex(substr(k, 1, 16)) AS k_begins FROM kv_row WHERE run = %d AND layer = 0 AND step IN "
       "(%.0f, %d)",
       d->check->run, g.first->found, f->first_step);
  return KVS_OK;
}

static bool is_read_late(const struct diagnosis *d, const struct fact *f) {
  (void)d;
  return f->kind == FACT_EVENT_ORDER && (int)f->right == KVS_READ_LENGTH;
}

static kvs_status tell_order(struct diagnosis *d, kvs_error *err) {
  struct group g = {0};
  group_start(d);
  take(d, &g, is_read_late);
  if (g.facts == 0) return KVS_OK;
  struct finding *f = find(d, &g, false, "event-order", NULL, err);
  if (!f) return err->status;
  say(f,
      "%s the cache's length is read too late: in step %d the event %s comes before read_length. Positions that follow "
      "from it are one too far, even if the trace does not show it.",
      when(f), f->first_step, kvs_phase_name((kvs_phase)g.first->found));
  show(f, "SELECT seq, phase, layer, cache_length FROM event WHERE run = %d AND step = %d ORDER BY seq LIMIT 8",
       d->check->run, f->first_step);
  return KVS_OK;
}

kvs_status diagnose_again(struct diagnosis *d, kvs_error *err) {
  kvs_status status = tell_again(d, err);
  return status == KVS_OK ? tell_order(d, err) : status;
}
