/* mover.c: a thread that moves the write-ahead log into the file while the run goes on. */
#include "trace/mover.h"

#include <pthread.h>
#include <stdlib.h>

#include <sqlite3.h>

#include "base/clock.h"
#include "base/signals.h"

struct kvs_mover {
  sqlite3 *db; /* the thread's own */
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  bool asked, busy, stop; /* under mutex */
  int rc;                 /* under mutex */
};

/* It is asked just after a commit, and the step beside that has paid enough: the moving is left to a later one. */
#define PAUSE_SECONDS 0.02

/* Returns early if the thread is to stop. Under mutex. */
static void pause_before(kvs_mover *mover) {
  double end = kvs_now() + PAUSE_SECONDS;
  while (!mover->stop && kvs_cond_wait_until(&mover->wake, &mover->mutex, end)) {}
}

static void *move(void *argument) {
  kvs_mover *mover = argument;
  pthread_mutex_lock(&mover->mutex);
  for (;;) {
    while (!mover->asked && !mover->stop) pthread_cond_wait(&mover->wake, &mover->mutex);
    pause_before(mover);
    if (mover->stop) break;
    mover->asked = false;
    mover->busy = true;
    pthread_mutex_unlock(&mover->mutex);
    int rc = sqlite3_wal_checkpoint_v2(mover->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    pthread_mutex_lock(&mover->mutex);
    mover->busy = false;
    if (mover->rc == SQLITE_OK && (rc & 0xFF) != SQLITE_BUSY) mover->rc = rc;
  }
  pthread_mutex_unlock(&mover->mutex);
  return NULL;
}

kvs_mover *kvs_mover_start(const char *file) {
  kvs_mover *mover = calloc(1, sizeof *mover);
  if (!mover) return NULL;
  pthread_mutex_init(&mover->mutex, NULL);
  kvs_cond_init(&mover->wake);
  /* A checkpoint needs the log to be open, and any read opens it. */
  bool ready = sqlite3_open_v2(file, &mover->db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK &&
               sqlite3_exec(mover->db, "PRAGMA synchronous = NORMAL; SELECT 1 FROM sqlite_schema LIMIT 1", NULL, NULL,
                            NULL) == SQLITE_OK;
  if (ready) {
    sigset_t before;
    kvs_signals_block(&before);
    ready = pthread_create(&mover->thread, NULL, move, mover) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
  }
  if (ready) return mover;
  sqlite3_close(mover->db);
  pthread_cond_destroy(&mover->wake);
  pthread_mutex_destroy(&mover->mutex);
  free(mover);
  return NULL;
}

void kvs_mover_stop(kvs_mover *mover) {
  if (!mover) return;
  pthread_mutex_lock(&mover->mutex);
  mover->stop = true;
  pthread_cond_signal(&mover->wake);
  pthread_mutex_unlock(&mover->mutex);
  pthread_join(mover->thread, NULL);
  sqlite3_close(mover->db);
  pthread_cond_destroy(&mover->wake);
  pthread_mutex_destroy(&mover->mutex);
  free(mover);
}

void kvs_mover_ask(kvs_mover *mover) {
  pthread_mutex_lock(&mover->mutex);
  mover->asked = true;
  pthread_cond_signal(&mover->wake);
  pthread_mutex_unlock(&mover->mutex);
}

bool kvs_mover_idle(kvs_mover *mover, int *rc) {
  pthread_mutex_lock(&mover->mutex);
  bool idle = !mover->asked && !mover->busy;
  *rc = mover->rc;
  mover->rc = SQLITE_OK;
  pthread_mutex_unlock(&mover->mutex);
  return idle;
}
