/* engine.c: the doors: feeding tokens, by a batch or one at a time. */
#include "engine/detour.h"
#include "engine/share.h"
#include "engine/step.h"

static kvs_status may_feed(const kvs_engine *e, const int *tokens, int count, kvs_error *err) {
  if (e->broken) return kvs_fail(err, KVS_ERR_USAGE, "an earlier step was cut short; reset the engine first");
  if (count < 1) return kvs_fail(err, KVS_ERR_USAGE, "no tokens to feed; give at least one");
  int n_vocab = e->model->config.n_vocab;
  for (int i = 0; i < count; i++)
    if (tokens[i] < 0 || tokens[i] >= n_vocab)
      return kvs_fail(err, KVS_ERR_USAGE, "token %d is not in the vocabulary; ids run from 0 to %d", tokens[i],
                      n_vocab - 1);
  return KVS_OK;
}

/* Feeds, with the detours that a fault of the token stream takes before and after. */
static kvs_status feed_tokens(kvs_engine *e, kvs_feed *feed, kvs_error *err) {
  int steps = e->steps;
  bool detoured = e->detour_taken;
  e->observer_seconds = 0;
  kvs_status status = kvs_detour_before(e, feed, err);
  if (!status && !feed->skip)
    status = feed->mode == KVS_DECODE ? kvs_decode_step(e, feed->tokens[0], feed->source, err)
                                      : kvs_prefill_batch(e, feed->tokens, feed->count, feed->source, err);
  if (!status) status = kvs_detour_after(e, feed, err);
  /* The context's end is found before anything is touched; any other failure leaves half a step behind. */
  if (status && !(status == KVS_ERR_CONTEXT && e->steps == steps && e->detour_taken == detoured)) e->broken = true;
  kvs_pool_settle(e->pool);
  if (!status && e->observer.settled) status = e->observer.settled(e->observer.context, err);
  if (!status && e->observer.behind) kvs_pool_behind(e->pool, e->observer.behind, e->observer.context);
  return status;
}

kvs_status kvs_engine_prefill(kvs_engine *e, const int *tokens, int count, kvs_source source, kvs_error *err) {
  kvs_error local;
  if (!err) err = &local; /* below, err->status carries the status */
  if (may_feed(e, tokens, count, err)) return err->status;
  int room = e->model->config.n_ctx - e->cache.length[0];
  if (count > room)
    return kvs_fail(err, KVS_ERR_CONTEXT, "%d token%s not fit: the context has room for %d more (n_ctx = %d, %d used)",
                    count, count == 1 ? " does" : "s do", room, e->model->config.n_ctx, e->cache.length[0]);
  kvs_feed feed = {tokens, count, source, KVS_PREFILL, false};
  return feed_tokens(e, &feed, err);
}

kvs_status kvs_engine_decode(kvs_engine *e, int token, kvs_source source, kvs_error *err) {
  kvs_error local;
  if (!err) err = &local;
  if (may_feed(e, &token, 1, err)) return err->status;
  kvs_feed feed = {&token, 1, source, KVS_DECODE, false};
  return feed_tokens(e, &feed, err);
}
