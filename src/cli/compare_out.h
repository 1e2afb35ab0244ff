/* compare_out.h: what `kvstep compare` found, as text with bars, and as rows for csv and json. */
#ifndef KVS_CLI_COMPARE_OUT_H
#define KVS_CLI_COMPARE_OUT_H

#include <sqlite3.h>

#include "cli/out.h"
#include "cli/result.h"
#include "study/compare/compare.h"

/* Where tokens' bytes come from: a tokenizer, or a trace's table `token`. */
struct vocabulary {
  const kvs_tokenizer *tokenizer;
  sqlite3 *db;
};

/* Tokens' bytes, one after another. The caller frees them; NULL: no memory. */
char *vocabulary_bytes(const struct vocabulary *vocabulary, const int *tokens, int count, size_t *length);

/* Tokens as one printable line. The caller frees it; NULL: no memory. */
char *vocabulary_text(const struct vocabulary *vocabulary, const int *tokens, int count);

struct compare_view {
  const struct vocabulary *vocabulary;
  struct style style;
  bool per_step, heads;
};

/* Everything about one comparison. */
void compare_put_one(const struct compare_view *view, const struct comparison *c);
/* A line each, the largest KL first, and which of them cannot be seen in the text. */
void compare_put_list(const struct compare_view *view, const struct comparison *const *sorted, int count);

/* As csv or json: a row per comparison; with per_step per step, with heads per head. */
int compare_put_rows(const struct compare_view *view, const struct comparison *const *sorted, int count,
                     enum result_format format);

#endif
