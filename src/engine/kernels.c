/* kernels.c: which kernels this CPU can run. */
#include "engine/kernels.h"

#include <string.h>

#include "kvstep/engine.h"

/* Fastest first. */
static const kvs_kernels *available(int i) {
  const kvs_kernels *list[2];
  int n = 0;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
    list[n++] = &kvs_kernels_avx2;
#endif
  list[n++] = &kvs_kernels_reference;
  return i >= 0 && i < n ? list[i] : NULL;
}

const char *kvs_kernel_name(int i) { return available(i) ? available(i)->name : NULL; }

const kvs_kernels *kvs_kernels_find(const char *name) {
  if (!name) return available(0);
  for (int i = 0; available(i); i++)
    if (strcmp(available(i)->name, name) == 0) return available(i);
  return NULL;
}
