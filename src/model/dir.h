/* dir.h (private): a named set of files, a directory or built into the binary, read without a copy.
 * Model and tokenizer load from a kvs_dir, so neither knows where the bytes lie. */
#ifndef KVS_MODEL_DIR_H
#define KVS_MODEL_DIR_H

#include <stdbool.h>
#include <stddef.h>

#include "kvstep/error.h"

typedef struct kvs_dir kvs_dir;

/* One file's bytes, mapped read-only (or in the binary). path is for messages: "DIR/config.json", or
 * "built-in austen/config.json". Valid until kvs_dir_close. */
typedef struct kvs_file {
  const char *path;
  const unsigned char *bytes;
  size_t size;
} kvs_file;

/* Opens a directory or a built-in name (rule in kvstep/model.h). Errors: KVS_ERR_IO, with a message that lists the
 * built-in names when there is no such directory; a file instead of a directory gets its own message. */
kvs_status kvs_dir_open(const char *name, kvs_dir **out, kvs_error *err);
void kvs_dir_close(kvs_dir *dir);

const char *kvs_dir_name(const kvs_dir *dir); /* built-in name, or the directory's last component */

/* Whether there is such a file. A link to nothing and a directory that may not be searched count as yes: mapping it then says
 * what is wrong, where "no" would call a file missing that the reader sees. So does want of memory. */
bool kvs_dir_has(const kvs_dir *dir, const char *file);

/* Maps one file. Errors: KVS_ERR_IO (missing, unreadable). An empty file has size 0 and bytes non-NULL. */
kvs_status kvs_dir_map(kvs_dir *dir, const char *file, kvs_file *out, kvs_error *err);

#endif
