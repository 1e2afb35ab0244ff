/* names.c: the table of names. */
#include "import/names.h"

#include <ctype.h>
#include <string.h>

/* Numbers are taken out of a name, and `.`, `/`, `[`, `]`, `-` count as `_`: `past_key_values.0.key` is `past_key_values_key`. */
static const struct {
  const char *name, *others; /* the others are separated by blanks */
} table[Q_COUNT] = {
    [Q_TOKENS] = {"tokens", "input_ids token_ids ids token sequences"},
    [Q_POSITIONS] = {"position_ids", "positions position pos"},
    [Q_LENGTHS] = {"cache_length_before", "cache_length cache_lengths past_length cache_position"},
    [Q_K] = {"k", "keys key key_cache past_keys past_key k_cache past_key_values_key past_key_values_keys layers_keys "
                  "present_key"},
    [Q_V] = {"v", "values value value_cache past_values past_value v_cache past_key_values_value "
                  "past_key_values_values layers_values "
                  "present_value"},
    [Q_KV] = {"past_key_values", "kv kv_cache past presents present"},
    [Q_Q] = {"q", "queries query"},
    [Q_OUT] = {"out", "head_out attn_heads context z"},
    [Q_SCORES] = {"scores", "attn_scores attention_scores"},
    [Q_WEIGHTS] = {"attentions",
                   "weights attention attn attention_attn all_attn attn_weights attention_weights attn_probs pattern"},
    [Q_WTE] = {"wte", "token_embedding token_embeddings"},
    [Q_WPE] = {"wpe", "position_embedding position_embeddings"},
    [Q_X] = {"x", "inputs_embeds embeddings"},
    [Q_LOGITS] = {"logits", "lm_logits"},
    [Q_HIDDEN] = {"hidden_states", "hidden"},
    [Q_X_IN] = {"x_in", "resid_pre"},
    [Q_ATTN_OUT] = {"attn_out", "attn_output"},
    [Q_X_MID] = {"x_mid", "resid_mid"},
    [Q_MLP_OUT] = {"mlp_out", "mlp_output"},
    [Q_X_OUT] = {"x_out", "resid_post"},
    [Q_PROMPT_LENGTH] = {"prompt_length", "prompt_len n_prompt"},
    [Q_N_HEAD] = {"n_head", "num_heads n_heads num_attention_heads"},
    [Q_N_CTX] = {"n_ctx", "n_positions block_size max_position_embeddings"},
    [Q_N_VOCAB] = {"n_vocab", "vocab_size"},
};

const char *quantity_name(enum quantity quantity) { return table[quantity].name; }

static bool listed(const char *list, const char *word) {
  size_t length = strlen(word);
  for (const char *at = list; (at = strstr(at, word)); at += length)
    if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) return true;
  return false;
}

struct meaning name_meaning(const char *name) {
  struct meaning meaning = {.quantity = Q_COUNT};
  char plain[ARRAY_MOST_NAME + 1];
  size_t n = 0;
  for (const char *c = name; *c && n < ARRAY_MOST_NAME;) {
    if (isdigit((unsigned char)*c)) {
      int number = 0;
      for (; isdigit((unsigned char)*c); c++)
        if (number < 1000000) number = 10 * number + (*c - '0');
      if (meaning.numbers == 2) return meaning; /* more than a call and a layer */
      meaning.number[meaning.numbers++] = number;
    } else {
      bool apart = strchr("./[]-_ ", *c) != NULL;
      if (!apart) plain[n++] = *c;
      if (apart && n > 0 && plain[n - 1] != '_') plain[n++] = '_';
      c++;
    }
  }
  while (n > 0 && plain[n - 1] == '_') n--;
  plain[n] = '\0';
  for (int q = 0; n > 0 && q < Q_COUNT; q++)
    if (strcmp(plain, table[q].name) == 0 || listed(table[q].others, plain)) meaning.quantity = (enum quantity)q;
  return meaning;
}
