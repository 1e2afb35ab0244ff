/* names.c: the words that the trace uses for phases, modes and sources. */
#include "kvstep/engine.h"

#include <assert.h>

const char *kvs_phase_name(kvs_phase phase) {
  static const char *const names[KVS_PHASE_COUNT] = {"read_length", "embed", "project", "append", "score",
                                                     "softmax",     "mix",   "output",  "mlp",    "logits"};
  assert((unsigned)phase < KVS_PHASE_COUNT);
  return names[phase];
}

const char *kvs_mode_name(kvs_mode mode) { return mode == KVS_PREFILL ? "prefill" : "decode"; }

const char *kvs_source_name(kvs_source source) {
  static const char *const names[] = {"prompt", "sampled", "forced"};
  assert((unsigned)source < 3);
  return names[source];
}
