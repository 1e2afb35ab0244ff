/* check_padding.c: left padding, as in a batch of texts of several lengths: equal tokens at the start, which no token of the text attends to,
 * and the text's positions count from behind them. That is no mistake; then the padding itself is not judged. Two signs: every step shuts out
 * just these rows; or the padding has one position, 0 or 1, for all, and the text begins at 0. */
#include "study/check/check_parts.h"

#include <stdlib.h>

int check_right_position(const struct check *check, int i) {
  int before = check->steps[i].before;
  return before == LOOK_NONE || check->pads == 0 ? before : before - check->pads;
}

/* So many tokens at the start are the same. */
static int equal_tokens(const struct check *check) {
  int n = 0;
  while (n < check->count && check->steps[n].token == check->steps[0].token) n++;
  return n;
}

static bool starts_at_0(const struct check *check) {
  return check->count > 1 && check->steps[0].step == 0 && check->steps[0].before == 0;
}

/* ---- by positions ---- */

/* Whether the steps behind the first n, up to the prompt's end and two of them at least, are at 0, 1, 2 … */
static bool counts_from(const struct check *check, const int *positions, int n) {
  int end = check->prompt_length < n + 2 ? n + 2 : check->prompt_length;
  if (end > check->count) return false;
  for (int i = n; i < end; i++)
    if (positions[i] != i - n) return false;
  return true;
}

int check_padded(const struct check *check, const int *positions) {
  int n = 0, equal = equal_tokens(check);
  if (!starts_at_0(check)) return 0;
  while (n < check->count && positions[n] == positions[0]) n++;
  if (positions[0] == 0) n--; /* the last of them is the text's first */
  /* One token at 0, and then 0 again: that may be a length that is read one too short. */
  bool clear = positions[0] == 1 ? n >= 1 : positions[0] == 0 && n >= 2;
  return clear && n <= equal && counts_from(check, positions, n) ? n : 0;
}

static int by_claims(const struct check *check) {
  int *positions = malloc(((size_t)check->count + 1) * sizeof *positions), n;
  if (!positions) return -1;
  for (int i = 0; i < check->count; i++) positions[i] = check->steps[i].claims ? check->steps[i].position : LOOK_NONE;
  n = check_padded(check, positions);
  free(positions);
  return n;
}

/* ---- by weights ---- */

/* Rows at the start that have no weight; LOOK_NONE: the head is not logged. */
static int shut_out(struct check *check, int step, int layer, int head) {
  const struct look_head *h = look_head(check->look, check->run, step, layer, head);
  int n = 0;
  if (!h || !h->weights || h->rows == 0) return LOOK_NONE;
  while (n < h->rows && h->weights[n] == 0) n++;
  return n;
}

/* The first head that the last step has: where this is looked at. */
static bool find_head(struct check *check, int *layer, int *head) {
  int step = check->steps[check->count - 1].step;
  for (*layer = 0; *layer < check->shape.n_layer && *layer < CHECK_LAYERS; ++*layer)
    for (*head = 0; *head < check->shape.n_head; ++*head)
      if (shut_out(check, step, *layer, *head) != LOOK_NONE) return true;
  return false;
}

/* The same rows in every step behind them, be it by one row only. */
static int by_weights(struct check *check) {
  int layer, head, judged = 0;
  if (!starts_at_0(check) || !find_head(check, &layer, &head)) return 0;
  int n = shut_out(check, check->steps[check->count - 1].step, layer, head);
  if (n < 1 || n > equal_tokens(check) || n > check->count - 2) return 0;
  for (int i = n; i < check->count; i++) {
    int here = shut_out(check, check->steps[i].step, layer, head);
    if (here == LOOK_NONE) continue;
    if (here != n) return 0;
    judged++;
  }
  return judged > 1 ? n : 0;
}

kvs_status check_padding(struct check *check, kvs_error *err) {
  if (check->pads > 0) return KVS_OK; /* known already */
  check->pads = by_weights(check);
  check->pads_masked = check->pads > 0;
  if (check->pads == 0) check->pads = by_claims(check);
  return check->pads < 0 ? kvs_fail_memory(err, "looking for padding") : KVS_OK;
}
