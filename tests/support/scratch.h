/* scratch.h: a folder of the test program's own, the kvstep binary, and shell commands: what tests need of the system. What goes
 * wrong here aborts, except where a function says otherwise. */
#ifndef KVS_TESTS_SCRATCH_H
#define KVS_TESTS_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>

/* The folder's path, from make_folder to remove_folder; in_folder overwrites its answer eight calls later. The first two are
 * setup and teardown for cmocka: 0, or not 0 where it failed. */
extern char folder[64];
int make_folder(void **state);
int remove_folder(void **state);
const char *in_folder(const char *name);

/* Overwrites a file with these bytes. */
void write_file(const char *path, const void *bytes, size_t size);

/* The binary that KVSTEP names, else ./kvstep: its absolute path. */
const char *kvstep_binary(void);

/* Whether the program under test was built with sanitizers. */
bool sanitized(void);

/* Runs a command of the shell: its exit code, or 128 + the signal that ended it. shell_says also keeps what it wrote to its
 * standard output, as a string; what finds no room is left out. */
int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
int shell_says(char *output, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
