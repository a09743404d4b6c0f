/* Causal self-attention and its gradient, for training: model.py's `reference_attention` between the projections.
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
 * With fewer heads than threads, some threads have nothing to do.
 *
 * The letters are model.py's: B sequences, T characters, h heads, d head size, C = h d. T' and d' are T and d padded with
 * zeros: d' to a multiple of PANEL, T' to the last panel of the last tile of ROWS rows. All sums are float32. In bfloat16, P
 * and dS are rounded before they are multiplied again.
 */

#ifndef CHARGPT_ATTENTION_H
#define CHARGPT_ATTENTION_H

#include "parallel.h"
#include "products.h"

#define LOG2_E 1.44269504f

/* float32 queries are multiplied by c when they are loaded, as c (q k) - max could be rounded to more than 0. In bfloat16 that
 * would round the queries, and the scores are multiplied. */
enum { SCALES_QUERIES = PAIR == 1 };

enum { AHEAD = 16 }; /* rows between the one that is read and the one that is fetched into the cache */

typedef struct { /* attention.py has the same structure */
    int B, T, h, d, threads;
    const number *cosine, *sine; /* (T, d / 2) each; NULL where positions are not rotary */
    OpenMP openmp;
} Shape;

typedef vector Tile[ROWS][2];

typedef struct { /* the right operand of a product: rows of words are `row` apart, and panels `panel` */
    const word *data;
    size_t row, panel;
} Right;

EXPORT size_t attention_shape_size(void) { return sizeof(Shape); }

static size_t padded_T(const Shape *shape) { return padded(padded(shape->T, ROWS), PANEL); }

/* Where head `item` of the B h heads begins in rows of `width` numbers. In rows of qkv, keys follow C later, values 2 C. */
static size_t head_offset(const Shape *shape, int item, size_t width)
{
    return (size_t)(item / shape->h) * shape->T * width + item % shape->h * shape->d;
}

/* The next `bytes` of memory, aligned to 64; *at moves on. With memory NULL, only *at matters. */
static void *take(char *memory, size_t *at, size_t bytes)
{
    const size_t start = *at;
    *at += padded(bytes, 64);
    return memory ? memory + start : NULL;
}

/* Rotates the pairs (x, y) = (numbers i.., numbers d / 2 + i..) of row t by its angles: model.py's `rotate`. The inverse
 * rotation has `direction` -1. */
static inline void rotate(vector *x, vector *y, const Shape *shape, int t, int i, float direction)
{
    const int half = shape->d / 2;
    const size_t at = (size_t)t * half + i;
    const vector cosine = load(shape->cosine + at, half - i), sine = direction * load(shape->sine + at, half - i), old = *x;
    *x = old * cosine - *y * sine;
    *y = *y * cosine + old * sine;
}

/* rows (T', d') = scale times one head's (T, d), whose rows are `stride` numbers apart in `from`; rotated if `rotary`. */
static void load_head(number *rows, const number *from, size_t stride, float scale, const Shape *shape, int rotary)
{
    const int d = shape->d, width = padded(d, PANEL), part = rotary ? d / 2 : d;
    for (int t = 0; t < shape->T; t++, rows += width, from += stride) {
        for (int i = 0; i < d; i += 64 / sizeof *from)
            __builtin_prefetch(from + AHEAD * stride + i);
        for (int i = 0; i < part; i += LANES) {
            vector x = load(from + i, part - i);
            if (rotary) {
                vector y = load(from + part + i, part - i);
                rotate(&x, &y, shape, t, i, 1);
                store(rows + part + i, scale * y, part - i);
            }
            store(rows + i, scale * x, part - i);
        }
        if (d < width)
            memset(rows + d, 0, (width - d) * sizeof *rows);
    }
    memset(rows, 0, (padded_T(shape) - shape->T) * width * sizeof *rows);
}

