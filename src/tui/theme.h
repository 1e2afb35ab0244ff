/* theme.h: how each role looks. Roles are what views speak of; colours stand here and nowhere else. */
#ifndef KVS_TUI_THEME_H
#define KVS_TUI_THEME_H

#include <stdint.h>

#include "tui/cells.h"

/* A colour number of the terminal (0..255), −1 for the terminal's own. */
struct face {
  short foreground, background;
  unsigned attributes; /* on top of the cell's own; in mono they alone tell roles apart */
};

struct face theme_face(enum depth depth, enum role role);

/* The sRGB value of an xterm colour number, by the standard 256-colour cube; for SVG and for checking the ramp. */
uint32_t theme_rgb(int color);

#endif
