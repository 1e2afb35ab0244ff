/* check_out.h: what `kvstep check` found, as a text, as CSV and as JSON; to stdout. */
#ifndef KVS_CLI_CHECK_OUT_H
#define KVS_CLI_CHECK_OUT_H

#include "study/check/check.h"

/* The reports of a trace. */
struct check_job {
  const char *path; /* of the trace, as it was given */
  const struct check_report *reports;
  size_t count;
};

void check_put_table(const struct check_job *job);
void check_put_csv(const struct check_job *job);
/* `code`: the exit status that will be. KVS_ERR_MEMORY. */
kvs_status check_put_json(const struct check_job *job, int code, kvs_error *err);

#endif
