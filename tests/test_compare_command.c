/* test_compare_command.c: two runs compared: by hand, in made-up traces with steps of their own, live, and from the command line. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "kvstep/kvstep.h"
#include "study/compare/compare_live.h"
#include "study/compare/compare_trace.h"
#include "tests/database.h"
#include "tests/support/scratch.h"
#include "trace/store.h"

/* ---- vectors, sums and words by hand ------------------------------------------------------------------------------ */

static void vectors_by_bits(void **unused) {
  (void)unused;
  struct compare_first first = {.step = 4, .step_b = 5};
  const float a[] = {1, NAN, 0, 4, 5, 6}, b[] = {1, -NAN, 0, 4, 5, 7}, zero[] = {1, NAN, -0.0F, 4, 5, 6};
  assert_false(compare_vectors(&first, COMPARE_Q, 1, LOOK_NONE, 3, a, 6, a, 6));
  assert_false(compare_vectors(&first, COMPARE_Q, 1, LOOK_NONE, 3, a, 5, b, 5)); /* any NaN is like any */
  assert_true(compare_vectors(&first, COMPARE_Q, 1, LOOK_NONE, 3, a, 6, b, 6));
  assert_int_equal(first.what, COMPARE_NUMBER);
  assert_int_equal(first.step, 4);
  assert_int_equal(first.step_b, 5);
  assert_int_equal(first.head, 1); /* number 5 of two heads of three */
  assert_int_equal(first.index, 2);
  assert_true(first.value_a == 6 && first.value_b == 7);
  assert_true(compare_vectors(&first, COMPARE_X, LOOK_NONE, LOOK_NONE, 0, a, 6, zero, 6)); /* −0 has another bit */
  assert_int_equal(first.index, 2);
  assert_true(compare_vectors(&first, COMPARE_SCORES, 0, 2, 0, a, 4, b, 6));
  assert_int_equal(first.what, COMPARE_COUNT);
  assert_true(first.value_a == 4 && first.value_b == 6);
}

static struct compare_step *add(struct comparison *c, double kl, double most, int same, double a, double b) {
  struct compare_step *s = compare_add_step(c, NULL);
  assert_non_null(s);
  s->step = c->count - 1;
  s->kl = kl, s->max_abs_logit = most, s->top1_same = same, s->logprob_a = a, s->logprob_b = b;
  return s;
}

static void sums_by_hand(void **unused) {
  (void)unused;
  struct comparison c = {.prompt_steps = 2, .parted = LOOK_NONE};
  add(&c, 100, 100, 0, -9, -9); /* the prompt's own are not summed up … */
  add(&c, 100, 100, 0, -1, -2); /* … but its last one says how probable the first token was */
  add(&c, 1, 3, 1, -2, -4)->attention_distance = 0.25;
  add(&c, 2, 2, 0, -3, -3)->attention_distance = 0.75;
  add(&c, NAN, NAN, LOOK_NONE, NAN, NAN);
  compare_sum_up(&c, NULL);
  assert_int_equal(c.summed, 3);
  assert_int_equal(c.with_logits, 2);
  assert_int_equal(c.with_top, 2);
  assert_int_equal(c.top1_kept, 1);
  assert_true(c.kl_mean == 1.5 && c.kl_max == 2 && c.kl_max_step == 3);
  assert_true(c.max_abs_logit == 3 && c.max_abs_step == 2);
  assert_true(c.attention_mean == 0.5);
  assert_int_equal(c.own.tokens, 3);
  assert_float_equal(c.own.perplexity_a, exp(2), 1e-12);
  assert_float_equal(c.own.perplexity_b, exp(3), 1e-12);
  assert_true(c.logprob_delta == -1);
  comparison_free(&c);
}

static void nothing_but_a_prompt(void **unused) {
  (void)unused;
  struct comparison c = {.prompt_steps = 1, .parted = LOOK_NONE, .same = true};
  add(&c, 0, 0, 1, NAN, NAN);
  compare_sum_up(&c, NULL);
  assert_int_equal(c.summed, 1);
  assert_true(c.kl_mean == 0 && isnan(c.own.perplexity_a) && isnan(c.logprob_delta));
  comparison_free(&c);
}