/* The reverse of `load_head` for rows [t, t + count) of a head: `to` = scale * rows (count, d'), rotated back if `rotary`. */
static void store_head(number *to, size_t stride, const float *rows, int t, int count, float scale, const Shape *shape,
                       int rotary)
{
    const int d = shape->d, width = padded(d, PANEL), part = rotary ? d / 2 : d;
    for (int end = t + count < shape->T ? t + count : shape->T; t < end; t++, rows += width)
        for (int i = 0; i < part; i += LANES) {
            number *const place = to + t * stride + i;
            vector x = *(const vector *)(rows + i), y;
            if (rotary) {
                memcpy(&y, rows + part + i, sizeof y);
                rotate(&x, &y, shape, t, i, -1);
                store(place + part, scale * y, part - i);
            }
            store(place, scale * x, part - i);
        }
}

/* rows (T', d') as the right operand of a sum over the rows: packed in `panels`, unless they can be read as they are. */
static Right over_rows(word *panels, const number *rows, size_t T, size_t d)
{
    if (PAIR == 1)
        return (Right){ (const word *)rows, d, PANEL };
    pack_rows(panels, rows, d, T, d, NULL);
    return (Right){ panels, PANEL, T / PAIR * PANEL };
}

/* sum (ROWS, PANEL) = those of `rows` (ROWS, d') times the columns from `s` on of `transposed`, (d', T') in panels. */
static ALWAYS_INLINE void multiply_rows(const Shape *shape, Tile sum, const number *rows, const word *transposed, int s)
{
    const size_t d = padded(shape->d, PANEL), count = padded(shape->d, PAIR) / PAIR;
    multiply(ROWS, sum, (Left){ (const word *)rows, d / PAIR, 1 }, transposed + s * d / PAIR, PANEL, count);
}

/* sums (ROWS, d') += left (ROWS, count PAIR) times `count` words of the rows of `right` from word `begin` on. With `overwrite`
 * the sums start from zero. */
static inline void accumulate(float *sums, Left left, Right right, size_t d, int begin, int count, int overwrite)
{
    for (size_t c = 0; c < d; c += PANEL, right.data += right.panel) {
        Tile tile = { 0 };
        if (!overwrite)
            load_tile(ROWS, tile, sums + c, d);
        multiply(ROWS, tile, left, right.data + begin * right.row, right.row, count);
        store_tile(ROWS, sums + c, d, tile);
    }
}

/* One row of the softmax before the division by its sum: p[s] = 2^(scale scores[s] - max) for s < visible, 0 up to `end`; p may
 * be `scores`. max is the largest scale * score; *sum = sum of p. Returns log2 of what normalises the row, max + log2(sum). */
static float softmax_row(number *p, const float *scores, int visible, int end, float scale, float *sum)
{
    const vector zero = { 0 }, none = zero - INFINITY;
    const integers lanes = counting();
    const int whole = visible / LANES * LANES; /* numbers in vectors that are all visible */
    vector most = none, total = zero;
    for (int s = 0; s < visible; s += LANES) {
        const vector all = *(const vector *)(scores + s), x = s < whole ? all : choose(lanes + s < visible, all, none);
        most = choose(x > most, x, most);
    }
    const float highest = largest_of(most) * scale;
    for (int s = 0; s < end; s += LANES) {
        vector value = exp2_of(*(const vector *)(scores + s) * scale - highest);
        if (s >= whole)
            value = choose(lanes + s < visible, value, zero);
        total += value;
        store_numbers(p + s, value);
    }
    *sum = sum_of(total);
    return highest + log2f(*sum);
}

/* One head: y = P V and L, ROWS queries at a time: S = Q K^T, p = 2^(c S - max) by `softmax_row`, y = p V / rowsum(p).
 * qkv (B, T, 3 C), y (B, T, C), log2_sum (B, h, T) is L. */
