/* observer.c: what the engine tells is put on a tape, and written to the file while the next steps are decoded. There are two tapes:
 * one is being filled, the other one waits to be written, is being written, or is empty. Whoever takes the waiting tape has the
 * connection to the file until it is written: the thread that calls `behind`, or who needs the file before that.
 *
 * A transaction costs the last page of each table once more, whatever is added to them: more than the step of a large model
 * itself. So a few steps that follow each other fast are handed over, and committed, together. */
#include "trace/store.h"

#include "base/clock.h"

/* What a tape may hold that is not settled: a decode step of GPT-2 small with a full context. A prefill's batch is a hundred
 * times that, and is then written piece by piece, in its one transaction, as it is told. With as much in whole steps it is handed
 * over. */
enum { TAPE_LIMIT = 2 << 20 };

/* How many steps are handed over together, and how long the first of them may wait for the others: a program that is killed
 * loses no more than are on the two tapes, and who reads the file meanwhile does not see it lag. */
enum { TOGETHER = 4 };
static const double PATIENCE = 0.1;

/* ---- writing a tape -------------------------------------------------------------------------------------------- */

/* Begins the transaction of a step or batch if none is open. */
static kvs_status ready(kvs_trace *trace, kvs_error *err) {
  if (trace->in_transaction) return KVS_OK;
  kvs_status status = kvs_trace_begin(trace, err);
  return status == KVS_OK && trace->reopens ? kvs_trace_reopen_run(trace, err) : status;
}

/* Writes what lies before `end` and takes it off the tape. `settled`: it ends with a step or batch that is complete. An error takes
 * the whole transaction back: no half step is ever committed. */
static kvs_status write_tape(kvs_trace *trace, kvs_tape *tape, size_t end, bool settled, kvs_error *err) {
  const kvs_tape_entry *entry;
  size_t at = 0;
  kvs_status status = ready(trace, err);
  while (status == KVS_OK && (entry = kvs_tape_next(tape, &trace->config, end, &at)))
    status = entry->step_end ? kvs_trace_write_step(trace, &entry->step, err)
                             : kvs_trace_write_moment(trace, &entry->moment, err);
  kvs_tape_drop(tape, end);
  if (status == KVS_OK && settled && !trace->whole) status = kvs_trace_commit(trace, err);
  if (status != KVS_OK) kvs_trace_rollback(trace);
  if (status != KVS_OK || settled) kvs_trace_forget_inputs(trace);
  return status;
}

/* Writes the steps of a tape that this thread has to itself. What goes wrong is kept for the next call that can tell it; nothing
 * follows a step that was lost. */
static void write_steps(kvs_trace *trace, kvs_tape *tape) {
  kvs_error err = {KVS_OK, ""};
  if (trace->failed) kvs_tape_drop(tape, tape->settled);
  if (tape->settled == 0 || write_tape(trace, tape, tape->settled, true, &err) == KVS_OK) return;
  pthread_mutex_lock(&trace->mutex);
  trace->late = err, trace->failed = true;
  pthread_mutex_unlock(&trace->mutex);
}

/* Writes the waiting tape, if there is one that nobody has taken. */
static void write_waiting(kvs_trace *trace) {
  pthread_mutex_lock(&trace->mutex);
  bool mine = trace->other == KVS_TAPE_WAITING;
  kvs_tape *tape = &trace->tapes[!trace->filling];
  if (mine) trace->other = KVS_TAPE_TAKEN;
  pthread_mutex_unlock(&trace->mutex);
  if (!mine) return;
  write_steps(trace, tape);
  pthread_mutex_lock(&trace->mutex);
  trace->other = KVS_TAPE_WRITTEN;
  pthread_cond_broadcast(&trace->written);
  pthread_mutex_unlock(&trace->mutex);
}

/* Waits until the tape that is not being filled is written; writes it, if nobody has begun to. */
static void finish_other(kvs_trace *trace) {
  write_waiting(trace);
  pthread_mutex_lock(&trace->mutex);
  while (trace->other == KVS_TAPE_TAKEN) pthread_cond_wait(&trace->written, &trace->mutex);
  pthread_mutex_unlock(&trace->mutex);
}

void kvs_trace_drain(kvs_trace *trace) {
  finish_other(trace);
  write_steps(trace, &trace->tapes[trace->filling]);
  trace->handed_over = 0; /* who wants the file may want it after the next step as well */
}

