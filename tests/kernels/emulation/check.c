/* Results of the intrinsics where mistakes are likely. Compiled for the emulation, and for a CPU that has the instructions. */

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define EXPECT(condition) expect(condition, __LINE__, #condition)

static int failures;

static void expect(int condition, int line, const char *text)
{
    if (!condition) {
        printf("line %d: %s\n", line, text);
        failures++;
    }
}

static float lane(__m512 x, int i)
{
    float values[16];
    memcpy(values, &x, sizeof values);
    return values[i];
}

static uint32_t word(__m512i x, int i)
{
    uint32_t words[16];
    memcpy(words, &x, sizeof words);
    return words[i];
}

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* sum + upper product + lower product, of the upper halves of four floats. */
static float dot(float sum, float upper_x, float upper_y, float lower_x, float lower_y)
{
    uint32_t x[2], y[2];
    memcpy(x, (float[]){ upper_x, lower_x }, sizeof x);
    memcpy(y, (float[]){ upper_y, lower_y }, sizeof y);
    const __m512i left = _mm512_set1_epi32((int)((x[0] & 0xffff0000) | x[1] >> 16));
    const __m512i right = _mm512_set1_epi32((int)((y[0] & 0xffff0000) | y[1] >> 16));
    return lane(_mm512_dpbf16_ps(_mm512_set1_ps(sum), (__m512bh)left, (__m512bh)right), 5);
}

static uint16_t rounded(float x)
{
    const __m256i numbers = (__m256i)_mm512_cvtneps_pbh(_mm512_set1_ps(x));
    uint16_t values[16];
    memcpy(values, &numbers, sizeof values);
    const __m512i pair = (__m512i)_mm512_cvtne2ps_pbh(_mm512_set1_ps(x), _mm512_setzero_ps());
    EXPECT(word(pair, 8) >> 16 == values[3] && word(pair, 7) == 0);
    return values[3];
}

static float scaled(float x, float y) { return lane(_mm512_scalef_ps(_mm512_set1_ps(x), _mm512_set1_ps(y)), 0); }

static void check_bfloat16(void)
{
    EXPECT(dot(0x1p24f, 1, 1, -0x1p12f, 0x1p12f) == 0); /* the upper product is added first */
    EXPECT(dot(1, 0x1p-12f, 0x1p-12f, 0x1p-12f, 0x1p-12f) == 1); /* and the sum is rounded before the second */
    EXPECT(dot(0, of_bits(0x00400000), 0x1p100f, 0, 0) == 0); /* denormal inputs are zero */
    EXPECT(dot(of_bits(0x00000001), 0, 0, 0, 0) == 0);
    EXPECT(dot(0, 0x1p-70f, 0x1p-70f, 0, 0) == 0); /* and so are denormal results */
    EXPECT(dot(1, 2, 3, 4, 5) == 27);
    EXPECT(rounded(of_bits(0x3f808000)) == 0x3f80); /* halfway: to the even one */
    EXPECT(rounded(of_bits(0x3f818000)) == 0x3f82);
    EXPECT(rounded(of_bits(0x3f808001)) == 0x3f81);
    EXPECT(rounded(of_bits(0x7f7fffff)) == 0x7f80);
    EXPECT(rounded(-INFINITY) == 0xff80);
    EXPECT(rounded(of_bits(0x807fffff)) == 0x8000); /* a denormal, although a normal bfloat16 is as near */
    EXPECT(rounded(of_bits(0x7f800001)) == 0x7fc0);
}

static void check_float32(void)
{
    const __m512 nan = _mm512_set1_ps(NAN), one = _mm512_set1_ps(1);
    EXPECT(scaled(1.5f, -2.5f) == 0.1875f && scaled(1, 200) == INFINITY);
    EXPECT(scaled(1, -149) == of_bits(1) && scaled(1, -1e30f) == 0);
    EXPECT(scaled(NAN, -INFINITY) == 0 && scaled(NAN, INFINITY) == INFINITY && isnan(scaled(1, NAN)) && isnan(scaled(NAN, 1)));
    EXPECT(lane(_mm512_roundscale_ps(_mm512_set1_ps(2.5f), 0), 0) == 2);
    EXPECT(lane(_mm512_roundscale_ps(_mm512_set1_ps(-1.5f), 0), 0) == -2);
    EXPECT(lane(_mm512_mask_max_ps(one, 1, nan, one), 0) == 1 && isnan(lane(_mm512_mask_max_ps(one, 1, one, nan), 0)));
    EXPECT(lane(_mm512_mask_max_ps(nan, 2, one, one), 1) == 1 && isnan(lane(_mm512_mask_max_ps(nan, 2, one, one), 0)));
    EXPECT(lane(_mm512_fmsub_ps(_mm512_set1_ps(0x1.000002p0f), _mm512_set1_ps(0x1.000002p0f), one), 0) == 0x1.000001p-22f);
    EXPECT(lane(_mm512_maskz_mov_ps(2, nan), 0) == 0 && isnan(lane(_mm512_maskz_mov_ps(2, nan), 1)));
    EXPECT(_mm512_reduce_add_ps(one) == 16 && _mm512_reduce_max_ps(one) == 1);
}

static void check_words(void)
{
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, -15);
    EXPECT(_bzhi_u32(0xffff, 3) == 7 && _bzhi_u32(0xffff, 0) == 0);
    EXPECT(_bzhi_u32(0xffff, 32) == 0xffff && _bzhi_u32(7, 0x101) == 1);
    EXPECT(_mm512_cmple_epi32_mask(lanes, _mm512_set1_epi32(2)) == 0x8007);
    EXPECT(word(_mm512_permutex2var_epi32(lanes, _mm512_set1_epi32(16 + 3), _mm512_set1_epi32(9)), 2) == 9);
    EXPECT(word(_mm512_permutex2var_epi32(lanes, _mm512_set1_epi32(32 + 3), _mm512_set1_epi32(9)), 2) == 3);
    EXPECT(word(_mm512_permutexvar_epi16(_mm512_set1_epi32(4 << 16 | 2), lanes), 0) == (2 << 16 | 1));
    EXPECT(word(_mm512_srli_epi32(lanes, 28), 15) == 15 && word(_mm512_slli_epi32(lanes, 4), 2) == 32);
    EXPECT(word(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_set1_ps(-1))), 1) == 0xbf80);
    const uint16_t one[] = { 7 };
    EXPECT(word(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(1, one)), 0) == 7);
}

int main(void)
{
    check_bfloat16();
    check_float32();
    check_words();
    return failures != 0;
}
