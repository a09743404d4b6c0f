/* Causal self-attention and its gradient, for training in float32: model.py's `reference_attention` between the projections.
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
 * memory is slower than arithmetic. Q is multiplied by c when it is loaded: c (q k) - max could be rounded to more than 0.
 * A thread computes one head of one sequence at a time, whose numbers fit into its cache. With fewer heads than threads, some
 * threads have nothing to do.
 *
 * The letters are model.py's: B sequences, T characters, h heads, d head size, C = h d. Every product is made of tiles of ROWS
 * rows and PANEL columns, whose sums stay in registers. T' and d' are T and d padded with zeros: d' to a multiple of PANEL, T'
 * to the last panel of the last tile.
 */

#include <math.h>
#include <string.h>

#include "arithmetic.h"
#include "parallel.h"

typedef float number;

#include "attention.h"

#if defined(__AVX512F__) || defined(__aarch64__)
enum { ROWS = 12 }; /* the sums of a tile fill three quarters of the registers */
#else
enum { ROWS = 6 };
#endif

enum {
    PANEL = 2 * LANES, /* columns of a tile */
    AHEAD = 16,        /* rows between the one that is read and the one that is fetched into the cache */
    QUERIES = 96,      /* rows of P and dS that the backward pass holds at a time, a multiple of ROWS */
};

#define LOG2_E 1.44269504f

typedef float vector __attribute__((vector_size(4 * LANES)));
typedef vector Tile[ROWS][2];

typedef struct { /* the left operand of a product: number (row, k) is data[row * stride + k * step] */
    const float *data;
    size_t stride, step;
} Left;

static size_t padded_T(const Shape *shape) { return padded(padded(shape->T, ROWS), PANEL); }

/* The numbers 0, 1, 2 ... */
static inline integers counting(void)
{
    integers lanes;
    for (int i = 0; i < LANES; i++)
        lanes[i] = i;
    return lanes;
}

/* Lane by lane, `yes` where the mask is set and `no` elsewhere. */
static inline vector choose(integers mask, vector yes, vector no)
{
    return (vector)((mask & (integers)yes) | (~mask & (integers)no));
}

/* The sum of the lanes. */
static inline float sum_of(vector x)
{
    float part[LANES];
    memcpy(part, &x, sizeof part);
    for (int n = LANES / 2; n; n /= 2)
        for (int i = 0; i < n; i++)
            part[i] += part[i + n];
    return part[0];
}

/* The largest of the lanes. */
static inline float largest_of(vector x)
{
    float part[LANES];
    memcpy(part, &x, sizeof part);
    for (int n = LANES / 2; n; n /= 2)
        for (int i = 0; i < n; i++)
            part[i] = part[i] > part[i + n] ? part[i] : part[i + n];
    return part[0];
}

/* 2^x for x up to 0, to one or two units in the last place: a polynomial for the fraction, -1/2 to 1/2, times a power of 2.
 * Below -64, it is 0: gradients times smaller numbers would be denormal, and CPUs compute with those up to a hundred times
 * slower. */
static inline vector exp2_of(vector x)
{
    const vector zero = { 0 }, rounding = zero + 12583039.0f; /* 1.5 * 2^23 + 127: adding it drops the fraction, */
    const vector whole = x + rounding, f = x - (whole - rounding); /* and leaves the exponent of the power in the lowest bits */
    const vector high = 5.55041087e-2f + f * (9.61812911e-3f + f * (1.33335581e-3f + f * 1.54035304e-4f));
    const vector p = 1 + f * (0.693147181f + f * (0.240226507f + f * high));
    return choose(x < zero - 64, zero, p * (vector)((integers)whole << 23));
}

/* sum (ROWS, PANEL) += left (ROWS, count) right (count, PANEL). Rows of `right` are `stride` numbers apart. */
static ALWAYS_INLINE void multiply_add(Tile sum, Left left, const float *right, size_t stride, int count)
{
    for (int k = 0; k < count; k++, left.data += left.step, right += stride) {
        const vector a = *(const vector *)right, b = *(const vector *)(right + LANES);
#pragma GCC unroll 16
        for (int row = 0; row < ROWS; row++) {
            sum[row][0] += left.data[row * left.stride] * a;
            sum[row][1] += left.data[row * left.stride] * b;
        }
    }
}

/* Stores a tile in rows that are `stride` numbers apart. */
static ALWAYS_INLINE void store_tile(float *to, size_t stride, Tile tile)
{
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; row++, to += stride)
        for (int n = 0; n < 2; n++)
            ((vector *)to)[n] = tile[row][n];
}

