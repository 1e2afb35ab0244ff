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

/* The limit in one folder of a control group: cgroup v2's cpu.max, or v1's two files. */
static int limit_of(const char *folder, int cores) {
  char path[1100];
  long quota = 0, period = 0, none;
  snprintf(path, sizeof path, "%s/cpu.max", folder);
  if (read_numbers(path, &quota, &period) == 2) return fewer(cores, quota, period);
  snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
  if (read_numbers(path, &quota, &none) < 1) return cores;
  snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
  return read_numbers(path, &period, &none) < 1 ? cores : fewer(cores, quota, period);
}

/* The limits of a group and of all above it. In a container the group's name may be the host's, and only its last "above" is there. */
static int limits_from(const char *mount, const char *group, int cores) {
  char folder[1024];
  int end = snprintf(folder, sizeof folder, "%s%s", mount, strcmp(group, "/") ? group : "");
  if (end < 0 || (size_t)end >= sizeof folder) return cores;
  for (size_t root = strlen(mount);;) {
    cores = limit_of(folder, cores);
    char *slash = strrchr(folder, '/');
    if (!slash || slash < folder + root) return cores;
    *slash = '\0';
  }
}

int kvs_pool_quota(const char *groups, const char *mount) {
  int cores = 0;
  FILE *file = fopen(groups, "r");
  for (char line[1024]; file && fgets(line, sizeof line, file);) {
    /* hierarchy:controllers:group. v2 is hierarchy 0 without controllers; v1 mounts each set of them, with links of their names. */
    char *controllers = strchr(line, ':'), *group = controllers ? strchr(++controllers, ':') : NULL, path[1024];
    if (!group) continue;
    *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    bool v2 = strncmp(line, "0:", 2) == 0 && !*controllers;
    bool v1 = strcmp(controllers, "cpu") == 0 || strcmp(controllers, "cpu,cpuacct") == 0 ||
              strcmp(controllers, "cpuacct,cpu") == 0;
    if (!v2 && !v1) continue;
    int length = snprintf(path, sizeof path, "%s%s", mount, v1 ? "/cpu" : "");
    if (length > 0 && (size_t)length < sizeof path) cores = limits_from(path, group, cores);
  }
  if (file) fclose(file);
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
  int limit = kvs_pool_quota("/proc/self/cgroup", "/sys/fs/cgroup");
  if (limit && limit < cores) cores = limit;
  return cores < 1 ? 1 : cores;
}
#else
int kvs_pool_quota(const char *groups, const char *mount) {
  (void)groups, (void)mount;
  return 0;
}

int kvs_pool_default_threads(void) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return cores < 1 ? 1 : (int)cores;
}
#endif
