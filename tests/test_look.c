/* test_look.c: looking into a trace by key: every number by hand, what other engines leave out, growth, damage, large files. */
#include "trace_maker.h"

#include <sqlite3.h>

#include "study/look/look_parts.h"

static sqlite3 *writer; /* of the trace, as another engine has it */
static struct look *look;

static void sql(const char *statements) { execute(writer, statements); }

/* A run with 2 layers, 2 heads of 2, 3 tokens in the vocabulary; "ab", then "c" … */
static int create(void **state) {
  if (make_folder(state)) return -1;
  if (sqlite3_open(in_folder("a.kvt"), &writer) != SQLITE_OK) return -1;
  sql(kvs_trace_schema());
  sql("PRAGMA ignore_check_constraints = 1;"
      "INSERT INTO token VALUES (0, X'61', 'a'), (1, X'42', 'Bee'), (2, X'63', 'c␠'), (3, NULL, NULL);"
      "INSERT INTO run VALUES (1, '2024-05-01T12:00:00Z', NULL, 'mine', '1', NULL, 'tiny', NULL, 2, 2, 4, 2, 8, 3,"
      " 'off-by-one', 2, NULL, NULL, NULL, NULL, 'a' || char(10) || 'b');"
      "INSERT INTO step VALUES (1, 0, 'prefill', 0, 'prompt', 0, 0, 1, NULL, 0.5),"
      " (1, 1, 'prefill', 1, 'prompt', 1, 1, 2, -0.25, 0.5), (1, 2, 'decode', 2, 'sampled', 2, 3, 3, -1.5, 0.125)");
  return 0;
}

static int open_it(void **state) {
  if (create(state)) return -1;
  sqlite3 *db;
  if (kvs_trace_read(in_folder("a.kvt"), &db, &error) != KVS_OK) return -1;
  return look_open(db, &look, &error) == KVS_OK ? 0 : -1;
}

static int shut(void **state) {
  look_close(look);
  sqlite3_close(writer);
  look = NULL, writer = NULL;
  return remove_folder(state);
}

static void refresh(bool wanted) {
  bool changed;
  ok(look_refresh(look, &changed, &error));
  assert_int_equal(changed, wanted);
}

static void no_error(void) {
  const char *said = look_error(look);
  if (said) fail_msg("%s", said);
}

static void an_error_with(const char *words) {
  const char *said = look_error(look);
  if (!said || !strstr(said, words)) fail_msg("\"%s\" does not say \"%s\"", said ? said : "", words);
  assert_null(look_error(look)); /* told once */
}

#define same(a, b) assert_true((double)(a) == (double)(b))

/* ---- values ---- */

static void runs_and_steps(void **state) {
  (void)state;
  assert_int_equal(look_runs(look), 1);
  const struct look_run *run = look_run(look, 1);
  assert_non_null(run);
  assert_string_equal(run->model, "tiny");
  assert_string_equal(run->fault, "off-by-one");
  assert_string_equal(run->engine, "mine");
  assert_string_equal(run->prompt, "a\\nb");
  assert_string_equal(run->created_at, "2024-05-01T12:00:00Z");
  assert_string_equal(run->finished_at, "");
  const int shape[] = {run->n_layer, run->n_head,  run->n_embd,          run->head_dim,
                       run->n_ctx,   run->n_vocab, run->fault_from_step, run->steps};
  const int wanted[] = {2, 2, 4, 2, 8, 3, 2, 3};
  assert_memory_equal(shape, wanted, sizeof shape);
  const struct look_step *s = look_step(look, 1, 2);
  assert_int_equal(s->mode, KVS_DECODE);
  assert_int_equal(s->source, KVS_SAMPLED);
  assert_string_equal(s->text, "c␠");
  const int numbers[] = {s->run, s->step, s->token, s->length_before, s->position, s->length_after, s->prompt_steps};
  const int hoped[] = {1, 2, 2, 2, 3, 3, 2};
  assert_memory_equal(numbers, hoped, sizeof numbers);
  same(s->logprob, -1.5), same(s->seconds, 0.125);
  assert_int_equal(look_step(look, 1, 0)->mode, KVS_PREFILL);
  assert_true(isnan(look_step(look, 1, 0)->logprob));
  assert_null(look_step(look, 1, 3));
  assert_null(look_step(look, 1, -1));
  assert_null(look_step(look, 2, 0));
  assert_null(look_step(look, 1, 2147483647));
  assert_null(look_run(look, 0));
  assert_null(look_run(look, 2));
  assert_ptr_equal(look_db(look), look->db);
  no_error();
}