static void forward(const Shape *shape, const number *qkv, number *y, float *log2_sum, int item, char *scratch)
{
    const size_t T = padded_T(shape), d = padded(shape->d, PANEL), C = shape->h * shape->d, bytes = T * d * sizeof(number);
    const int rotary = shape->cosine != NULL;
    const float c = LOG2_E / sqrtf(shape->d);
    size_t at = 0;
    number *q = take(scratch, &at, bytes), *rows = take(scratch, &at, bytes);
    word *k_transposed = take(scratch, &at, bytes), *panels = take(scratch, &at, (PAIR - 1) * bytes);
    float *scores = take(scratch, &at, ROWS * T * sizeof *scores), *out = take(scratch, &at, ROWS * d * sizeof *out);
    number *p = PAIR == 1 ? (number *)scores : take(scratch, &at, ROWS * T * sizeof *p);
    qkv += head_offset(shape, item, 3 * C);
    y += head_offset(shape, item, C);
    log2_sum += (size_t)item * shape->T;
    load_head(rows, qkv + C, 3 * C, 1, shape, rotary);
    pack_transpose(k_transposed, rows, T, d);
    load_head(rows, qkv + 2 * C, 3 * C, 1, shape, 0);
    const Right v = over_rows(panels, rows, T, d);
    load_head(q, qkv, 3 * C, SCALES_QUERIES ? c : 1, shape, rotary);
    for (int t = 0; t < shape->T; t += ROWS) {
        const int end = padded(t + ROWS, PANEL);
        float sum[ROWS];
        for (int s = 0; s < end; s += PANEL) {
            Tile tile = { 0 };
            multiply_rows(shape, tile, q + t * d, k_transposed, s);
            store_tile(ROWS, scores + s, T, tile);
        }
        for (int row = 0; row < ROWS; row++) {
            const float logarithm =
                softmax_row(p + row * T, scores + row * T, t + row + 1, end, SCALES_QUERIES ? 1 : c, &sum[row]);
            if (t + row < shape->T)
                log2_sum[t + row] = logarithm;
        }
        accumulate(out, (Left){ (const word *)p, T / PAIR, 1 }, v, d, 0, (t + ROWS) / PAIR, 1);
        for (int row = 0; row < ROWS; row++)
            store_head(y, C, out + row * d, t + row, 1, 1 / sum[row], shape, 0);
    }
}

typedef struct { /* the scratch memory of `backward`. T and d are padded. */
    size_t T, d, stride;            /* stride = T + PANEL, of rows of P and dS */
    float *dk, *dv, *dq;            /* (T, d), (T, d), (QUERIES, d) */
    float *log2_sum, *row_dot;      /* L and D, (T) each */
    number *q, *dy, *rows;          /* (T, d) each; rows holds y, v and k in turn */
    word *k_transposed, *v_transposed, *panels[3]; /* (d, T) twice; for k, q and dy as right operands */
    word *p, *ds;                   /* P and dS of QUERIES rows as words of PAIR rows, (QUERIES / PAIR, stride) each */
    number *ds_rows;                /* dS as words of PAIR columns, (QUERIES, stride) */
    Right k, q_right, dy_right;
} Workspace;

/* Divides the scratch memory; its size in *size. With memory NULL, only the size. */
static Workspace workspace(char *memory, const Shape *shape, size_t *size)
{
    const size_t T = padded_T(shape), d = padded(shape->d, PANEL), stride = T + PANEL, f = sizeof(float), n = sizeof(number);
    Workspace w = { .T = T, .d = d, .stride = stride };
    size_t at = 0;
    w.dk = take(memory, &at, T * d * f);
    w.dv = take(memory, &at, T * d * f);
    w.dq = take(memory, &at, QUERIES * d * f);
    w.log2_sum = take(memory, &at, T * f);
    w.row_dot = take(memory, &at, T * f);
    w.q = take(memory, &at, T * d * n);
    w.dy = take(memory, &at, T * d * n);
    w.rows = take(memory, &at, T * d * n);
    w.k_transposed = take(memory, &at, T * d * n);
    w.v_transposed = take(memory, &at, T * d * n);
    for (int i = 0; i < 3; i++)
        w.panels[i] = take(memory, &at, (PAIR - 1) * T * d * n);
    w.p = take(memory, &at, QUERIES * stride * n);
    w.ds = take(memory, &at, QUERIES * stride * n);
    w.ds_rows = PAIR == 1 ? (number *)w.ds : take(memory, &at, QUERIES * stride * n);
    *size = at;
    return w;
}

