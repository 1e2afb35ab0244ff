/* look_append.c: what a step did to a layer's cache, and where the numbers in a row come from; under a fault neither need be what
 * the rule says. */
#include "study/look/look_parts.h"

#include <stdlib.h>

/* The lengths by the layer's events; those of the step where there are none. */
static bool read_lengths(struct look *look, struct look_append *append) {
  const int key[] = {append->run, append->step, append->layer};
  bool row;
  if (!look_ask(look, ASK_LAYER_LENGTHS, key, 3, &row)) return false;
  append->before = row ? look_int(look->statements[ASK_LAYER_LENGTHS], 0) : LOOK_NONE;
  append->after = row ? look_int(look->statements[ASK_LAYER_LENGTHS], 1) : LOOK_NONE;
  look_done(look, ASK_LAYER_LENGTHS);
  const struct look_step *step = look_step(look, append->run, append->step);
  if (append->before == LOOK_NONE) append->before = step ? step->length_before : LOOK_NONE;
  if (append->after == LOOK_NONE) append->after = step ? step->length_after : LOOK_NONE;
  return true;
}

/* kv_row and head_step are logged together, so that heads without a row mean that none was written. */
static bool read_written(struct look *look, struct look_append *append) {
  const int key[] = {append->run, append->step, append->layer};
  bool any, heads;
  append->row = look_written(look, append->run, append->step, append->layer, append->before, &any);
  append->logged = append->row != LOOK_NONE;
  if (append->logged) return true;
  if (!look_ask(look, ASK_HEADS_LOGGED, key, 3, &heads)) return false;
  look_done(look, ASK_HEADS_LOGGED);
  append->logged = any && heads;
  if (!append->logged) append->row = append->before;
  return true;
}

const struct look_append *look_append(struct look *look, int run, int step, int layer) {
  const int key[LOOK_KEYS] = {run, step, layer};
  if (layer < 0 || !look_step(look, run, step)) return NULL;
  struct look_entry *entry = look_cache_find(&look->caches[APPENDS], key);
  if (entry) return entry->value;
  struct look_append *append = calloc(1, sizeof *append);
  if (!append) return look_no_memory(look), NULL;
  *append = (struct look_append){.run = run, .step = step, .layer = layer};
  if (!read_lengths(look, append) || !read_written(look, append)) {
    free(append);
    return NULL;
  }
  look_cache_put(&look->caches[APPENDS], key, append, sizeof *append);
  return append;
}

enum look_origin look_row_origin(struct look *look, int run, int step, int layer, int row) {
  if (look_writer(look, run, step, layer, row) != LOOK_NONE) return LOOK_WRITTEN;
  const struct look_append *first = look_append(look, run, 0, layer);
  if (first && first->before != LOOK_NONE && row < first->before) return LOOK_EARLIER;
  int finder = look_finder(look, run, step, row);
  const struct look_append *found = look_append(look, run, finder == LOOK_NONE ? step : finder, layer);
  return found && found->logged ? LOOK_NEVER : LOOK_NOT_LOGGED;
}