/* rows (T', d') = scale times one head's (T, d), whose rows are `stride` numbers apart in `from`; rotated, as by model.py's
 * `rotate`, if `rotary`. */
static void load_head(float *restrict rows, const float *restrict from, size_t stride, float scale, const Shape *shape,
                      int rotary)
{
    const int d = shape->d, half = d / 2, width = padded(d, PANEL);
    const size_t filled = d < width ? 0 : (size_t)shape->T * width; /* numbers without padding */
    memset(rows + filled, 0, (padded_T(shape) * width - filled) * sizeof *rows);
    for (int t = 0; t < shape->T; t++, rows += width, from += stride) {
        const float *cosine = rotary ? shape->cosine + t * half : NULL, *sine = rotary ? shape->sine + t * half : NULL;
        for (int i = 0; i < d; i += 16)
            __builtin_prefetch(from + AHEAD * stride + i);
        for (int i = 0; rotary && i < half; i++) {
            float x = from[i], y = from[i + half];
            rotate(&x, &y, cosine[i], sine[i]);
            rows[i] = scale * x;
            rows[i + half] = scale * y;
        }
        for (int i = 0; !rotary && i < d; i++)
            rows[i] = scale * from[i];
    }
}

/* The reverse of `load_head` for rows [t, t + count) of a head: `to` = scale * rows (count, d'), rotated back if `rotary`. */
static void store_head(float *restrict to, size_t stride, const float *restrict rows, int t, int count, float scale,
                       const Shape *shape, int rotary)
{
    const int d = shape->d, half = d / 2, width = padded(d, PANEL);
    to += t * stride;
    for (int end = t + count < shape->T ? t + count : shape->T; t < end; t++, rows += width, to += stride) {
        const float *cosine = rotary ? shape->cosine + t * half : NULL, *sine = rotary ? shape->sine + t * half : NULL;
        for (int i = 0; rotary && i < half; i++) {
            float x = rows[i], y = rows[i + half];
            rotate(&x, &y, cosine[i], -sine[i]);
            to[i] = scale * x;
            to[i + half] = scale * y;
        }
        for (int i = 0; !rotary && i < d; i++)
            to[i] = scale * rows[i];
    }
}

/* Panels (T' / PANEL, d', PANEL): the transposes of PANEL rows of (T', d') each. A product reads a panel in the order of
 * memory. */
static void pack_transposed(float *restrict to, const float *restrict rows, const Shape *shape)
{
    const size_t T = padded_T(shape), d = padded(shape->d, PANEL);
    for (size_t t = 0; t < T; t += PANEL, to += d * PANEL, rows += d * PANEL)
        for (size_t i = 0; i < d; i += LANES) /* squares that stay in the cache */
            for (size_t row = 0; row < PANEL; row++)
                for (size_t column = i; column < i + LANES; column++)
                    to[column * PANEL + row] = rows[row * d + column];
}

EXPORT size_t attention_scratch_size(const Shape *shape)
{
    const size_t T = padded_T(shape), d = padded(shape->d, PANEL);
    return sizeof(float) * (8 * T * d + QUERIES * d + 2 * QUERIES * T + 2 * T);
}

/* One row of the softmax before the division by its sum, in place: p[s] = 2^(p[s] - max) for s < visible, 0 up to `end`. max is
 * the largest p[s]; *sum is the sum of the results. Returns log2 of what normalises the row, max + log2(sum). */
static float softmax_row(float *p, int visible, int end, float *sum)
{
    const vector none = (vector){ 0 } - INFINITY;
    const integers lanes = counting();
    const int whole = visible / LANES * LANES; /* numbers in vectors that are all visible */
    vector max = none, total = { 0 };
    for (int s = 0; s < visible; s += LANES) {
        const vector all = *(vector *)(p + s), x = s < whole ? all : choose(lanes + s < visible, all, none);
        max = choose(x > max, x, max);
    }
    const float highest = largest_of(max);
    for (int s = 0; s < whole; s += LANES)
        total += *(vector *)(p + s) = exp2_of(*(vector *)(p + s) - highest);
    for (int s = whole; s < end; s += LANES) {
        const vector value = exp2_of(*(vector *)(p + s) - highest);
        total += *(vector *)(p + s) = choose(lanes + s < visible, value, (vector){ 0 });
    }
    *sum = sum_of(total);
    return highest + log2f(*sum);
}

/* One head: y = P V and L, ROWS queries at a time: S = c Q K^T, p = 2^(S - max) by `softmax_row`, y = p V / rowsum(p).
 * qkv (B, T, 3 C), y (B, T, C), log2_sum (B, h, T) is L. */
