/* bench.h: what the parts of the benchmark share: how a figure is kept, and the machine's own limits to compare it with.
 *
 * The machine is shared and noisy, so a figure counts only beside its bound measured in the same round: rounds go ours, bound,
 * ours, bound …, the ratio is taken within each round, and the median of the ratios is told with their quartiles.
 */
#ifndef KVS_BENCH_H
#define KVS_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "kvstep/error.h"
#include "kvstep/model.h"
#include "kvstep/trace.h"

enum { ROUNDS_MOST = 64 };

/* One line of the table. */
typedef struct bench_result {
  const char *part; /* "decode" */
  char what[72];    /* "float32, 2 threads, cache 1000" */
  double ours;      /* median, in `unit` */
  const char *unit; /* "ms/token" */
  char bound[40];   /* "read 23.1 GB/s"; "" where there is none */
  double ratio;     /* median of bound / ours within each round: 1 is as fast as the bound; NaN: no bound */
  double low, high; /* quartiles of the ratio, or of ours where there is no ratio */
  double target;    /* what the ratio should be at least (NaN: nothing is asked) */
} bench_result;

/* Adds a line, and prints it at once in a table. */
void bench_add(const bench_result *result);
const bench_result *bench_results(int *count);

/* One line of talk, on stderr. */
void bench_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ends the benchmark where something that must work does not. */
void bench_must(kvs_status status, const kvs_error *err);

/* Rounds of `ours` and `bound` in seconds → a result whose ratio is bound / ours. `scale` turns seconds into `unit`. */
bench_result bench_pair(const char *part, const double *ours, const double *bound, int rounds, double scale,
                        const char *unit);
/* The same without a bound. */
bench_result bench_alone(const char *part, const double *ours, int rounds, double scale, const char *unit);

double bench_median(const double *values, int count);

/* ---- the machine's limits (limits.c) ---------------------------------------------------------------------------- */

/* A reader of `bytes` of memory that nothing else uses, on `threads` threads. */
typedef struct bench_reader bench_reader;
bench_reader *bench_reader_new(size_t bytes, int threads);
void bench_reader_free(bench_reader *reader);
/* Seconds to read the first `bytes` (0: all) once. */
double bench_read(bench_reader *reader, size_t bytes);

/* Multiply-adds a second with `threads` threads, measured for some milliseconds. */
double bench_fma_peak(int threads);

/* sgemm of OpenBLAS, if that is installed: C [m][n] = A [m][k] · B [k][n]. NULL if it is not. */
typedef void (*bench_sgemm)(int m, int n, int k, const float *a, const float *b, float *c);
bench_sgemm bench_openblas(int threads);

/* ---- the models (models.c) --------------------------------------------------------------------------------------- */

/* GPT-2 small's shape with random weights, made anew each time from a fixed seed; free with memory_model_free. */
kvs_model *bench_model_124m(kvs_dtype dtype);
/* Bytes that a decode step reads with `cached` rows in the cache: all weights once, and K and V. */
size_t bench_step_bytes(const kvs_model *model, int cached);
/* Multiply-adds of the layers' matrix products for one token. */
double bench_layer_products(const kvs_model *model);

/* ---- traces and the program -------------------------------------------------------------------------------------- */

/* A new trace with a run begun, to be filled by an engine's observer. */
kvs_trace *bench_trace(const kvs_model *model, const char *path, kvs_log_level level);
/* A whole trace of GPT-2 small's shape with made-up numbers: `runs` runs of `steps` steps. */
void bench_made_up_trace(const char *path, int runs, int steps);
/* The kvstep that was built: ./kvstep, or what KVSTEP names. */
char *bench_program(void);
/* Runs a program; seconds from fork to its first byte, or to its end. */
double bench_run(char *const *arguments, bool to_first_byte);

/* ---- the parts ------------------------------------------------------------------------------------------------- */

void bench_bits(void);
void bench_decode(void);
void bench_prefill(void);
void bench_logging(void);
void bench_loading(void);
void bench_queries(void);
void bench_screen(void);
void bench_growth(void);
void bench_threads(void);
void bench_peers(void);
void bench_info(void);

/* Draws the results of bench_growth. */
void bench_picture(const char *path);

#endif
