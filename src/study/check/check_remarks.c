/* check_remarks.c: what a verdict rests on, in words: how much of each thing was looked at, what was left out, and what to log for more. */
#include "study/check/check_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plural.h"
#include "study/check/recompute.h"

kvs_status remark(struct remarks *r, kvs_error *err, const char *format, ...) {
  char text[600];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (r->count == r->room) {
    size_t room = r->room ? 2 * r->room : 8;
    char **grown = realloc(r->at, room * sizeof *grown);
    if (!grown) return kvs_fail_memory(err, "noting what was checked");
    r->at = grown, r->room = room;
  }
  r->at[r->count] = strdup(text);
  if (!r->at[r->count]) return kvs_fail_memory(err, "noting what was checked");
  r->count++;
  return KVS_OK;
}

void remarks_free(struct remarks *r) {
  for (size_t i = 0; i < r->count; i++) free(r->at[i]);
  free(r->at);
  *r = (struct remarks){0};
}

kvs_status remark_seen(struct check *check, kvs_error *err) {
  const struct check_seen *s = &check->seen;
  char text[500] = "";
  const struct {
    int count;
    const char *one, *many;
  } all[] = {{s->lengths, "length", "lengths"},
             {s->claims, "claimed position", "claimed positions"},
             {s->fingerprints, "position by layer 0's K rows", "positions by layer 0's K rows"},
             {s->positions, "position by repeated rows", "positions by repeated rows"},
             {s->events, "event", "events"},
             {s->scores, "head's rows attended", "heads' rows attended"},
             {s->softmaxes, "softmax", "softmaxes"},
             {s->products, "score against q.K", "scores against q.K"},
             {s->mixes, "mix of V", "mixes of V"},
             {s->k_rows, "K row", "K rows"},
             {s->chosen, "token against what was chosen", "tokens against what was chosen"},
             {s->prompt_tokens, "token against the prompt", "tokens against the prompt"},
             {s->layers, "layer worked out again", "layers worked out again"},
             {s->logits, "logits worked out again", "logits worked out again"}};
  size_t used = 0;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (all[i].count > 0 && used < sizeof text - 60)
      used += (size_t)snprintf(text + used, sizeof text - used, "%s%d %s", used ? ", " : "", all[i].count,
                               all[i].count == 1 ? all[i].one : all[i].many);
  return remark(check->remarks, err, "looked at: %s", used ? text : "nothing");
}

kvs_status remark_unheld(struct check *check, kvs_error *err) {
  if (check->unheld == 0) return KVS_OK;
  return remark(
      check->remarks, err,
      "of %d token%s fed after the prompt %d could not be held against what was chosen: %s. A token fed twice, "
      "left out or taken back may be among them",
      check->chosen, plural(check->chosen), check->unheld, check->unheld_why);
}

kvs_status remark_padding(struct check *check, kvs_error *err) {
  bool judged = check->pads_masked || check->seen.softmaxes > 0 || check->seen.layers > 0;
  if (check->pads == 0) return KVS_OK;
  return remark(
      check->remarks, err,
      "the first %d token%s (of id %d) %s left padding, as %s show: not judged, and positions count from row %d on%s",
      check->pads, plural(check->pads), check->steps[0].token, check->pads == 1 ? "is" : "are",
      check->pads_masked ? "the weights" : "the positions", check->pads,
      judged ? "" : ". Whether it is masked cannot be seen: log head_step");
}

kvs_status remark_storage(struct check *check, kvs_error *err) {
  static const char *const names[] = {[STORAGE_F32] = NULL,
                                      [STORAGE_F16] = "float16",
                                      [STORAGE_BF16] = "bfloat16",
                                      [STORAGE_COARSE] = "something coarser than bfloat16"};
  if (check->storage < 0 || check->storage > STORAGE_COARSE || !names[check->storage]) return KVS_OK;
  return remark(check->remarks, err, "the cached rows look like %s: they are compared that exactly and no more",
                names[check->storage]);
}

/* What would let more be said. */
kvs_status remark_missing(struct check *check, bool position, kvs_error *err) {
  const struct check_seen *s = &check->seen;
  kvs_status status = KVS_OK;
  if (!check->model && s->k_rows)
    status = remark(check->remarks, err,
                    "without weights the positions are taken from the trace's own words and repeated rows: give the "
                    "model (-m MODEL) to see which row of wpe was really used");
  else if (!s->k_rows)
    status = remark(check->remarks, err,
                    "log layer 0's K rows (kv_row): with the model's weights they show which position was really used");
  if (status == KVS_OK && !position && !s->k_rows)
    status =
        remark(check->remarks, err, "no position can be judged: log kv_row of layer 0 and give the model (-m MODEL)");
  if (status == KVS_OK && s->products == 0)
    status = remark(check->remarks, err,
                    "log head_step (q, scores, weights, out) and kv_row to have the attention itself checked");
  return status;
}
