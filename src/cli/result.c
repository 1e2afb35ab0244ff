/* result.c: rows on stdout, for people and for programs. */
#include "cli/result.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const result_formats[] = {"table", "csv", "json", NULL};

/* A table's columns are as wide as their widest cell among the first rows; wider ones later only push to the right. */
#define TABLE_ROWS 1000
#define BLOB_SHOWN 8
#define CELL_WIDTH 60

static void put_hex(const unsigned char *bytes, int count) {
  for (int i = 0; i < count; i++) printf("%02x", bytes[i]);
}

/* The shortest decimal form that reads back as the same double, and as a real number: 1.0, not 1. */
static void real_text(double value, char *text, size_t size) {
  for (int digits = 6; digits <= 17; digits++) {
    snprintf(text, size, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
  size_t length = strlen(text);
  if (isfinite(value) && !strpbrk(text, ".e")) snprintf(text + length, size - length, ".0");
}

/* A program gets text as it is; on a terminal its control characters must not act. */
static void put_text(const char *text, size_t length) {
  if (isatty(STDOUT_FILENO))
    put_safe(stdout, text, length);
  else
    fwrite(text, 1, length, stdout);
}

/* ---- CSV (RFC 4180) -------------------------------------------------------------------------------------------- */

static void csv_text(const char *text, int length) {
  bool quote = length == 0; /* NULL is empty, the empty text is "" */
  for (int i = 0; i < length; i++) quote = quote || strchr(",\"\r\n", text[i]) || text[i] == ' ';
  if (quote) putchar('"');
  while (length > 0) {
    const char *end = memchr(text, '"', (size_t)length);
    int part = end ? (int)(end - text) + 1 : length;
    put_text(text, (size_t)part);
    if (end) putchar('"'); /* doubled */
    text += part;
    length -= part;
  }
  if (quote) putchar('"');
}

static void csv_cell(sqlite3_stmt *s, int c) {
  char number[40];
  switch (sqlite3_column_type(s, c)) {
  case SQLITE_NULL:
    break;
  case SQLITE_INTEGER:
    printf("%lld", (long long)sqlite3_column_int64(s, c));
    break;
  case SQLITE_FLOAT:
    real_text(sqlite3_column_double(s, c), number, sizeof number);
    fputs(number, stdout);
    break;
  case SQLITE_BLOB:
    fputs("x'", stdout);
    put_hex(sqlite3_column_blob(s, c), sqlite3_column_bytes(s, c));
    putchar('\'');
    break;
  default:
    csv_text((const char *)sqlite3_column_text(s, c), sqlite3_column_bytes(s, c));
  }
}

static int print_csv(sqlite3_stmt *s) {
  int columns = sqlite3_column_count(s), result;
  for (int c = 0; c < columns; c++) {
    if (c) putchar(',');
    const char *name = sqlite3_column_name(s, c);
    csv_text(name, (int)strlen(name));
  }
  fputs("\r\n", stdout);
  while ((result = sqlite3_step(s)) == SQLITE_ROW) {
    for (int c = 0; c < columns; c++) {
      if (c) putchar(',');
      csv_cell(s, c);
    }
    fputs("\r\n", stdout);
  }
  return result;
}

/* ---- JSON (RFC 8259) ------------------------------------------------------------------------------------------- */

/* Length of the valid UTF-8 character at text, or 0. */
static int utf8_length(const unsigned char *t, int left) {
  if (t[0] < 0x80) return 1;
  int n = t[0] >= 0xF0 && t[0] <= 0xF4 ? 4 : t[0] >= 0xE0 ? 3 : t[0] >= 0xC2 ? 2 : 0;
  if (n == 0 || t[0] > 0xF4 || n > left) return 0;
  for (int i = 1; i < n; i++)
    if ((t[i] & 0xC0) != 0x80) return 0;
  bool overlong = (t[0] == 0xE0 && t[1] < 0xA0) || (t[0] == 0xF0 && t[1] < 0x90);
  bool outside = (t[0] == 0xED && t[1] >= 0xA0) || (t[0] == 0xF4 && t[1] >= 0x90);
  return overlong || outside ? 0 : n;
}

static void json_text(const char *text, int length) {
  putchar('"');
  for (int i = 0; i < length;) {
    unsigned char c = (unsigned char)text[i];
    int n = utf8_length((const unsigned char *)text + i, length - i);
    if (n == 0)
      fputs("\\ufffd", stdout);
    else if (c == '"' || c == '\\')
      printf("\\%c", c);
    else if (c < 0x20 || c == 0x7F)
      printf("\\u%04x", c);
    else if (c == 0xC2 && (unsigned char)text[i + 1] < 0xA0) /* C1 controls */
      printf("\\u%04x", (unsigned char)text[i + 1]);
    else
      fwrite(text + i, 1, (size_t)n, stdout);
    i += n ? n : 1;
  }
  putchar('"');
}

static void json_cell(sqlite3_stmt *s, int c) {
  char number[40];
  double value;
  switch (sqlite3_column_type(s, c)) {
  case SQLITE_NULL:
    fputs("null", stdout);
    break;
  case SQLITE_INTEGER:
    printf("%lld", (long long)sqlite3_column_int64(s, c));
    break;
  case SQLITE_FLOAT:
    value = sqlite3_column_double(s, c);
    real_text(value, number, sizeof number);
    fputs(isfinite(value) ? number
          : value > 0     ? "1e999"
                          : "-1e999",
          stdout); /* JSON has no infinity; this reads as one */
    break;
  case SQLITE_BLOB:
    fputs("\"x'", stdout);
    put_hex(sqlite3_column_blob(s, c), sqlite3_column_bytes(s, c));
    fputs("'\"", stdout);
    break;
  default:
    json_text((const char *)sqlite3_column_text(s, c), sqlite3_column_bytes(s, c));
  }
}

static int print_json(sqlite3_stmt *s) {
  int columns = sqlite3_column_count(s), result, rows = 0;
  putchar('[');
  while ((result = sqlite3_step(s)) == SQLITE_ROW) {
    printf(rows++ ? ",\n {" : "{");
    for (int c = 0; c < columns; c++) {
      const char *name = sqlite3_column_name(s, c);
      if (c) fputs(", ", stdout);
      json_text(name, (int)strlen(name));
      fputs(": ", stdout);
      json_cell(s, c);
    }
    putchar('}');
  }
  puts("]");
  return result;
}

/* ---- table ----------------------------------------------------------------------------------------------------- */

/* A cell as it is shown: one line, no control characters. The caller frees it. */
static char *table_cell(sqlite3_stmt *s, int c) {
  char text[4 * 256 + 1];
  const unsigned char *bytes;
  int length;
  switch (sqlite3_column_type(s, c)) {
  case SQLITE_NULL:
    return strdup("NULL");
  case SQLITE_FLOAT:
    snprintf(text, sizeof text, "%.6g", sqlite3_column_double(s, c));
    return strdup(text);
  case SQLITE_BLOB:
    bytes = sqlite3_column_blob(s, c);
    length = sqlite3_column_bytes(s, c);
    strcpy(text, "x'");
    for (int i = 0; i < length && i < BLOB_SHOWN; i++) snprintf(text + 2 + 2 * i, 3, "%02x", bytes[i]);
    snprintf(text + strlen(text), 40, length > BLOB_SHOWN ? "…' %d bytes" : "'", length);
    return strdup(text);
  default:
    bytes = sqlite3_column_text(s, c);
    length = sqlite3_column_bytes(s, c);
    size_t used = 0;
    for (int i = 0; i < length && used < sizeof text - 8; i++) {
      if (bytes[i] == '\n')
        used += (size_t)snprintf(text + used, 5, "\\n");
      else if (bytes[i] < 0x20 || bytes[i] == 0x7F)
        used += (size_t)snprintf(text + used, 5, "\\x%02x", bytes[i]);
      else
        text[used++] = (char)bytes[i];
    }
    text[used] = '\0';
    return strdup(text);
  }
}

/* The first rows, kept to learn the columns' widths. */
struct table {
  int columns, rows;
  int *width;   /* [columns] */
  bool *number; /* [columns] right-aligned */
  char **cells; /* [TABLE_ROWS][columns] */
};

static void table_free(struct table *t) {
  for (int i = 0; t->cells && i < t->rows * t->columns; i++) free(t->cells[i]);
  free(t->cells);
  free(t->width);
  free(t->number);
}

static bool table_keep(struct table *t, sqlite3_stmt *s) {
  char **row = t->cells + (size_t)t->rows * (size_t)t->columns;
  t->rows++;
  for (int c = 0; c < t->columns; c++) {
    int type = sqlite3_column_type(s, c);
    if (type != SQLITE_INTEGER && type != SQLITE_FLOAT && type != SQLITE_NULL) t->number[c] = false;
    row[c] = table_cell(s, c);
    if (!row[c]) return false;
    int width = text_width(row[c]);
    if (width > CELL_WIDTH) width = CELL_WIDTH;
    if (width > t->width[c]) t->width[c] = width;
  }
  return true;
}

static void put_cell(const struct table *t, struct style style, int c, const char *text) {
  int width = t->width[c];
  bool last = c + 1 == t->columns;
  if (t->number[c])
    put_padded(stdout, style, text, -width);
  else if (last) /* no blanks at the line's end */
    put_padded(stdout, style, text, text_width(text) < CELL_WIDTH ? text_width(text) : CELL_WIDTH);
  else
    put_padded(stdout, style, text, width);
  fputs(last ? "\n" : "  ", stdout);
}

static void table_print(const struct table *t, sqlite3_stmt *s, struct style style) {
  for (int c = 0; c < t->columns; c++) {
    fputs(color(style, INK_TITLE), stdout);
    put_cell(t, style, c, sqlite3_column_name(s, c));
    fputs(color(style, INK_PLAIN), stdout);
  }
  for (int c = 0; c < t->columns; c++) {
    for (int i = 0; i < t->width[c]; i++) fputs(style.utf8 ? "─" : "-", stdout);
    fputs(c + 1 == t->columns ? "\n" : "  ", stdout);
  }
  for (int r = 0; r < t->rows; r++)
    for (int c = 0; c < t->columns; c++) put_cell(t, style, c, t->cells[r * t->columns + c]);
}

static int print_table(sqlite3_stmt *s, struct style style) {
  int columns = sqlite3_column_count(s), result = SQLITE_NOMEM;
  struct table t = {.columns = columns};
  t.width = calloc((size_t)columns, sizeof *t.width);
  t.number = malloc((size_t)columns * sizeof *t.number);
  t.cells = calloc((size_t)columns * TABLE_ROWS, sizeof *t.cells);
  if (!t.width || !t.number || !t.cells) goto done;
  for (int c = 0; c < columns; c++) {
    t.width[c] = text_width(sqlite3_column_name(s, c));
    t.number[c] = true;
  }
  while ((result = sqlite3_step(s)) == SQLITE_ROW && t.rows < TABLE_ROWS)
    if (!table_keep(&t, s)) {
      result = SQLITE_NOMEM;
      goto done;
    }
  if (result == SQLITE_ROW || result == SQLITE_DONE || t.rows > 0) table_print(&t, s, style);
  for (; result == SQLITE_ROW; result = sqlite3_step(s))
    for (int c = 0; c < columns; c++) {
      char *text = table_cell(s, c);
      if (!text) {
        result = SQLITE_NOMEM;
        goto done;
      }
      put_cell(&t, style, c, text);
      free(text);
    }
done:
  table_free(&t);
  return result;
}

int result_print(sqlite3_stmt *statement, enum result_format format, struct style style) {
  if (sqlite3_column_count(statement) == 0) return sqlite3_step(statement);
  switch (format) {
  case RESULT_CSV:
    return print_csv(statement);
  case RESULT_JSON:
    return print_json(statement);
  case RESULT_TABLE:
    break;
  }
  return print_table(statement, style);
}