static void forward(const Shape *shape, const float *qkv, float *y, float *log2_sum, int item, char *scratch)
{
    const size_t T = padded_T(shape), d = padded(shape->d, PANEL), C = shape->h * shape->d;
    const int rotary = shape->cosine != NULL;
    const float scale = LOG2_E / sqrtf(shape->d);
    float *q = (float *)scratch, *rows = q + T * d, *k_transposed = rows + T * d;  /* (T', d') each; the third in panels */
    float *p = k_transposed + T * d, *out = p + ROWS * T;                 /* (ROWS, T'), (ROWS, d') */
    qkv += head_offset(shape, item, 3 * C);
    y += head_offset(shape, item, C);
    log2_sum += (size_t)item * shape->T;
    load_head(rows, qkv + C, 3 * C, 1, shape, rotary);
    pack_transposed(k_transposed, rows, shape);
    load_head(rows, qkv + 2 * C, 3 * C, 1, shape, 0);
    load_head(q, qkv, 3 * C, scale, shape, rotary);
    for (int t = 0; t < shape->T; t += ROWS) {
        const int end = padded(t + ROWS, PANEL);
        float sum[ROWS];
        for (int s = 0; s < end; s += PANEL) {
            Tile tile = { 0 };
            multiply_add(tile, (Left){ q + t * d, d, 1 }, k_transposed + s * d, PANEL, shape->d);
            store_tile(p + s, T, tile);
        }
        for (int row = 0; row < ROWS; row++) {
            const float logarithm = softmax_row(p + row * T, t + row + 1, end, &sum[row]);
            if (t + row < shape->T)
                log2_sum[t + row] = logarithm;
        }
        for (size_t c = 0; c < d; c += PANEL) {
            Tile tile = { 0 };
            multiply_add(tile, (Left){ p, T, 1 }, rows + c, d, t + ROWS);
#pragma GCC unroll 16
            for (int row = 0; row < ROWS; row++)
                for (int n = 0; n < 2; n++)
                    tile[row][n] *= 1 / sum[row];
            store_tile(out + c, d, tile);
        }
        store_head(y, C, out, t, ROWS, 1, shape, 0);
    }
}

/* sums (ROWS, d') += left (ROWS, count) right (count, d'). With `overwrite` the sums start from zero. d is padded. */
static inline void accumulate(float *sums, Left left, const float *right, size_t d, int count, int overwrite)
{
    for (size_t c = 0; c < d; c += PANEL) {
        Tile tile = { 0 };
#pragma GCC unroll 16
        for (int row = 0; row < ROWS && !overwrite; row++)
            for (int n = 0; n < 2; n++)
                tile[row][n] = ((const vector *)(sums + row * d + c))[n];
        multiply_add(tile, left, right + c, d, count);
        store_tile(sums + c, d, tile);
    }
}

typedef struct { /* the scratch memory of `backward`. T and d are padded. */
    size_t T, d;
    float *q, *k, *dy, *k_transposed, *v_transposed, *dk, *dv, *rows; /* T d numbers each; rows holds v and y in turn */
    float *dq, *p, *ds;                                               /* (QUERIES, d), (QUERIES, T) twice */
    float *log2_sum, *row_dot;                                        /* L and D, (T) each */
} Workspace;

static inline Workspace workspace(float *scratch, const Shape *shape)
{
    const size_t T = padded_T(shape), d = padded(shape->d, PANEL), size = T * d;
    Workspace w = { .T = T, .d = d };
    float **parts[] = { &w.q, &w.k, &w.dy, &w.k_transposed, &w.v_transposed, &w.dk, &w.dv, &w.rows };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++, scratch += size)
        *parts[i] = scratch;
    w.dq = scratch;
    w.p = w.dq + QUERIES * d;
    w.ds = w.p + QUERIES * T;
    w.log2_sum = w.ds + QUERIES * T;
    w.row_dot = w.log2_sum + T;
    return w;
}

/* Loads one head's q, k, v, dy and L, and computes D = rowsum(y * dy). All point to the head's first number. */
static inline void load_operands(const Workspace *w, const Shape *shape, const float *qkv, const float *y,
                                 const float *log2_sum, const float *dy)
{
    const size_t C = shape->h * shape->d;
    const int rotary = shape->cosine != NULL;
    load_head(w->rows, y, C, 1, shape, 0);
    load_head(w->dy, dy, C, 1, shape, 0);
    for (size_t t = 0; t < w->T; t++) {
        vector sum = { 0 };
        for (size_t i = t * w->d; i < (t + 1) * w->d; i += LANES)
            sum += *(vector *)(w->rows + i) * *(vector *)(w->dy + i);
        w->row_dot[t] = sum_of(sum);
        w->log2_sum[t] = t < (size_t)shape->T ? log2_sum[t] : 0;
    }
    load_head(w->rows, qkv + 2 * C, 3 * C, 1, shape, 0);
    pack_transposed(w->v_transposed, w->rows, shape);
    load_head(w->k, qkv + C, 3 * C, 1, shape, rotary);
    pack_transposed(w->k_transposed, w->k, shape);
    load_head(w->q, qkv, 3 * C, LOG2_E / sqrtf(shape->d), shape, rotary);
}

