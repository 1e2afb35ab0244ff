/* facts.h: what a check has found in a trace: plain observations, each with the place and the numbers, before anybody says what they
 * mean. Rules that read the trace alone (check_rules*.c) and rules that have the weights (recompute.c) add facts; diagnose.c turns
 * facts into verdicts.
 */
#ifndef KVS_STUDY_FACTS_H
#define KVS_STUDY_FACTS_H

#include <stddef.h>

#include "kvstep/error.h"

/* identifier, rule (of docs/check.md), meaning of found / right */
#define FACTS(X)                                                                                                       \
  X(LENGTH_START, "D1", "the first step's length before / 0")                                                          \
  X(LENGTH_STEP, "D1", "a step's length before / the length after the step before")                                    \
  X(LENGTH_GROWTH, "D1", "the length after / length before + 1")                                                       \
  X(LENGTH_LAYER, "D1", "this layer's length / layer 0's")                                                             \
  X(POSITION_CLAIMED, "rule", "step.position (-1: NULL) / length before")                                              \
  X(EVENT_ORDER, "events", "the phase that came too early / the phase it must follow")                                 \
  X(SCORE_COUNT, "D3", "number of scores / length after the append")                                                   \
  X(SOFTMAX_SUM, "D4", "sum of the weights / 1")                                                                       \
  X(SOFTMAX_ZERO, "D4", "rows of its past or itself with weight 0 / rows attended; row: the first such")               \
  X(SOFTMAX_WRONG, "D4", "a weight / what softmax of the scores gives; row: the worst")                                \
  X(SOFTMAX_AXIS, "D4", "the weights are a softmax over the heads, not over the rows")                                 \
  X(SCALE, "D5", "score / (q.K[row]), the same for all rows / 1/sqrt(head_dim)")                                       \
  X(ROW_UNSTABLE, "D6", "score of row / scale times q.K[row] of the row appended there")                               \
  X(ROW_SHIFTED, "D6", "scores follow from the rows found places on / 0")                                              \
  X(ROW_OTHER_LAYER, "D6", "scores follow from layer found's rows / this layer's")                                     \
  X(ROW_OVERWRITTEN, "D6", "row written again by this step; found: the step that wrote it before")                     \
  X(PADDING_SEEN, "D4", "the share of a head's weights that is on rows of left padding / 0")                           \
  X(ROW_MISSING, "D12", "a row below the length that no step wrote")                                                   \
  X(ROW_DEAD_K, "D12", "K of the row is all zero or NaN; found: 0 or NaN")                                             \
  X(ROW_DEAD_V, "D12", "V of the row is all zero or NaN; found: 0 or NaN")                                             \
  X(ROW_KEPT, "D12", "K and V of the row are still those that step `found` wrote there, for another token")            \
  X(ROW_KEPT_V, "D12", "V of the row is still what step `found` wrote there; K is new")                                \
  X(MIX_WRONG, "D6", "an element of out / the sum of weights[i].V[i]")                                                 \
  X(HEAD_CUT, "D11", "scores match only with heads cut interleaved")                                                   \
  X(TOKEN_PROMPT, "D8", "the token fed / the prompt's token at this place (-1: unknown)")                              \
  X(PROMPT_AGAIN, "D8", "the prompt starts again at this step; found: how many of its tokens")                         \
  X(TOKEN_AGAIN, "D8", "the token before fed a second time; found: the token")                                         \
  X(TOKEN_NOT_SAMPLED, "D8", "the token fed / the token the step before chose")                                        \
  X(TOKEN_LOGPROB, "D8", "step.logprob / log softmax of the step before's logits at this token")                       \
  X(DRAFT_LEFT, "D8", "found steps before this one fed tokens that were then given up; their rows stayed")             \
  X(CONTEXT_LENGTH, "D14", "cache length / n_ctx")                                                                     \
  X(CONTEXT_POSITION, "D14", "position / n_ctx - 1")                                                                   \
  X(RERUN, "D13", "this run and run `found` were fed the same tokens and differ first here")                           \
  X(POSITION_USED, "D2", "position that the layer 0 K row was made with (-1: no wpe) / length before")                 \
  X(OFF_GRID, "D9", "layer 0's K row matches no position; distance: to the nearest, found: the nearest")               \
  X(POSITION_UNCLEAR, "D2", "layer 0's row is as near to position found as to right: stored too coarsely to tell")     \
  X(ROW_SCALED, "D9", "layer 0's K row is found times the entry of a position / 1")                                    \
  X(ROW_SWAPPED, "D9", "layer 0's K row is the token's q (found 0) or v (found 2) / 1")                                \
  X(ROW_OTHER_TOKEN, "D9", "layer 0's K row is that of token found / of the token fed")                                \
  X(CHAIN, "D7",                                                                                                       \
    "what this layer hands on, recomputed, is not what the next one's rows were made of; found: distance")             \
  X(CHAIN_HYPOTHESIS, "D7", "…and is if this layer is taken to make mistake `found` (enum hypothesis)")                \
  X(KEY_WRONG, "D7", "the K row above layer 0 against k recomputed; found: distance")                                  \
  X(QUERY_WRONG, "D7", "q of this head against q recomputed; found: distance")                                         \
  X(VALUE_WRONG, "D7", "the V row against v recomputed; found: distance")                                              \
  X(LOGITS_WRONG, "D10", "logits against those recomputed from the last layer; found: distance")                       \
  X(LOGITS_OTHER_ROW, "D10", "the logits are those of step found / of this step")                                      \
  X(POSITION_SAME, "D2", "the same wpe, or with the same token the same layer 0 K row, as step found / length before") \
  X(ROLLED_BACK, "D1", "rows were given up before this step, as after a rejected draft; found: how many")              \
  X(V_READ_AS_ZERO, "D12", "out follows only if V of the row is zero; the logged one is not")                          \
  X(K_READ_AS_ZERO, "D12", "the score of the row is 0; q.K of the logged row is not")                                  \
  X(ROW_ELSEWHERE, "D1", "the row that this step wrote / length before")                                               \
  X(WEIGHTS_WRONG, "D7", "weights of this head against those recomputed; found: half the sum of |differences|")

enum fact_kind {
#define FACT_ENUM(id, rule, meaning) FACT_##id,
  FACTS(FACT_ENUM)
#undef FACT_ENUM
      FACT_KIND_COUNT
};

/* One observation. A place that does not apply is -1. */
struct fact {
  enum fact_kind kind;
  int run, step, layer, head, row;
  double found, right; /* as the table says */
  double distance,
      right_distance; /* relative distance to what was found, and to what is right; NaN where there is none */
};

/* A list that grows. Zero is empty. */
struct facts {
  struct fact *at;
  size_t count, room;
};

const char *fact_rule(enum fact_kind kind);
/* Adds a copy. KVS_ERR_MEMORY. */
kvs_status facts_add(struct facts *facts, const struct fact *fact, kvs_error *err);
void facts_free(struct facts *facts);

#endif
