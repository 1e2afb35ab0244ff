/* faults.c: `kvstep faults`: the cache bugs that can be injected, as a list, one by one, as JSON, and as the pages of docs/faults. */
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/help.h"
#include "cli/model_files.h"
#include "cli/out.h"
#include "kvstep/kvstep.h"

enum format { FORMAT_TEXT, FORMAT_JSON, FORMAT_MARKDOWN };

struct values {
  int format;
};

static const char *start_of(const kvs_fault *f) {
  if (f->from_start) return "with the run";
  return f->fills_context ? "at the context's end; the prompt is repeated until that is near"
                          : "at the first decode step";
}

static void put_label(const char *label, const char *text) {
  enum { COLUMN = 10 };
  printf("%-*s", COLUMN, label);
  put_wrapped(text, COLUMN, COLUMN);
}

static void put_fault(const kvs_fault *f) {
  printf("%s: ", f->name);
  put_wrapped(f->summary, (int)strlen(f->name) + 2, 0);
  printf("\n  right   %s\n  wrong   %s\n\n", f->right_line, f->wrong_line);
  put_label("Effect:", f->effect);
  put_label("Begins:", start_of(f));
  put_label("Seen:", f->seen);
  put_label("Found by:", f->detect);
  put_label("In SQL:", f->sql);
  printf("\nTry:      kvstep run -p 'It is a truth' --fault %s -o broken.db\n"
         "          kvstep check broken.db\n",
         f->name);
}

static void put_list(void) {
  enum { COLUMN = 22 };
  for (int i = 0; kvs_fault_at(i); i++) {
    printf("%-*s", COLUMN, kvs_fault_at(i)->name);
    put_wrapped(kvs_fault_at(i)->summary, COLUMN, COLUMN);
  }
}

static json_t *json_of(const kvs_fault *f) {
  return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:b}", "name", f->name, "kind", f->kind,
                   "summary", f->summary, "right_line", f->right_line, "wrong_line", f->wrong_line, "effect", f->effect,
                   "seen", f->seen, "detect", f->detect, "sql", f->sql, "from_start", f->from_start, "fills_context",
                   f->fills_context);
}

static int put_json(const kvs_fault *only) {
  json_t *all = json_array();
  for (int i = 0; kvs_fault_at(i); i++)
    if (!only || only == kvs_fault_at(i)) json_array_append_new(all, json_of(kvs_fault_at(i)));
  char *text = all ? json_dumps(all, JSON_INDENT(2)) : NULL;
  json_decref(all);
  if (!text) return report(&(kvs_error){KVS_ERR_MEMORY, "out of memory while writing JSON"});
  puts(text);
  free(text);
  return EXIT_OK;
}

/* A paragraph with a title, if any, whose text begins with a capital. */
static void put_paragraph(const char *title, const char *text) {
  printf("%s%c%s.\n\n", title, toupper((unsigned char)text[0]), text + 1);
}

/* A page of docs/faults. */
static void put_page(const kvs_fault *f) {
  printf("# %s\n\n", f->name);
  put_paragraph("", f->summary);
  printf("```c\n%s   // right\n%s   // wrong\n```\n\n", f->right_line, f->wrong_line);
  put_paragraph("**What happens.** ", f->effect);
  printf("**Where it was seen** (repository#issue, on GitHub). %s.\n\n", f->seen);
  put_paragraph("**How it is found** (by which of [the rules](../check.md#the-rules)). ", f->detect);
  put_paragraph("**When kvstep lets it begin.** ", start_of(f));
  printf("**See it.** A correct run and a broken one in one file, what got worse, what `check` says, and a query (for\n"
         "`kvstep sql lab.db` or `sqlite3 -box lab.db`) that returns rows for the broken run only. Uninstalled, kvstep "
         "is `./kvstep`:\n\n");
  printf("```sh\nkvstep run -p 'It is a truth' -n 12 -o lab.db --force\n"
         "kvstep run -p 'It is a truth' -n 12 -o lab.db --append --fault %s\n",
         f->name);
  if (f->fills_context) /* its prompt is another one: there is no pair of runs to compare in the file */
    printf("kvstep compare --fault %s\nkvstep check lab.db\n```\n\n", f->name);
  else
    puts("kvstep compare lab.db\nkvstep check lab.db\n```\n");
  printf("```sql\n%s;\n```\n\nOther kinds: [the list](README.md).\n", f->sql);
}

static void put_index(void) {
  puts("# The cache bugs that kvstep injects\n\n"
       "Each is a function of a few lines in `src/engine/fault_*.c` and a row in a table there, from which these pages "
       "are "
       "made\n(`make fault-pages`). `kvstep faults NAME` shows the same. Found by: D1 to D14 are [the "
       "rules](../check.md#the-rules) of "
       "`kvstep check`.\nP is the cache length before the append, t the position.\n\n"
       "| name | what the mistaken code does | found by |\n|---|---|---|");
  for (int i = 0; kvs_fault_at(i); i++) {
    const kvs_fault *f = kvs_fault_at(i);
    printf("| [%s](%s.md) | %s | %s |\n", f->name, f->name, f->summary, f->detect);
  }
}

static int run_faults(const struct command *command, struct arguments *arguments) {
  struct values v = {.format = FORMAT_TEXT};
  const kvs_fault *f = NULL;
  int code = parse_options(command, arguments, &v);
  if (code >= 0) return code;
  if (arguments->count && strcmp(arguments->at[0], "none") == 0) {
    puts("none: the correct step");
    return finish_stdout(EXIT_OK);
  }
  if (arguments->count) code = find_fault(command, arguments->at[0], &f);
  if (code >= 0) return code;
  code = EXIT_OK;
  if (v.format == FORMAT_JSON)
    code = put_json(f);
  else if (v.format == FORMAT_MARKDOWN)
    f ? put_page(f) : put_index();
  else
    f ? put_fault(f) : put_list();
  return finish_stdout(code);
}

static const char *const formats[] = {"text", "json", "markdown", NULL};
static const struct option options[] = {
    {.name = "output",
     .letter = 'o',
     .kind = OPTION_CHOICE,
     .argument = "FORMAT",
     .offset = offsetof(struct values, format),
     .choices = formats,
     .help = "text (default), json, or markdown, as in docs/faults"},
    {0},
};
static const struct positional positionals[] = {
    {.name = "NAME", .help = "show this fault's right and wrong line of code", .completion = "fault", .optional = true},
    {0},
};
const struct command command_faults = {
    .name = "faults",
    .summary = "the cache bugs that can be injected",
    .description =
        "Lists the KV-cache bugs that `run`, `compare` and `verify` inject with --fault, a line each; with a NAME, "
        "shows the line of code as it should be and as it is mistakenly written, what it does, where it was seen, how "
        "it is found, and a query that shows it in a trace.",
    .examples = "  kvstep faults\n  kvstep faults off-by-one\n  kvstep faults -o json\n",
    .positionals = positionals,
    .options = options,
    .run = run_faults,
};