/* P = 2^(c q k^T - L) for keys up to the query's position, else 0; dP = dy v^T; dS = P * (dP - D): of ROWS queries from `t` and
 * PANEL keys from `s`, into the rows of P and dS, the first of which is query `begin`. */
static ALWAYS_INLINE void score_gradients(const Workspace *w, const Shape *shape, int begin, int t, int s)
{
    const integers lanes = counting();
    Tile p = { 0 }, ds = { 0 };
    multiply_add(p, (Left){ w->q + t * w->d, w->d, 1 }, w->k_transposed + s * w->d, PANEL, shape->d);
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; row++)
#pragma GCC unroll 2
        for (int n = 0; n < 2; n++) {
            const vector value = exp2_of(p[row][n] - w->log2_sum[t + row]);
            p[row][n] = choose(lanes + (s + n * LANES) <= t + row, value, (vector){ 0 });
        }
    store_tile(w->p + (t - begin) * w->T + s, w->T, p);
    multiply_add(ds, (Left){ w->dy + t * w->d, w->d, 1 }, w->v_transposed + s * w->d, PANEL, shape->d);
    const float *p_row = w->p + (t - begin) * w->T + s;
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; row++)
#pragma GCC unroll 2
        for (int n = 0; n < 2; n++)
            ds[row][n] = *(const vector *)(p_row + row * w->T + n * LANES) * (ds[row][n] - w->row_dot[t + row]);
    store_tile(w->ds + (t - begin) * w->T + s, w->T, ds);
}

/* One head: dqkv from dy, QUERIES queries at a time: P and dS, then dQ = dS K / sqrt(d) of these queries, and their part of the
 * sums dK = dS^T Q / sqrt(d) and dV = P^T dy. qkv and dqkv (B, T, 3 C), y and dy (B, T, C), log2_sum (B, h, T). */
static void backward(const Shape *shape, const float *qkv, const float *y, const float *log2_sum, const float *dy, float *dqkv,
                     int item, char *scratch)
{
    const Workspace w = workspace((float *)scratch, shape);
    const size_t C = shape->h * shape->d, d = w.d, T = w.T, offset = head_offset(shape, item, C);
    const int rotary = shape->cosine != NULL, count = padded(shape->T, ROWS);
    const float scale = 1 / sqrtf(shape->d);
    qkv += head_offset(shape, item, 3 * C);
    dqkv += head_offset(shape, item, 3 * C);
    load_operands(&w, shape, qkv, y + offset, log2_sum + (size_t)item * shape->T, dy + offset);
    for (int begin = 0; begin < count; begin += QUERIES) {
        const int end = begin + QUERIES < count ? begin + QUERIES : count;
        for (int s = 0; s < end; s += PANEL) /* from the tile with query s on: those before it do not see these keys */
            for (int t = s > begin ? s / ROWS * ROWS : begin; t < end; t += ROWS)
                score_gradients(&w, shape, begin, t, s);
        for (int t = begin; t < end; t += ROWS)
            accumulate(w.dq + (t - begin) * d, (Left){ w.ds + (t - begin) * T, T, 1 }, w.k, d, t + ROWS, 1);
        store_head(dqkv, 3 * C, w.dq, begin, end - begin, scale, shape, rotary);
        for (int s = 0; s < end; s += ROWS) { /* ROWS keys, and the queries from `from` on that see them */
            const int from = s > begin ? s : begin;
            const size_t at = (from - begin) * T + s;
            accumulate(w.dk + s * d, (Left){ w.ds + at, 1, T }, w.q + from * d, d, end - from, s >= begin);
            accumulate(w.dv + s * d, (Left){ w.p + at, 1, T }, w.dy + from * d, d, end - from, s >= begin);
        }
    }
    store_head(dqkv + C, 3 * C, w.dk, 0, shape->T, 1 / LOG2_E, shape, rotary);
    store_head(dqkv + 2 * C, 3 * C, w.dv, 0, shape->T, 1, shape, 0);
}
