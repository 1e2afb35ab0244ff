/* names.h: which array is what: the names under which engines commonly dump things. docs/recording.md has the same table. */
#ifndef KVS_IMPORT_NAMES_H
#define KVS_IMPORT_NAMES_H

#include "import/array.h"

enum quantity {
  Q_TOKENS,
  Q_POSITIONS,
  Q_LENGTHS,
  Q_K,
  Q_V,
  Q_KV,
  Q_Q,
  Q_OUT,
  Q_SCORES,
  Q_WEIGHTS,
  Q_WTE,
  Q_WPE,
  Q_X,
  Q_LOGITS,
  Q_HIDDEN,
  Q_X_IN,
  Q_ATTN_OUT,
  Q_X_MID,
  Q_MLP_OUT,
  Q_X_OUT,
  Q_PROMPT_LENGTH,
  Q_N_HEAD,
  Q_N_CTX,
  Q_N_VOCAB,
  Q_COUNT /* none of these */
};

/* The name of a quantity in the documentation and in messages. */
const char *quantity_name(enum quantity quantity);

/* What an array's name says: `past_key_values.3.key` is K with the number 3. */
struct meaning {
  enum quantity quantity;
  int numbers;   /* how many of them are set */
  int number[2]; /* in the order in which they stand in the name */
};
struct meaning name_meaning(const char *name);

#endif
