/* info.c: how long `kvstep info` looks at a trace of 5 GB. Only where it is asked for by name: it writes the 5 GB, into TMPDIR or /tmp. */
#include "tests/bench/bench.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { ROUNDS = 9, RUNS = 5, STEPS = 1024 };

void bench_info(void) {
  const char *where = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
  char folder[256], path[300];
  struct statvfs disk;
  snprintf(folder, sizeof folder, "%s/kvstep-bench.XXXXXX", where);
  if (statvfs(where, &disk) != 0 || (double)disk.f_bavail * (double)disk.f_frsize < 6e9) {
    bench_say("bench: info: %s has no 6 GB to spare; TMPDIR names another folder", where);
    return;
  }
  if (!mkdtemp(folder)) abort();
  snprintf(path, sizeof path, "%s/trace.db", folder);
  bench_made_up_trace(path, RUNS, STEPS);
  double seconds[ROUNDS];
  char *arguments[] = {bench_program(), "info", path, NULL};
  for (int r = -1; r < ROUNDS; r++) {
    double taken = bench_run(arguments, false);
    if (r >= 0) seconds[r] = taken;
  }
  struct stat st;
  if (stat(path, &st) != 0) abort();
  bench_result result = bench_alone("info", seconds, ROUNDS, 1e3, "ms");
  snprintf(result.what, sizeof result.what, "kvstep info on %.1f GB, %d runs, %d steps each, warm",
           (double)st.st_size / 1e9, RUNS, STEPS);
  snprintf(result.bound, sizeof result.bound, "at most 30 ms");
  bench_add(&result);
  unlink(path);
  rmdir(folder);
}
