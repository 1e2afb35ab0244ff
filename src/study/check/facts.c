/* facts.c: a list of observations. */
#include "study/check/facts.h"

#include <stdlib.h>

const char *fact_rule(enum fact_kind kind) {
  static const char *const rules[] = {
#define FACT_RULE(id, rule, meaning) rule,
      FACTS(FACT_RULE)
#undef FACT_RULE
  };
  return rules[kind];
}

kvs_status facts_add(struct facts *facts, const struct fact *fact, kvs_error *err) {
  if (facts->count == facts->room) {
    size_t room = facts->room ? 2 * facts->room : 64;
    struct fact *grown = realloc(facts->at, room * sizeof *grown);
    if (!grown) return kvs_fail_memory(err, "noting what a check found");
    facts->at = grown;
    facts->room = room;
  }
  facts->at[facts->count++] = *fact;
  return KVS_OK;
}

void facts_free(struct facts *facts) {
  free(facts->at);
  *facts = (struct facts){0};
}
