/* bench.c: measures kvstep's speed beside the machine's limits; docs/performance.md explains the figures.
 * Arguments: the parts to run (all if none are named), -o table|json, -p FILE for a picture of how cost grows. */
#include "tests/bench/bench.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "kvstep/engine.h"

static bench_result results[128];
static int result_count;
static bool json;

void bench_say(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
}

void bench_must(kvs_status status, const kvs_error *err) {
  if (!status) return;
  bench_say("bench: %s", err->message);
  exit(1);
}

/* ---- figures -------------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

/* The value below which `part` of the values lie. */
static double quantile(const double *values, int count, double part) {
  double sorted[ROUNDS_MOST];
  memcpy(sorted, values, (size_t)count * sizeof *values);
  qsort(sorted, (size_t)count, sizeof *sorted, by_value);
  return sorted[(int)(part * (count - 1) + 0.5)];
}

double bench_median(const double *values, int count) { return quantile(values, count, 0.5); }

bench_result bench_alone(const char *part, const double *ours, int rounds, double scale, const char *unit) {
  return (bench_result){.part = part,
                        .ours = scale * bench_median(ours, rounds),
                        .unit = unit,
                        .ratio = (double)NAN,
                        .low = scale * quantile(ours, rounds, 0.25),
                        .high = scale * quantile(ours, rounds, 0.75),
                        .target = (double)NAN};
}

bench_result bench_pair(const char *part, const double *ours, const double *bound, int rounds, double scale,
                        const char *unit) {
  double ratio[ROUNDS_MOST];
  for (int r = 0; r < rounds; r++) ratio[r] = bound[r] / ours[r];
  bench_result result = bench_alone(part, ours, rounds, scale, unit);
  result.ratio = bench_median(ratio, rounds);
  result.low = quantile(ratio, rounds, 0.25), result.high = quantile(ratio, rounds, 0.75);
  return result;
}

const bench_result *bench_results(int *count) {
  *count = result_count;
  return results;
}

/* ---- printing ------------------------------------------------------------------------------------------------------- */

void bench_add(const bench_result *r) {
  if (result_count == (int)(sizeof results / sizeof *results)) abort();
  results[result_count++] = *r;
  if (json) return;
  char ratio[24] = "", target[24] = "";
  if (!isnan(r->ratio)) snprintf(ratio, sizeof ratio, "%.2f", r->ratio);
  if (!isnan(r->target)) snprintf(target, sizeof target, "%.2f", r->target);
  printf("%-8s %-44s %9.3f %-9s %-24s %5s  %7.3f to %-8.3f %5s\n", r->part, r->what, r->ours, r->unit, r->bound, ratio,
         r->low, r->high, target);
  fflush(stdout);
}

static void print_number(const char *name, double value) {
  if (isnan(value))
    printf(", \"%s\": null", name);
  else
    printf(", \"%s\": %.6g", name, value);
}

static void print_json(void) {
  printf("[");
  for (int i = 0; i < result_count; i++) {
    const bench_result *r = &results[i];
    printf("%s\n  {\"part\": \"%s\", \"what\": \"%s\", \"unit\": \"%s\", \"bound\": \"%s\"", i ? "," : "", r->part,
           r->what, r->unit, r->bound);
    print_number("ours", r->ours), print_number("ratio", r->ratio);
    print_number("low", r->low), print_number("high", r->high), print_number("target", r->target);
    printf("}");
  }
  printf("\n]\n");
}

/* ---- the parts -------------------------------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  void (*run)(void);
  bool asked; /* runs only where it is named */
} parts[] = {
    {"bits", bench_bits, false},       {"decode", bench_decode, false},   {"prefill", bench_prefill, false},
    {"logging", bench_logging, false}, {"loading", bench_loading, false}, {"queries", bench_queries, false},
    {"screen", bench_screen, false},   {"growth", bench_growth, false},   {"threads", bench_threads, false},
    {"peers", bench_peers, false},     {"info", bench_info, true},
};
enum { PARTS = sizeof parts / sizeof *parts };

int main(int argc, char **argv) {
  bool chosen[PARTS] = {false}, some = false;
  const char *picture = NULL;
  for (int i = 1; i < argc; i++) {
    int found = -1;
    for (int p = 0; p < PARTS; p++)
      if (strcmp(argv[i], parts[p].name) == 0) found = p;
    if (found >= 0) {
      chosen[found] = some = true;
    } else if (strcmp(argv[i], "-o") == 0 && i + 1 < argc &&
               (strcmp(argv[i + 1], "json") == 0 || strcmp(argv[i + 1], "table") == 0)) {
      json = strcmp(argv[++i], "json") == 0;
    } else if (strcmp(argv[i], "-p") == 0 && i + 1 < argc) {
      picture = argv[++i];
    } else {
      bench_say("bench: what is '%s'? Give parts by name, -o table or -o json, -p FILE.svg", argv[i]);
      return 2;
    }
  }
  if (!json)
    printf("kernel %s. ratio: bound / ours in the same round, 1.00 is as fast as the bound; then its quartiles and the "
           "target.\n",
           kvs_kernel_name(0));
  for (int p = 0; p < PARTS; p++)
    if (some ? chosen[p] : !parts[p].asked) parts[p].run();
  if (json) print_json();
  if (picture) bench_picture(picture);
  return 0;
}
