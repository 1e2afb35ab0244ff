/* detour.c: when a fault of the token stream strikes: once, at the first feeding from its step on. */
#include "engine/detour.h"

static bool due(const kvs_engine *e) { return e->fault && !e->detour_taken && e->steps >= e->fault_from_step; }

kvs_status kvs_detour_before(kvs_engine *e, kvs_feed *feed, kvs_error *err) {
  return due(e) && e->fault->before ? e->fault->before(e, feed, err) : KVS_OK;
}

kvs_status kvs_detour_after(kvs_engine *e, kvs_feed *feed, kvs_error *err) {
  return due(e) && e->fault->after ? e->fault->after(e, feed, err) : KVS_OK;
}
