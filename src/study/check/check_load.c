/* check_load.c: the numbers of a run's steps, read once. What cannot be a run is refused in words before anything else is asked. */
#include "study/check/check_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trace/query.h"

/* No context is longer, and a hostile file must not fill the memory. */
#define MOST_STEPS (1 << 20)

kvs_status check_query(struct check *check, const char *sql, sqlite3_stmt **statement, kvs_error *err) {
  return query_prepare(look_db(check->look), sql, &check->run, 1, statement, err);
}

kvs_status check_row(struct check *check, sqlite3_stmt *statement, bool *row, kvs_error *err) {
  (void)check;
  return query_step(statement, row, err);
}

static bool says(sqlite3_stmt *statement, int column, const char *word) {
  const char *text = (const char *)sqlite3_column_text(statement, column);
  return text && strcmp(text, word) == 0;
}

static struct check_step read_step(sqlite3_stmt *s) {
  return (struct check_step){.step = look_int(s, 0),
                             .token = look_int(s, 1),
                             .prefill = says(s, 2, "prefill"),
                             .prompt = says(s, 3, "prompt"),
                             .sampled = says(s, 3, "sampled"),
                             .has_source = sqlite3_column_type(s, 3) != SQLITE_NULL,
                             .before = look_int(s, 4),
                             .position = look_int(s, 5),
                             .claims = sqlite3_column_type(s, 5) != SQLITE_NULL,
                             .after = look_int(s, 6),
                             .logprob = column_real(s, 7)};
}

static kvs_status read_steps(struct check *check, kvs_error *err) {
  sqlite3_stmt *statement = NULL;
  int room = 0;
  bool row = false;
  kvs_status status = check_query(check,
                                  "SELECT step, token, mode, source, cache_length_before, position, cache_length_after,"
                                  " logprob FROM main.step WHERE run = ?1 ORDER BY step",
                                  &statement, err);
  while (status == KVS_OK && (status = check_row(check, statement, &row, err)) == KVS_OK && row) {
    if (check->count == MOST_STEPS) {
      status = kvs_fail(err, KVS_ERR_INPUT, "run %d has more than %d steps; that is no decode of a GPT-2", check->run,
                        MOST_STEPS);
      break;
    }
    if (check->count == room) {
      room = room ? 2 * room : 64;
      struct check_step *grown = realloc(check->steps, (size_t)room * sizeof *grown);
      if (!grown) {
        status = kvs_fail_memory(err, "reading a run's steps");
        break;
      }
      check->steps = grown;
    }
    struct check_step step = read_step(statement);
    if (step.step != LOOK_NONE) check->steps[check->count++] = step;
  }
  sqlite3_finalize(statement);
  return status;
}

/* Lengths that are not in the trace: each step appends one row to what the step before left. */
static void fill_lengths(struct check *check) {
  int length = check->count && check->steps[0].step > 0 ? LOOK_NONE : 0;
  for (int i = 0; i < check->count; i++) {
    struct check_step *s = &check->steps[i];
    if (s->before == LOOK_NONE) s->before = length;
    if (s->before == LOOK_NONE && s->after > 0) s->before = s->after - 1;
    if (s->after == LOOK_NONE && s->before != LOOK_NONE) s->after = s->before + 1;
    length = s->after;
  }
}

/* Where no lengths were logged at all, the rows that the steps wrote in the lowest layer tell them: a new row is the length, and one that
 * was there before leaves it as it is. */