static void says_plainly(void **unused) {
  (void)unused;
  struct comparison c = {.count = 40, .length_a = 32, .length_b = 32, .parted = LOOK_NONE, .prompt_steps = 8};
  char text[512];
  c.with_logits = 1, c.kl_mean = 0.0061, c.with_top = 32, c.top1_kept = 30, c.max_abs_logit = 1.5;
  compare_sentence(&c, text, sizeof text);
  assert_string_equal(text,
                      "invisible in the text (32 of 32 tokens the same), visible in the numbers: KL 0.0061, top-1 "
                      "kept 93.8%, max |Δ logit| 1.5");
  c.answers = (struct compare_share){200, 200, 7};
  compare_sentence(&c, text, sizeof text);
  assert_non_null(strstr(text, "invisible in this text, visible in the answers: 7 of 200 right, not 200"));
  c.parted = 11;
  compare_sentence(&c, text, sizeof text);
  assert_non_null(strstr(text, "visible: the texts part at token 12 (step 19)"));
  c.parted = 20, c.length_b = 20, c.ended_b = true;
  compare_sentence(&c, text, sizeof text);
  assert_non_null(strstr(text, "visible: the context ends after 20 of 32 tokens"));
  c = (struct comparison){.count = 40, .parted = LOOK_NONE, .same = true, .max_abs_logit = NAN};
  compare_sentence(&c, text, sizeof text);
  assert_string_equal(text, "no difference: not one bit differs in 40 steps");
  c.blind = true;
  compare_sentence(&c, text, sizeof text);
  assert_string_equal(text, "nothing to compare: the runs have 40 steps in common, and no vector that both logged");
}

/* ---- made-up traces ------------------------------------------------------------------------------------------------ */

static char path[128];
static sqlite3 *db;
static struct look *look;

static void sql(const char *statements) { execute(db, statements); }

__attribute__((format(printf, 1, 2))) static void sqlf(const char *format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  sql(text);
}

/* A model of one layer, one head and 2 numbers, words a … e. */
static void begin_trace(void) {
  strcpy(path, in_folder("made.db"));
  unlink(path);
  assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
  sql(kvs_trace_schema());
  sql("INSERT INTO token VALUES (0, X'61', 'a'), (1, X'62', 'b'), (2, X'63', 'c'), (3, X'64', 'd'), (4, X'65', 'e')");
}

static void add_run(int run, const char *fault, int n_vocab) {
  sqlf("INSERT INTO run VALUES (%d, NULL, NULL, 'mine', NULL, NULL, 'tiny', NULL, 1, 1, 2, 2, 64, %d, %s, NULL, NULL,"
       " 0, 0, 1, 'p')",
       run, n_vocab, fault);
}

/* Tokens as letters; the first `prompt` are the prompt's. */
static void add_steps(int run, const char *tokens, int prompt) {
  for (int i = 0; tokens[i]; i++)
    sqlf("INSERT INTO step VALUES (%d, %d, 'decode', %d, '%s', %d, %d, %d, NULL, NULL)", run, i, tokens[i] - 'a',
         i < prompt ? "prompt" : "sampled", i, i, i + 1);
}

/* What each step held for the best: letters, '-' for none. */
static void add_tops(int run, const char *tops) {
  for (int i = 0; tops[i]; i++)
    if (tops[i] != '-')
      sqlf("INSERT INTO top_token VALUES (%d, %d, 1, %d, '%c', 1, 0.5)", run, i, tops[i] - 'a', tops[i]);
}

static void open_look(void) {
  kvs_error err;
  sqlite3 *read;
  sqlite3_close(db);
  db = NULL;
  assert_int_equal(kvs_trace_read(path, &read, &err), KVS_OK);
  assert_int_equal(look_open(read, &look, &err), KVS_OK);
}

static int shut(void **unused) {
  (void)unused;
  if (look) look_close(look);
  sqlite3_close(db);
  look = NULL, db = NULL;
  return 0;
}

/* "0,1,-,2" the partner of each step; "+n" before it: n steps of b's own. */
static void aligned(const char *a, const char *b, const char *tops_b, int prompt, const char *expected, int parted) {
  char text[256] = "";
  struct alignment alignment;
  kvs_error err;
  begin_trace();
  add_run(1, "'none'", 5), add_run(2, "'x'", 5);
  add_steps(1, a, prompt), add_steps(2, b, prompt);
  if (tops_b) add_tops(2, tops_b);
  open_look();
  assert_int_equal(align_runs(look, 1, 2, &alignment, &err), KVS_OK);
  for (int i = 0; i < alignment.steps_a; i++) {
    size_t used = strlen(text);
    if (alignment.extra[i]) used += (size_t)snprintf(text + used, sizeof text - used, "+%d ", alignment.extra[i]);
    if (alignment.step_b[i] == LOOK_NONE)
      snprintf(text + used, sizeof text - used, "- ");
    else
      snprintf(text + used, sizeof text - used, "%d ", alignment.step_b[i]);
  }
  assert_string_equal(text, expected);
  assert_int_equal(alignment.parted_b, parted);
  alignment_free(&alignment);
  shut(NULL);
}

