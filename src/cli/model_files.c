/* model_files.c: opening a model with its tokenizer, and turning the prompt into tokens. */
#include "cli/model_files.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plural.h"
#include "cli/out.h"

/* More than any context holds, and little enough to read at once. */
#define PROMPT_LIMIT ((size_t)64 << 20)

static kvs_status read_stream(FILE *file, const char *name, char **text, size_t *length, kvs_error *err) {
  size_t room = 1 << 16, used = 0;
  char *buffer = malloc(room);
  while (buffer) {
    used += fread(buffer + used, 1, room - used - 1, file);
    if (used < room - 1) break;
    if (room > PROMPT_LIMIT) {
      free(buffer);
      return kvs_fail(err, KVS_ERR_INPUT, "%s: longer than %zu MB; that is no prompt", name, PROMPT_LIMIT >> 20);
    }
    char *larger = realloc(buffer, room *= 2);
    if (!larger) free(buffer);
    buffer = larger;
  }
  if (!buffer) return kvs_fail_memory(err, "reading the prompt");
  if (ferror(file)) {
    int errnum = errno;
    free(buffer);
    return kvs_fail(err, KVS_ERR_IO, "%s: cannot be read: %s", name, strerror(errnum));
  }
  buffer[used] = '\0';
  *text = buffer;
  *length = used;
  return KVS_OK;
}

