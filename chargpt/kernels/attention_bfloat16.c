/* Causal self-attention and its gradient, for training in bfloat16: model.py's `reference_attention` between the projections.
 *
 * For one head, with queries Q, keys K and values V, (T, d) each:
 *
 *     forward     L = log2(rowsum(2^(c Q K^T)))     c = log2(e) / sqrt(d); the sum is over the keys up to the query's position
 *                 P = 2^(c Q K^T - L)               softmax of the scores; 0 for keys after the query
 *                 y = P V
 *     backward    D = rowsum(y * dy)
 *                 dV = P^T dy       dP = dy V^T     dS = P * (dP - D)
 *                 dQ = dS K / sqrt(d)               dK = dS^T Q / sqrt(d)
 *
 * As in FlashAttention (arXiv 2205.14135), the forward pass saves L instead of P, and the backward pass computes P again:
 * memory is slower than arithmetic. A thread computes one head of one sequence at a time, whose numbers fit into its cache.
 * Products are of bfloat16 numbers and summed in float32; P and dS are rounded to bfloat16 before they are multiplied again.
 *
 * The letters are model.py's: B sequences, T characters, h heads, d head size, C = h d. The CPU multiplies pairs of bfloat16
 * numbers and adds both products to a sum. The right operand of a product is therefore stored as panels of PANEL columns; a
 * panel is rows of 32-bit words, and a word is a pair of numbers that are neighbours in the direction of the sum. Lengths are
 * padded with zeros to multiples of PANEL; T' and d' are the padded T and d.
 */

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "arithmetic.h"
#include "parallel.h"

#if !defined(__AVX512BF16__) || !defined(__AVX512BW__) || !defined(__AVX512VL__)
#error "needs a CPU that multiplies bfloat16 numbers"
#endif

#define LOG2_E 1.44269504f

enum {
    PANEL = 2 * LANES, /* columns of a panel */
    ROWS = 8,          /* rows computed together: their sums fill half of the registers */
    QUERIES = 64,      /* rows of P and dS that the backward pass holds at a time */
};

typedef uint16_t bfloat, number;

#include "attention.h"

typedef __m512 Tile[ROWS][2]; /* sums, (ROWS, PANEL) */

typedef struct { /* the left operand of a product: word (row, pair) is data[row * row_stride + pair * pair_stride] */
    const uint32_t *data;
    size_t row_stride, pair_stride;
} Left;

/* A mask of the first n lanes: none for n below 0, all for n above LANES. */
static inline __mmask16 first(int n) { return _bzhi_u32(0xffff, n < 0 ? 0 : n > LANES ? LANES : n); }

/* The first n of LANES numbers as float32, zeros for the rest. */
static inline __m512 load(const bfloat *from, int n)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first(n), from)), 16));
}

/* Stores the first n lanes, rounded to bfloat16. */
static inline void store(bfloat *to, __m512 x, int n)
{
    _mm256_mask_storeu_epi16(to, first(n), (__m256i)_mm512_cvtneps_pbh(x));
}

/* 2^x, to one or two units in the last place: a polynomial for the fraction, -1/2 to 1/2, and the exponent for the rest. */
static inline __m512 exp2_ps(__m512 x)
{
    static const float taylor[] = { 1.54035304e-4f, 1.33335581e-3f, 9.61812911e-3f, 5.55041087e-2f,
                                    0.240226507f,   0.693147181f,   1 };
    const __m512 whole = _mm512_roundscale_ps(x, 0), fraction = _mm512_sub_ps(x, whole);
    __m512 p = _mm512_set1_ps(taylor[0]);
    for (int i = 1; i < 7; i++)
        p = _mm512_fmadd_ps(p, fraction, _mm512_set1_ps(taylor[i]));
    return _mm512_scalef_ps(p, whole);
}

