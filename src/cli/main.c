/* main.c: finds the subcommand and hands over. */
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/help.h"
#include "cli/out.h"
#include "kvstep/kvstep.h"

static const struct command *const commands[] = {
    &command_run,    &command_view,  &command_show,    &command_info,       &command_sql,
    &command_verify, &command_check, &command_compare, &command_import,     &command_models,
    &command_faults, &command_help,  &command_man,     &command_completion,
};

const struct command *command_at(int i) {
  return i >= 0 && i < (int)(sizeof commands / sizeof *commands) ? commands[i] : NULL;
}

static const char *command_name_at(const void *table, int i) {
  (void)table;
  return command_at(i) ? command_at(i)->name : NULL;
}

const struct command *command_find(const char *name) {
  for (int i = 0; command_at(i); i++)
    if (strcmp(command_at(i)->name, name) == 0) return command_at(i);
  const char *nearest = nearest_name(name, command_name_at, NULL);
  if (nearest)
    usage_error(NULL, "there is no command `%s`; did you mean `%s`?", name, nearest);
  else
    usage_error(NULL, "there is no command `%s`", name);
  return NULL;
}

/* The command line as it would be typed: a word with anything special in it goes between single quotes. */
static char *quoted_line(int argc, char **argv) {
  size_t size = 1;
  for (int i = 0; i < argc; i++) size += 4 * strlen(argv[i]) + 3;
  char *line = malloc(size), *o = line;
  if (!line) return NULL;
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
  for (int i = 0; i < argc; i++) {
    if (i) *o++ = ' ';
    bool quote = !argv[i][0] || argv[i][strspn(argv[i], plain)];
    if (quote) *o++ = '\'';
    for (const char *c = argv[i]; *c; c++) {
      if (*c == '\'')
        o = stpcpy(o, "'\\''");
      else
        *o++ = *c;
    }
    if (quote) *o++ = '\'';
  }
  *o = '\0';
  return line;
}

static int run_command(const struct command *command, int argc, char **argv) {
  struct arguments arguments = {0};
  char *line = quoted_line(argc, argv);
  if (!line) {
    kvs_error err;
    kvs_fail_memory(&err, "reading the command line");
    return report(&err);
  }
  arguments.line = line;
  arguments.count = argc - 2;
  arguments.at = argv + 2;
  int code = command->run(command, &arguments);
  free(line);
  return code;
}

int main(int argc, char **argv) {
  open_standard_streams();
  signal(
      SIGXFSZ,
      SIG_IGN); /* a limit on the size of files is then an error as any other, with its message, and nothing half-written */
  setlocale(LC_CTYPE, "");
  if (argc < 2 && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) return view_demo();
  if (argc < 2) return usage_error(NULL, "a command is missing");
  const char *word = argv[1];
  if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
    printf("kvstep %s\n", kvs_version());
    return finish_stdout(EXIT_OK);
  }
  if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return help_overview();
  if (word[0] == '-') return usage_error(NULL, "unknown option `%s`; options come after the command", word);
  const struct command *command = command_find(word);
  return command ? run_command(command, argc, argv) : EXIT_USAGE;
}