static kvs_status read_file(const char *path, char **text, size_t *length, kvs_error *err) {
  FILE *file = fopen(path, "rb");
  if (!file) return kvs_fail(err, KVS_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
  kvs_status status = read_stream(file, path, text, length, err);
  fclose(file);
  return status;
}

static const kvs_builtin *builtin_named(const char *name) {
  for (int i = 0; kvs_builtin_at(i); i++)
    if (strcmp(kvs_builtin_at(i)->name, name) == 0) return kvs_builtin_at(i);
  return NULL;
}

/* Reads the prompt from where it comes; a built-in model has one of its own. */
static int read_prompt(struct session *s, const struct command *command, const char *model,
                       const struct prompt_source *source) {
  kvs_error err;
  kvs_status status = KVS_OK;
  if (!!source->text + !!source->file + source->dash > 1)
    return usage_error(command, "-p, -f and - exclude each other: give one prompt");
  const kvs_builtin *builtin = builtin_named(model);
  if (source->file && strcmp(source->file, "-") != 0) {
    status = read_file(source->file, &s->prompt, &s->prompt_length, &err);
  } else if (source->dash || source->file) {
    status = read_stream(stdin, "standard input", &s->prompt, &s->prompt_length, &err);
  } else {
    if (!source->text && !builtin)
      return usage_error(command, "%s has no prompt of its own: give one with -p TEXT, -f FILE or -", model);
    s->prompt = strdup(source->text ? source->text : builtin->prompt);
    if (!s->prompt) status = kvs_fail_memory(&err, "reading the prompt");
    s->prompt_length = s->prompt ? strlen(s->prompt) : 0;
  }
  if (status != KVS_OK) return report(&err);
  if (s->prompt_length) return -1;
  return report(&(kvs_error){KVS_ERR_INPUT, "the prompt is empty: the first step needs a token to feed; "
                                            "give at least one character with -p, -f or -"});
}

static kvs_status open_model(struct session *s, const char *name, kvs_error *err) {
  kvs_status status = kvs_model_open(name, &s->model, err);
  if (status == KVS_OK) status = kvs_tokenizer_open(name, &s->tokenizer, err);
  if (status == KVS_OK) status = kvs_tokenizer_fits(s->tokenizer, s->model, err);
  return status;
}

static kvs_status encode_prompt(struct session *s, bool special, kvs_error *err) {
  kvs_status status =
      kvs_tokenizer_encode(s->tokenizer, s->prompt, s->prompt_length, special, &s->tokens, &s->token_count, err);
  if (status != KVS_OK) return status;
  size_t n_ctx = (size_t)kvs_model_config(s->model)->n_ctx;
  if (s->token_count <= n_ctx) return KVS_OK;
  size_t excess = s->token_count - n_ctx;
  return kvs_fail(err, KVS_ERR_INPUT,
                  "the prompt is %zu token%s too long: it has %zu, and the context of %s holds %zu; shorten it", excess,
                  plural((long long)excess), s->token_count, kvs_model_name(s->model), n_ctx);
}

int session_open(struct session *s, const struct command *command, const char *model,
                 const struct prompt_source *source) {
  kvs_error err;
  int code = read_prompt(s, command, model, source);
  if (code >= 0) return code;
  if (open_model(s, model, &err) != KVS_OK) return report(&err);
  for (int i = 0; kvs_model_warning(s->model, i); i++)
    fprintf(stderr, "kvstep: warning: %s\n", kvs_model_warning(s->model, i));
  return encode_prompt(s, source->special, &err) == KVS_OK ? -1 : report(&err);
}

int session_text(const struct session *s, const char *path, int **tokens, int *count) {
  kvs_error err;
  char *text = NULL;
  size_t length = 0, found = 0;
  kvs_status status = read_file(path, &text, &length, &err);
  if (status == KVS_OK) status = kvs_tokenizer_encode(s->tokenizer, text, length, false, tokens, &found, &err);
  free(text);
  if (status == KVS_OK && (found < 2 || found > INT_MAX / 2))
    status =
        kvs_fail(&err, KVS_ERR_INPUT, "%s: %zu token%s no text to measure", path, found, found == 1 ? " is" : "s are");
  *count = (int)found;
  return status == KVS_OK ? -1 : report(&err);
}

/* The prompt's text again from its tokens' bytes, after the tokens were repeated. */
static kvs_status respell_prompt(struct session *s, kvs_error *err) {
  size_t length = 0, bytes;
  for (size_t i = 0; i < s->token_count; i++)
    if (kvs_tokenizer_bytes(s->tokenizer, s->tokens[i], &bytes)) length += bytes;
  char *prompt = malloc(length + 1);
  if (!prompt) return kvs_fail_memory(err, "repeating the prompt");
  size_t used = 0;
  for (size_t i = 0; i < s->token_count; i++) {
    const unsigned char *token = kvs_tokenizer_bytes(s->tokenizer, s->tokens[i], &bytes);
    if (token) memcpy(prompt + used, token, bytes);
    used += token ? bytes : 0;
  }
  prompt[used] = '\0';
  free(s->prompt);
  s->prompt = prompt;
  s->prompt_length = used;
  return KVS_OK;
}

int session_fault(struct session *s, const struct command *command, const kvs_fault *fault, int *from) {
  kvs_error err;
  if (fault && fault->from_start && fault->before && *from > 0)
    return usage_error(command, "--fault-from %d: %s happens before the first step; leave --fault-from out", *from,
                       fault->name);
  size_t length = (size_t)kvs_fault_prompt_length(fault, kvs_model_config(s->model), (int)s->token_count);
  if (length > s->token_count) {
    int *tokens = realloc(s->tokens, length * sizeof *tokens);
    if (!tokens) return report(&(kvs_error){KVS_ERR_MEMORY, "out of memory while repeating the prompt"});
    for (size_t i = s->token_count; i < length; i++) tokens[i] = tokens[i - s->token_count];
    s->tokens = tokens;
    s->token_count = length;
    if (respell_prompt(s, &err) != KVS_OK) return report(&err);
  }
  if (*from < 0) *from = kvs_fault_usual_start(fault, (int)s->token_count);
  return -1;
}

void session_free(struct session *s) {
  free(s->tokens);
  free(s->prompt);
  kvs_tokenizer_free(s->tokenizer);
  kvs_model_free(s->model);
  *s = (struct session){0};
}

static const char *fault_name_at(const void *table, int i) {
  (void)table;
  return kvs_fault_at(i) ? kvs_fault_at(i)->name : NULL;
}

int find_fault(const struct command *command, const char *name, const kvs_fault **fault) {
  *fault = NULL;
  if (!name || strcmp(name, "none") == 0) return -1;
  *fault = kvs_fault_find(name);
  if (*fault) return -1;
  const char *nearest = nearest_name(name, fault_name_at, NULL);
  if (nearest) return usage_error(command, "unknown fault `%s`; did you mean `%s`?", name, nearest);
  return usage_error(command, "unknown fault `%s`; `kvstep faults` lists them", name);
}