/* sum (ROWS, PANEL) += left (ROWS, 2 pairs) panel (2 pairs, PANEL). */
static ALWAYS_INLINE void multiply_add(Tile sum, Left left, const uint32_t *panel, int pairs)
{
    for (int k = 0; k < pairs; k++, left.data += left.pair_stride, panel += PANEL) {
        const __m512bh right[] = { (__m512bh)_mm512_load_si512(panel), (__m512bh)_mm512_load_si512(panel + LANES) };
#pragma GCC unroll 8
        for (int row = 0; row < ROWS; row++) {
            const __m512bh word = (__m512bh)_mm512_set1_epi32(left.data[row * left.row_stride]);
            sum[row][0] = _mm512_dpbf16_ps(sum[row][0], word, right[0]);
            sum[row][1] = _mm512_dpbf16_ps(sum[row][1], word, right[1]);
        }
    }
}

/* Rotates the pairs (x, y) = (numbers i.., numbers d / 2 + i..) of row t by its angles: model.py's `rotate`. The inverse
 * rotation has `direction` -1. */
static inline void rotate_lanes(__m512 *x, __m512 *y, const Shape *shape, int t, int i, float direction)
{
    const int half = shape->d / 2;
    const size_t at = (size_t)t * half + i;
    const __m512 cosine = load(shape->cosine + at, half - i);
    const __m512 sine = _mm512_mul_ps(_mm512_set1_ps(direction), load(shape->sine + at, half - i)), old = *x;
    *x = _mm512_fmsub_ps(old, cosine, _mm512_mul_ps(*y, sine));
    *y = _mm512_fmadd_ps(*y, cosine, _mm512_mul_ps(old, sine));
}

/* rows (T', d') = one head's (T, d), whose rows are `stride` numbers apart in `from`; rotated if `rotary`. */
static void load_head(bfloat *rows, const bfloat *from, size_t stride, const Shape *shape, int rotary)
{
    const int d = shape->d, d_padded = padded(d, PANEL);
    for (int t = 0; t < shape->T; t++, rows += d_padded, from += stride) {
        for (int i = 0; i < d_padded; i += LANES)
            store(rows + i, load(from + i, d - i), LANES);
        for (int i = 0; rotary && i < d / 2; i += LANES) {
            __m512 x = load(from + i, d / 2 - i), y = load(from + i + d / 2, d / 2 - i);
            rotate_lanes(&x, &y, shape, t, i, 1);
            store(rows + i, x, d / 2 - i);
            store(rows + i + d / 2, y, d / 2 - i);
        }
    }
    memset(rows, 0, (padded(shape->T, PANEL) - shape->T) * d_padded * sizeof *rows);
}

/* The reverse of `load_head` for rows [t, t + count) of a head: `to` = scale * rows (count, d'), rotated back if `rotary`. */
static void store_head(bfloat *to, size_t stride, const float *rows, int t, int count, float scale, const Shape *shape,
                       int rotary)
{
    const int d = shape->d, d_padded = padded(d, PANEL), part = rotary ? d / 2 : d;
    const __m512 factor = _mm512_set1_ps(scale);
    for (int end = t + count < shape->T ? t + count : shape->T; t < end; t++, rows += d_padded)
        for (int i = 0; i < part; i += LANES) {
            __m512 x = _mm512_mul_ps(factor, _mm512_loadu_ps(rows + i));
            if (rotary) {
                __m512 y = _mm512_mul_ps(factor, _mm512_maskz_loadu_ps(first(part - i), rows + i + part));
                rotate_lanes(&x, &y, shape, t, i, -1);
                store(to + t * stride + i + part, y, part - i);
            }
            store(to + t * stride + i, x, part - i);
        }
}

/* Panels (d' / PANEL, T' / 2, PANEL) of rows (T', d'), for a product that sums over T: a word is two numbers of one column. */
static void pack_panels(uint32_t *panels, const bfloat *rows, const Shape *shape)
{
    const int d = padded(shape->d, PANEL), T = padded(shape->T, PANEL);
    for (int c = 0; c < d; c += PANEL)
        for (int t = 0; t < T; t += 2)
            for (int i = c; i < c + PANEL; i += LANES, panels += LANES) {
                const bfloat *row = rows + (size_t)t * d + i;
                const __m512i even = (__m512i)load(row, LANES), odd = (__m512i)load(row + d, LANES);
                _mm512_store_si512(panels, _mm512_or_si512(_mm512_srli_epi32(even, 16), odd));
            }
}

