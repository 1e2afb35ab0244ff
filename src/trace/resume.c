/* resume.c: more steps for a run that is there already; and leaving a run as it is. */
#include "trace/store.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>

/* Beyond all events that INT_MAX steps can have. */
#define LAST_SEQ (INT64_MAX / 2)

/* A run that is there, of this engine: where its steps and events end. */
static kvs_status find_end(kvs_trace *trace, int run, int *last_step, int64_t *last_seq, kvs_error *err) {
  sqlite3_stmt *select;
  kvs_status status = kvs_trace_prepare(
      trace,
      "SELECT engine IS 'kvstep', coalesce((SELECT max(step) FROM step WHERE run = ?1), -1), coalesce((SELECT seq FROM "
      "event WHERE run = ?1 ORDER BY step DESC, seq DESC LIMIT 1), -1) FROM run WHERE run = ?1",
      &select, err);
  if (status != KVS_OK) return status;
  sqlite3_bind_int(select, 1, run);
  int rc = sqlite3_step(select);
  if (rc == SQLITE_DONE) {
    status = kvs_fail(err, KVS_ERR_INPUT, "%s: there is no run %d in it", trace->path, run);
  } else if (rc != SQLITE_ROW) {
    status = kvs_trace_fail(trace, rc, err);
  } else if (!sqlite3_column_int(select, 0)) {
    status =
        kvs_fail(err, KVS_ERR_INPUT, "%s: run %d was recorded by another engine, so no step of this one is added to it",
                 trace->path, run);
  } else {
    int64_t step = sqlite3_column_int64(select, 1);
    *last_seq = sqlite3_column_int64(select, 2);
    *last_step = (int)step;
    if (step < -1 || step >= INT_MAX || *last_seq < -1 || *last_seq >= LAST_SEQ)
      status = kvs_fail(err, KVS_ERR_INPUT,
                        "%s: the last step of run %d is number %lld, its last event number %lld, and no more can "
                        "follow; begin a new run",
                        trace->path, run, (long long)step, (long long)*last_seq);
  }
  sqlite3_finalize(select);
  return status;
}

static kvs_status resume_run(kvs_trace *trace, const kvs_trace_source *source, int run, const kvs_log *log,
                             kvs_error *err) {
  int last_step = -1;
  int64_t last_seq = -1;
  kvs_status status = kvs_trace_set_log(trace, log, err);
  if (status == KVS_OK) status = kvs_trace_open(trace, source->config, err);
  if (status == KVS_OK) status = kvs_trace_begin(trace, err);
  if (status == KVS_OK && !trace->checked) status = kvs_trace_prepare_file(trace, source, err);
  if (status == KVS_OK) status = find_end(trace, run, &last_step, &last_seq, err);
  if (status == KVS_OK) status = kvs_trace_prepare_inserts(trace, err);
  if (status == KVS_OK) status = kvs_trace_commit(trace, err);
  if (status != KVS_OK) return status;
  trace->run = run;
  trace->seq = last_seq + 1;
  trace->last_step_reported = trace->last_step_kept = last_step;
  trace->reopens = true;
  return KVS_OK;
}

kvs_status kvs_trace_reopen_run(kvs_trace *trace, kvs_error *err) {
  sqlite3_stmt *update;
  kvs_status status = kvs_trace_prepare(trace, "UPDATE run SET finished_at = NULL WHERE run = ?1", &update, err);
  if (status != KVS_OK) return status;
  sqlite3_bind_int(update, 1, trace->run);
  status = kvs_trace_run(trace, update, err);
  sqlite3_finalize(update);
  return status;
}

kvs_status kvs_trace_resume_run(kvs_trace *trace, kvs_model *model, const kvs_tokenizer *tokenizer, int run,
                                const kvs_log *log, kvs_error *err) {
  kvs_trace_source source;
  kvs_status status = kvs_trace_source_of(model, tokenizer, &source, err);
  if (status == KVS_OK) status = kvs_trace_finish_writing(trace, err);
  if (status != KVS_OK) return status;
  kvs_trace_leave_run(trace);
  trace->source = source;
  trace->config = *source.config;
  status = resume_run(trace, &source, run, log, err);
  if (status != KVS_OK) kvs_trace_leave_run(trace);
  return status;
}

/* A run that has come to nothing. If it cannot be taken out, it stays as one that was not finished. */
static void remove_run(kvs_trace *trace) {
  char sql[64];
  snprintf(sql, sizeof sql, "DELETE FROM run WHERE run = %d", trace->run);
  if (sqlite3_exec(trace->db, sql, NULL, NULL, NULL) != SQLITE_OK) trace->left_run = trace->run;
}

int kvs_trace_leave_run(kvs_trace *trace) {
  kvs_trace_drain(trace);
  kvs_trace_take_back(trace);
  int steps = trace->last_step_kept + 1;
  if (trace->run != 0 && steps == 0) remove_run(trace);
  kvs_trace_forget_run(trace);
  return steps;
}
