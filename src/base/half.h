/* half.h: IEEE binary16 and bfloat16, widened to float32 exactly. */
#ifndef KVS_BASE_HALF_H
#define KVS_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float kvs_widen_bf16(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

static inline float kvs_widen_f16(uint16_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = (bits >> 10) & 0x1F, fraction = bits & 0x3FF;
  uint32_t wide;
  if (exponent == 0) { /* zero, or a subnormal: fraction · 2^-24, exact in float32 */
    float value = (float)fraction * 5.9604644775390625e-8f;
    memcpy(&wide, &value, sizeof wide);
    wide |= sign;
  } else if (exponent == 31) { /* infinity; a NaN is made quiet, as the CPU's own conversion does */
    wide = sign | 0x7F800000 | fraction << 13 | (fraction ? 0x400000u : 0);
  } else {
    wide = sign | (exponent + 112) << 23 | fraction << 13;
  }
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

#endif
