/* bpe.h (private): the merge table, and merging the symbols of one piece. */
#ifndef KVS_TEXT_BPE_H
#define KVS_TEXT_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "kvstep/error.h"

#define KVS_NO_RANK UINT32_MAX

/* "left and right, side by side, become id"; the lower the rank, the earlier. */
typedef struct kvs_merge {
  uint32_t left, right;
  uint32_t rank; /* KVS_NO_RANK: a free slot */
  uint32_t id;
} kvs_merge;

/* A hash table with open addressing. */
typedef struct kvs_merges {
  kvs_merge *slot;
  size_t mask; /* slots − 1, a power of two − 1; at least half of them are free */
} kvs_merges;

/* Room for `count` merges. slot is freed by the caller. */
kvs_status kvs_merges_init(kvs_merges *merges, size_t count, kvs_error *err);
/* Puts a merge in; one with the same parts is replaced (as in the original, where a later line wins). */
void kvs_merges_put(kvs_merges *merges, kvs_merge merge);

/* A symbol of the piece: a link in a list from which merged symbols drop out. */
typedef struct kvs_symbol {
  uint32_t id;
  uint32_t previous, next; /* indices, or KVS_NO_SYMBOL */
  uint32_t rank;           /* of the merge with the next one; KVS_NO_RANK: none, or this symbol has dropped out */
  uint32_t merged;         /* what that merge gives */
} kvs_symbol;

#define KVS_NO_SYMBOL UINT32_MAX

/* Working memory, reused from piece to piece. Zeroed at first; freed by kvs_bpe_free. */
typedef struct kvs_bpe {
  kvs_symbol *symbol;
  uint64_t *heap; /* rank << 32 | index of the left symbol: the smallest is the next merge */
  size_t heap_count;
  uint32_t *batch;
  size_t capacity; /* in symbols */
} kvs_bpe;

/* Makes room for a piece of `count` symbols. */
kvs_status kvs_bpe_reserve(kvs_bpe *bpe, size_t count, kvs_error *err);
void kvs_bpe_free(kvs_bpe *bpe);

/* Merges symbol[0 .. count-1], of which the caller has set the ids, and writes the ids that remain to `ids` (room for
 * `count`). Returns how many. */
size_t kvs_bpe_merge(kvs_bpe *bpe, const kvs_merges *merges, size_t count, int *ids);

#endif