static void steps_are_paired_by_their_tokens(void **unused) {
  (void)unused;
  aligned("abcde", "abcde", NULL, 2, "0 1 2 3 4 ", LOOK_NONE);
  aligned("abcde", "abc", NULL, 2, "0 1 2 ", LOOK_NONE);
  aligned("ab", "abcde", NULL, 2, "0 1 ", LOOK_NONE);
  aligned("abcde", "ababcde", NULL, 2, "+2 2 3 4 5 6 ", LOOK_NONE); /* the prompt again: the later copy counts */
  aligned("abcde", "ababced", NULL, 2, "+2 2 3 4 ", 5);             /* … also where the texts part soon after */
  aligned("abcde", "abbcde", NULL, 2, "0 +1 2 3 4 5 ", LOOK_NONE);  /* the last token again */
  aligned("abcde", "abedcde", NULL, 2, "0 1 +2 4 5 6 ", LOOK_NONE); /* a draft that was rejected */
  aligned("abcdea", "abdea", NULL, 2, "0 1 - 2 3 4 ", LOOK_NONE);   /* a token skipped */
  aligned("abcde", "abdce", NULL, 2, "0 1 ", 2);                    /* another text */
  /* One token that agrees is enough where b's own step had chosen another than was fed … */
  aligned("abcd", "abedce", "-c", 2, "0 1 +2 4 ", 5);
  aligned("abcd", "abde", "-c", 2, "0 1 - 2 ", LOOK_NONE);
  /* … and none where b chose what it was fed. */
  aligned("abcdea", "abedcdea", "-e", 2, "0 1 ", 2);
}

/* logits are ln 1, ln 2, ln 1 against ln 2, ln 1, ln 1: p = (¼, ½, ¼), q = (½, ¼, ¼). */
static void two_steps(void) {
  begin_trace();
  add_run(1, "'none'", 3), add_run(2, "'x'", 3);
  add_steps(1, "ab", 1), add_steps(2, "ab", 1);
  for (int run = 1; run <= 2; run++)
    for (int step = 0; step < 2; step++)
      sqlf("INSERT INTO step_vector (run, step, logits) VALUES (%d, %d, X'%s00000000')", run, step,
           step == 0 || run == 1 ? "000000001872313F" : "1872313F00000000");
  sql("INSERT INTO head_step (run, step, layer, head, weights) VALUES (1, 1, 0, 0, X'0000003F0000003F'),"
      " (2, 1, 0, 0, X'0000803E0000403F')"); /* ½ ½; ¼ ¾ */
  open_look();
}

static void a_made_up_pair(void **unused) {
  (void)unused;
  struct comparison c;
  kvs_error err;
  two_steps();
  assert_int_equal(compare_runs(look, 1, 2, &c, &err), KVS_OK);
  assert_int_equal(c.count, 2);
  assert_true(c.steps[0].kl == 0 && c.steps[0].max_abs_logit == 0);
  assert_float_equal(c.steps[0].logprob_a, log(0.5), 1e-7); /* of b, which came next */
  assert_float_equal(c.steps[1].kl, log(2) / 4, 1e-7);      /* ¼·ln ½ + ½·ln 2 */
  assert_float_equal(c.steps[1].max_abs_logit, log(2), 1e-7);
  assert_int_equal(c.steps[1].top1_same, 0);
  assert_true(isnan(c.steps[1].logprob_a));
  assert_true(isnan(c.steps[0].attention_distance));
  assert_true(c.steps[1].attention_distance == 0.25);
  assert_true(c.head_distance[0] == 0.25);
  assert_int_equal(c.first.what, COMPARE_NUMBER); /* ½ and ¼: before the logits */
  assert_int_equal(c.first.field, COMPARE_WEIGHTS);
  assert_int_equal(c.first.step, 1);
  assert_int_equal(c.first.index, 0);
  assert_true(c.first.value_a == 0.5 && c.first.value_b == 0.25);
  assert_int_equal(compare_verdict(&c), COMPARE_INVISIBLE);
  comparison_free(&c);
}

static double stored(const char *column) {
  char query[128];
  snprintf(query, sizeof query, "SELECT %s FROM divergence", column);
  return number(db, query);
}

