/* help.c: what `kvstep help`, `--help` and `kvstep man` print, from the commands' tables. */
#include "cli/help.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/out.h"
#include "kvstep/kvstep.h"
#include "tui/action.h"

void put_wrapped(const char *text, int column, int indent) {
  bool first = true;
  while (*text) {
    size_t word = strcspn(text, " ");
    int width = 0; /* continuation bytes of UTF-8 take no column */
    for (size_t i = 0; i < word; i++) width += ((unsigned char)text[i] & 0xC0) != 0x80;
    if (!first && column + 1 + width > 79) {
      printf("\n%*s", indent, "");
      column = indent;
      first = true;
    }
    printf("%s%.*s", first ? "" : " ", (int)word, text);
    column += width + (first ? 0 : 1);
    first = false;
    text += word;
    while (*text == ' ') text++;
  }
  putchar('\n');
}

/* Paragraphs are lines; one that begins with a blank is shown as it is. */
static void put_paragraphs(const char *text) {
  while (text && *text) {
    size_t length = strcspn(text, "\n");
    char line[1024];
    snprintf(line, sizeof line, "%.*s", (int)length, text);
    if (*line == ' ')
      puts(line);
    else
      put_wrapped(line, 0, 0);
    text += length + (text[length] == '\n');
  }
}

static void put_usage(const struct command *command) {
  printf("Usage: kvstep %s%s", command->name, command->options ? " [options]" : "");
  for (const struct positional *p = command->positionals; p && p->name; p++)
    printf(p->optional ? " [%s]" : p->many ? " %s ..." : " %s", p->name);
  putchar('\n');
}

static void put_entry(const char *head, const char *help) {
  enum { COLUMN = 26 };
  int width = (int)strlen(head);
  printf("%s", head);
  if (width > COLUMN - 2)
    printf("\n%*s", COLUMN, "");
  else
    printf("%*s", COLUMN - width, "");
  put_wrapped(help, COLUMN, COLUMN);
}

static void put_options(const struct option *options) {
  for (const struct option *o = options; o && o->name; o++) {
    char head[80], letter[8] = "    ";
    if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(head, sizeof head, "  %s--%s%s%s", letter, o->name, o->argument ? " " : "",
             o->argument ? o->argument : "");
    put_entry(head, o->help);
  }
}

int help_command(const struct command *command) {
  put_usage(command);
  putchar('\n');
  put_paragraphs(command->description);
  if (command->positionals) puts("\nArguments:");
  for (const struct positional *p = command->positionals; p && p->name; p++) {
    char head[64];
    snprintf(head, sizeof head, "  %s", p->name);
    put_entry(head, p->help);
  }
  puts("\nOptions:");
  put_options(command->options);
  put_options(common_options);
  if (command->examples) printf("\nExamples:\n%s", command->examples);
  return finish_stdout(EXIT_OK);
}

int help_overview(void) {
  puts("Usage: kvstep COMMAND [options]\n\n"
       "A step debugger for one-token attention: decodes GPT-2 one token at a time, logs\n"
       "every moment of every step to a SQLite trace, and shows what the KV cache does.\n\n"
       "`kvstep` alone, on a terminal, opens the screen on a small built-in model.\n\nCommands:");
  for (int i = 0; command_at(i); i++) {
    char head[64];
    snprintf(head, sizeof head, "  %s", command_at(i)->name);
    put_entry(head, command_at(i)->summary);
  }
  puts("\n`kvstep help COMMAND` says more; `kvstep --version` prints the version.\n\n"
       "To begin:\n"
       "  kvstep run -n 10 -o my.db        decode ten tokens, with every moment logged\n"
       "  kvstep run -n 10 -o my.db --append --fault off-by-one\n"
       "                                   the same with a cache bug, as run 2\n"
       "  kvstep view my.db                step through them, moment by moment\n"
       "  kvstep show my.db --run 1        the last step's nine moments as text\n"
       "  kvstep sql my.db 'SELECT * FROM rule'\n"
       "                                   each step's position beside the rule's\n"
       "  kvstep check my.db               find the bug by the numbers");
  return finish_stdout(EXIT_OK);
}

static int run_help(const struct command *command, struct arguments *arguments) {
  int code = parse_options(command, arguments, NULL);
  if (code >= 0) return code;
  if (arguments->count == 0) return help_overview();
  const struct command *about = command_find(arguments->at[0]);
  return about ? help_command(about) : EXIT_USAGE;
}

/* ---- the manual page ------------------------------------------------------------------------------------------- */

/* Text as troff reads it as itself: backslashes, hyphens, and dots and quotes at a line's beginning. */
static void put_troff(const char *text, size_t length) {
  for (size_t i = 0; i < length; i++) {
    bool begins = i == 0 || text[i - 1] == '\n';
    if (text[i] == '\\')
      fputs("\\e", stdout);
    else if (text[i] == '-')
      fputs("\\-", stdout);
    else if (text[i] == '`')
      fputs("\\(ga", stdout);
    else if (text[i] == '^')
      fputs("\\(ha", stdout);
    else if (text[i] == '~')
      fputs("\\(ti", stdout);
    else {
      if (begins && (text[i] == '.' || text[i] == '\'')) fputs("\\&", stdout);
      putchar(text[i]);
    }
  }
}

