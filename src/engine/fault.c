/* fault.c: the cache bugs that can be injected: one function of a line each, and one row in a table. */
#include "engine/plan.h"

#include <string.h>

static void off_by_one(kvs_step_plan *plan, const kvs_situation *s) { plan->position = s->cache_length + 1; }

static void reset_to_zero(kvs_step_plan *plan, const kvs_situation *s) {
  (void)s;
  plan->position = 0;
}

static void skip_wpe(kvs_step_plan *plan, const kvs_situation *s) {
  (void)s;
  plan->position = KVS_NO_POSITION;
}

static const kvs_fault faults[] = {
    {.name = "off-by-one",
     .summary = "the position is the cache length read after the append: every token one slot too far",
     .right_line = "t = cache.length;  append(cache, k, v);  x = wte[id] + wpe[t];",
     .wrong_line = "append(cache, k, v);  t = cache.length;  x = wte[id] + wpe[t];",
     .effect = "every decoded token claims the position after its own; text mostly still reads well, a task that "
               "depends on positions goes wrong; the last position runs off wpe's end",
     .seen = "onnxruntime-genai#2354, tt-metal#40970, transformers#37414",
     .bend = off_by_one},
    {.name = "reset-to-zero",
     .summary = "positions start again at 0 in decode: every generated token claims to be the first",
     .right_line = "t = cache.length;  x = wte[id] + wpe[t];",
     .wrong_line = "for (t = 0; t < n_new_tokens; t++)  x = wte[id] + wpe[t];",
     .effect = "every decoded token is embedded at position 0; text falls into half-words and loops",
     .seen = "mlx-lm#93, catgrad#412, mlx-vlm#1983, executorch#2010",
     .bend = reset_to_zero},
    {.name = "skip-wpe",
     .summary = "no position is added when one token comes: x = wte[id] alone",
     .right_line = "x = wte[id] + wpe[t];",
     .wrong_line = "x = n_tokens == 1 ? wte[id] : wte[id] + wpe[t .. t + n_tokens];",
     .effect = "every decoded token stands nowhere; text falls into half-words, as with reset-to-zero",
     .seen = "mlx-lm#93",
     .bend = skip_wpe},
};

const kvs_fault *kvs_fault_at(int i) { return i >= 0 && i < (int)(sizeof faults / sizeof *faults) ? &faults[i] : NULL; }

const kvs_fault *kvs_fault_find(const char *name) {
  for (int i = 0; kvs_fault_at(i); i++)
    if (strcmp(kvs_fault_at(i)->name, name) == 0) return kvs_fault_at(i);
  return NULL;
}
