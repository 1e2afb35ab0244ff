/* cells.c: the grid, and putting text into it: clipped, each character in its own cell, no half of a wide one left over. */
#include "tui/cells.h"

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "text/utf8.h"
#include "tui/cells_width.h"

static const struct cell blank = {.text = " ", .width = 1, .role = ROLE_TEXT};

bool cells_resize(struct cells *cells, int rows, int columns) {
  if (rows < 0) rows = 0;
  if (columns < 0) columns = 0;
  size_t count = (size_t)rows * (size_t)columns;
  struct cell *grid = count && count < (size_t)INT_MAX ? realloc(cells->cell, count * sizeof *grid) : NULL;
  if (!grid) {
    cells_free(cells);
    return count == 0;
  }
  cells->cell = grid;
  cells->rows = rows;
  cells->columns = columns;
  cells_clear(cells);
  return true;
}

void cells_free(struct cells *cells) {
  free(cells->cell);
  cells->cell = NULL;
  cells->rows = cells->columns = 0;
}

void cells_clear(struct cells *cells) {
  size_t count = (size_t)cells->rows * (size_t)cells->columns;
  for (size_t i = 0; i < count; i++) cells->cell[i] = blank;
}

struct area cells_area(const struct cells *cells) {
  return (struct area){0, 0, cells->rows, cells->columns};
}

struct cell *cells_at(const struct cells *cells, int row, int column) {
  if (row < 0 || column < 0 || row >= cells->rows || column >= cells->columns) return NULL;
  return cells->cell + (size_t)row * (size_t)cells->columns + (size_t)column;
}

/* ---- where text may stand ------------------------------------------------------------------------------------------- */

/* Columns of the grid from `from`, where the text begins, up to `to`; of these only `left` and on are seen. Long, so that no
 * number a caller gives can overflow. A row out of sight has left = to: text runs along it and nothing is drawn. */
struct span {
  int row;
  long long from, left, to;
};

static struct span span_of(const struct cells *cells, struct area area, int row, int column, long long width) {
  struct span span = {.from = (long long)area.column + column, .left = area.column};
  span.to = (long long)area.column + (area.columns > 0 ? area.columns : 0);
  if (width >= 0 && span.from + width < span.to) span.to = span.from + width;
  if (span.to > cells->columns) span.to = cells->columns;
  if (span.left < 0) span.left = 0;
  if (span.left < span.from) span.left = span.from;
  long long line = (long long)area.row + row;
  if (row < 0 || row >= area.rows || line < 0 || line >= cells->rows || span.left > span.to) {
    span.left = span.to;
    line = 0;
  }
  span.row = (int)line;
  return span;
}

/* Makes room at one cell: when it is half of a wide character, the other half becomes blank. */
static struct cell *take(struct cells *cells, int row, int column) {
  struct cell *cell = cells_at(cells, row, column);
  struct cell *other = cell->width == 2   ? cells_at(cells, row, column + 1)
                       : cell->width == 0 ? cells_at(cells, row, column - 1)
                                          : NULL;
  if (other) {
    memcpy(other->text, " ", 2);
    other->width = 1;
  }
  return cell;
}

static void draw_one(struct cells *cells, struct span span, long long column, enum role role, const char *text) {
  if (column < span.left || column >= span.to) return;
  struct cell *cell = take(cells, span.row, (int)column);
  *cell = (struct cell){.width = 1, .role = (uint8_t)role};
  memcpy(cell->text, text, strlen(text) + 1);
}

static void draw_wide(struct cells *cells, struct span span, long long column, enum role role, const char *text) {
  if (column < span.left || column + 1 >= span.to) { /* a half in sight stays blank */
    draw_one(cells, span, column, role, " ");
    draw_one(cells, span, column + 1, role, " ");
    return;
  }
  draw_one(cells, span, column, role, text);
  draw_one(cells, span, column + 1, role, "");
  cells_at(cells, span.row, (int)column)->width = 2;
  cells_at(cells, span.row, (int)column + 1)->width = 0;
}

/* ---- characters ----------------------------------------------------------------------------------------------------- */

/* What one or two cells will hold. */
struct glyph {
  char text[sizeof((struct cell *)0)->text];
  size_t length;
  int width;
};

static void append(struct glyph *glyph, const char *bytes, size_t length) {
  if (glyph->length + length >= sizeof glyph->text) return;
  memcpy(glyph->text + glyph->length, bytes, length);
  glyph->length += length;
  glyph->text[glyph->length] = '\0';
}

/* Takes the next character and its marks off *text, of which *left bytes remain. */
static struct glyph next_glyph(const char **text, size_t *left, bool ascii) {
  struct glyph glyph = {.width = 1};
  kvs_utf8_unit unit = kvs_utf8_next((const unsigned char *)*text, *left);
  bool shown = unit.kind == KVS_UTF8_CHARACTER && !character_is_control(unit.code) && !character_is_unseen(unit.code);
  if (shown) glyph.width = character_width(unit.code);
  if (!shown) {
    append(&glyph, "?", 1);
  } else if (ascii) {
    const char stand_in = character_ascii(unit.code);
    append(&glyph, &stand_in, 1);
  } else {
    if (glyph.width == 0) append(&glyph, "◌", 3); /* a mark with nothing to stand on */
    append(&glyph, *text, unit.length);
  }
  if (glyph.width == 0) glyph.width = 1;
  *text += unit.length;
  *left -= unit.length;
  while (*left) {
    unit = kvs_utf8_next((const unsigned char *)*text, *left);
    if (unit.kind != KVS_UTF8_CHARACTER || character_is_control(unit.code) || character_width(unit.code) != 0) break;
    if (!ascii && !character_is_unseen(unit.code)) append(&glyph, *text, unit.length);
    *text += unit.length;
    *left -= unit.length;
  }
  return glyph;
}

