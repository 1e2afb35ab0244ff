/* dir.c: a model's files, mapped from a directory or found in the binary. */
#include "model/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/builtin.h"

typedef struct mapping {
  struct mapping *next;
  char *path;
  void *bytes; /* NULL: nothing to unmap (empty, or in the binary) */
  size_t size;
} mapping;

struct kvs_dir {
  const kvs_builtin *builtin; /* NULL: a directory */
  char *path;                 /* without a slash at its end */
  const char *name;
  mapping *mappings;
};

/* ---- what was given instead of a directory ---------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* Says what a file is that was given where a model directory was expected. A named pipe or a device is not opened: reading
 * it could wait for ever. */
static kvs_status refuse_file(const char *path, mode_t mode, kvs_error *err) {
  if (!S_ISREG(mode))
    return kvs_fail(
        err, KVS_ERR_INPUT,
        "%s: neither a directory nor a regular file; give a Hugging Face directory or a built-in model's name", path);
  unsigned char start[4] = {0};
  FILE *file = fopen(path, "rb");
  size_t got = file ? fread(start, 1, sizeof start, file) : 0;
  if (file) fclose(file);
  if (got == 4 && memcmp(start, "GGUF", 4) == 0)
    return kvs_fail(
        err, KVS_ERR_INPUT,
        "%s: a GGUF file; kvstep reads Hugging Face directories: give one with the same model's config.json, "
        "model.safetensors, vocab.json and merges.txt",
        path);
  if (ends_with(path, ".bin") || ends_with(path, ".pt") || ends_with(path, ".pth") || memcmp(start, "PK\3\4", 4) == 0)
    return kvs_fail(err, KVS_ERR_INPUT,
                    "%s: a PyTorch checkpoint; kvstep reads safetensors: load it with transformers and write it with "
                    "save_pretrained(DIR, safe_serialization=True), then give DIR",
                    path);
  if (ends_with(path, ".safetensors") || ends_with(path, ".json"))
    return kvs_fail(err, KVS_ERR_INPUT, "%s: one file of a model; give the directory that holds it and its config.json",
                    path);
  return kvs_fail(err, KVS_ERR_INPUT,
                  "%s: a file, not a model; give a Hugging Face directory or a built-in model's name", path);
}

static kvs_status refuse_missing(const char *name, kvs_error *err) {
  char names[256] = "";
  for (int i = 0; kvs_builtin_at(i); i++) {
    size_t used = strlen(names);
    snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", kvs_builtin_at(i)->name);
  }
  return kvs_fail(err, KVS_ERR_IO, "%s: no such model directory, and no built-in model of that name (built in: %s)",
                  *name ? name : "\"\"", names);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

kvs_status kvs_dir_open(const char *name, kvs_dir **out, kvs_error *err) {
  *out = NULL;
  struct stat status;
  bool exists = *name && stat(name, &status) == 0;
  int failure = errno;
  const kvs_builtin *builtin = kvs_builtin_find(name); /* their names have no slash, so a path is never one */
  if (exists && S_ISDIR(status.st_mode)) builtin = NULL;
  if (!builtin) {
    if (exists && !S_ISDIR(status.st_mode)) return refuse_file(name, status.st_mode, err);
    if (!exists && (failure == ENOENT || !*name)) return refuse_missing(name, err);
    if (!exists) return kvs_fail(err, KVS_ERR_IO, "%s: cannot be opened: %s", name, strerror(failure));
  }
  kvs_dir *dir = calloc(1, sizeof *dir);
  if (dir) dir->path = strdup(name);
  if (!dir || !dir->path) {
    free(dir);
    return kvs_fail_memory(err, "opening the model");
  }
  for (size_t end = strlen(dir->path); end > 1 && dir->path[end - 1] == '/'; end--) dir->path[end - 1] = '\0';
  const char *slash = strrchr(dir->path, '/');
  dir->builtin = builtin;
  dir->name = builtin ? builtin->name : slash && slash[1] ? slash + 1 : dir->path;
  *out = dir;
  return KVS_OK;
}

void kvs_dir_close(kvs_dir *dir) {
  if (!dir) return;
  for (mapping *m = dir->mappings, *next; m; m = next) {
    next = m->next;
    if (m->bytes) munmap(m->bytes, m->size);
    free(m->path);
    free(m);
  }
  free(dir->path);
  free(dir);
}

const char *kvs_dir_name(const kvs_dir *dir) { return dir->name; }

/* "DIR/FILE", or "built-in NAME/FILE"; the caller frees it. */
static char *path_of(const kvs_dir *dir, const char *file) {
  const char *before = dir->builtin ? "built-in " : "";
  size_t size = strlen(before) + strlen(dir->path) + strlen(file) + 2;
  char *path = malloc(size);
  if (path) snprintf(path, size, "%s%s/%s", before, dir->path, file);
  return path;
}

static bool in_binary(const kvs_dir *dir, const char *file, kvs_file *out) {
  for (int i = 0; kvs_builtin_file(dir->builtin, i, out); i++)
    if (strcmp(out->path, file) == 0) return true;
  return false;
}

bool kvs_dir_has(const kvs_dir *dir, const char *file) {
  kvs_file found;
  if (dir->builtin) return in_binary(dir, file, &found);
  char *path = path_of(dir, file);
  struct stat status;
  bool has = !path || (lstat(path, &status) == 0 || (errno != ENOENT && errno != ENOTDIR));
  free(path);
  return has;
}

/* O_NONBLOCK: a named pipe in a file's place is refused, not waited for. */
static kvs_status map_file(mapping *m, kvs_error *err) {
  int descriptor = open(m->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return kvs_fail(err, KVS_ERR_IO, "%s: cannot be read: %s", m->path, strerror(errno));
  struct stat status;
  kvs_status result = KVS_OK;
  if (fstat(descriptor, &status) != 0)
    result = kvs_fail(err, KVS_ERR_IO, "%s: cannot be read: %s", m->path, strerror(errno));
  else if (!S_ISREG(status.st_mode))
    result = kvs_fail(err, KVS_ERR_INPUT, "%s: not a regular file; put the model's file in its place", m->path);
  else if (status.st_size > 0) {
    m->size = (size_t)status.st_size;
    m->bytes = mmap(NULL, m->size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (m->bytes == MAP_FAILED) {
      m->bytes = NULL;
      result = kvs_fail(err, KVS_ERR_IO, "%s: cannot be mapped: %s", m->path, strerror(errno));
    }
#ifdef MADV_HUGEPAGE
    /* Weights are read from end to end for each token: the fewer pages the better, where the file system can do it. */
    if (m->bytes) madvise(m->bytes, m->size, MADV_HUGEPAGE);
#endif
  }
  close(descriptor);
  return result;
}

kvs_status kvs_dir_map(kvs_dir *dir, const char *file, kvs_file *out, kvs_error *err) {
  mapping *m = calloc(1, sizeof *m);
  if (m) m->path = path_of(dir, file);
  if (!m || !m->path) {
    free(m);
    return kvs_fail_memory(err, "opening the model's files");
  }
  m->next = dir->mappings;
  dir->mappings = m; /* from here on kvs_dir_close frees it, also after a failure */
  if (dir->builtin) {
    if (!in_binary(dir, file, out)) return kvs_fail(err, KVS_ERR_IO, "%s: there is no such file", m->path);
    out->path = m->path;
    return KVS_OK;
  }
  kvs_status status = map_file(m, err);
  if (status) return status;
  *out = (kvs_file){m->path, m->bytes ? m->bytes : (const unsigned char *)"", m->size};
  return KVS_OK;
}
