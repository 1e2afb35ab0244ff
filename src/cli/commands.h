/* commands.h: the subcommands, each in a file of its own; main.c lists them. */
#ifndef KVS_CLI_COMMANDS_H
#define KVS_CLI_COMMANDS_H

#include "cli/options.h"

extern const struct command command_run, command_show, command_info, command_sql, command_verify, command_check,
    command_compare, command_import, command_models, command_faults, command_view, command_help, command_man,
    command_completion;

/* What `kvstep` without a command does on a terminal: the screen on a built-in model, in a trace that is gone afterwards.
 * Returns the exit code. */
int view_demo(void);

#endif
