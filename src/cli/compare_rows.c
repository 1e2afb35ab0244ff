/* compare_rows.c: comparisons as rows of a table in memory, so that csv and json are printed as those of any query. */
#include <math.h>
#include <stdlib.h>

#include "cli/compare_out.h"
#include "cli/options.h"

/* ---- texts of tokens ---------------------------------------------------------------------------------------------- */

static void append_token(const struct vocabulary *v, int token, FILE *out) {
  size_t length = 0;
  if (v->tokenizer) {
    const unsigned char *bytes = kvs_tokenizer_bytes(v->tokenizer, token, &length);
    if (bytes) fwrite(bytes, 1, length, out);
    return;
  }
  sqlite3_stmt *statement = NULL;
  if (sqlite3_prepare_v2(v->db, "SELECT bytes FROM main.token WHERE token = ?1", -1, &statement, NULL) == SQLITE_OK) {
    sqlite3_bind_int(statement, 1, token);
    if (sqlite3_step(statement) == SQLITE_ROW && sqlite3_column_blob(statement, 0))
      fwrite(sqlite3_column_blob(statement, 0), 1, (size_t)sqlite3_column_bytes(statement, 0), out);
  }
  sqlite3_finalize(statement);
}

char *vocabulary_bytes(const struct vocabulary *v, const int *tokens, int count, size_t *length) {
  char *bytes = NULL;
  FILE *out = open_memstream(&bytes, length);
  if (!out) return NULL;
  for (int i = 0; i < count; i++) append_token(v, tokens[i], out);
  if (fclose(out) != 0) return free(bytes), NULL;
  return bytes;
}

char *vocabulary_text(const struct vocabulary *v, const int *tokens, int count) {
  size_t length;
  char *bytes = vocabulary_bytes(v, tokens, count, &length);
  if (!bytes) return NULL;
  size_t size = kvs_token_text((unsigned char *)bytes, length, NULL, 0) + 1;
  char *text = malloc(size);
  if (text) kvs_token_text((unsigned char *)bytes, length, text, size);
  free(bytes);
  return text;
}

/* ---- rows --------------------------------------------------------------------------------------------------------- */

static const char schema[] =
    "CREATE TABLE summary (run_a, run_b, a, b, verdict, sentence, steps, kl, kl_max, kl_max_step, top1_kept, top1_of,"
    " max_abs_logit, max_abs_logit_step, attention_distance, logprob_delta, perplexity_a, perplexity_b, "
    "perplexity_tokens,"
    " text_perplexity_a, text_perplexity_b, text_tokens, answers_right_a, answers_right_b, answers, parted, text_a, "
    "text_b,"
    " first_difference, first_step, first_step_b, first_moment, first_layer, first_head, first_number, first_index,"
    " first_value_a, first_value_b);"
    "CREATE TABLE step (run_a, run_b, a, b, step, step_b, extra_steps_b, token, token_text, kl, max_abs_logit, "
    "top1_same,"
    " top_a, top_b, logprob_a, logprob_b, attention_distance);"
    "CREATE TABLE head (run_a, run_b, a, b, layer, head, attention_distance)";

/* A row that is being bound, from the first column on. */
struct row {
  sqlite3_stmt *statement;
  int at;
};

static void add_int(struct row *row, int value, bool there) {
  row->at++;
  if (there) sqlite3_bind_int(row->statement, row->at, value);
}

static void add_real(struct row *row, double value) { sqlite3_bind_double(row->statement, ++row->at, value); }

static void add_text(struct row *row, const char *text) {
  sqlite3_bind_text(row->statement, ++row->at, text, -1, SQLITE_TRANSIENT);
}

static void add_pair(struct row *row, const struct comparison *c) {
  add_int(row, c->run_a, c->run_a > 0);
  add_int(row, c->run_b, c->run_b > 0);
  add_text(row, c->name_a);
  add_text(row, c->name_b);
}

static void add_first(struct row *row, const struct comparison *c) {
  static const char *const whats[] = {NULL, "number", "count", "extra steps", "missing step", "ended"};
  const struct compare_first *f = &c->first;
  bool any = f->what != COMPARE_NOTHING, number = f->what == COMPARE_NUMBER || f->what == COMPARE_COUNT;
  add_text(row, whats[f->what]);
  add_int(row, f->step, any);
  add_int(row, f->step_b, any && f->step_b != LOOK_NONE);
  add_text(row, number ? kvs_phase_name(compare_field_phase(f->field)) : NULL);
  add_int(row, f->layer, number && f->layer != LOOK_NONE);
  add_int(row, f->head, number && f->head != LOOK_NONE);
  add_text(row, number ? compare_field_name(f->field) : NULL);
  add_int(row, f->index, number && f->index != LOOK_NONE);
  add_real(row, number ? f->value_a : NAN);
  add_real(row, number || f->what == COMPARE_EXTRA ? f->value_b : NAN);
}

