/* A GPT's next characters: the arithmetic of model.py in float32 and the sampling rules of chargpt/sampling/rules.py.
 *
 *     x = E[id] + position                          E: the token embedding (V, C)
 *     x = x + attention(norm(x)) W_proj^T + b       once a layer, and then
 *     x = x + gelu(norm(x) W_up^T + b) W_down^T + b
 *     logits = norm(x) E^T
 *
 * The speed of a small model is limited by the memory bandwidth for reading its weights. They are therefore stored in the order of
 * use, and each is read once for all rows (characters) at hand.
 *
 * Threads share the work as the GPUs of Megatron-LM do (arXiv 1909.08053): each owns some heads and some of the MLP's hidden
 * units, so that threads wait for each other only twice a layer. Every thread computes the cheap parts, the residual stream and
 * the norms, for itself.
 *
 * The letters are model.py's: C channels, d head size, V vocabulary. Rows of numbers are padded to a multiple of PANEL. A layer
 * of K inputs and N outputs is stored as panels of PANEL outputs: K rows of weights, then one of biases, K padded with zeros to
 * a multiple of STEP. chargpt/sampling/c_texts.py writes this layout.
 *
 * Weights are float32, bfloat16 or int8. A 32-bit word then holds the weights of 1, 2 or 4 vectors in one lane, the first one in
 * the lowest bits. With int8, a row of scales follows the biases, and a weight is its number times its output's scale.
 * Everything else, and all arithmetic, is float32.
 */

#define _GNU_SOURCE /* declares sched_getcpu and sched_setaffinity */

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __linux__
#include <sched.h>
#endif

#include "arithmetic.h"
#include "threads.h"

#if defined(__AVX512F__) || defined(__aarch64__)
enum { TALL = 6 }; /* the sums of TALL rows of a panel fill the registers */
#else
enum { TALL = 3 };
#endif

enum { AS_FLOAT32, AS_BFLOAT16, AS_INT8 }; /* how weights are stored: Shape.precision */

enum {
    WIDE = 4,             /* vectors in a panel */
    PANEL = WIDE * LANES, /* outputs computed together */
    DEEP = 128,           /* inputs of a panel that stay in the first cache, a multiple of STEP */
    STEP = 2,             /* inputs summed separately when there is one row */
    ROWS = 96,            /* rows that go through the layers together */
    KEYS = 64,            /* keys stored side by side */
    FREE = 10,            /* characters that may repeat without a penalty, as in chargpt/sampling/rules.py */
    SUMMED = 256,         /* chances of ids summed at a time when one is drawn */
    LINE = 16,            /* numbers in a cache line, */
    ALIGNMENT = 64,       /* which are so many bytes, as are those of the widest vector */
    SPINS = 3000,         /* reads of a variable before a thread sleeps: about 100 microseconds, */
    EAGER_SPINS = 1000,   /* the first of them without a pause */
    TRIAL = 2,            /* steps for which one thread is tried instead of all, or all instead of one; the last is timed */
    FIRST_TRIAL = 4,      /* steps before the first trial, */
    NEXT_TRIAL = 1024,    /* between later ones of one thread, */
    SHORTEST_WAIT = 32,   /* and of all threads: twice as long each time */
    LONGEST_WAIT = 1024,
    MEAN_OF = 256,
};

typedef struct { /* this structure, Share and Rules are also in c_texts.py */
    int n_layer, n_head, n_embd, block_size, vocab_size, texts, ranks, precision;
    const float *tokens;    /* the token embedding, (V, C) */
    const float *positions; /* what is added to it, (block_size, C), or NULL */
    const float *rotary;    /* cosines and sines, (2, block_size, d / 2), or NULL */
    float *logits;          /* output, (texts, V padded to PANEL) */
} Shape;

typedef struct { /* a thread's part of the model: numbers of heads and of hidden units, and the ids whose logits it computes */
    int heads, hidden, first_id, ids;
    int capacity;         /* positions that the cache has memory for, a multiple of KEYS; it may grow between two runs */
    const char *weights;
    float *keys, *values; /* the cache, see `cache_offset`; zeros where nothing was stored */
    char *scratch;        /* decoder_scratch_size bytes of zeros, aligned */
} Share;

typedef struct { /* rows are `stride` numbers apart */
    float *data;
    size_t stride;
} Matrix;

typedef struct {
    float value;
    int id;
} Candidate;

typedef struct { /* rules of chargpt/sampling/rules.py; temperature 0 takes the likeliest id */
    double repetition_penalty;
    float temperature, top_p, min_p;
    int top_k, known, window; /* ids of each text in `history`, and how many of them are searched for repetitions */
    const uint8_t *forbidden; /* (V,): 1 for an id that must not be chosen */
    int64_t *history;         /* (texts, known + steps), with room for the ids that are chosen; used by the penalty alone */
} Rules;

typedef struct { /* one step: read `count` ids of each text, then choose one more for each unless `chosen` is NULL */
    const Rules *rules;
    const int64_t *ids;
    const double *uniform;
    int64_t *chosen;
    float *log_probabilities;
    int start, count, step, steps;
    int active; /* threads that take part: all, or the caller's alone */
    int core;   /* of the caller */
} Job;