static void equal_floats(const float *got, int count, const float *wanted) {
  assert_non_null(got);
  assert_memory_equal(got, wanted, (size_t)count * sizeof *got);
}
#define floats(got, ...)                                                                                               \
  equal_floats((got), (int)(sizeof((float[]){__VA_ARGS__}) / sizeof(float)), (float[]){__VA_ARGS__})

static void vectors_of_every_kind(void **state) {
  (void)state;
  sql("INSERT INTO head_step VALUES (1, 1, 0, 1, X'0000803F00000040', X'000000BF0000803E', X'0000403F0000803E',"
      " X'000000000000C0BF');"
      "INSERT INTO kv_row VALUES (1, 1, 0, 0, X'0000803F000000400000404000008040', NULL);"
      "INSERT INTO step_vector VALUES (1, 2, X'0000803F000000400000404000008040', NULL,"
      " X'0000804000004040000000400000803F', X'0000803E0000003F0000803F');"
      "INSERT INTO layer_step VALUES (1, 2, 1, X'0000803F0000803F0000803F0000803F', NULL, NULL,"
      " X'00000040000000400000004000000040', NULL);"
      "INSERT INTO top_token VALUES (1, 2, 2, 0, NULL, NULL, NULL), (1, 2, 1, 1, 'own', 2.5, 0.75)");
  const struct look_head *head = look_head(look, 1, 1, 0, 1);
  assert_non_null(head);
  assert_int_equal(head->rows, 2);
  floats(head->q, 1, 2), floats(head->scores, -0.5f, 0.25f), floats(head->weights, 0.75f, 0.25f);
  floats(head->out, 0, -1.5f);
  assert_ptr_equal(look_head(look, 1, 1, 0, 1), head);
  assert_null(look_head(look, 1, 1, 0, 0));
  assert_null(look_head(look, 1, 1, -1, 0));
  const struct look_row *row = look_row(look, 1, 2, 1, 0);
  assert_int_equal(row->step, 0);
  floats(row->k, 1, 2, 3, 4), assert_null(row->v);
  assert_null(look_row(look, 1, 2, 1, 1));
  const struct look_vectors *v = look_vectors(look, 1, 2);
  floats(v->wte, 1, 2, 3, 4), floats(v->x, 4, 3, 2, 1), floats(v->logits, 0.25f, 0.5f, 1), assert_null(v->wpe);
  assert_null(look_vectors(look, 1, 0));
  const struct look_layer *layer = look_layer(look, 1, 2, 1);
  floats(layer->x_in, 1, 1, 1, 1), floats(layer->mlp_out, 2, 2, 2, 2);
  assert_null(layer->attn_out), assert_null(layer->x_mid), assert_null(layer->x_out);
  const struct look_top *top = look_top(look, 1, 2);
  assert_int_equal(top->count, 2);
  assert_int_equal(top->token[0].token, 1);
  assert_string_equal(top->token[0].text, "own");
  same(top->token[0].logit, 2.5), same(top->token[0].probability, 0.75);
  assert_string_equal(top->token[1].text, "a"); /* from the vocabulary */
  assert_true(isnan(top->token[1].logit));
  assert_null(look_top(look, 1, 1));
  no_error();
}

static void summaries_stored_and_reckoned(void **state) {
  (void)state;
  sql("INSERT INTO head_step (run, step, layer, head, weights) VALUES (1, 1, 0, 0, X'0000803E0000403F'),"
      " (1, 1, 0, 1, X'0000803E0000403F'), (1, 1, 1, 0, NULL);"
      "INSERT INTO head_stat VALUES (1, 1, 0, 1, 9, 8.0, 7, 6.0, 5.0, 4.0, 3.0)");
  const struct look_summary *s = look_summary(look, 1, 1, 0, 1);
  same(s->entropy, 9), same(s->max_weight, 8), same(s->self_weight, 6), same(s->first_weight, 5);
  same(s->previous_weight, 4), same(s->weight_sum, 3), assert_int_equal(s->max_row, 7);
  s = look_summary(look, 1, 1, 0, 0);
  assert_close(s->entropy, -0.25 * log(0.25) - 0.75 * log(0.75), 1e-12, __LINE__);
  same(s->max_weight, 0.75), same(s->self_weight, 0.75), same(s->first_weight, 0.25), same(s->previous_weight, 0.25);
  same(s->weight_sum, 1), assert_int_equal(s->max_row, 1);
  assert_null(look_summary(look, 1, 1, 1, 0));
  assert_null(look_summary(look, 1, 2, 0, 0));
  no_error();
}

