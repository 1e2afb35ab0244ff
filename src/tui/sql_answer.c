/* sql_answer.c: what an answer's rows say: a value as text, where a row points to, and the rows in another order. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tui/sql_panel.h"

#define BLOB_SHOWN 8 /* bytes, as `kvstep sql` does */

/* ---- values --------------------------------------------------------------------------------------------------------- */

const struct sql_value *sql_panel_value(const struct sql_panel *p, int row, int column) {
  return p->value + (size_t)p->order[row] * (size_t)p->columns + column;
}

/* What does not fit is cut at a character and ends in `…`. */
static void text_of_bytes(const struct sql_panel *p, const struct sql_value *value, char *text, size_t size) {
  const char *bytes = p->bytes + value->bytes.at;
  size_t used = 0;
  int i = 0;
  for (; i < value->bytes.kept && used + 6 < size; i++) {
    const char *escape = bytes[i] == '\n' ? "\\n" : bytes[i] == '\t' ? "\\t" : bytes[i] == '\0' ? "\\0" : NULL;
    if (escape)
      used += (size_t)snprintf(text + used, size - used, "%s", escape);
    else
      text[used++] = bytes[i];
  }
  bool cut = i < value->bytes.length;
  bool within = cut && i > 0 && ((unsigned char)bytes[i - 1] & 0x80) &&
                (i == value->bytes.kept || ((unsigned char)bytes[i] & 0xC0) == 0x80);
  if (within) { /* back to the beginning of the last character */
    while (used > 0 && ((unsigned char)text[used - 1] & 0xC0) == 0x80) used--;
    used -= used > 0;
  }
  snprintf(text + used, size - used, "%s", cut ? "…" : "");
}

/* As long as the column's decimals leave a number its digits. */
static void text_of_real(double real, int decimals, char *text, size_t size) {
  snprintf(text, size, "%.6g", real);
  if (decimals > 0 && isfinite(real) && !strchr(text, 'e')) snprintf(text, size, "%.*f", decimals, real);
}

void sql_panel_text(const struct sql_panel *p, int row, int column, char *text, size_t size) {
  const struct sql_value *value = sql_panel_value(p, row, column);
  int used;
  switch (value->type) {
  case SQL_NULL:
    snprintf(text, size, "NULL");
    break;
  case SQL_INTEGER:
    snprintf(text, size, "%lld", value->integer);
    break;
  case SQL_REAL:
    text_of_real(value->real, p->column[column].decimals, text, size);
    break;
  case SQL_TEXT:
    text_of_bytes(p, value, text, size);
    break;
  case SQL_BLOB:
    used = snprintf(text, size, "x'");
    for (int i = 0; i < value->bytes.kept && i < BLOB_SHOWN; i++)
      used += snprintf(text + used, size - (size_t)used, "%02x", (unsigned char)p->bytes[value->bytes.at + (size_t)i]);
    snprintf(text + used, size - (size_t)used, value->bytes.length > BLOB_SHOWN ? "…' %d bytes" : "'",
             value->bytes.length);
    break;
  }
}

bool sql_panel_dial(const struct sql_panel *p, int row, const char *name, int *number) {
  for (int c = 0; row < p->rows && c < p->columns; c++) {
    if (strcasecmp(p->column[c].name, name) != 0) continue;
    const struct sql_value *value = sql_panel_value(p, row, c);
    if (value->type != SQL_INTEGER) return false;
    long long whole = value->integer;
    *number = whole > INT_MAX ? INT_MAX : whole < INT_MIN ? INT_MIN : (int)whole;
    return true;
  }
  return false;
}

/* ---- order ---------------------------------------------------------------------------------------------------------- */

struct sorting {
  const struct sql_panel *panel;
  const int *place; /* where a row was before */
  int column;
  bool down;
};

static int kind_of(const struct sql_value *value) { return value->type == SQL_REAL ? SQL_INTEGER : (int)value->type; }

static int compare_bytes(const struct sql_panel *p, const struct sql_value *a, const struct sql_value *b) {
  int shorter = a->bytes.kept < b->bytes.kept ? a->bytes.kept : b->bytes.kept;
  int result = memcmp(p->bytes + a->bytes.at, p->bytes + b->bytes.at, (size_t)shorter);
  return result ? result : (a->bytes.length > b->bytes.length) - (a->bytes.length < b->bytes.length);
}

/* Two that are not NULL. */
static int compare(const struct sql_panel *p, const struct sql_value *a, const struct sql_value *b) {
  if (kind_of(a) != kind_of(b)) return kind_of(a) < kind_of(b) ? -1 : 1;
  if (a->type == SQL_TEXT || a->type == SQL_BLOB) return compare_bytes(p, a, b);
  if (a->type == SQL_INTEGER && b->type == SQL_INTEGER) return (a->integer > b->integer) - (a->integer < b->integer);
  double x = a->type == SQL_REAL ? a->real : (double)a->integer;
  double y = b->type == SQL_REAL ? b->real : (double)b->integer;
  return (x > y) - (x < y);
}

static int compare_rows(const void *left, const void *right, void *context) {
  const struct sorting *sorting = context;
  const struct sql_panel *p = sorting->panel;
  int i = *(const int *)left, j = *(const int *)right;
  const struct sql_value *a = p->value + (size_t)i * (size_t)p->columns + sorting->column;
  const struct sql_value *b = p->value + (size_t)j * (size_t)p->columns + sorting->column;
  int result;
  if (a->type == SQL_NULL || b->type == SQL_NULL)
    result = (a->type == SQL_NULL) - (b->type == SQL_NULL);
  else
    result = sorting->down ? compare(p, b, a) : compare(p, a, b);
  return result ? result : sorting->place[i] - sorting->place[j]; /* qsort_r alone is not stable */
}

bool sql_panel_sort(struct sql_panel *p, int column, bool down) {
  if (column < 0 || column >= p->columns || p->rows == 0) return true;
  int *place = malloc((size_t)p->rows * sizeof *place);
  if (!place) return false;
  for (int i = 0; i < p->rows; i++) place[p->order[i]] = i;
  struct sorting sorting = {p, place, column, down};
  qsort_r(p->order, (size_t)p->rows, sizeof *p->order, compare_rows, &sorting);
  free(place);
  return true;
}
