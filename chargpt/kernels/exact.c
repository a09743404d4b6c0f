/* A GPT in exact arithmetic: the frequencies of the next characters, the same to the bit on every machine. It computes what
 * chargpt/archive/exact_model.py computes in torch; chargpt/archive/exact_arithmetic.py explains why the two agree.
 *
 *     x = E[id] + position                          E: the token embedding (V, C)
 *     x = x + attention(norm(x)) W_proj^T + b       once a layer, and then
 *     x = x + gelu(norm(x) W_up^T + b) W_down^T + b
 *     logits = norm(x) E^T
 *
 * Both factors of every product are rounded to so few bits that its sums are exact, so their order is free. Everything else is
 * one float64 operation at a time: compile with -ffp-contract=off and without -ffast-math or any part of it.
 *
 * The letters are model.py's: C channels, d head size, V vocabulary, here the symbols that have a frequency. Matrices are
 * stored as panels of PANEL outputs, K rows of float32 each, which hold the rounded numbers exactly. The caller owns all memory
 * and divides the texts among threads: calls for different texts share nothing that they write.
 */

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "threads.h"

#if FLT_EVAL_METHOD != 0
#error "this target computes with more than 64 bits, which would change results"
#endif

enum { LANES = 4, PANEL = 2 * LANES, TALL = 4 };

typedef double vector __attribute__((vector_size(LANES * sizeof(double))));
typedef float narrow __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

typedef struct { /* this structure, Layer and Model are also in exact.py */
    const float *weight; /* panels, (N / PANEL, K, PANEL) */
    const double *bias;  /* (N), or NULL */
} Linear;

typedef struct {
    const double *norm_1[2], *norm_2[2]; /* weight and bias (C); a bias may be NULL */
    Linear qkv, proj, up, down;
} Layer;

typedef struct {
    int n_layer, n_head, n_embd, block_size, symbols;
    int bits_width, bits_hidden, bits_head, bits_keys, bits_sum; /* product_bits of C, 4 C, d, block_size; sum_bits of C */
    const Layer *layers;
    const double *norm[2];
    Linear logits;
    const double *tokens;    /* the token embedding, (V, C) */
    const double *positions; /* what is added to it, (block_size, C), or NULL */
    const double *rotary;    /* cosines and sines, (2, block_size, d / 2), or NULL */
} Model;

typedef struct { /* of one text, a part for each layer and head */
    float *keys;   /* (n_layer, h, d, block_size), rounded */
    float *values; /* (n_layer, h, block_size, d), in whole units */
    double *units; /* (n_layer, h, block_size) */
} Cache;

EXPORT size_t exact_linear_size(void) { return sizeof(Linear); }
EXPORT size_t exact_layer_size(void) { return sizeof(Layer); }
EXPORT size_t exact_model_size(void) { return sizeof(Model); }
EXPORT size_t exact_cache_size(void) { return sizeof(Cache); }

static const double NEAREST = 6755399441055744.0; /* 1.5 * 2^52: adding and subtracting it rounds to a whole number */

static inline double from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 2^-bits of the largest power of two in x (n), which counts as at least 2^-64. */
static double unit_of(const double *x, int n, int bits)
{
    double largest = 0x1p-64;
    for (int i = 0; i < n; i++) {
        const double size = fabs(x[i]);
        largest = size > largest ? size : largest;
    }
    uint64_t pattern;
    memcpy(&pattern, &largest, sizeof pattern);
    return from_bits(pattern & 0x7FF0000000000000u) * from_bits((uint64_t)(1023 - bits) << 52);
}

/* y = x (n) rounded to whole multiples of its unit, ties to even. */
static void round_to_bits(double *y, const double *x, int n, int bits)
{
    const double shift = unit_of(x, n, bits) * NEAREST;
    for (int i = 0; i < n; i++)
        y[i] = (x[i] + shift) - shift;
}

