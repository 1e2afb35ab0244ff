/* out.h: what all subcommands share in writing: messages, streams that may fail, widths, colours, escapes. */
#ifndef KVS_CLI_OUT_H
#define KVS_CLI_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "kvstep/error.h"

/* Prints `kvstep: message` on stderr and returns the exit code that belongs to the status. */
int report(const kvs_error *err);

/* Puts the file's name in front of the message, where it does not stand there yet: the rooms below know a trace, not its name. */
void name_file(const char *path, kvs_error *err);

/* Both: for what went wrong with the file at `path`. */
int report_on(const char *path, kvs_error *err);

/* Opens descriptors 0 to 2 if the caller closed them, in such a way that using them fails: otherwise the trace's file
 * could become "standard output". Call it first. */
void open_standard_streams(void);

/* Flushes stdout; returns `code`, or EXIT_BAD with a message if anything written to it was lost. */
int finish_stdout(int code);

/* The message for what `errnum` did to stdout; returns EXIT_BAD. */
int stdout_failed(int errnum);

/* How a subcommand draws: set once from the terminal, the locale, NO_COLOR and --ascii. */
struct style {
  bool color;
  bool utf8;
};
struct style style_of_stdout(bool ascii);

/* The escape sequence of a role, or "" when there are no colours. */
enum ink { INK_PLAIN, INK_TITLE, INK_DIM, INK_GOOD, INK_BAD, INK_SELF };
const char *color(struct style style, enum ink ink);

/* Columns that `text` takes on a terminal; bytes that are no character count as one each. */
int text_width(const char *text);

/* In these two whatever could move the cursor, C1 controls and direction marks too, comes out as `?`: texts of a trace
 * are from anybody.
 *
 * Writes `text` as it is, with no padding. */
void put_shown(FILE *file, struct style style, const char *text);

/* Writes `text` padded with blanks to `width` columns, cut with `…` if it is wider. Negative width: right-aligned. */
void put_padded(FILE *file, struct style style, const char *text, int width);

/* Writes a bar of at most `width` columns for a fraction of 1, in eighths where the locale can. */
void put_bar(FILE *file, struct style style, double fraction, int width);

/* Writes text with everything that could move the cursor made visible. */
void put_safe(FILE *file, const char *text, size_t length);

/* "1,234,567" and "12.3 MB", into a buffer that is good until the eighth call from now. */
const char *grouped(long long number);
const char *bytes_text(double bytes);

#endif