static kvs_status read_lengths(struct check *check, kvs_error *err) {
  sqlite3_stmt *statement = NULL;
  bool more = false;
  int length = 0, at = 0;
  kvs_status status =
      check_query(check,
                  "SELECT step, row FROM main.kv_row WHERE run = ?1 AND layer = (SELECT min(layer) FROM main.kv_row"
                  " WHERE run = ?1) ORDER BY step, row",
                  &statement, err);
  while (status == KVS_OK && (status = check_row(check, statement, &more, err)) == KVS_OK && more) {
    int step = look_int(statement, 0), row = look_int(statement, 1);
    for (; at < check->count && check->steps[at].step < step; at++) { /* these wrote none */
      check->steps[at].before = length;
      check->steps[at].after = ++length;
    }
    if (at == check->count || check->steps[at].step != step || row == LOOK_NONE) continue;
    check->steps[at].before = row < length ? length : row;
    check->steps[at].after = length = row < length ? length : row + 1;
    at++;
  }
  sqlite3_finalize(statement);
  return status;
}

static kvs_status settle_lengths(struct check *check, kvs_error *err) {
  for (int i = 0; i < check->count; i++)
    check->seen.lengths += check->steps[i].before != LOOK_NONE || check->steps[i].after != LOOK_NONE;
  kvs_status status = KVS_OK;
  if (check->seen.lengths == 0 && check->count && check->steps[0].step == 0) status = read_lengths(check, err);
  if (status == KVS_OK) fill_lengths(check);
  return status;
}

/* NULL is "none was added" where the trace has positions at all. kvstep itself always says. */
static void settle_claims(struct check *check) {
  bool any = check->ours;
  for (int i = 0; i < check->count; i++) any |= check->steps[i].claims;
  for (int i = 0; i < check->count; i++) {
    check->steps[i].claims = any;
    check->seen.claims += any;
  }
}

static void find_batches(struct check *check) {
  for (int i = 0, end; i < check->count; i = end) {
    for (end = i + 1; check->steps[i].prefill && end < check->count && check->steps[end].prefill;) end++;
    for (int j = i; j < end; j++) check->steps[j].batch_first = i, check->steps[j].batch_end = end;
  }
}

/* The prompt's tokens: those said to be, or the first batch. */
static void count_prompt(struct check *check) {
  int i = 0;
  while (i < check->count && check->steps[i].prompt) i++;
  if (i == 0 && check->count) i = check->steps[0].prefill ? check->steps[0].batch_end : 0;
  check->prompt_length = i;
}

static kvs_status read_run(struct check *check, kvs_error *err) {
  sqlite3_stmt *statement = NULL;
  bool row = false;
  check->temperature = NAN;
  kvs_status status = check_query(check, "SELECT engine, temperature FROM main.run WHERE run = ?1", &statement, err);
  if (status == KVS_OK) status = check_row(check, statement, &row, err);
  if (status == KVS_OK && row) {
    check->ours = says(statement, 0, "kvstep");
    check->temperature = column_real(statement, 1);
  }
  sqlite3_finalize(statement);
  return status;
}

static kvs_status check_shape(const struct check *check, kvs_error *err) {
  const struct look_run *r = &check->shape;
  if (r->n_layer > 0 && r->n_head > 0 && r->n_embd > 0 && r->head_dim > 0 && r->n_ctx > 0 && r->n_vocab > 0)
    return KVS_OK;
  return kvs_fail(
      err, KVS_ERR_INPUT,
      "run %d has no shape that a GPT-2 can have: n_layer, n_head, n_embd, head_dim, n_ctx and n_vocab must "
      "be between 1 and %d, n_head * head_dim = n_embd, and n_layer * n_head at most %d",
      check->run, 1 << 20, LOOK_MOST_HEADS);
}

kvs_status check_load(struct check *check, kvs_error *err) {
  kvs_status status = check_shape(check, err);
  if (status == KVS_OK) status = read_run(check, err);
  if (status == KVS_OK) status = read_steps(check, err);
  if (status != KVS_OK) return status;
  status = settle_lengths(check, err);
  if (status != KVS_OK) return status;
  settle_claims(check);
  find_batches(check);
  count_prompt(check);
  return KVS_OK;
}

int check_index(const struct check *check, int step) {
  int low = 0, high = check->count;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (check->steps[middle].step < step)
      low = middle + 1;
    else
      high = middle;
  }
  return low < check->count && check->steps[low].step == step ? low : -1;
}
