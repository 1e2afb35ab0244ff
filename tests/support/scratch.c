/* scratch.c: a temporary folder, the binary's path, and shell commands. */
#include "tests/support/scratch.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

char folder[64];

static void must(bool good, const char *what) {
  if (good) return;
  perror(what);
  abort();
}

int make_folder(void **state) {
  (void)state;
  strcpy(folder, "/tmp/kvstep-test-XXXXXX");
  return mkdtemp(folder) && chmod(folder, 0755) == 0 ? 0 : -1;
}

int remove_folder(void **state) {
  (void)state;
  return shell("chmod -R u+w '%s' && rm -rf '%s'", folder, folder);
}

const char *in_folder(const char *name) {
  static char paths[8][128];
  static int next;
  char *path = paths[next++ % 8];
  must(snprintf(path, sizeof paths[0], "%s/%s", folder, name) < (int)sizeof paths[0], name);
  return path;
}

void write_file(const char *path, const void *bytes, size_t size) {
  FILE *file = fopen(path, "wb");
  must(file != NULL, path);
  must(fwrite(bytes, 1, size, file) == size, path);
  must(fclose(file) == 0, path);
}

const char *kvstep_binary(void) {
  static char path[PATH_MAX];
  const char *named = getenv("KVSTEP");
  if (!*path) must(realpath(named && *named ? named : "./kvstep", path) != NULL, named && *named ? named : "./kvstep");
  return path;
}

bool sanitized(void) {
  const char *san = getenv("KVSTEP_SAN");
  return san && *san;
}

static const char *command(const char *format, va_list arguments) {
  static char line[16384];
  must(vsnprintf(line, sizeof line, format, arguments) < (int)sizeof line, format);
  return line;
}

static int exit_code(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

int shell(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int status = system(command(format, arguments));
  va_end(arguments);
  must(status != -1, format);
  return exit_code(status);
}

int shell_says(char *output, size_t size, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  FILE *pipe = popen(command(format, arguments), "r");
  va_end(arguments);
  must(pipe != NULL, format);
  size_t length = fread(output, 1, size - 1, pipe);
  output[length] = '\0';
  char rest[4096];
  while (fread(rest, 1, sizeof rest, pipe) > 0) continue; /* or a program that writes on would die of the closed pipe */
  return exit_code(pclose(pipe));
}
