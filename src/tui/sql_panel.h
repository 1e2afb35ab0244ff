/* sql_panel.h: questions in SQL to the trace, and what came back: rows to scroll and sort, or an error with its place. Knows
 * neither keys nor the screen; the drive asks and owns it, view_sql.c reads its fields. */
#ifndef KVS_TUI_SQL_PANEL_H
#define KVS_TUI_SQL_PANEL_H

#include <stdbool.h>
#include <stddef.h>

struct sqlite3;

#define SQL_ROWS_MOST 10000
#define SQL_WIDTH_MOST 32 /* of a column on the screen */
#define SQL_HISTORY 64
#define SQL_WORD 64
#define SQL_POLL_EVERY 100 /* microseconds, or with long values milliseconds */

enum sql_type { SQL_NULL, SQL_INTEGER, SQL_REAL, SQL_TEXT, SQL_BLOB };

/* One value. Of a text or BLOB only the first bytes are kept: enough to show, and to sort by. */
struct sql_value {
  enum sql_type type;
  union {
    long long integer;
    double real;
    struct {
      size_t at; /* in sql_panel.bytes */
      int kept;
      int length; /* of the whole */
    } bytes;
  };
};

struct sql_column {
  char name[SQL_WORD];
  int width;    /* of the widest value or the name, at most SQL_WIDTH_MOST */
  bool number;  /* nothing but numbers and NULL: right-aligned */
  int decimals; /* that its reals are written with, so that their points stand one below the other */
};

enum sql_outcome { SQL_NOTHING_ASKED, SQL_ANSWERED, SQL_FAILED };

/* Why there are no more rows. */
enum sql_ending {
  SQL_COMPLETE,
  SQL_AT_MOST, /* there are more than SQL_ROWS_MOST */
  SQL_FULL,    /* they would take too much memory */
  SQL_STOPPED, /* by the callback */
};

struct sql_panel {
  struct sqlite3 *db; /* not owned */

  /* Asked after every SQL_POLL_EVERY instructions of SQLite's machine while a query runs; true stops it. May be NULL. */
  bool (*interrupted)(void *context);
  void *context;

  enum sql_outcome outcome;
  char *query; /* that was asked last; NULL: none */
  double seconds;

  /* SQL_FAILED */
  char error[512];
  int error_offset; /* byte of the query, −1 if SQLite does not say */

  /* SQL_ANSWERED */
  enum sql_ending ending;
  int columns, rows;
  struct sql_column *column; /* [columns] */
  struct sql_value *value;   /* [rows][columns], in the order in which they came */
  int *order;                /* [rows] which of them is shown where */
  char *bytes;
  size_t value_room, bytes_used, bytes_room;

  char *history[SQL_HISTORY]; /* the newest first */
  int asked;                  /* entries of it */
  char *draft;                /* what was being typed before history was looked at */
};

/* NULL when out of memory. */
struct sql_panel *sql_panel_create(struct sqlite3 *db);
void sql_panel_free(struct sql_panel *panel);

/* Asks; what came before is gone. Several statements may stand one after another: the last one's rows stay. Nothing but blanks
 * forgets the answer, so that the examples are seen again. Every failure is in the panel. */
void sql_panel_ask(struct sql_panel *panel, const char *query);

/* A value of the row that is shown at `row`. */
const struct sql_value *sql_panel_value(const struct sql_panel *panel, int row, int column);

/* It as one line of text: NULL, 12, 0.250, x'0a0b…' 64 bytes. */
void sql_panel_text(const struct sql_panel *panel, int row, int column, char *text, size_t size);

/* Orders the rows by a column: numbers before text before BLOBs, or (`down`) the other way; NULL is last both ways. Rows that
 * are alike stay as they were. False when out of memory. */
bool sql_panel_sort(struct sql_panel *panel, int column, bool down);

/* What a shown row says about a dial: the whole number in the column of that name; false if there is none. */
bool sql_panel_dial(const struct sql_panel *panel, int row, const char *name, int *number);

/* The line at place `at` of the history: 1 is the newest question, 0 the draft. NULL if there is none. */
const char *sql_panel_recall(const struct sql_panel *panel, int at);
void sql_panel_keep_draft(struct sql_panel *panel, const char *line);

/* ---- words that may follow; sql_words.c ----------------------------------------------------------------------------- */

struct sql_words {
  int from;              /* the byte where the word before the cursor begins */
  int count;             /* how many words begin so */
  char common[SQL_WORD]; /* what all of them begin with */
  char (*word)[SQL_WORD];
};

/* Tables, columns, functions and keywords that begin as the word before `cursor` does. Only tables after FROM and JOIN; only
 * columns after a dot; columns of the tables that the line names, if it names any. Free with sql_words_free. */
void sql_complete(struct sqlite3 *db, const char *line, int cursor, struct sql_words *words);
void sql_words_free(struct sql_words *words);

/* Questions to begin with. The query has the dials' numbers in it. */
#define SQL_EXAMPLES 8
const char *sql_example_title(int index);
void sql_example_query(int index, int run, int step, int layer, int head, char *query, size_t size);

#endif
