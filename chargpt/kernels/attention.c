/* Causal self-attention and its gradient, for training in bfloat16: model.py's `reference_attention` between the projections.
 *
 * As FlashAttention does (arXiv 2205.14135), this keeps of the probabilities only each row's normaliser, and computes them
 * again for the gradient: memory is slower than arithmetic. A thread takes one head of one sequence at a time, whose numbers
 * all fit into its cache. Products are of bfloat16 numbers and summed in float32; probabilities and their gradients are
 * rounded to bfloat16 before they are multiplied again.
 *
 * The letters are model.py's: B sequences, T characters, h heads, d head size. The CPU multiplies pairs of bfloat16 numbers
 * and adds both products to a sum, so a matrix that stands on the right of a product is stored as panels of PANEL columns, and
 * a panel as rows of words, each a pair of numbers that follow each other in the direction summed over. Lengths are padded
 * with zeros to multiples of PANEL.
 */

#include <immintrin.h>
#include <math.h>
#include <omp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if !defined(__AVX512BF16__) || !defined(__AVX512BW__) || !defined(__AVX512VL__)
#error "needs a CPU that multiplies bfloat16 numbers"
#endif

enum {
    LANES = 16,
    PANEL = 2 * LANES, /* columns, and */
    ROWS = 8,          /* rows computed together: their sums fill half of the registers */
    QUERIES = 64,      /* whose probabilities and gradients are kept at a time on the way back */
};

typedef uint16_t bfloat;
typedef __m512 Tile[ROWS][2];

typedef struct {
    int B, T, h, d, threads;
    const bfloat *cosine, *sine; /* of rotary positions, (T, d / 2), or NULL */
} Shape;

typedef struct { /* the left side of a product, in words: from a row to the next, and from a pair in it to the next */
    const uint32_t *at;
    size_t row, pair;
} Left;

static size_t padded(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* Of LANES numbers the first n. */
static inline __mmask16 first(int n) { return _bzhi_u32(0xffff, n < 0 ? 0 : n > LANES ? LANES : n); }

static inline __m512 load(const bfloat *at, int n)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first(n), at)), 16));
}

static inline void store(bfloat *at, __m512 x, int n)
{
    _mm256_mask_storeu_epi16(at, first(n), (__m256i)_mm512_cvtneps_pbh(x));
}

/* 2^x, to a unit or two of the last place. */
static inline __m512 power(__m512 x)
{
    static const float taylor[] = { 1.54035304e-4f, 1.33335581e-3f, 9.61812911e-3f, 5.55041087e-2f, 0.240226507f, 0.693147181f, 1 };
    const __m512 whole = _mm512_roundscale_ps(x, 0), rest = _mm512_sub_ps(x, whole);
    __m512 p = _mm512_set1_ps(taylor[0]);
    for (int i = 1; i < 7; i++)
        p = _mm512_fmadd_ps(p, rest, _mm512_set1_ps(taylor[i]));
    return _mm512_scalef_ps(p, whole);
}

/* Add to `sum` a left side times `pairs` rows of a panel. */
static inline __attribute__((always_inline)) void multiply(Tile sum, Left left, const uint32_t *panel, int pairs)
{
    for (int k = 0; k < pairs; k++, left.at += left.pair, panel += PANEL) {
        const __m512bh right[] = { (__m512bh)_mm512_load_si512(panel), (__m512bh)_mm512_load_si512(panel + LANES) };
#pragma GCC unroll 8
        for (int row = 0; row < ROWS; row++) {
            const __m512bh word = (__m512bh)_mm512_set1_epi32(left.at[row * left.row]);
            sum[row][0] = _mm512_dpbf16_ps(sum[row][0], word, right[0]);
            sum[row][1] = _mm512_dpbf16_ps(sum[row][1], word, right[1]);
        }
    }
}

/* Turn pairs (x, y) of numbers at position t by its angle, or back by `direction` -1. */
static inline void rotate(__m512 *x, __m512 *y, const Shape *shape, int t, int i, float direction)
{
    const int half = shape->d / 2;
    const __m512 cosine = load(shape->cosine + t * half + i, half - i);
    const __m512 sine = _mm512_mul_ps(_mm512_set1_ps(direction), load(shape->sine + t * half + i, half - i)), old = *x;
    *x = _mm512_fmsub_ps(old, cosine, _mm512_mul_ps(*y, sine));
    *y = _mm512_fmadd_ps(*y, cosine, _mm512_mul_ps(old, sine));
}