typedef struct { /* how long steps take with all threads [0] and with the caller's alone [1]; see `choose_alone` */
    double seconds[2];      /* mean of the last MEAN_OF steps or so, for a row of ids */
    int timed[2];           /* steps that the mean is of; 0 if there is none */
    int alone;              /* 1 if the caller's thread is in use, 0 if all are */
    int until_trial, trial; /* steps until the other is tried, and steps left of a trial */
    int wait;               /* value of until_trial after the next change to one thread */
    int count;              /* of the last step */
} Pace;

typedef struct { /* a share of the model, and the thread that computes it */
    const Share *share;
    int rows;                       /* number of rows in x, */
    int text[ROWS], position[ROWS]; /* and the text and the position of each */
    Matrix x, normal;               /* the residual stream, and the norm's output, (ROWS, C) each */
    Matrix qkv, mixed, hidden;      /* q k v, attention's output, and the MLP's hidden units */
    Matrix partial[2];              /* what its heads, and its hidden units, add to x, (ROWS, C) each */
    const char *next_weights;       /* in the order of use */
    float *scores;                  /* (block_size padded to KEYS) */
    Candidate *candidates;          /* (V,), for choosing an id */
    float *chances, *adjusted;      /* (V,) each, the same */
    Thread thread;
    struct Decoder *decoder;
} Rank;

typedef struct Decoder {
    Shape shape;
    Job job;
    Pace pace;
    atomic_int arrived;  /* threads that wait at the barrier */
    atomic_int barriers; /* barriers passed */
    atomic_int jobs;     /* jobs started */
    atomic_int sleepers; /* threads that wait for `counted` */
    bool stop;           /* the next job is none: threads end */
    long process;        /* the one that has the threads: a forked child has a copy of everything else */
    Lock lock;
    Condition counted; /* `barriers` or `jobs` has changed */
    int ranks; /* rank 0 is computed by the caller's thread, each other one by a thread of the decoder */
    Rank rank[];
} Decoder;

EXPORT const int decoder_panel = PANEL, decoder_lanes = LANES, decoder_step = STEP, decoder_keys = KEYS, decoder_line = LINE;

EXPORT size_t decoder_shape_size(void) { return sizeof(Shape); }
EXPORT size_t decoder_share_size(void) { return sizeof(Share); }
EXPORT size_t decoder_rules_size(void) { return sizeof(Rules); }

