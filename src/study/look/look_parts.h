/* look_parts.h (private): what the files of look share: the statements, the caches, and how a failure is remembered. */
#ifndef KVS_STUDY_LOOK_PARTS_H
#define KVS_STUDY_LOOK_PARTS_H

#include <stddef.h>
#include <sys/types.h>

#include <sqlite3.h>

#include "study/look/look.h"

/* The statements that stay prepared; look_sql.c has their text. */
enum look_query {
  ASK_VERSION,
  ASK_LAST_RUN,
  ASK_LAST_STEP,
  ASK_RUN,
  ASK_PROMPT,
  ASK_STEPS,
  ASK_HEAD,
  ASK_ROW,
  ASK_VECTORS,
  ASK_LAYER,
  ASK_TOP,
  ASK_STORED_SUMMARY,
  ASK_SUMMARY,
  ASK_WRITERS,
  ASK_WRITER,
  ASK_LENGTHS,
  ASK_LENGTH,
  ASK_NEXT_TEXT,
  ASK_EARLIER_TEXT,
  ASK_DIFFERENCE,
  ASK_LAYER_LENGTHS,
  ASK_HEADS_LOGGED,
  ASK_TOKEN,
  ASK_COUNT
};
extern const char *const look_sql[ASK_COUNT];

enum look_kind {
  RUNS,    /* run */
  STEPS,   /* run, step / LOOK_BLOCK */
  HEADS,   /* run, step, layer, head */
  ROWS,    /* run, the step that wrote it, layer, row */
  VECTORS, /* run, step */
  LAYERS,  /* run, step, layer */
  TOPS,    /* run, step */
  SUMMARIES,
  WRITERS, /* run, layer: who wrote which row */
  LENGTHS, /* run: which step found which length */
  APPENDS, /* run, step, layer */
  TOKENS,  /* token */
  LOOK_KINDS
};

#define LOOK_KEYS 4   /* integers in the longest key; the unused ones are 0 */
#define LOOK_BLOCK 64 /* steps that are read at a time */

/* A part of the cache. `value` NULL: asked, and not in the trace. */
struct look_entry {
  int key[LOOK_KEYS];
  int next;      /* in the same bucket; -1: none */
  unsigned used; /* when last; 0: the place is free */
  size_t bytes;
  void *value; /* one block of memory */
};

struct look_cache {
  struct look_entry *entries;
  int *buckets;   /* [capacity] the first entry of each, or -1 */
  int capacity;   /* a power of two */
  int count;      /* entries in use */
  int kept;       /* so many stay, however large they are */
  size_t budget;  /* above so many bytes the oldest go */
  size_t bytes;   /* in use now */
  unsigned clock; /* counts uses */
};

kvs_status look_cache_create(struct look_cache *cache, int capacity, int kept, size_t budget, kvs_error *err);
void look_cache_free(struct look_cache *cache);
/* NULL if it was never asked for, or has been dropped. */
struct look_entry *look_cache_find(struct look_cache *cache, const int *key);
/* Owns `value` from here on. The key must not be there already. */
void look_cache_put(struct look_cache *cache, const int *key, void *value, size_t bytes);
/* Drops what `stale` says. */
void look_cache_drop(struct look_cache *cache, bool (*stale)(const struct look_entry *entry, const int *context),
                     const int *context);

struct look {
  unsigned long id; /* no other look of this process has it */
  sqlite3 *db;
  sqlite3_stmt *statements[ASK_COUNT];
  struct look_cache caches[LOOK_KINDS];
  int runs, newest_step; /* the last run, and its last step, as look_refresh saw them */
  long long version;     /* PRAGMA data_version: changes with every commit of another connection */
  bool has_file, told_gone;
  dev_t device; /* which file it was, and how long */
  ino_t inode;
  off_t size;
  bool locked_out; /* another program's lock was waited for in vain, and nothing could be read since */
  bool failed;
  kvs_error error;
  char told[sizeof((kvs_error *)0)->message]; /* what look_error gave out last */
};

/* Steps a statement with these parameters; false: it failed, and look_error has it. Each look_ask that gives true is followed by
 * look_done, at once: an open reader would keep a writer from emptying its log. */
bool look_ask(struct look *look, enum look_query query, const int *parameters, int count, bool *row);
bool look_ask_more(struct look *look, enum look_query query, bool *row);
void look_done(struct look *look, enum look_query query);

/* Reads what a key stands for from the current row. False: failed, and remembered. */
typedef bool look_reader(struct look *look, sqlite3_stmt *statement, const int *key, void **value, size_t *bytes);

/* What a key of `keys` numbers stands for, kept from before or read now; NULL: it is not in the trace, or could not be read. */
void *look_get(struct look *look, enum look_kind kind, enum look_query query, const int *key, int keys,
               look_reader *read);

/* Remembers "out of memory". */
void look_no_memory(struct look *look);

/* Whole numbers beyond this, and less than 0, are no steps, rows or tokens: LOOK_NONE, as NULL is. Far enough from an int's end
 * that whoever draws may add to it. */
#define LOOK_LARGEST (1 << 30)
int look_int(sqlite3_stmt *statement, int column);
/* A text cut to `size` at a character, control characters as `?`. */
void look_text(sqlite3_stmt *statement, int column, char *text, size_t size);

/* The row that `step` wrote in this layer, by kv_row: the one the rule says if it is among several. LOOK_NONE: none; *any: kv_row has
 * rows of this layer. */
int look_written(struct look *look, int run, int step, int layer, int expected, bool *any);

/* The latest step up to `step` that found `row` rows in the cache, so that its own k and v belong there. LOOK_NONE: none did. */
int look_finder(struct look *look, int run, int step, int row);

/* The last step up to `step` that wrote `row` of this layer's cache, by kv_row; LOOK_NONE if none is logged. */
int look_writer(struct look *look, int run, int step, int layer, int row);

#endif
