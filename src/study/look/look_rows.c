/* look_rows.c: which step a cache row came from, and looking for a step: by its token's text, or where two runs part. */
#include "study/look/look_parts.h"

#include <stdlib.h>
#include <string.h>

/* A screen asks for hundreds of rows at a time, so the list is read at once: who wrote which row of a layer, or which step found
 * which length. One that is longer than any usual run's is not read; then each place is asked for alone. */
#define LONGEST_LIST 16384

struct pairs {
  int count; /* LONGEST_LIST + 1: too many */
  struct pair {
    int row, step;
  } pair[]; /* ordered by both */
};

static struct pairs *read_pairs(struct look *look, enum look_query query, const int *key, int keys) {
  int parameters[LOOK_KEYS], room = 64;
  memcpy(parameters, key, sizeof parameters);
  parameters[keys] = LONGEST_LIST + 1;
  struct pairs *pairs = malloc(sizeof *pairs + (size_t)room * sizeof *pairs->pair);
  if (!pairs) return look_no_memory(look), NULL;
  pairs->count = 0;
  bool row, good = look_ask(look, query, parameters, keys + 1, &row);
  while (good && row) {
    if (pairs->count == room) {
      struct pairs *larger = realloc(pairs, sizeof *pairs + (size_t)(room *= 2) * sizeof *pairs->pair);
      if (!larger) {
        look_done(look, query);
        look_no_memory(look);
        free(pairs);
        return NULL;
      }
      pairs = larger;
    }
    sqlite3_stmt *statement = look->statements[query];
    pairs->pair[pairs->count++] = (struct pair){look_int(statement, 0), look_int(statement, 1)};
    good = look_ask_more(look, query, &row);
  }
  if (!good) {
    free(pairs);
    return NULL;
  }
  look_done(look, query);
  return pairs;
}

/* The kept list, read if it is not there; NULL: failed. */
static const struct pairs *get_pairs(struct look *look, enum look_kind kind, enum look_query query, const int *key,
                                     int keys) {
  struct look_entry *entry = look_cache_find(&look->caches[kind], key);
  if (entry) return entry->value;
  struct pairs *pairs = read_pairs(look, query, key, keys);
  if (!pairs) return NULL;
  size_t bytes = sizeof *pairs + (size_t)pairs->count * sizeof *pairs->pair;
  if (pairs->count > LONGEST_LIST) { /* that it is too long is all that is kept */
    struct pairs *smaller = realloc(pairs, sizeof *pairs);
    if (smaller) pairs = smaller, bytes = sizeof *pairs;
  }
  look_cache_put(&look->caches[kind], key, pairs, bytes);
  return pairs;
}

/* The latest step of `row` up to `step`. */
static int search(const struct pairs *pairs, int row, int step) {
  int low = 0, high = pairs->count; /* the first pair beyond (row, step) is in low..high */
  while (low < high) {
    int middle = low + (high - low) / 2;
    const struct pair *pair = &pairs->pair[middle];
    if (pair->row < row || (pair->row == row && pair->step <= step))
      low = middle + 1;
    else
      high = middle;
  }
  return low > 0 && pairs->pair[low - 1].row == row ? pairs->pair[low - 1].step : LOOK_NONE;
}

static int ask_alone(struct look *look, enum look_query query, const int *parameters, int count) {
  bool row;
  if (!look_ask(look, query, parameters, count, &row)) return LOOK_NONE;
  int step = row ? look_int(look->statements[query], 0) : LOOK_NONE;
  look_done(look, query);
  return step;
}

int look_writer(struct look *look, int run, int step, int layer, int row) {
  if (run < 1 || step < 0 || layer < 0 || row < 0) return LOOK_NONE;
  const int key[LOOK_KEYS] = {run, layer};
  const struct pairs *pairs = get_pairs(look, WRITERS, ASK_WRITERS, key, 2);
  if (!pairs) return LOOK_NONE;
  if (pairs->count <= LONGEST_LIST) return search(pairs, row, step);
  return ask_alone(look, ASK_WRITER, (const int[]){run, layer, row, step}, 4);
}

int look_written(struct look *look, int run, int step, int layer, int expected, bool *any) {
  const int key[LOOK_KEYS] = {run, layer};
  const struct pairs *pairs = get_pairs(look, WRITERS, ASK_WRITERS, key, 2);
  int found = LOOK_NONE;
  *any = pairs && pairs->count > 0 && pairs->count <= LONGEST_LIST; /* too long to be sure that none was */
  if (expected >= 0 && look_writer(look, run, step, layer, expected) == step) return expected;
  for (int i = 0; pairs && pairs->count <= LONGEST_LIST && i < pairs->count; i++)
    if (pairs->pair[i].step == step) found = pairs->pair[i].row;
  return found;
}

int look_finder(struct look *look, int run, int step, int row) {
  const int key[LOOK_KEYS] = {run};
  if (run < 1 || step < 0 || row < 0) return LOOK_NONE;
  const struct pairs *pairs = get_pairs(look, LENGTHS, ASK_LENGTHS, key, 1);
  if (!pairs) return LOOK_NONE;
  if (pairs->count <= LONGEST_LIST) return search(pairs, row, step);
  return ask_alone(look, ASK_LENGTH, (const int[]){run, row, step}, 3);
}

int look_row_step(struct look *look, int run, int step, int layer, int row) {
  int writer = look_writer(look, run, step, layer, row);
  return writer != LOOK_NONE ? writer : look_finder(look, run, step, row);
}

const char *look_row_text(struct look *look, int run, int step, int layer, int row) {
  int from = look_row_step(look, run, step, layer, row);
  const struct look_step *found = from == LOOK_NONE ? NULL : look_step(look, run, from);
  return found && *found->text ? found->text : "?";
}

/* ---- looking for a step ---- */

static unsigned char lower(unsigned char c) { return c >= 'A' && c <= 'Z' ? (unsigned char)(c + 32) : c; }

/* Any capital letter in what is looked for makes the case count. */
static bool contains(const unsigned char *where, size_t length, const char *what, bool exactly) {
  size_t wanted = strlen(what);
  for (size_t at = 0; at + wanted <= length; at++) {
    size_t i = 0;
    while (i < wanted && (exactly ? where[at + i] : lower(where[at + i])) == (unsigned char)what[i]) i++;
    if (i == wanted) return true;
  }
  return false;
}

int look_find(struct look *look, int run, int from, int direction, const char *text) {
  enum look_query query = direction < 0 ? ASK_EARLIER_TEXT : ASK_NEXT_TEXT;
  bool exactly = false, row;
  for (const char *c = text; *c; c++) exactly |= lower((unsigned char)*c) != (unsigned char)*c;
  bool good = look_ask(look, query, (const int[]){run, from}, 2, &row);
  int found = LOOK_NONE;
  while (good && row && found == LOOK_NONE) {
    sqlite3_stmt *statement = look->statements[query];
    const unsigned char *shown = sqlite3_column_text(statement, 1);
    if (shown && contains(shown, (size_t)sqlite3_column_bytes(statement, 1), text, exactly))
      found = look_int(statement, 0);
    else
      good = look_ask_more(look, query, &row);
  }
  if (good) look_done(look, query);
  return found;
}

int look_first_difference(struct look *look, int run_a, int run_b, int from) {
  return ask_alone(look, ASK_DIFFERENCE, (const int[]){run_a, run_b, from}, 3);
}
