/* zip.c: the .npz format: a zip archive of .npy files, stored or deflated, with zip64 where sizes need it.
 * Format: PKWARE's APPNOTE.TXT, 4.3; deflate: RFC 1951 through zlib. Every length is checked before it is used, and what is packed is
 * unpacked only when it is wanted, never beyond the size that was declared, nor beyond a limit for all of them together. */
#include "import/array.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { END_SIZE = 22, ENTRY_SIZE = 46, LOCAL_SIZE = 30, END64_SIZE = 56, LOCATOR_SIZE = 20 };

struct zip {
  const char *path;
  const unsigned char *bytes;
  uint64_t size, at, entries;
};

static uint64_t number(const unsigned char *from, int size) {
  uint64_t value = 0;
  for (int i = size; i-- > 0;) value = value << 8 | from[i];
  return value;
}

static kvs_status bad(const struct zip *zip, const char *what, kvs_error *err) {
  return kvs_fail(err, KVS_ERR_INPUT, "%s: %s; the file is damaged or cut off: copy it again", zip->path, what);
}

/* Finds the central directory from the file's end. */
static kvs_status find_directory(struct zip *zip, kvs_error *err) {
  uint64_t limit = zip->size < END_SIZE + 65535 ? zip->size : END_SIZE + 65535, at = 0;
  bool found = false;
  for (uint64_t back = END_SIZE; back <= limit && !found; back++) {
    at = zip->size - back;
    found = memcmp(zip->bytes + at, "PK\5\6", 4) == 0;
  }
  if (!found) return bad(zip, "a zip archive without an end", err);
  zip->entries = number(zip->bytes + at + 10, 2);
  zip->at = number(zip->bytes + at + 16, 4);
  if (zip->entries != 0xFFFF && zip->at != 0xFFFFFFFF) return KVS_OK;
  if (at < LOCATOR_SIZE || memcmp(zip->bytes + at - LOCATOR_SIZE, "PK\6\7", 4) != 0) return KVS_OK;
  uint64_t end64 = number(zip->bytes + at - LOCATOR_SIZE + 8, 8);
  if (end64 > zip->size || zip->size - end64 < END64_SIZE || memcmp(zip->bytes + end64, "PK\6\6", 4) != 0)
    return bad(zip, "its zip64 directory is not where it should be", err);
  zip->entries = number(zip->bytes + end64 + 32, 8);
  zip->at = number(zip->bytes + end64 + 48, 8);
  return KVS_OK;
}

/* What zip64's extra field replaces, in this order: size, packed size, offset. */
static void widen(const unsigned char *extra, size_t length, uint64_t *size, uint64_t *packed, uint64_t *offset) {
  while (length >= 4) {
    size_t part = number(extra + 2, 2);
    if (part > length - 4) return;
    if (number(extra, 2) == 1) {
      uint64_t *const wide[] = {size, packed, offset};
      const unsigned char *from = extra + 4;
      for (int i = 0; i < 3; i++)
        if (*wide[i] == 0xFFFFFFFF && part >= 8) *wide[i] = number(from, 8), from += 8, part -= 8;
      return;
    }
    extra += 4 + part, length -= 4 + part;
  }
}

/* Unpacks at most `room` bytes. Returns how many came, or -1. */
static int64_t unpack(const unsigned char *packed, uint64_t packed_size, unsigned char *to, uint64_t room) {
  z_stream stream = {0};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return -1;
  uint64_t in = 0, out = 0;
  int rc = Z_OK;
  while (rc == Z_OK) {
    uInt give = packed_size - in > 1 << 30 ? 1 << 30 : (uInt)(packed_size - in);
    uInt take = room - out > 1 << 30 ? 1 << 30 : (uInt)(room - out);
    stream.next_in = (unsigned char *)(uintptr_t)(packed + in), stream.avail_in = give;
    stream.next_out = to + out, stream.avail_out = take;
    rc = inflate(&stream, Z_NO_FLUSH);
    in += give - stream.avail_in, out += take - stream.avail_out;
    if (rc == Z_OK && (out == room || (in == packed_size && stream.avail_out))) break;
  }
  inflateEnd(&stream);
  return rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR ? (int64_t)out : -1;
}

/* The header alone, so that the array can be named and judged before anything large is unpacked. */
static kvs_status peek(const struct zip *zip, struct array *array, kvs_error *err) {
  size_t room = 12 + ARRAY_MOST_HEADER, at;
  unsigned char *head = malloc(room);
  if (!head) return kvs_fail_memory(err, "reading arrays");
  int64_t got = unpack(array->packed, array->packed_size, head, room < array->size ? room : array->size);
  kvs_status status = got < 0 ? bad(zip, "its packed data are no deflate stream", err)
                              : npy_parse(array, head, (uint64_t)got, false, &at, err);
  free(head);
  return status;
}

