/* The gradient of a training step in bfloat16: the numbers and products of step.h, by the instructions of
 * attention_bfloat16.c. */

#include "attention_bfloat16.c"

enum {
    TILE = 8, /* rows of a tile: with 2 vectors each, the sums fill half of the registers */
    PAIR = 2,
    BLOCK_ROWS = 192, /* rows of a block of sequences */
};

typedef uint32_t word;
typedef __m512 vector;
typedef vector Sums[TILE][2]; /* of a product, (TILE, PANEL) */

#define exp2_vector exp2_ps
#define total _mm512_reduce_add_ps
#define largest _mm512_reduce_max_ps

static inline integers counting(void) { return (integers){ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 }; }

/* Lane by lane, `yes` where the mask is set and `no` elsewhere. */
static inline vector choose(integers mask, vector yes, vector no)
{
    return (vector)((mask & (integers)yes) | (~mask & (integers)no));
}

static inline vector load_numbers(const bfloat *from) { return load(from, LANES); }
static inline void store_numbers(bfloat *to, vector x) { store(to, x, LANES); }

/* panels (width / PANEL, R / 2, PANEL) of rows (R, width), which are `stride` numbers apart; sums (width) += the sum of the
 * rows, unless it is NULL. R is even. */
static void pack_rows(uint32_t *panels, const bfloat *rows, size_t stride, int R, int width, float *sums)
{
    for (int c = 0; c < width; c += PANEL) {
        vector sum[2] = { _mm512_setzero_ps(), _mm512_setzero_ps() };
        for (int r = 0; r < R; r += 2, panels += PANEL)
            for (int n = 0; n < 2; n++) {
                const bfloat *row = rows + r * stride + c + n * LANES;
                const vector even = load_numbers(row), odd = load_numbers(row + stride);
                _mm512_store_si512(panels + n * LANES, _mm512_or_si512(_mm512_srli_epi32((__m512i)even, 16), (__m512i)odd));
                sum[n] += even + odd;
            }
        for (int n = 0; sums && n < 2; n++)
            ((vector *)(sums + c))[n] += sum[n];
    }
}

/* sum (TILE, PANEL) += left (TILE, 2 count) right (2 count, PANEL); word (row, k) of `left` is left[row row_step + k step]. */
static ALWAYS_INLINE void multiply(Sums sum, const uint32_t *left, size_t row_step, size_t step, const uint32_t *right,
                                   int count)
{
    for (int k = 0; k < count; k++, left += step, right += PANEL) {
        const __m512bh a = (__m512bh)_mm512_load_si512(right), b = (__m512bh)_mm512_load_si512(right + LANES);
#pragma GCC unroll 8
        for (int row = 0; row < TILE; row++) {
            const __m512bh word = (__m512bh)_mm512_set1_epi32(left[row * row_step]);
            sum[row][0] = _mm512_dpbf16_ps(sum[row][0], word, a);
            sum[row][1] = _mm512_dpbf16_ps(sum[row][1], word, b);
        }
    }
}

#include "step.h"
