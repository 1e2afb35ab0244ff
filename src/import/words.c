/* words.c: tokens that a file has as texts ("The", "Ġcat"), as attention is mostly published: their ids, from the tokenizer, or where
 * there is none in the order in which they appear. */
#include <stdlib.h>
#include <string.h>

#include "import/plan.h"

/* A byte as GPT-2's vocabularies spell it: itself, or the next free character from U+0100 on. UTF-8 into `to`: 1 or 2 bytes. */
static size_t spell_byte(unsigned char byte, char *to) {
  unsigned code = 256;
  bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
  for (int b = 0; b < byte && !itself; b++) code += !((b >= 33 && b <= 126) || (b >= 161 && b != 173));
  if (itself) code = byte;
  if (code < 128) {
    *to = (char)code;
    return 1;
  }
  to[0] = (char)(0xC0 | code >> 6), to[1] = (char)(0x80 | (code & 0x3F));
  return 2;
}

/* Whether these bytes are spelled so, or are these bytes as they are. */
static bool is_word(const unsigned char *bytes, size_t length, const char *word, size_t word_length) {
  size_t at = 0;
  if (length == word_length && memcmp(bytes, word, length) == 0) return true;
  for (size_t i = 0; i < length; i++) {
    char spelled[2];
    size_t n = spell_byte(bytes[i], spelled);
    if (n > word_length - at || memcmp(word + at, spelled, n) != 0) return false;
    at += n;
  }
  return at == word_length && length > 0;
}

static int find_token(const kvs_tokenizer *tokenizer, const char *word) {
  size_t word_length = strlen(word), length;
  for (int id = 0; id < kvs_tokenizer_size(tokenizer); id++) {
    const unsigned char *bytes = kvs_tokenizer_bytes(tokenizer, id, &length);
    if (bytes && length <= word_length && is_word(bytes, length, word, word_length)) return id;
  }
  return -1;
}

/* The first of the words that is the same. */
static int find_word(const struct array_words *words, size_t i) {
  size_t first = 0;
  while (strcmp(words->at[first], words->at[i]) != 0) first++;
  return (int)first;
}

static const struct array_words *choose(const struct arrays *arrays) {
  static const char *const names[] = {"tokens", "token_texts", "tokens_text", "words", "left_text", "all.left_text"};
  const struct array_words *found = NULL;
  for (size_t n = 0; !found && n < sizeof names / sizeof *names; n++)
    for (size_t i = 0; !found && i < arrays->word_count; i++) {
      const char *name = arrays->words[i].name, *end = strrchr(name, '.');
      if (strcmp(name, names[n]) == 0 || (end && strcmp(end + 1, names[n]) == 0)) found = &arrays->words[i];
    }
  return found;
}

static bool has_tokens(const struct arrays *arrays) {
  bool has = false;
  for (size_t i = 0; i < arrays->count && !has; i++) has = name_meaning(arrays->at[i].name).quantity == Q_TOKENS;
  return has;
}

/* The word's bytes in the place of its spelling, if it is spelled as vocabularies spell. */
static void unspell(char *word) {
  size_t length = strlen(word), used = 0;
  char *bytes = malloc(length + 1);
  bool good = bytes && length > 0;
  for (size_t at = 0; good && at < length;) {
    int byte = 1; /* byte 0 ends a string */
    char spelled[2];
    size_t n = 0;
    for (; byte < 256; byte++) {
      n = spell_byte((unsigned char)byte, spelled);
      if (n <= length - at && memcmp(word + at, spelled, n) == 0) break;
    }
    good = byte < 256;
    if (good) bytes[used++] = (char)byte, at += n;
  }
  if (good) memcpy(word, bytes, used), word[used] = '\0';
  free(bytes);
}

/* Words with the vocabulary's blank in them are spelled; others are plain text. */
static void unspell_all(const struct array_words *words) {
  bool spelled = false;
  for (size_t i = 0; i < words->count; i++)
    spelled = spelled || strstr(words->at[i], "\xC4\xA0") || strstr(words->at[i], "\xC4\x8A"); /* Ġ, Ċ */
  for (size_t i = 0; spelled && i < words->count; i++) unspell(words->at[i]);
}

const unsigned char *plan_word(const void *plan, int token, size_t *length) {
  const struct array_words *words = ((const struct plan *)plan)->words;
  const char *word = words->at[token];
  *length = strlen(word);
  return find_word(words, (size_t)token) == token ? (const unsigned char *)word : NULL;
}

kvs_status plan_words(struct plan *plan, const kvs_tokenizer *tokenizer, kvs_error *err) {
  const struct array_words *words = choose(&plan->arrays);
  if (!words || has_tokens(&plan->arrays)) return KVS_OK;
  if (words->count >= PLAN_WORDS)
    return kvs_fail(err, KVS_ERR_INPUT, "`%s` has %zu tokens; at most %d can be read as texts: give their ids",
                    words->name, words->count, PLAN_WORDS - 1);
  double *ids = malloc((words->count + 1) * sizeof *ids);
  if (!ids) return kvs_fail_memory(err, "reading the tokens");
  kvs_status status = arrays_keep(&plan->arrays, ids, 0, err);
  if (status != KVS_OK) return status;
  for (size_t i = 0; i < words->count; i++) {
    int first = find_word(words, i);
    int id = first < (int)i ? (int)ids[first] : tokenizer ? find_token(tokenizer, words->at[i]) : (int)i;
    if (id < 0)
      return kvs_fail(err, KVS_ERR_INPUT,
                      "`%s`[%zu] is \"%.40s\", which is no token of this tokenizer: give the model that they are from",
                      words->name, i, words->at[i]);
    ids[i] = id;
  }
  struct array *added = arrays_add(&plan->arrays, "tokens", strlen("tokens"), words->file, err);
  if (!added) return err->status;
  added->type = ARRAY_F8, added->dimensions = 1, added->shape[0] = (int64_t)words->count;
  added->data = (const unsigned char *)ids;
  if (!array_set_strides(added, false)) return kvs_fail(err, KVS_ERR_INPUT, "`%s` is too long", words->name);
  if (!tokenizer) {
    unspell_all(words);
    plan->words = words, plan->vocabulary = (int)words->count;
    plan_note(plan,
              "the tokens are known by their texts alone: their ids are made up; -m MODEL or --tokenizer gives the "
              "right ones");
  }
  return KVS_OK;
}
