/* prompt_text.h: a prompt as one line to be edited: what cannot be typed or seen is written \n, \t, \r, \\ or \xHH. */
#ifndef KVS_TUI_PROMPT_TEXT_H
#define KVS_TUI_PROMPT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Writes the bytes as a line. False if it does not fit; the line is then empty. */
bool prompt_show(const char *bytes, size_t length, char *line, size_t size);

/* The bytes that a line stands for; they are never more than its own. -1: done; else where the escape is that means nothing. */
int prompt_read(const char *line, char *bytes, size_t *length);

#endif
