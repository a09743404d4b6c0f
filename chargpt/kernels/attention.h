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

enum { AHEAD = 16 }; /* rows between the one that is read and the one that is fetched into the cache */

typedef struct { /* attention.py has the same structure */
    int B, T, h, d, threads;
    const number *cosine, *sine; /* (T, d / 2) each; NULL where positions are not rotary */
    const number *qkv, *dy;      /* (B, T, 3 C), and of the backward pass alone (B, T, C) */
    number *y, *dqkv;            /* (B, T, C), and of the backward pass alone (B, T, 3 C) */
    float *log2_sum;             /* L, (B, h, T) */
    char *scratch;               /* attention_scratch_size bytes for each thread, aligned to 64 */
    OpenMP openmp;
} Attention;

typedef vector Tile[ROWS][2];

typedef struct { /* the right operand of a product: rows of words are `row` apart, and panels `panel` */
    const word *data;
    size_t row, panel;
} Right;

EXPORT size_t attention_size(void) { return sizeof(Attention); }

static size_t padded_T(const Attention *a) { return padded(padded(a->T, ROWS), PANEL); }

/* c (q k) - max could be rounded to more than 0. In float32, c is a factor of the queries, so that max is one of the scores; in
 * bfloat16, that would round the queries. */
enum { SCALES_QUERIES = PAIR == 1 };
static inline float query_scale(const Attention *a) { return SCALES_QUERIES ? LOG2_E / sqrtf(a->d) : 1; }
static inline float score_scale(const Attention *a) { return SCALES_QUERIES ? 1 : LOG2_E / sqrtf(a->d); }

/* Where head `item` of the B h heads begins in rows of `width` numbers. In rows of qkv, keys follow C later, values 2 C. */
static size_t head_offset(const Attention *a, int item, size_t width)
{
    return (size_t)(item / a->h) * a->T * width + item % a->h * a->d;
}

/* Rotates the pairs (x, y) = (numbers i.., numbers d / 2 + i..) of row t by its angles: model.py's `rotate`. The inverse
 * rotation has `direction` -1. */
static inline void rotate(vector *x, vector *y, const Attention *a, int t, int i, float direction)
{
    const int half = a->d / 2;
    const size_t at = (size_t)t * half + i;
    const vector cosine = load(a->cosine + at, half - i), sine = direction * load(a->sine + at, half - i), old = *x;
    *x = old * cosine - *y * sine;
    *y = *y * cosine + old * sine;
}

/* rows (T', d') = scale times one head's (T, d), whose rows are `stride` numbers apart in `from`; rotated if `rotary`. */
static void load_head(number *rows, const number *from, size_t stride, float scale, const Attention *a, int rotary)
{
    const int d = a->d, width = padded(d, PANEL), part = rotary ? d / 2 : d;
    for (int t = 0; t < a->T; t++, rows += width, from += stride) {
        for (int i = 0; i < d; i += 64 / sizeof *from)
            __builtin_prefetch(from + AHEAD * stride + i);
        for (int i = 0; i < part; i += LANES) {
            vector x = load(from + i, part - i);
            if (rotary) {
                vector y = load(from + part + i, part - i);
                rotate(&x, &y, a, t, i, 1);
                store(rows + part + i, scale * y, part - i);
            }
            store(rows + i, scale * x, part - i);
        }
        if (d < width)
            memset(rows + d, 0, (width - d) * sizeof *rows);
    }
    memset(rows, 0, (padded_T(a) - a->T) * width * sizeof *rows);
}