static void stored_once(void **unused) {
  (void)unused;
  struct comparison c;
  kvs_error err;
  two_steps();
  assert_int_equal(compare_runs(look, 1, 2, &c, &err), KVS_OK);
  for (int i = 0; i < 2; i++) assert_int_equal(compare_store(path, &c, 1, &err), KVS_OK);
  assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
  assert_true(stored("count(*)") == 2 && stored("count(logprob_a)") == 1 && stored("count(attention_distance)") == 1);
  assert_true(stored("max(kl)") == c.steps[1].kl); /* every bit */
  /* A view in its place, and triggers: nothing of theirs happens. */
  sql("CREATE TABLE spied (n); CREATE TRIGGER spy AFTER INSERT ON divergence BEGIN INSERT INTO spied VALUES (1); END");
  assert_int_equal(compare_store(path, &c, 1, &err), KVS_OK);
  assert_true(stored("(SELECT count(*) FROM spied)") == 0);
  sql("DROP TABLE divergence; CREATE VIEW divergence AS SELECT 1 AS run_a");
  assert_int_equal(compare_store(path, &c, 1, &err), KVS_ERR_INPUT);
  assert_non_null(strstr(err.message, "divergence"));
  comparison_free(&c);
}

/* Only what is there is compared, and the rest is not known. */
static void little_is_logged(void **unused) {
  (void)unused;
  struct comparison c;
  kvs_error err;
  begin_trace();
  add_run(1, "'none'", 5), add_run(2, "NULL", 5);
  add_steps(1, "abc", 1), add_steps(2, "abc", 1);
  add_tops(1, "bca"), add_tops(2, "bcd");
  sql("UPDATE step SET logprob = -0.5 * step WHERE step > 0; UPDATE step SET logprob = -2 WHERE run = 2 AND step = 2");
  open_look();
  assert_int_equal(compare_runs(look, 1, 2, &c, &err), KVS_OK);
  assert_string_equal(c.name_b, "mine");
  assert_true(isnan(c.steps[1].kl) && isnan(c.kl_mean) && isnan(c.steps[1].attention_distance));
  assert_int_equal(c.steps[1].top1_same, 1);
  assert_int_equal(c.steps[2].top1_same, 0);
  assert_true(c.steps[1].logprob_a == -1 && c.steps[1].logprob_b == -2);
  assert_true(c.same); /* not one of the numbers that both have */
  comparison_free(&c);
}

static void logits_that_are_no_numbers(void **unused) {
  (void)unused;
  struct comparison c;
  kvs_error err;
  begin_trace();
  add_run(1, "'none'", 2), add_run(2, "'x'", 2);
  add_steps(1, "ab", 1), add_steps(2, "ab", 1);
  sql("INSERT INTO step_vector (run, step, logits) VALUES (1, 1, X'0000803F00000000'), (2, 1, X'0000C07F0000C07F'),"
      " (1, 0, X'0000803F00000000'), (2, 0, X'0000803F00000000')");
  open_look();
  assert_int_equal(compare_runs(look, 1, 2, &c, &err), KVS_OK);
  assert_true(isnan(c.steps[1].kl) && isnan(c.steps[1].max_abs_logit));
  assert_int_equal(c.steps[1].top1_same, LOOK_NONE);
  assert_false(c.same);
  assert_int_equal(c.first.field, COMPARE_LOGITS);
  assert_int_equal(compare_store(path, &c, 1, &err), KVS_OK);
  assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
  assert_true(stored("count(*)") == 2 && stored("count(kl)") == 1 && stored("count(top1_same)") == 1);
  comparison_free(&c);
}

static void what_cannot_be_compared(void **unused) {
  (void)unused;
  struct comparison c;
  kvs_error err;
  begin_trace();
  add_run(1, "'none'", 5), add_run(2, "'x'", 4), add_run(3, "'y'", 5), add_run(4, "'z'", 5);
  add_run(5, "'z'", 5);
  add_steps(1, "ab", 1), add_steps(2, "ab", 1);
  sql("INSERT INTO step (run, step, token) VALUES (3, 1000000000, 1)");
  sql("INSERT INTO step (run, step, token) VALUES (4, 0, 0);"
      "INSERT INTO step_vector (run, step, logits) VALUES (4, 0, X'00000000'), (1, 0, X'00000000')");
  open_look();
  assert_int_equal(compare_runs(look, 1, 2, &c, &err), KVS_ERR_INPUT);
  assert_non_null(strstr(err.message, "n_vocab is 5 and 4"));
  comparison_free(&c);
  assert_int_equal(compare_runs(look, 1, 3, &c, &err), KVS_ERR_INPUT);
  assert_non_null(strstr(err.message, "step"));
  comparison_free(&c);
  assert_int_equal(compare_runs(look, 1, 4, &c, &err), KVS_ERR_INPUT); /* logits of a wrong length */
  assert_non_null(strstr(err.message, "logits"));
  comparison_free(&c);
  assert_int_equal(compare_runs(look, 1, 9, &c, &err), KVS_ERR_USAGE);
  comparison_free(&c);
  assert_int_equal(compare_runs(look, 1, 5, &c, &err), KVS_ERR_INPUT);
  assert_non_null(strstr(err.message, "run 5 has no steps"));
  comparison_free(&c);
}