/* Loads and packs one head's q, k, v, dy and L, and computes D = rowsum(y * dy). All point to the head's first number. */
static void load_operands(Workspace *w, const Shape *shape, const number *qkv, const number *y, const float *log2_sum,
                          const number *dy)
{
    const size_t C = shape->h * shape->d, T = w->T, d = w->d;
    const int rotary = shape->cosine != NULL;
    load_head(w->rows, y, C, 1, shape, 0);
    load_head(w->dy, dy, C, 1, shape, 0);
    w->dy_right = over_rows(w->panels[0], w->dy, T, d);
    for (size_t t = 0; t < T; t++) {
        vector sum = { 0 };
        for (size_t i = t * d; i < (t + 1) * d; i += LANES)
            sum += load_numbers(w->rows + i) * load_numbers(w->dy + i);
        w->row_dot[t] = sum_of(sum);
        w->log2_sum[t] = t < (size_t)shape->T ? log2_sum[t] : 0;
    }
    load_head(w->rows, qkv + 2 * C, 3 * C, 1, shape, 0);
    pack_transpose(w->v_transposed, w->rows, T, d);
    load_head(w->rows, qkv + C, 3 * C, 1, shape, rotary);
    pack_transpose(w->k_transposed, w->rows, T, d);
    w->k = over_rows(w->panels[1], w->rows, T, d);
    load_head(w->q, qkv, 3 * C, SCALES_QUERIES ? LOG2_E / sqrtf(shape->d) : 1, shape, rotary);
    w->q_right = over_rows(w->panels[2], w->q, T, d);
}

/* P = 2^(c q k^T - L) for keys up to the query's position, else 0; dP = dy v^T; dS = P * (dP - D): of ROWS queries from `t` and
 * PANEL keys from `s`, into the rows of P and dS, the first of which is query `begin`. */
static ALWAYS_INLINE void score_gradients(const Workspace *w, const Shape *shape, int begin, int t, int s)
{
    const integers lanes = counting();
    const float scale = SCALES_QUERIES ? 1 : LOG2_E / sqrtf(shape->d);
    Tile p = { 0 }, ds = { 0 };
    multiply_rows(shape, p, w->q + t * w->d, w->k_transposed, s);
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; row++)
#pragma GCC unroll 2
        for (int n = 0; n < 2; n++) {
            const vector value = exp2_of(p[row][n] * scale - w->log2_sum[t + row]);
            p[row][n] = value;
        }
    if (s + PANEL > t) /* keys after a query */
#pragma GCC unroll 16
        for (int row = 0; row < ROWS; row++)
#pragma GCC unroll 2
            for (int n = 0; n < 2; n++)
                p[row][n] = choose(lanes + (s + n * LANES) <= t + row, p[row][n], (vector){ 0 });
    multiply_rows(shape, ds, w->dy + t * w->d, w->v_transposed, s);
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; row++)
#pragma GCC unroll 2
        for (int n = 0; n < 2; n++) {
            ds[row][n] = p[row][n] * (ds[row][n] - w->row_dot[t + row]);
            if (PAIR > 1)
                store_numbers(w->ds_rows + (t - begin + row) * w->stride + s + n * LANES, ds[row][n]);
        }
    const size_t at = (t - begin) / PAIR * w->stride + s;
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; row += PAIR)
#pragma GCC unroll 2
        for (int n = 0; n < 2; n++) {
            ((words *)(w->p + at + row / PAIR * w->stride))[n] = rounded(p[row][n], p[row + PAIR - 1][n]);
            ((words *)(w->ds + at + row / PAIR * w->stride))[n] = rounded(ds[row][n], ds[row + PAIR - 1][n]);
        }
}