int text_columns(const char *text) {
  size_t left = strlen(text);
  long long total = 0;
  while (left) total += next_glyph(&text, &left, false).width;
  return total > INT_MAX ? INT_MAX : (int)total;
}

int text_fitting(const char *text, int columns) {
  const char *at = text, *before = text;
  size_t left = strlen(text);
  for (long long used = 0; used <= columns && left;) {
    before = at;
    used += next_glyph(&at, &left, false).width;
    if (used <= columns) before = at;
  }
  return (int)(before - text);
}

int text_line(const char *text, int columns) {
  const char *at = text, *end = NULL; /* of the last word */
  size_t left = strlen(text);
  for (long long used = 0; left;) {
    const char *before = at;
    used += next_glyph(&at, &left, false).width;
    if (*before == ' ' && before > text) end = before;
    if (used > columns && before > text) return (int)((end ? end : before) - text);
  }
  return (int)(at - text);
}

/* ---- text ----------------------------------------------------------------------------------------------------------- */

int cells_put(struct cells *cells, struct area area, int row, int column, int width, enum role role, const char *text) {
  struct span span = span_of(cells, area, row, column, width);
  size_t left = strlen(text);
  long long at = span.from;
  while (left && at < span.to) {
    struct glyph glyph = next_glyph(&text, &left, cells->ascii);
    if (glyph.width == 1)
      draw_one(cells, span, at, role, glyph.text);
    else if (cells->ascii) { /* as many columns as the character itself, so that text_columns holds */
      draw_one(cells, span, at, role, glyph.text);
      draw_one(cells, span, at + 1, role, glyph.text);
    } else
      draw_wide(cells, span, at, role, glyph.text);
    at += glyph.width;
  }
  if (at > span.to) at = span.to;
  return at > span.from ? (int)(at - span.from) : 0;
}

int cells_putf(struct cells *cells, struct area area, int row, int column, int width, enum role role,
               const char *format, ...) {
  char text[2048]; /* wider than any screen; what is longer is cut off anyway */
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return length < 0 ? 0 : cells_put(cells, area, row, column, width, role, text);
}

int cells_put_right(struct cells *cells, struct area area, int row, int right, int width, enum role role,
                    const char *text) {
  int columns = text_columns(text);
  if (width >= 0 && columns > width) columns = width;
  if (width < 0 && columns > right) columns = right > 0 ? right : 0;
  long long column = (long long)right - columns;
  if (column < INT_MIN) return 0;
  return cells_put(cells, area, row, (int)column, columns, role, text);
}

int cells_put_field(struct cells *cells, struct area area, int row, int column, int width, enum role role,
                    const char *text) {
  if (width < 0) {
    long long rest = (long long)area.columns - column;
    width = rest < 0 ? 0 : rest > INT_MAX ? INT_MAX : (int)rest;
  }
  struct span span = span_of(cells, area, row, column, width);
  bool cut = text_columns(text) > width;
  int used = cells_put(cells, area, row, column, cut && width > 0 ? width - 1 : width, role, text);
  long long rest = span.from + used > span.left ? span.from + used : span.left; /* not from far out of sight */
  for (long long at = rest; at < span.to; at++) draw_one(cells, span, at, role, " ");
  if (cut && width > 0) draw_one(cells, span, span.from + width - 1, role, cells->ascii ? "." : "…");
  return width;
}

void cells_mark(struct cells *cells, struct area area, int row, int column, int width, unsigned attributes) {
  struct span span = span_of(cells, area, row, column, width);
  for (long long at = span.left; at < span.to; at++)
    cells_at(cells, span.row, (int)at)->attributes |= (uint8_t)attributes;
}

void cells_recolor(struct cells *cells, struct area area, int row, int column, int width, enum role role) {
  struct span span = span_of(cells, area, row, column, width);
  for (long long at = span.left; at < span.to; at++) cells_at(cells, span.row, (int)at)->role = (uint8_t)role;
}

/* ---- areas ---------------------------------------------------------------------------------------------------------- */

/* Cuts first and count to 0 … size. */
static void clip(int *first, int *count, int size) {
  if (size < 0) size = 0;
  long long end = (long long)*first + (*count > 0 ? *count : 0);
  if (*first < 0) *first = 0;
  if (*first > size) *first = size;
  if (end > size) end = size;
  *count = end > *first ? (int)(end - *first) : 0;
}

struct area area_rows(struct area area, int first, int count) {
  clip(&first, &count, area.rows);
  return (struct area){area.row + first, area.column, count, area.columns};
}

struct area area_columns(struct area area, int first, int count) {
  clip(&first, &count, area.columns);
  return (struct area){area.row, area.column + first, area.rows, count};
}