/* Copy a head's (T, d) out of rows `stride` apart, padded with zeros; `turn` for queries and keys of rotary positions. */
static void take(bfloat *rows, const bfloat *from, size_t stride, const Shape *shape, int turn)
{
    const int d = shape->d, wide = padded(d, PANEL);
    for (int t = 0; t < shape->T; t++, rows += wide, from += stride) {
        for (int i = 0; i < wide; i += LANES)
            store(rows + i, load(from + i, d - i), LANES);
        for (int i = 0; turn && i < d / 2; i += LANES) {
            __m512 x = load(from + i, d / 2 - i), y = load(from + i + d / 2, d / 2 - i);
            rotate(&x, &y, shape, t, i, 1);
            store(rows + i, x, d / 2 - i);
            store(rows + i + d / 2, y, d / 2 - i);
        }
    }
    memset(rows, 0, (padded(shape->T, PANEL) - shape->T) * wide * sizeof *rows);
}

/* Put rows [t, t + count) of a head times `scale` back to where `take` finds them, and turn them back. */
static void give(bfloat *to, size_t stride, const float *rows, int t, int count, float scale, const Shape *shape, int turn)
{
    const int d = shape->d, wide = padded(d, PANEL), part = turn ? d / 2 : d;
    const __m512 factor = _mm512_set1_ps(scale);
    for (int end = t + count < shape->T ? t + count : shape->T; t < end; t++, rows += wide)
        for (int i = 0; i < part; i += LANES) {
            __m512 x = _mm512_mul_ps(factor, _mm512_loadu_ps(rows + i));
            if (turn) {
                __m512 y = _mm512_mul_ps(factor, _mm512_maskz_loadu_ps(first(part - i), rows + i + part));
                rotate(&x, &y, shape, t, i, -1);
                store(to + t * stride + i + part, y, part - i);
            }
            store(to + t * stride + i, x, part - i);
        }
}

/* Panels of rows (T, d), to be summed over T: a word is a pair of numbers below each other. */
static void pair_rows(uint32_t *panels, const bfloat *rows, const Shape *shape)
{
    const int wide = padded(shape->d, PANEL), T = padded(shape->T, PANEL);
    for (int c = 0; c < wide; c += PANEL)
        for (int t = 0; t < T; t += 2)
            for (int i = c; i < c + PANEL; i += LANES, panels += LANES) {
                const __m512i above = (__m512i)load(rows + t * wide + i, LANES), below = (__m512i)load(rows + (t + 1) * wide + i, LANES);
                _mm512_store_si512(panels, _mm512_or_si512(_mm512_srli_epi32(above, 16), below));
            }
}

/* Panels of the transpose of rows (T, d), to be summed over d: words as they are, but 16 x 16 of them at a time transposed, by
 * shuffling the upper rows into the lower ones four times. */
static void pair_columns(uint32_t *panels, const bfloat *rows, const Shape *shape)
{
    const int words = padded(shape->d, PANEL) / 2, T = padded(shape->T, PANEL);
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(LANES / 2));
    for (int t = 0; t < T; t += LANES)
        for (int word = 0; word < words; word += LANES) {
            __m512i block[LANES], shuffled[LANES];
            for (int i = 0; i < LANES; i++)
                block[i] = _mm512_loadu_si512((const uint32_t *)rows + (t + i) * words + word);
#pragma GCC unroll 4
            for (int stage = 0; stage < 4; stage++) {
#pragma GCC unroll 8
                for (int i = 0; i < LANES / 2; i++) {
                    shuffled[2 * i] = _mm512_permutex2var_epi32(block[i], low, block[i + LANES / 2]);
                    shuffled[2 * i + 1] = _mm512_permutex2var_epi32(block[i], high, block[i + LANES / 2]);
                }
                memcpy(block, shuffled, sizeof block);
            }
            uint32_t *to = panels + t / PANEL * words * PANEL + word * PANEL + t % PANEL;
            for (int i = 0; i < LANES; i++)
                _mm512_store_si512(to + i * PANEL, block[i]);
        }
}

