/* engine.c: the doors: feeding tokens, by a batch or one at a time. */
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

kvs_status kvs_engine_prefill(kvs_engine *e, const int *tokens, int count, kvs_source source, kvs_error *err) {
  kvs_error local;
  if (!err) err = &local; /* below, err->status carries the status */
  if (may_feed(e, tokens, count, err)) return err->status;
  int room = e->model->config.n_ctx - e->cache.length[0];
  if (count > room)
    return kvs_fail(err, KVS_ERR_CONTEXT,
                    "%d tokens do not fit: the context has room for %d more (n_ctx = %d, %d used)", count, room,
                    e->model->config.n_ctx, e->cache.length[0]);
  e->observer_seconds = 0;
  kvs_status status = kvs_prefill_batch(e, tokens, count, source, err);
  if (!status && e->observer.settled) status = e->observer.settled(e->observer.context, err);
  return status;
}

kvs_status kvs_engine_decode(kvs_engine *e, int token, kvs_source source, kvs_error *err) {
  kvs_error local;
  if (!err) err = &local;
  if (may_feed(e, &token, 1, err)) return err->status;
  e->observer_seconds = 0;
  int steps = e->steps;
  kvs_status status = kvs_decode_step(e, token, source, err);
  /* The context's end is found before anything is touched; any other failure leaves half a step behind. */
  if (status && !(status == KVS_ERR_CONTEXT && e->steps == steps)) e->broken = true;
  if (!status && e->observer.settled) status = e->observer.settled(e->observer.context, err);
  return status;
}
