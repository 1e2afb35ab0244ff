/* merges.c: reading merges.txt, and checking each merge against the vocabulary. */
#include <string.h>

#include "text/tokenizer.h"

kvs_status kvs_merge_load(kvs_tokenizer *tokenizer, const kvs_vocab *vocab, kvs_key left, kvs_key right, uint32_t rank,
                          const char *path, const char *unit, size_t number, kvs_error *err) {
  const kvs_key nothing = {"", 0};
  int left_id = kvs_vocab_find(vocab, left, nothing);
  int right_id = kvs_vocab_find(vocab, right, nothing);
  int id = kvs_vocab_find(vocab, left, right);
  if (left_id >= 0 && right_id >= 0 && id >= 0) {
    kvs_merges_put(&tokenizer->merges, (kvs_merge){(uint32_t)left_id, (uint32_t)right_id, rank, (uint32_t)id});
    return KVS_OK;
  }
  kvs_shown first = kvs_show(left.text, left.length), second = kvs_show(right.text, right.length);
  bool result = left_id >= 0 && right_id >= 0;
  return kvs_fail(
      err, KVS_ERR_INPUT,
      "%s, %s %zu: the merge of \"%s\" and \"%s\" needs \"%s%s\", which is not in the vocabulary: vocabulary "
      "and merges must come from the same model",
      path, unit, number, first.text, second.text, left_id < 0 || result ? first.text : "",
      left_id >= 0 ? second.text : "");
}

bool kvs_merge_parts(const char *text, size_t length, kvs_key *left, kvs_key *right) {
  const char *blank = memchr(text, ' ', length);
  if (!blank || blank == text) return false;
  *left = (kvs_key){text, (size_t)(blank - text)};
  *right = (kvs_key){blank + 1, length - left->length - 1};
  return right->length > 0 && !memchr(right->text, ' ', right->length);
}

/* The length of the line at `text`, its end (LF, or CR LF) left out; *next is where the next one begins. */
static size_t line_at(const char *text, const char *end, const char **next) {
  const char *feed = memchr(text, '\n', (size_t)(end - text));
  *next = feed ? feed + 1 : end;
  size_t length = (size_t)((feed ? feed : end) - text);
  return length > 0 && text[length - 1] == '\r' ? length - 1 : length;
}

/* Whether nothing but empty lines follows. */
static bool only_empty(const char *text, const char *end) {
  while (text < end && (*text == '\n' || *text == '\r')) text++;
  return text == end;
}

kvs_status kvs_merges_load(kvs_tokenizer *tokenizer, const kvs_vocab *vocab, const kvs_file *file, kvs_error *err) {
  static const char version[] = "#version";
  const char *text = (const char *)file->bytes, *end = text + file->size;
  size_t lines = 1;
  for (const char *c = text; (c = memchr(c, '\n', (size_t)(end - c))); c++) lines++;
  if (lines > KVS_TOKEN_CAP)
    return kvs_fail(err, KVS_ERR_INPUT, "%s: %zu lines, more than %d: is it a merges.txt at all?", file->path, lines,
                    KVS_TOKEN_CAP);
  kvs_status status = kvs_merges_init(&tokenizer->merges, lines, err);
  uint32_t rank = 0;
  for (size_t number = 1; !status && text < end; number++) {
    const char *line = text;
    size_t length = line_at(line, end, &text);
    /* Only this one line is a comment: real merges begin with '#' too. */
    if (number == 1 && length >= sizeof version - 1 && memcmp(line, version, sizeof version - 1) == 0) continue;
    if (length == 0 && only_empty(text, end)) break;
    kvs_key left, right;
    if (!kvs_merge_parts(line, length, &left, &right))
      return kvs_fail(err, KVS_ERR_INPUT,
                      "%s, line %zu: \"%s\" is no merge, which is two parts with one blank between them: copy the file "
                      "again from where the model came from",
                      file->path, number, kvs_show(line, length).text);
    status = kvs_merge_load(tokenizer, vocab, left, right, rank++, file->path, "line", number, err);
  }
  return status;
}