/* What went wrong since the last call, told once; *failed says whether this or anything earlier has lost a step of the run. */
static kvs_status tell_late(kvs_trace *trace, bool *failed, kvs_error *err) {
  pthread_mutex_lock(&trace->mutex);
  kvs_status status = trace->late.status;
  if (status != KVS_OK && err) *err = trace->late;
  trace->late.status = KVS_OK;
  *failed = trace->failed;
  pthread_mutex_unlock(&trace->mutex);
  return status;
}

kvs_status kvs_trace_finish_writing(kvs_trace *trace, kvs_error *err) {
  bool failed;
  kvs_trace_drain(trace);
  return tell_late(trace, &failed, err);
}

void kvs_trace_take_back(kvs_trace *trace) {
  kvs_trace_rollback(trace);
  kvs_trace_forget_inputs(trace);
  trace->has_pieces = false;
  kvs_tape *tape = &trace->tapes[trace->filling];
  kvs_tape_drop(tape, tape->used);
}

static kvs_status refuse_lost(kvs_trace *trace, kvs_error *err) {
  return kvs_fail(err, KVS_ERR_USAGE, "%s: a step of this run was lost, so no more can follow; begin a new run",
                  trace->path);
}

kvs_status kvs_trace_settle(kvs_trace *trace, kvs_error *err) {
  kvs_status status = kvs_trace_finish_writing(trace, err);
  return status == KVS_OK && trace->failed ? refuse_lost(trace, err) : status;
}

/* ---- the observer ---------------------------------------------------------------------------------------------- */

/* May anything be told now? */
static kvs_status check(kvs_trace *trace, kvs_error *err) {
  bool failed;
  kvs_status status = tell_late(trace, &failed, err);
  if (status != KVS_OK) return status;
  if (trace->run == 0)
    return kvs_fail(err, KVS_ERR_USAGE, "%s: a step, but no run is open; begin a run first", trace->path);
  return failed ? refuse_lost(trace, err) : KVS_OK;
}

/* What is told now is lost, and with it its step; the step before is not, and may be being written. */
static kvs_status lose(kvs_trace *trace, kvs_status status) {
  kvs_trace_drain(trace);
  kvs_trace_take_back(trace);
  trace->failed = true;
  return status;
}

/* After something was added: `status` is what that gave. */
static kvs_status added(kvs_trace *trace, kvs_status status, kvs_error *err) {
  kvs_tape *tape = &trace->tapes[trace->filling];
  if (status != KVS_OK) return lose(trace, status);
  if (tape->used - tape->settled <= TAPE_LIMIT) return KVS_OK;
  status = kvs_trace_finish_writing(trace, err);
  trace->has_pieces = true;
  if (status == KVS_OK) status = write_tape(trace, tape, tape->used, false, err);
  return status == KVS_OK ? KVS_OK : lose(trace, status);
}

static kvs_status on_moment(void *context, const kvs_moment *m, kvs_error *err) {
  kvs_trace *trace = context;
  kvs_status status = check(trace, err);
  if (status != KVS_OK) return status;
  status = kvs_tape_add_moment(&trace->tapes[trace->filling], &trace->config, trace->heads, m,
                               kvs_trace_wants(trace, m), err);
  return added(trace, status, err);
}

static kvs_status on_step_end(void *context, const kvs_step *step, kvs_error *err) {
  kvs_trace *trace = context;
  kvs_status status = check(trace, err);
  if (status != KVS_OK) return status;
  return added(trace, kvs_tape_add_step(&trace->tapes[trace->filling], step, err), err);
}

static kvs_status on_settled(void *context, kvs_error *err) {
  kvs_trace *trace = context;
  kvs_tape *tape = &trace->tapes[trace->filling];
  kvs_status status = check(trace, err);
  if (status != KVS_OK) return status;
  if (trace->has_pieces) {
    trace->has_pieces = false;
    status = write_tape(trace, tape, tape->used, true, err);
    return status == KVS_OK ? KVS_OK : lose(trace, status);
  }
  tape->settled = tape->used;
  double now = kvs_now();
  if (++trace->together < TOGETHER && tape->settled < TAPE_LIMIT && now - trace->handed_over < PATIENCE) return KVS_OK;
  finish_other(trace);
  status = check(trace, err);
  if (status != KVS_OK) return status;
  trace->handed_over = now;
  trace->together = 0;
  pthread_mutex_lock(&trace->mutex);
  trace->filling = !trace->filling;
  trace->other = KVS_TAPE_WAITING;
  pthread_mutex_unlock(&trace->mutex);
  return KVS_OK;
}

static void behind(void *context) { write_waiting(context); }

kvs_observer kvs_trace_observer(kvs_trace *trace) {
  return (kvs_observer){
      .context = trace, .moment = on_moment, .step_end = on_step_end, .settled = on_settled, .behind = behind};
}
