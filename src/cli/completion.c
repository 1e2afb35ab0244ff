/* completion.c: `kvstep completion`: scripts for bash, zsh and fish, made from the commands' tables. */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/help.h"
#include "cli/out.h"
#include "kvstep/kvstep.h"

/* The words that complete an argument of this kind, separated by blanks; nothing when files do. */
static void put_words(const char *kind, const char *const *choices) {
  const char *separator = "";
  for (int i = 0; choices && choices[i]; i++, separator = " ") printf("%s%s", separator, choices[i]);
  if (!kind) return;
  for (int i = 0; strcmp(kind, "model") == 0 && kvs_builtin_at(i); i++, separator = " ")
    printf("%s%s", separator, kvs_builtin_at(i)->name);
  for (int i = 0; strcmp(kind, "fault") == 0 && kvs_fault_at(i); i++, separator = " ")
    printf("%s%s", separator, kvs_fault_at(i)->name);
  for (int i = 0; strcmp(kind, "command") == 0 && command_at(i); i++, separator = " ")
    printf("%s%s", separator, command_at(i)->name);
}

static bool takes_file(const char *kind) { return kind && (strcmp(kind, "file") == 0 || strcmp(kind, "model") == 0); }

static void put_option_words(const struct option *options) {
  for (const struct option *o = options; o && o->name; o++) {
    printf(" --%s", o->name);
    if (o->letter) printf(" -%c", o->letter);
  }
}

static void bash(void) {
  puts("# bash completion for kvstep\n_kvstep() {\n"
       "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words= files=\n"
       "  case ${COMP_CWORD}:${COMP_WORDS[1]}:$before in");
  fputs("  1:*) words='", stdout);
  put_words("command", NULL);
  puts(" --help --version' ;;");
  for (int i = 0; command_at(i); i++) {
    const struct command *c = command_at(i);
    for (const struct option *o = c->options; o && o->name; o++) {
      if (!o->argument) continue;
      printf("  *:%s:--%s", c->name, o->name);
      if (o->letter) printf("|*:%s:-%c", c->name, o->letter);
      fputs(") words='", stdout);
      put_words(o->completion, o->choices);
      printf("'%s ;;\n", takes_file(o->completion) ? " files=1" : "");
    }
    printf("  *:%s:*) words='", c->name);
    const struct positional *p = c->positionals;
    if (p) put_words(p->completion, NULL);
    put_option_words(c->options);
    put_option_words(common_options);
    printf("'%s ;;\n", p && takes_file(p->completion) ? " files=1" : "");
  }
  puts("  esac\n"
       "  COMPREPLY=( $(compgen -W \"$words\" -- \"$word\") )\n"
       "  if [ -n \"$files\" ]; then COMPREPLY+=( $(compgen -f -- \"$word\") ); fi\n"
       "}\ncomplete -o filenames -F _kvstep kvstep");
}

/* Text inside single quotes of a shell; for zsh's _arguments brackets and colons are special too. */
static void put_quoted(const char *text, const char *escape) {
  for (; *text; text++) {
    if (*text == '\'')
      fputs("'\\''", stdout);
    else if (strchr(escape, *text))
      printf("\\%c", *text);
    else
      putchar(*text);
  }
}

static void zsh_option(const struct option *o) {
  for (int is_long = 0; is_long < 2; is_long++) {
    if (!is_long && !o->letter) continue;
    if (is_long)
      printf(" \\\n      '--%s%s[", o->name, o->argument ? "=" : "");
    else
      printf(" \\\n      '-%c%s[", o->letter, o->argument ? "+" : "");
    put_quoted(o->help, "[]:\\");
    fputs("]", stdout);
    if (o->argument) {
      printf(":%s:", o->argument);
      if (takes_file(o->completion))
        fputs("_files", stdout);
      else {
        fputs("(", stdout);
        put_words(o->completion, o->choices);
        fputs(")", stdout);
      }
    }
    fputs("'", stdout);
  }
}

static void zsh(void) {
  puts("#compdef kvstep\n_kvstep() {\n  local -a commands=(");
  for (int i = 0; command_at(i); i++) {
    printf("    '%s:", command_at(i)->name);
    put_quoted(command_at(i)->summary, ":\\");
    puts("'");
  }
  puts("  )\n  if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
       "  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $command in");
  for (int i = 0; command_at(i); i++) {
    const struct command *c = command_at(i);
    printf("  %s)\n    _arguments -s", c->name);
    for (const struct option *o = c->options; o && o->name; o++) zsh_option(o);
    zsh_option(common_options);
    for (const struct positional *p = c->positionals; p && p->name; p++) {
      printf(" \\\n      '%s%s:", p->many ? "*:" : p->optional ? ":" : "", p->name);
      if (p->completion && !takes_file(p->completion)) {
        fputs("(", stdout);
        put_words(p->completion, NULL);
        fputs(")'", stdout);
      } else {
        fputs(p->completion ? "_files'" : "'", stdout);
      }
    }
    puts(" ;;");
  }
  puts("  esac\n}\n_kvstep \"$@\"");
}

static void fish_option(const struct command *c, const struct option *o) {
  if (c)
    printf("complete -c kvstep -n '__fish_seen_subcommand_from %s' -l %s", c->name, o->name);
  else
    printf("complete -c kvstep -l %s", o->name);
  if (o->letter) printf(" -s %c", o->letter);
  if (o->argument) {
    fputs(takes_file(o->completion) ? " -rF -a '" : " -x -a '", stdout);
    put_words(o->completion, o->choices);
    fputs("'", stdout);
  }
  fputs(" -d '", stdout);
  put_quoted(o->help, "\\");
  puts("'");
}

static void fish(void) {
  puts("# fish completion for kvstep");
  for (int i = 0; command_at(i); i++) {
    const struct command *c = command_at(i);
    printf("complete -c kvstep -f -n __fish_use_subcommand -a %s -d '", c->name);
    put_quoted(c->summary, "\\");
    puts("'");
    for (const struct option *o = c->options; o && o->name; o++) fish_option(c, o);
    const struct positional *p = c->positionals;
    if (p && p->completion && !takes_file(p->completion)) {
      printf("complete -c kvstep -f -n '__fish_seen_subcommand_from %s' -a '", c->name);
      put_words(p->completion, NULL);
      puts("'");
    }
  }
  fish_option(NULL, common_options);
}

static int run_completion(const struct command *command, struct arguments *arguments) {
  int code = parse_options(command, arguments, NULL);
  if (code >= 0) return code;
  const char *shell = arguments->at[0];
  if (strcmp(shell, "bash") == 0)
    bash();
  else if (strcmp(shell, "zsh") == 0)
    zsh();
  else if (strcmp(shell, "fish") == 0)
    fish();
  else
    return usage_error(command, "unknown shell `%s`; it is one of bash, zsh, fish", shell);
  return finish_stdout(EXIT_OK);
}

static const struct positional positionals[] = {
    {.name = "SHELL", .help = "bash, zsh or fish"},
    {0},
};
const struct command command_completion = {
    .name = "completion",
    .summary = "a shell's completion script",
    .description = "Prints a script that completes kvstep's commands, options and their values.",
    .examples = "  source <(kvstep completion bash)\n"
                "  kvstep completion zsh > ~/.zfunc/_kvstep\n"
                "  kvstep completion fish > ~/.config/fish/completions/kvstep.fish\n",
    .positionals = positionals,
    .run = run_completion,
};