/* panels (N / PANEL, K / 2, PANEL) of the transpose of rows (N, K), for a product that sums over K: the words of the rows,
 * transposed in blocks of 16 x 16 by four stages that interleave the lower half of a block with the upper one. N and K are
 * multiples of PANEL. */
static void pack_transpose(uint32_t *panels, const bfloat *rows, int N, int K)
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(LANES / 2));
    const int words = K / 2;
    for (int n = 0; n < N; n += LANES)
        for (int k = 0; k < words; k += LANES) {
            __m512i block[LANES], shuffled[LANES];
            for (int i = 0; i < LANES; i++)
                block[i] = _mm512_loadu_si512((const uint32_t *)rows + (size_t)(n + i) * words + k);
#pragma GCC unroll 4
            for (int stage = 0; stage < 4; stage++) {
#pragma GCC unroll 8
                for (int i = 0; i < LANES / 2; i++) {
                    shuffled[2 * i] = _mm512_permutex2var_epi32(block[i], low, block[i + LANES / 2]);
                    shuffled[2 * i + 1] = _mm512_permutex2var_epi32(block[i], high, block[i + LANES / 2]);
                }
                memcpy(block, shuffled, sizeof block);
            }
            uint32_t *to = panels + (size_t)(n / PANEL) * words * PANEL + k * PANEL + n % PANEL;
            for (int i = 0; i < LANES; i++)
                _mm512_store_si512(to + i * PANEL, block[i]);
        }
}

EXPORT size_t attention_scratch_size(const Shape *shape)
{
    const size_t T = padded(shape->T, PANEL), d = padded(shape->d, PANEL);
    return 24 * T * d + 4 * QUERIES * d + 6 * QUERIES * (T + PANEL) + 8 * T;
}

/* One row of the softmax before the division by its sum: p[s] = 2^(scale * scores[s] - max) for s < visible, 0 up to `end`. max
 * is the largest scale * score; *sum = sum of p. Returns log2 of what normalises the row, max + log2(sum). */
static float softmax_row(bfloat *p, const float *scores, int visible, int end, float scale, float *sum)
{
    __m512 max = _mm512_set1_ps(-INFINITY), total = _mm512_setzero_ps();
    for (int s = 0; s < visible; s += LANES)
        max = _mm512_mask_max_ps(max, first(visible - s), max, _mm512_load_ps(scores + s));
    const float highest = _mm512_reduce_max_ps(max) * scale;
    for (int s = 0; s < end; s += LANES) {
        const __m512 x = _mm512_fmsub_ps(_mm512_load_ps(scores + s), _mm512_set1_ps(scale), _mm512_set1_ps(highest));
        const __m512 value = _mm512_maskz_mov_ps(first(visible - s), exp2_ps(x));
        total = _mm512_add_ps(total, value);
        store(p + s, value, LANES);
    }
    *sum = _mm512_reduce_add_ps(total);
    return highest + log2f(*sum);
}

/* One head: y = P V and L, ROWS queries at a time: S = Q K^T, p = 2^(c S - max) by `softmax_row`, y = p V / rowsum(p).
 * qkv (B, T, 3 C), y (B, T, C), log2_sum (B, h, T) is L. */