/* One head: dqkv from dy, QUERIES queries at a time: P and dS, then dQ = dS K / sqrt(d) of these queries, and their part of the
 * sums dK = dS^T Q / sqrt(d) and dV = P^T dy. qkv and dqkv (B, T, 3 C), y and dy (B, T, C), log2_sum (B, h, T). */
static void backward(const Shape *shape, const number *qkv, const number *y, const float *log2_sum, const number *dy,
                     number *dqkv, int item, char *scratch)
{
    size_t size;
    Workspace w = workspace(scratch, shape, &size);
    const size_t C = shape->h * shape->d, d = w.d, offset = head_offset(shape, item, C);
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
        for (int t = begin; t < end; t += ROWS) {
            const Left ds = { (const word *)(w.ds_rows + (t - begin) * w.stride), w.stride / PAIR, 1 };
            accumulate(w.dq + (t - begin) * d, ds, w.k, d, 0, (t + ROWS) / PAIR, 1);
        }
        store_head(dqkv, 3 * C, w.dq, begin, end - begin, scale, shape, rotary);
        for (int s = 0; s < end; s += ROWS) { /* ROWS keys, and the queries from `from` on that see them */
            const int from = s > begin ? s : begin, first = from / PAIR, pairs = (end - from) / PAIR;
            const size_t at = (from - begin) / PAIR * w.stride + s;
            accumulate(w.dk + s * d, (Left){ w.ds + at, 1, w.stride }, w.q_right, d, first, pairs, s >= begin);
            accumulate(w.dv + s * d, (Left){ w.p + at, 1, w.stride }, w.dy_right, d, first, pairs, s >= begin);
        }
    }
    store_head(dqkv + C, 3 * C, w.dk, 0, shape->T, SCALES_QUERIES ? 1 / LOG2_E : scale, shape, rotary);
    store_head(dqkv + 2 * C, 3 * C, w.dv, 0, shape->T, 1, shape, 0);
}

typedef struct { /* the arguments of attention_forward or attention_backward */
    const Shape *shape;
    const number *qkv, *dy;
    number *y, *dqkv;
    float *log2_sum;
    char *scratch;
    size_t scratch_size;
} Arguments;

static void forward_item(const void *arguments, int item, int thread)
{
    const Arguments *a = arguments;
    forward(a->shape, a->qkv, a->y, a->log2_sum, item, a->scratch + thread * a->scratch_size);
}

static void backward_item(const void *arguments, int item, int thread)
{
    const Arguments *a = arguments;
    backward(a->shape, a->qkv, a->y, a->log2_sum, a->dy, a->dqkv, item, a->scratch + thread * a->scratch_size);
}

/* Bytes of scratch memory, aligned to 64, that each thread needs: those of `backward`, which needs more than `forward`. */
EXPORT size_t attention_scratch_size(const Shape *shape)
{
    size_t size;
    workspace(NULL, shape, &size);
    return size;
}

/* y (B, T, C) and L, log2_sum (B, h, T), from the queries, keys and values, qkv (B, T, 3 C). `scratch` is for all threads. */
EXPORT void attention_forward(const Shape *shape, const number *qkv, number *y, float *log2_sum, char *scratch)
{
    const Arguments arguments = { shape, qkv, NULL, y, NULL, log2_sum, scratch, attention_scratch_size(shape) };
    in_threads(&shape->openmp, shape->threads, shape->B * shape->h, forward_item, &arguments);
}

/* dqkv (B, T, 3 C), the gradient of qkv, from that of y, dy (B, T, C), and what `attention_forward` computed. */
EXPORT void attention_backward(const Shape *shape, const number *qkv, number *y, float *log2_sum, const number *dy,
                               number *dqkv, char *scratch)
{
    const Arguments arguments = { shape, qkv, dy, y, dqkv, log2_sum, scratch, attention_scratch_size(shape) };
    in_threads(&shape->openmp, shape->threads, shape->B * shape->h, backward_item, &arguments);
}

#endif
