/* kernels_avx2.c: vectors of eight for x86-64 CPUs with AVX2, FMA and F16C. Built with -mavx2 -mfma -mf16c and called only
 * where the CPU has them; the loops are in kernels_vector.h. */
#if defined(__x86_64__)
#include "engine/kernels.h"
#include "engine/numeric.h"

#include <immintrin.h>

#define WIDTH 8
typedef __m256 vec;

static inline vec v_zero(void) { return _mm256_setzero_ps(); }
static inline vec v_set(float x) { return _mm256_set1_ps(x); }
static inline vec v_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void v_store(float *p, vec v) { _mm256_storeu_ps(p, v); }

/* The first n lanes on. */
static inline __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vec v_load_some(const float *p, int n) { return _mm256_maskload_ps(p, first_lanes(n)); }
static inline void v_store_some(float *p, vec v, int n) { _mm256_maskstore_ps(p, first_lanes(n), v); }

static inline vec v_load_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
static inline vec v_load_bf16(const uint16_t *p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}

static inline vec v_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
static inline vec v_add(vec a, vec b) { return _mm256_add_ps(a, b); }
static inline vec v_sub(vec a, vec b) { return _mm256_sub_ps(a, b); }
static inline vec v_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
static inline vec v_div(vec a, vec b) { return _mm256_div_ps(a, b); }
static inline vec v_greater(vec a, vec b) { return _mm256_max_ps(a, b); }
static inline vec v_less(vec a, vec b) { return _mm256_min_ps(a, b); }

static inline vec v_times_pow2(vec p, vec n) {
  __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), bias = _mm256_set1_epi32(127);
  __m256i rest = _mm256_sub_epi32(whole, half);
  p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
  return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
}

static inline vec v_nan_of(vec x, vec v) { return _mm256_blendv_ps(v, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q)); }

/* Lanes l and l+8, then l and l+4; what is left of the four sums is added crosswise: l and l+2, l and l+1. */
static inline void v_fold4(float *out, vec sums[4][2]) {
  __m128 four[4];
  for (int u = 0; u < 4; u++) {
    __m256 eight = _mm256_add_ps(sums[u][0], sums[u][1]);
    four[u] = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  }
  __m128 ab = _mm_add_ps(_mm_movelh_ps(four[0], four[1]), _mm_movehl_ps(four[1], four[0]));
  __m128 cd = _mm_add_ps(_mm_movelh_ps(four[2], four[3]), _mm_movehl_ps(four[3], four[2]));
  _mm_storeu_ps(out, _mm_add_ps(_mm_shuffle_ps(ab, cd, 0x88), _mm_shuffle_ps(ab, cd, 0xDD)));
}

#define TILE_ROWS 6 /* 12 sums, 2 vectors of w and one of x: 15 of 16 registers */
#define TILE_VECS 2
#define GROUP_MOST 4
#define DOT_WORDS 4
#define DOT_ROWS 1
#define MIX_BLOCKS 1
#include "engine/kernels_vector.h"

const kvs_kernels kvs_kernels_avx2 = {.name = "avx2", VECTOR_KERNELS};
#else
typedef int kvs_no_avx2; /* ISO C wants a declaration in every file */
#endif
