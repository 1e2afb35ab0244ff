/* detour.h (private): faults of the token stream: what is fed, and when, rather than what a step does with it. */
#ifndef KVS_ENGINE_DETOUR_H
#define KVS_ENGINE_DETOUR_H

#include "engine/state.h"

/* What the caller of kvs_engine_prefill or kvs_engine_decode wants fed. */
typedef struct kvs_feed {
  const int *tokens;
  int count;
  kvs_source source;
  kvs_mode mode;
  bool skip; /* set by a fault: do not feed them after all */
} kvs_feed;

/* Called before and after every feeding; each does nothing unless a fault with such a detour is on. A detour is taken once. */
kvs_status kvs_detour_before(kvs_engine *e, kvs_feed *feed, kvs_error *err);
kvs_status kvs_detour_after(kvs_engine *e, kvs_feed *feed, kvs_error *err);

#endif