/* e^x for x <= 0. */
static inline double exponential(double x)
{
    x = x > -60.0 ? x : -60.0;
    const double n = (x * 1.4426950408889634 + NEAREST) - NEAREST, r = x - n * 0.6931471805599453;
    double p = 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    return p * from_bits((uint64_t)((int64_t)(int)n + 1023) << 52);
}

/* x times the standard normal distribution function of x: Abramowitz and Stegun, 7.1.26. */
static inline double gelu(double x)
{
    const double z = fabs(x) * 0.7071067811865476, t = 1.0 / (z * 0.3275911 + 1.0);
    double p = 1.061405429;
    p = p * t + -1.453152027;
    p = p * t + 1.421413741;
    p = p * t + -0.284496736;
    p = p * t + 0.254829592;
    const double tail = p * t * exponential(-(z * z)) * 0.5;
    return x * (x < 0 ? tail : 1.0 - tail);
}

/* y = LayerNorm of x (C); layer holds weight and bias. */
static void norm(const Model *model, double *y, const double *x, const double *const layer[2])
{
    const int C = model->n_embd;
    double sum = 0, squares = 0;
    round_to_bits(y, x, C, model->bits_sum);
    for (int i = 0; i < C; i++)
        sum += y[i];
    const double mean = sum / C;
    for (int i = 0; i < C; i++)
        y[i] -= mean;
    round_to_bits(y, y, C, model->bits_width);
    for (int i = 0; i < C; i++)
        squares += y[i] * y[i];
    const double deviation = sqrt(squares / C + 1e-5);
    for (int i = 0; i < C; i++)
        y[i] = y[i] / deviation * layer[0][i];
    for (int i = 0; i < C && layer[1]; i++)
        y[i] += layer[1][i];
}

/* One panel: out (rows, PANEL) = in (rows, K) w (K, PANEL). `rows` is a constant, so that all sums stay in registers. */
static inline __attribute__((always_inline)) void tile(
    const int rows, double *out, size_t out_stride, const double *in, size_t K, const float *w)
{
    vector sum[TALL][2] = { 0 };
    for (size_t k = 0; k < K; k++) {
        const vector w0 = __builtin_convertvector(*(const narrow *)(w + k * PANEL), vector);
        const vector w1 = __builtin_convertvector(*(const narrow *)(w + k * PANEL + LANES), vector);
#pragma GCC unroll 4
        for (int row = 0; row < rows; row++) {
            sum[row][0] += in[row * K + k] * w0;
            sum[row][1] += in[row * K + k] * w1;
        }
    }
#pragma GCC unroll 4
    for (int row = 0; row < rows; row++)
        memcpy(out + row * out_stride, sum[row], sizeof sum[row]);
}

/* out (rows, N padded to PANEL) = in (rows, K) W^T + bias; rows of `in` are rounded in place to `bits`. */
static void linear(double *out, double *in, int rows, int K, int N, int bits, const Linear *layer)
{
    const size_t stride = (N + PANEL - 1) / PANEL * PANEL;
    for (int row = 0; row < rows; row++)
        round_to_bits(in + (size_t)row * K, in + (size_t)row * K, K, bits);
    for (size_t n = 0; n < stride; n += PANEL) {
        const float *w = layer->weight + n * K;
        int row = 0;
        for (; row + TALL <= rows; row += TALL)
            tile(TALL, out + row * stride + n, stride, in + (size_t)row * K, K, w);
        double *rest = out + row * stride + n;
        const double *from = in + (size_t)row * K;
        if (rows - row == 3)
            tile(3, rest, stride, from, K, w);
        else if (rows - row == 2)
            tile(2, rest, stride, from, K, w);
        else if (rows - row == 1)
            tile(1, rest, stride, from, K, w);
    }
    for (int row = 0; row < rows && layer->bias; row++)
        for (int n = 0; n < N; n++)
            out[row * stride + n] += layer->bias[n];
}

