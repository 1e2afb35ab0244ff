/* compare_choose.c: what is compared with what: runs of a trace, or faults by their names. */
#include "cli/compare_choose.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/model_files.h"
#include "cli/out.h"

/* ---- two runs of a trace ------------------------------------------------------------------------------------------ */

static int run_number(const struct command *command, const char *word, int *run) {
  char *end;
  long number = strtol(word, &end, 10);
  if (*word < '0' || *word > '9' || *end || number < 1 || number > INT_MAX - 1)
    return usage_error(command, "`%s` is no run; runs are numbers from 1 on, and `kvstep info TRACE` lists them", word);
  *run = (int)number;
  return -1;
}

/* Runs that were stopped before their first step, or have just begun. */
static void note_left_out(struct look *look) {
  long long first;
  int count = compare_count_empty(look, &first);
  if (count == 1)
    fprintf(stderr, "kvstep: note: run %lld has no steps, so it is left out\n", first);
  else if (count > 1)
    fprintf(stderr, "kvstep: note: %d runs have no steps, run %lld the first of them; they are left out\n", count,
            first);
}

int compare_choose_pairs(const struct command *command, const struct arguments *arguments, struct look *look,
                         struct compare_pair *pairs, int *count) {
  if (arguments->count == 2) return usage_error(command, "one run is named, and two are compared: RUN_A and RUN_B");
  if (arguments->count == 3) {
    int code = run_number(command, arguments->at[1], &pairs[0].run_a);
    if (code < 0) code = run_number(command, arguments->at[2], &pairs[0].run_b);
    *count = 1;
    if (code < 0 && pairs[0].run_a == pairs[0].run_b) return usage_error(command, "a run is not compared with itself");
    return code;
  }
  note_left_out(look);
  *count = compare_pairs(look, pairs, COMPARE_MOST);
  if (*count == COMPARE_MOST)
    fprintf(stderr, "kvstep: note: the first %d pairs are compared; name two runs for others\n", COMPARE_MOST);
  if (*count) return -1;
  fputs("kvstep: no two runs of this trace have steps and the same prompt; add one with kvstep run … -o TRACE --append "
        "--fault NAME, name two, as 1 2, or let kvstep compare --fault NAME make both\n",
        stderr);
  return EXIT_BAD;
}

/* Runs that were named may be of different prompts. */
void compare_note_prompts(struct look *look, const struct compare_pair *pair) {
  char prompt[sizeof((struct look_run *)0)->prompt];
  const struct look_run *run = look_run(look, pair->run_a);
  if (!run) return;
  memcpy(prompt, run->prompt, sizeof prompt);
  run = look_run(look, pair->run_b);
  if (run && strcmp(prompt, run->prompt) != 0)
    fprintf(stderr, "kvstep: note: runs %d and %d have different prompts\n", pair->run_a, pair->run_b);
}

/* ---- faults ------------------------------------------------------------------------------------------------------- */

int compare_choose_faults(const struct command *command, const char *names, const kvs_fault **faults, int *count) {
  *count = 0;
  if (strcmp(names, "all") == 0) {
    for (int i = 0; kvs_fault_at(i) && i < COMPARE_MOST; i++) faults[(*count)++] = kvs_fault_at(i);
    return -1;
  }
  for (const char *name = names; name;) {
    char one[128];
    snprintf(one, sizeof one, "%.*s", (int)strcspn(name, ","), name);
    const kvs_fault *fault = NULL;
    int code = find_fault(command, one, &fault);
    if (code >= 0) return code;
    if (!fault) return usage_error(command, "--fault %s: `none` is what the faults are compared with", names);
    for (int i = 0; i < *count; i++)
      if (faults[i] == fault) return usage_error(command, "--fault: %s is named twice", one);
    if (*count == COMPARE_MOST) return usage_error(command, "--fault: more than %d names", COMPARE_MOST);
    faults[(*count)++] = fault;
    name = strchr(name, ',');
    if (name) name++;
  }
  return -1;
}