/* Tells the CPU that this is a loop that waits. */
static inline void pause_spinning(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline float min(float a, float b) { return a < b ? a : b; }
static inline float max(float a, float b) { return a > b ? a : b; }

/* e^x to a few units in the last place; 0 where e^x is below the smallest normal number. */
static inline float exponential(float x)
{
    float bounded = max(min(x, 88.0f), -87.0f);
    float n = rintf(bounded * 1.44269504f), r = bounded - n * 0.693147181f; /* x = n ln 2 + r */
    float p = 1 + r * (1 + r * (0.5f + r * (1 / 6.0f + r * (1 / 24.0f + r * (1 / 120.0f + r * (1 / 720.0f))))));
    union { int32_t bits; float value; } power = { ((int32_t)n + 127) << 23 };
    return x < -87.0f ? 0.0f : p * power.value;
}

/* x times the standard normal distribution function of x, with the error function of Abramowitz and Stegun, 7.1.26. */
static inline float gelu(float x)
{
    float z = fabsf(x) * 0.707106781f, t = 1 / (1 + 0.3275911f * z);
    float p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    float tail = 0.5f * p * exponential(-z * z);
    return x * (x < 0 ? tail : 1 - tail);
}

/* The part of m that begins at (row, column). */
static inline Matrix part_of(Matrix m, int row, size_t column)
{
    return (Matrix){ m.data + row * m.stride + column, m.stride };
}

/* The n-th vector of weights at w, in float32. `precision` is a constant. */
static ALWAYS_INLINE vector load_weights(const int precision, const char *w, size_t n)
{
    const integers *words = (const integers *)w;
    if (precision == AS_BFLOAT16) /* the upper half of a float32 */
        return (vector)(n % 2 ? words[n / 2] & -65536 : words[n / 2] << 16);
    if (precision == AS_INT8)
        return __builtin_convertvector((words[n / 4] << (24 - 8 * (n % 4))) >> 24, vector);
    return (vector)words[n];
}

static inline size_t weight_size(int precision) { return precision == AS_FLOAT32 ? 4 : precision == AS_BFLOAT16 ? 2 : 1; }

/* A piece of a panel: out (rows, PANEL) = or += in (rows, K) w (K, PANEL), plus `bias` (PANEL), times the scales behind it, unless
 * it is NULL. `precision` and `rows` are constants, so that all sums stay in registers; `add` is for rows > 1. A tile of TALL rows
 * takes long enough to fetch K lines of memory, those at `next`. */
static ALWAYS_INLINE void tile(const int precision, const int rows, Matrix out, Matrix in, size_t K,
                                                       const char *w, const vector *bias, bool add, const char *next)
{
    const int parts = rows == 1 ? STEP : 1; /* an addition waits for the one before it, so one row alone has two sums */
    vector sum[STEP][TALL][WIDE] = { 0 };
#pragma GCC unroll 8
    for (int row = 0; row < rows && add; row++)
#pragma GCC unroll 8
        for (int n = 0; n < WIDE; n++)
            sum[0][row][n] = ((const vector *)(out.data + row * out.stride))[n];
    for (size_t k = 0; k < K; k += parts) {
        if (rows == TALL)
            __builtin_prefetch(next + k * ALIGNMENT);
#pragma GCC unroll 8
        for (int part = 0; part < parts; part++)
#pragma GCC unroll 8
            for (int n = 0; n < WIDE; n++) {
                const vector weights = load_weights(precision, w, (k + part) * WIDE + n);
#pragma GCC unroll 8
                for (int row = 0; row < rows; row++)
                    sum[part][row][n] += in.data[row * in.stride + k + part] * weights;
            }
    }
#pragma GCC unroll 8
    for (int row = 0; row < rows; row++)
#pragma GCC unroll 8
        for (int n = 0; n < WIDE; n++) {
            vector *y = (vector *)(out.data + row * out.stride) + n;
            if (!bias)
                *y = sum[0][row][n];
            else if (precision == AS_INT8)
                *y = bias[n] + (sum[0][row][n] + sum[1][row][n]) * bias[WIDE + n];
            else
                *y = bias[n] + sum[0][row][n] + sum[1][row][n];
        }
}

/* `linear` for a constant `precision`. Rows for several tiles take a piece of a panel after the other, which stays in the first
 * cache for all of them, and fetch the next one. */
static ALWAYS_INLINE const char *linear_in(
    const int precision, Matrix out, Matrix in, int rows, size_t K, size_t N, const char *w)
{
    const size_t line = PANEL * weight_size(precision), most = rows > 2 * TALL ? DEEP : K;
    for (size_t n = 0, k, count; n < N; n += PANEL) {
        const vector *const bias = (const vector *)(w + K * line);
        if (rows == 1)
            tile(precision, 1, part_of(out, 0, n), in, K, w, bias, false, NULL);
        for (k = 0; rows > 1; k += count) {
            count = K - k < most ? K - k : most;
            const vector *const last = k + count == K ? bias : NULL;
            const char *piece = w + k * line, *next = piece + count * line;
            int row = 0;
            for (; row + TALL <= rows; row += TALL, next += count * ALIGNMENT)
                tile(precision, TALL, part_of(out, row, n), part_of(in, row, k), count, piece, last, k > 0, next);
            for (; row + 2 <= rows; row += 2)
                tile(precision, 2, part_of(out, row, n), part_of(in, row, k), count, piece, last, k > 0, NULL);
            if (row < rows && last) /* the whole panel, as one row has two sums */
                tile(precision, 1, part_of(out, row, n), part_of(in, row, 0), K, w, last, false, NULL);
            if (last)
                break;
        }
        w = (const char *)(bias + (precision == AS_INT8 ? 2 : 1) * WIDE);
    }
    return w;
}

/* out (rows, N) = in (rows, K) W^T (K, N) + b (N). Returns where the next weights begin. */
static const char *linear(const Shape *shape, Matrix out, Matrix in, int rows, size_t K, size_t N, const char *w)
{
    K = padded(K, STEP);
    if (shape->precision == AS_BFLOAT16)
        return linear_in(AS_BFLOAT16, out, in, rows, K, N, w);
    if (shape->precision == AS_INT8)
        return linear_in(AS_INT8, out, in, rows, K, N, w);
    return linear_in(AS_FLOAT32, out, in, rows, K, N, w);
}

/* LayerNorm of rows of C numbers: out = (in - mean) / sqrt(variance + 1e-5) * w + bias. Returns where the next weights
 * begin. */
static const char *norm(Matrix out, Matrix in, int rows, int C, const char *weights)
{
    const float *w = (const float *)weights, *bias = w + in.stride;
    for (int row = 0; row < rows; row++) {
        const float *x = in.data + row * in.stride;
        float *y = out.data + row * out.stride, mean = 0, variance = 0;
        for (int i = 0; i < C; i++)
            mean += x[i];
        mean /= C;
        for (int i = 0; i < C; i++)
            variance += (x[i] - mean) * (x[i] - mean);
        const float scale = 1 / sqrtf(variance / C + 1e-5f);
        for (int i = 0; i < C; i++)
            y[i] = (x[i] - mean) * scale * w[i] + bias[i];
    }
    return (const char *)(bias + in.stride);
}

/* Returns when `counter` is no longer `old`. The thread spins for a while, as threads usually arrive soon after each other, and
 * then sleeps: if another program has the core of the thread it waits for, spinning takes time from both. Beside ten busy
 * programs, that wrote 1.4 to 2.5 times as much as to yield the core and look again. */
static void await_change(Decoder *decoder, atomic_int *counter, int old)
{
    for (int spins = 0; spins < SPINS; spins++) {
        if (atomic_load(counter) != old)
            return;
        if (spins > EAGER_SPINS)
            pause_spinning();
    }
    lock_take(&decoder->lock);
    atomic_fetch_add(&decoder->sleepers, 1); /* before the counter is read again: either side sees what the other has done */
    while (atomic_load(counter) == old)
        condition_wait(&decoder->counted, &decoder->lock);
    atomic_fetch_sub(&decoder->sleepers, 1);
    lock_give(&decoder->lock);
}

/* Adds 1 to `counter` and wakes the threads that sleep. */
static void count_up(Decoder *decoder, atomic_int *counter)
{
    atomic_fetch_add(counter, 1);
    if (atomic_load(&decoder->sleepers)) {
        lock_take(&decoder->lock);
        condition_wake_all(&decoder->counted);
        lock_give(&decoder->lock);
    }
}

/* Returns when every active thread has called it. */
static void barrier(Decoder *decoder)
{
    const int active = decoder->job.active, passed = atomic_load(&decoder->barriers);
    if (active == 1)
        return;
    if (atomic_fetch_add(&decoder->arrived, 1) + 1 == active) { /* from here on the job may be another one */
        atomic_store(&decoder->arrived, 0);
        count_up(decoder, &decoder->barriers);
    } else {
        await_change(decoder, &decoder->barriers, passed);
    }
}

/* x (rows, C) += the sum over all ranks of partial[which] (rows, C). */
static void add_partials(Decoder *decoder, Rank *my, int which)
{
    for (int r = 0; r < decoder->ranks; r++) {
        const float *partial = decoder->rank[r].partial[which].data;
        for (size_t i = 0; i < my->rows * my->x.stride; i++)
            my->x.data[i] += partial[i];
    }
}

/* Rotates the pairs i and d / 2 + i of a query or key, (d), by the angles of its position: model.py's `rotate`. */
static void rotate_head(float *x, int position, const Shape *shape)
{
    const int half = shape->n_embd / shape->n_head / 2;
    const float *cosine = shape->rotary + (size_t)position * half, *sine = cosine + (size_t)shape->block_size * half;
    for (int i = 0; i < half; i++) {
        const float first = x[i], second = x[i + half];
        x[i] = first * cosine[i] - second * sine[i];
        x[i + half] = second * cosine[i] + first * sine[i];
    }
}

/* Where the keys and the values of a head begin in the cache. Keys are (capacity / KEYS, d, KEYS), that is, KEYS of them side by
 * side; values are (capacity, d). d is padded to LINE. */
static size_t cache_offset(const Shape *shape, const Rank *my, int layer, int text, int head)
{
    const size_t d = padded(shape->n_embd / shape->n_head, LINE);
    return (((size_t)layer * shape->texts + text) * my->share->heads + head) * my->share->capacity * d;
}

/* scores (lines LINE) = q (d) keys, of one block of keys (d, KEYS). `lines` is a constant. Fetches `count` rows of KEYS numbers at
 * `next`. */
static ALWAYS_INLINE void multiply_keys(
    const int lines, float *scores, const float *q, const float *keys, int d, const float *next, int count)
{
    vector sum[KEYS / LANES] = { 0 };
    for (int i = 0; i < d; i++, keys += KEYS, next += KEYS) {
#pragma GCC unroll 16
        for (int n = 0; n < lines * LINE / LANES; n++)
            sum[n] += q[i] * ((const vector *)keys)[n];
        for (int n = 0; n < KEYS && i < count; n += LINE)
            __builtin_prefetch(next + n);
    }
    memcpy(scores, sum, lines * LINE * sizeof *scores);
}

/* out (n vectors) = scores (length) values (length, wide) / total, in four sums of every fourth position: the scores are padded
 * with zeros. `n` is a constant. Fetches the values KEYS positions after the first `fetched`. */
static ALWAYS_INLINE void add_values(const int n, vector *out, const float *values, size_t wide,
                                                             const float *scores, float total, int length, int fetched)
{
    vector sum[4][WIDE] = { 0 };
    for (int s = 0; s < length; s += 4)
#pragma GCC unroll 4
        for (int part = 0; part < 4; part++) {
            const float *value = values + (s + part) * wide;
#pragma GCC unroll 4
            for (int i = 0; i < n; i++)
                sum[part][i] += scores[s + part] * ((const vector *)value)[i];
            for (int i = 0; i < n && s < fetched; i += LINE / LANES)
                __builtin_prefetch(value + KEYS * wide + i * LANES);
        }
#pragma GCC unroll 4
    for (int i = 0; i < n; i++)
        out[i] = (sum[0][i] + sum[1][i] + sum[2][i] + sum[3][i]) / total;
}

/* out (d) = softmax(q k^T / sqrt(d)) v over the first `length` keys and values of one head; q (d), scores (length). What is read
 * next is fetched meanwhile, unless `next` is NULL: the next KEYS keys or values, and then keys at `next`. */
static void attend(float *out, const float *q, const float *keys, const float *values, int length, int d, float *scores,
                   const float *next)
{
    const int end = padded(length, LINE), wide = padded(d, LINE);
    for (int s = 0; s < end; s += KEYS, keys += KEYS * d) {
        const int lines = (end - s) / LINE, used = next ? (length * wide + KEYS - 1) / KEYS : 0;
        if (lines > 4)
            multiply_keys(4, scores + s, q, keys, d, keys + KEYS * d, next ? d : 0);
        else if (lines == 4)
            multiply_keys(4, scores + s, q, keys, d, values, used);
        else if (lines == 3)
            multiply_keys(3, scores + s, q, keys, d, values, used);
        else if (lines == 2)
            multiply_keys(2, scores + s, q, keys, d, values, used);
        else
            multiply_keys(1, scores + s, q, keys, d, values, used);
    }
    for (int i = 0; i < d && next; i++)
        for (int n = 0; n < KEYS && n < end; n += LINE)
            __builtin_prefetch(next + i * KEYS + n);
    const float scale = 1 / sqrtf(d);
    float highest = scores[0], total = 0;
    for (int s = 0; s < length; s++)
        highest = max(highest, scores[s]);
    for (int s = 0; s < length; s++) {
        scores[s] = exponential((scores[s] - highest) * scale);
        total += scores[s];
    }
    memset(scores + length, 0, (end - length) * sizeof *scores);
    for (int n = 0, count; n < d; n += count) {
        vector sum[WIDE];
        count = LANES == 16 && wide - n >= 4 * LINE ? 4 * LINE : LANES == 16 && wide - n >= 2 * LINE ? 2 * LINE : LINE;
        if (LANES == 16 && count == 4 * LINE)
            add_values(4, sum, values + n, wide, scores, total, length, next ? length - KEYS : 0);
        else if (LANES == 16 && count == 2 * LINE)
            add_values(2, sum, values + n, wide, scores, total, length, next ? length - KEYS : 0);
        else
            add_values(LINE / LANES, sum, values + n, wide, scores, total, length, next ? length - KEYS : 0);
        memcpy(out + n, sum, (n + count < d ? count : d - n) * sizeof *out);
    }
}

/* x = E[id] + position, for ids [first, first + rows) of (texts, count). The first id of each text is at position `start`. */
static void embed(const Shape *shape, Rank *my, const int64_t *ids, int start, int count, int64_t first, int rows)
{
    const int C = shape->n_embd;
    my->rows = rows;
    for (int row = 0; row < rows; row++) {
        my->text[row] = (first + row) / count;
        my->position[row] = start + (first + row) % count;
        float *x = my->x.data + row * my->x.stride;
        memcpy(x, shape->tokens + ids[first + row] * C, C * sizeof *x);
        if (shape->positions)
            for (int i = 0; i < C; i++)
                x[i] += shape->positions[(size_t)my->position[row] * C + i];
    }
}

/* Rotates the queries and keys of all rows where positions are rotary, and stores keys and values in the cache. */
static void cache_store_rows(const Shape *shape, Rank *my, int layer)
{
    const int d = shape->n_embd / shape->n_head, own = my->share->heads * d;
    for (int row = 0; row < my->rows; row++)
        for (int head = 0; head < my->share->heads; head++) {
            const size_t at = cache_offset(shape, my, layer, my->text[row], head), position = my->position[row];
            float *q = my->qkv.data + row * my->qkv.stride + head * d, *k = q + own, *v = k + own;
            if (shape->rotary) {
                rotate_head(q, position, shape);
                rotate_head(k, position, shape);
            }
            float *key = my->share->keys + at + position / KEYS * KEYS * d + position % KEYS;
            for (int i = 0; i < d; i++)
                key[i * KEYS] = k[i];
            memcpy(my->share->values + at + position * padded(d, LINE), v, d * sizeof *v);
        }
}

/* mixed (rows, heads d) = attention of every row over its text up to its position. */
static void attend_rows(const Shape *shape, Rank *my, int layer)
{
    const int d = shape->n_embd / shape->n_head;
    for (int row = 0; row < my->rows; row++)
        for (int head = 0; head < my->share->heads; head++) {
            const size_t at = cache_offset(shape, my, layer, my->text[row], head);
            const int other = head + 1 < my->share->heads ? row : (row + 1) % my->rows; /* the row of the next head */
            const size_t next = cache_offset(shape, my, layer, my->text[other], (head + 1) % my->share->heads);
            const float *q = my->qkv.data + row * my->qkv.stride + head * d;
            float *out = my->mixed.data + row * my->mixed.stride + head * d;
            attend(out, q, my->share->keys + at, my->share->values + at, my->position[row] + 1, d, my->scores,
                   my->rows > 1 ? my->share->keys + next : NULL);
        }
}

/* Keeps the rows at position `last` and drops the others. */
static void keep_only(Rank *my, int last)
{
    int kept = 0;
    for (int row = 0; row < my->rows; row++)
        if (my->position[row] == last) {
            memmove(my->x.data + kept * my->x.stride, my->x.data + row * my->x.stride, my->x.stride * sizeof(float));
            memmove(my->qkv.data + kept * my->qkv.stride, my->qkv.data + row * my->qkv.stride, my->qkv.stride * sizeof(float));
            my->text[kept] = my->text[row];
            my->position[kept++] = last;
        }
    my->rows = kept;
}

/* partial[0] = attention(norm(x)) W_proj^T of a rank's heads. After the last layer only the rows at position `last` matter. */
static void attention_part(const Shape *shape, Rank *my, int layer, int last)
{
    const int C = shape->n_embd, own = my->share->heads * (C / shape->n_head);
    const char *w = norm(my->normal, my->x, my->rows, C, my->next_weights);
    w = linear(shape, my->qkv, my->normal, my->rows, C, 3 * own, w);
    cache_store_rows(shape, my, layer);
    if (layer == shape->n_layer - 1)
        keep_only(my, last);
    attend_rows(shape, my, layer);
    my->next_weights = linear(shape, my->partial[0], my->mixed, my->rows, own, C, w);
}

/* partial[1] = gelu(norm(x) W_up^T) W_down^T of a rank's hidden units. */
static void mlp_part(const Shape *shape, Rank *my)
{
    const int C = shape->n_embd, hidden = my->share->hidden;
    const char *w = norm(my->normal, my->x, my->rows, C, my->next_weights);
    w = linear(shape, my->hidden, my->normal, my->rows, C, hidden, w);
    for (size_t i = 0; i < my->rows * my->hidden.stride; i++)
        my->hidden.data[i] = gelu(my->hidden.data[i]);
    my->next_weights = linear(shape, my->partial[1], my->hidden, my->rows, hidden, C, w);
}

/* logits = norm(x) E^T of a rank's ids. */
static void logits_part(const Shape *shape, Rank *my)
{
    const Matrix logits = { shape->logits, padded(shape->vocab_size, PANEL) };
    const char *w = norm(my->normal, my->x, my->rows, shape->n_embd, my->next_weights);
    linear(shape, part_of(logits, my->text[0], my->share->first_id), my->normal, my->rows, shape->n_embd, my->share->ids, w);
}

/* All layers for ids [first, first + rows) of the job, and the logits of those at the job's last position. A thread computes
 * its own rank, or all of them if it is alone. */
static void forward(Decoder *decoder, int thread, int64_t first, int rows)
{
    const Job *job = &decoder->job;
    const Shape *shape = &decoder->shape;
    const int last = job->start + job->count - 1;
    Rank *begin = &decoder->rank[thread], *end = job->active == 1 ? &decoder->rank[decoder->ranks] : begin + 1;
    for (Rank *my = begin; my < end; my++) {
        embed(shape, my, job->ids, job->start, job->count, first, rows);
        my->next_weights = my->share->weights;
    }
    for (int layer = 0; layer < shape->n_layer; layer++) {
        for (Rank *my = begin; my < end; my++)
            attention_part(shape, my, layer, last);
        barrier(decoder);
        for (Rank *my = begin; my < end; my++) {
            add_partials(decoder, my, 0);
            mlp_part(shape, my);
        }
        barrier(decoder);
        for (Rank *my = begin; my < end; my++)
            add_partials(decoder, my, 1);
    }
    for (Rank *my = begin; my < end; my++)
        logits_part(shape, my);
}

/* For qsort: larger values first, the lower id first among equal ones. */
static int by_value(const void *left, const void *right)
{
    const Candidate *a = left, *b = right;
    return a->value < b->value ? 1 : a->value > b->value ? -1 : a->id - b->id;
}

/* How many of n candidates top_k, top_p and min_p keep. They are sorted by value; the first value is 0. */
static int count_kept(const Candidate *sorted, int n, const Rules *rules)
{
    if (rules->top_k && rules->top_k < n) {
        const int all = n;
        for (n = rules->top_k; n < all && sorted[n].value == sorted[n - 1].value;)
            n++;
    }
    if (rules->top_p < 1) {
        float total = 0;
        for (int i = 0; i < n; i++)
            total += exponential(sorted[i].value);
        double before = 0;
        int kept = 0;
        for (; kept < n && (float)before < rules->top_p; kept++)
            before += exponential(sorted[kept].value) / total;
        n = kept;
    }
    while (n > 1 && exponential(sorted[n - 1].value) < rules->min_p)
        n--;
    return n;
}

/* Sets the chances of the ids to 0 that top_k, top_p and min_p do not keep. The chance of an id is e^value, with the value
 * (logit - likeliest) / temperature. */
static void filter(float *chances, const float *logits, int V, float likeliest, const Rules *rules, Candidate *candidates)
{
    int n = 0;
    for (int id = 0; id < V; id++)
        if (!rules->forbidden[id])
            candidates[n++] = (Candidate){ (logits[id] - likeliest) / rules->temperature, id };
    qsort(candidates, n, sizeof *candidates, by_value);
    for (int i = count_kept(candidates, n, rules); i < n; i++)
        chances[candidates[i].id] = 0;
}

static double sum(const float *chances, int n)
{
    double total = 0;
    for (int i = 0; i < n; i++)
        total += chances[i];
    return total;
}

/* The first id at which the sum of the chances, in the order of the ids, reaches 1 - uniform of their total. */
static int draw(const float *chances, int V, double uniform)
{
    const double share = (1 - uniform) * sum(chances, V);
    double before = 0, next;
    int id = 0;
    for (; id + SUMMED < V && (next = before + sum(chances + id, SUMMED)) < share; id += SUMMED)
        before = next;
    for (; id < V; id++)
        if ((before += chances[id]) >= share && chances[id] > 0)
            return id;
    for (id = V - 1; id > 0 && chances[id] == 0; id--) /* the order of the additions has kept the sum below the total */
        ;
    return id;
}

/* adjusted (V,) = logits (V,), less log(R) for each character beyond FREE by which an id would lengthen a passage of `text` (n)
 * that equals its end. `longest` (V,) is overwritten. `same[i]` is how much of the text before the i-th id from its end equals
 * its end: the Z algorithm, on the reversed text. */
static void penalise_repetition(
    float *adjusted, const float *logits, int V, const int64_t *text, int n, double R, float *longest)
{
    const int64_t *const end = text + n - 1;
    const float penalty = log(R);
    int same[n];
    memset(longest, 0, V * sizeof *longest);
    for (int i = 1, left = 0, right = 0; i < n; i++) {
        int equal = i >= right ? 0 : same[i - left] < right - i ? same[i - left] : right - i;
        while (i + equal < n && end[-equal] == end[-i - equal])
            equal++;
        if (i + equal > right)
            left = i, right = i + equal;
        same[i] = equal;
        longest[end[1 - i]] = max(longest[end[1 - i]], equal + 1 - FREE);
    }
    for (int id = 0; id < V; id++)
        adjusted[id] = logits[id] - penalty * longest[id];
}

/* The next id after `logits` (V,): drawn as in chargpt/sampling/rules.py, or the likeliest at temperature 0. The
 * text so far is `text` (n). `log_probability`, in nats, is of the model's distribution before any rule. */
static int choose_id(
    Rank *my, const float *logits, int V, const Rules *rules, const int64_t *text, int n, double uniform, float *log_probability)
{
    const float temperature = rules->temperature, *const raw = logits;
    const uint8_t *forbidden = rules->forbidden;
    float *restrict chances = my->chances, highest = raw[0], total = 0, likeliest = -FLT_MAX;
    int id = 0;
    if (rules->repetition_penalty > 1) {
        penalise_repetition(my->adjusted, raw, V, text, n, rules->repetition_penalty, chances);
        logits = my->adjusted;
    }
    for (int i = 0; i < V; i++) {
        highest = max(highest, raw[i]);
        likeliest = max(forbidden[i] ? -FLT_MAX : logits[i], likeliest); /* in this order, as NaN is not larger */
    }
    for (int i = 0; i < V; i++)
        total += exponential(raw[i] - highest);
    if (temperature > 0) {
        for (int i = 0; i < V; i++)
            chances[i] = forbidden[i] ? 0 : exponential((logits[i] - likeliest) / temperature);
        if (rules->top_k || rules->top_p < 1 || rules->min_p > 0)
            filter(chances, logits, V, likeliest, rules, my->candidates);
        id = draw(chances, V, uniform);
    } else
        while (id < V - 1 && (forbidden[id] || logits[id] < likeliest))
            id++;
    *log_probability = raw[id] - highest - logf(total);
    return id;
}

/* A thread's part of a step. */
static void work(Decoder *decoder, int thread)
{
    const Job *job = &decoder->job;
    const int texts = decoder->shape.texts, V = decoder->shape.vocab_size;
    for (int64_t first = 0, left; (left = (int64_t)texts * job->count - first) > 0; first += ROWS)
        forward(decoder, thread, first, left < ROWS ? left : ROWS);
    barrier(decoder);
    for (int text = thread; text < texts && job->chosen; text += job->active) {
        const float *logits = decoder->shape.logits + text * padded(V, PANEL);
        const double uniform = job->uniform ? job->uniform[text] : 0;
        const Rules *rules = job->rules;
        int64_t *history = rules->history ? rules->history + (size_t)text * (rules->known + job->steps) : NULL;
        const int known = rules->known + job->step, n = known < rules->window ? known : rules->window;
        job->chosen[text] = choose_id(&decoder->rank[thread], logits, V, rules, history ? history + known - n : NULL, n, uniform,
                                      &job->log_probabilities[text]);
        if (history)
            history[known] = job->chosen[text];
    }
    barrier(decoder); /* no thread reads the job after this */
}

#ifdef __linux__
static int current_core(void) { return sched_getcpu(); }

/* Moves this thread off `core` if it is there and another is allowed: the scheduler tends to wake a thread on the core of the
 * thread that woke it, and is slow to notice that the two then wait for each other. */
static void leave_core(int core)
{
    cpu_set_t allowed, others;
    if (sched_getcpu() != core || sched_getaffinity(0, sizeof allowed, &allowed))
        return;
    others = allowed;
    CPU_CLR(core, &others);
    if (!sched_setaffinity(0, sizeof others, &others))
        sched_setaffinity(0, sizeof allowed, &allowed);
}
#else
static int current_core(void) { return 0; }
static void leave_core(int core) { (void)core; }
#endif

static THREAD_FUNCTION worker(void *argument)
{
    Rank *my = argument;
    Decoder *decoder = my->decoder;
    for (int jobs = 0;; jobs++) {
        await_change(decoder, &decoder->jobs, jobs);
        if (decoder->stop)
            return 0;
        leave_core(decoder->job.core);
        work(decoder, my - decoder->rank);
    }
}

/* Whether the caller's thread computes the next step alone. Where other programs use the cores, all threads wait for one that
 * has none: on two cores with ten busy programs, this choice wrote 1.2 to 1.9 times as much as always all threads did. The mean
 * time of a step decides, and the other way is tried now and then. The results are the same, as the sums are the same. */
static int choose_alone(Pace *pace)
{
    if (!pace->trial && pace->until_trial-- <= 0)
        pace->trial = TRIAL;
    return pace->trial ? !pace->alone : pace->alone;
}

/* Adds the time of a step to its mean and decides again. A trial that fails, or success that does not last, doubles the time
 * until all threads are tried again. */
static void record(Pace *pace, int alone, double seconds)
{
    const bool tried = pace->trial > 0;
    int *timed = &pace->timed[alone];
    *timed = tried ? 1 : *timed < MEAN_OF ? *timed + 1 : MEAN_OF;
    pace->seconds[alone] += (seconds - pace->seconds[alone]) / *timed;
    pace->trial -= tried;
    if (pace->trial || !pace->timed[0] || !pace->timed[1])
        return;
    const int was_alone = pace->alone;
    pace->alone = pace->seconds[1] < pace->seconds[0];
    if (pace->alone && (tried || !was_alone)) {
        pace->until_trial = pace->wait;
        pace->wait = 2 * pace->wait < LONGEST_WAIT ? 2 * pace->wait : LONGEST_WAIT;
    } else if (!pace->alone && tried) {
        pace->until_trial = NEXT_TRIAL;
        if (!was_alone)
            pace->wait = pace->wait / 2 > SHORTEST_WAIT ? pace->wait / 2 : SHORTEST_WAIT;
    }
}

/* Whether there are other threads than the caller's. */
static bool has_threads(const Decoder *decoder) { return decoder->ranks > 1 && decoder->process == process_now(); }

/* One step of the job, by all threads, if there are `several`, or by this one alone. Steps that read as many ids as the one
 * before are timed. */
static void run_step(Decoder *decoder, bool several)
{
    Job *job = &decoder->job;
    Pace *pace = &decoder->pace;
    const bool timed = several && job->count == pace->count;
    const int alone = !several || (timed ? choose_alone(pace) : pace->alone);
    const double started = timed ? seconds_now() : 0;
    pace->count = job->count;
    job->active = alone ? 1 : decoder->ranks;
    job->core = current_core();
    if (!alone)
        count_up(decoder, &decoder->jobs);
    work(decoder, 0);
    if (timed)
        record(pace, alone, (seconds_now() - started) / job->count);
}

/* Reads `count` ids of each text, (texts, count), the first at position `start`, then chooses `steps` more for each. At most
 * block_size positions are read, which have room in the cache. `uniform` is (steps, texts), numbers in [0, 1), or NULL at
 * temperature 0. Results are `chosen` and `log_probabilities`, (steps, texts) each; the last chosen ids are not read. With
 * steps = 0, the result is shape.logits. */
EXPORT void decoder_run(Decoder *decoder, const Rules *rules, int start, int count, const int64_t *ids, int steps,
                       const double *uniform, int64_t *chosen, float *log_probabilities)
{
    const size_t texts = decoder->shape.texts;
    const bool several = has_threads(decoder);
    Job *job = &decoder->job;
    *job = (Job){ .rules = rules, .ids = ids, .start = start, .count = count, .steps = steps };
    for (int step = 0; step == 0 || step < steps; step++) {
        job->step = step;
        job->uniform = uniform ? uniform + step * texts : NULL;
        job->chosen = steps ? chosen + step * texts : NULL;
        job->log_probabilities = steps ? log_probabilities + step * texts : NULL;
        run_step(decoder, several);
        job->ids = job->chosen;
        job->start += job->count;
        job->count = 1;
    }
}

/* Divides a thread's scratch memory and returns its size. With memory NULL, only the size matters. */
static size_t divide(Rank *my, const Shape *shape, char *memory)
{
    const size_t C = shape->n_embd, own = my->share->heads * (C / shape->n_head), V = shape->vocab_size;
    const struct { Matrix *matrix; size_t columns; } parts[] = {
        { &my->x, C }, { &my->normal, C }, { &my->partial[0], C }, { &my->partial[1], C },
        { &my->qkv, 3 * own }, { &my->mixed, own }, { &my->hidden, my->share->hidden },
    };
    size_t at = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const size_t stride = padded(parts[i].columns, PANEL);
        *parts[i].matrix = (Matrix){ take(memory, &at, ROWS * stride * sizeof(float)), stride };
    }
    my->scores = take(memory, &at, padded(shape->block_size, KEYS) * sizeof *my->scores);
    my->candidates = take(memory, &at, V * sizeof *my->candidates);
    my->chances = take(memory, &at, V * sizeof *my->chances);
    my->adjusted = take(memory, &at, V * sizeof *my->adjusted);
    return at;
}

