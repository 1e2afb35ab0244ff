/* options.c: parsing a subcommand's words by its table, and saying what is wrong with them. */
#include "cli/options.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/help.h"
#include "cli/out.h"

const struct option common_options[] = {
    {.name = "help", .letter = 'h', .kind = OPTION_FLAG, .help = "show this help"},
    {0},
};

int usage_error(const struct command *command, const char *format, ...) {
  char message[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  fprintf(stderr, "kvstep%s%s: ", command ? " " : "", command ? command->name : "");
  put_safe(stderr, message, strlen(message));
  fprintf(stderr, "\nTry `kvstep %s%s--help`.\n", command ? command->name : "", command ? " " : "");
  return EXIT_USAGE;
}

/* ---- the nearest name ------------------------------------------------------------------------------------------ */

/* How many letters must be changed, added, left out or swapped with their neighbour (Damerau-Levenshtein). */
static int edit_distance(const char *a, const char *b) {
  enum { LONGEST = 40 };
  int d[LONGEST + 1][LONGEST + 1];
  int la = (int)strlen(a), lb = (int)strlen(b);
  if (la > LONGEST || lb > LONGEST) return INT_MAX;
  for (int i = 0; i <= la; i++) d[i][0] = i;
  for (int j = 0; j <= lb; j++) d[0][j] = j;
  for (int i = 1; i <= la; i++)
    for (int j = 1; j <= lb; j++) {
      int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
      if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
        best = d[i - 2][j - 2] + 1;
      d[i][j] = best;
    }
  return d[la][lb];
}

const char *nearest_name(const char *word, const char *(*name_at)(const void *table, int i), const void *table) {
  const char *nearest = NULL;
  int least = INT_MAX;
  for (int i = 0; name_at(table, i); i++) {
    const char *name = name_at(table, i);
    bool begins = strlen(word) >= 2 && strncmp(word, name, strlen(word)) == 0;
    int distance = begins ? 0 : edit_distance(word, name);
    if (distance < least) {
      least = distance;
      nearest = name;
    }
  }
  return nearest && least <= 1 + (int)strlen(word) / 3 ? nearest : NULL;
}

static const char *option_name_at(const void *table, int i) { return ((const struct option *)table)[i].name; }

static const struct option *find_long(const struct command *command, const char *name, size_t length) {
  const struct option *tables[] = {command->options, common_options};
  for (int t = 0; t < 2; t++)
    for (const struct option *o = tables[t]; o && o->name; o++)
      if (strlen(o->name) == length && strncmp(o->name, name, length) == 0) return o;
  return NULL;
}

static const struct option *find_short(const struct command *command, char letter) {
  const struct option *tables[] = {command->options, common_options};
  for (int t = 0; t < 2; t++)
    for (const struct option *o = tables[t]; o && o->name; o++)
      if (o->letter == letter) return o;
  return NULL;
}

static int unknown_option(const struct command *command, const char *word) {
  char name[64];
  snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
  const char *nearest = command->options ? nearest_name(name, option_name_at, command->options) : NULL;
  if (nearest) return usage_error(command, "unknown option `--%s`; did you mean `--%s`?", name, nearest);
  return usage_error(command, "unknown option `--%s`", name);
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

/* "-n" or "--steps", as a message names it. */
static const char *shown(const struct option *o, char *buffer, size_t size) {
  if (o->letter)
    snprintf(buffer, size, "-%c, --%s", o->letter, o->name);
  else
    snprintf(buffer, size, "--%s", o->name);
  return buffer;
}

static int out_of_range(const struct command *command, const struct option *o, const char *text) {
  char name[64];
  shown(o, name, sizeof name);
  if (isinf(o->maximum))
    return usage_error(command, "%s: `%s` is out of range: a number %s %g is needed", name, text,
                       o->above ? "above" : "from", o->minimum);
  return usage_error(command, "%s: `%s` is out of range: a number %s %.0f%s to %.0f is needed", name, text,
                     o->above ? "above" : "from", o->minimum, o->above ? " and up" : "", o->maximum);
}

static int set_number(const struct command *command, const struct option *o, const char *text, void *place) {
  char name[64], *end;
  errno = 0;
  double real = 0;
  long long whole = 0;
  bool integer = o->kind == OPTION_INT, digits = text[0] && !strchr(" \t\n", text[0]);
  if (integer)
    whole = strtoll(text, &end, 10);
  else
    real = strtod(text, &end);
  if (!digits || end == text || *end || isnan(real))
    return usage_error(command, "%s: `%s` is no %snumber", shown(o, name, sizeof name), text, integer ? "whole " : "");
  double value = integer ? (double)whole : real;
  if ((errno == ERANGE && fabs(value) > 1) || value < o->minimum || value > o->maximum || isinf(value) ||
      (o->above && value == o->minimum))
    return out_of_range(command, o, text);
  if (integer)
    *(int *)place = (int)whole;
  else
    *(double *)place = real;
  return -1;
}

static int set_seed(const struct command *command, const struct option *o, const char *text, uint64_t *place) {
  char name[64], *end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 0);
  if (text[0] < '0' || text[0] > '9' || *end)
    return usage_error(command, "%s: `%s` is no whole number from 0 on", shown(o, name, sizeof name), text);
  if (errno == ERANGE)
    return usage_error(command, "%s: `%s` is out of range: 64 bits are the most", shown(o, name, sizeof name), text);
  *place = value;
  return -1;
}

static int set_choice(const struct command *command, const struct option *o, const char *text, int *place) {
  char name[64], words[256] = "";
  for (int i = 0; o->choices[i]; i++) {
    if (strcmp(o->choices[i], text) == 0) {
      *place = i;
      return -1;
    }
    size_t used = strlen(words);
    snprintf(words + used, sizeof words - used, "%s%s", i ? ", " : "", o->choices[i]);
  }
  return usage_error(command, "%s: unknown %s `%s`; it is one of %s", shown(o, name, sizeof name), o->argument, text,
                     words);
}

/* One number of a list; NULL if there is none there. */
static const char *list_number(const char *text, int *value) {
  if (*text < '0' || *text > '9') return NULL;
  char *end;
  errno = 0;
  long number = strtol(text, &end, 10);
  if (errno == ERANGE || number > INT_MAX - 1) return NULL;
  *value = (int)number;
  return end;
}

static int set_list(const struct command *command, const struct option *o, const char *text, struct list *list) {
  char name[64];
  const char *c = text;
  list->count = 0;
  for (;;) {
    if (list->count == LIST_RANGES)
      return usage_error(command, "%s: more than %d ranges", shown(o, name, sizeof name), LIST_RANGES);
    int first, last;
    if (!(c = list_number(c, &first))) break;
    last = first;
    if (*c == '-') {
      c++;
      if (*c == '\0' || *c == ',')
        last = INT_MAX;
      else if (!(c = list_number(c, &last)))
        break;
    }
    if (last < first) break;
    list->range[list->count].first = first;
    list->range[list->count++].last = last;
    if (*c == '\0') return -1;
    if (*c++ != ',') break;
  }
  return usage_error(command, "%s: `%s` is no list; one looks like 0,2-3", shown(o, name, sizeof name), text);
}

static int set_option(const struct command *command, const struct option *o, const char *text, void *values) {
  void *place = (char *)values + o->offset;
  switch (o->kind) {
  case OPTION_FLAG:
    *(bool *)place = true;
    return -1;
  case OPTION_STRING:
    *(const char **)place = text;
    return -1;
  case OPTION_INT:
  case OPTION_REAL:
    return set_number(command, o, text, place);
  case OPTION_SEED:
    return set_seed(command, o, text, place);
  case OPTION_CHOICE:
    return set_choice(command, o, text, place);
  case OPTION_LIST:
    return set_list(command, o, text, place);
  }
  return -1;
}

/* ---- words ----------------------------------------------------------------------------------------------------- */

/* Where the parsing stands: the word argv[i], and what becomes of it. */
struct parse {
  const struct command *command;
  int argc, i;
  char **argv;
  void *values;
  bool help;
};

static int take_long(struct parse *p) {
  const char *word = p->argv[p->i], *equals = strchr(word, '=');
  size_t length = strcspn(word + 2, "=");
  const struct option *o = find_long(p->command, word + 2, length);
  if (!o) return unknown_option(p->command, word);
  if (o == common_options) {
    p->help = true;
    return -1;
  }
  if (o->kind == OPTION_FLAG)
    return equals ? usage_error(p->command, "--%s takes no value", o->name)
                  : set_option(p->command, o, NULL, p->values);
  if (equals) return set_option(p->command, o, equals + 1, p->values);
  if (p->i + 1 == p->argc) return usage_error(p->command, "--%s needs its %s", o->name, o->argument);
  return set_option(p->command, o, p->argv[++p->i], p->values);
}

/* `-abc`: flags, the last of which may take the rest of the word, or the next word, as its value. */
static int take_short(struct parse *p) {
  for (const char *c = p->argv[p->i] + 1; *c; c++) {
    const struct option *o = find_short(p->command, *c);
    if (!o) return usage_error(p->command, "unknown option `-%c` in `%s`", *c, p->argv[p->i]);
    int code = -1;
    if (o == common_options) {
      p->help = true;
    } else if (o->kind == OPTION_FLAG) {
      code = set_option(p->command, o, NULL, p->values);
    } else if (c[1]) {
      return set_option(p->command, o, c + 1, p->values);
    } else {
      if (p->i + 1 == p->argc) return usage_error(p->command, "-%c needs its %s", *c, o->argument);
      return set_option(p->command, o, p->argv[++p->i], p->values);
    }
    if (code >= 0) return code;
  }
  return -1;
}

static int check_count(const struct command *command, int count, char **words) {
  int least = 0, most = 0;
  bool many = false;
  for (const struct positional *p = command->positionals; p && p->name; p++, most++)
    if (!p->optional) least = most + 1, many = p->many;
  if (count < least) return usage_error(command, "%s is missing", command->positionals[count].name);
  if (count > most && !many) {
    const char *remedy = strcmp(command->name, "run") == 0 || strcmp(command->name, "verify") == 0
                             ? "; give the prompt with -p"
                             : "; quote what belongs together";
    return usage_error(command, "unexpected argument `%s`%s", words[most], remedy);
  }
  return -1;
}

int parse_options(const struct command *command, struct arguments *arguments, void *values) {
  int argc = arguments->count;
  char **argv = arguments->at;
  struct parse p = {.command = command, .argc = argc, .argv = argv, .values = values};
  int count = 0;
  bool only_words = false;
  for (; p.i < argc; p.i++) {
    char *word = argv[p.i];
    int code = -1;
    bool comment = word[0] == '-' && word[1] == '-' && isspace((unsigned char)word[2]); /* SQL may begin so */
    if (only_words || word[0] != '-' || word[1] == '\0' || comment)
      argv[count++] = word;
    else if (strcmp(word, "--") == 0)
      only_words = true;
    else
      code = word[1] == '-' ? take_long(&p) : take_short(&p);
    if (code >= 0) return code;
    if (p.help) return help_command(command);
  }
  arguments->count = count;
  return check_count(command, count, argv);
}

bool list_contains(const struct list *list, int i) {
  if (list->count == 0) return true;
  for (int r = 0; r < list->count; r++)
    if (i >= list->range[r].first && i <= list->range[r].last) return true;
  return false;
}
