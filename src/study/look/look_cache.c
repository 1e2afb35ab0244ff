/* look_cache.c: what was read from a trace, kept by its key; the least recently used goes first. */
#include "study/look/look_parts.h"

#include <stdlib.h>
#include <string.h>

kvs_status look_cache_create(struct look_cache *cache, int capacity, int kept, size_t budget, kvs_error *err) {
  *cache = (struct look_cache){.capacity = capacity, .kept = kept, .budget = budget};
  cache->entries = calloc((size_t)capacity, sizeof *cache->entries);
  cache->buckets = malloc((size_t)capacity * sizeof *cache->buckets);
  if (!cache->entries || !cache->buckets) {
    look_cache_free(cache);
    return kvs_fail_memory(err, "opening a trace");
  }
  for (int i = 0; i < capacity; i++) cache->buckets[i] = -1;
  return KVS_OK;
}

void look_cache_free(struct look_cache *cache) {
  for (int i = 0; cache->entries && i < cache->capacity; i++) free(cache->entries[i].value);
  free(cache->entries);
  free(cache->buckets);
  *cache = (struct look_cache){0};
}

static int *bucket_of(struct look_cache *cache, const int *key) {
  unsigned hash = 0;
  for (int i = 0; i < LOOK_KEYS; i++) hash = (hash ^ (unsigned)key[i]) * 0x9E3779B1u;
  return &cache->buckets[(hash ^ hash >> 15) & (unsigned)(cache->capacity - 1)];
}

static void remove_entry(struct look_cache *cache, int index) {
  struct look_entry *entry = &cache->entries[index];
  int *link = bucket_of(cache, entry->key);
  while (*link != index) link = &cache->entries[*link].next;
  *link = entry->next;
  cache->bytes -= entry->bytes;
  cache->count--;
  free(entry->value);
  *entry = (struct look_entry){0};
}

static void remove_oldest(struct look_cache *cache) {
  int oldest = -1;
  for (int i = 0; i < cache->capacity; i++)
    if (cache->entries[i].used && (oldest < 0 || cache->entries[i].used < cache->entries[oldest].used)) oldest = i;
  remove_entry(cache, oldest);
}

/* After four thousand million uses the clock has gone round; then all are equally old. */
static unsigned tick(struct look_cache *cache) {
  if (++cache->clock == 0) {
    for (int i = 0; i < cache->capacity; i++)
      if (cache->entries[i].used) cache->entries[i].used = 1;
    cache->clock = 2;
  }
  return cache->clock;
}

struct look_entry *look_cache_find(struct look_cache *cache, const int *key) {
  for (int i = *bucket_of(cache, key); i >= 0; i = cache->entries[i].next)
    if (memcmp(cache->entries[i].key, key, sizeof cache->entries[i].key) == 0) {
      cache->entries[i].used = tick(cache);
      return &cache->entries[i];
    }
  return NULL;
}

void look_cache_put(struct look_cache *cache, const int *key, void *value, size_t bytes) {
  while (cache->count == cache->capacity || (cache->count > cache->kept && cache->bytes + bytes > cache->budget))
    remove_oldest(cache);
  int index = 0;
  while (cache->entries[index].used) index++;
  struct look_entry *entry = &cache->entries[index];
  memcpy(entry->key, key, sizeof entry->key);
  entry->used = tick(cache);
  entry->bytes = bytes;
  entry->value = value;
  int *bucket = bucket_of(cache, key);
  entry->next = *bucket;
  *bucket = index;
  cache->bytes += bytes;
  cache->count++;
}

void look_cache_drop(struct look_cache *cache, bool (*stale)(const struct look_entry *entry, const int *context),
                     const int *context) {
  for (int i = 0; i < cache->capacity; i++)
    if (cache->entries[i].used && stale(&cache->entries[i], context)) remove_entry(cache, i);
}
