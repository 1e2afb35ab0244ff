/* scalars.c: SQL functions over BLOBs of little-endian float32.
 *
 *   f32(blob, i)              the i-th number, from 0; NULL past either end
 *   f32_of_bits(n)            the float32 whose bits are the low 32 of the integer n; what is no integer as it is
 *   f32_count(blob)           how many numbers
 *   f32_sum(blob)             their sum; NULL if one is NaN
 *   f32_max(blob)             the largest, and
 *   f32_argmax(blob)          where it is first; NaN is passed over
 *   f32_norm(blob)            the Euclidean length
 *   f32_entropy(blob)         -Σ w·ln w of weights, in nats
 *   f32_softmax_entropy(blob) the same of softmax(blob)
 *   dot(a, b)                 Σ a[i]·b[i]; an error if the lengths differ
 *
 * Sums are taken in double; those of f32_sum and f32_entropy in lanes, as the engine does it (engine/numeric.h), so that what
 * is reckoned has the bits of what kvstep stores; the others in order. NULL gives NULL, and so does every result that is NaN.
 */
#include "trace/sql/extension.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "engine/numeric.h"

SQLITE_EXTENSION_INIT3

static double of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Little-endian whatever the machine is; the alignment of a BLOB is not ours to know. */
static double load(const unsigned char *bytes, sqlite3_int64 i) {
  const unsigned char *b = bytes + 4 * i;
  return of_bits((uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24);
}

static void fail(sqlite3_context *context, char *message) {
  if (message)
    sqlite3_result_error(context, message, -1);
  else
    sqlite3_result_error_nomem(context);
  sqlite3_free(message);
}

/* The BLOB of an argument and how many numbers it holds; 0 if there is no answer but NULL or the error just set. */
static int vector(sqlite3_context *context, sqlite3_value *argument, const unsigned char **bytes,
                  sqlite3_int64 *count) {
  int type = sqlite3_value_type(argument);
  if (type == SQLITE_NULL) return 0;
  if (type != SQLITE_BLOB) {
    fail(context, sqlite3_mprintf("%s() needs a BLOB of float32 numbers, not %s", sqlite3_user_data(context),
                                  type == SQLITE_TEXT ? "a text" : "a number"));
    return 0;
  }
  *bytes = sqlite3_value_blob(argument);
  *count = sqlite3_value_bytes(argument) / 4;
  if (!*bytes && *count > 0) { /* a zeroblob() that there is no memory for */
    sqlite3_result_error_nomem(context);
    return 0;
  }
  return 1;
}

static void f32(sqlite3_context *context, int argc, sqlite3_value **argv) {
  (void)argc;
  const unsigned char *bytes;
  sqlite3_int64 count;
  if (sqlite3_value_type(argv[1]) == SQLITE_NULL || !vector(context, argv[0], &bytes, &count)) return;
  sqlite3_int64 i = sqlite3_value_int64(argv[1]);
  if (i >= 0 && i < count) sqlite3_result_double(context, load(bytes, i));
}

static void f32_of_bits(sqlite3_context *context, int argc, sqlite3_value **argv) {
  (void)argc;
  if (sqlite3_value_type(argv[0]) == SQLITE_INTEGER)
    sqlite3_result_double(context, of_bits((uint32_t)sqlite3_value_int64(argv[0])));
  else
    sqlite3_result_value(context, argv[0]);
}

static void f32_count(sqlite3_context *context, int argc, sqlite3_value **argv) {
  (void)argc;
  const unsigned char *bytes;
  sqlite3_int64 count;
  if (vector(context, argv[0], &bytes, &count)) sqlite3_result_int64(context, count);
}

static void f32_sum(sqlite3_context *context, int argc, sqlite3_value **argv) {
  (void)argc;
  const unsigned char *bytes;
  sqlite3_int64 count;
  if (!vector(context, argv[0], &bytes, &count) || count == 0) return;
  double sum[KVS_LANES] = {0};
  for (sqlite3_int64 i = 0; i < count; i++) sum[i % KVS_LANES] += load(bytes, i);
  sqlite3_result_double(context, kvs_fold_double(sum));
}

/* Where the largest number is, or -1. */
static sqlite3_int64 largest(const unsigned char *bytes, sqlite3_int64 count) {
  sqlite3_int64 best = -1;
  for (sqlite3_int64 i = 0; i < count; i++) {
    double value = load(bytes, i);
    if (!isnan(value) && (best < 0 || value > load(bytes, best))) best = i;
  }
  return best;
}

static void f32_max(sqlite3_context *context, int argc, sqlite3_value **argv) {
  (void)argc;
  const unsigned char *bytes;
  sqlite3_int64 count;
  if (!vector(context, argv[0], &bytes, &count)) return;
  sqlite3_int64 best = largest(bytes, count);
  if (best >= 0) sqlite3_result_double(context, load(bytes, best));
}

static void f32_argmax(sqlite3_context *context, int argc, sqlite3_value **argv) {
  (void)argc;
  const unsigned char *bytes;
  sqlite3_int64 count;
  if (!vector(context, argv[0], &bytes, &count)) return;
  sqlite3_int64 best = largest(bytes, count);
  if (best >= 0) sqlite3_result_int64(context, best);
}

static void f32_norm(sqlite3_context *context, int argc, sqlite3_value **argv) {
  (void)argc;
  const unsigned char *bytes;
  sqlite3_int64 count;
  if (!vector(context, argv[0], &bytes, &count)) return;
  double sum = 0;
  for (sqlite3_int64 i = 0; i < count; i++) {
    double value = load(bytes, i);
    sum += value * value;
  }
  sqlite3_result_double(context, sqrt(sum));
}

static void f32_entropy(sqlite3_context *context, int argc, sqlite3_value **argv) {
  (void)argc;
  const unsigned char *bytes;
  sqlite3_int64 count;
  if (!vector(context, argv[0], &bytes, &count) || count == 0) return;
  double entropy[KVS_LANES] = {0};
  for (sqlite3_int64 i = 0; i < count; i += KVS_LANES) {
    double w[KVS_LANES] = {0};
    for (int l = 0; l < KVS_LANES && i + l < count; l++) w[l] = load(bytes, i + l);
    for (int l = 0; l < KVS_LANES; l++) entropy[l] -= kvs_w_ln_w(w[l]);
  }
  sqlite3_result_double(context, kvs_fold_double(entropy));
}

/* With x = logit - the largest and Z = Σ e^x: -Σ p·ln p = ln Z - Σ e^x·x / Z. */
static void f32_softmax_entropy(sqlite3_context *context, int argc, sqlite3_value **argv) {
  (void)argc;
  const unsigned char *bytes;
  sqlite3_int64 count;
  if (!vector(context, argv[0], &bytes, &count)) return;
  sqlite3_int64 best = largest(bytes, count);
  if (best < 0) return;
  double top = load(bytes, best), total = 0, weighted = 0;
  for (sqlite3_int64 i = 0; i < count; i++) {
    double x = load(bytes, i) - top, e = exp(x);
    total += e;
    if (e > 0 || isnan(e)) weighted += e * x; /* 0 · -inf is 0 here */
  }
  sqlite3_result_double(context, log(total) - weighted / total);
}

static void dot(sqlite3_context *context, int argc, sqlite3_value **argv) {
  (void)argc;
  const unsigned char *a, *b;
  sqlite3_int64 count_a, count_b;
  if (!vector(context, argv[0], &a, &count_a) || !vector(context, argv[1], &b, &count_b)) return;
  if (count_a != count_b) {
    fail(context, sqlite3_mprintf("dot: %lld numbers on the left, %lld on the right", count_a, count_b));
    return;
  }
  double sum = 0;
  for (sqlite3_int64 i = 0; i < count_a; i++) sum += load(a, i) * load(b, i);
  sqlite3_result_double(context, sum);
}

int kvs_sql_scalars(sqlite3 *db) {
  static const struct {
    const char *name;
    int arguments;
    void (*function)(sqlite3_context *, int, sqlite3_value **);
  } table[] = {
      {"f32", 2, f32},
      {"f32_count", 1, f32_count},
      {"f32_sum", 1, f32_sum},
      {"f32_max", 1, f32_max},
      {"f32_argmax", 1, f32_argmax},
      {"f32_norm", 1, f32_norm},
      {"f32_entropy", 1, f32_entropy},
      {"f32_softmax_entropy", 1, f32_softmax_entropy},
      {"dot", 2, dot},
      {"f32_of_bits", 1, f32_of_bits},
  };
  int rc = SQLITE_OK;
  for (unsigned i = 0; rc == SQLITE_OK && i < sizeof table / sizeof *table; i++)
    rc = sqlite3_create_function_v2(db, table[i].name, table[i].arguments,
                                    SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS, (void *)table[i].name,
                                    table[i].function, NULL, NULL, NULL);
  return rc;
}
