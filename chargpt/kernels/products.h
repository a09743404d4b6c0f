/* Products of matrices, tile by tile, and how their right operands are packed: one text for every type of number.
 *
 * A product is computed in tiles of a few rows and PANEL columns, whose sums stay in registers. Its left operand is read word
 * by word. Its right operand is panels (N / PANEL, K / PAIR, PANEL) of words, which are read in the order of memory. A `word`
 * is PAIR numbers that are neighbours in the direction of the sum. A file that includes this one defines before, for its numbers,
 *
 *     number, word, words             a number in memory, a word of 32 bits, and a vector of LANES words
 *     PAIR, TILE, ROWS, QUERIES       sizes: see here, step.h and attention.h
 *     load(from, n), store(to, x, n)  the first n of LANES numbers, as a vector of float32: zeros for the rest
 *     joined(x, y), rounded(x, y)     words of the numbers of x and, where PAIR is 2, y; the latter are to be rounded
 *     add_products(sum, x, y)         sum += the products of the numbers of a word x with those of each of the words y
 *     sum_of(x), largest_of(x)        the sum, and the largest, of the lanes
 *     larger_of(x, y)                 lane by lane, the larger one
 *     exp2_of(x)                      2^x for x up to 0, to one or two units in the last place: a polynomial for the fraction,
 *                                     -1/2 to 1/2, times a power of 2
 */

#ifndef CHARGPT_PRODUCTS_H
#define CHARGPT_PRODUCTS_H

enum { PANEL = 2 * LANES }; /* columns of a tile */
enum { STAGES = LANES == 16 ? 4 : LANES == 8 ? 3 : 2 }; /* log2(LANES) */

static inline vector load_numbers(const number *from) { return load(from, LANES); }
static inline void store_numbers(number *to, vector x) { store(to, x, LANES); }

typedef struct { /* the left operand of a product: word (row, k) is data[row * row_step + k * step] */
    const word *data;
    size_t row_step, step;
} Left;

/* sum (rows, PANEL) += left (rows, count PAIR) right (count PAIR, PANEL). The rows of words of `right` are `stride` words apart.
 * `rows` is a constant. */
static ALWAYS_INLINE void multiply(const int rows, vector (*sum)[2], Left left, const word *right, size_t stride, int count)
{
    for (int k = 0; k < count; k++, left.data += left.step, right += stride) {
        const words a = ((const words *)right)[0], b = ((const words *)right)[1];
#pragma GCC unroll 16
        for (int row = 0; row < rows; row++) {
            const word x = left.data[row * left.row_step];
            sum[row][0] = add_products(sum[row][0], x, a);
            sum[row][1] = add_products(sum[row][1], x, b);
        }
    }
}

/* to (rows, PANEL), whose rows are `to_stride` numbers apart, = or += the product of `multiply`. */
static ALWAYS_INLINE void multiply_to(
    float *to, size_t to_stride, int overwrite, const int rows, Left left, const word *right, size_t stride, int count)
{
    vector sum[TILE > ROWS ? TILE : ROWS][2] = { 0 };
#pragma GCC unroll 16
    for (int row = 0; row < rows && !overwrite; row++)
        for (int n = 0; n < 2; n++)
            sum[row][n] = ((const vector *)(to + row * to_stride))[n];
    multiply(rows, sum, left, right, stride, count);
#pragma GCC unroll 16
    for (int row = 0; row < rows; row++)
        for (int n = 0; n < 2; n++)
            ((vector *)(to + row * to_stride))[n] = sum[row][n];
}

/* panels (width / PANEL, R / PAIR, PANEL) of rows (R, width), which are `stride` numbers apart, for a sum over the rows; sums
 * (width) += the sum of the rows, unless it is NULL. */
static void pack_rows(word *panels, const number *rows, size_t stride, int R, int width, float *sums)
{
    for (int c = 0; c < width; c += PANEL) {
        vector sum[2] = { 0 };
        for (int r = 0; r < R; r += PAIR, panels += PANEL)
            for (int n = 0; n < 2; n++) {
                const number *row = rows + r * stride + c + n * LANES;
                const vector x = load_numbers(row), y = PAIR > 1 ? load_numbers(row + stride) : x;
                ((words *)panels)[n] = joined(x, y);
                sum[n] += PAIR > 1 ? x + y : x;
            }
        for (int n = 0; sums && n < 2; n++)
            ((vector *)(sums + c))[n] += sum[n];
    }
}

/* panels (N / PANEL, K / PAIR, PANEL) of the transpose of rows (N, K), for a sum over K: the words of the rows, transposed in
 * squares by stages that interleave the first half of a square with the second one. */
static void pack_transpose(word *panels, const number *rows, int N, int K)
{
    const int count = K / PAIR;
    for (int n = 0; n < N; n += LANES)
        for (int k = 0; k < count; k += LANES) {
            integers square[LANES], mixed[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                memcpy(&square[i], (const word *)rows + (size_t)(n + i) * count + k, sizeof *square);
#pragma GCC unroll 4
            for (int stage = 0; stage < STAGES; stage++) {
#pragma GCC unroll 8
                for (int i = 0; i < LANES / 2; i++) {
                    mixed[2 * i] = INTERLEAVED(square[i], square[i + LANES / 2], 0);
                    mixed[2 * i + 1] = INTERLEAVED(square[i], square[i + LANES / 2], LANES / 2);
                }
                memcpy(square, mixed, sizeof square);
            }
            word *to = panels + (size_t)(n / PANEL) * count * PANEL + k * PANEL + n % PANEL;
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                memcpy(to + i * PANEL, &square[i], sizeof *square);
        }
}

#endif
