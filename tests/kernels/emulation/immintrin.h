/* The AVX-512 intrinsics of chargpt/kernels/step_bfloat16.c in plain C, so that the kernel can be tested on every machine.
 *
 * With this folder in -I, it replaces the compiler's own header. Each function follows Intel's manual ("Intel 64 and IA-32
 * Architectures Software Developer's Manual", volume 2) and the Intel Intrinsics Guide, except that floating-point exceptions
 * are not raised and that the sign and payload of a NaN may differ. Sums across a vector are taken in gcc's order. gcc and
 * clang compile it for any CPU.
 */

#ifndef EMULATED_IMMINTRIN_H
#define EMULATED_IMMINTRIN_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#undef __AVX512BF16__
#undef __AVX512BW__
#undef __AVX512VL__
#define __AVX512BF16__ 1
#define __AVX512BW__ 1
#define __AVX512VL__ 1

typedef float __m512 __attribute__((vector_size(64), may_alias));
typedef long long __m512i __attribute__((vector_size(64), may_alias));
typedef long long __m256i __attribute__((vector_size(32), may_alias));
typedef short __m512bh __attribute__((vector_size(64), may_alias));
typedef short __m256bh __attribute__((vector_size(32), may_alias));
typedef uint16_t __mmask16;

typedef uint32_t uint32x16 __attribute__((vector_size(64), may_alias)); /* 16 x 32 bits */

/* Not inlined: the kernel unrolls its loops, and compiling it would take half a minute. */
#define INTRINSIC static __attribute__((noinline, unused))
#define EACH_LANE for (int i = 0; i < 16; i++)

INTRINSIC uint32_t _bzhi_u32(uint32_t source, uint32_t index)
{
    index &= 0xff;
    return index < 32 ? source & ((1u << index) - 1) : source;
}

/* Setting and moving */

INTRINSIC __m512i _mm512_set1_epi32(int x)
{
    uint32x16 r;
    EACH_LANE r[i] = x;
    return (__m512i)r;
}

INTRINSIC __m512i _mm512_setr_epi32(int a, int b, int c, int d, int e, int f, int g, int h, int j, int k, int l, int m, int n,
                                    int o, int p, int q)
{
    return (__m512i)(uint32x16){ a, b, c, d, e, f, g, h, j, k, l, m, n, o, p, q };
}

/* Lanes that the mask leaves out are neither read nor written. */

INTRINSIC __m256i _mm256_maskz_loadu_epi16(__mmask16 mask, const void *from)
{
    __m256bh r = { 0 };
    EACH_LANE if (mask >> i & 1)
    {
        short x;
        memcpy(&x, (const char *)from + 2 * i, 2);
        r[i] = x;
    }
    return (__m256i)r;
}

INTRINSIC void _mm256_mask_storeu_epi16(void *to, __mmask16 mask, __m256i x)
{
    EACH_LANE if (mask >> i & 1)
    {
        const short value = ((__m256bh)x)[i];
        memcpy((char *)to + 2 * i, &value, 2);
    }
}

/* Through the vector type, so that -fsanitize=alignment sees an address that the instruction would refuse. */
/* Whole numbers */

INTRINSIC __m512i _mm512_slli_epi32(__m512i x, int bits) { return (__m512i)((uint32x16)x << bits); }
INTRINSIC __m512i _mm512_srli_epi32(__m512i x, int bits) { return (__m512i)((uint32x16)x >> bits); }
INTRINSIC __m512i _mm512_or_si512(__m512i x, __m512i y) { return x | y; }
INTRINSIC __m512i _mm512_add_epi32(__m512i x, __m512i y) { return (__m512i)((uint32x16)x + (uint32x16)y); }
INTRINSIC __m512i _mm512_mullo_epi32(__m512i x, __m512i y) { return (__m512i)((uint32x16)x * (uint32x16)y); }

INTRINSIC __m512i _mm512_cvtepu16_epi32(__m256i x)
{
    uint32x16 r;
    EACH_LANE r[i] = (uint16_t)((__m256bh)x)[i];
    return (__m512i)r;
}

INTRINSIC __m512i _mm512_permutexvar_epi16(__m512i index, __m512i x)
{
    __m512bh r;
    for (int i = 0; i < 32; i++)
        r[i] = ((__m512bh)x)[((__m512bh)index)[i] & 31];
    return (__m512i)r;
}

