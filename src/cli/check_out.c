/* check_out.c: what `kvstep check` found, as a text, as CSV and as JSON. */
#include "cli/check_out.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/plural.h"
#include "cli/help.h"
#include "cli/out.h"
#include "kvstep/kvstep.h"

/* ---- tables ---- */

static const char *verdict_words(const struct check_report *r) {
  if (r->verdict == CHECK_CLEAN) return "CLEAN";
  return r->verdict == CHECK_FAULT ? "FAULT" : "CANNOT TELL";
}

/* "off-by-one or position-jump". */
static const char *join(const char *const *words, int count, const char *between, char *text, size_t size) {
  size_t used = 0;
  text[0] = '\0';
  for (int i = 0; i < count && used < size; i++)
    used += (size_t)snprintf(text + used, size - used, "%s%s", i ? between : "", words[i]);
  return text;
}

static const char *kinds_text(const struct finding *f, const char *between, char *text, size_t size) {
  return join(f->kinds, f->kind_count, between, text, size);
}

static const char *rules_text(const struct finding *f, const char *between, char *text, size_t size) {
  return join(f->rules, f->rule_count, between, text, size);
}

static void put_indented(const char *text, int indent) {
  printf("%*s", indent, "");
  put_wrapped(text, indent, indent);
}

static void put_finding(const struct finding *f, const char *path, struct style style) {
  char kinds[200], rules[100], text[1400];
  printf("\n  %s%s%s  (%s)\n", color(style, INK_BAD), kinds_text(f, " or ", kinds, sizeof kinds),
         color(style, INK_PLAIN), rules_text(f, ", ", rules, sizeof rules));
  put_indented(f->sentence, 4);
  for (int k = 0; k < f->kind_count; k++) {
    const kvs_fault *fault = finding_fault(f, k);
    if (!fault) continue;
    if (f->kind_count > 1)
      printf("    look for the line, if it is %s\n", f->kinds[k]);
    else
      puts("    look for the line");
    snprintf(text, sizeof text, "wrong  %s", fault->wrong_line);
    put_indented(text, 6);
    snprintf(text, sizeof text, "right  %s", fault->right_line);
    put_indented(text, 6);
  }
  printf("    see it: kvstep sql ");
  put_shown(stdout, style, path);
  puts(" \\");
  snprintf(text, sizeof text, "\"%s\"", f->sql);
  put_indented(text, 6);
}

void check_put_table(const struct check_job *job) {
  struct style style = style_of_stdout(false);
  for (size_t i = 0; i < job->count; i++) {
    const struct check_report *r = &job->reports[i];
    if (i) putchar('\n');
    printf("%srun %d: %s%s  (", color(style, r->verdict == CHECK_CLEAN ? INK_GOOD : INK_BAD), r->run, verdict_words(r),
           color(style, INK_PLAIN));
    put_shown(stdout, style, *r->model ? r->model : "?");
    printf(", %d step%s, %s)\n", r->steps, plural(r->steps),
           r->weights ? "held against its weights" : "without weights");
    for (size_t f = 0; f < r->count; f++) put_finding(&r->findings[f], job->path, style);
    if (r->count) putchar('\n');
    for (size_t k = 0; k < r->remarks.count; k++) put_indented(r->remarks.at[k], 2);
  }
}

/* ---- CSV and JSON ---- */

static void put_field(const char *text, bool last) {
  putchar('"');
  for (const char *c = text; *c; c++) {
    if (*c == '"') putchar('"');
    putchar(*c);
  }
  fputs(last ? "\"\r\n" : "\",", stdout);
}

static void put_place(int place) {
  if (place >= 0) printf("%d", place);
  putchar(',');
}

void check_put_csv(const struct check_job *job) {
  fputs("run,verdict,kinds,rules,first_step,last_step,steps,layer,head,row,sentence,sql\r\n", stdout);
  for (size_t i = 0; i < job->count; i++) {
    const struct check_report *r = &job->reports[i];
    if (r->count == 0) printf("%d,%s,,,,,,,,,,\r\n", r->run, check_verdict_name(r->verdict));
    for (const struct finding *f = r->findings; f < r->findings + r->count; f++) {
      char kinds[200], rules[100];
      printf("%d,%s,%s,%s,%d,%d,%d,", r->run, check_verdict_name(r->verdict), kinds_text(f, "|", kinds, sizeof kinds),
             rules_text(f, "|", rules, sizeof rules), f->first_step, f->last_step, f->steps);
      put_place(f->layer), put_place(f->head), put_place(f->row);
      put_field(f->sentence, false);
      put_field(f->sql, true);
    }
  }
}

/* JSON is UTF-8; what is not, of a trace's texts, is made visible. */
static json_t *text_of(const char *text) {
  char shown[1024];
  json_t *value = json_string(text);
  if (value) return value;
  kvs_token_text((const unsigned char *)text, strlen(text), shown, sizeof shown);
  return json_string(shown);
}

static json_t *place_of(int place) { return place < 0 ? json_null() : json_integer(place); }

static json_t *finding_json(const struct finding *f) {
  json_t *kinds = json_array(), *rules = json_array(), *lines = json_array();
  for (int k = 0; k < f->kind_count; k++) {
    const kvs_fault *fault = finding_fault(f, k);
    json_array_append_new(kinds, json_string(f->kinds[k]));
    if (fault)
      json_array_append_new(lines, json_pack("{s:s, s:s, s:s}", "kind", f->kinds[k], "right", fault->right_line,
                                             "wrong", fault->wrong_line));
  }
  for (int r = 0; r < f->rule_count; r++) json_array_append_new(rules, json_string(f->rules[r]));
  return json_pack("{s:o, s:o, s:o, s:i, s:i, s:i, s:b, s:o, s:o, s:o, s:o, s:o}", "kinds", kinds, "rules", rules,
                   "sentence", text_of(f->sentence), "first_step", f->first_step, "last_step", f->last_step, "steps",
                   f->steps, "to_end", (int)f->to_end, "layer", place_of(f->layer), "head", place_of(f->head), "row",
                   place_of(f->row), "sql", text_of(f->sql), "lines", lines);
}

kvs_status check_put_json(const struct check_job *job, int code, kvs_error *err) {
  json_t *runs = json_array();
  for (size_t i = 0; i < job->count; i++) {
    const struct check_report *r = &job->reports[i];
    json_t *findings = json_array(), *remarks = json_array();
    for (size_t f = 0; f < r->count; f++) json_array_append_new(findings, finding_json(&r->findings[f]));
    for (size_t k = 0; k < r->remarks.count; k++) json_array_append_new(remarks, text_of(r->remarks.at[k]));
    json_array_append_new(runs, json_pack("{s:i, s:o, s:i, s:b, s:s, s:o, s:o}", "run", r->run, "model",
                                          text_of(r->model), "steps", r->steps, "weights", (int)r->weights, "verdict",
                                          check_verdict_name(r->verdict), "findings", findings, "remarks", remarks));
  }
  json_t *all = json_pack("{s:o, s:i, s:o}", "trace", text_of(job->path), "exit", code, "runs", runs);
  char *text = all ? json_dumps(all, JSON_INDENT(2)) : NULL;
  json_decref(all);
  if (!text) return kvs_fail_memory(err, "writing JSON");
  puts(text);
  free(text);
  return KVS_OK;
}
