/* import.h: what another engine dumped, arrays in .npz, .npy or JSON, made into a run of a trace. docs/recording.md has the layout. */
#ifndef KVS_IMPORT_IMPORT_H
#define KVS_IMPORT_IMPORT_H

#include "kvstep/trace.h"

/* What the files do not say, or what overrules them. 0 and NULL: not given. */
typedef struct import_options {
  const char *map; /* "k=my_keys,v=my_values": the array my_keys is k */
  int prompt_length, n_head, n_ctx;
  const char *model;      /* directory or built-in: shape, SHA-256 and the tokens' texts */
  const char *vocabulary; /* the same for the tokens' texts alone, where there is no model */
  const char *name;       /* of the model, to show, where there is none */
  const char *command;    /* the command line */
} import_options;

typedef struct import_result {
  int run, steps, n_layer;
} import_result;

/* Is told, one line each, what was left out or taken for granted. */
typedef void import_note(void *context, const char *note);

/* Reads the files, checks everything, and writes the run in one transaction: the trace gets all of it or is left as it was (and is not
 * made if it was not there). Errors: KVS_ERR_INPUT (what contradicts what, and the remedy), KVS_ERR_IO, KVS_ERR_MEMORY, KVS_ERR_USAGE
 * (a map that is none). */
kvs_status import_files(const char *const *paths, int count, const import_options *options, const char *trace,
                        kvs_trace_open_mode mode, import_note *note, void *context, import_result *result,
                        kvs_error *err);

#endif
