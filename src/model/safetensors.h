/* safetensors.h (private): the tensors of a .safetensors file, checked before anything of them is used. */
#ifndef KVS_MODEL_SAFETENSORS_H
#define KVS_MODEL_SAFETENSORS_H

#include <stdint.h>

#include "model/dir.h"

#define KVS_MOST_DIMENSIONS 8
#define KVS_MOST_NAME 200                    /* bytes of a tensor's name: messages show it whole */
#define KVS_SAFETENSORS_HEADER_CAP 100000000 /* bytes of header; a larger one is refused before it is read */

typedef struct kvs_stored_tensor {
  char *name;
  const char *path; /* of its file; owned by the kvs_dir */
  char dtype[12];   /* as the header says: "F32" */
  int dimensions;
  int64_t shape[KVS_MOST_DIMENSIONS];
  uint64_t begin, end;       /* within the file's data */
  const unsigned char *data; /* in the mapped file; any alignment */
} kvs_stored_tensor;

typedef struct kvs_tensor_list {
  kvs_stored_tensor *tensor;
  size_t count;
} kvs_tensor_list;

/* Appends a file's tensors to the list, which kvs_tensor_list_free frees, also after a failure.
 * Errors: KVS_ERR_INPUT, KVS_ERR_MEMORY. */
kvs_status kvs_safetensors_read(const kvs_file *file, kvs_tensor_list *list, kvs_error *err);
void kvs_tensor_list_free(kvs_tensor_list *list);

#endif