static void forward(const Shape *shape, const bfloat *qkv, bfloat *y, float *log2_sum, int item, char *scratch)
{
    const size_t T = padded(shape->T, PANEL), d = padded(shape->d, PANEL), C = shape->h * shape->d;
    const int rotary = shape->cosine != NULL;
    const float scale = LOG2_E / sqrtf(shape->d);
    bfloat *q = (bfloat *)scratch, *rows = q + T * d, *p = rows + T * d;                /* (T', d') twice, (ROWS, T') */
    uint32_t *k_transposed = (uint32_t *)(p + ROWS * T), *v = k_transposed + T * d / 2; /* panels */
    float *scores = (float *)(v + T * d / 2), *out = scores + ROWS * T;                 /* (ROWS, T'), (ROWS, d') */
    qkv += head_offset(shape, item, 3 * C);
    y += head_offset(shape, item, C);
    load_head(rows, qkv + C, 3 * C, shape, rotary);
    pack_transpose(k_transposed, rows, T, d);
    load_head(rows, qkv + 2 * C, 3 * C, shape, 0);
    pack_panels(v, rows, shape);
    load_head(q, qkv, 3 * C, shape, rotary);
    for (int t = 0; t < shape->T; t += ROWS) {
        const Left q_rows = { (uint32_t *)(q + t * d), d / 2, 1 }, p_rows = { (uint32_t *)p, T / 2, 1 };
        const int end = padded(t + ROWS, PANEL);
        float sum[ROWS];
        for (int s = 0; s < end; s += PANEL) {
            Tile tile = { 0 };
            multiply_add(tile, q_rows, k_transposed + s * d / 2, d / 2);
#pragma GCC unroll 8
            for (int row = 0; row < ROWS; row++)
                memcpy(scores + row * T + s, tile[row], sizeof tile[row]);
        }
        for (int row = 0; row < ROWS; row++) {
            const float logarithm = softmax_row(p + row * T, scores + row * T, t + row + 1, end, scale, &sum[row]);
            if (t + row < shape->T)
                log2_sum[(size_t)item * shape->T + t + row] = logarithm;
        }
        for (size_t c = 0; c < d; c += PANEL) {
            Tile tile = { 0 };
            multiply_add(tile, p_rows, v + c * T / 2, (t + ROWS) / 2);
#pragma GCC unroll 8
            for (int row = 0; row < ROWS; row++)
                for (int n = 0; n < 2; n++)
                    _mm512_store_ps(out + row * d + c + n * LANES, _mm512_div_ps(tile[row][n], _mm512_set1_ps(sum[row])));
        }
        store_head(y, C, out, t, ROWS, 1, shape, 0);
    }
}

/* sums (ROWS, d') += left (ROWS, 2 pairs) times rows [2 begin, 2 (begin + pairs)) of panels packed from (T', d'). With
 * `overwrite` the sums start from zero. T and d are padded. */
static inline void accumulate(float *sums, Left left, const uint32_t *panels, int T, int d, int begin, int pairs, int overwrite)
{
    for (int c = 0; c < d; c += PANEL) {
        Tile tile = { 0 };
#pragma GCC unroll 8
        for (int row = 0; row < ROWS && !overwrite; row++)
            memcpy(tile[row], sums + row * d + c, sizeof tile[row]);
        multiply_add(tile, left, panels + c * T / 2 + begin * PANEL, pairs);
#pragma GCC unroll 8
        for (int row = 0; row < ROWS; row++)
            memcpy(sums + row * d + c, tile[row], sizeof tile[row]);
    }
}

typedef struct { /* the scratch memory of `backward`. T and d are padded. */
    size_t T, d, stride;           /* stride = T + PANEL, of rows of P and dS */
    float *dk, *dv, *dq;           /* (T, d), (T, d), (QUERIES, d) */
    float *log2_sum, *row_dot;     /* L and D, (T) each */
    bfloat *q, *dy, *rows;         /* (T, d) each; rows holds y, v and k in turn */
    bfloat *ds;                    /* dS of QUERIES rows, (QUERIES, stride) */
    uint32_t *p_pairs, *ds_pairs;  /* P and dS as pairs of rows, (QUERIES / 2, stride) each */
    uint32_t *k_transposed, *v_transposed, *k_panels, *q_panels, *dy_panels; /* T d / 2 words each */
} Workspace;