/* The reverse of `load_head` for rows [t, t + count) of a head: `to` = scale * rows (count, d'), rotated back if `rotary`. */
static void store_head(number *to, size_t stride, const float *rows, int t, int count, float scale, const Attention *a,
                       int rotary)
{
    const int d = a->d, width = padded(d, PANEL), part = rotary ? d / 2 : d;
    for (int end = t + count < a->T ? t + count : a->T; t < end; t++, rows += width)
        for (int i = 0; i < part; i += LANES) {
            number *const place = to + t * stride + i;
            vector x = *(const vector *)(rows + i), y;
            if (rotary) {
                memcpy(&y, rows + part + i, sizeof y);
                rotate(&x, &y, a, t, i, -1);
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
static ALWAYS_INLINE void multiply_rows(const Attention *a, Tile sum, const number *rows, const word *transposed, int s)
{
    const size_t d = padded(a->d, PANEL), count = padded(a->d, PAIR) / PAIR;
    multiply(ROWS, sum, (Left){ (const word *)rows, d / PAIR, 1 }, transposed + s * d / PAIR, PANEL, count);
}

/* sums (ROWS, d') = or += left (ROWS, count PAIR) times `count` words of the rows of `right` from word `begin` on. */
static inline void accumulate(float *sums, Left left, Right right, size_t d, int begin, int count, int overwrite)
{
    for (size_t c = 0; c < d; c += PANEL, right.data += right.panel)
        multiply_to(sums + c, d, overwrite, ROWS, left, right.data + begin * right.row, right.row, count);
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
        most = larger_of(x, most);
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

typedef struct { /* the scratch memory of a head. T and d are padded. */
    size_t T, d, stride;            /* stride = T + PANEL, of rows of scores, P and dS */
    float *dk, *dv, *sums;          /* (T, d), (T, d), and of y or dQ (QUERIES, d) */
    float *log2_sum, *row_dot;      /* L and D, (T) each */
    number *q, *dy, *rows;          /* (T, d) each; rows holds the others of q, k, v, y in turn */
    word *k_transposed, *v_transposed, *panels[3]; /* (d, T) twice; for k or v, q and dy as right operands */
    word *p, *ds;                   /* P and dS of QUERIES rows as words of PAIR rows, (QUERIES / PAIR, stride) each */
    number *rows_of_words;          /* P or dS as words of PAIR columns, (QUERIES, stride) */
    float *scores;                  /* (ROWS, stride) */
    Right k, q_right, dy_right;
    size_t size;                    /* bytes of all of it */
} Workspace;

/* Divides the scratch memory. With memory NULL, only the size matters. */
static Workspace workspace(char *memory, const Attention *a)
{
    const size_t T = padded_T(a), d = padded(a->d, PANEL), stride = T + PANEL, f = sizeof(float), n = sizeof(number);
    Workspace w = { .T = T, .d = d, .stride = stride };
    size_t *at = &w.size;
    w.dk = take(memory, at, T * d * f);
    w.dv = take(memory, at, T * d * f);
    w.sums = take(memory, at, QUERIES * d * f);
    w.log2_sum = take(memory, at, T * f);
    w.row_dot = take(memory, at, T * f);
    w.q = take(memory, at, T * d * n);
    w.dy = take(memory, at, T * d * n);
    w.rows = take(memory, at, T * d * n);
    w.k_transposed = take(memory, at, T * d * n);
    w.v_transposed = take(memory, at, T * d * n);
    for (int i = 0; i < 3; i++)
        w.panels[i] = take(memory, at, (PAIR - 1) * T * d * n);
    w.p = take(memory, at, QUERIES * stride * n);
    w.ds = take(memory, at, QUERIES * stride * n);
    w.rows_of_words = PAIR == 1 ? (number *)w.ds : take(memory, at, QUERIES * stride * n);
    w.scores = PAIR == 1 ? (float *)w.ds : take(memory, at, ROWS * stride * f);
    return w;
}

/* One head: y = P V and L, ROWS queries at a time: S = Q K^T, p = 2^(c S - max) by `softmax_row`, y = p V / rowsum(p). */
static void forward(const Attention *a, int item, char *scratch)
{
    const Workspace w = workspace(scratch, a);
    const size_t C = a->h * a->d, d = w.d;
    const number *qkv = a->qkv + head_offset(a, item, 3 * C);
    const int rotary = a->cosine != NULL;
    load_head(w.rows, qkv + C, 3 * C, 1, a, rotary);
    pack_transpose(w.k_transposed, w.rows, w.T, d);
    load_head(w.rows, qkv + 2 * C, 3 * C, 1, a, 0);
    const Right v = over_rows(w.panels[0], w.rows, w.T, d);
    load_head(w.q, qkv, 3 * C, query_scale(a), a, rotary);
    for (int t = 0; t < a->T; t += ROWS) {
        const int end = padded(t + ROWS, PANEL);
        float sum[ROWS];
        for (int s = 0; s < end; s += PANEL) {
            const Left q = { (const word *)(w.q + t * d), d / PAIR, 1 };
            multiply_to(w.scores + s, w.stride, 1, ROWS, q, w.k_transposed + s * d / PAIR, PANEL, padded(a->d, PAIR) / PAIR);
        }
        for (int row = 0; row < ROWS; row++) {
            const size_t at = row * w.stride;
            const float L = softmax_row(w.rows_of_words + at, w.scores + at, t + row + 1, end, score_scale(a), &sum[row]);
            if (t + row < a->T)
                a->log2_sum[(size_t)item * a->T + t + row] = L;
        }
        accumulate(w.sums, (Left){ (const word *)w.rows_of_words, w.stride / PAIR, 1 }, v, d, 0, (t + ROWS) / PAIR, 1);
        for (int row = 0; row < ROWS; row++)
            store_head(a->y + head_offset(a, item, C), C, w.sums + row * d, t + row, 1, 1 / sum[row], a, 0);
    }
}

/* Loads and packs what the backward pass of a head reads, and computes D = rowsum(y * dy). */
static void load_operands(Workspace *w, const Attention *a, int item)
{
    const size_t C = a->h * a->d, T = w->T, d = w->d;
    const number *qkv = a->qkv + head_offset(a, item, 3 * C);
    const int rotary = a->cosine != NULL;
    load_head(w->rows, a->y + head_offset(a, item, C), C, 1, a, 0);
    load_head(w->dy, a->dy + head_offset(a, item, C), C, 1, a, 0);
    w->dy_right = over_rows(w->panels[0], w->dy, T, d);
    for (size_t t = 0; t < T; t++) {
        vector sum = { 0 };
        for (size_t i = t * d; i < (t + 1) * d; i += LANES)
            sum += load_numbers(w->rows + i) * load_numbers(w->dy + i);
        w->row_dot[t] = sum_of(sum);
        w->log2_sum[t] = t < (size_t)a->T ? a->log2_sum[(size_t)item * a->T + t] : 0;
    }
    load_head(w->rows, qkv + 2 * C, 3 * C, 1, a, 0);
    pack_transpose(w->v_transposed, w->rows, T, d);
    load_head(w->rows, qkv + C, 3 * C, 1, a, rotary);
    pack_transpose(w->k_transposed, w->rows, T, d);
    w->k = over_rows(w->panels[1], w->rows, T, d);
    load_head(w->q, qkv, 3 * C, query_scale(a), a, rotary);
    w->q_right = over_rows(w->panels[2], w->q, T, d);
}

/* P = 2^(c q k^T - L) for keys up to the query's position, else 0; dP = dy v^T; dS = P * (dP - D): of ROWS queries from `t` and
 * PANEL keys from `s`, into the rows of P and dS, the first of which is query `begin`. */
static ALWAYS_INLINE void score_gradients(const Workspace *w, const Attention *a, int begin, int t, int s)
{
    const integers lanes = counting();
    const float scale = score_scale(a);
    Tile p = { 0 }, ds = { 0 };
    multiply_rows(a, p, w->q + t * w->d, w->k_transposed, s);
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; row++)
#pragma GCC unroll 2
        for (int n = 0; n < 2; n++)
            p[row][n] = exp2_of(p[row][n] * scale - w->log2_sum[t + row]);
    if (s + PANEL > t) /* keys after a query */
#pragma GCC unroll 16
        for (int row = 0; row < ROWS; row++)
#pragma GCC unroll 2
            for (int n = 0; n < 2; n++)
                p[row][n] = choose(lanes + (s + n * LANES) <= t + row, p[row][n], (vector){ 0 });
    multiply_rows(a, ds, w->dy + t * w->d, w->v_transposed, s);
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; row++)
#pragma GCC unroll 2
        for (int n = 0; n < 2; n++) {
            ds[row][n] = p[row][n] * (ds[row][n] - w->row_dot[t + row]);
            if (PAIR > 1)
                store_numbers(w->rows_of_words + (t - begin + row) * w->stride + s + n * LANES, ds[row][n]);
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
 * sums dK = dS^T Q / sqrt(d) and dV = P^T dy. */
static void backward(const Attention *a, int item, char *scratch)
{
    Workspace w = workspace(scratch, a);
    const size_t C = a->h * a->d, d = w.d;
    const int rotary = a->cosine != NULL, count = padded(a->T, ROWS);
    const float scale = 1 / sqrtf(a->d);
    number *dqkv = a->dqkv + head_offset(a, item, 3 * C);
    load_operands(&w, a, item);
    for (int begin = 0; begin < count; begin += QUERIES) {
        const int end = begin + QUERIES < count ? begin + QUERIES : count;
        for (int s = 0; s < end; s += PANEL) /* from the tile with query s on: those before it do not see these keys */
            for (int t = s > begin ? s / ROWS * ROWS : begin; t < end; t += ROWS)
                score_gradients(&w, a, begin, t, s);
        for (int t = begin; t < end; t += ROWS) {
            const Left ds = { (const word *)(w.rows_of_words + (t - begin) * w.stride), w.stride / PAIR, 1 };
            accumulate(w.sums + (t - begin) * d, ds, w.k, d, 0, (t + ROWS) / PAIR, 1);
        }
        store_head(dqkv, 3 * C, w.sums, begin, end - begin, scale, a, rotary);
        for (int s = 0; s < end; s += ROWS) { /* ROWS keys, and the queries from `from` on that see them */
            const int from = s > begin ? s : begin, first = from / PAIR, pairs = (end - from) / PAIR;
            const size_t at = (from - begin) / PAIR * w.stride + s;
            accumulate(w.dk + s * d, (Left){ w.ds + at, 1, w.stride }, w.q_right, d, first, pairs, s >= begin);
            accumulate(w.dv + s * d, (Left){ w.p + at, 1, w.stride }, w.dy_right, d, first, pairs, s >= begin);
        }
    }
    store_head(dqkv + C, 3 * C, w.dk, 0, a->T, SCALES_QUERIES ? 1 / LOG2_E : scale, a, rotary);
    store_head(dqkv + 2 * C, 3 * C, w.dv, 0, a->T, 1, a, 0);
}

static void forward_item(const void *attention, int item, int thread)
{
    const Attention *a = attention;
    forward(a, item, a->scratch + thread * workspace(NULL, a).size);
}

static void backward_item(const void *attention, int item, int thread)
{
    const Attention *a = attention;
    backward(a, item, a->scratch + thread * workspace(NULL, a).size);
}

EXPORT size_t attention_scratch_size(const Attention *a) { return workspace(NULL, a).size; }

/* y and L from qkv. */
EXPORT void attention_forward(const Attention *a) { in_threads(&a->openmp, a->threads, a->B * a->h, forward_item, a); }

/* dqkv, the gradient of qkv, from that of y, dy, and what `attention_forward` computed. */
EXPORT void attention_backward(const Attention *a) { in_threads(&a->openmp, a->threads, a->B * a->h, backward_item, a); }

#endif
