/* sql_words.c: words to go on with in a question in SQL, from the trace's own schema, and questions to begin with. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <sqlite3.h>

#include "tui/sql_panel.h"

/* ---- the schema ----------------------------------------------------------------------------------------------------- */

/* A foreign trace may have any number of tables; nobody completes among more columns than these. */
#define NAMES_MOST 2000

struct name {
  char table[SQL_WORD], column[SQL_WORD];
};

struct schema {
  struct name *names; /* every column, with its table */
  int count;
};

/* Other names would need quotes. */
static bool is_plain(const unsigned char *name) {
  if (!name || !(isalpha(*name) || *name == '_') || strlen((const char *)name) >= SQL_WORD) return false;
  for (; *name; name++)
    if (!isalnum(*name) && *name != '_') return false;
  return true;
}

static void read_schema(sqlite3 *db, struct schema *schema) {
  *schema = (struct schema){malloc(NAMES_MOST * sizeof *schema->names), 0};
  sqlite3_stmt *s = NULL;
  const char *sql = "SELECT m.name, p.name FROM main.sqlite_schema AS m, pragma_table_info(m.name) AS p"
                    " WHERE m.type IN ('table', 'view') AND m.name NOT GLOB 'sqlite_*'";
  if (!schema->names || sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK) return;
  while (schema->count < NAMES_MOST && sqlite3_step(s) == SQLITE_ROW) {
    const unsigned char *table = sqlite3_column_text(s, 0), *column = sqlite3_column_text(s, 1);
    if (!is_plain(table) || !is_plain(column)) continue;
    struct name *name = schema->names + schema->count++;
    snprintf(name->table, sizeof name->table, "%s", (const char *)table);
    snprintf(name->column, sizeof name->column, "%s", (const char *)column);
  }
  sqlite3_finalize(s);
}

/* The table of this name as the schema spells it, or NULL. */
static const char *table_named(const struct schema *schema, const char *word) {
  for (int i = 0; i < schema->count; i++)
    if (strcasecmp(schema->names[i].table, word) == 0) return schema->names[i].table;
  return NULL;
}

/* ---- the line ------------------------------------------------------------------------------------------------------- */

static bool in_word(char c) { return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80; }

/* The next word of the line from *at on, cut; false at its end. */
static bool next_word(const char **at, char word[SQL_WORD]) {
  const char *c = *at;
  while (*c && !in_word(*c)) c++;
  size_t length = 0;
  for (; in_word(*c); c++)
    if (length < SQL_WORD - 1) word[length++] = *c;
  word[length] = '\0';
  *at = c;
  return length > 0;
}

/* The word that ends before byte `end`, blanks skipped. */
static void word_before(const char *line, int end, char word[SQL_WORD]) {
  while (end > 0 && line[end - 1] == ' ') end--;
  int begin = end;
  while (begin > 0 && in_word(line[begin - 1])) begin--;
  snprintf(word, SQL_WORD, "%.*s", end - begin, line + begin);
}

/* The table that `name` stands for in this line: itself, or what it is an alias of: `step AS s`, `step s`. */
static const char *table_of(const struct schema *schema, const char *line, const char *name) {
  const char *table = table_named(schema, name), *last = NULL;
  char word[SQL_WORD];
  for (const char *at = line; !table && next_word(&at, word);) {
    if (last && strcasecmp(word, name) == 0) return last;
    if (strcasecmp(word, "as") != 0) last = table_named(schema, word);
  }
  return table;
}

static bool line_names(const char *line, const char *table) {
  char word[SQL_WORD];
  for (const char *at = line; next_word(&at, word);)
    if (strcasecmp(word, table) == 0) return true;
  return false;
}

/* ---- candidates ----------------------------------------------------------------------------------------------------- */

static const char *const keywords[] = {
    "ALL",      "AND",    "AS",    "ASC",          "AVG",       "BETWEEN",   "BY",        "CASE",   "CAST",
    "COALESCE", "COUNT",  "CROSS", "DESC",         "DISTINCT",  "ELSE",      "END",       "EXCEPT", "EXISTS",
    "FROM",     "GLOB",   "GROUP", "GROUP_CONCAT", "HAVING",    "IN",        "INTERSECT", "IS",     "JOIN",
    "LEFT",     "LENGTH", "LIKE",  "LIMIT",        "MAX",       "MIN",       "NOT",       "NULL",   "OFFSET",
    "ON",       "OR",     "ORDER", "OVER",         "PARTITION", "RECURSIVE", "ROUND",     "SELECT", "SUBSTR",
    "SUM",      "THEN",   "UNION", "USING",        "VALUES",    "WHEN",      "WHERE",     "WITH"};

/* kvstep's own; docs/trace-schema.md describes them. */
static const char *const functions[] = {"dot",     "f32",      "f32_argmax",  "f32_count", "f32_entropy",
                                        "f32_max", "f32_norm", "f32_of_bits", "f32_sum",   "f32_softmax_entropy",
                                        "floats"};

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static void add(struct sql_words *words, const char *prefix, const char *word) {
  if (strncasecmp(word, prefix, strlen(prefix)) != 0) return;
  for (int i = 0; i < words->count; i++)
    if (strcmp(words->word[i], word) == 0) return;
  snprintf(words->word[words->count++], SQL_WORD, "%s", word);
}

/* A keyword in the letters that are being typed: lower case after lower case. */
static void add_keyword(struct sql_words *words, const char *prefix, const char *keyword) {
  char word[SQL_WORD];
  snprintf(word, sizeof word, "%s", keyword);
  if (islower((unsigned char)*prefix))
    for (char *c = word; *c; c++) *c = (char)tolower((unsigned char)*c);
  add(words, prefix, word);
}

