/* compare_trace.c: two runs of a trace, read step by step and compared. */
#include "study/compare/compare_trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "study/compare/diverge.h"
#include "trace/query.h"

/* What is being compared. */
struct pair {
  struct look *look;
  const struct look_run *a, *b;
  struct comparison *c;
  int *head_count; /* [n_layer][n_head] steps in which the head's attention was compared */
};

/* What cannot be read is an error, once its step has been read. */
static kvs_status told(struct look *look, kvs_error *err) {
  const char *message = look_error(look);
  return message ? kvs_fail(err, KVS_ERR_INPUT, "%s", message) : KVS_OK;
}

/* ---- one step ----------------------------------------------------------------------------------------------------- */

/* Without the logits the list of the best still says which was the best. */
static void compare_tops(const struct pair *p, struct compare_step *s) {
  const struct look_top *a = look_top(p->look, p->a->run, s->step), *b = look_top(p->look, p->b->run, s->step_b);
  if (!a || !b || a->count == 0 || b->count == 0) return;
  s->top_a = a->token[0].token, s->top_b = b->token[0].token;
  if (s->top_a != LOOK_NONE && s->top_b != LOOK_NONE) s->top1_same = s->top_a == s->top_b;
}

static void compare_attention(const struct pair *p, struct compare_step *s, bool summed) {
  double sum = 0;
  int count = 0;
  for (int layer = 0; layer < p->a->n_layer; layer++)
    for (int head = 0; head < p->a->n_head; head++) {
      const struct look_head *a = look_head(p->look, p->a->run, s->step, layer, head);
      const struct look_head *b = look_head(p->look, p->b->run, s->step_b, layer, head);
      if (!a || !b || !a->weights || !b->weights) continue;
      double distance = diverge_attention(a->weights, a->rows, b->weights, b->rows);
      if (isnan(distance)) continue;
      sum += distance;
      count++;
      if (!summed) continue;
      p->c->head_distance[layer * p->a->n_head + head] += distance;
      p->head_count[layer * p->a->n_head + head]++;
    }
  if (count) s->attention_distance = sum / count;
}

/* The log-probability of the next token where the logits were not logged: the next step has it. */
static double logged_logprob(struct look *look, int run, int step, int token) {
  const struct look_step *next = step == LOOK_NONE ? NULL : look_step(look, run, step);
  return next && next->token == token ? next->logprob : NAN;
}

static void compare_step_of(const struct pair *p, struct compare_step *s, int next, bool summed) {
  const struct look_vectors *a = look_vectors(p->look, p->a->run, s->step);
  const struct look_vectors *b = look_vectors(p->look, p->b->run, s->step_b);
  if (a && b && a->logits && b->logits) {
    compare_logits(s, a->logits, b->logits, p->a->n_vocab, next);
  } else {
    compare_tops(p, s);
    s->logprob_a = logged_logprob(p->look, p->a->run, s->step + 1, next);
    s->logprob_b = logged_logprob(p->look, p->b->run, s->step_b + 1, next);
  }
  compare_attention(p, s, summed);
}

/* Remembers the first difference, and what kind of step b made here. */
static void compare_place(const struct pair *p, const struct compare_step *s) {
  struct comparison *c = p->c;
  if (!c->same) return;
  struct compare_first first = {.step = s->step, .step_b = s->step_b, .layer = LOOK_NONE, .head = LOOK_NONE};
  first.index = LOOK_NONE;
  if (s->extra) {
    first.what = COMPARE_EXTRA;
    first.value_b = s->extra;
  } else if (s->step_b == LOOK_NONE) {
    first.what = COMPARE_MISSING;
  } else if (!compare_find_first(p->look, p->a, p->b, &first)) {
    c->blind = c->blind && first.compared == 0;
    return;
  }
  c->first = first;
  c->same = false;
}

static kvs_status compare_steps(const struct pair *p, const struct alignment *alignment, kvs_error *err) {
  for (int i = 0; i < alignment->steps_a; i++) {
    const struct look_step *step = look_step(p->look, p->a->run, i), *next = look_step(p->look, p->a->run, i + 1);
    int next_token = next ? next->token : LOOK_NONE;
    step = look_step(p->look, p->a->run, i); /* the next one may have pushed it out */
    struct compare_step *s = compare_add_step(p->c, err);
    if (!s) return err ? err->status : KVS_ERR_MEMORY;
    s->step = i;
    s->step_b = alignment->step_b[i];
    s->extra = alignment->extra[i];
    s->token = step ? step->token : LOOK_NONE;
    if (s->step_b != LOOK_NONE) compare_step_of(p, s, next_token, i >= p->c->prompt_steps);
    compare_place(p, s);
    kvs_status status = told(p->look, err);
    if (status != KVS_OK) return status;
  }
  return KVS_OK;
}

