/* The gradient of a training step in bfloat16: what attention.h and step.h need of its numbers, by the instructions of x86-64.
 *
 * Numbers are multiplied in pairs, and both products are added to a float32 sum.
 */

#include <immintrin.h>

#include "arithmetic.h"

#if !defined(__AVX512BF16__) || !defined(__AVX512BW__) || !defined(__AVX512VL__)
#error "needs a CPU that multiplies bfloat16 numbers"
#endif

enum { TILE = 8, ROWS = 8 }; /* rows of a tile, and of attention's: the sums fill half of the registers */
enum { PAIR = 2, QUERIES = 64 };

typedef uint16_t number;
typedef uint32_t word __attribute__((may_alias));
typedef __m512i words;

/* A mask of the first n lanes: none for n below 0, all for n above LANES. */
static inline __mmask16 first(int n) { return _bzhi_u32(0xffff, n < 0 ? 0 : n > LANES ? LANES : n); }

static inline vector load(const number *from, int n)
{
    return (vector)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first(n), from)), 16);
}

static inline void store(number *to, vector x, int n)
{
    _mm256_mask_storeu_epi16(to, first(n), (__m256i)_mm512_cvtneps_pbh(x));
}

static inline words joined(vector x, vector y) { return _mm512_or_si512(_mm512_srli_epi32((words)x, 16), (words)y); }

static inline words rounded(vector x, vector y)
{
    const words lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const words twice = _mm512_mullo_epi32(lanes, _mm512_set1_epi32(0x10001)); /* 0 0 1 1 2 2 ... as 16-bit numbers */
    const words interleave = _mm512_add_epi32(twice, _mm512_set1_epi32(16 << 16)); /* 0 16 1 17 2 18 ... */
    return _mm512_permutexvar_epi16(interleave, (words)_mm512_cvtne2ps_pbh(y, x));
}

static ALWAYS_INLINE vector add_products(vector sum, word x, words y)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(x), (__m512bh)y);
}

static inline float sum_of(vector x) { return _mm512_reduce_add_ps(x); }
static inline vector larger_of(vector x, vector y) { return _mm512_max_ps(x, y); }
static inline float largest_of(vector x) { return _mm512_reduce_max_ps(x); }

static inline vector exp2_of(vector x)
{
    static const float taylor[] = { 1.54035304e-4f, 1.33335581e-3f, 9.61812911e-3f, 5.55041087e-2f,
                                    0.240226507f,   0.693147181f,   1 };
    const vector whole = _mm512_roundscale_ps(x, 0), fraction = x - whole;
    vector p = (vector){ 0 } + taylor[0];
    for (int i = 1; i < 7; i++)
        p = _mm512_fmadd_ps(p, fraction, (vector){ 0 } + taylor[i]);
    return _mm512_scalef_ps(p, whole);
}

#include "step.h"
