/* check_prompt.c: the tokens fed first against the text of run.prompt (D8): what it spells, once, and nothing else. A text that is not these
 * tokens' at all, or not all of it, is no evidence. */
#include "study/check/check_parts.h"

#include <string.h>

#include "trace/query.h"

/* The prompt's text against the bytes of the tokens fed. */
struct spelling {
  const unsigned char *text; /* NULL: not in the trace */
  size_t length, at;
  sqlite3_stmt *prompt, *bytes;
};

static kvs_status spelling_open(struct check *check, struct spelling *s, kvs_error *err) {
  bool row = false;
  kvs_status status = check_query(check, "SELECT prompt FROM main.run WHERE run = ?1", &s->prompt, err);
  if (status == KVS_OK) status = query_step(s->prompt, &row, err);
  if (status == KVS_OK && row && sqlite3_column_type(s->prompt, 0) != SQLITE_NULL) {
    s->text = sqlite3_column_blob(s->prompt, 0);
    s->length = (size_t)sqlite3_column_bytes(s->prompt, 0);
    if (s->length == 0) s->text = NULL;
  }
  int none = 0;
  if (status == KVS_OK)
    status =
        query_prepare(look_db(check->look), "SELECT bytes FROM main.token WHERE token = ?1", &none, 1, &s->bytes, err);
  return status;
}

static void spelling_close(struct spelling *s) {
  sqlite3_finalize(s->prompt);
  sqlite3_finalize(s->bytes);
}

/* The token's bytes, until the next call; NULL: not in the trace. */
static kvs_status token_bytes(struct spelling *s, int token, const unsigned char **bytes, size_t *length,
                              kvs_error *err) {
  bool row = false;
  *bytes = NULL, *length = 0;
  sqlite3_reset(s->bytes);
  sqlite3_bind_int(s->bytes, 1, token);
  kvs_status status = query_step(s->bytes, &row, err);
  if (status != KVS_OK || !row || sqlite3_column_type(s->bytes, 0) == SQLITE_NULL) return status;
  *bytes = sqlite3_column_blob(s->bytes, 0);
  *length = (size_t)sqlite3_column_bytes(s->bytes, 0);
  return KVS_OK;
}

/* Whether the steps from i on are the prompt's tokens again, all of them or as many as there are; how many. */
int prompt_again_from(const struct check *check, int i, int prompt_length) {
  int n = 0;
  while (n < prompt_length && i + n < check->count && check->steps[i + n].token == check->steps[n].token &&
         (check->steps[i + n].prompt || !check->steps[i + n].has_source))
    n++;
  return n == prompt_length ? n : 0;
}

/* How many bytes the prompt's steps from i on spell; *known: all of them are told. */
static kvs_status spelled_from(struct check *check, struct spelling *s, int i, size_t *total, bool *known,
                               kvs_error *err) {
  *total = 0, *known = true;
  for (; *known && i < check->count && check->steps[i].prompt; i++) {
    const unsigned char *bytes;
    size_t length;
    kvs_status status = token_bytes(s, check->steps[i].token, &bytes, &length, err);
    if (status != KVS_OK) return status;
    *known = bytes && length <= s->length - *total;
    *total += *known ? length : 0;
  }
  return KVS_OK;
}

/* Whether the prompt's steps from i on spell the text's end, from byte `at` on or from wherever it must begin; `at` then says where.
 * Only then is a text that does not go on the text of these tokens at all. */
static kvs_status spells_end(struct check *check, struct spelling *s, int i, size_t *at, bool *spells, kvs_error *err) {
  size_t total;
  kvs_status status = spelled_from(check, s, i, &total, spells, err);
  if (status != KVS_OK || !*spells) return status;
  *at = s->length - total;
  for (size_t from = *at; *spells && from < s->length; i++) {
    const unsigned char *bytes;
    size_t length;
    status = token_bytes(s, check->steps[i].token, &bytes, &length, err);
    if (status != KVS_OK) return status;
    *spells = memcmp(bytes, s->text + from, length) == 0;
    from += length;
  }
  return KVS_OK;
}