static void a_row_written_twice(void **state) {
  (void)state;
  sql("INSERT INTO step VALUES (1, 3, 'decode', 0, 'forced', 3, 3, 3, NULL, NULL),"
      " (1, 4, 'decode', 1, NULL, 3, 3, 3, NULL, NULL);"
      "INSERT INTO kv_row VALUES (1, 0, 2, 2, X'0000803F000000400000404000008040', NULL),"
      " (1, 0, 2, 3, X'00000040000000400000404000008040', NULL), (1, 0, 2, 4, NULL, NULL)");
  for (int step = 2; step <= 4; step++) {
    assert_int_equal(look_row_step(look, 1, step, 0, 2), step);
    assert_int_equal(look_row(look, 1, step, 0, 2)->step, step);
  }
  same(look_row(look, 1, 2, 0, 2)->k[0], 1), same(look_row(look, 1, 3, 0, 2)->k[0], 2);
  assert_null(look_row(look, 1, 4, 0, 2)->k);
  assert_string_equal(look_row_text(look, 1, 2, 0, 2), "c␠");
  assert_string_equal(look_row_text(look, 1, 3, 0, 2), "a");
  assert_int_equal(look_row_step(look, 1, 1, 0, 2), LOOK_NONE);
  /* Not logged: by the length, the latest up to the step. */
  assert_int_equal(look_row_step(look, 1, 3, 1, 3), 3);
  assert_int_equal(look_row_step(look, 1, 4, 1, 3), 4);
  assert_int_equal(look_row_step(look, 1, 4, 1, 2), 2);
  assert_int_equal(look_row_step(look, 1, 4, 0, 1), 1);
  assert_string_equal(look_row_text(look, 1, 4, 0, 1), "Bee");
  assert_int_equal(look_row_step(look, 1, 4, 1, 7), LOOK_NONE);
  assert_string_equal(look_row_text(look, 1, 4, 1, 7), "?");
  assert_string_equal(look_row_text(look, 5, 4, 1, 7), "?");
  assert_null(look_row(look, 1, 4, 1, 2));
  no_error();
}

/* Layer 0 by the step's lengths, layer 1 by its own events; what was written, what was not, and what nobody can tell. */
static void what_an_append_did(void **state) {
  (void)state;
  sql("INSERT INTO kv_row VALUES (1, 0, 0, 0, NULL, NULL), (1, 0, 0, 1, NULL, NULL), (1, 0, 3, 2, NULL, NULL);"
      "INSERT INTO head_step (run, step, layer, head) VALUES (1, 0, 0, 0), (1, 1, 0, 0), (1, 2, 0, 0), (1, 2, 1, 0);"
      "INSERT INTO event VALUES (1, 2, 20, 'project', 1, 5), (1, 2, 21, 'append', 1, 7), (1, 2, 22, 'mlp', 1, 7)");
  const struct look_append *again = look_append(look, 1, 1, 0), *own = look_append(look, 1, 2, 1);
  assert_int_equal(again->before, 1);
  assert_int_equal(again->after, 2);
  assert_int_equal(again->row, 0); /* not 1 */
  assert_true(again->logged);
  assert_int_equal(own->before, 5);
  assert_int_equal(own->after, 7);
  assert_int_equal(own->row, 5); /* by the rule: kv_row has nothing of this layer */
  assert_false(own->logged);
  assert_null(look_append(look, 1, 9, 0));
  assert_null(look_append(look, 7, 0, 0));
  assert_int_equal(look_row_origin(look, 1, 2, 0, 0), LOOK_WRITTEN);
  assert_int_equal(look_row_origin(look, 1, 2, 0, 1), LOOK_NEVER);
  assert_int_equal(look_row_origin(look, 1, 2, 0, 2), LOOK_NEVER);
  assert_int_equal(look_row_origin(look, 1, 2, 0, 3), LOOK_WRITTEN);
  assert_int_equal(look_row_origin(look, 1, 1, 0, 3), LOOK_NEVER); /* not yet */
  assert_int_equal(look_row_origin(look, 1, 2, 1, 1), LOOK_NOT_LOGGED);
  sql("DELETE FROM kv_row; DELETE FROM head_step WHERE step = 2;"
      "INSERT INTO kv_row VALUES (1, 0, 1, 1, NULL, NULL); UPDATE step SET cache_length_before = cache_length_before + "
      "1");
  refresh(true);
  assert_int_equal(look_row_origin(look, 1, 2, 0, 0), LOOK_EARLIER);
  assert_int_equal(look_row_origin(look, 1, 2, 0, 3), LOOK_NOT_LOGGED); /* step 2 was not logged */
  sql("DELETE FROM kv_row; DELETE FROM head_step");
  refresh(true);
  assert_int_equal(look_append(look, 1, 2, 0)->logged, false);
  no_error();
}

