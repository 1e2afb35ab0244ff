/* help.h: the help texts, the manual page and the shells' completion, all made from the commands' tables. */
#ifndef KVS_CLI_HELP_H
#define KVS_CLI_HELP_H

#include "cli/options.h"

/* Each prints on stdout and returns the exit code. */
int help_overview(void);
int help_command(const struct command *command);

/* Prints text folded at 80 columns; the first line begins at `column`, the others at `indent`. Ends the last line. */
void put_wrapped(const char *text, int column, int indent);

#endif
