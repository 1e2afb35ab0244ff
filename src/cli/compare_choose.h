/* compare_choose.h: what `kvstep compare` compares: two runs of a trace, or a model with faults. */
#ifndef KVS_CLI_COMPARE_CHOOSE_H
#define KVS_CLI_COMPARE_CHOOSE_H

#include "cli/options.h"
#include "study/compare/compare_trace.h"

#define COMPARE_MOST 256 /* comparisons at once */

/* The runs that are named after the trace, or all that are worth comparing. pairs [COMPARE_MOST]. Returns -1, or the exit code
 * after a message. */
int compare_choose_pairs(const struct command *command, const struct arguments *arguments, struct look *look,
                         struct compare_pair *pairs, int *count);

/* Says so if the runs have different prompts: they part where the prompts do. */
void compare_note_prompts(struct look *look, const struct compare_pair *pair);

/* Of "off-by-one,skip-wpe" or "all". faults [COMPARE_MOST]. Returns as compare_choose_pairs does. */
int compare_choose_faults(const struct command *command, const char *names, const kvs_fault **faults, int *count);

#endif
