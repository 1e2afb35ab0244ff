/* signals.c: signals from outside are blocked in threads, faults are not. */
#include "base/signals.h"

#include <pthread.h>
#include <stddef.h>

void kvs_signals_block(sigset_t *before) {
  static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
  sigset_t outside;
  sigfillset(&outside);
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&outside, own[i]);
  pthread_sigmask(SIG_BLOCK, &outside, before);
}
