/* clock.h: how long something takes, and waiting no longer than that. */
#ifndef KVS_BASE_CLOCK_H
#define KVS_BASE_CLOCK_H

#include <pthread.h>
#include <stdbool.h>

/* Seconds on a clock that only goes forward. */
double kvs_now(void);

/* pthread_cond_init and pthread_cond_wait, the latter until kvs_now() is `end` at most: false if it is. */
void kvs_cond_init(pthread_cond_t *condition);
bool kvs_cond_wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex, double end);

#endif
