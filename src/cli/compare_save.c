/* compare_save.c: the runs that `kvstep compare --fault` compared, written to a trace with their divergence. */
#include "cli/compare_save.h"

#include <stdlib.h>

#include "cli/compare_out.h"
#include "cli/out.h"
#include "study/compare/compare_trace.h"

/* One run of the saved trace. */
static kvs_status save_run(const struct session *s, struct compare_live *live, kvs_trace *trace, const kvs_fault *fault,
                           const kvs_fault *prompt_of, const char *line, int *run, kvs_error *err) {
  const int *tokens;
  int prompt, count;
  struct vocabulary vocabulary = {.tokenizer = s->tokenizer};
  kvs_status status = compare_live_tokens(live, prompt_of, &tokens, &prompt, &count, err);
  if (status != KVS_OK) return status;
  size_t length;
  char *bytes = vocabulary_bytes(&vocabulary, tokens, prompt, &length);
  if (!bytes) return kvs_fail_memory(err, "saving the runs");
  kvs_run_info info = {.command = line,
                       .fault = fault,
                       .fault_from_step = compare_live_from(live, fault, prompt),
                       .sampling = {.top_p = 1},
                       .prompt = bytes,
                       .prompt_length = length};
  status = kvs_trace_begin_run(trace, s->model, s->tokenizer, &info, NULL, run, err);
  free(bytes);
  kvs_observer observer = kvs_trace_observer(trace);
  if (status == KVS_OK) status = compare_live_replay(live, fault, prompt_of, &observer, err);
  return status == KVS_OK ? kvs_trace_end_run(trace, err) : status;
}

/* The correct run, once for each prompt that is needed, and each fault's. */
static kvs_status save_runs(const struct session *s, struct compare_live *live, kvs_trace *trace, const char *line,
                            const kvs_fault *const *faults, struct comparison *comparisons, int count, kvs_error *err) {
  int correct[2] = {0, 0};
  kvs_status status = KVS_OK;
  for (int i = 0; status == KVS_OK && i < count; i++) {
    int *run = &correct[faults[i]->fills_context];
    if (!*run) status = save_run(s, live, trace, NULL, faults[i], line, run, err);
    comparisons[i].run_a = *run;
    if (status == KVS_OK) status = save_run(s, live, trace, faults[i], faults[i], line, &comparisons[i].run_b, err);
  }
  return status;
}

int compare_save(const struct session *s, struct compare_live *live, const char *path, bool store, const char *line,
                 const kvs_fault *const *faults, struct comparison *comparisons, int count) {
  kvs_error err, close_err;
  kvs_trace *trace = NULL;
  if (kvs_trace_create(path, KVS_TRACE_NEW, &trace, &err) != KVS_OK) return report(&err);
  kvs_status status = save_runs(s, live, trace, line, faults, comparisons, count, &err);
  if (kvs_trace_close(trace, &close_err) != KVS_OK && status == KVS_OK) {
    err = close_err;
    status = err.status;
  }
  if (status == KVS_OK && store) status = compare_store(path, comparisons, count, &err);
  return status == KVS_OK ? -1 : report(&err);
}
