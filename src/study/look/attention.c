/* attention.c: what can be read off one head's scores and weights. */
#include "study/look/attention.h"

#include <math.h>

/* exp of less than this is 0 in float32, or so little that it may be. */
#define VANISHES 80

int attention_hidden_rows(const float *scores, const float *weights, int rows) {
  double most = -INFINITY;
  int hidden = 0;
  for (int row = 0; row < rows; row++)
    if ((double)scores[row] > most && weights[row] > 0) most = (double)scores[row];
  if (isinf(most)) return 0; /* not one has a weight: then none was hidden from the others */
  for (int row = 0; row < rows; row++) hidden += weights[row] == 0 && (double)scores[row] > most - VANISHES;
  return hidden;
}