static void pairs_have_one_prompt(void **unused) {
  (void)unused;
  struct compare_pair pairs[8];
  begin_trace();
  add_run(1, "'x'", 5), add_run(2, "'none'", 5), add_run(3, "'y'", 5), add_run(4, "'none'", 5), add_run(5, "'z'", 5);
  sql("UPDATE run SET prompt = 'q' WHERE run >= 4");
  for (int run = 1; run <= 5; run++) add_steps(run, "a", 1);
  add_run(6, "'x'", 5); /* the last of its prompt, without a step */
  open_look();
  assert_int_equal(compare_pairs(look, pairs, 8), 3);
  assert_true(pairs[0].run_a == 2 && pairs[0].run_b == 1);
  assert_true(pairs[1].run_a == 2 && pairs[1].run_b == 3);
  assert_true(pairs[2].run_a == 4 && pairs[2].run_b == 5);
  assert_int_equal(compare_pairs(look, pairs, 1), 1);
  shut(NULL);
  begin_trace();
  add_run(1, "NULL", 5), add_run(2, "NULL", 5); /* another engine does not say */
  add_steps(1, "a", 1), add_steps(2, "a", 1);
  open_look();
  assert_int_equal(compare_pairs(look, pairs, 8), 1);
  assert_true(pairs[0].run_a == 1 && pairs[0].run_b == 2);
}

/* ---- live --------------------------------------------------------------------------------------------------------- */

static kvs_model *model;
static kvs_tokenizer *tokenizer;
static int prompt[] = {0, 1, 2, 3, 26}; /* abcd> */
static struct compare_live_options options = {
    .tokens = prompt, .token_count = 5, .generate = 8, .fault_from = LOOK_NONE, .threads = 1};

static int open_model(void **unused) {
  (void)unused;
  kvs_error err;
  return kvs_model_open("reverse", &model, &err) || kvs_tokenizer_open("reverse", &tokenizer, &err);
}

static int close_model(void **unused) {
  (void)unused;
  kvs_model_free(model);
  kvs_tokenizer_free(tokenizer);
  return 0;
}

static struct comparison faulty(const char *fault) {
  struct comparison c;
  struct compare_live *live;
  kvs_error err;
  assert_int_equal(compare_live_open(model, tokenizer, &options, &live, &err), KVS_OK);
  if (compare_live_fault(live, kvs_fault_find(fault), &c, &err) != KVS_OK) fail_msg("%s: %s", fault, err.message);
  compare_live_close(live);
  return c;
}

