/* kernels_neon.c: vectors of four for 64-bit ARM, where every CPU has them; the loops are in kernels_vector.h. */
#if defined(__aarch64__)
#include "engine/kernels.h"
#include "engine/numeric.h"

#include <arm_neon.h>

#define WIDTH 4
typedef float32x4_t vec;

static inline vec v_zero(void) { return vdupq_n_f32(0); }
static inline vec v_set(float x) { return vdupq_n_f32(x); }
static inline vec v_load(const float *p) { return vld1q_f32(p); }
static inline void v_store(float *p, vec v) { vst1q_f32(p, v); }

static inline vec v_load_some(const float *p, int n) {
  float lane[WIDTH] = {0};
  for (int l = 0; l < n; l++) lane[l] = p[l];
  return v_load(lane);
}
static inline void v_store_some(float *p, vec v, int n) {
  float lane[WIDTH];
  v_store(lane, v);
  for (int l = 0; l < n; l++) p[l] = lane[l];
}

static inline vec v_load_f16(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
static inline vec v_load_bf16(const uint16_t *p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }

static inline vec v_fma(vec a, vec b, vec c) { return vfmaq_f32(c, a, b); }
static inline vec v_add(vec a, vec b) { return vaddq_f32(a, b); }
static inline vec v_sub(vec a, vec b) { return vsubq_f32(a, b); }
static inline vec v_mul(vec a, vec b) { return vmulq_f32(a, b); }
static inline vec v_div(vec a, vec b) { return vdivq_f32(a, b); }
static inline vec v_greater(vec a, vec b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
static inline vec v_less(vec a, vec b) { return vbslq_f32(vcltq_f32(a, b), a, b); }

static inline vec v_times_pow2(vec p, vec n) {
  int32x4_t whole = vcvtnq_s32_f32(n), half = vshrq_n_s32(whole, 1), bias = vdupq_n_s32(127);
  int32x4_t rest = vsubq_s32(whole, half);
  p = vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23)));
  return vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23)));
}

static inline vec v_nan_of(vec x, vec v) { return vbslq_f32(vceqq_f32(x, x), v, x); }

/* Lanes l and l+8, then l and l+4; what is left of the four sums is added crosswise: l and l+2, l and l+1. */
static inline void v_fold4(float *out, vec sums[4][4]) {
  float32x4_t four[4];
  for (int u = 0; u < 4; u++) four[u] = vaddq_f32(vaddq_f32(sums[u][0], sums[u][2]), vaddq_f32(sums[u][1], sums[u][3]));
  float32x4_t ab = vaddq_f32(vcombine_f32(vget_low_f32(four[0]), vget_low_f32(four[1])),
                             vcombine_f32(vget_high_f32(four[0]), vget_high_f32(four[1])));
  float32x4_t cd = vaddq_f32(vcombine_f32(vget_low_f32(four[2]), vget_low_f32(four[3])),
                             vcombine_f32(vget_high_f32(four[2]), vget_high_f32(four[3])));
  v_store(out, vaddq_f32(vuzp1q_f32(ab, cd), vuzp2q_f32(ab, cd)));
}

#define TILE_ROWS 6 /* 24 sums, 4 vectors of w and one of x: 29 of 32 registers */
#define TILE_VECS 4
#define GROUP_MOST 8
#define DOT_WORDS 4
#define DOT_ROWS 1
#define MIX_BLOCKS 1
#include "engine/kernels_vector.h"

const kvs_kernels kvs_kernels_neon = {.name = "neon", VECTOR_KERNELS};
#else
typedef int kvs_no_neon; /* ISO C wants a declaration in every file */
#endif
