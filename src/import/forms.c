/* forms.c: arrays sorted by their names, and their shapes compared with what they may be. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "import/plan.h"

void plan_note(struct plan *plan, const char *format, ...) {
  char text[600];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  plan->note(plan->context, text);
}

/* ---- names ---- */

/* The name that --map gives to this array, or its own. */
static kvs_status mapped_name(const char *map, const struct array *array, char *name, size_t size, bool *found,
                              kvs_error *err) {
  snprintf(name, size, "%s", array->name);
  for (const char *at = map; at && *at;) {
    size_t length = strcspn(at, ",");
    const char *equals = memchr(at, '=', length);
    if (!equals || equals == at || equals + 1 == at + length)
      return kvs_fail(err, KVS_ERR_USAGE, "--map takes NAME=ARRAY, more of them with commas between; `%.*s` is none",
                      (int)(length < 200 ? length : 200), at);
    size_t old = (size_t)(at + length - equals - 1);
    if (strlen(array->name) == old && memcmp(equals + 1, array->name, old) == 0) {
      snprintf(name, size, "%.*s", (int)(equals - at), at);
      *found = true;
    }
    at += length + (at[length] == ',');
  }
  return KVS_OK;
}

/* Is each array that the map names there? */
static kvs_status check_map(const struct plan *plan, const char *map, kvs_error *err) {
  for (const char *at = map; at && *at;) {
    size_t length = strcspn(at, ",");
    const char *equals = memchr(at, '=', length);
    size_t old = (size_t)(at + length - equals - 1);
    bool there = false;
    for (size_t i = 0; i < plan->arrays.count && !there; i++)
      there = strlen(plan->arrays.at[i].name) == old && memcmp(plan->arrays.at[i].name, equals + 1, old) == 0;
    if (!there)
      return kvs_fail(err, KVS_ERR_USAGE, "--map: there is no array `%.*s` in the files", (int)(old < 200 ? old : 200),
                      equals + 1);
    at += length + (at[length] == ',');
  }
  return KVS_OK;
}

static bool same_meaning(const struct meaning *a, const struct meaning *b) {
  if (a->quantity != b->quantity || a->numbers != b->numbers) return false;
  for (int i = 0; i < a->numbers; i++)
    if (a->number[i] != b->number[i]) return false;
  return true;
}

static int compare_pieces(const void *a, const void *b) {
  const struct meaning *x = &((const struct piece *)a)->meaning, *y = &((const struct piece *)b)->meaning;
  if (x->quantity != y->quantity) return x->quantity < y->quantity ? -1 : 1;
  for (int i = 0; i < 2; i++)
    if (x->number[i] != y->number[i]) return x->number[i] < y->number[i] ? -1 : 1;
  return x->numbers - y->numbers;
}

kvs_status plan_sort(struct plan *plan, const char *map, kvs_error *err) {
  kvs_status status = KVS_OK;
  enum { SHOWN = 8 };
  size_t unknown = 0;
  plan->pieces = calloc(plan->arrays.count + 1, sizeof *plan->pieces);
  if (!plan->pieces) return kvs_fail_memory(err, "importing");
  for (size_t i = 0; i < plan->arrays.count; i++) {
    struct array *array = &plan->arrays.at[i];
    char name[ARRAY_MOST_NAME + 1];
    bool mapped = false;
    status = mapped_name(map, array, name, sizeof name, &mapped, err);
    if (status != KVS_OK) return status;
    struct meaning meaning = name_meaning(name);
    if (meaning.quantity != Q_COUNT)
      plan->pieces[plan->piece_count++] = (struct piece){array, meaning};
    else if (mapped)
      return kvs_fail(err, KVS_ERR_USAGE, "--map: `%s` is no name that is known; docs/recording.md lists them", name);
    else if (unknown++ < SHOWN)
      plan_note(plan, "%s: array `%s` %s is left out: its name says nothing to kvstep; --map NAME=%s gives it one",
                array->file, array->name, array_shape_text(array), array->name);
  }
  if (unknown > SHOWN) plan_note(plan, "… and %zu more are left out", unknown - SHOWN);
  status = check_map(plan, map, err);
  qsort(plan->pieces, plan->piece_count, sizeof *plan->pieces, compare_pieces);
  for (size_t i = 0; status == KVS_OK && i < plan->piece_count; i++) {
    struct piece *p = &plan->pieces[i];
    if (i > 0 && same_meaning(&p[-1].meaning, &p->meaning))
      return kvs_fail(err, KVS_ERR_INPUT, "%s: array `%s`, and %s: array `%s` are both %s; leave one out, or --map it",
                      p[-1].array->file, p[-1].array->name, p->array->file, p->array->name,
                      quantity_name(p->meaning.quantity));
    bool list = p->meaning.quantity <= Q_LENGTHS || p->meaning.quantity >= Q_PROMPT_LENGTH;
    int64_t count = array_elements(p->array);
    if (list && (count < 0 || count > PLAN_MOST))
      return kvs_fail(err, KVS_ERR_INPUT, "%s: array `%s` has shape %s; more than %d of these cannot be",
                      p->array->file, p->array->name, array_shape_text(p->array), PLAN_MOST);
    if (list) status = array_need(&plan->arrays, p->array, err);
  }
  return status;
}