static kvs_status add_entry(struct arrays *arrays, const struct zip *zip, const unsigned char *entry, const char *name,
                            size_t length, kvs_error *err) {
  unsigned flags = (unsigned)number(entry + 8, 2), method = (unsigned)number(entry + 10, 2);
  uint64_t packed = number(entry + 20, 4), size = number(entry + 24, 4), offset = number(entry + 42, 4);
  widen(entry + ENTRY_SIZE + length, number(entry + 30, 2), &size, &packed, &offset);
  if (length < 4 || memcmp(name + length - 4, ".npy", 4) != 0) return KVS_OK; /* something else in the archive */
  struct array *array = arrays_add(arrays, name, length - 4, zip->path, err);
  if (!array) return err ? err->status : KVS_ERR_MEMORY;
  if (flags & 1) return bad(zip, "an encrypted member", err);
  if (method != 0 && method != 8)
    return kvs_fail(err, KVS_ERR_INPUT,
                    "%s: array `%s` is packed by method %u; numpy.savez and savez_compressed do not", zip->path,
                    array->name, method);
  if (offset > zip->size || zip->size - offset < LOCAL_SIZE || memcmp(zip->bytes + offset, "PK\3\4", 4) != 0)
    return bad(zip, "a member is not where the directory says", err);
  offset += LOCAL_SIZE + number(zip->bytes + offset + 26, 2) + number(zip->bytes + offset + 28, 2);
  if (offset > zip->size || packed > zip->size - offset) return bad(zip, "a member is cut off", err);
  array->packed = zip->bytes + offset, array->packed_size = packed, array->size = size;
  array->crc = (uint32_t)number(entry + 16, 4);
  size_t at;
  if (method == 0) return npy_parse(array, zip->bytes + offset, packed, true, &at, err);
  return peek(zip, array, err);
}

kvs_status npz_read(struct arrays *arrays, const char *path, const unsigned char *bytes, size_t size, kvs_error *err) {
  struct zip zip = {.path = path, .bytes = bytes, .size = size};
  kvs_status status = find_directory(&zip, err);
  for (uint64_t i = 0; status == KVS_OK && i < zip.entries; i++) {
    if (zip.at > zip.size || zip.size - zip.at < ENTRY_SIZE || memcmp(bytes + zip.at, "PK\1\2", 4) != 0)
      return bad(&zip, "its directory is cut off", err);
    const unsigned char *entry = bytes + zip.at;
    size_t length = number(entry + 28, 2);
    uint64_t whole = ENTRY_SIZE + length + number(entry + 30, 2) + number(entry + 32, 2);
    if (whole > zip.size - zip.at) return bad(&zip, "its directory is cut off", err);
    status = add_entry(arrays, &zip, entry, (const char *)entry + ENTRY_SIZE, length, err);
    zip.at += whole;
  }
  return status;
}

/* A file that was damaged on its way is told from one that is strange. */
static kvs_status check_crc(const struct array *array, const unsigned char *bytes, uint64_t size, kvs_error *err) {
  if (crc32_z(0, bytes, (size_t)size) == array->crc) return KVS_OK;
  return kvs_fail(err, KVS_ERR_INPUT,
                  "%s: array `%s` is damaged: its CRC-32 is not the one in the archive; copy the file again",
                  array->file, array->name);
}

/* Into memory that arrays_free gives back. */
static kvs_status unpack_all(struct arrays *arrays, const struct array *array, unsigned char **out, kvs_error *err) {
  unsigned char *memory = malloc(array->size ? (size_t)array->size : 1);
  if (!memory) return kvs_fail_memory(err, "unpacking an array");
  int64_t got = unpack(array->packed, array->packed_size, memory, array->size);
  kvs_status status = arrays_keep(arrays, memory, 0, err);
  if (status != KVS_OK) return status;
  arrays->unpacked += array->size;
  *out = memory;
  if (got >= 0 && (uint64_t)got == array->size) return check_crc(array, memory, array->size, err);
  return kvs_fail(err, KVS_ERR_INPUT,
                  "%s: array `%s` does not unpack to the size that is declared; copy the file again", array->file,
                  array->name);
}

kvs_status array_need(struct arrays *arrays, struct array *array, kvs_error *err) {
  if (!array->packed) return KVS_OK; /* no member of an archive, or looked at before */
  if (array->data) {
    kvs_status stored = check_crc(array, array->packed, array->packed_size, err);
    if (stored == KVS_OK) array->packed = NULL;
    return stored;
  }
  /* Deflate packs at most 1032 : 1, so what claims more is not worth the memory. */
  if (array->size / 1100 > array->packed_size)
    return kvs_fail(err, KVS_ERR_INPUT, "%s: array `%s` claims %llu bytes from %llu packed ones, which cannot be",
                    array->file, array->name, (unsigned long long)array->size, (unsigned long long)array->packed_size);
  if (array->size > ARRAY_MOST_UNPACKED - arrays->unpacked)
    return kvs_fail(
        err, KVS_ERR_INPUT,
        "%s: array `%s` would unpack to %llu bytes, more than the 4 GiB for one import; save it with numpy.savez, "
        "which does not compress, and it is read in place",
        array->file, array->name, (unsigned long long)array->size);
  unsigned char *memory = NULL;
  kvs_status status = unpack_all(arrays, array, &memory, err);
  if (status != KVS_OK) return status;
  struct array whole = *array;
  whole.dimensions = 0;
  size_t at;
  status = npy_parse(&whole, memory, array->size, true, &at, err);
  if (status == KVS_OK) array->data = whole.data, array->packed = NULL;
  return status;
}