/* Where a head's part of a row begins: queries at 0, keys at C, values at 2 C. */
static size_t place(const Shape *shape, int item, size_t width)
{
    return (size_t)(item / shape->h) * shape->T * width + item % shape->h * shape->d;
}

/* Bytes of memory, aligned to 64, that each thread needs. */
size_t attention_memory(const Shape *shape)
{
    const size_t T = padded(shape->T, PANEL), wide = padded(shape->d, PANEL);
    return 24 * T * wide + 4 * QUERIES * wide + 6 * QUERIES * (T + PANEL) + 8 * T; /* for `backward`, which needs more than `forward` */
}

/* Probabilities before they are normalised, (ROWS, T), from scores whose row r may see keys up to `query` + r. Leaves the row's
 * sum, and returns the logarithm of what normalises, to base 2. */
static float soften(bfloat *p, const float *scores, int visible, int end, float scale, float *sum)
{
    __m512 most = _mm512_set1_ps(-INFINITY), total = _mm512_setzero_ps();
    for (int s = 0; s < visible; s += LANES)
        most = _mm512_mask_max_ps(most, first(visible - s), most, _mm512_load_ps(scores + s));
    const float highest = _mm512_reduce_max_ps(most) * scale;
    for (int s = 0; s < end; s += LANES) {
        const __m512 x = _mm512_fmsub_ps(_mm512_load_ps(scores + s), _mm512_set1_ps(scale), _mm512_set1_ps(highest));
        const __m512 value = _mm512_maskz_mov_ps(first(visible - s), power(x));
        total = _mm512_add_ps(total, value);
        store(p + s, value, LANES);
    }
    *sum = _mm512_reduce_add_ps(total);
    return highest + log2f(*sum);
}

static void forward(const Shape *shape, const bfloat *qkv, bfloat *y, float *normaliser, int item, char *memory)
{
    const size_t T = padded(shape->T, PANEL), wide = padded(shape->d, PANEL), C = shape->h * shape->d;
    const int turn = shape->cosine != NULL;
    const float scale = 1.44269504f / sqrtf(shape->d);
    bfloat *q = (bfloat *)memory, *rows = q + T * wide, *p = rows + T * wide;
    uint32_t *keys = (uint32_t *)(p + ROWS * T), *values = keys + T * wide / 2;
    float *scores = (float *)(values + T * wide / 2), *out = scores + ROWS * T;
    qkv += place(shape, item, 3 * C);
    y += place(shape, item, C);
    take(rows, qkv + C, 3 * C, shape, turn);
    pair_columns(keys, rows, shape);
    take(rows, qkv + 2 * C, 3 * C, shape, 0);
    pair_rows(values, rows, shape);
    take(q, qkv, 3 * C, shape, turn);
    for (int t = 0; t < shape->T; t += ROWS) {
        const Left queries = { (uint32_t *)(q + t * wide), wide / 2, 1 }, weights = { (uint32_t *)p, T / 2, 1 };
        const int end = padded(t + ROWS, PANEL);
        float sum[ROWS];
        for (int s = 0; s < end; s += PANEL) {
            Tile tile = { 0 };
            multiply(tile, queries, keys + s * wide / 2, wide / 2);
#pragma GCC unroll 8
            for (int row = 0; row < ROWS; row++)
                memcpy(scores + row * T + s, tile[row], sizeof tile[row]);
        }
        for (int row = 0; row < ROWS; row++) {
            const float logarithm = soften(p + row * T, scores + row * T, t + row + 1, end, scale, &sum[row]);
            if (t + row < shape->T)
                normaliser[(size_t)item * shape->T + t + row] = logarithm;
        }
        for (size_t c = 0; c < wide; c += PANEL) {
            Tile tile = { 0 };
            multiply(tile, weights, values + c * T / 2, (t + ROWS) / 2);
#pragma GCC unroll 8
            for (int row = 0; row < ROWS; row++)
                for (int n = 0; n < 2; n++)
                    _mm512_store_ps(out + row * wide + c + n * LANES, _mm512_div_ps(tile[row][n], _mm512_set1_ps(sum[row])));
        }
        give(y, C, out, t, ROWS, 1, shape, 0);
    }
}