static bool add_summary(struct row *row, const struct compare_view *view, const struct comparison *c) {
  static const char *const verdicts[] = {
      [COMPARE_SAME] = "same",      [COMPARE_BLIND] = "blind",         [COMPARE_LONGER] = "longer",
      [COMPARE_FED] = "fed",        [COMPARE_INVISIBLE] = "invisible", [COMPARE_ANSWERS] = "answers",
      [COMPARE_VISIBLE] = "visible"};
  char sentence[512];
  char *text_a = vocabulary_text(view->vocabulary, c->text_a, c->length_a);
  char *text_b = vocabulary_text(view->vocabulary, c->text_b, c->length_b);
  compare_sentence(c, sentence, sizeof sentence);
  add_pair(row, c);
  add_text(row, verdicts[compare_verdict(c)]);
  add_text(row, sentence);
  add_int(row, c->summed, true);
  add_real(row, c->kl_mean);
  add_real(row, c->kl_max);
  add_int(row, c->kl_max_step, c->kl_max_step != LOOK_NONE);
  add_int(row, c->top1_kept, c->with_top > 0);
  add_int(row, c->with_top, true);
  add_real(row, c->max_abs_logit);
  add_int(row, c->max_abs_step, c->max_abs_step != LOOK_NONE);
  add_real(row, c->attention_mean);
  add_real(row, c->logprob_delta);
  add_real(row, c->own.perplexity_a);
  add_real(row, c->own.perplexity_b);
  add_int(row, c->own.tokens, true);
  add_real(row, c->text.tokens ? c->text.perplexity_a : NAN);
  add_real(row, c->text.tokens ? c->text.perplexity_b : NAN);
  add_int(row, c->text.tokens, c->text.tokens > 0);
  add_int(row, c->answers.a, c->answers.count > 0);
  add_int(row, c->answers.b, c->answers.count > 0);
  add_int(row, c->answers.count, c->answers.count > 0);
  add_int(row, c->parted, c->parted != LOOK_NONE);
  add_text(row, text_a);
  add_text(row, text_b);
  add_first(row, c);
  bool good = text_a && text_b;
  free(text_a);
  free(text_b);
  return good;
}

static bool add_step(struct row *row, const struct compare_view *view, const struct comparison *c,
                     const struct compare_step *s) {
  const int tokens[] = {s->token, s->top_a, s->top_b};
  char *text[3];
  for (int i = 0; i < 3; i++) text[i] = vocabulary_text(view->vocabulary, &tokens[i], tokens[i] != LOOK_NONE);
  add_pair(row, c);
  add_int(row, s->step, true);
  add_int(row, s->step_b, s->step_b != LOOK_NONE);
  add_int(row, s->extra, true);
  add_int(row, s->token, s->token != LOOK_NONE);
  add_text(row, text[0]);
  add_real(row, s->kl);
  add_real(row, s->max_abs_logit);
  add_int(row, s->top1_same, s->top1_same != LOOK_NONE);
  add_text(row, s->top_a == LOOK_NONE ? NULL : text[1]);
  add_text(row, s->top_b == LOOK_NONE ? NULL : text[2]);
  add_real(row, s->logprob_a);
  add_real(row, s->logprob_b);
  add_real(row, s->attention_distance);
  bool good = text[0] && text[1] && text[2];
  for (int i = 0; i < 3; i++) free(text[i]);
  return good;
}

static bool put_row(struct row *row) {
  bool good = sqlite3_step(row->statement) == SQLITE_DONE;
  sqlite3_reset(row->statement);
  sqlite3_clear_bindings(row->statement);
  row->at = 0;
  return good;
}

static bool fill(struct row *row, const struct compare_view *view, const struct comparison *c) {
  bool good = true;
  if (view->per_step) {
    for (int i = 0; good && i < c->count; i++) good = add_step(row, view, c, &c->steps[i]) && put_row(row);
    return good;
  }
  if (!view->heads) return add_summary(row, view, c) && put_row(row);
  for (int i = 0; good && i < c->n_layer * c->n_head; i++) {
    add_pair(row, c);
    add_int(row, i / c->n_head, true);
    add_int(row, i % c->n_head, true);
    add_real(row, c->head_distance[i]);
    good = put_row(row);
  }
  return good;
}

/* "INSERT INTO step VALUES (?, ?, …)", with as many as the table has columns. */
static sqlite3_stmt *insert_into(sqlite3 *db, const char *table, sqlite3_stmt *rows) {
  sqlite3_str *sql = sqlite3_str_new(db);
  sqlite3_str_appendf(sql, "INSERT INTO %s VALUES (", table);
  for (int i = 0; i < sqlite3_column_count(rows); i++) sqlite3_str_appendall(sql, i ? ", ?" : "?");
  sqlite3_str_appendall(sql, ")");
  char *text = sqlite3_str_finish(sql);
  sqlite3_stmt *insert = NULL;
  if (text) sqlite3_prepare_v2(db, text, -1, &insert, NULL);
  sqlite3_free(text);
  return insert;
}

int compare_put_rows(const struct compare_view *view, const struct comparison *const *sorted, int count,
                     enum result_format format) {
  const char *table = view->per_step ? "step" : view->heads ? "head" : "summary";
  char select[32];
  sqlite3 *db = NULL;
  sqlite3_stmt *rows = NULL;
  struct row row = {0};
  snprintf(select, sizeof select, "SELECT * FROM %s", table);
  bool good = sqlite3_open(":memory:", &db) == SQLITE_OK && sqlite3_exec(db, schema, NULL, NULL, NULL) == SQLITE_OK &&
              sqlite3_prepare_v2(db, select, -1, &rows, NULL) == SQLITE_OK &&
              (row.statement = insert_into(db, table, rows)) != NULL;
  for (int i = 0; good && i < count; i++) good = fill(&row, view, sorted[i]);
  if (good) good = result_print(rows, format, view->style) == SQLITE_DONE;
  sqlite3_finalize(row.statement);
  sqlite3_finalize(rows);
  sqlite3_close(db);
  return good ? EXIT_OK : report(&(kvs_error){KVS_ERR_MEMORY, "out of memory while printing the comparison"});
}