/* Rotates each pair (x[i], x[i + d / 2]) of a query or key (d) by the angle of its position. */
static void rotate(const Model *model, double *x, int position)
{
    const int half = model->n_embd / model->n_head / 2;
    const double *cosine = model->rotary + (size_t)position * half, *sine = cosine + (size_t)model->block_size * half;
    for (int i = 0; i < half; i++) {
        const double first = x[i], second = x[i + half];
        x[i] = first * cosine[i] - second * sine[i];
        x[i + half] = second * cosine[i] + first * sine[i];
    }
}

/* Stores the key k and value v (d) of one position in one head's part of the cache; k and v are changed. */
static void store(const Model *model, const Cache *cache, size_t head, int position, double *k, double *v)
{
    const int d = model->n_embd / model->n_head, S = model->block_size;
    const double unit = unit_of(v, d, model->bits_keys);
    round_to_bits(k, k, d, model->bits_head);
    round_to_bits(v, v, d, model->bits_keys);
    cache->units[head * S + position] = unit;
    for (int i = 0; i < d; i++) {
        cache->keys[(head * d + i) * S + position] = k[i];
        cache->values[(head * S + position) * d + i] = v[i] / unit;
    }
}

/* out (d) = attention of q (d), which is changed, over the first `length` positions of one head; scores (block_size). */
static void attend(const Model *model, const Cache *cache, size_t head, int length, double *q, double *out, double *scores)
{
    const int d = model->n_embd / model->n_head, S = model->block_size;
    const double scale = 1 / sqrt(d);
    const float *keys = cache->keys + head * d * S, *values = cache->values + head * S * d;
    const double *units = cache->units + head * S;
    double highest = -DBL_MAX, total = 0;
    round_to_bits(q, q, d, model->bits_head);
    memset(scores, 0, length * sizeof *scores);
    for (int i = 0; i < d; i++)
        for (int s = 0; s < length; s++)
            scores[s] += q[i] * keys[(size_t)i * S + s];
    for (int s = 0; s < length; s++) {
        scores[s] *= scale;
        highest = scores[s] > highest ? scores[s] : highest;
    }
    for (int s = 0; s < length; s++)
        scores[s] = exponential(scores[s] - highest);
    /* The largest is 1, so its unit, which rounds the sum, is 2^-bits. */
    const double shift = NEAREST * from_bits((uint64_t)(1023 - model->bits_keys) << 52);
    for (int s = 0; s < length; s++)
        total += (scores[s] + shift) - shift;
    for (int s = 0; s < length; s++)
        scores[s] *= units[s];
    round_to_bits(scores, scores, length, model->bits_keys);
    memset(out, 0, d * sizeof *out);
    for (int s = 0; s < length; s++)
        for (int i = 0; i < d; i++)
            out[i] += scores[s] * values[(size_t)s * d + i];
    for (int i = 0; i < d; i++)
        out[i] /= total;
}

typedef struct { /* what a call computes in; `rows` rows each */
    double *x, *normal, *wide, *mixed, *scores;
} Scratch;

/* x += attention(norm(x)) W_proj^T + b for `count` ids of each text, at positions from `start` on. */
static void attention(const Model *model, int l, const Cache *caches, Scratch at, int start, int count, int rows)
{
    const int C = model->n_embd, h = model->n_head, d = C / h;
    const size_t stride = (3 * C + PANEL - 1) / PANEL * PANEL, back = (C + PANEL - 1) / PANEL * PANEL;
    const Layer *layer = &model->layers[l];
    for (int row = 0; row < rows; row++)
        norm(model, at.normal + (size_t)row * C, at.x + (size_t)row * C, layer->norm_1);
    linear(at.wide, at.normal, rows, C, 3 * C, model->bits_width, &layer->qkv);
    for (int row = 0; row < rows; row++) {
        const Cache *cache = &caches[row / count];
        const int position = start + row % count;
        for (int head = 0; head < h; head++) {
            double *q = at.wide + row * stride + head * d, *k = q + C, *v = k + C;
            if (model->rotary) {
                rotate(model, q, position);
                rotate(model, k, position);
            }
            store(model, cache, (size_t)l * h + head, position, k, v);
            double *out = at.mixed + (size_t)row * C + head * d;
            attend(model, cache, (size_t)l * h + head, position + 1, q, out, at.scores);
        }
    }
    linear(at.normal, at.mixed, rows, C, C, model->bits_width, &layer->proj);
    for (int row = 0; row < rows; row++)
        for (int i = 0; i < C; i++)
            at.x[(size_t)row * C + i] += at.normal[row * back + i];
}