/* What each fault does by its definition, at the first generated token: step 5, an `d`. */
static void first_numbers_by_definition(void **unused) {
  (void)unused;
  static const struct {
    const char *fault;
    enum compare_what what;
    int step, field, layer, index;
    double a, b; /* NaN: not known by definition */
  } cases[] = {
      {"off-by-one", COMPARE_NUMBER, 5, COMPARE_POSITION, -1, -1, 5, 6},
      {"reset-to-zero", COMPARE_NUMBER, 5, COMPARE_POSITION, -1, -1, 5, 0},
      {"skip-wpe", COMPARE_NUMBER, 5, COMPARE_POSITION, -1, -1, 5, -1},
      {"constant-position", COMPARE_NUMBER, 6, COMPARE_POSITION, -1, -1, 6, 5},
      {"position-jump", COMPARE_NUMBER, 5, COMPARE_POSITION, -1, -1, 5, 9},
      {"attend-before-append", COMPARE_COUNT, 5, COMPARE_SCORES, 0, -1, 6, 5},
      {"overwrite-last", COMPARE_NUMBER, 5, COMPARE_ROW, 0, -1, 5, 4},
      {"k-without-v", COMPARE_NUMBER, 5, COMPARE_ROW_V, 0, 0, NAN, 0},
      {"row-never-written", COMPARE_NUMBER, 5, COMPARE_ROW_K, 0, 0, NAN, 0},
      {"mask-corner", COMPARE_NUMBER, 5, COMPARE_WEIGHTS, 0, 0, NAN, 1},
      {"wrong-scale", COMPARE_NUMBER, 5, COMPARE_SCORES, 0, 0, NAN, NAN},
      {"softmax-extent", COMPARE_COUNT, 5, COMPARE_SCORES, 0, -1, 6, 32},
      {"prefill-unmasked", COMPARE_COUNT, 0, COMPARE_SCORES, 0, -1, 1, 5},
      {"stale-cache", COMPARE_NUMBER, 0, COMPARE_LENGTH, -1, -1, 0, 8},
      {"last-token-twice", COMPARE_EXTRA, 4, 0, 0, 0, NAN, 1},
      {"prompt-twice", COMPARE_EXTRA, 0, 0, 0, 0, NAN, 5},
      {"no-rollback", COMPARE_EXTRA, 5, 0, 0, 0, NAN, 2},
      {"token-skipped", COMPARE_MISSING, 5, 0, 0, 0, NAN, NAN},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct comparison c = faulty(cases[i].fault);
    const struct compare_first *f = &c.first;
    bool number = cases[i].what == COMPARE_NUMBER || cases[i].what == COMPARE_COUNT;
    bool good = f->what == cases[i].what && f->step == cases[i].step && !c.same;
    if (number)
      good = good && (int)f->field == cases[i].field && f->layer == cases[i].layer && f->index == cases[i].index;
    if (!isnan(cases[i].a)) good = good && f->value_a == cases[i].a;
    if (!isnan(cases[i].b)) good = good && f->value_b == cases[i].b;
    if (!good)
      fail_msg("%s: %d in step %d, field %d, layer %d, index %d: %g, not %g", cases[i].fault, f->what, f->step,
               f->field, f->layer, f->index, f->value_b, f->value_a);
    if (strcmp(cases[i].fault, "wrong-scale") == 0) /* 1 for 1/√12 */
      assert_float_equal(f->value_b / f->value_a, sqrt(12), 1e-5);
    comparison_free(&c);
  }
}

/* abcd> is answered dcba and a newline; a fault that comes too late changes nothing. */
static void texts_and_answers(void **unused) {
  (void)unused;
  struct comparison c = faulty("off-by-one");
  const int right[] = {3, 2, 1, 0, 27};
  assert_int_equal(c.length_a, 5); /* and there the text ends */
  assert_memory_equal(c.text_a, right, sizeof right);
  assert_int_equal(c.parted, 1);
  assert_int_equal(c.answers.count, 200);
  assert_int_equal(c.answers.a, 200);
  assert_int_equal(c.answers.b, 0); /* as the model's card has it: none of 2,000 */
  assert_int_equal(compare_verdict(&c), COMPARE_VISIBLE);
  comparison_free(&c);
  options.fault_from = 99;
  c = faulty("off-by-one");
  options.fault_from = LOOK_NONE;
  assert_true(c.same && c.kl_mean == 0 && c.answers.b == 200);
  assert_int_equal(c.first.what, COMPARE_NOTHING);
  assert_int_equal(compare_verdict(&c), COMPARE_SAME);
  comparison_free(&c);
}

/* Every prefix of the text alone, from an empty cache and in one batch: no window, no decode step. */
static void perplexity_without_a_cache(void **unused) {
  (void)unused;
  enum { WINDOW = 31, PROMPT = 15 }; /* n_ctx 32, one left free; a prompt of 16, but no more than half */
  enum { TEXT = 2 * WINDOW + 5 };    /* the third window is no longer than a prompt: nothing of it counts */
  int text[TEXT], scored = 0;
  double sum = 0;
  kvs_engine *engine;
  kvs_error err;
  const kvs_engine_options one = {.threads = 1};
  for (int i = 0; i < TEXT; i++) text[i] = i * 7 % 26;
  assert_int_equal(kvs_engine_create(model, &one, &engine, &err), KVS_OK);
  for (int begin = 0; begin < 2 * WINDOW; begin += WINDOW) /* each window from an empty cache */
    for (int i = PROMPT; i < WINDOW; i++) {
      kvs_engine_reset(engine);
      assert_int_equal(kvs_engine_prefill(engine, text + begin, i, KVS_PROMPT, &err), KVS_OK);
      sum += kvs_logprob(kvs_engine_logits(engine), 28, text[begin + i]);
      scored++;
    }
  kvs_engine_free(engine);
  options.text = text, options.text_count = TEXT;
  struct comparison c = faulty("reset-to-zero");
  options.text = NULL, options.text_count = 0;
  assert_int_equal(c.text.tokens, scored);
  assert_float_equal(log(c.text.perplexity_a), -sum / scored, 1e-12);
  assert_false(c.text.perplexity_b == c.text.perplexity_a);
  comparison_free(&c);
}

