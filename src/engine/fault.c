/* fault.c: the cache bugs that can be injected. Each is a function of a line or a few and a row in one of four tables, by the
 * place where the cache goes wrong: fault_position.c, fault_cache.c, fault_attention.c, fault_stream.c. */
#include "engine/faults.h"

#include <string.h>

/* A run that fills the context leaves room for one token more: the next one after it is over the end. */
#define ROOM_AT_THE_END 1

const kvs_fault *kvs_fault_at(int i) {
  const kvs_fault *const tables[] = {kvs_faults_position, kvs_faults_cache, kvs_faults_attention, kvs_faults_stream};
  for (size_t t = 0; i >= 0 && t < sizeof tables / sizeof *tables; t++)
    for (const kvs_fault *f = tables[t]; f->name; f++)
      if (i-- == 0) return f;
  return NULL;
}

const kvs_fault *kvs_fault_find(const char *name) {
  for (int i = 0; kvs_fault_at(i); i++)
    if (strcmp(kvs_fault_at(i)->name, name) == 0) return kvs_fault_at(i);
  return NULL;
}

int kvs_fault_usual_start(const kvs_fault *fault, int prompt_tokens) {
  return fault && fault->from_start ? 0 : prompt_tokens;
}

int kvs_fault_prompt_length(const kvs_fault *fault, const kvs_config *config, int count) {
  int full = config->n_ctx - ROOM_AT_THE_END;
  return fault && fault->fills_context && count < full ? full : count;
}
