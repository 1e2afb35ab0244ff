/* builtin.h (private): the files of the models that are part of the binary. */
#ifndef KVS_MODEL_BUILTIN_H
#define KVS_MODEL_BUILTIN_H

#include "kvstep/model.h"
#include "model/dir.h"

/* The built-in model of that name, or NULL. */
const kvs_builtin *kvs_builtin_find(const char *name);

/* Its i-th file, path being the bare name ("config.json"); false when i is past the last. */
bool kvs_builtin_file(const kvs_builtin *builtin, int i, kvs_file *out);

#endif
