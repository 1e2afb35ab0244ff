/* commands.h: the subcommands, each in a file of its own; main.c lists them. */
#ifndef KVS_CLI_COMMANDS_H
#define KVS_CLI_COMMANDS_H

#include "cli/options.h"

extern const struct command command_run, command_show, command_info, command_sql, command_verify, command_models,
    command_faults, command_help, command_man, command_completion;

#endif