EXPORT size_t decoder_scratch_size(const Shape *shape, const Share *share)
{
    return divide(&(Rank){ .share = share }, shape, NULL);
}

/* Ends the threads and frees the decoder. */
EXPORT void decoder_free(Decoder *decoder)
{
    const bool several = has_threads(decoder);
    decoder->stop = true;
    if (several)
        count_up(decoder, &decoder->jobs);
    for (int r = 1; r < decoder->ranks && several; r++)
        thread_join(decoder->rank[r].thread);
    free(decoder);
}

/* A new decoder; shares (ranks), which must live as long as the decoder, as what they and shape point to. NULL if there is not
 * enough memory or a thread cannot be started. */
EXPORT Decoder *decoder_new(const Shape *shape, const Share *shares)
{
    Decoder *decoder = calloc(1, sizeof *decoder + shape->ranks * sizeof *decoder->rank);
    if (!decoder)
        return NULL;
    decoder->shape = *shape;
    decoder->process = process_now();
    decoder->pace = (Pace){ .until_trial = FIRST_TRIAL, .wait = SHORTEST_WAIT };
    lock_new(&decoder->lock);
    condition_new(&decoder->counted);
    for (int r = 0; r < shape->ranks; r++, decoder->ranks++) {
        Rank *rank = &decoder->rank[r];
        rank->share = &shares[r];
        rank->decoder = decoder;
        divide(rank, shape, shares[r].scratch);
        if (r > 0 && thread_start(&rank->thread, worker, rank)) {
            decoder_free(decoder);
            return NULL;
        }
    }
    return decoder;
}