/* x += gelu(norm(x) W_up^T + b) W_down^T + b. */
static void mlp(const Model *model, const Layer *layer, Scratch at, int rows)
{
    const int C = model->n_embd;
    const size_t hidden = (4 * C + PANEL - 1) / PANEL * PANEL, back = (C + PANEL - 1) / PANEL * PANEL;
    for (int row = 0; row < rows; row++)
        norm(model, at.normal + (size_t)row * C, at.x + (size_t)row * C, layer->norm_2);
    linear(at.wide, at.normal, rows, C, 4 * C, model->bits_width, &layer->up);
    for (int row = 0; row < rows; row++)
        for (int i = 0; i < 4 * C; i++)
            at.wide[(size_t)row * 4 * C + i] = gelu(at.wide[row * hidden + i]);
    linear(at.normal, at.wide, rows, 4 * C, C, model->bits_hidden, &layer->down);
    for (int row = 0; row < rows; row++)
        for (int i = 0; i < C; i++)
            at.x[(size_t)row * C + i] += at.normal[row * back + i];
}

/* Whole numbers that are proportional to the probabilities; logits (n). */
static void to_frequencies(int64_t *out, const double *logits, int n)
{
    double highest = logits[0];
    for (int i = 1; i < n; i++)
        highest = logits[i] > highest ? logits[i] : highest;
    for (int i = 0; i < n; i++)
        out[i] = (int64_t)(exponential(logits[i] - highest) * 16777216.0) + 1;
}

/* Reads `count` ids of each text, ids (texts, count), at positions from `start` on. The result, (texts, wanted, symbols), is
 * what follows the last `wanted` of them. Returns 0, or -1 if there is not enough memory. */
EXPORT int exact_read(const Model *model, const Cache *caches, const int64_t *ids, int texts, int start, int count, int wanted,
                      int64_t *result)
{
    const size_t C = model->n_embd, V = (model->symbols + PANEL - 1) / PANEL * PANEL;
    const size_t rows = (size_t)texts * count, last = (size_t)texts * wanted;
    double *memory = malloc((rows * (7 * C + 2 * PANEL) + model->block_size + last * V) * sizeof *memory);
    if (!memory)
        return -1;
    Scratch at = { .x = memory };
    at.normal = at.x + rows * C;
    at.mixed = at.normal + rows * (C + PANEL);
    at.wide = at.mixed + rows * C;
    at.scores = at.wide + rows * (4 * C + PANEL);
    double *logits = at.scores + model->block_size;
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < C; i++) {
            const double token = model->tokens[ids[row] * C + i];
            at.x[row * C + i] = model->positions ? token + model->positions[(start + row % count) * C + i] : token;
        }
    for (int l = 0; l < model->n_layer; l++) {
        attention(model, l, caches, at, start, count, rows);
        mlp(model, &model->layers[l], at, rows);
    }
    for (size_t row = 0; row < last; row++) {
        const size_t from = (row / wanted + 1) * count - wanted + row % wanted;
        norm(model, at.normal + row * C, at.x + from * C, model->norm);
    }
    linear(logits, at.normal, last, C, model->symbols, model->bits_width, &model->logits);
    for (size_t row = 0; row < last; row++)
        to_frequencies(result + row * model->symbols, logits + row * V, model->symbols);
    free(memory);
    return 0;
}