/* n_ctx is 32: off-by-one wants position 32 in step 31. */
static void where_the_context_ends(void **unused) {
  (void)unused;
  int full[31];
  for (int i = 0; i < 31; i++) full[i] = i % 26;
  options.tokens = full, options.token_count = 31;
  struct comparison c = faulty("off-by-one");
  assert_true(c.ended_b && !c.same && c.length_b == 0 && c.parted == 0);
  assert_int_equal(c.first.what, COMPARE_ENDED);
  comparison_free(&c);
  c = faulty("reset-to-zero"); /* one token fits, and then the correct run has no room either */
  assert_int_equal(c.count, 32);
  assert_false(c.ended_b);
  comparison_free(&c);
  options.tokens = prompt, options.token_count = 5;
  c = faulty(
      "context-overflow"); /* beyond its end the last 32 tokens are read anew: the right text, from another cache */
  assert_int_equal(c.prompt_steps, 31);
  /* The newest token is at position 31 in both, its q the same; row 0 is another token's, made one position later. */
  assert_true(c.first.what == COMPARE_NUMBER && c.first.field == COMPARE_SCORES);
  assert_true(c.first.step == 32 && c.first.layer == 0 && c.first.head == 0 && c.first.index == 0);
  comparison_free(&c);
}

/* ---- the command -------------------------------------------------------------------------------------------------- */

static char out[1 << 16];

static int run(const char *script) {
  return shell_says(out, sizeof out, "cd '%s' && K='%s' && export LC_ALL=C.UTF-8 && (%s) 2>&1", folder, kvstep_binary(),
                    script);
}

static void expect(int code, const char *script, const char *part) {
  int got = run(script);
  if (got != code || !strstr(out, part))
    fail_msg("%s\nexit %d, not %d, or no \"%s\" in\n%s", script, got, code, part, out);
}

static void wrong_calls(void **unused) {
  (void)unused;
  assert_int_equal(
      run("$K run -m reverse -n 3 -o one.db && cp one.db two.db && $K run -m reverse -n 3 -o two.db --append "
          "--fault off-by-one"),
      0);
  expect(2, "$K compare", "TRACE is missing, or --fault NAME");
  expect(2, "$K compare two.db --fault off-by-one", "either TRACE or --fault");
  expect(2, "$K compare two.db -p x", "go with --fault");
  expect(2, "$K compare two.db 1", "two are compared");
  expect(2, "$K compare two.db 1 x", "`x` is no run");
  expect(2, "$K compare two.db 2 2", "with itself");
  expect(2, "$K compare two.db 1 7", "two.db: there is no run 7");
  expect(2, "$K compare two.db -n 3", "go with --fault");
  expect(2, "$K compare two.db --fault-from 5", "go with --fault");
  expect(2, "$K compare --fault off-by-noe", "did you mean");
  expect(2, "$K compare --fault off-by-one,off-by-one", "named twice");
  expect(2, "$K compare --fault none", "compared with");
  expect(2, "$K compare --fault off-by-one -o json --per-step --heads", "two tables");
  expect(2, "$K compare --fault stale-cache --fault-from 3", "happens before the first step");
  expect(1, "$K compare one.db", "no two runs of this trace have steps and the same prompt");
  expect(1, "$K compare missing.db", "missing.db");
  assert_int_equal(
      run("cp one.db less.db && $K run -m reverse -n 1 -o less.db --append && sqlite3 less.db 'ALTER TABLE "
          "step_vector RENAME COLUMN x TO y'"),
      0);
  expect(1, "$K compare less.db 1 2", "less.db: the trace cannot be read: no such column");
  expect(1, "$K show less.db", "less.db: the trace cannot be read: no such column");
  expect(1, "$K compare --fault off-by-one --text missing.txt", "missing.txt");
  expect(1, "$K compare --fault off-by-one --save two.db", "exists already");
  expect(1, "$K compare --fault off-by-one -o csv > /dev/full", "");
}

/* A run that was stopped before its first step is no reference, and says nothing beside one. */
static void runs_without_steps(void **unused) {
  (void)unused;
#define EMPTY(runs) "sqlite3 empty.db 'DELETE FROM step WHERE run IN (" runs ")'"
  assert_int_equal(run("for f in none none off-by-one; do $K run -m reverse -n 2 -o empty.db --append --fault $f; done "
                       "&& cp empty.db three.db && " EMPTY("1")),
                   0);
  expect(0, "$K compare empty.db", "note: run 1 has no steps, so it is left out\n");
  expect(0, "$K compare empty.db", "off-by-one (run 3) against correct (run 2)");
  expect(1, "$K compare empty.db 1 3", "empty.db: run 1 has no steps");
  expect(1, "$K compare empty.db 3 1", "empty.db: run 1 has no steps");
  expect(1, "$K show empty.db --run 1", "run 1 has no step yet; `kvstep info` lists the runs, and --run takes another");
  assert_int_equal(run(EMPTY("2")), 0);
  expect(1, "$K compare empty.db", "note: 2 runs have no steps, run 1 the first of them; they are left out\n");
  expect(1, "$K compare empty.db", "no two runs of this trace have steps and the same prompt");
#undef EMPTY
}

