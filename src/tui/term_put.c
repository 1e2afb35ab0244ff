/* term_put.c: cells onto the terminal, each role in the colours that there are. */
#define NCURSES_WIDECHAR 1
#include "tui/term_parts.h"

#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "text/utf8.h"
#include "tui/cells.h"
#include "tui/term.h"
#include "tui/theme.h"

static enum depth depth_shown;
static attr_t attributes_of[ROLE_COUNT];
static struct cell *shown; /* what was put last, rows × columns; NULL: unknown */

/* ---- colours -------------------------------------------------------------------------------------------------------- */

static enum depth usual_depth(void) {
  const char *no_color = getenv("NO_COLOR");
  if (no_color && *no_color) return DEPTH_MONO;
  int colors = tigetnum("colors");
  return colors >= 256 ? DEPTH_256 : colors >= 8 ? DEPTH_16 : DEPTH_MONO;
}

/* A bright colour on a terminal of eight is its plain one, bold: how such terminals have always shown it. */
static short fitting(short color, bool *bright) {
  if (color < COLORS) return color;
  if (color < 16 && COLORS >= 8) {
    *bright = true;
    return (short)(color - 8);
  }
  return -1;
}

void term_set_colors(int depth) {
  depth_shown = depth >= 0 ? (enum depth)depth : usual_depth();
  bool color = depth_shown != DEPTH_MONO && start_color() == OK;
  bool own = color && use_default_colors() == OK;
  for (int role = 0; role < ROLE_COUNT; role++) {
    struct face look = theme_face(depth_shown, (enum role)role);
    attr_t attributes = A_NORMAL;
    bool bright = false, ignored = false;
    if (color) {
      short foreground = fitting(look.foreground, &bright), background = fitting(look.background, &ignored);
      if (!own && foreground < 0) foreground = COLOR_WHITE;
      if (!own && background < 0) background = COLOR_BLACK;
      init_pair((short)(role + 1), foreground, background);
    }
    if (bright || (look.attributes & ATTR_BOLD)) attributes |= A_BOLD;
    if (look.attributes & ATTR_REVERSE) attributes |= A_REVERSE;
    if (look.attributes & ATTR_UNDERLINE) attributes |= A_UNDERLINE;
    if (look.attributes & ATTR_DIM) attributes |= A_DIM;
    attributes_of[role] = attributes;
  }
  if (!color) depth_shown = DEPTH_MONO;
}

/* ---- cells ---------------------------------------------------------------------------------------------------------- */

/* A cell's text as ncurses wants it. What the C library would give another width than the grid does is shown as '?', so
 * that everything right of it stays in its place. */
static int wide_text(const struct cell *cell, wchar_t text[CCHARW_MAX]) {
  const char *from = cell->text;
  int count = 0;
  while (*from && count < CCHARW_MAX - 1) {
    kvs_utf8_unit unit = kvs_utf8_next((const unsigned char *)from, strlen(from));
    wchar_t c = unit.kind == KVS_UTF8_CHARACTER ? (wchar_t)unit.code : L'?';
    int width = wcwidth(c);
    if (count == 0 && width != cell->width) c = cell->text[1] || width < 0 ? L'?' : c;
    if (count == 0 || width == 0) text[count++] = c;
    from += unit.length;
  }
  if (count == 0) text[count++] = L' ';
  text[count] = L'\0';
  return wcwidth(text[0]);
}

static void put_cell(const struct cell *cell, int row, int column) {
  if (cell->width == 0) return; /* the right half came with the left one */
  wchar_t text[CCHARW_MAX + 1];
  cchar_t character;
  int role = cell->role < ROLE_COUNT ? cell->role : ROLE_TEXT;
  attr_t attributes = attributes_of[role];
  if (cell->attributes & ATTR_BOLD) attributes |= A_BOLD;
  if (cell->attributes & ATTR_REVERSE) attributes ^= A_REVERSE;
  if (cell->attributes & ATTR_UNDERLINE) attributes |= A_UNDERLINE;
  short pair = (short)(depth_shown == DEPTH_MONO ? 0 : role + 1);
  int width = wide_text(cell, text);
  setcchar(&character, text, attributes, pair, NULL);
  mvadd_wch(row, column, &character);
  if (width < cell->width && column + 1 < term.columns) {
    setcchar(&character, L" ", attributes, pair, NULL);
    mvadd_wch(row, column + 1, &character);
  }
}

void term_put(const struct cells *cells, int row, int column) {
  size_t all = (size_t)term.rows * (size_t)term.columns;
  if (cells->rows != term.rows || cells->columns != term.columns) return; /* drawn for a size that is no more */
  bool known = shown != NULL;
  if (!known) shown = malloc(all * sizeof *shown); /* without it, every row is put */
  for (int r = 0; r < cells->rows; r++) {
    const struct cell *now = cells->cell + (size_t)r * (size_t)cells->columns;
    struct cell *last = shown ? shown + (size_t)r * (size_t)cells->columns : NULL;
    size_t size = (size_t)cells->columns * sizeof *now;
    if (known && memcmp(now, last, size) == 0) continue;
    for (int c = 0; c < cells->columns; c++) put_cell(now + c, r, c);
    if (last) memcpy(last, now, size);
  }
  bool visible = row >= 0 && row < term.rows && column >= 0 && column < term.columns;
  curs_set(visible);
  move(visible ? row : 0, visible ? column : 0);
  refresh();
}

void term_forget_shown(void) {
  free(shown);
  shown = NULL;
}

void term_redraw(void) {
  term_forget_shown();
  clearok(curscr, TRUE);
}
