/* split.h (private): cutting a text into the pieces inside which byte pairs are merged. */
#ifndef KVS_TEXT_SPLIT_H
#define KVS_TEXT_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

#include "kvstep/error.h"

typedef struct kvs_splitter kvs_splitter; /* GPT-2's pattern, compiled; may be shared between threads */
typedef struct kvs_cuts kvs_cuts;         /* one text being cut */

/* `jit`: compile to machine code where the system allows it; the pieces are the same without, only slower. */
kvs_status kvs_splitter_create(bool jit, kvs_splitter **out, kvs_error *err);
void kvs_splitter_free(kvs_splitter *splitter);

/* Begins to cut `text`, which must stay until kvs_cuts_free. */
kvs_status kvs_cuts_create(const kvs_splitter *splitter, const unsigned char *text, size_t length, kvs_cuts **out,
                           kvs_error *err);
void kvs_cuts_free(kvs_cuts *cuts);

/* The piece that begins at `start` ends before *end, as if the text ended at `limit` > start. Both must lie between two
 * characters. */
kvs_status kvs_cuts_next(kvs_cuts *cuts, size_t start, size_t limit, size_t *end, kvs_error *err);

#endif