/* The same answers from a list and, where that would be too long, one by one. */
static void a_run_too_long_for_a_list(void **state) {
  (void)state;
  sql("INSERT INTO run SELECT 2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 2, 2, 4, 2, 8, 3, NULL, NULL, NULL, NULL,"
      " NULL, NULL, NULL;"
      "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 17999)"
      " INSERT INTO step SELECT 2, i, 'decode', i % 3, NULL, i / 2, i, i + 1, NULL, NULL FROM n;"
      "INSERT INTO kv_row SELECT 2, 0, step / 3, step, NULL, NULL FROM step WHERE run = 2");
  refresh(true);
  assert_int_equal(look_row_step(look, 2, 17999, 0, 4), 14);
  assert_int_equal(look_row_step(look, 2, 13, 0, 4), 13);
  assert_int_equal(look_row_step(look, 2, 11, 0, 4), 9); /* not written yet: by the length */
  assert_int_equal(look_row_step(look, 2, 17999, 1, 4), 9);
  assert_int_equal(look_row_step(look, 2, 8, 1, 4), 8);
  assert_int_equal(look_row_step(look, 2, 7, 1, 4), LOOK_NONE);
  assert_int_equal(look_step(look, 2, 17999)->position, 17999);
  assert_int_equal(look_find(look, 2, -1, 1, "nothing like it"), LOOK_NONE);
  no_error();
}

static void finding_a_token(void **state) {
  (void)state;
  assert_int_equal(look_find(look, 1, -1, 1, "a"), 0);
  assert_int_equal(look_find(look, 1, 0, 1, "a"), LOOK_NONE);
  assert_int_equal(look_find(look, 1, 0, 1, "bee"), 1);
  assert_int_equal(look_find(look, 1, 0, 1, "Be"), 1);
  assert_int_equal(look_find(look, 1, 0, 1, "BE"), LOOK_NONE);
  assert_int_equal(look_find(look, 1, 0, 1, "\xE2\x90\xA0"), 2);
  assert_int_equal(look_find(look, 1, 2, -1, "e"), 1);
  assert_int_equal(look_find(look, 1, 2, -1, "c"), LOOK_NONE);
  assert_int_equal(look_find(look, 1, 3, -1, "c"), 2);
  assert_int_equal(look_find(look, 7, 3, -1, "c"), LOOK_NONE);
  no_error();
}

static void two_runs_differ(void **state) {
  (void)state;
  sql("INSERT INTO run SELECT 2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 2, 2, 4, 2, 8, 3, NULL, NULL, NULL, NULL,"
      " NULL, NULL, NULL;"
      "INSERT INTO run SELECT 3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 2, 2, 4, 2, 8, 3, NULL, NULL, NULL, NULL,"
      " NULL, NULL, NULL;"
      "INSERT INTO step SELECT 2, step, mode, token, source, cache_length_before, nullif(position, 3), 3, NULL, NULL"
      " FROM step WHERE run = 1;"
      "INSERT INTO step SELECT 3, step, mode, token, source, cache_length_before, position, 3, NULL, NULL"
      " FROM step WHERE run = 1;"
      "INSERT INTO top_token VALUES (1, 0, 1, 1, 'x', 1, 1), (3, 0, 1, 1, 'x', 2, 1), (1, 1, 1, 2, 'x', 1, 1),"
      " (3, 1, 1, 0, 'x', 1, 1), (1, 1, 2, 0, 'x', 1, 1)");
  refresh(true);
  assert_int_equal(look_runs(look), 3);
  assert_int_equal(look_first_difference(look, 1, 2, 0), 2); /* a position that was not added */
  assert_int_equal(look_first_difference(look, 1, 3, 0), 1); /* the best next token */
  assert_int_equal(look_first_difference(look, 1, 3, 2), LOOK_NONE);
  assert_int_equal(look_first_difference(look, 1, 1, 0), LOOK_NONE);
  assert_int_equal(look_first_difference(look, 1, 9, 0), LOOK_NONE);
  sql("UPDATE step SET token = 2 WHERE run = 3 AND step = 0");
  assert_int_equal(look_first_difference(look, 3, 1, 0), 0);
  no_error();
}

