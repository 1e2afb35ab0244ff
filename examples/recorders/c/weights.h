/* weights.h: a small safetensors reader of its own for engine.c: one file, float32. */
#ifndef WEIGHTS_H
#define WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct tensors tensors;

/* Maps FOLDER/model.safetensors; NULL with a message on stderr. */
tensors *weights_open(const char *folder);
void weights_close(tensors *w);

/* The numbers of a tensor, `count` of them; ends the program with a message if it is not there in that size. Names are
 * printf-formatted: weights_get(w, n, "h.%d.ln_1.weight", layer). */
const float *weights_get(const tensors *w, size_t count, const char *format, ...);

/* A tensor's first dimension; 0 if there is no such tensor. */
size_t weights_rows(const tensors *w, const char *name);

#endif
