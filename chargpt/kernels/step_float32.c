/* The gradient of a training step in float32: the numbers and products of step.h, by the vectors of attention_float32.c. */

#include "attention_float32.c"

#if defined(__AVX512F__) || defined(__aarch64__)
enum { TILE = 8 }; /* rows of a tile: with 2 vectors each, the sums fill half of the registers */
#else
enum { TILE = 4 };
#endif

enum {
    PAIR = 1,
    BLOCK_ROWS = 192, /* rows of a block of sequences */
};

typedef float word;

#define exp2_vector exp2_of
#define total sum_of
#define largest largest_of

static inline vector load_numbers(const float *from)
{
    vector x;
    memcpy(&x, from, sizeof x);
    return x;
}

static inline void store_numbers(float *to, vector x) { *(vector *)to = x; }

/* panels (width / PANEL, R, PANEL) of rows (R, width), which are `stride` numbers apart; sums (width) += the sum of the rows,
 * unless it is NULL. */
static void pack_rows(float *panels, const float *rows, size_t stride, int R, int width, float *sums)
{
    for (int c = 0; c < width; c += PANEL) {
        vector sum[2] = { 0 };
        for (int r = 0; r < R; r++, panels += PANEL)
            for (int n = 0; n < 2; n++) {
                const vector x = load_numbers(rows + r * stride + c + n * LANES);
                ((vector *)panels)[n] = x;
                sum[n] += x;
            }
        for (int n = 0; sums && n < 2; n++)
            ((vector *)(sums + c))[n] += sum[n];
    }
}

/* panels (N / PANEL, K, PANEL) of the transpose of rows (N, K). */
static void pack_transpose(float *restrict panels, const float *restrict rows, int N, int K)
{
    for (int n = 0; n < N; n += PANEL, panels += (size_t)K * PANEL, rows += (size_t)K * PANEL)
        for (int k = 0; k < K; k += LANES) /* squares that stay in the cache */
            for (int row = 0; row < PANEL; row++)
                for (int column = k; column < k + LANES; column++)
                    panels[column * PANEL + row] = rows[(size_t)row * K + column];
}

typedef vector Sums[TILE][2]; /* of a product, (TILE, PANEL) */

/* sum (TILE, PANEL) += left (TILE, count) right (count, PANEL); number (row, k) of `left` is left[row row_step + k step]. */
static ALWAYS_INLINE void multiply(Sums sum, const float *left, size_t row_step, size_t step, const float *right,
                                   int count)
{
    for (int k = 0; k < count; k++, left += step, right += PANEL) {
        const vector a = ((const vector *)right)[0], b = ((const vector *)right)[1];
#pragma GCC unroll 8
        for (int row = 0; row < TILE; row++) {
            sum[row][0] += left[row * row_step] * a;
            sum[row][1] += left[row * row_step] * b;
        }
    }
}

#include "step.h"