static inline Workspace workspace(char *scratch, const Shape *shape)
{
    const size_t T = padded(shape->T, PANEL), d = padded(shape->d, PANEL), size = T * d, stride = T + PANEL;
    Workspace w = { .T = T, .d = d, .stride = stride, .dk = (float *)scratch };
    w.dv = w.dk + size;
    w.dq = w.dv + size;
    w.log2_sum = w.dq + QUERIES * d;
    w.row_dot = w.log2_sum + T;
    w.q = (bfloat *)(w.row_dot + T);
    w.dy = w.q + size;
    w.rows = w.dy + size;
    w.ds = w.rows + size;
    w.p_pairs = (uint32_t *)(w.ds + QUERIES * stride);
    w.ds_pairs = w.p_pairs + QUERIES / 2 * stride;
    w.k_transposed = w.ds_pairs + QUERIES / 2 * stride;
    w.v_transposed = w.k_transposed + size / 2;
    w.k_panels = w.v_transposed + size / 2;
    w.q_panels = w.k_panels + size / 2;
    w.dy_panels = w.q_panels + size / 2;
    return w;
}

/* Loads and packs one head's q, k, v, dy and L, and computes D = rowsum(y * dy). All point to the head's first number. */
static inline void load_operands(const Workspace *w, const Shape *shape, const bfloat *qkv, const bfloat *y,
                                 const float *log2_sum, const bfloat *dy)
{
    const size_t C = shape->h * shape->d;
    const int rotary = shape->cosine != NULL;
    load_head(w->rows, y, C, shape, 0);
    load_head(w->dy, dy, C, shape, 0);
    pack_panels(w->dy_panels, w->dy, shape);
    for (size_t t = 0; t < w->T; t++) {
        __m512 sum = _mm512_setzero_ps();
        for (size_t i = t * w->d; i < (t + 1) * w->d; i += PANEL)
            sum = _mm512_dpbf16_ps(sum, (__m512bh)_mm512_loadu_si512(w->rows + i), (__m512bh)_mm512_loadu_si512(w->dy + i));
        w->row_dot[t] = _mm512_reduce_add_ps(sum);
        w->log2_sum[t] = t < (size_t)shape->T ? log2_sum[t] : 0;
    }
    load_head(w->rows, qkv + 2 * C, 3 * C, shape, 0);
    pack_transpose(w->v_transposed, w->rows, w->T, w->d);
    load_head(w->rows, qkv + C, 3 * C, shape, rotary);
    pack_transpose(w->k_transposed, w->rows, w->T, w->d);
    pack_panels(w->k_panels, w->rows, shape);
    load_head(w->q, qkv, 3 * C, shape, rotary);
    pack_panels(w->q_panels, w->q, shape);
}

/* P = 2^(c q k^T - L) for keys up to the query's position, else 0; dP = dy v^T; dS = P * (dP - D): of ROWS queries from `t` and
 * PANEL keys from `s`, into the rows of P and dS, the first of which is query `begin`. scale = 1 / sqrt(d). */
