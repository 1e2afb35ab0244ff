/* error.h: the one way in which kvstep reports that something outside it was wrong.
 *
 * Every function that can fail returns a kvs_status, KVS_OK (0) when all went well, and takes a `kvs_error *`
 * as its last argument. On failure the error holds one line for a person: which file or argument, which place in it,
 * what was found, and what to do about it. It has no newline and no "error:" in front; whoever shows it adds those.
 * `err` may be NULL when the caller wants the status alone. On KVS_OK the error is left as it was.
 *
 * The impossible (a broken invariant of kvstep itself) is an assertion, not an error.
 */
#ifndef KVSTEP_ERROR_H
#define KVSTEP_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) && defined(KVS_BUILDING)
#define KVS_API __attribute__((visibility("default")))
#else
#define KVS_API
#endif

#if defined(__GNUC__)
#define KVS_PRINTF(format_index, first_argument) __attribute__((format(printf, format_index, first_argument)))
#else
#define KVS_PRINTF(format_index, first_argument)
#endif

typedef enum kvs_status {
  KVS_OK = 0,
  KVS_ERR_USAGE,    /* an argument that makes no sense: a token id out of range, a layer that is not there */
  KVS_ERR_INPUT,    /* a file or text from outside that is not what it should be */
  KVS_ERR_IO,       /* the operating system refused: no such file, no permission, disk full */
  KVS_ERR_MEMORY,   /* out of memory */
  KVS_ERR_CONTEXT,  /* the context's end: no position or cache row left (an event, not an accident) */
  KVS_ERR_CANCELLED /* the caller asked to stop */
} kvs_status;

typedef struct kvs_error {
  kvs_status status;
  char message[1024]; /* one line, NUL-terminated, cut at a character if it must be */
} kvs_error;

/* Fills *err (if not NULL) with `status` and the formatted message and returns `status`, so that a failing function
 * can end with `return kvs_fail(err, KVS_ERR_INPUT, "%s: …", path);`. Control characters in the arguments come from
 * outside, so they are shown as `?`: a message never moves the reader's cursor. */
KVS_API kvs_status kvs_fail(kvs_error *err, kvs_status status, const char *format, ...) KVS_PRINTF(3, 4);

/* Like kvs_fail, for "out of memory while <doing>". */
KVS_API kvs_status kvs_fail_memory(kvs_error *err, const char *doing);

#ifdef __cplusplus
}
#endif

#endif
