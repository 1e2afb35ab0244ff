/* cells.h: the screen as a grid of cells. Views draw into it; what puts it on a terminal, in a text file or in an SVG comes after.
 * A cell holds one character with its combining marks, a role (what it means, not which colour) and attributes. */
#ifndef KVS_TUI_CELLS_H
#define KVS_TUI_CELLS_H

#include <stdbool.h>
#include <stdint.h>

/* What a cell means. theme.c says how each looks in 256, 16 and no colours. */
enum role {
  ROLE_TEXT,
  ROLE_DIM,      /* labels, rows left out, what is not reached yet */
  ROLE_TITLE,    /* names of views and panes */
  ROLE_FRAME,    /* lines between panes */
  ROLE_TOKEN,    /* a token's text */
  ROLE_HERE,     /* the current token, row, head: what the dials point to */
  ROLE_NEW,      /* what has just changed: the appended row, numbers of the current moment */
  ROLE_FREE,     /* the slot that is free: row P before the append */
  ROLE_RIGHT,    /* the rule is kept */
  ROLE_WRONG,    /* it is not: fault, wrong position */
  ROLE_BAR,      /* bars of weights and probabilities */
  ROLE_NEGATIVE, /* negative numbers in small graphs */
  ROLE_KEY,      /* a key in the status line and in the help */
  ROLE_STATUS,   /* the status line */
  ROLE_MESSAGE,  /* what was just done */
  ROLE_ERROR,    /* what could not be done */
  ROLE_INPUT,    /* what is being typed */
  ROLE_RAMP,     /* ROLE_RAMP + 0 … RAMP_STEPS − 1: a magnitude from none to most, monotone in brightness */
};
#define RAMP_STEPS 12
#define ROLE_COUNT (ROLE_RAMP + RAMP_STEPS)

enum attribute { ATTR_BOLD = 1, ATTR_REVERSE = 2, ATTR_UNDERLINE = 4, ATTR_DIM = 8 };

/* How many colours there are to show roles with. */
enum depth { DEPTH_MONO, DEPTH_16, DEPTH_256 };

/* One cell. A wide character takes two: the second has width 0. A cell never holds a control character. */
struct cell {
  char text[20]; /* UTF-8, NUL-terminated: a base character and at most a few combining marks */
  uint8_t width; /* 1, 2, or 0 for the right half of a wide one */
  uint8_t role;
  uint8_t attributes;
};

struct cells {
  int rows, columns;
  struct cell *cell; /* [rows][columns] */
  bool ascii;        /* nothing but ASCII is drawn: no UTF-8, or --ascii */
  bool hurried;      /* somebody waits at the keys: what takes long may be left for the next frame … */
  bool unfinished;   /* … and then this says that there is more to come, so that one is drawn when there is time */
};

/* A rectangle of the grid that somebody draws in; what does not fit in it is cut off. */
struct area {
  int row, column, rows, columns;
};

/* Sets the size and blanks everything. Returns false when out of memory (the grid is then 0 × 0). */
bool cells_resize(struct cells *cells, int rows, int columns);
void cells_free(struct cells *cells);
void cells_clear(struct cells *cells);
struct area cells_area(const struct cells *cells);

/* The cell at a place, NULL outside the grid. */
struct cell *cells_at(const struct cells *cells, int row, int column);

/* Puts UTF-8 text at (row, column) of the area, at most `width` columns of it (−1: to the area's right edge); control and
 * broken bytes come out as '?', combining marks join their base, a wide character that does not fit whole is left out. With
 * cells->ascii, the characters kvstep itself uses (bars, arrows, frames, ␠) have ASCII stand-ins, any other becomes '?'.
 * Returns the columns used. */
int cells_put(struct cells *cells, struct area area, int row, int column, int width, enum role role, const char *text);
int cells_putf(struct cells *cells, struct area area, int row, int column, int width, enum role role,
               const char *format, ...) __attribute__((format(printf, 7, 8)));

/* The same, ending at column `right` (exclusive). Returns the columns used. */
int cells_put_right(struct cells *cells, struct area area, int row, int right, int width, enum role role,
                    const char *text);

/* As cells_put, cut with `…` when it is wider than `width`, padded with blanks when it is narrower. Always `width` columns. */
int cells_put_field(struct cells *cells, struct area area, int row, int column, int width, enum role role,
                    const char *text);

/* Columns that text takes; what cells_put would use without a limit. */
int text_columns(const char *text);

/* Bytes of the text that take at most so many columns, cut between characters. */
int text_fitting(const char *text, int columns);

/* Bytes of the text that go on a line of `columns`: all of it, or up to the last blank that leaves it short enough, or what fits where
 * there is no blank; at least one character, so that every text comes to its end. */
int text_line(const char *text, int columns);

/* Attributes, or another role, for what already stands in some columns of a row. */
void cells_mark(struct cells *cells, struct area area, int row, int column, int width, unsigned attributes);
void cells_recolor(struct cells *cells, struct area area, int row, int column, int width, enum role role);

/* A horizontal bar for fraction 0..1 of `width` columns, in eighths (`#` in ASCII). NaN draws nothing. */
void cells_bar(struct cells *cells, struct area area, int row, int column, int width, enum role role, double fraction);

/* A small graph, one column per value: ▁▂▃▄▅▆▇█ for |value| / scale, negative ones in ROLE_NEGATIVE (ASCII: digits 0-9 of
 * magnitude). At most `width` columns; with more values than columns each column shows the largest of its group. */
void cells_graph(struct cells *cells, struct area area, int row, int column, int width, enum role role,
                 const float *values, int count, double scale);

/* One heat cell of `width` columns for fraction 0..1: ramp colour, and a shade character that says the same without colour
 * (' ' ░ ▒ ▓ █; ASCII ' ' . : + # @). */
void cells_heat(struct cells *cells, struct area area, int row, int column, int width, double fraction);

/* A line across the area at `row`, or down it at `column`; a title set in it may be NULL. */
void cells_rule(struct cells *cells, struct area area, int row, const char *title);
void cells_divider(struct cells *cells, struct area area, int column);

/* The part of an area below its first n rows, etc., clipped to it. */
struct area area_rows(struct area area, int first, int count);
struct area area_columns(struct area area, int first, int count);

/* The grid as text, one line per row, trailing blanks cut; or as an SVG picture in the theme's colours of this depth.
 * Returns false with errno set when the file cannot be written. */
#include <stdio.h>
bool cells_write_text(const struct cells *cells, FILE *file);
bool cells_write_svg(const struct cells *cells, enum depth depth, FILE *file);

#endif