/* ---- the texts ---------------------------------------------------------------------------------------------------- */

static kvs_status keep_texts(const struct pair *p, const struct alignment *alignment, kvs_error *err) {
  struct comparison *c = p->c;
  int a = p->a->steps - c->prompt_steps, room = p->a->steps + p->b->steps;
  if (a < 0) a = 0;
  c->text_a = malloc(((size_t)a + 1) * sizeof *c->text_a);
  c->text_b = malloc(((size_t)room + 1) * sizeof *c->text_b);
  if (!c->text_a || !c->text_b) return kvs_fail_memory(err, "comparing two runs");
  c->parted = LOOK_NONE;
  for (int i = c->prompt_steps; i < p->a->steps; i++) {
    const struct look_step *step = look_step(p->look, p->a->run, i);
    c->text_a[c->length_a++] = step ? step->token : LOOK_NONE;
    if (i >= alignment->steps_a || c->text_a[c->length_a - 1] == LOOK_NONE) continue;
    if (alignment->step_b[i] == LOOK_NONE) continue;
    const struct look_step *other = look_step(p->look, p->b->run, alignment->step_b[i]);
    if (other && other->source == KVS_FORCED) c->forced = true;
    c->text_b[c->length_b++] = c->text_a[c->length_a - 1];
  }
  for (int j = alignment->parted_b; j != LOOK_NONE && j < p->b->steps; j++) {
    const struct look_step *step = look_step(p->look, p->b->run, j);
    c->text_b[c->length_b++] = step ? step->token : LOOK_NONE;
  }
  if (alignment->parted_b != LOOK_NONE) c->parted = alignment->steps_a - c->prompt_steps;
  if (c->parted != LOOK_NONE && c->parted < 0) c->parted = 0;
  int last = alignment->steps_a > 0 ? alignment->step_b[alignment->steps_a - 1] : LOOK_NONE;
  if (alignment->steps_a == p->a->steps && last != LOOK_NONE) c->more_b = p->b->steps - 1 - last;
  return told(p->look, err);
}

/* ---- two runs ----------------------------------------------------------------------------------------------------- */

static kvs_status check_shapes(const struct look_run *a, const struct look_run *b, kvs_error *err) {
  const int shapes[][2] = {{a->n_layer, b->n_layer}, {a->n_head, b->n_head},   {a->head_dim, b->head_dim},
                           {a->n_embd, b->n_embd},   {a->n_vocab, b->n_vocab}, {a->n_ctx, b->n_ctx}};
  static const char *const names[] = {"n_layer", "n_head", "head_dim", "n_embd", "n_vocab", "n_ctx"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (shapes[i][0] != shapes[i][1])
      return kvs_fail(err, KVS_ERR_INPUT,
                      "runs %d and %d are of different models (%s is %d and %d): there is nothing to compare", a->run,
                      b->run, names[i], shapes[i][0], shapes[i][1]);
    if (shapes[i][0] == LOOK_NONE)
      return kvs_fail(err, KVS_ERR_INPUT, "run %d says no %s that a GPT-2 can have; `kvstep info` shows its shape",
                      a->run, names[i]);
  }
  return KVS_OK;
}

static kvs_status check_steps(const struct look_run *run, kvs_error *err) {
  if (run->steps != 0) return KVS_OK;
  return kvs_fail(err, KVS_ERR_INPUT,
                  "run %d has no steps, so there is nothing to compare; name two runs that have some, as `kvstep info` "
                  "lists them",
                  run->run);
}

static void name_run(const struct look_run *run, char *name, size_t size) {
  bool none = strcmp(run->fault, "none") == 0;
  snprintf(name, size, "%s", none ? "correct" : *run->fault ? run->fault : *run->engine ? run->engine : "unknown");
}

