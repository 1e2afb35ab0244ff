/* bpe.c: merging byte pairs by rank, in O(n log n) for a piece of n bytes.
 *
 * GPT-2's loop: find the pair of neighbours with the lowest rank, join it everywhere it occurs, from left to right;
 * again, until no neighbours can be joined. Here the pairs lie in a heap. All pairs of one rank are taken out together
 * before the first of them is joined: a join may make a new pair of a LOWER rank (where a token can come about in two
 * ways), and the original gets to it only after the whole pass. */
#include "text/bpe.h"

#include <stdlib.h>

kvs_status kvs_merges_init(kvs_merges *merges, size_t count, kvs_error *err) {
  size_t slots = 16;
  while (slots < 2 * count) slots *= 2;
  merges->slot = malloc(slots * sizeof *merges->slot);
  if (!merges->slot) return kvs_fail_memory(err, "reading the merges");
  merges->mask = slots - 1;
  for (size_t i = 0; i < slots; i++) merges->slot[i].rank = KVS_NO_RANK;
  return KVS_OK;
}

/* Its slot, or the free one where it would go. */
static kvs_merge *locate(const kvs_merges *merges, uint32_t left, uint32_t right) {
  uint64_t hash = ((uint64_t)left << 32 | right) * UINT64_C(0x9E3779B97F4A7C15);
  size_t i = (size_t)(hash >> 32) & merges->mask;
  for (;; i = (i + 1) & merges->mask) {
    kvs_merge *slot = &merges->slot[i];
    if (slot->rank == KVS_NO_RANK || (slot->left == left && slot->right == right)) return slot;
  }
}

void kvs_merges_put(kvs_merges *merges, kvs_merge merge) { *locate(merges, merge.left, merge.right) = merge; }

/* The merge of these two, or NULL. */
static const kvs_merge *find_merge(const kvs_merges *merges, uint32_t left, uint32_t right) {
  const kvs_merge *slot = locate(merges, left, right);
  return slot->rank == KVS_NO_RANK ? NULL : slot;
}

kvs_status kvs_bpe_reserve(kvs_bpe *bpe, size_t count, kvs_error *err) {
  if (count <= bpe->capacity) return KVS_OK;
  size_t capacity = count < 256 ? 256 : count + count / 2;
  kvs_bpe_free(bpe);
  bpe->symbol = malloc(capacity * sizeof *bpe->symbol);
  /* n − 1 pairs to begin with, and each of at most n − 1 joins makes at most two new ones. */
  bpe->heap = malloc(3 * capacity * sizeof *bpe->heap);
  bpe->batch = malloc(capacity * sizeof *bpe->batch);
  if (!bpe->symbol || !bpe->heap || !bpe->batch) {
    kvs_bpe_free(bpe);
    return kvs_fail_memory(err, "encoding the text");
  }
  bpe->capacity = capacity;
  return KVS_OK;
}

void kvs_bpe_free(kvs_bpe *bpe) {
  free(bpe->symbol);
  free(bpe->heap);
  free(bpe->batch);
  *bpe = (kvs_bpe){0};
}

static void push(kvs_bpe *bpe, uint64_t entry) {
  size_t i = bpe->heap_count++;
  for (; i > 0 && bpe->heap[(i - 1) / 2] > entry; i = (i - 1) / 2) bpe->heap[i] = bpe->heap[(i - 1) / 2];
  bpe->heap[i] = entry;
}

static uint64_t pop(kvs_bpe *bpe) {
  uint64_t *heap = bpe->heap, smallest = heap[0], last = heap[--bpe->heap_count];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < bpe->heap_count; i = child) {
    if (child + 1 < bpe->heap_count && heap[child + 1] < heap[child]) child++;
    if (heap[child] >= last) break;
    heap[i] = heap[child];
  }
  heap[i] = last;
  return smallest;
}

/* Looks up what symbol i and its next one can become, now that one of the two is new. */
static void pair_up(kvs_bpe *bpe, const kvs_merges *merges, uint32_t i) {
  kvs_symbol *symbol = &bpe->symbol[i];
  const kvs_merge *merge = NULL;
  if (symbol->next != KVS_NO_SYMBOL) merge = find_merge(merges, symbol->id, bpe->symbol[symbol->next].id);
  symbol->rank = merge ? merge->rank : KVS_NO_RANK;
  if (!merge) return;
  symbol->merged = merge->id;
  push(bpe, (uint64_t)merge->rank << 32 | i);
}

/* Joins symbol i with its next one, which drops out. */
static void join(kvs_bpe *bpe, const kvs_merges *merges, uint32_t i) {
  kvs_symbol *left = &bpe->symbol[i], *right = &bpe->symbol[left->next];
  left->id = left->merged;
  left->next = right->next;
  right->rank = KVS_NO_RANK;
  if (left->next != KVS_NO_SYMBOL) bpe->symbol[left->next].previous = i;
  pair_up(bpe, merges, i);
  if (left->previous != KVS_NO_SYMBOL) pair_up(bpe, merges, left->previous);
}

size_t kvs_bpe_merge(kvs_bpe *bpe, const kvs_merges *merges, size_t count, int *ids) {
  bpe->heap_count = 0;
  for (size_t i = 0; i < count; i++) {
    bpe->symbol[i].previous = i > 0 ? (uint32_t)(i - 1) : KVS_NO_SYMBOL;
    bpe->symbol[i].next = i + 1 < count ? (uint32_t)(i + 1) : KVS_NO_SYMBOL;
  }
  for (size_t i = 0; i < count; i++) pair_up(bpe, merges, (uint32_t)i);
  while (bpe->heap_count > 0) {
    uint32_t rank = (uint32_t)(bpe->heap[0] >> 32);
    size_t batch = 0;
    while (bpe->heap_count > 0 && (uint32_t)(bpe->heap[0] >> 32) == rank) bpe->batch[batch++] = (uint32_t)pop(bpe);
    /* A pair whose symbol has changed since it was pushed has another rank by now: symbols only grow, so a pair that is
     * gone never comes back at the same place. */
    for (size_t i = 0; i < batch; i++)
      if (bpe->symbol[bpe->batch[i]].rank == rank) join(bpe, merges, bpe->batch[i]);
  }
  size_t written = 0;
  for (uint32_t i = 0; i != KVS_NO_SYMBOL; i = bpe->symbol[i].next) ids[written++] = (int)bpe->symbol[i].id;
  return written;
}
