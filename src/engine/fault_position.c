/* fault_position.c: faults of the position: which row of wpe is added. The cache itself is right, and nothing crashes. */
#include "engine/faults.h"
#include "engine/plan.h"

static void off_by_one(kvs_step_plan *plan, const kvs_situation *s) { plan->position = s->cache_length + 1; }

static void reset_to_zero(kvs_step_plan *plan, const kvs_situation *s) {
  (void)s;
  plan->position = 0;
}

static void constant_position(kvs_step_plan *plan, const kvs_situation *s) { plan->position = s->prompt_length; }

static void skip_wpe(kvs_step_plan *plan, const kvs_situation *s) {
  (void)s;
  plan->position = KVS_NO_POSITION;
}

static void position_jump(kvs_step_plan *plan, const kvs_situation *s) {
  plan->position = s->cache_length + (s->prompt_length ? s->prompt_length - 1 : 0);
}

const kvs_fault kvs_faults_position[] = {
    {.name = "off-by-one",
     .kind = "off-by-one",
     .summary = "the position is the cache length read after the append: every token one slot too far",
     .right_line = "t = cache.length;  append(cache, k, v);  x = wte[id] + wpe[t];",
     .wrong_line = "append(cache, k, v);  t = cache.length;  x = wte[id] + wpe[t];",
     .effect = "every decoded token claims the position after its own; text mostly still reads well, a task that "
               "depends on positions goes wrong; the last position runs off wpe's end",
     .seen = "onnxruntime-genai#2354, tt-metal#40970, transformers#37414",
     .detect = "D2: layer 0's K row was made with wpe[P+1]; the rule: position is cache_length_before + 1",
     .sql = "SELECT run, step, cache_length_before, position, off_by FROM rule WHERE off_by = 1",
     .bend = off_by_one},
    {.name = "reset-to-zero",
     .kind = "reset-to-zero",
     .summary = "positions start again at 0 in decode: every generated token claims to be the first",
     .right_line = "t = cache.length;  x = wte[id] + wpe[t];",
     .wrong_line = "t = 0;  x = wte[id] + wpe[t];   // a fresh arange(n_new_tokens) in every call",
     .effect = "every decoded token is embedded at position 0; text falls into half-words and loops",
     .seen = "mlx-lm#93, catgrad#412, mlx-vlm#1983, executorch#2010: the commonest",
     .detect = "D2: layer 0's K rows were made with wpe[0]; the rule: position is 0 at a length above 0",
     .sql = "SELECT run, step, cache_length_before, position FROM rule WHERE position = 0 AND cache_length_before > 0",
     .bend = reset_to_zero},
    {.name = "constant-position",
     .kind = "constant-position",
     .summary = "the position is the prompt's length, for ever",
     .right_line = "t = cache.length;  x = wte[id] + wpe[t];",
     .wrong_line = "t = prompt_length;  x = wte[id] + wpe[t];   // set once, never moved on",
     .effect =
         "the first decoded token is right, all later ones claim its position; text falls apart after a few words",
     .seen = "transformers#19045, WhisperLiveKit#285",
     .detect = "D2: one row of wpe in step after step; the rule: the same position again while the length grows",
     .sql = "SELECT run, position, count(*) AS steps, min(step), max(step) FROM step WHERE position IS NOT NULL "
            "GROUP BY run, position HAVING count(*) > 1",
     .bend = constant_position},
    {.name = "skip-wpe",
     .kind = "skip-wpe",
     .summary = "no position is added when one token comes: x = wte[id] alone",
     .right_line = "x = wte[id] + wpe[t];",
     .wrong_line = "x = n_tokens == 1 ? wte[id] : wte[id] + wpe[t .. t + n_tokens];",
     .effect = "every decoded token stands nowhere; text falls into half-words, as with reset-to-zero",
     .seen = "mlx-lm#93",
     .detect = "D2: layer 0's K row is that of the token without any position",
     .sql = "SELECT run, step, cache_length_before, position FROM step WHERE position IS NULL",
     .bend = skip_wpe},
    {.name = "position-jump",
     .kind = "position-jump",
     .summary = "the prompt is counted twice: t = cache length + prompt length - 1",
     .right_line = "t = cache.length;  x = wte[id] + wpe[t];",
     .wrong_line = "t = cache.length + prompt_length - 1;  x = wte[id] + wpe[t];",
     .effect =
         "decoded tokens stand a whole prompt too far away; wpe ends early, and positions that training hardly saw "
         "come into play",
     .seen = "tiny-llm#46, transformers#36151",
     .detect = "D2: layer 0's K rows were made with positions that jump at the prompt's end and then count on by one",
     .sql = "SELECT run, step, cache_length_before, position, off_by FROM rule WHERE off_by > 0",
     .bend = position_jump},
    {0},
};
