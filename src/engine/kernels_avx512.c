/* kernels_avx512.c: vectors of sixteen for x86-64 CPUs with AVX-512 F, VL, BW and DQ. Built with those switched on and called
 * only where the CPU has them; the loops are in kernels_vector.h. */
#if defined(__x86_64__)
#include "engine/kernels.h"
#include "engine/numeric.h"

#include <immintrin.h>

#define WIDTH 16
typedef __m512 vec;

static inline vec v_zero(void) { return _mm512_setzero_ps(); }
static inline vec v_set(float x) { return _mm512_set1_ps(x); }
static inline vec v_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v_store(float *p, vec v) { _mm512_storeu_ps(p, v); }

static inline __mmask16 first_lanes(int n) { return (__mmask16)((1u << n) - 1); }
static inline vec v_load_some(const float *p, int n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
static inline void v_store_some(float *p, vec v, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), v); }

static inline vec v_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
static inline vec v_load_bf16(const uint16_t *p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}

static inline vec v_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
static inline vec v_add(vec a, vec b) { return _mm512_add_ps(a, b); }
static inline vec v_sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
static inline vec v_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
static inline vec v_div(vec a, vec b) { return _mm512_div_ps(a, b); }
static inline vec v_greater(vec a, vec b) { return _mm512_max_ps(a, b); }
static inline vec v_less(vec a, vec b) { return _mm512_min_ps(a, b); }

static inline vec v_times_pow2(vec p, vec n) {
  __m512i whole = _mm512_cvtps_epi32(n), half = _mm512_srai_epi32(whole, 1), bias = _mm512_set1_epi32(127);
  __m512i rest = _mm512_sub_epi32(whole, half);
  p = _mm512_mul_ps(p, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(half, bias), 23)));
  return _mm512_mul_ps(p, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(rest, bias), 23)));
}

static inline vec v_nan_of(vec x, vec v) { return _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), x); }

/* Lanes l and l+8, then l and l+4; what is left of the four sums is added crosswise: l and l+2, l and l+1. */
static inline void v_fold4(float *out, vec sums[4][1]) {
  __m128 four[4];
  for (int u = 0; u < 4; u++) {
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(sums[u][0]), _mm512_extractf32x8_ps(sums[u][0], 1));
    four[u] = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  }
  __m128 ab = _mm_add_ps(_mm_movelh_ps(four[0], four[1]), _mm_movehl_ps(four[1], four[0]));
  __m128 cd = _mm_add_ps(_mm_movelh_ps(four[2], four[3]), _mm_movehl_ps(four[3], four[2]));
  _mm_storeu_ps(out, _mm_add_ps(_mm_shuffle_ps(ab, cd, 0x88), _mm_shuffle_ps(ab, cd, 0xDD)));
}

#define TILE_ROWS 14 /* 28 sums, 2 vectors of w and one of x: 31 of 32 registers */
#define TILE_VECS 2
#define GROUP_MOST 4
#define DOT_WORDS 8
#define DOT_ROWS 4
#define MIX_BLOCKS 2
#include "engine/kernels_vector.h"

const kvs_kernels kvs_kernels_avx512 = {.name = "avx512", VECTOR_KERNELS};
#else
typedef int kvs_no_avx512; /* ISO C wants a declaration in every file */
#endif
