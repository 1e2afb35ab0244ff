/* binder.h (private): what turns stored tensors into a model's, one at a time. */
#ifndef KVS_MODEL_BINDER_H
#define KVS_MODEL_BINDER_H

#include <stdbool.h>
#include <stddef.h>

#include "model/weights.h"

/* Binding goes on after a mistake; the first one is kept in `status` and *err, and from then on nothing is found or made. */
typedef struct kvs_binder {
  kvs_model *model;
  bool linear_layout; /* matrices are [out][in] */
  int layer;          /* −1 outside the layers */
  bool *used;         /* [tensors.count] */
  kvs_status status;
  kvs_error *err;
} kvs_binder;

/* Sorts the model's stored tensors by name. `used` is the caller's to free. Errors: KVS_ERR_INPUT (a tensor under two names),
 * KVS_ERR_MEMORY. */
kvs_status kvs_binder_begin(kvs_binder *b, kvs_model *model, kvs_error *err);

/* The tensor of that name, with or without `transformer.` before it, or NULL. The second takes a name within the layer at hand, and is
 * not content with NULL. */
const kvs_stored_tensor *kvs_binder_find(kvs_binder *b, const char *name);
const kvs_stored_tensor *kvs_binder_need(kvs_binder *b, const char *name);

/* Refuses a tensor for its shape; `expected` is in words. */
void kvs_binder_refuse(kvs_binder *b, const kvs_stored_tensor *t, const char *expected);

/* The needed vector [n] of that name as float32: in place, or a copy widened. NULL after a mistake. */
const float *kvs_binder_vector(kvs_binder *b, const char *name, int n);

/* A matrix [rows][cols], stored so, or [cols][rows] in the file where `transposed`. `t` may be NULL; then, and after a mistake, its
 * data is NULL. */
kvs_tensor kvs_binder_matrix(kvs_binder *b, const kvs_stored_tensor *t, int rows, int cols, bool transposed);

/* Bytes of one number. */
size_t kvs_dtype_width(kvs_dtype dtype);

#endif
