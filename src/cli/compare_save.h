/* compare_save.h: writing the runs of a live comparison to a new trace. */
#ifndef KVS_CLI_COMPARE_SAVE_H
#define KVS_CLI_COMPARE_SAVE_H

#include "cli/model_files.h"
#include "study/compare/compare_live.h"

/* Writes the correct run and each fault's, teacher-forced, and with `store` how far they are apart; the comparisons get their runs'
 * numbers. Returns -1, or the exit code after a message. */
int compare_save(const struct session *session, struct compare_live *live, const char *path, bool store,
                 const char *line, const kvs_fault *const *faults, struct comparison *comparisons, int count);

#endif
