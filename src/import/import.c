/* import.c: from files to a run in a trace. */
#include "import/import.h"

#include <stdlib.h>
#include <string.h>

#include "import/plan.h"
#include "trace/store.h"

/* What --model and --tokenizer open. */
struct sources {
  kvs_model *model;
  kvs_tokenizer *tokenizer;
};

static kvs_status open_sources(const import_options *options, struct sources *s, struct plan *plan, kvs_error *err) {
  const char *vocabulary = options->vocabulary ? options->vocabulary : options->model;
  kvs_status status = options->model ? kvs_model_open(options->model, &s->model, err) : KVS_OK;
  if (status == KVS_OK && vocabulary) status = kvs_tokenizer_open(vocabulary, &s->tokenizer, err);
  if (status == KVS_OK && s->model && s->tokenizer) status = kvs_tokenizer_fits(s->tokenizer, s->model, err);
  if (status != KVS_OK) return status;
  if (s->model) plan->config = *kvs_model_config(s->model);
  if (s->tokenizer) plan->vocabulary = kvs_tokenizer_size(s->tokenizer);
  return KVS_OK;
}

static const unsigned char *bytes_of(const void *tokenizer, int token, size_t *length) {
  return kvs_tokenizer_bytes(tokenizer, token, length);
}

static const char *text_of(const struct plan *plan, const char *name) {
  for (size_t i = 0; i < plan->arrays.text_count; i++)
    if (strcmp(plan->arrays.texts[i].name, name) == 0) return plan->arrays.texts[i].text;
  return NULL;
}

static kvs_status begin(const struct plan *plan, const import_options *options, const struct sources *s,
                        kvs_trace *trace, int *run, kvs_error *err) {
  const char *prompt = text_of(plan, "prompt"), *engine = text_of(plan, "engine");
  const kvs_run_info info = {
      .command = options->command, .prompt = prompt, .prompt_length = prompt ? strlen(prompt) : 0};
  const kvs_log log = {.level = KVS_LOG_FULL, .last_step = -1};
  kvs_trace_source source = {.config = &plan->config,
                             .model = options->name ? options->name : text_of(plan, "model"),
                             .engine = engine ? engine : "imported",
                             .engine_version = text_of(plan, "engine_version")};
  if (s->tokenizer)
    source.tokens = kvs_tokenizer_size(s->tokenizer), source.bytes = bytes_of, source.context = s->tokenizer;
  if (plan->words)
    source.tokens = (int)plan->words->count, source.bytes = plan_word, source.context = (void *)(uintptr_t)plan;
  kvs_status status = KVS_OK;
  if (s->model) source.model = kvs_model_name(s->model), status = kvs_model_sha256(s->model, &source.sha256, err);
  trace->whole = true;
  return status == KVS_OK ? kvs_trace_begin_run_from(trace, &source, &info, &log, run, err) : status;
}

static kvs_status write_run(const struct plan *plan, const import_options *options, const struct sources *s,
                            const char *path, kvs_trace_open_mode mode, int *run, kvs_error *err) {
  kvs_trace *trace;
  kvs_error close_error;
  kvs_status status = kvs_trace_create(path, mode, &trace, err);
  if (status != KVS_OK) return status;
  status = begin(plan, options, s, trace, run, err);
  if (status == KVS_OK) status = plan_write(plan, trace, err);
  if (status == KVS_OK) status = kvs_trace_end_run(trace, err);
  kvs_status closed = kvs_trace_close(trace, status == KVS_OK ? err : &close_error);
  return status == KVS_OK ? closed : status;
}

kvs_status import_files(const char *const *paths, int count, const import_options *options, const char *trace,
                        kvs_trace_open_mode mode, import_note *note, void *context, import_result *result,
                        kvs_error *err) {
  struct plan plan = {.note = note, .context = context};
  struct sources sources = {0};
  kvs_status status = KVS_OK;
  for (int i = 0; status == KVS_OK && i < count; i++) status = arrays_read(&plan.arrays, paths[i], err);
  if (status == KVS_OK && plan.arrays.count == 0 && plan.arrays.word_count == 0)
    status = kvs_fail(err, KVS_ERR_INPUT, "%s: no arrays in it", paths[0]);
  if (status == KVS_OK) status = open_sources(options, &sources, &plan, err);
  if (status == KVS_OK) status = plan_words(&plan, sources.tokenizer, err);
  if (status == KVS_OK) status = plan_sort(&plan, options->map, err);
  if (status == KVS_OK) status = plan_make(&plan, options, err);
  if (status == KVS_OK) status = write_run(&plan, options, &sources, trace, mode, &result->run, err);
  result->steps = plan.steps;
  result->n_layer = plan.config.n_layer;
  plan_free(&plan);
  if (sources.tokenizer) kvs_tokenizer_free(sources.tokenizer);
  if (sources.model) kvs_model_free(sources.model);
  return status;
}