/* float32 */

INTRINSIC __m512 _mm512_fmadd_ps(__m512 x, __m512 y, __m512 z)
{
    EACH_LANE z[i] = __builtin_fmaf(x[i], y[i], z[i]);
    return z;
}

/* The second number where the two are equal or one is a NaN, as MAXPS does. */
INTRINSIC float max_ps(float x, float y) { return x > y ? x : y; }

INTRINSIC __m512 _mm512_max_ps(__m512 x, __m512 y)
{
    EACH_LANE y[i] = max_ps(x[i], y[i]);
    return y;
}

/* Halves are combined: 8 sums of two, 4 of four, and so on. */
INTRINSIC float _mm512_reduce_add_ps(__m512 x)
{
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++)
            x[i] = x[i + half] + x[i];
    return x[0];
}

INTRINSIC float _mm512_reduce_max_ps(__m512 x)
{
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++)
            x[i] = max_ps(x[i + half], x[i]);
    return x[0];
}

/* The nearest whole number, the even one of two equally near. Other roundings are not emulated. */
INTRINSIC __m512 _mm512_roundscale_ps(__m512 x, const int rounding)
{
    if (rounding)
        __builtin_trap();
    EACH_LANE x[i] = __builtin_rintf(x[i]);
    return x;
}

/* x * 2^floor(y), rounded once. For y = -inf it is 0 and for y = inf infinity, even where x is a NaN (the manual's table of
 * special cases). */
INTRINSIC __m512 _mm512_scalef_ps(__m512 x, __m512 y)
{
    EACH_LANE
    {
        if (isnan(y[i]))
            x[i] = y[i];
        else if (isinf(y[i]))
            x[i] = isnan(x[i]) ? (y[i] > 0 ? INFINITY : 0) : x[i] * (y[i] > 0 ? INFINITY : 0);
        else {
            const float power = floorf(y[i]);
            x[i] = ldexpf(x[i], power < -1000 ? -1000 : power > 1000 ? 1000 : (int)power);
        }
    }
    return x;
}

/* bfloat16 */

/* Denormal numbers become zeros of the same sign. */
INTRINSIC __m512 flush_denormals(__m512 x)
{
    const uint32x16 bits = (uint32x16)x, is_normal = (uint32x16)((bits & 0x7f800000) != 0);
    return (__m512)(bits & (is_normal | 0x80000000));
}

/* The upper and the lower number of each pair, in float32. */
INTRINSIC __m512 upper(__m512bh x) { return flush_denormals((__m512)((uint32x16)x & 0xffff0000)); }
INTRINSIC __m512 lower(__m512bh x) { return flush_denormals((__m512)((uint32x16)x << 16)); }

/* Adds the products of the upper numbers, then those of the lower ones, and rounds after each. */
INTRINSIC __m512 _mm512_dpbf16_ps(__m512 sum, __m512bh x, __m512bh y)
{
    sum = flush_denormals(_mm512_fmadd_ps(upper(x), upper(y), flush_denormals(sum)));
    return flush_denormals(_mm512_fmadd_ps(lower(x), lower(y), sum));
}

/* The nearest bfloat16, the even one of two equally near, in the lower half of each lane. */
INTRINSIC uint32x16 nearest_bfloat16(__m512 x)
{
    const uint32x16 bits = (uint32x16)flush_denormals(x), is_nan = (uint32x16)((bits & 0x7fffffff) > 0x7f800000);
    const uint32x16 rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
    return (rounded & ~is_nan) | (quiet & is_nan);
}

INTRINSIC __m256bh _mm512_cvtneps_pbh(__m512 x)
{
    const uint32x16 rounded = nearest_bfloat16(x);
    __m256bh r;
    EACH_LANE r[i] = rounded[i];
    return r;
}

/* `low` in the lower sixteen numbers, `high` in the upper ones. */
INTRINSIC __m512bh _mm512_cvtne2ps_pbh(__m512 high, __m512 low)
{
    const uint32x16 a = nearest_bfloat16(low), b = nearest_bfloat16(high);
    __m512bh r;
    EACH_LANE
    {
        r[i] = a[i];
        r[i + 16] = b[i];
    }
    return r;
}

#endif
