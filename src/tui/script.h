/* script.h: the screen without a terminal: keystrokes from a file, pictures into files. The same file gives the same bytes. */
#ifndef KVS_TUI_SCRIPT_H
#define KVS_TUI_SCRIPT_H

#include <stdbool.h>

#include "kvstep/error.h"
#include "kvstep/model.h"

struct live;
struct look;
struct start;

struct script_options {
  const char *name; /* of the trace, as shown */
  const struct start *start;
  const kvs_model *model; /* that decoded the trace, as in drive_set_model; NULL: none is at hand */
  struct live *live;      /* as in drive_set_live */
  const char *no_live;
  const char *path; /* of the keys */
  int rows, columns;
  bool ascii;
  int depth;          /* of pictures, an enum depth; −1: 256 colours */
  long long patience; /* instructions of SQLite's machine that one question may take; 0: SCRIPT_PATIENCE */
};

/* Some ten seconds of work; counted, not timed, so that the same script ends alike on every machine. */
#define SCRIPT_PATIENCE 1000000000LL

/* Plays the file: on each line names of keys or actions, separated by blanks, or a command after ':'; from '#' at a word's
 * beginning on, a comment. Ends at the file's end or where the keys quit.
 * Errors: KVS_ERR_IO (no such file), KVS_ERR_INPUT (naming file and line: an unknown word, a command that failed, a
 * question without an end), KVS_ERR_MEMORY. */
kvs_status script_run(struct look *look, const struct script_options *options, kvs_error *err);

#endif
