/* inspect.c: is this file a trace? Told from its first 100 bytes and its size, before SQLite opens it. */
#include "trace/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER = 100 }; /* https://www.sqlite.org/fileformat.html#the_database_header */

static uint32_t big_endian(const unsigned char *b) {
  return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

bool kvs_trace_has_wal(const char *path) {
  size_t length = strlen(path);
  char *name = malloc(length + sizeof "-wal");
  if (!name) return true; /* then nothing is concluded from the size */
  memcpy(name, path, length);
  memcpy(name + length, "-wal", sizeof "-wal");
  struct stat st;
  bool yes = stat(name, &st) == 0 && st.st_size > 0;
  free(name);
  return yes;
}

kvs_status kvs_trace_is_empty(const char *path, kvs_error *err) {
  return kvs_fail(
      err, KVS_ERR_INPUT,
      "%s: a file with nothing in it: a run was stopped before its first step was kept, perhaps; remove it, "
      "or let a run replace it (--force)",
      path);
}

/* The header of an SQLite file of `size` bytes. */
static kvs_status judge(const char *path, const unsigned char *h, uint64_t size, bool wal, kvs_error *err) {
  uint32_t page = (uint32_t)h[16] << 8 | h[17];
  if (page == 1) page = 65536;
  if (page < 512 || (page & (page - 1)))
    return kvs_fail(err, KVS_ERR_INPUT, "%s: damaged: its page size is %u; take another copy of the file", path, page);
  uint32_t id = big_endian(h + 68), version = big_endian(h + 60);
  /* One page, and the schema was never changed: there is no table. */
  if (id == 0 && version == 0 && big_endian(h + 40) == 0 && size <= page) return kvs_trace_is_empty(path, err);
  if (id != KVS_TRACE_APPLICATION_ID)
    return kvs_fail(err, KVS_ERR_INPUT,
                    "%s: an SQLite file, but not a kvstep trace: its application_id is 0x%08X, not 0x%08X ('KVST')",
                    path, id, (unsigned)KVS_TRACE_APPLICATION_ID);
  if (version > KVS_TRACE_VERSION)
    return kvs_fail(err, KVS_ERR_INPUT,
                    "%s: a trace of version %u, and this kvstep reads version %d; a newer kvstep is needed", path,
                    version, KVS_TRACE_VERSION);
  if (version < KVS_TRACE_VERSION)
    return kvs_fail(err, KVS_ERR_INPUT,
                    "%s: its user_version is %u, and a trace has %d: it was not made with the whole of schema.sql",
                    path, version, KVS_TRACE_VERSION);
  /* The count of pages is to be trusted only if it was written together with the change counter. */
  uint64_t pages = big_endian(h + 28);
  if (!wal && big_endian(h + 24) == big_endian(h + 92) && pages * page > size)
    return kvs_fail(err, KVS_ERR_INPUT,
                    "%s: truncated: %llu bytes of %llu are there; copy the file again from where it came", path,
                    (unsigned long long)size, (unsigned long long)(pages * page));
  return KVS_OK;
}

static kvs_status cannot_open(const char *path, kvs_error *err) {
  if (errno == ENOENT || errno == ENOTDIR)
    return kvs_fail(err, KVS_ERR_IO, "%s: there is no such file; `kvstep run` writes traces", path);
  if (errno == EACCES)
    return kvs_fail(err, KVS_ERR_IO, "%s: no permission to read it; chmod or copy it, or ask its owner", path);
  return kvs_fail(err, KVS_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
}

kvs_status kvs_trace_inspect(const char *path, kvs_error *err) {
  struct stat st;
  if (stat(path, &st) != 0) return cannot_open(path, err);
  if (S_ISDIR(st.st_mode)) return kvs_fail(err, KVS_ERR_IO, "%s: a folder, not a trace; name a file in it", path);
  if (!S_ISREG(st.st_mode)) return kvs_fail(err, KVS_ERR_IO, "%s: not a regular file, so not a trace", path);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return cannot_open(path, err);
  bool wal = kvs_trace_has_wal(path);
  unsigned char header[HEADER];
  ssize_t length = 0, got = 1;
  while (length < HEADER && got > 0) {
    got = read(file, header + length, (size_t)(HEADER - length));
    if (got > 0)
      length += got;
    else if (got < 0 && errno == EINTR)
      got = 1;
  }
  int failed = got < 0 ? errno : 0;
  close(file);
  if (failed) return kvs_fail(err, KVS_ERR_IO, "%s: cannot be read: %s", path, strerror(failed));
  if (length == 0 && wal) return KVS_OK; /* killed before the log was first moved into the file: SQLite recovers it */
  if (length == 0) return kvs_trace_is_empty(path, err);
  static const char magic[16] = "SQLite format 3";
  if (length < 16 || memcmp(header, magic, sizeof magic) != 0)
    return kvs_fail(err, KVS_ERR_INPUT, "%s: not an SQLite file, so not a trace; was another file meant?", path);
  if (length < HEADER)
    return kvs_fail(err, KVS_ERR_INPUT, "%s: truncated: only %zd bytes are there; copy the file again", path, length);
  /* In WAL mode the header in the file may be older than the one in the log, down to a fresh file without any id. */
  if (wal) return KVS_OK;
  return judge(path, header, (uint64_t)st.st_size, wal, err);
}