static void add_tables(struct sql_words *words, const char *prefix, const struct schema *schema) {
  for (int i = 0; i < schema->count; i++) add(words, prefix, schema->names[i].table);
}

/* Of one table, or of those that the line names, or of all. */
static void add_columns(struct sql_words *words, const char *prefix, const struct schema *schema, const char *line,
                        const char *table) {
  bool any = false;
  for (int i = 0; i < schema->count && !any; i++) any = line_names(line, schema->names[i].table);
  for (int i = 0; i < schema->count; i++) {
    const struct name *name = schema->names + i;
    if (table ? strcmp(name->table, table) == 0 : !any || line_names(line, name->table))
      add(words, prefix, name->column);
  }
}

static int by_letters(const void *a, const void *b) { return strcasecmp(a, b); }

/* What all of them begin with, letters of either case counting as alike. */
static void find_common(struct sql_words *words) {
  if (words->count == 0) return;
  snprintf(words->common, SQL_WORD, "%s", words->word[0]);
  for (int i = 1; i < words->count; i++) {
    size_t same = 0;
    while (words->common[same] &&
           tolower((unsigned char)words->common[same]) == tolower((unsigned char)words->word[i][same]))
      same++;
    words->common[same] = '\0';
  }
}

void sql_complete(struct sqlite3 *db, const char *line, int cursor, struct sql_words *words) {
  *words = (struct sql_words){.from = cursor};
  while (words->from > 0 && in_word(line[words->from - 1])) words->from--;
  char prefix[SQL_WORD], before[SQL_WORD];
  if (cursor - words->from >= SQL_WORD) return;
  snprintf(prefix, sizeof prefix, "%.*s", cursor - words->from, line + words->from);
  struct schema schema;
  read_schema(db, &schema);
  words->word = malloc((2 * NAMES_MOST + COUNT(keywords) + COUNT(functions)) * sizeof *words->word);
  if (words->word && words->from > 0 && line[words->from - 1] == '.') {
    word_before(line, words->from - 1, before);
    add_columns(words, prefix, &schema, line, table_of(&schema, line, before));
  } else if (words->word) {
    word_before(line, words->from, before);
    add_tables(words, prefix, &schema);
    if (strcasecmp(before, "from") != 0 && strcasecmp(before, "join") != 0) {
      add_columns(words, prefix, &schema, line, NULL);
      for (int i = 0; i < COUNT(functions); i++) add(words, prefix, functions[i]);
      for (int i = 0; i < COUNT(keywords); i++) add_keyword(words, prefix, keywords[i]);
    }
  }
  free(schema.names);
  if (words->count) qsort(words->word, (size_t)words->count, sizeof *words->word, by_letters);
  find_common(words);
}

void sql_words_free(struct sql_words *words) {
  free(words->word);
  *words = (struct sql_words){0};
}

/* ---- examples ------------------------------------------------------------------------------------------------------- */

/* @r, @s, @l and @h stand for the dials' run, step, layer and head. */
static const struct {
  const char *title, *query;
} examples[SQL_EXAMPLES] = {
    {"Which steps broke the rule?", "SELECT run, step, position, cache_length_before AS length_read, verdict FROM rule"
                                    " WHERE verdict <> 'ok' ORDER BY run, step"},
    {"Where did this head look?", "SELECT row, row_token_text AS token, weight, score, run, step, layer, head"
                                  " FROM attention WHERE run = @r AND step = @s AND layer = @l AND head = @h"
                                  " ORDER BY weight DESC"},
    {"How many scores does each step have?", "SELECT step, cache_length_before AS length_read, length(scores) / 4 AS"
                                             " scores, run FROM step JOIN head_step USING (run, step) WHERE run = @r"
                                             " AND layer = @l AND head = @h ORDER BY step"},
    {"How widely does each layer look?", "SELECT layer, round(avg(entropy), 3) AS entropy, round(avg(self_weight), 3)"
                                         " AS on_itself, round(avg(first_weight), 3) AS on_row_0 FROM head_summary"
                                         " WHERE run = @r AND step > 0 GROUP BY layer"},
    {"Which tokens were likely after this step?", "SELECT rank, token_text AS token, probability, logit FROM top_token"
                                                  " WHERE run = @r AND step = @s ORDER BY rank"},
    {"How many bytes is a cache row?", "SELECT row, step, length(k) AS k_bytes, length(v) AS v_bytes, length(k) +"
                                       " length(v) AS both, layer, run FROM kv_row WHERE run = @r AND layer = @l"
                                       " ORDER BY row, step"},
    {"Which heads look at the row before?", "SELECT layer, head, step, previous_weight, max_row, run FROM head_summary"
                                            " WHERE run = @r AND step > 1 ORDER BY previous_weight DESC LIMIT 100"},
    {"Which tokens surprised the model?", "SELECT step, token_text AS token, logprob, run FROM step_summary"
                                          " WHERE run = @r AND logprob IS NOT NULL ORDER BY logprob"},
};

const char *sql_example_title(int index) { return examples[index].title; }

void sql_example_query(int index, int run, int step, int layer, int head, char *query, size_t size) {
  size_t used = 0;
  for (const char *c = examples[index].query; *c && used + 12 < size; c++) {
    if (*c != '@') {
      query[used++] = *c;
      continue;
    }
    c++;
    int number = *c == 'r' ? run : *c == 's' ? step : *c == 'l' ? layer : head;
    used += (size_t)snprintf(query + used, size - used, "%d", number);
  }
  query[used] = '\0';
}
