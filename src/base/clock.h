/* clock.h: how long something takes. */
#ifndef KVS_BASE_CLOCK_H
#define KVS_BASE_CLOCK_H

/* Seconds on a clock that only goes forward. */
double kvs_now(void);

#endif