static void a_read_only_trace_is_compared(void **unused) {
  (void)unused;
  expect(0, "$K compare two.db --no-store && $K sql two.db 'SELECT count(*) AS stored FROM divergence' -o csv",
         "stored\r\n0");
  if (geteuid() != 0) { /* to root nothing is read-only */
    expect(0, "cp two.db shut.db && chmod 444 shut.db && $K compare shut.db", "not stored in `divergence`");
  }
  expect(0, "$K compare two.db && $K sql two.db 'SELECT count(*) > 8 AS stored FROM divergence' -o csv", "stored\r\n1");
}

static void the_page_says_it(void **unused) {
  (void)unused;
  expect(0, "$K compare --fault off-by-one -p 'It is a truth universally acknowledged' --per-step --heads",
         "first difference step 18, read_length: position 19, not 18");
  assert_non_null(
      strstr(out, "Invisible in the text (32 of 32 tokens the same), visible in the numbers: KL\n0.00188, top-1"));
  assert_non_null(strstr(out, "layer 3"));
  assert_non_null(strstr(out, "█"));
  for (char *line = strtok(out, "\n"); line; line = strtok(NULL, "\n")) {
    int columns = 0;
    for (char *c = line; *c; c++) columns += (*c & 0xC0) != 0x80;
    if (columns > 80) fail_msg("%d columns: %s", columns, line);
  }
  expect(0, "LC_ALL=C $K compare --fault off-by-one,skip-wpe --per-step", "Invisible in the text");
  for (char *c = out; *c; c++) assert_true((unsigned char)*c < 0x80);
  expect(0, "$K compare -m reverse --fault reset-to-zero,off-by-one", "answers");
  assert_null(strstr(out, "\033"));
}

static void the_same_bits_each_time(void **unused) {
  (void)unused;
  /* The verdict's name, as the sentence says it: austen's text stays, reverse's does not. */
  expect(0, "$K compare --fault off-by-one -n 8 -o csv", ",off-by-one,invisible,");
  expect(0, "$K compare --fault off-by-one,skip-wpe -n 7",
         "of the same 7 tokens through both"); /* as many as -n asks for */
  expect(0, "$K compare -m reverse --fault off-by-one -o json", "\"verdict\": \"visible\"");
  expect(0,
         "for t in 1 2 3; do for o in '' --per-step --heads; do $K compare --fault off-by-one,mask-corner -n 8 "
         "--threads $t "
         "-o json $o; done > t$t.json; done; $K compare --fault off-by-one,mask-corner -n 8 -o json > t.json; "
         "cmp t1.json t2.json && cmp t1.json t3.json && head -c 1 t.json",
         "[");
}

static int begin(void **state) { return make_folder(state) ? -1 : open_model(state); }

static int end(void **state) {
  close_model(state);
  return remove_folder(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(vectors_by_bits),
      cmocka_unit_test(sums_by_hand),
      cmocka_unit_test(nothing_but_a_prompt),
      cmocka_unit_test(says_plainly),
      cmocka_unit_test_teardown(steps_are_paired_by_their_tokens, shut),
      cmocka_unit_test_teardown(a_made_up_pair, shut),
      cmocka_unit_test_teardown(stored_once, shut),
      cmocka_unit_test_teardown(little_is_logged, shut),
      cmocka_unit_test_teardown(logits_that_are_no_numbers, shut),
      cmocka_unit_test_teardown(what_cannot_be_compared, shut),
      cmocka_unit_test_teardown(pairs_have_one_prompt, shut),
      cmocka_unit_test(first_numbers_by_definition),
      cmocka_unit_test(texts_and_answers),
      cmocka_unit_test(perplexity_without_a_cache),
      cmocka_unit_test(where_the_context_ends),
      cmocka_unit_test(wrong_calls),
      cmocka_unit_test(runs_without_steps),
      cmocka_unit_test(a_read_only_trace_is_compared),
      cmocka_unit_test(the_page_says_it),
      cmocka_unit_test(the_same_bits_each_time),
  };
  return cmocka_run_group_tests_name("compare command", tests, begin, end);
}
