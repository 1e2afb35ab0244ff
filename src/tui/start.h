/* start.h: where the screen begins. By itself, so that the command line need not know what a screen is made of. */
#ifndef KVS_TUI_START_H
#define KVS_TUI_START_H

/* −1: the first run, its first generated token, layer 0, head 0. */
struct start {
  int run, step, layer, head;
};

#endif
