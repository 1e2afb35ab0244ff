/* tape.h (private): moments and steps copied as they happen, to be gone through later. */
#ifndef KVS_TRACE_TAPE_H
#define KVS_TRACE_TAPE_H

#include <stdbool.h>
#include <stddef.h>

#include "kvstep/engine.h"

/* One piece of memory, which is kept from step to step. {0} is an empty tape; the memory is freed with kvs_tape_free. */
typedef struct kvs_tape {
  unsigned char *bytes;
  size_t used, room;
  size_t settled; /* how much of it is steps and batches that are complete; more may follow */
} kvs_tape;

/* What lies on it, in the order of time. */
typedef struct kvs_tape_entry {
  size_t size;   /* with the arrays, which follow */
  bool step_end; /* `step` was told to step_end; else `moment` was told, and `step` is the moment's */
  kvs_step step;
  kvs_moment moment;
} kvs_tape_entry;

/* Copies a moment. Of its arrays only those that its phase is written from (kvs_trace_begin_run_from), and those only if `arrays`;
 * of the heads' those of the heads [n_head] that are wanted. Errors: KVS_ERR_MEMORY. */
kvs_status kvs_tape_add_moment(kvs_tape *tape, const kvs_config *config, const bool *heads, const kvs_moment *moment,
                               bool arrays, kvs_error *err);
kvs_status kvs_tape_add_step(kvs_tape *tape, const kvs_step *step, kvs_error *err);

/* The entry at *at, which moves on to the next; NULL at `end`. It holds until something is added or dropped. */
const kvs_tape_entry *kvs_tape_next(const kvs_tape *tape, const kvs_config *config, size_t end, size_t *at);

/* Takes what lies before `end` off the tape; the memory stays. */
void kvs_tape_drop(kvs_tape *tape, size_t end);
void kvs_tape_free(kvs_tape *tape);

#endif
