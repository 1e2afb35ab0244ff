/* options.h: what a subcommand is and takes, as one table; parsing, help, the manual and completion all read it. */
#ifndef KVS_CLI_OPTIONS_H
#define KVS_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

enum exit_code { EXIT_OK = 0, EXIT_BAD = 1, EXIT_USAGE = 2 };

/* The kind says which type lies at `offset`. */
enum option_kind {
  OPTION_FLAG,   /* bool */
  OPTION_STRING, /* const char * */
  OPTION_INT,    /* int */
  OPTION_REAL,   /* double */
  OPTION_SEED,   /* uint64_t */
  OPTION_CHOICE, /* int: an index into `choices` */
  OPTION_LIST,   /* struct list */
};

/* `0,2-3` as the ranges {0,0}, {2,3}. `5-` has no end: last is INT_MAX. No ranges: the option was not given. */
#define LIST_RANGES 64
struct list {
  int count;
  struct {
    int first, last;
  } range[LIST_RANGES];
};

struct option {
  const char *name; /* without the dashes; NULL ends a table */
  char letter;      /* its short form, or 0 */
  enum option_kind kind;
  const char *argument; /* how its value is called in the help; NULL for a flag */
  const char *help;
  size_t offset;              /* where its value goes in the command's struct of values */
  double minimum, maximum;    /* numbers: the range, both ends included */
  bool above;                 /* … but not the minimum itself */
  const char *const *choices; /* OPTION_CHOICE: the words, NULL at the end */
  const char *completion;     /* what the shell may complete it with: "file", "model", "fault", or NULL */
};

/* One word on the command line that is no option. */
struct positional {
  const char *name; /* "TRACE"; NULL ends a table */
  const char *help;
  const char *completion;
  bool optional;
  bool many; /* one or more of it; the last in its table */
};

struct arguments {
  int count; /* words after the command; once parsed, only the positionals */
  char **at;
  const char *line; /* the whole command line, quoted for a shell */
};

struct command {
  const char *name;
  const char *summary;
  const char *description; /* paragraphs; a line that begins with a blank is shown as it is */
  const char *examples;    /* lines, NULL if none */
  const struct positional *positionals;
  const struct option *options;
  int (*run)(const struct command *command, struct arguments *arguments); /* begins with parse_options */
};

/* All subcommands, in the order in which they are listed; NULL when i is past the last. */
const struct command *command_at(int i);
const struct command *command_find(const char *name);

/* The options that every subcommand has. */
extern const struct option common_options[];

/* Says on stderr what is wrong with how `command` (NULL: kvstep itself) was called; returns EXIT_USAGE. */
int usage_error(const struct command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sorts the words after the command's name: options into `values`, a struct of the command's own that holds the defaults
 * (NULL if it has no options), the others stay in arguments->at. Returns -1 to go on, or the exit code: help was shown,
 * or something was wrong. */
int parse_options(const struct command *command, struct arguments *arguments, void *values);

/* Of `count` names the nearest to `word`, if it is near enough to be meant; else NULL. */
const char *nearest_name(const char *word, const char *(*name_at)(const void *table, int i), const void *table);

/* Is i in the list? An empty list contains everything. */
bool list_contains(const struct list *list, int i);

#endif
