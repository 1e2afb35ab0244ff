/* signals.h: what a thread that is started here does with signals. */
#ifndef KVS_BASE_SIGNALS_H
#define KVS_BASE_SIGNALS_H

#include <signal.h>

/* Blocks the signals that come from outside, for the threads that are started next: those are the business of the thread that called.
 * A fault of a thread's own (a mapped file that was cut short, say) is left to come: blocked, it would end the process without its
 * handler, which has a terminal to restore. *before gets the mask that is to be set again. */
void kvs_signals_block(sigset_t *before);

#endif
