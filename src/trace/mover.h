/* mover.h (private): moves what is in the write-ahead log into the file, beside the run: this is mostly waiting for the disk. */
#ifndef KVS_TRACE_MOVER_H
#define KVS_TRACE_MOVER_H

#include <stdbool.h>

typedef struct kvs_mover kvs_mover;

/* Starts a thread with a connection of its own to `file`, a path from the root: the process may be elsewhere than when it named the file.
 * NULL if there is no memory or no thread to be had: then nothing is moved beside the run. */
kvs_mover *kvs_mover_start(const char *file);

/* Ends the thread, after what it is doing, and closes its connection. NULL is allowed. */
void kvs_mover_stop(kvs_mover *mover);

/* Asks for all that is in the log to be moved, which begins a moment later; does not wait. What was asked for and has not begun when
 * the mover is stopped stays in the log. */
void kvs_mover_ask(kvs_mover *mover);

/* True if nothing is asked for any more. *rc is the first error of SQLite's that moving met since the last call, SQLITE_OK if none:
 * it is told once. */
bool kvs_mover_idle(kvs_mover *mover, int *rc);

#endif