/* ---- what others leave out, or get wrong ---- */

static void holes_are_absent(void **state) {
  (void)state;
  sql("INSERT INTO run SELECT 4, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 2, 2, 4, 2, 8, 3, NULL, NULL, NULL, NULL,"
      " NULL, NULL, NULL;"
      "INSERT INTO step VALUES (4, 5, NULL, 3, NULL, NULL, NULL, NULL, NULL, NULL), (4, 6, 'decode', 77, NULL, -3,"
      " 9999999999, NULL, NULL, NULL), (4, 6.5, 'decode', 1, NULL, NULL, NULL, NULL, NULL, NULL)");
  refresh(true);
  assert_int_equal(look_runs(look), 4);
  assert_null(look_run(look, 3));
  const struct look_run *run = look_run(look, 4);
  assert_string_equal(run->model, ""), assert_string_equal(run->prompt, ""), assert_string_equal(run->fault, "");
  assert_int_equal(run->fault_from_step, LOOK_NONE);
  const struct look_step *s = look_step(look, 4, 5);
  assert_int_equal(s->length_before, LOOK_NONE), assert_int_equal(s->position, LOOK_NONE);
  assert_int_equal(s->mode, KVS_DECODE), assert_int_equal(s->source, KVS_FORCED);
  assert_string_equal(s->text, "");
  assert_true(isnan(s->seconds));
  assert_null(look_step(look, 4, 0));
  s = look_step(look, 4, 6);
  assert_int_equal(s->length_before, LOOK_NONE), assert_int_equal(s->position, LOOK_NONE);
  assert_int_equal(s->token, 77);
  assert_string_equal(s->text, "");
  assert_null(look_head(look, 4, 5, 0, 0)), assert_null(look_row(look, 4, 5, 0, 0)), assert_null(look_top(look, 4, 5));
  assert_null(look_layer(look, 4, 5, 0)), assert_null(look_summary(look, 4, 5, 0, 0));
  no_error();
}

static void wrong_lengths_are_told(void **state) {
  (void)state;
  sql("INSERT INTO head_step VALUES (1, 1, 0, 1, X'0000803F', X'000000BF0000803E', X'0000403F',"
      " X'000000000000C0BF'), (1, 2, 0, 0, X'000000', NULL, zeroblob(4000), NULL);"
      "INSERT INTO kv_row VALUES (1, 0, 0, 0, 'text', X'');"
      "INSERT INTO step_vector VALUES (1, 2, NULL, NULL, NULL, zeroblob(8))");
  const struct look_head *head = look_head(look, 1, 1, 0, 1);
  assert_null(head->q), assert_null(head->weights);
  assert_int_equal(head->rows, 2);
  floats(head->scores, -0.5f, 0.25f), floats(head->out, 0, -1.5f);
  an_error_with("head_step, run 1, step 1: `weights` has 4 bytes, not 8");
  assert_ptr_equal(look_head(look, 1, 1, 0, 1), head);
  no_error(); /* what is kept is not complained of again */
  head = look_head(look, 1, 2, 0, 0);
  assert_null(head->weights), assert_int_equal(head->rows, 0);
  an_error_with("`weights` has 4000 bytes");
  const struct look_row *row = look_row(look, 1, 2, 0, 0);
  assert_null(row->k), assert_null(row->v);
  an_error_with("kv_row, run 1, step 0");
  assert_null(look_vectors(look, 1, 2)->logits);
  an_error_with("step_vector, run 1, step 2: `logits` has 8 bytes, not 12");
}

