/* cores.c: how many cores this process may use: affinity and cgroup quota respected, hyper-threads counted once. */
#include "engine/pool.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifdef __linux__
/* Reads whole numbers, at most two, from a file; returns how many there were. */
static int read_numbers(const char *path, long *a, long *b) {
  FILE *file = fopen(path, "r");
  if (!file) return 0;
  int found = fscanf(file, "%ld %ld", a, b);
  fclose(file);
  return found < 0 ? 0 : found;
}

static int fewer(int cores, long quota, long period) {
  if (quota <= 0 || period <= 0) return cores;
  long allowed = (quota + period - 1) / period;
  return cores == 0 || allowed < cores ? (int)allowed : cores;
}

/* cgroup v2: the limits of the group that /proc/self/cgroup names, and of all above it. */
static int cgroup2_cores(int cores) {
  char group[512] = "", path[600];
  FILE *file = fopen("/proc/self/cgroup", "r");
  for (char line[512]; file && fgets(line, sizeof line, file);)
    if (sscanf(line, "0::%511[^\n]", group) == 1) break;
  if (file) fclose(file);
  for (;;) {
    long quota = 0, period = 0;
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
    if (read_numbers(path, &quota, &period) == 2) cores = fewer(cores, quota, period);
    char *slash = strrchr(group, '/');
    if (!slash) return cores;
    *slash = '\0';
  }
}

/* CPU time this process may use, in cores rounded up; 0 when there is no limit. */
static int cgroup_cores(void) {
  long quota = 0, period = 0, none = 0;
  int cores = cgroup2_cores(0);
  if (read_numbers("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", &quota, &none) >= 1 && /* cgroup v1 */
      read_numbers("/sys/fs/cgroup/cpu/cpu.cfs_period_us", &period, &none) >= 1)
    cores = fewer(cores, quota, period);
  return cores;
}

/* Whether `cpu` is the first of its core's hyper-threads among those allowed. */
static bool first_of_core(int cpu, const cpu_set_t *allowed) {
  char path[96];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
  FILE *file = fopen(path, "r");
  if (!file) return true;
  int first = cpu, sibling;
  for (char separator; fscanf(file, "%d", &sibling) == 1;) {
    if (sibling >= 0 && sibling < first && sibling < CPU_SETSIZE && CPU_ISSET(sibling, allowed)) first = sibling;
    if (fscanf(file, "%c", &separator) != 1) break;
    if (separator == '-') { /* "0-1": the range's lower end was just read */
      if (fscanf(file, "%d%c", &sibling, &separator) < 1) break;
    }
  }
  fclose(file);
  return first == cpu;
}

int kvs_pool_default_threads(void) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  int cores = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &allowed) && first_of_core(cpu, &allowed)) cores++;
  int limit = cgroup_cores();
  if (limit && limit < cores) cores = limit;
  return cores < 1 ? 1 : cores;
}
#else
int kvs_pool_default_threads(void) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return cores < 1 ? 1 : (int)cores;
}
#endif
