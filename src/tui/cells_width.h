/* cells_width.h (private to cells*.c): what kind of character a code point is, for a grid of cells. */
#ifndef KVS_TUI_CELLS_WIDTH_H
#define KVS_TUI_CELLS_WIDTH_H

#include <stdbool.h>
#include <stdint.h>

/* Controls, directions, line separators and what is not a character: never put on a screen. */
bool character_is_control(uint32_t code);

/* Joiners, variation selectors and other characters that only change how their neighbours look. A cell leaves them out:
 * whether 👩+joiner+💻 is one picture or two differs between terminals; without the joiner it is two everywhere. */
bool character_is_unseen(uint32_t code);

/* 0 for what joins the character before, 2 for wide, else 1. */
int character_width(uint32_t code);

/* The character that says the same in ASCII; '?' for one that kvstep does not itself draw. */
char character_ascii(uint32_t code);

#endif