/* A file whose tables have no constraints: no shape at all, or one that does not fit together. */
static void shapes_that_make_no_sense(void **state) {
  (void)state;
  sql("PRAGMA writable_schema = 1;"
      "UPDATE sqlite_schema SET sql = replace(replace(sql, 'NOT NULL CHECK (n_embd > 0)', ''),"
      " ', CHECK (n_head * head_dim = n_embd)', '') WHERE name = 'run'; PRAGMA writable_schema = RESET;"
      "INSERT INTO run SELECT 2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 2, 2, NULL, 2, 8, 3, NULL, NULL, NULL, NULL,"
      " NULL, NULL, X'00FF';"
      "INSERT INTO run SELECT 3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 2, 2, 4, 1000, 8, 3, NULL, NULL, NULL,"
      " NULL, NULL, NULL, NULL;"
      "INSERT INTO kv_row VALUES (2, 0, 0, 0, zeroblob(16), NULL);"
      "INSERT INTO head_step VALUES (3, 0, 0, 0, zeroblob(4000), NULL, X'0000803F', NULL)");
  refresh(true);
  assert_int_equal(look_run(look, 2)->n_embd, LOOK_NONE);
  assert_int_equal(look_run(look, 3)->head_dim, LOOK_NONE);
  assert_string_equal(look_run(look, 2)->prompt, "\\x00<FF>");
  assert_null(look_row(look, 2, 0, 0, 0)->k);
  assert_null(look_head(look, 3, 0, 0, 0)->q);
  floats(look_head(look, 3, 0, 0, 0)->weights, 1);
  no_error();
}

/* ---- change ---- */

static void a_growing_trace(void **state) {
  (void)state;
  sql("INSERT INTO head_step (run, step, layer, head, weights) VALUES (1, 0, 0, 0, X'0000803F')");
  refresh(true);
  refresh(false);
  assert_null(look_step(look, 1, 3)), assert_null(look_top(look, 1, 3));
  const struct look_head *old = look_head(look, 1, 0, 0, 0);
  sql("BEGIN; INSERT INTO step VALUES (1, 3, 'decode', 0, 'sampled', 3, 4, 4, NULL, NULL);"
      "INSERT INTO kv_row VALUES (1, 0, 3, 3, zeroblob(16), zeroblob(16));"
      "INSERT INTO top_token VALUES (1, 3, 1, 0, 'a', 1, 1)");
  refresh(false);
  sql("COMMIT");
  assert_int_equal(look_run(look, 1)->steps, 3); /* as it was asked for, until look_refresh */
  refresh(true);
  assert_int_equal(look_run(look, 1)->steps, 4);
  assert_int_equal(look_step(look, 1, 3)->position, 4);
  assert_int_equal(look_row(look, 1, 3, 0, 3)->step, 3);
  assert_int_equal(look_top(look, 1, 3)->count, 1);
  assert_ptr_equal(look_head(look, 1, 0, 0, 0), old); /* what was written is not read again */
  refresh(false);
  sql("UPDATE run SET finished_at = 'now'");
  refresh(true);
  assert_string_equal(look_run(look, 1)->finished_at, "now");
  sql("DELETE FROM step WHERE step > 1; DELETE FROM top_token");
  refresh(true);
  assert_null(look_step(look, 1, 3)), assert_null(look_top(look, 1, 3));
  no_error();
}

/* A reader that keeps a transaction open would make this fail. */
static void nothing_stays_locked(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) look_find(look, 1, -1, 1, "b"), look_top(look, 1, i), look_head(look, 1, i, 0, 0);
  look_row_text(look, 1, 2, 0, 1), look_first_difference(look, 1, 1, 0);
  sql("BEGIN EXCLUSIVE");
  assert_null(look_layer(look, 1, 0, 0));
  an_error_with("locked by another program");
  bool changed;
  assert_int_equal(look_refresh(look, &changed, &error), KVS_ERR_IO);
  assert_says("locked");
  /* A view asks a hundred times, and whoever has the keys waits for it: the lock is waited for once, not each time. */
  assert_true(look->locked_out);
  for (int i = 0; i < 100; i++) assert_null(look_layer(look, 1, 0, 0));
  assert_true(look->locked_out);
  an_error_with("locked by another program");
  sql("INSERT INTO layer_step VALUES (1, 0, 0, NULL, NULL, NULL, NULL, NULL); COMMIT");
  assert_non_null(look_layer(look, 1, 0, 0)); /* a failure is not taken for absence */
  assert_false(look->locked_out);
  no_error();
}

