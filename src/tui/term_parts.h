/* term_parts.h (private): what the files of the terminal share. Include it first: it brings ncurses. */
#ifndef KVS_TUI_TERM_PARTS_H
#define KVS_TUI_TERM_PARTS_H

#include <curses.h>
#include <stdbool.h>

/* Everything about the one terminal that more than one of them needs. */
struct terminal {
  SCREEN *screen;
  int rows, columns;
  bool pastes; /* it says where a paste begins and ends */
};
extern struct terminal term;

/* Takes the terminal's size as it is now; everything is then to be drawn. */
void term_take_size(void);

/* Whether it is to say where a paste begins and ends, if it can. */
void term_bracket_pastes(bool on);

/* `depth` as in term_open. */
void term_set_colors(int depth);
void term_forget_shown(void);

void term_define_keys(void);

#endif