/* Add a left side times panels (of T / 2 rows, from `begin` on) to rows of sums, or `set` them. */
static inline void accumulate(float *sums, Left left, const uint32_t *panels, int T, int wide, int begin, int pairs, int set)
{
    for (int c = 0; c < wide; c += PANEL) {
        Tile tile = { 0 };
#pragma GCC unroll 8
        for (int row = 0; row < ROWS && !set; row++)
            memcpy(tile[row], sums + row * wide + c, sizeof tile[row]);
        multiply(tile, left, panels + c * T / 2 + begin * PANEL, pairs);
#pragma GCC unroll 8
        for (int row = 0; row < ROWS; row++)
            memcpy(sums + row * wide + c, tile[row], sizeof tile[row]);
    }
}

static void backward(const Shape *shape, const bfloat *qkv, const bfloat *y, const float *normaliser, const bfloat *dy, bfloat *dqkv,
                     int item, char *memory)
{
    const size_t T = padded(shape->T, PANEL), wide = padded(shape->d, PANEL), C = shape->h * shape->d, all = T * wide, across = T + PANEL;
    const int turn = shape->cosine != NULL, count = padded(shape->T, ROWS);
    const float scale = 1 / sqrtf(shape->d);
    float *dk = (float *)memory, *dv = dk + all, *dq = dv + all, *level = dq + QUERIES * wide, *base = level + T;
    bfloat *q = (bfloat *)(base + T), *d_out = q + all, *rows = d_out + all, *ds = rows + all;
    /* Probabilities P and the gradient dS of scores, of QUERIES rows, also as pairs of rows: (QUERIES / 2, T) words. */
    uint32_t *p_pairs = (uint32_t *)(ds + QUERIES * across), *ds_pairs = p_pairs + QUERIES / 2 * across;
    uint32_t *keys_t = ds_pairs + QUERIES / 2 * across, *values_t = keys_t + all / 2;
    uint32_t *keys = values_t + all / 2, *queries = keys + all / 2, *d_outs = queries + all / 2;
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i interleave = _mm512_add_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32(0x10001)), _mm512_set1_epi32(16 << 16));
    qkv += place(shape, item, 3 * C);
    dqkv += place(shape, item, 3 * C);
    normaliser += (size_t)item * shape->T;
    take(rows, y + place(shape, item, C), C, shape, 0);
    take(d_out, dy + place(shape, item, C), C, shape, 0);
    pair_rows(d_outs, d_out, shape);
    for (size_t t = 0; t < T; t++) {
        __m512 sum = _mm512_setzero_ps();
        for (size_t i = t * wide; i < (t + 1) * wide; i += PANEL)
            sum = _mm512_dpbf16_ps(sum, (__m512bh)_mm512_loadu_si512(rows + i), (__m512bh)_mm512_loadu_si512(d_out + i));
        base[t] = _mm512_reduce_add_ps(sum);
        level[t] = t < (size_t)shape->T ? normaliser[t] : 0;
    }
    take(rows, qkv + 2 * C, 3 * C, shape, 0);
    pair_columns(values_t, rows, shape);
    take(rows, qkv + C, 3 * C, shape, turn);
    pair_columns(keys_t, rows, shape);
    pair_rows(keys, rows, shape);
    take(q, qkv, 3 * C, shape, turn);
    pair_rows(queries, q, shape);
    for (int begin = 0; begin < count; begin += QUERIES) {
        const int end = begin + QUERIES < count ? begin + QUERIES : count;
        for (int s = 0; s < end; s += PANEL)
            for (int t = s > begin ? s : begin; t < end; t += ROWS) {
                const Left q_rows = { (uint32_t *)(q + t * wide), wide / 2, 1 }, d_out_rows = { (uint32_t *)(d_out + t * wide), wide / 2, 1 };
                Tile p = { 0 }, gradient = { 0 };
                multiply(p, q_rows, keys_t + s * wide / 2, wide / 2);
#pragma GCC unroll 8
                for (int row = 0; row < ROWS; row++)
#pragma GCC unroll 2
                    for (int n = 0; n < 2; n++) {
                        const __m512 x = _mm512_fmsub_ps(p[row][n], _mm512_set1_ps(scale * 1.44269504f), _mm512_set1_ps(level[t + row]));
                        const __m512i key = _mm512_add_epi32(lanes, _mm512_set1_epi32(s + n * LANES));
                        p[row][n] = _mm512_maskz_mov_ps(_mm512_cmple_epi32_mask(key, _mm512_set1_epi32(t + row)), power(x));
                    }
                multiply(gradient, d_out_rows, values_t + s * wide / 2, wide / 2);
                bfloat *ds_row = ds + (t - begin) * across + s;
#pragma GCC unroll 8
                for (int row = 0; row < ROWS; row++) {
                    for (int n = 0; n < 2; n++)
                        gradient[row][n] = _mm512_mul_ps(p[row][n], _mm512_sub_ps(gradient[row][n], _mm512_set1_ps(base[t + row])));
                    _mm512_storeu_si512(ds_row + row * across, (__m512i)_mm512_cvtne2ps_pbh(gradient[row][1], gradient[row][0]));
                }
#pragma GCC unroll 4
                for (int row = 0; row < ROWS; row += 2)
                    for (int n = 0; n < 2; n++) {
                        const size_t at = (t - begin + row) / 2 * across + s + n * LANES;
                        const __m512bh pair = _mm512_cvtne2ps_pbh(p[row + 1][n], p[row][n]);
                        const __m512bh d_pair = _mm512_cvtne2ps_pbh(gradient[row + 1][n], gradient[row][n]);
                        _mm512_store_si512(p_pairs + at, _mm512_permutexvar_epi16(interleave, (__m512i)pair));
                        _mm512_store_si512(ds_pairs + at, _mm512_permutexvar_epi16(interleave, (__m512i)d_pair));
                    }
            }
        for (int t = begin; t < end; t += ROWS)
            accumulate(dq + (t - begin) * wide, (Left){ (uint32_t *)(ds + (t - begin) * across), across / 2, 1 }, keys, T, wide, 0,
                       (t + ROWS) / 2, 1);
        give(dqkv, 3 * C, dq, begin, end - begin, scale, shape, turn);
        for (int s = 0; s < end; s += ROWS) { /* keys, and the queries from `from` on that see them */
            const int from = s > begin ? s : begin, pairs = (end - from) / 2;
            const size_t at = (from - begin) / 2 * across + s;
            accumulate(dk + s * wide, (Left){ ds_pairs + at, 1, across }, queries, T, wide, from / 2, pairs, s >= begin);
            accumulate(dv + s * wide, (Left){ p_pairs + at, 1, across }, d_outs, T, wide, from / 2, pairs, s >= begin);
        }
    }
    give(dqkv + C, 3 * C, dk, 0, shape->T, scale, shape, turn);
    give(dqkv + 2 * C, 3 * C, dv, 0, shape->T, 1, shape, 0);
}

/* y (B, T, C), and the rows' normalisers (B, h, T), from the rows of queries, keys and values, (B, T, 3 C). `memory` is for all
 * threads. */
void attention_forward(const Shape *shape, const bfloat *qkv, bfloat *y, float *normaliser, char *memory)
{
    const size_t share = attention_memory(shape);
#pragma omp parallel for schedule(static) num_threads(shape->threads)
    for (int item = 0; item < shape->B * shape->h; item++)
        forward(shape, qkv, y, normaliser, item, memory + omp_get_thread_num() * share);
}

/* The gradient of qkv, from that of y, dy. */
void attention_backward(const Shape *shape, const bfloat *qkv, const bfloat *y, const float *normaliser, const bfloat *dy,
                        bfloat *dqkv, char *memory)
{
    const size_t share = attention_memory(shape);
#pragma omp parallel for schedule(static) num_threads(shape->threads)
    for (int item = 0; item < shape->B * shape->h; item++)
        backward(shape, qkv, y, normaliser, dy, dqkv, item, memory + omp_get_thread_num() * share);
}
