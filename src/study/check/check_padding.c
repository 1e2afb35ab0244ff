/* check_padding.c: left padding, as in a batch of texts of several lengths: equal tokens at the start, which no token of the text attends to,
 * and the text's positions count from behind them. That is no mistake; then the padding itself is not judged. Two signs: every step shuts out
 * just these rows; or the padding has one position, 0 or 1, for all, and the text begins at 0. */
#include "study/check/check_parts.h"

#include <math.h>
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
  bool clear = positions[0] == 1 ? n >= 1 : positions[0] == 0 && n >= (check->shut_out == 1 ? 1 : 2);
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

/* Of a score that is not masked: less than this would be no weight anyway. */
#define NO_WEIGHT 1e-6

static double most_of(const float *scores, int count) {
  double most = -INFINITY;
  for (int r = 0; r < count; r++) most = fmax(most, (double)scores[r]);
  return most;
}

/* Rows at the start that have no weight, and where scores are logged would have some if they were let in; LOOK_NONE: not logged. */
static int shut_out(struct check *check, int step, int layer, int head) {
  const struct look_head *h = look_head(check->look, check->run, step, layer, head);
  int n = 0;
  if (!h || !h->weights || h->rows == 0) return LOOK_NONE;
  double most = h->scores ? most_of(h->scores, h->rows) : 0;
  for (; n < h->rows && h->weights[n] == 0; n++) {
    bool masked = !h->scores || h->scores[n] <= CHECK_MASKED || exp((double)h->scores[n] - most) > NO_WEIGHT;
    if (!masked) break;
  }
  return n;
}

/* In all heads of all layers of this step; LOOK_NONE: none is logged. */
static int shut_out_in_all(struct check *check, int step) {
  int least = LOOK_NONE;
  for (int layer = 0; layer < check->shape.n_layer && layer < CHECK_LAYERS && least != 0; layer++)
    for (int head = 0; head < check->shape.n_head && least != 0; head++) {
      int here = shut_out(check, step, layer, head);
      if (here != LOOK_NONE && (least == LOOK_NONE || here < least)) least = here;
    }
  return least;
}

/* The same rows in every step behind them; the last one tells which. */
static int by_weights(struct check *check) {
  int judged = 0;
  if (!starts_at_0(check)) return 0;
  int n = shut_out_in_all(check, check->steps[check->count - 1].step);
  if (n < 1 || n > equal_tokens(check) || n > check->count - 2) return 0;
  for (int i = n; i < check->count; i++) {
    int here = shut_out_in_all(check, check->steps[i].step);
    if (here == LOOK_NONE) continue;
    if (here != n) return 0;
    judged++;
  }
  return judged > 1 ? n : 0;
}

kvs_status check_padding(struct check *check, kvs_error *err) {
  if (check->pads == 0) { /* else layer 0's rows have told */
    check->shut_out = by_weights(check);
    check->pads = by_claims(check);
    /* One row alone that is shut out may just be masked by mistake. */
    if (check->pads == 0 && check->shut_out > 1) check->pads = check->shut_out;
  }
  check->pads_masked = check->pads > 0 && check->pads == check->shut_out;
  return check->pads < 0 ? kvs_fail_memory(err, "looking for padding") : KVS_OK;
}