static void what_a_run_is_called(void **state) {
  (void)state;
  const struct look_run runs[] = {{.fault = "none"}, {.fault = "off-by-one"}, {.fault = ""}};
  assert_string_equal(look_run_name(&runs[0]), "correct");
  assert_string_equal(look_run_name(&runs[1]), "off-by-one");
  assert_string_equal(look_run_name(&runs[2]), "unchecked"); /* NULL: another engine's */
}

static void deleted_or_replaced(void **state) {
  (void)state;
  assert_int_equal(unlink(in_folder("a.kvt")), 0);
  bool changed;
  ok(look_refresh(look, &changed, &error));
  an_error_with("deleted");
  ok(look_refresh(look, &changed, &error));
  no_error();
  assert_int_equal(look_step(look, 1, 2)->position, 3); /* still open here */
}

static void cut_short(void **state) {
  (void)state;
  assert_int_equal(look_step(look, 1, 2)->position, 3);
  assert_int_equal(truncate(in_folder("a.kvt"), 8192), 0);
  bool changed = false;
  assert_int_not_equal(look_refresh(look, &changed, &error), KVS_OK);
  assert_says("damaged or was cut short");
  assert_null(look_head(look, 1, 0, 0, 0));
  an_error_with("damaged or was cut short");
  assert_int_equal(look_find(look, 1, -1, 1, "a"), LOOK_NONE);
  an_error_with("damaged");
  assert_int_equal(truncate(in_folder("a.kvt"), 0), 0);
  (void)look_refresh(look, &changed, &error);
  for (int i = 0; i < 3; i++) look_top(look, 1, i), look_row_text(look, 1, i, 0, 0), look_summary(look, 1, i, 0, 0);
  assert_non_null(look_error(look));
}

/* Every byte of every page in turn, as far as time allows, is something else. */
static void damaged_anywhere(void **state) {
  (void)state;
  sql("INSERT INTO head_step VALUES (1, 1, 0, 1, X'0000803F00000040', X'000000BF0000803E', X'0000403F0000803E', NULL);"
      "INSERT INTO kv_row VALUES (1, 0, 0, 0, zeroblob(16), NULL); INSERT INTO top_token VALUES (1, 0, 1, 1, 'x', 1, "
      "1)");
  look_close(look), look = NULL;
  struct stat st;
  assert_int_equal(stat(in_folder("a.kvt"), &st), 0);
  for (int round = 0; round < 300; round++) {
    FILE *file = fopen(in_folder("a.kvt"), "r+b");
    assert_non_null(file);
    long at = (long)((unsigned)round * 2654435761u % (unsigned long)st.st_size);
    fseek(file, at, SEEK_SET);
    int old = fgetc(file);
    fseek(file, at, SEEK_SET), fputc(old ^ 0x5A, file), fclose(file);
    sqlite3 *db;
    if (kvs_trace_read(in_folder("a.kvt"), &db, &error) == KVS_OK && look_open(db, &look, &error) == KVS_OK) {
      for (int i = 0; i < 3; i++)
        look_step(look, 1, i), look_head(look, 1, i, 0, 1), look_row(look, 1, i, 0, 0), look_top(look, 1, i),
            look_summary(look, 1, i, 0, 1), look_vectors(look, 1, i), look_row_text(look, 1, i, 0, 0);
      look_find(look, 1, -1, 1, "c"), look_first_difference(look, 1, 1, 0), look_error(look);
      look_close(look), look = NULL;
    }
    file = fopen(in_folder("a.kvt"), "r+b");
    assert_non_null(file);
    fseek(file, at, SEEK_SET), fputc(old, file), fclose(file);
  }
}

/* ---- the cache ---- */

