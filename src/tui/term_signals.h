/* term_signals.h (private to the terminal): signals that end the program leave the terminal whole; the others are told. */
#ifndef KVS_TUI_TERM_SIGNALS_H
#define KVS_TUI_TERM_SIGNALS_H

#include <stdbool.h>
#include <stddef.h>

/* Notes the terminal's modes and makes the pipe over which the handlers tell. False with errno set. */
bool signals_begin(void);

/* More of what is to be written to give the terminal back; before signals_catch. */
void signals_restore_with(const char *bytes, size_t length);

/* From here on the terminal counts as taken: a signal that ends the program gives it back first. */
void signals_catch(void);
bool signals_taken(void);

/* The caller has undone all else: the modes as they were, and no handler touches the terminal. signals_take_again notes the modes
 * anew. */
void signals_give_back(void);
void signals_take_again(void);

/* Puts back what was in force before, and closes the pipe. */
void signals_end(void);

/* Readable when there is news, and the news since the last time. */
enum signals_news { NEWS_RESIZE = 1, NEWS_BACK = 2, NEWS_SUSPEND = 4, NEWS_INTERRUPT = 8, NEWS_ENDING = 16 };
int signals_descriptor(void);
unsigned signals_news(void);

#endif
