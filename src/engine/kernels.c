/* kernels.c: which kernels this CPU can run. */
#include "engine/kernels.h"

#include <string.h>

#include "kvstep/engine.h"

/* Fastest first. */
static const kvs_kernels *available(int i) {
  const kvs_kernels *list[3];
  int n = 0;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq"))
    list[n++] = &kvs_kernels_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
    list[n++] = &kvs_kernels_avx2;
#elif defined(__aarch64__)
  list[n++] = &kvs_kernels_neon;
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

const kvs_kernels *kvs_kernels_for_few(void) {
#if defined(__x86_64__)
  if (available(0) == &kvs_kernels_avx512) return available(1);
#endif
  return available(0);
}
