/* test_pool.c: every part of a range is done exactly once, however many threads there are, and rounds go on while something is
 * done behind them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/pool.h"
#include "tests/support/scratch.h"

enum { MOST = 3000 };

typedef struct counted {
  atomic_int done[MOST]; /* how often each has been done */
  kvs_pool_range range;
  int threads;
  atomic_int wrong; /* parts that begin or end where none should, or of a thread that is not there */
} counted;

static void count(void *context, int thread, int begin, int end) {
  counted *c = context;
  bool all = begin == 0 && end == c->range.count; /* a single thread takes everything at once */
  if (thread < 0 || thread >= c->threads || begin >= end) atomic_fetch_add(&c->wrong, 1);
  if (begin % c->range.grain) atomic_fetch_add(&c->wrong, 1);
  if (!all && c->range.whole && end - begin > c->range.whole && end % c->range.whole) atomic_fetch_add(&c->wrong, 1);
  for (int i = begin; i < end; i++) atomic_fetch_add(&c->done[i], 1);
}

static kvs_pool *pool_of(int threads) {
  kvs_pool *pool;
  kvs_error err;
  assert_int_equal(kvs_pool_create(threads, &pool, &err), KVS_OK);
  assert_int_equal(kvs_pool_threads(pool), threads);
  return pool;
}

static void everything_is_done_once(void **unused) {
  (void)unused;
  static counted c;
  for (int threads = 1; threads <= 5; threads++) {
    kvs_pool *pool = pool_of(threads);
    for (int round = 0; round < 2000; round++) {
      memset(&c, 0, sizeof c);
      int grain = 1 + round % 5;
      c.threads = threads;
      c.range = (kvs_pool_range){round * 7 % MOST, grain, round % 2 ? 0 : grain * (1 + round % 9)};
      kvs_pool_run(pool, c.range, count, &c);
      for (int i = 0; i < MOST; i++) assert_int_equal(atomic_load(&c.done[i]), i < c.range.count);
      assert_int_equal(atomic_load(&c.wrong), 0);
    }
    kvs_pool_free(pool);
  }
}

typedef struct gate {
  sem_t open;
  atomic_int began, ended;
} gate;

static void wait_at_gate(void *context) {
  gate *g = context;
  atomic_fetch_add(&g->began, 1);
  while (sem_wait(&g->open)) {}
  atomic_fetch_add(&g->ended, 1);
}

static void rounds_do_not_wait_for_what_is_behind(void **unused) {
  (void)unused;
  static counted c;
  for (int threads = kvs_pool_default_threads() > 1 ? 1 : 2; threads <= 3; threads++) {
    kvs_pool *pool = pool_of(threads);
    gate g = {.began = 0};
    sem_init(&g.open, 0, 0);
    kvs_pool_behind(pool, wait_at_gate, &g);
    while (atomic_load(&g.began) == 0) {
    } /* somebody takes it without being asked again, with one thread the spare one */
    for (int round = 0; round < 100; round++) {
      memset(&c, 0, sizeof c);
      c.threads = threads;
      c.range = (kvs_pool_range){1000, 1, 0};
      kvs_pool_run(pool, c.range, count, &c);
      for (int i = 0; i < 1000; i++) assert_int_equal(atomic_load(&c.done[i]), 1);
    }
    assert_int_equal(atomic_load(&g.ended), 0);
    sem_post(&g.open);
    kvs_pool_settle(pool);
    assert_int_equal(atomic_load(&g.ended), 1);
    kvs_pool_free(pool);
    sem_destroy(&g.open);
  }
}

typedef struct held {
  atomic_int missing; /* threads that have not begun their part */
  atomic_bool by_another, whole;
} held;

/* Each of two threads does one part, and the worker's takes long. */
static void hold(void *context, int thread, int begin, int end) {
  held *h = context;
  (void)begin, (void)end;
  atomic_fetch_sub(&h->missing, 1);
  while (atomic_load(&h->missing) > 0) sched_yield();
  if (thread > 0) usleep(5000);
}

static void look_who_does_it(void *context, int thread, int begin, int end) {
  held *h = context;
  if (thread > 0) atomic_store(&h->by_another, true);
  if (begin == 0 && end == 1000) atomic_store(&h->whole, true);
}

/* A round that follows at once is the caller's alone, unless this very process was held up; so it is tried again and again. */
static void a_thread_that_was_waited_for_long_rests_for_a_while(void **unused) {
  (void)unused;
  kvs_pool *pool = pool_of(2);
  held h = {.missing = 0};
  for (int i = 0; i < 500 && !atomic_load(&h.whole); i++) {
    atomic_store(&h.missing, 2);
    kvs_pool_run(pool, (kvs_pool_range){2, 1, 0}, hold, &h);
    kvs_pool_run(pool, (kvs_pool_range){1000, 1, 0}, look_who_does_it, &h);
  }
  assert_true(atomic_load(&h.whole));
  atomic_store(&h.by_another, false);
  for (int i = 0; i < 5000 && !atomic_load(&h.by_another); i++) {
    usleep(1000);
    kvs_pool_run(pool, (kvs_pool_range){1000, 1, 0}, look_who_does_it, &h);
  }
  assert_true(atomic_load(&h.by_another)); /* and then it comes again */
  kvs_pool_free(pool);
}