static ALWAYS_INLINE void score_gradients(const Workspace *w, float scale, int begin, int t, int s)
{
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i twice = _mm512_mullo_epi32(lanes, _mm512_set1_epi32(0x10001)); /* 0 0 1 1 2 2 ... as 16-bit numbers */
    const __m512i interleave = _mm512_add_epi32(twice, _mm512_set1_epi32(16 << 16)); /* 0 16 1 17 2 18 ... */
    const size_t d = w->d, stride = w->stride;
    const Left q_rows = { (uint32_t *)(w->q + t * d), d / 2, 1 }, dy_rows = { (uint32_t *)(w->dy + t * d), d / 2, 1 };
    Tile p = { 0 }, ds = { 0 };
    multiply_add(p, q_rows, w->k_transposed + s * d / 2, d / 2);
#pragma GCC unroll 8
    for (int row = 0; row < ROWS; row++)
#pragma GCC unroll 2
        for (int n = 0; n < 2; n++) {
            const __m512 x = _mm512_fmsub_ps(p[row][n], _mm512_set1_ps(scale * LOG2_E), _mm512_set1_ps(w->log2_sum[t + row]));
            const __m512i key = _mm512_add_epi32(lanes, _mm512_set1_epi32(s + n * LANES));
            p[row][n] = _mm512_maskz_mov_ps(_mm512_cmple_epi32_mask(key, _mm512_set1_epi32(t + row)), exp2_ps(x));
        }
    multiply_add(ds, dy_rows, w->v_transposed + s * d / 2, d / 2);
    bfloat *ds_row = w->ds + (t - begin) * stride + s;
#pragma GCC unroll 8
    for (int row = 0; row < ROWS; row++) {
        for (int n = 0; n < 2; n++)
            ds[row][n] = _mm512_mul_ps(p[row][n], _mm512_sub_ps(ds[row][n], _mm512_set1_ps(w->row_dot[t + row])));
        _mm512_storeu_si512(ds_row + row * stride, (__m512i)_mm512_cvtne2ps_pbh(ds[row][1], ds[row][0]));
    }
#pragma GCC unroll 4
    for (int row = 0; row < ROWS; row += 2)
        for (int n = 0; n < 2; n++) {
            const size_t at = (t - begin + row) / 2 * stride + s + n * LANES;
            const __m512bh p_pair = _mm512_cvtne2ps_pbh(p[row + 1][n], p[row][n]);
            const __m512bh ds_pair = _mm512_cvtne2ps_pbh(ds[row + 1][n], ds[row][n]);
            _mm512_store_si512(w->p_pairs + at, _mm512_permutexvar_epi16(interleave, (__m512i)p_pair));
            _mm512_store_si512(w->ds_pairs + at, _mm512_permutexvar_epi16(interleave, (__m512i)ds_pair));
        }
}

/* One head: dqkv from dy, QUERIES queries at a time: P and dS, then dQ = dS K / sqrt(d) of these queries, and their part of the
 * sums dK = dS^T Q / sqrt(d) and dV = P^T dy. qkv and dqkv (B, T, 3 C), y and dy (B, T, C), log2_sum (B, h, T). */
static void backward(const Shape *shape, const bfloat *qkv, const bfloat *y, const float *log2_sum, const bfloat *dy,
                     bfloat *dqkv, int item, char *scratch)
{
    const Workspace w = workspace(scratch, shape);
    const size_t C = shape->h * shape->d, d = w.d, stride = w.stride, offset = head_offset(shape, item, C);
    const int rotary = shape->cosine != NULL, count = padded(shape->T, ROWS);
    const float scale = 1 / sqrtf(shape->d);
    qkv += head_offset(shape, item, 3 * C);
    dqkv += head_offset(shape, item, 3 * C);
    load_operands(&w, shape, qkv, y + offset, log2_sum + (size_t)item * shape->T, dy + offset);
    for (int begin = 0; begin < count; begin += QUERIES) {
        const int end = begin + QUERIES < count ? begin + QUERIES : count;
        for (int s = 0; s < end; s += PANEL)
            for (int t = s > begin ? s : begin; t < end; t += ROWS)
                score_gradients(&w, scale, begin, t, s);
        for (int t = begin; t < end; t += ROWS) {
            const Left ds_rows = { (uint32_t *)(w.ds + (t - begin) * stride), stride / 2, 1 };
            accumulate(w.dq + (t - begin) * d, ds_rows, w.k_panels, w.T, d, 0, (t + ROWS) / 2, 1);
        }
        store_head(dqkv, 3 * C, w.dq, begin, end - begin, scale, shape, rotary);
        for (int s = 0; s < end; s += ROWS) { /* ROWS keys, and the queries from `from` on that see them */
            const int from = s > begin ? s : begin, pairs = (end - from) / 2;
            const size_t at = (from - begin) / 2 * stride + s;
            accumulate(w.dk + s * d, (Left){ w.ds_pairs + at, 1, stride }, w.q_panels, w.T, d, from / 2, pairs, s >= begin);
            accumulate(w.dv + s * d, (Left){ w.p_pairs + at, 1, stride }, w.dy_panels, w.T, d, from / 2, pairs, s >= begin);
        }
    }
    store_head(dqkv + C, 3 * C, w.dk, 0, shape->T, scale, shape, rotary);
    store_head(dqkv + 2 * C, 3 * C, w.dv, 0, shape->T, 1, shape, 0);
}
