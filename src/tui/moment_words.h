/* moment_words.h: what each of the ten moments of a step says of itself, and whether it kept the rule. */
#ifndef KVS_TUI_MOMENT_WORDS_H
#define KVS_TUI_MOMENT_WORDS_H

#include <stdbool.h>
#include <stddef.h>

#include "tui/view.h"

/* The words for `phase` of the current step, layer and head, for a field of `columns`: at 30 whole, down to 20 shorter ones. What is
 * asked for in a prediction is `?` in them. False: it did not do what the rule says. */
bool moment_words(struct cells *cells, kvs_phase phase, const struct state *state, struct look *look,
                  const struct place *place, int columns, char *text, size_t size);

/* What of the step's own row holds nothing but zeros: "K, V", "K" or "V"; "" if neither, or if it was not logged. */
const char *zeros_written(const struct state *state, struct look *look, const struct place *place);

#endif
