/* plan.h: what an import is going to write: which array has what, and where in it the numbers of a step lie. */
#ifndef KVS_IMPORT_PLAN_H
#define KVS_IMPORT_PLAN_H

#include "import/array.h"
#include "import/import.h"
#include "import/names.h"
#include "kvstep/tokenizer.h"

/* No dimension, token, row or position may be more: what a number makes kvstep write must be in proportion to the file. */
#define PLAN_MOST (1 << 20)

/* The vectors of one quantity in one layer: number i of step s is at offset + s·step + (i / part)·head + (i mod part)·dim. */
struct vectors {
  const struct array *array; /* NULL: not there */
  int64_t offset, step, head, dim, part;
};

/* The scores or weights of one call in one layer: queries first … first + queries - 1. */
struct attention {
  const struct array *array;
  int layer, first, queries, width;
  int64_t offset, head, query, row;
};

struct plan {
  struct arrays arrays;
  struct piece { /* an array that means something */
    struct array *array;
    struct meaning meaning;
  } * pieces;
  size_t piece_count;
  int64_t dim
      [128]; /* by letter, 0: not known yet. L n_layer, H n_head, E n_embd, D head_dim, V n_vocab, R rows, N tokens */
  kvs_config config;
  int steps, prompt_length;
  int *tokens, *positions, *lengths; /* [tokens]; the last two NULL if they are not there */
  struct vectors *vectors[Q_COUNT];  /* [n_layer], hidden states [n_layer + 1], others [1]; NULL: not there */
  const struct array_words *words; /* the tokens' texts, where that is all there is; id i is the first with that text */
  int vocabulary;                  /* ids of the tokenizer; 0: none */
  int logits_first, logits_rows;   /* which steps have logits */
  struct attention *attention[2];  /* scores, weights */
  size_t attention_count[2];
  const struct attention **attended[2]; /* [n_layer][steps] */
  import_note *note;
  void *context;
};

/* So many tokens, less one, may be given as texts. */
#define PLAN_WORDS (1 << 14)

/* Tokens that are texts become an array `tokens` of ids, if there is none. `tokenizer` may be NULL. Before plan_sort. */
kvs_status plan_words(struct plan *plan, const kvs_tokenizer *tokenizer, kvs_error *err);
/* The bytes of a token that is known by its text alone; NULL: it is the same as an earlier one. */
const unsigned char *plan_word(const void *plan, int token, size_t *length);

/* Sorts the arrays by what they mean, and unpacks lists of whole numbers; what is larger only when its shape has been found right.
 * `map` as in import_options. */
kvs_status plan_sort(struct plan *plan, const char *map, kvs_error *err);

/* Does the array have one of the forms (letters for its dimensions, blanks between forms)? Then what was not known of plan->dim is, and
 * *form is that one; else KVS_ERR_INPUT in words. B is 1, 2 the pair of K and V, Q and W free; M is L + 1. */
kvs_status plan_match(struct plan *plan, const struct array *array, const char *forms, const char **form,
                      kvs_error *err);
/* The stride of a letter in that form; 0 if the form has none. */
int64_t plan_stride(const struct array *array, const char *form, char letter);
int64_t plan_size(const struct array *array, const char *form, char letter);

/* Works out shape, steps, and where everything lies. config has what a model said, or zeros. */
kvs_status plan_make(struct plan *plan, const import_options *options, kvs_error *err);
/* The parts of it in plan_tables.c. */
kvs_status plan_vectors(struct plan *plan, kvs_error *err);
kvs_status plan_attention(struct plan *plan, kvs_error *err);
void plan_free(struct plan *plan);

void plan_note(struct plan *plan, const char *format, ...) KVS_PRINTF(2, 3);

/* Writes the run. */
kvs_status plan_write(const struct plan *plan, kvs_trace *trace, kvs_error *err);

#endif