/* A text with the mark for bytes that are no UTF-8 is not what the tokens spell. */
static bool is_lossy(const struct spelling *s) {
  return memmem(s->text, s->length, "\xEF\xBF\xBD", 3) != NULL; /* U+FFFD */
}

static bool is_blank(const unsigned char *text, size_t length) {
  for (size_t i = 0; i < length; i++)
    if (!strchr(" \t\r\n", text[i]) || text[i] == '\0') return false;
  return true;
}

static kvs_status other_text(struct check *check, int i, kvs_error *err) {
  return remark(check->remarks, err,
                "run.prompt is not what the prompt's tokens spell (from step %d on), so they were not compared",
                check->steps[i].step);
}

/* The step's token does not go on in the prompt's text. What it is instead; *next: where to go on. */
static kvs_status not_the_prompt(struct check *check, struct spelling *s, int i, int *next, kvs_error *err) {
  int again = s->at == s->length ? prompt_again_from(check, i, check->prompt_length) : 0;
  *next = i + 1;
  if (again > 0) {
    *next = i + again;
    return check_note_token(check, FACT_PROMPT_AGAIN, i, again, 0, err);
  }
  size_t at = 0;
  bool same = check->steps[i].token == check->steps[i - 1].token, spells;
  kvs_status status = spells_end(check, s, same ? i + 1 : i, &at, &spells, err);
  if (status != KVS_OK) return status;
  bool known = s->at > 0 && spells && !is_lossy(s);
  if (same && known && at == s->at)
    return check_note_token(check, FACT_TOKEN_AGAIN, i, check->steps[i].token, LOOK_NONE, err);
  *next = check->count;
  if (same && s->at > 0) {
    status = spells_end(check, s, i, &at, &spells, err);
    if (status != KVS_OK) return status;
    known = spells && !is_lossy(s);
  }
  return known && at > s->at ? check_note_token(check, FACT_TOKEN_PROMPT, i, check->steps[i].token, LOOK_NONE, err)
                             : other_text(check, i, err);
}

/* Goes through the steps that were fed the prompt. *end: the first step after it, or -1: nothing can be said. */
static kvs_status go_through(struct check *check, struct spelling *s, int *end, kvs_error *err) {
  int i = check->pads, once = -1; /* tokens of the prompt, once */
  *end = -1;
  if (!s->text || check->count == 0 || check->steps[0].step != 0) return KVS_OK;
  while (i < check->count && (check->steps[i].prompt || (!check->steps[i].has_source && s->at < s->length))) {
    const unsigned char *bytes;
    size_t length;
    kvs_status status = token_bytes(s, check->steps[i].token, &bytes, &length, err);
    if (status != KVS_OK) return status;
    if (!bytes && i > 0) return KVS_OK; /* not told how this token is spelled */
    bool goes_on = bytes && length <= s->length - s->at && memcmp(bytes, s->text + s->at, length) == 0 && length > 0;
    int next = i + 1;
    if (goes_on) s->at += length, check->seen.prompt_tokens++;
    if (s->at == s->length && once < 0) once = check->prompt_length = i + 1;
    /* A mark for the beginning of a text, which the prompt itself has not. */
    if (!goes_on && i > 0 && (status = not_the_prompt(check, s, i, &next, err)) != KVS_OK) return status;
    i = next;
  }
  *end = i;
  /* Something of the prompt's end was left out, and the run went on all the same. */
  if (s->at < s->length && i < check->count && check->steps[i].has_source && !check->steps[i].prompt &&
      check->seen.prompt_tokens > 0 && !is_lossy(s) && !is_blank(s->text + s->at, s->length - s->at))
    return check_note_token(check, FACT_TOKEN_PROMPT, i, check->steps[i].token, LOOK_NONE, err);
  return KVS_OK;
}

kvs_status check_prompt(struct check *check, int *end, kvs_error *err) {
  struct spelling spelling = {0};
  *end = -1;
  kvs_status status = spelling_open(check, &spelling, err);
  if (status == KVS_OK) status = go_through(check, &spelling, end, err);
  spelling_close(&spelling);
  return status;
}