static void troff_text(const char *text) { put_troff(text, strlen(text)); }

static void troff_paragraphs(const char *text) {
  while (text && *text) {
    size_t length = strcspn(text, "\n");
    if (*text == ' ')
      fputs(".br\n", stdout); /* its leading blank already breaks the line; this keeps the blanks with older roffs */
    else if (length)
      fputs(".PP\n", stdout);
    put_troff(text, length);
    if (length) putchar('\n');
    text += length + (text[length] == '\n');
  }
}

static void troff_options(const struct option *options) {
  for (const struct option *o = options; o && o->name; o++) {
    fputs(".TP\n", stdout);
    if (o->letter) printf("\\fB\\-%c\\fR, ", o->letter);
    fputs("\\fB\\-\\-", stdout);
    troff_text(o->name);
    fputs("\\fR", stdout);
    if (o->argument) printf(" \\fI%s\\fR", o->argument);
    putchar('\n');
    troff_text(o->help);
    putchar('\n');
  }
}

static void troff_command(const struct command *command) {
  printf(".SS kvstep %s", command->name);
  for (const struct positional *p = command->positionals; p && p->name; p++)
    printf(p->optional ? " [%s]" : p->many ? " %s ..." : " %s", p->name);
  putchar('\n');
  troff_paragraphs(command->description);
  for (const struct positional *p = command->positionals; p && p->name; p++) {
    printf(".TP\n\\fI%s\\fR\n", p->name);
    troff_text(p->help);
    putchar('\n');
  }
  troff_options(command->options);
  if (command->examples) {
    fputs(".PP\n.nf\n", stdout);
    troff_text(command->examples);
    fputs(".fi\n", stdout);
  }
}

/* What the screen's keys do, from the same table as its help. */
static void troff_keys(void) {
  const char *group = "";
  puts(".SH KEYS\nWhat the keys do in \\fBkvstep view\\fR. The name behind them does the same after a colon, and says\n"
       "what a key does in a file for \\fB\\-\\-keys\\fR.");
  for (int a = ACTION_NONE + 1; a < ACTION_COUNT; a++) {
    const struct action_row *row = action_row((enum action)a);
    if (strcmp(group, row->group) != 0) printf(".SS %s\n", group = row->group);
    fputs(".TP\n\\fB", stdout);
    troff_text(row->keys);
    fputs("\\fR   \\fI", stdout);
    troff_text(row->name);
    fputs("\\fR\n", stdout);
    troff_text(row->help);
    putchar('\n');
  }
}

static int run_man(const struct command *command, struct arguments *arguments) {
  int code = parse_options(command, arguments, NULL);
  if (code >= 0) return code;
  printf(".TH KVSTEP 1 \"\" \"kvstep %s\" \"User Commands\"\n", KVS_VERSION);
  puts(".SH NAME\nkvstep \\- step debugger for one\\-token attention\n.SH SYNOPSIS\n.B kvstep\n.I "
       "command\n[\\fIoptions\\fR]\n"
       ".SH DESCRIPTION\nDecodes a GPT\\-2 model one token at a time, logs every moment of every step to a SQLite "
       "trace,\n"
       "and shows what the KV cache does: correct, and with a fault put in on purpose.\n.SH COMMANDS");
  for (int i = 0; command_at(i); i++) troff_command(command_at(i));
  puts(".SH OPTIONS\nEvery command has:");
  troff_options(common_options);
  puts(".PP\nA list of numbers, as in \\fB\\-\\-layers\\fR, looks like 0,2\\-3.");
  troff_keys();
  puts(".SH EXIT STATUS\n.TP\n0\nall went well\n.TP\n1\nbad input; \\fBcheck\\fR found a fault, \\fBverify\\fR a "
       "difference\n.TP\n2\nwrong usage; \\fBcheck\\fR cannot tell\n.TP\n130\ninterrupted\n"
       ".SH ENVIRONMENT\n.TP\nNO_COLOR\nwhen it is not empty, nothing is coloured\n.TP\nKVSTEP_EXTENSION\n"
       "the loadable SQLite extension that \\fBkvstep sql\\fR loads into the sqlite3 shell\n.SH SEE ALSO\n.BR sqlite3 "
       "(1)");
  return finish_stdout(EXIT_OK);
}

static const struct positional help_positionals[] = {
    {.name = "COMMAND", .help = "which command", .completion = "command", .optional = true},
    {0},
};
const struct command command_help = {
    .name = "help",
    .summary = "help on a command",
    .description = "Shows what a command does and which options it has; without one, lists the commands.",
    .positionals = help_positionals,
    .run = run_help,
};
const struct command command_man = {
    .name = "man",
    .summary = "the manual page, in troff",
    .description = "Prints the manual page as troff source.",
    .examples = "  kvstep man | man -l -\n",
    .run = run_man,
};