static kvs_status compare_aligned(struct pair *p, kvs_error *err) {
  struct comparison *c = p->c;
  const struct look_step *step = look_step(p->look, p->a->run, 0);
  struct alignment alignment;
  size_t heads = (size_t)p->a->n_layer * (size_t)p->a->n_head;
  c->prompt_steps = step ? step->prompt_steps : 0;
  c->head_distance = calloc(heads, sizeof *c->head_distance);
  p->head_count = calloc(heads, sizeof *p->head_count);
  if (!c->head_distance || !p->head_count) return kvs_fail_memory(err, "comparing two runs");
  kvs_status status = align_runs(p->look, p->a->run, p->b->run, &alignment, err);
  if (status != KVS_OK) return status;
  status = compare_steps(p, &alignment, err);
  if (status == KVS_OK) status = keep_texts(p, &alignment, err);
  if (status == KVS_OK) {
    int missing = p->a->steps - alignment.steps_a;
    c->ended_b = missing > 0 && alignment.parted_b == LOOK_NONE;
    compare_sum_up(c, p->head_count);
  }
  alignment_free(&alignment);
  return status;
}

kvs_status compare_runs(struct look *look, int run_a, int run_b, struct comparison *out, kvs_error *err) {
  *out = (struct comparison){.run_a = run_a, .run_b = run_b, .same = true, .blind = true, .parted = LOOK_NONE};
  int runs[] = {run_a, run_b};
  struct pair p = {.look = look, .c = out};
  for (int i = 0; i < 2; i++)
    if (!look_run(look, runs[i])) {
      kvs_status status = told(look, err);
      return status != KVS_OK
                 ? status
                 : kvs_fail(err, KVS_ERR_USAGE, "there is no run %d in this trace; `kvstep info` lists them", runs[i]);
    }
  /* Copies: what look gives out may be dropped while steps are read. */
  const struct look_run a = *look_run(look, run_a), b = *look_run(look, run_b);
  p.a = &a, p.b = &b;
  kvs_status status = check_shapes(&a, &b, err);
  if (status == KVS_OK) status = check_steps(&a, err);
  if (status == KVS_OK) status = check_steps(&b, err);
  if (status != KVS_OK) return status;
  out->n_layer = a.n_layer, out->n_head = a.n_head;
  name_run(&a, out->name_a, sizeof out->name_a);
  name_run(&b, out->name_b, sizeof out->name_b);
  status = compare_aligned(&p, err);
  free(p.head_count);
  return status;
}

/* ---- which pairs -------------------------------------------------------------------------------------------------- */

/* A trace of anybody's may have any number of runs: its first ones are enough. */
#define FIRST_RUNS "(SELECT run, prompt, fault FROM main.run ORDER BY run LIMIT 1000) AS r"
#define HAS_STEPS "EXISTS (SELECT 1 FROM main.step AS s WHERE s.run = r.run)"

/* ?1: whether run_a must be without a fault. */
static int ask_pairs(struct look *look, int correct, struct compare_pair *pairs, int most) {
  static const char sql[] =
      "WITH few AS (SELECT * FROM " FIRST_RUNS " WHERE " HAS_STEPS ")"
      " SELECT a, b FROM (SELECT (SELECT min(a.run) FROM few AS a WHERE a.prompt IS b.prompt AND (a.fault IS 'none' OR"
      " NOT ?1)) AS a, b.run AS b FROM few AS b) WHERE a <> b ORDER BY b";
  sqlite3_stmt *statement = NULL;
  int count = 0;
  if (query_prepare(look_db(look), sql, &correct, 1, &statement, NULL) != KVS_OK) return 0;
  while (count < most && sqlite3_step(statement) == SQLITE_ROW)
    pairs[count++] = (struct compare_pair){column_int(statement, 0, 0), column_int(statement, 1, 0)};
  sqlite3_finalize(statement);
  return count;
}

int compare_pairs(struct look *look, struct compare_pair *pairs, int most) {
  int count = ask_pairs(look, 1, pairs, most);
  return count ? count : ask_pairs(look, 0, pairs, most);
}

int compare_count_empty(struct look *look, long long *first) {
  static const char sql[] = "SELECT count(*), min(run) FROM " FIRST_RUNS " WHERE NOT " HAS_STEPS;
  sqlite3_stmt *statement = NULL;
  int count = 0;
  if (query_prepare(look_db(look), sql, NULL, 0, &statement, NULL) != KVS_OK) return 0;
  if (sqlite3_step(statement) == SQLITE_ROW)
    count = column_int(statement, 0, 0), *first = sqlite3_column_int64(statement, 1);
  sqlite3_finalize(statement);
  return count;
}
