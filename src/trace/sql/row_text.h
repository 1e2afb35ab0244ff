/* row_text.h: which token each cache row came from, for the fast view of `attention`. */
#ifndef KVS_TRACE_SQL_ROW_TEXT_H
#define KVS_TRACE_SQL_ROW_TEXT_H

#include "trace/sql/extension.h"

enum { KVS_ROW_TEXTS = 512 }; /* rows that are looked up at a time */

/* Whose rows: the values of schema, run, layer and step. */
enum { KVS_OF_SCHEMA, KVS_OF_RUN, KVS_OF_LAYER, KVS_OF_STEP, KVS_OF_COUNT };

/* The two questions, with the schema's name to be put in for each %w; by run, layer, first row, last row and step. They answer
 * with lines of row, step and text, and of each row the latest step counts. */
extern const char kvs_row_text_logged[], kvs_row_text_by_length[];

/* Statements that are kept for a connection. All zero but for db: nothing is kept yet. */
typedef struct kvs_row_source {
  sqlite3 *db;
  char *schema;
  sqlite3_stmt *logged, *by_length;
} kvs_row_source;

void kvs_row_source_forget(kvs_row_source *source);

/* The texts of rows first … first + count − 1. All zero: none yet. */
typedef struct kvs_row_texts {
  sqlite3_int64 first;
  int count;
  sqlite3_value *text[KVS_ROW_TEXTS]; /* NULL: no step is known */
  sqlite3_int64 step[KVS_ROW_TEXTS];
} kvs_row_texts;

void kvs_row_texts_forget(kvs_row_texts *texts);

/* Looks up rows first … end − 1, or as many of them as are looked up at a time. Returns an SQLite result code. */
int kvs_row_texts_fill(kvs_row_texts *texts, kvs_row_source *source, sqlite3_value *const of[KVS_OF_COUNT],
                       sqlite3_int64 first, sqlite3_int64 end);

#endif