/* ---- shapes ---- */

static const char *dimension_name(char letter) {
  switch (letter) {
  case 'L':
    return "n_layer";
  case 'M':
    return "n_layer + 1";
  case 'H':
    return "n_head";
  case 'E':
    return "n_embd";
  case 'D':
    return "head_dim";
  case 'V':
    return "n_vocab";
  case 'R':
    return "rows";
  case 'N':
    return "tokens";
  case 'Q':
    return "queries";
  case 'W':
    return "rows";
  default:
    return letter == 'B' ? "1" : "2";
  }
}

/* From two of n_head, head_dim and n_embd the third. False: they contradict. */
static bool complete(int64_t *dim) {
  if (dim['H'] && dim['E'] && !dim['D'] && dim['E'] % dim['H'] == 0) dim['D'] = dim['E'] / dim['H'];
  if (dim['H'] && dim['D'] && !dim['E'] && __builtin_mul_overflow(dim['H'], dim['D'], &dim['E'])) return false;
  if (dim['D'] && dim['E'] && !dim['H'] && dim['E'] % dim['D'] == 0) dim['H'] = dim['E'] / dim['D'];
  return !dim['H'] || !dim['E'] || (dim['D'] && dim['H'] * dim['D'] == dim['E']);
}

static bool fits(struct plan *plan, const struct array *array, const char *form, size_t length) {
  int64_t dim[128];
  if ((size_t)array->dimensions != length) return false;
  memcpy(dim, plan->dim, sizeof dim);
  for (size_t i = 0; i < length; i++) {
    int64_t n = array->shape[i];
    char c = form[i];
    if (n < 1 || n > PLAN_MOST) return false;
    if (c == 'M' && dim['L'] && n != dim['L'] + 1) return false;
    if ((c == 'B' && n != 1) || (c == '2' && n != 2)) return false;
    if (strchr("BMQW2", c)) continue;
    if (dim[(int)c] && dim[(int)c] != n) return false;
    dim[(int)c] = n;
  }
  if (!complete(dim)) return false;
  memcpy(plan->dim, dim, sizeof dim);
  return true;
}

/* "[n_layer, rows, n_embd] or [...]", and what of it is known. */
static void describe(const struct plan *plan, const char *forms, char *text, size_t size) {
  size_t at = 0;
#define ADD(...)                                                                                                       \
  at += (size_t)snprintf(text + at, at < size ? size - at : 0, __VA_ARGS__), at = at < size ? at : size - 1
  for (const char *c = forms; *c; c++) {
    if (c == forms || c[-1] == ' ') ADD("%s[", c == forms ? "" : " or ");
    if (*c != ' ') ADD("%s%s", dimension_name(*c), c[1] && c[1] != ' ' ? ", " : "]");
  }
  bool first = true;
  for (const char *c = "LHEDVRN"; *c; c++)
    if (plan->dim[(int)*c] && strchr(forms, *c)) {
      ADD("%s%s %lld", first ? ", with " : ", ", dimension_name(*c), (long long)plan->dim[(int)*c]);
      first = false;
    }
#undef ADD
}

kvs_status plan_match(struct plan *plan, const struct array *array, const char *forms, const char **form,
                      kvs_error *err) {
  for (const char *at = forms; *at;) {
    size_t length = strcspn(at, " ");
    *form = at;
    if (fits(plan, array, at, length)) return KVS_OK;
    at += length + (at[length] == ' ');
  }
  char text[500];
  describe(plan, forms, text, sizeof text);
  return kvs_fail(err, KVS_ERR_INPUT, "%s: array `%s` has shape %s; it can be %s", array->file, array->name,
                  array_shape_text(array), text);
}

static int place(const char *form, char letter) {
  for (int i = 0; form[i] && form[i] != ' '; i++)
    if (form[i] == letter) return i;
  return -1;
}

int64_t plan_stride(const struct array *array, const char *form, char letter) {
  int i = place(form, letter);
  return i < 0 ? 0 : array->stride[i];
}

int64_t plan_size(const struct array *array, const char *form, char letter) {
  int i = place(form, letter);
  return i < 0 ? 1 : array->shape[i];
}
