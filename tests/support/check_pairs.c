/* check_pairs.c: what check says of runs with two faults at once. */
#include "tests/support/check_pairs.h"

#include <string.h>

static bool has_kind(const struct finding *f, const char *name) {
  for (int k = 0; k < f->kind_count; k++)
    if (strcmp(f->kinds[k], name) == 0) return true;
  return false;
}

static bool names(const struct check_report *report, const char *name) {
  for (size_t f = 0; f < report->count; f++)
    if (has_kind(&report->findings[f], name)) return true;
  return false;
}

static void tell(const struct matrix_run *r, const struct matrix_options *o, const struct pair_line *line,
                 const bool *did, const struct check_report *report) {
  if (!o->details) return;
  fprintf(o->details, "%s%s + %s%s, %s, prompt %d (%d tokens), %s weights:", line->names[0], did[0] ? "" : " (unseen)",
          line->names[1], did[1] ? "" : " (unseen)", r->m->name, r->prompt, r->m->length[r->prompt],
          o->weights ? "with" : "no");
  for (size_t f = 0; f < report->count; f++) {
    for (int k = 0; k < report->findings[f].kind_count; k++)
      fprintf(o->details, "%s%s", k ? "|" : " [", report->findings[f].kinds[k]);
    fprintf(o->details, "] %s", report->findings[f].sentence);
  }
  fprintf(o->details, "%s\n", report->count ? "" : check_verdict_name(report->verdict));
}

static void judge(const struct matrix_run *r, const struct matrix_options *o, const bool *did,
                  const struct check_report *report, struct pair_line *line) {
  bool missing = false, extra = false;
  for (int p = 0; p < 2; p++) missing = missing || (did[p] && !names(report, line->names[p]));
  for (size_t f = 0; f < report->count; f++)
    extra =
        extra || !(has_kind(&report->findings[f], line->names[0]) || has_kind(&report->findings[f], line->names[1]));
  line->runs++;
  line->right += !missing && !extra;
  line->missing += missing;
  line->extra += extra;
  if (missing || extra) tell(r, o, line, did, report);
}

static bool trace_pair(struct matrix_run *r, const kvs_fault *a, int from_a, const kvs_fault *b, int from_b,
                       bool fills_context, const char *path) {
  kvs_fault both = *matrix_both(a, from_a, b, from_b);
  both.fills_context = fills_context; /* the same prompt, whichever is left out */
  r->fault = &both;
  bool fits = matrix_trace(r, path);
  r->fault = NULL;
  return fits;
}

void pairs_of(const struct matrix_model *m, const kvs_fault *a, const kvs_fault *b, const struct matrix_options *o,
              struct pair_line *line) {
  bool full = a->fills_context || b->fills_context;
  line->names[0] = a->name, line->names[1] = b->name;
  for (int p = 0; p < m->prompts; p++) {
    struct matrix_run r = {.m = m, .prompt = p, .generate = o->generate};
    int tokens =
        kvs_fault_prompt_length(full ? (a->fills_context ? a : b) : NULL, kvs_model_config(m->model), m->length[p]);
    int from_a = kvs_fault_usual_start(a, tokens), from_b = kvs_fault_usual_start(b, tokens);
    const char *path = matrix_file("a.db"), *without = matrix_file("b.db");
    bool did[2];
    if (!trace_pair(&r, a, from_a, b, from_b, full, path)) continue;
    trace_pair(&r, NULL, 0, b, from_b, full, without);
    did[0] = !matrix_same(path, without);
    trace_pair(&r, a, from_a, NULL, 0, full, without);
    did[1] = !matrix_same(path, without);
    matrix_blind(path, o->sight);
    struct check_report report = matrix_look(path, o->weights ? m->model : NULL);
    judge(&r, o, did, &report, line);
    check_report_free(&report);
  }
  matrix_clear();
}