static void add_one(void *context) { ++*(int *)context; }

static void what_is_behind_is_done_once_and_before_settling(void **unused) {
  (void)unused;
  for (int threads = 1; threads <= 4; threads++) {
    kvs_pool *pool = pool_of(threads);
    int sum = 0;
    for (int i = 0; i < 1000; i++) {
      kvs_pool_behind(pool, add_one, &sum); /* waits for the one before, so these do not race */
      if (i % 3 == 0) {
        kvs_pool_settle(pool);
        assert_int_equal(sum, i + 1);
      }
    }
    kvs_pool_free(pool); /* settles too */
    assert_int_equal(sum, 1000);
  }
}

/* ---- signals -------------------------------------------------------------------------------------------------------- */

enum { HANDLED = 42 };

static void leave_quietly(int number) {
  (void)number;
  _exit(HANDLED);
}

/* Touches memory that is there and must not be touched. */
static void fault(void *page) { ++*(volatile char *)page; }

/* The screen's handler gives the terminal back when a file of weights is cut short under a worker. */
static void a_fault_of_a_worker_reaches_its_handler(void **unused) {
  (void)unused;
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    signal(SIGSEGV, leave_quietly);
    signal(SIGBUS, leave_quietly);
    void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    kvs_pool_behind(pool_of(2), fault, page);
    for (;;) pause(); /* does not settle: the worker, not this thread, is to do it */
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), HANDLED);
}

/* As `taskset -c N kvstep` has it. */
static void a_process_of_one_core_gets_one_thread(void **unused) {
  (void)unused;
#ifdef __linux__
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) _exit(100);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &allowed)) cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) _exit(101);
    _exit(kvs_pool_default_threads());
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 1);
#else
  skip();
#endif
}

/* Writes a file of a tree under `root`, the folders on its way too. */
static void put(const char *name, const char *text) {
  char path[128];
  strcpy(path, in_folder(name));
  for (char *slash = path + strlen(folder); (slash = strchr(slash + 1, '/'));) {
    *slash = '\0';
    mkdir(path, 0777);
    *slash = '/';
  }
  write_file(path, text, strlen(text));
}

/* Quota / period in cores, rounded up, the least of a group's own and of those above it; as in the kernel's documentation of cgroups. */
static void a_quota_of_a_control_group_is_the_limit(void **unused) {
  (void)unused;
#ifdef __linux__
  static const struct {
    const char *groups, *file, *text, *file2, *text2;
    int cores;
  } cases[] = {
      {"0::/a/b\n", "cpu.max", "max 100000", "a/cpu.max", "max 100000", 0},
      {"0::/a/b\n", "a/b/cpu.max", "200000 100000", "a/cpu.max", "max 100000", 2},
      {"0::/a/b\n", "a/b/cpu.max", "max 100000", "a/cpu.max", "250000 100000", 3},
      {"0::/a/b\n", "a/b/cpu.max", "400000 100000", "a/cpu.max", "50000 100000", 1},
      {"0::/\n", "cpu.max", "300000 100000", "a/cpu.max", "100000 100000", 3},
      {"0::/of/the/host\n", "cpu.max", "100000 50000", "a/cpu.max", "1000 1000", 2}, /* a container */
      {"0::/a\n", "a/cpu.max", "nonsense", "cpu.max", "", 0},
      {"5:cpuset:/\n4:cpu,cpuacct:/a\n", "cpu/a/cpu.cfs_quota_us", "150000", "cpu/a/cpu.cfs_period_us", "100000", 2},
      {"4:cpu:/a/b\n0::/\n", "cpu/a/cpu.cfs_quota_us", "100000", "cpu/a/cpu.cfs_period_us", "100000", 1},
      {"4:cpu:/a\n", "cpu/a/cpu.cfs_quota_us", "-1", "cpu/a/cpu.cfs_period_us", "100000", 0},
      {"4:memory:/a\n", "cpu/a/cpu.cfs_quota_us", "100000", "cpu/a/cpu.cfs_period_us", "100000", 0},
      {"", "cpu.max", "100000 100000", "a/cpu.max", "100000 100000", 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(make_folder(NULL), 0);
    put("groups", cases[i].groups);
    put(cases[i].file, cases[i].text);
    put(cases[i].file2, cases[i].text2);
    assert_int_equal(kvs_pool_quota(in_folder("groups"), folder), cases[i].cores);
    assert_int_equal(remove_folder(NULL), 0);
  }
  assert_int_equal(kvs_pool_quota("/no/such/file", "/nowhere"), 0);
#else
  skip();
#endif
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_process_of_one_core_gets_one_thread),
      cmocka_unit_test(a_quota_of_a_control_group_is_the_limit),
      cmocka_unit_test(everything_is_done_once),
      cmocka_unit_test(rounds_do_not_wait_for_what_is_behind),
      cmocka_unit_test(a_thread_that_was_waited_for_long_rests_for_a_while),
      cmocka_unit_test(what_is_behind_is_done_once_and_before_settling),
      cmocka_unit_test(a_fault_of_a_worker_reaches_its_handler),
  };
  return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
