/* clock.c: the clock that only goes forward. */
#include "base/clock.h"

#include <time.h>

double kvs_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#ifdef __APPLE__ /* has no pthread_condattr_setclock */
void kvs_cond_init(pthread_cond_t *condition) { pthread_cond_init(condition, NULL); }

bool kvs_cond_wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex, double end) {
  double left = end - kvs_now();
  if (left <= 0) return false;
  struct timespec t = {.tv_sec = (time_t)left, .tv_nsec = (long)((left - (double)(time_t)left) * 1e9)};
  return pthread_cond_timedwait_relative_np(condition, mutex, &t) == 0;
}
#else
void kvs_cond_init(pthread_cond_t *condition) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(condition, &attributes);
  pthread_condattr_destroy(&attributes);
}

bool kvs_cond_wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex, double end) {
  struct timespec t = {.tv_sec = (time_t)end, .tv_nsec = (long)((end - (double)(time_t)end) * 1e9)};
  return pthread_cond_timedwait(condition, mutex, &t) == 0;
}
#endif
