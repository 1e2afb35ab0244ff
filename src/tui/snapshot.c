/* snapshot.c: the grid as text, and as an SVG picture; what `:save-screen` and the pictures of the documentation come from. */
#include <errno.h>
#include <string.h>

#include "tui/cells.h"
#include "tui/theme.h"

/* stdio may fail without saying why; the caller is promised an errno. */
static bool written(FILE *file) {
  if (fflush(file) == 0 && !ferror(file)) return true;
  if (errno == 0) errno = EIO;
  return false;
}

static bool is_blank(const struct cell *cell) { return strcmp(cell->text, " ") == 0; }

bool cells_write_text(const struct cells *cells, FILE *file) {
  errno = 0;
  for (int row = 0; row < cells->rows; row++) {
    int end = cells->columns;
    while (end > 0 && is_blank(cells_at(cells, row, end - 1))) end--;
    for (int column = 0; column < end; column++) fputs(cells_at(cells, row, column)->text, file);
    fputc('\n', file);
  }
  return written(file);
}

/* ---- SVG ------------------------------------------------------------------------------------------------------------ */

/* A cell's size in pixels, and where in it the letters stand. */
enum { CELL_WIDTH = 9, CELL_HEIGHT = 20, BASELINE = 15, FONT_SIZE = 15 };

/* The picture's own ground: not quite black, so that it stands out from a black page and heat cells stand out from it. */
static const uint32_t ground = 0x1E1E1E, ink = 0xE4E4E4, dim_ink = 0x8A8A8A;

struct paint {
  uint32_t foreground, background;
  unsigned attributes;
};

static struct paint paint_of(const struct cell *cell, enum depth depth) {
  struct face look = theme_face(depth, (enum role)cell->role);
  struct paint paint = {look.foreground < 0 ? ink : theme_rgb(look.foreground),
                        look.background < 0 ? ground : theme_rgb(look.background), look.attributes | cell->attributes};
  if (paint.attributes & ATTR_DIM && look.foreground < 0) paint.foreground = dim_ink;
  if (paint.attributes & ATTR_REVERSE) {
    uint32_t foreground = paint.foreground;
    paint.foreground = paint.background;
    paint.background = foreground;
  }
  return paint;
}

static bool same_paint(struct paint a, struct paint b) {
  return a.foreground == b.foreground && a.background == b.background && a.attributes == b.attributes;
}

static void write_escaped(FILE *file, const char *text) {
  for (; *text; text++) {
    if (*text == '<')
      fputs("&lt;", file);
    else if (*text == '>')
      fputs("&gt;", file);
    else if (*text == '&')
      fputs("&amp;", file);
    else if (*text == '"')
      fputs("&quot;", file);
    else
      fputc(*text, file);
  }
}

/* The end of the stretch that one text element can hold: cells painted alike. A character beyond ASCII may come from another
 * font with other widths, so it gets an element of its own and stays in its cell. */
static int stretch_end(const struct cells *cells, enum depth depth, int row, int from) {
  const struct cell *first = cells_at(cells, row, from);
  int end = from + (first->width == 2 ? 2 : 1);
  if ((unsigned char)first->text[0] >= 0x80) return end;
  for (; end < cells->columns; end++) {
    const struct cell *cell = cells_at(cells, row, end);
    if ((unsigned char)cell->text[0] >= 0x80 || !same_paint(paint_of(cell, depth), paint_of(first, depth))) break;
  }
  return end;
}

static void write_ground(const struct cells *cells, enum depth depth, FILE *file, int row) {
  for (int from = 0, end; from < cells->columns; from = end) {
    struct paint paint = paint_of(cells_at(cells, row, from), depth);
    for (end = from + 1; end < cells->columns; end++)
      if (paint_of(cells_at(cells, row, end), depth).background != paint.background) break;
    if (paint.background == ground) continue;
    fprintf(file, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#%06x\"/>\n", from * CELL_WIDTH,
            row * CELL_HEIGHT, (end - from) * CELL_WIDTH, CELL_HEIGHT, (unsigned)paint.background);
  }
}

static void write_letters(const struct cells *cells, enum depth depth, FILE *file, int row) {
  for (int from = 0, end; from < cells->columns; from = end) {
    struct paint paint = paint_of(cells_at(cells, row, from), depth);
    end = stretch_end(cells, depth, row, from);
    bool seen = (paint.attributes & ATTR_UNDERLINE) != 0;
    for (int i = from; i < end; i++) seen = seen || !is_blank(cells_at(cells, row, i));
    if (!seen) continue;
    fprintf(file, "<text x=\"%d\" y=\"%d\" textLength=\"%d\" lengthAdjust=\"spacingAndGlyphs\" fill=\"#%06x\"%s%s>",
            from * CELL_WIDTH, row * CELL_HEIGHT + BASELINE, (end - from) * CELL_WIDTH, (unsigned)paint.foreground,
            paint.attributes & ATTR_BOLD ? " font-weight=\"bold\"" : "",
            paint.attributes & ATTR_UNDERLINE ? " text-decoration=\"underline\"" : "");
    for (int i = from; i < end; i++) write_escaped(file, cells_at(cells, row, i)->text);
    fputs("</text>\n", file);
  }
}

bool cells_write_svg(const struct cells *cells, enum depth depth, FILE *file) {
  errno = 0;
  int width = cells->columns * CELL_WIDTH, height = cells->rows * CELL_HEIGHT;
  fprintf(file,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
          "font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"%d\" xml:space=\"preserve\">\n",
          width, height, width, height, FONT_SIZE);
  fprintf(file, "<rect width=\"%d\" height=\"%d\" fill=\"#%06x\"/>\n", width, height, (unsigned)ground);
  for (int row = 0; row < cells->rows; row++) {
    write_ground(cells, depth, file, row);
    write_letters(cells, depth, file, row);
  }
  fputs("</svg>\n", file);
  return written(file);
}