static void thousands_of_heads(void **state) {
  (void)state;
  sql("WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 2999)"
      " INSERT INTO head_step SELECT 1, i, 0, 0, zeroblob(8), CAST(X'0000803F' || printf('%04d', i) AS BLOB), NULL, "
      "NULL"
      " FROM n");
  const struct look_head *held = NULL;
  int held_step = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < 3000; i++) {
      const struct look_head *head = look_head(look, 1, i, 0, 0);
      char digits[16];
      snprintf(digits, sizeof digits, "%04d", i);
      assert_int_equal(head->step, i);
      assert_memory_equal(&head->scores[1], digits, 4);
      if (i % 65 == 0) held = head, held_step = i;
      assert_int_equal(held->step, held_step); /* holds until 64 more were asked for */
      assert_true(look->caches[HEADS].count <= 1024 && look->caches[HEADS].bytes < 1 << 20);
    }
  for (int i = 0; i < 3000; i++) assert_null(look_head(look, 1, i, 1, 0));
  assert_true(look->caches[HEADS].count <= 1024);
  no_error();
}

static void large_values_go_first(void **state) {
  (void)state;
  struct look_cache cache;
  ok(look_cache_create(&cache, 16, 4, 1000, &error));
  for (int i = 0; i < 100; i++) {
    const int key[LOOK_KEYS] = {i};
    look_cache_put(&cache, key, malloc(400), 400);
    assert_true(cache.count <= 5);
    int recent = 0; /* without asking for them, which would make them younger */
    for (int e = 0; e < cache.capacity; e++) recent += cache.entries[e].used && cache.entries[e].key[0] >= i - 3;
    assert_int_equal(recent, i < 3 ? i + 1 : 4);
  }
  cache.clock = 0xFFFFFFFFu; /* the clock goes round */
  for (int i = 100; i < 200; i++) {
    const int key[LOOK_KEYS] = {i};
    look_cache_put(&cache, key, NULL, 0);
    assert_non_null(look_cache_find(&cache, key));
    assert_true(cache.count <= 16);
  }
  look_cache_free(&cache);
}

/* ---- by key ---- */

static void every_question_searches_by_key(void **state) {
  (void)state;
  for (int query = ASK_LAST_STEP; query < ASK_COUNT; query++) {
    char *explain = sqlite3_mprintf("EXPLAIN QUERY PLAN %s", look_sql[query]);
    sqlite3_stmt *statement;
    assert_int_equal(sqlite3_prepare_v2(look->db, explain, -1, &statement, NULL), SQLITE_OK);
    int searches = 0;
    while (sqlite3_step(statement) == SQLITE_ROW) {
      const char *detail = (const char *)sqlite3_column_text(statement, 3);
      searches += strncmp(detail, "SEARCH", 6) == 0;
      if (strncmp(detail, "SCAN", 4) == 0 && strcmp(detail, "SCAN CONSTANT ROW") != 0)
        fail_msg("%s: %s", look_sql[query], detail);
      if (strstr(detail, "AUTOMATIC")) fail_msg("%s: %s", look_sql[query], detail);
    }
    assert_true(searches > 0);
    sqlite3_finalize(statement);
    sqlite3_free(explain);
  }
}

/* A TEMP table of the person's, or views over an attached trace, do not come between. */
static void names_of_others_do_not_matter(void **state) {
  (void)state;
  assert_int_equal(sqlite3_exec(look_db(look),
                                "CREATE TEMP TABLE step (x); CREATE TEMP TABLE run (x); CREATE TEMP TABLE token (x)",
                                NULL, NULL, NULL),
                   SQLITE_OK);
  assert_int_equal(look_step(look, 1, 2)->position, 3);
  assert_int_equal(look_run(look, 1)->steps, 3);
  no_error();
}

#define test(f) cmocka_unit_test_setup_teardown(f, open_it, shut)

int main(void) {
  const struct CMUnitTest tests[] = {test(runs_and_steps),
                                     test(vectors_of_every_kind),
                                     test(summaries_stored_and_reckoned),
                                     test(a_row_written_twice),
                                     test(what_an_append_did),
                                     test(a_run_too_long_for_a_list),
                                     test(finding_a_token),
                                     test(two_runs_differ),
                                     test(holes_are_absent),
                                     test(wrong_lengths_are_told),
                                     test(shapes_that_make_no_sense),
                                     test(a_growing_trace),
                                     test(nothing_stays_locked),
                                     test(what_a_run_is_called),
                                     test(deleted_or_replaced),
                                     test(cut_short),
                                     test(damaged_anywhere),
                                     test(thousands_of_heads),
                                     test(large_values_go_first),
                                     test(every_question_searches_by_key),
                                     test(names_of_others_do_not_matter)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
