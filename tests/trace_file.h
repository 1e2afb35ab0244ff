/* trace_file.h: what the tests of the trace as a file share. */
#ifndef KVS_TESTS_TRACE_FILE_H
#define KVS_TESTS_TRACE_FILE_H

#include "trace_maker.h"

static kvs_trace *trace;

static UNUSED kvs_status begin(const kvs_trace_source *source) {
  return kvs_trace_begin_run_from(trace, source, NULL, NULL, NULL, &error);
}

#endif
