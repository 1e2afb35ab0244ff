/* model_files.h: what `run`, `verify` and `compare` share: the model with its tokenizer, the prompt, the fault. */
#ifndef KVS_CLI_MODEL_FILES_H
#define KVS_CLI_MODEL_FILES_H

#include <stddef.h>

#include "cli/options.h"
#include "kvstep/kvstep.h"

/* Where the prompt comes from, as given on the command line; `dash`: the word `-` stood there. */
struct prompt_source {
  const char *text, *file;
  bool dash;
  bool special; /* <|endoftext|> in it is the token, not its letters */
};

/* Rows of an option table: where a model and a prompt come from. The command's `struct values` has `const char *model` and
 * `struct prompt_source prompt`. */
#define MODEL_AND_PROMPT_OPTIONS                                                                                       \
  {.name = "model",                                                                                                    \
   .letter = 'm',                                                                                                      \
   .kind = OPTION_STRING,                                                                                              \
   .argument = "MODEL",                                                                                                \
   .offset = offsetof(struct values, model),                                                                           \
   .completion = "model",                                                                                              \
   .help = "a directory or a built-in model's name (default: austen)"},                                                \
      {.name = "prompt",                                                                                               \
       .letter = 'p',                                                                                                  \
       .kind = OPTION_STRING,                                                                                          \
       .argument = "TEXT",                                                                                             \
       .offset = offsetof(struct values, prompt.text),                                                                 \
       .help = "the prompt (default: the built-in model's own)"},                                                      \
      {.name = "file",                                                                                                 \
       .letter = 'f',                                                                                                  \
       .kind = OPTION_STRING,                                                                                          \
       .argument = "FILE",                                                                                             \
       .offset = offsetof(struct values, prompt.file),                                                                 \
       .completion = "file",                                                                                           \
       .help = "read the prompt from a file; - is standard input"},                                                    \
  {                                                                                                                    \
    .name = "special", .kind = OPTION_FLAG, .offset = offsetof(struct values, prompt.special),                         \
    .help = "in the prompt, <|endoftext|> and its like are the special tokens, not text"                               \
  }

/* Another: with how many threads. The command's `struct values` has `int threads`, 0 for the default. */
#define THREADS_OPTION                                                                                                 \
  {                                                                                                                    \
    .name = "threads", .kind = OPTION_INT, .argument = "N", .offset = offsetof(struct values, threads), .minimum = 1,  \
    .maximum = 256, .help = "threads to compute with (default: the physical cores)"                                    \
  }

/* And of the positionals: the prompt's other place. */
#define PROMPT_FROM_STDIN                                                                                              \
  { .name = "-", .help = "read the prompt from standard input", .optional = true }

/* A model that is ready to decode a prompt. Zero it first; free it with session_free, also after a failure. */
struct session {
  kvs_model *model;
  kvs_tokenizer *tokenizer;
  char *prompt; /* prompt_length bytes and a NUL */
  size_t prompt_length;
  int *tokens;
  size_t token_count; /* 1 … n_ctx */
};

/* Reads the prompt, opens the model and encodes the one with the other. Returns -1, or the exit code after a message. */
int session_open(struct session *session, const struct command *command, const char *model,
                 const struct prompt_source *source);
void session_free(struct session *session);

/* A file's text as tokens of the session's model, as many as there are; the caller frees *tokens. Returns -1, or the exit code after a
 * message. */
int session_text(const struct session *session, const char *path, int **tokens, int *count);

/* Where a fault is injected from: `from` as given on the command line, or its usual start where that is negative; and the prompt
 * made as long as the fault needs it, by repeating it. Returns -1, or the exit code after a message. */
int session_fault(struct session *session, const struct command *command, const kvs_fault *fault, int *from);

/* The fault of that name; NULL for "none" and for no name. Returns -1, or the exit code after a message. */
int find_fault(const struct command *command, const char *name, const kvs_fault **fault);

#endif
