/* One call for the gradient of a training step: the loss of a chunk of sequences and its gradient, as model.py's GPT and
 * torch's automatic differentiation compute them; and one for the logits alone. step_float32.c and step_bfloat16.c include this
 * file after their own numbers and products.
 *
 *     x_0 = dropout(E[idx] + P)                        E (V, C) token embedding, P (T, C) positions, unless they are rotary
 *     x' = x + dropout(attention(norm(x)))             in each block; the attention is that of attention.h
 *     x  = x' + dropout(gelu(norm(x') U^T + u) D^T + e)
 *     logits = norm(x) E^T                             loss = mean of -log softmax(logits)[target]
 *
 * The sequences of a chunk are cut into pieces, which threads take one after the other; how many there are depends on the
 * shape alone. A piece goes through the whole model, forward and backward, in blocks of a few sequences, whose activations
 * stay in the second-level cache. Each piece sums its gradient in memory of its own, and the sum of the pieces is taken in
 * their order: the bits do not depend on the number of threads. Where only the logits are wanted, each block is a piece.
 *
 * The letters are model.py's: T characters, h heads, C channels, V vocabulary. R is the number of rows of a block, which are
 * the characters of its sequences, padded with zeros to a multiple of TILE; V' is V padded to a multiple of PANEL. A
 * `number` is what activations are stored as; a `word` is PAIR numbers that are neighbours in the direction of a product's
 * sum, which is one float32 number or a pair of bfloat16 numbers. The right operand of a product with the sum over K is
 * stored as panels (N / PANEL, K / PAIR, PANEL) of words. The residual stream and all sums are float32.
 */

#include "attention.h"

typedef uint32_t bits __attribute__((vector_size(4 * LANES)));

enum { NORM_1, NORM_1_BIAS, QKV, QKV_BIAS, PROJ, PROJ_BIAS, NORM_2, NORM_2_BIAS, UP, UP_BIAS, DOWN, DOWN_BIAS, OF_LAYER };
enum { TOKENS, POSITIONS, NORM, NORM_BIAS, OF_MODEL };
enum { FORWARD, BACKWARD }; /* the two packings of a matrix */

typedef struct { int rows, columns; } Size; /* a vector has no columns */

static const Size SIZES[OF_LAYER] = { /* times C */
    [NORM_1] = { 1 }, [NORM_1_BIAS] = { 1 }, [QKV] = { 3, 1 }, [QKV_BIAS] = { 3 }, [PROJ] = { 1, 1 }, [PROJ_BIAS] = { 1 },
    [NORM_2] = { 1 }, [NORM_2_BIAS] = { 1 }, [UP] = { 4, 1 }, [UP_BIAS] = { 4 }, [DOWN] = { 1, 4 }, [DOWN_BIAS] = { 1 },
};
enum { BLOCK_ROWS = 192 }; /* rows of a block of sequences */

typedef struct { /* step.py has the same structure */
    int B, T, h, C, V, layers, threads, add; /* with `add`, the gradient is added to what is there */
    uint64_t seed;                           /* of dropout */
    uint32_t threshold;                      /* the share of dropout times 2^31; 0 for none */
    float scale;                             /* of the gradient: that of scale * loss is computed */
    int64_t count, matrices;                 /* numbers in the vector of weights, and those before the embeddings in it */
    const int64_t *places;                   /* (layers, OF_LAYER), (OF_MODEL): where in the vector; -1 for no parameter */
    const number *weights;                   /* (count) */
    const number *positions;                 /* (T, C), or NULL */
    const number *cosine, *sine;             /* (T, d / 2), or NULL */
    const int64_t *idx, *targets;            /* (B, T); a target below 0 does not count */
    const float *expected;                   /* (B, T, V), probabilities in place of one character; or NULL */
    float *gradient;                         /* (count) */
    float *logits;                           /* (B, T, V), or NULL: then the gradient is computed */
    char *scratch;                           /* step_scratch_size bytes, aligned to 64 */
    OpenMP openmp;
} Step;

typedef struct { /* the weights of a layer, or of the model, as the products read them */
    word *matrix[OF_LAYER][2];
    float *vector[OF_LAYER]; /* zeros for biases that the model does not have */
} Weights;

typedef struct { /* what a block of sequences keeps of a layer for its backward pass; R rows each */
    float *x, *middle;                /* the stream before the layer and between its halves, (C) */
    float *stats_1, *stats_2;         /* mean and 1 / standard deviation of each row, (2) */
    number *norm_1, *qkv, *y, *norm_2; /* (C), (3 C), (C), (C) */
    number *active, *slope;           /* gelu(u) and its derivative, (4 C) */
    float *log2_sum;                  /* of attention, (h) */
} Saved;

typedef struct { /* the memory of a thread */
    Saved *saved;                             /* (layers + 1): of the last one, only x, stats_1 and norm_1 are used */
    float *dx, *d;                            /* (R, C) */
    number *narrow, *dy, *dqkv, *wide;        /* (R, C), (R, C), (R, 3 C), (R, 4 C) */
    number *dlogits;                          /* (R, V') */
    float *logits;                            /* (TILE, V') */
    word *left, *right;                       /* (max(4 C, V') / PANEL, R / PAIR, PANEL) and (4 C / PANEL, ...) */
    char *attention;
    size_t size;                              /* bytes of all of it */
} Memory;

typedef struct { /* what threads share */
    const Step *step;
    Weights *weights; /* (layers + 1) */
    number *tokens;   /* (V', C): the token embedding with rows of zeros */
    float *gradients; /* (pieces, count) */
    double *losses;   /* (pieces): sums over the rows of a piece */
    char *threads;    /* memory of each thread; of each piece, if there are more threads */
    size_t thread_size, size; /* bytes of one of them, and of all memory */
    int pieces, sequences, R; /* sequences in a block, and its rows */
    int64_t counted;          /* targets that count */
} Job;

/* The size of a parameter of a layer, or of the model for the one after the last; 0 for what no product or norm reads. */
static Size size_of(const Step *step, int layer, int kind)
{
    const int C = step->C;
    if (layer < step->layers)
        return (Size){ SIZES[kind].rows * C, SIZES[kind].columns * C };
    return kind == TOKENS ? (Size){ padded(step->V, PANEL), C } : (Size){ kind == NORM || kind == NORM_BIAS ? C : 0 };
}

/* 64 bits that depend on all bits of x: SplitMix64's (Steele et al., 2014). */
static inline uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

/* What decides the dropout of a row: `site` is the place in the model, `row` that in the chunk. */
static inline uint32_t row_key(const Step *step, int site, int64_t row)
{
    return mixed(mixed(step->seed + 0x9e3779b97f4a7c15 * (uint64_t)(site + 1)) + 0x9e3779b97f4a7c15 * (uint64_t)(row + 1));
}

/* Numbers c .. c + LANES of a row after dropout: 0 with the probability p = threshold / 2^31, else x / (1 - p). The hash is
 * Wellons' lowbias32. */
static inline vector dropped(const Step *step, vector x, uint32_t key, int c)
{
    if (!step->threshold)
        return x;
    bits hash = (bits)(counting() + c) * 0x9e3779b9u + key;
    hash = (hash ^ hash >> 16) * 0x7feb352du;
    hash = (hash ^ hash >> 15) * 0x846ca68bu;
    hash ^= hash >> 16;
    const integers keep = (integers)(hash >> 1) >= (integers)((bits){ 0 } + step->threshold);
    return choose(keep, x * (1 / (1 - step->threshold * 0x1p-31f)), (vector){ 0 });
}

typedef vector Sums[TILE][2]; /* of a product, (TILE, PANEL) */

typedef struct { /* what becomes of the sums of a product, (R, width): the arguments of a `finish_...` */
    const Step *step;
    const float *bias, *from;
    const number *factor;
    number *to, *slope;
    float *stream;
    float a, b;
    int width, site;
    int64_t first; /* row of the chunk */
} Finish;

/* left (R, K) right (K, N), tile by tile: `finish` is called for each vector of the sums, with its row, its column, and where
 * it is in rows of `width`. right is panels (N / PANEL, K / PAIR, PANEL). */
static ALWAYS_INLINE void product(const number *left, int R, int K, const word *right, int N,
                                  void (*finish)(const Finish *, int row, int c, size_t at, vector sum), const Finish *how)
{
    for (int c = 0; c < N; c += PANEL, right += (size_t)K / PAIR * PANEL)
        for (int r = 0; r < R; r += TILE) {
            Sums sum = { 0 };
            multiply(TILE, sum, (Left){ (const word *)left + (size_t)r * K / PAIR, K / PAIR, 1 }, right, PANEL, K / PAIR);
#pragma GCC unroll 8
            for (int row = 0; row < TILE; row++)
                for (int n = 0; n < 2; n++) {
                    const int column = c + n * LANES;
                    finish(how, r + row, column, (size_t)(r + row) * how->width + column, sum[row][n]);
                }
        }
}

/* The gradient of a matrix, to (rows, K) = or += left^T right. left (R, N) and right (R, K) are packed. Rows after the last
 * whole tile are computed one by one. */
static void matrix_gradient(float *to, int rows, int K, const word *left, const word *right, int R, int overwrite)
{
    const size_t panel = (size_t)R / PAIR * PANEL;
    for (int k = 0; k < K; k += PANEL, right += panel)
        for (int n = 0, count; n < rows; n += count) {
            const Left columns = { left + n / PANEL * panel + n % PANEL, 1, PANEL };
            float *const place = to + (size_t)n * K + k;
            count = n + TILE <= rows ? TILE : 1;
            if (count == TILE)
                multiply_to(place, K, overwrite, TILE, columns, right, PANEL, R / PAIR);
            else
                multiply_to(place, K, overwrite, 1, columns, right, PANEL, R / PAIR);
        }
}

/* y = x' w + b with x' = (x - mean) / sqrt(variance + 1e-5) of each row. x and y (R, C); stats (R, 2) are mean and 1 / sqrt. */
static void normalise(number *y, float *stats, const float *x, const float *weight, const float *bias, int R, int C)
{
    for (int r = 0; r < R; r++, x += C, y += C) {
        vector sum = { 0 }, squares = { 0 };
        for (int c = 0; c < C; c += LANES)
            sum += *(const vector *)(x + c);
        const float mean = sum_of(sum) / C;
        for (int c = 0; c < C; c += LANES) {
            const vector difference = *(const vector *)(x + c) - mean;
            squares += difference * difference;
        }
        const float variance = sum_of(squares) / C; /* beyond float32, the loss is not a number either, as torch's */
        const float inverse = isfinite(variance) ? 1 / sqrtf(variance + 1e-5f) : NAN;
        stats[2 * r] = mean;
        stats[2 * r + 1] = inverse;
        for (int c = 0; c < C; c += LANES)
            store_numbers(y + c, (*(const vector *)(x + c) - mean) * inverse * *(const vector *)(weight + c)
                                     + *(const vector *)(bias + c));
    }
}

/* The gradient of `normalise`: with g = d w, dx = or += (g - mean(g) - x' mean(g x')) / sqrt(variance + 1e-5), dw += d x' and
 * db += d, summed over the rows. d, x, dx (R, C); dw and db are at place[0] and place[1] of `gradient`, unless that is -1. */
static void normalise_back(float *dx, int add, float *gradient, const int64_t *place, const float *d, const float *x,
                           const float *stats, const float *weight, int R, int C)
{
    float *const dweight = gradient + place[0], *const dbias = place[1] < 0 ? NULL : gradient + place[1];
    for (int r = 0; r < R; r++, x += C, d += C, dx += C) {
        const float mean = stats[2 * r], inverse = stats[2 * r + 1];
        vector sum = { 0 }, product = { 0 };
        for (int c = 0; c < C; c += LANES) {
            const vector g = *(const vector *)(d + c), unit = (*(const vector *)(x + c) - mean) * inverse;
            const vector scaled = g * *(const vector *)(weight + c);
            sum += scaled;
            product += scaled * unit;
            *(vector *)(dweight + c) += g * unit;
            if (dbias)
                *(vector *)(dbias + c) += g;
        }
        const float average = sum_of(sum) / C, slope = sum_of(product) / C;
        for (int c = 0; c < C; c += LANES) {
            const vector unit = (*(const vector *)(x + c) - mean) * inverse;
            const vector g = *(const vector *)(d + c) * *(const vector *)(weight + c);
            vector change = (g - average - unit * slope) * inverse;
            if (add)
                change += *(vector *)(dx + c);
            *(vector *)(dx + c) = change;
        }
    }
}

/* The standard normal distribution's integral F(u) and density f(u), by Abramowitz and Stegun 7.1.26, to 1e-7: gelu(u) = u
 * F(u), and its derivative is F(u) + u f(u). */
static inline void gelu(vector u, vector *active, vector *slope)
{
    const vector zero = { 0 }, positive = choose(u < zero, -u, u);
    const vector e = exp2_of(u * u * -0.5f * LOG2_E);
    const vector t = 1 / (1 + 0.231641888f * positive); /* 0.3275911 / sqrt(2) */
    const vector low = 0.127414796f + t * (-0.142248368f + t * (0.7107068705f + t * (-0.7265760135f + t * 0.5307027145f)));
    const vector tail = t * e * low;
    const vector integral = choose(u < zero, tail, 1 - tail);
    *active = u * integral;
    *slope = integral + u * e * 0.3989422804f;
}

/* to = sum, plus the bias unless it is NULL */
static ALWAYS_INLINE void finish_numbers(const Finish *f, int row, int c, size_t at, vector sum)
{
    store_numbers(f->to + at, f->bias ? sum + *(const vector *)(f->bias + c) : sum);
}

/* stream = sum */
static ALWAYS_INLINE void finish_floats(const Finish *f, int row, int c, size_t at, vector sum)
{
    *(vector *)(f->stream + at) = sum;
}

/* to = gelu(sum + bias), slope = its derivative, unless it is NULL */
static ALWAYS_INLINE void finish_gelu(const Finish *f, int row, int c, size_t at, vector sum)
{
    vector active, slope;
    gelu(sum + *(const vector *)(f->bias + c), &active, &slope);
    store_numbers(f->to + at, active);
    if (f->slope)
        store_numbers(f->slope + at, slope);
}

/* to = sum * factor */
static ALWAYS_INLINE void finish_times(const Finish *f, int row, int c, size_t at, vector sum)
{
    store_numbers(f->to + at, sum * load_numbers(f->factor + at));
}

/* to = a factor + b sum */
static ALWAYS_INLINE void finish_combined(const Finish *f, int row, int c, size_t at, vector sum)
{
    store_numbers(f->to + at, f->a * load_numbers(f->factor + at) + f->b * sum);
}

/* stream = from + dropout(sum + bias) */
static ALWAYS_INLINE void finish_stream(const Finish *f, int row, int c, size_t at, vector sum)
{
    const uint32_t key = row_key(f->step, f->site, f->first + row);
    const vector x = sum + *(const vector *)(f->bias + c);
    *(vector *)(f->stream + at) = *(const vector *)(f->from + at) + dropped(f->step, x, key, c);
}

/* to (R, C) = what dropout at `site` leaves of dx (R, C), whose first row is row `first` of the chunk. */
static void dropout_back(number *to, const float *dx, const Step *step, int site, int64_t first, int R)
{
    const int C = step->C;
    for (int r = 0; r < R; r++, to += C, dx += C) {
        const uint32_t key = row_key(step, site, first + r);
        for (int c = 0; c < C; c += LANES)
            store_numbers(to + c, dropped(step, *(const vector *)(dx + c), key, c));
    }
}

/* x (R, C) = dropout(E[idx] + P) of `rows` characters, the first of which is character `first` of the chunk; zeros after
 * them. */
static void embed(float *x, const Job *job, int64_t first, int rows)
{
    const Step *step = job->step;
    const int C = step->C;
    for (int r = 0; r < rows; r++, x += C) {
        const number *token = job->tokens + (size_t)step->idx[first + r] * C;
        const number *position = step->positions ? step->positions + (size_t)((first + r) % step->T) * C : NULL;
        const uint32_t key = row_key(step, 0, first + r);
        for (int c = 0; c < C; c += LANES) {
            vector sum = load_numbers(token + c);
            if (position)
                sum += load_numbers(position + c);
            *(vector *)(x + c) = dropped(step, sum, key, c);
        }
    }
    memset(x, 0, (size_t)(job->R - rows) * C * sizeof *x);
}

/* Adds dx (R, C) to the gradients of E and P, as `embed` reads them. */
static void embed_back(float *gradient, const float *dx, const Job *job, int64_t first, int rows)
{
    const Step *step = job->step;
    const int C = step->C;
    const int64_t *places = step->places + step->layers * OF_LAYER;
    for (int r = 0; r < rows; r++, dx += C) {
        float *token = gradient + places[TOKENS] + step->idx[first + r] * C;
        float *position = places[POSITIONS] < 0 ? NULL : gradient + places[POSITIONS] + (first + r) % step->T * C;
        const uint32_t key = row_key(step, 0, first + r);
        for (int c = 0; c < C; c += LANES) {
            const vector x = dropped(step, *(const vector *)(dx + c), key, c);
            *(vector *)(token + c) += x;
            if (position)
                *(vector *)(position + c) += x;
        }
    }
}

/* One row: -sum(expected log softmax(logits)), and to (V') = (sum(expected) softmax(logits) - expected) scale. `expected` is
 * 1 for the target and 0 for the others, if it is NULL. logits (V') are overwritten; those after V are to be of no effect. */
static double cross_entropy_row(number *to, float *logits, const float *expected, int64_t target, int V, float scale)
{
    const int width = padded(V, PANEL);
    float right = expected ? 0 : logits[target], share = expected ? 0 : 1;
    for (int v = 0; expected && v < V; v++) {
        right += expected[v] * logits[v];
        share += expected[v];
    }
    for (int v = V; v < width; v++)
        logits[v] = -1e30f;
    vector most = *(const vector *)logits, sum = { 0 };
    for (int v = LANES; v < width; v += LANES) {
        const vector x = *(const vector *)(logits + v);
        most = larger_of(x, most);
    }
    const float highest = largest_of(most);
    for (int v = 0; v < width; v += LANES)
        sum += *(vector *)(logits + v) = exp2_of((*(const vector *)(logits + v) - highest) * LOG2_E);
    const float whole = sum_of(sum), factor = share * scale / whole, ratio = whole / share;
    if (!expected)
        logits[target] -= whole;
    for (int v = 0; expected && v < V; v++)
        logits[v] -= expected[v] * ratio;
    for (int v = 0; v < width; v += LANES)
        store_numbers(to + v, *(const vector *)(logits + v) * factor);
    return share * (double)(logf(whole) + highest) - right;
}

/* Of `rows` characters, the first of which is character `first` of the chunk: their logits, if step->logits is not NULL; else
 * the sum of their losses, which it returns, and dlogits (R, V'), the gradient of their mean over the chunk, times step->scale.
 * `from` (R, C) is the last norm's output. */
static double read_out(const Memory *w, const Job *job, const number *from, int64_t first, int rows)
{
    const Step *step = job->step;
    const int V = step->V, width = padded(V, PANEL), C = step->C;
    const word *tokens = job->weights[step->layers].matrix[TOKENS][FORWARD];
    double loss = 0;
    for (int r = 0; r < rows; r += TILE) {
        product(from + (size_t)r * C, TILE, C, tokens, width, finish_floats, &(Finish){ .stream = w->logits, .width = width });
        for (int row = r; row < r + TILE && row < rows; row++) {
            float *const logits = w->logits + (size_t)(row - r) * width;
            const size_t at = first + row, to = (size_t)row * width;
            if (step->logits)
                memcpy(step->logits + at * V, logits, V * sizeof *logits);
            else if (step->targets[at] < 0)
                memset(w->dlogits + to, 0, width * sizeof *w->dlogits);
            else
                loss += cross_entropy_row(w->dlogits + to, logits, step->expected ? step->expected + at * V : NULL,
                                          step->targets[at], V, step->scale / job->counted);
        }
    }
    if (!step->logits)
        memset(w->dlogits + (size_t)rows * width, 0, (size_t)(job->R - rows) * width * sizeof *w->dlogits);
    return loss;
}

/* The gradient of a linear layer's matrix and bias from those of its output, d (R, N), and its input, x (R, K). They are at
 * place[0] and place[1] of `gradient`; the latter is -1 where there is none. N is padded in d. */
static void linear_gradient(const Memory *w, const Job *job, float *gradient, const int64_t *place, const number *d, int N,
                            const number *x, int K, int overwrite)
{
    const int width = padded(N, PANEL);
    pack_rows(w->left, d, width, job->R, width, place[1] < 0 ? NULL : gradient + place[1]);
    pack_rows(w->right, x, K, job->R, K, NULL);
    matrix_gradient(gradient + place[0], N, K, w->left, w->right, job->R, overwrite);
}

/* The attention of a layer. */
static Attention attention_of(const Step *step, int sequences, const Saved *s, const Memory *w)
{
    return (Attention){ .B = sequences, .T = step->T, .h = step->h, .d = step->C / step->h, .cosine = step->cosine,
                        .sine = step->sine, .qkv = s->qkv, .y = s->y, .log2_sum = s->log2_sum, .dy = w->dy, .dqkv = w->dqkv };
}

/* A block's sequences [first, first + count) of the chunk, up to the last norm. */
static void forward_block(const Job *job, const Memory *w, int first, int count)
{
    const Step *step = job->step;
    const int C = step->C, L = step->layers, R = job->R, rows = count * step->T;
    const int64_t begin = (int64_t)first * step->T;
    const Saved *end = &w->saved[L];
    const Weights *top = &job->weights[L];

    embed(w->saved[0].x, job, begin, rows);
    for (int l = 0; l < L; l++) {
        const Saved *s = &w->saved[l];
        const Weights *m = &job->weights[l];
        normalise(s->norm_1, s->stats_1, s->x, m->vector[NORM_1], m->vector[NORM_1_BIAS], R, C);
        product(s->norm_1, R, C, m->matrix[QKV][FORWARD], 3 * C, finish_numbers,
                &(Finish){ .to = s->qkv, .bias = m->vector[QKV_BIAS], .width = 3 * C });
        const Attention a = attention_of(step, count, s, w);
        for (int item = 0; item < count * step->h; item++)
            forward(&a, item, w->attention);
        memset(s->y + (size_t)rows * C, 0, (size_t)(R - rows) * C * sizeof *s->y);
        product(s->y, R, C, m->matrix[PROJ][FORWARD], C, finish_stream,
                &(Finish){ .step = step, .bias = m->vector[PROJ_BIAS], .from = s->x, .stream = s->middle, .width = C,
                           .site = 2 * l + 1, .first = begin });
        normalise(s->norm_2, s->stats_2, s->middle, m->vector[NORM_2], m->vector[NORM_2_BIAS], R, C);
        product(s->norm_2, R, C, m->matrix[UP][FORWARD], 4 * C, finish_gelu,
                &(Finish){ .to = s->active, .slope = s->slope, .bias = m->vector[UP_BIAS], .width = 4 * C });
        product(s->active, R, 4 * C, m->matrix[DOWN][FORWARD], C, finish_stream,
                &(Finish){ .step = step, .bias = m->vector[DOWN_BIAS], .from = s->middle, .stream = s[1].x, .width = C,
                           .site = 2 * l + 2, .first = begin });
    }
    normalise(end->norm_1, end->stats_1, end->x, top->vector[NORM], top->vector[NORM_BIAS], R, C);
}

/* After forward_block: the gradient is added to that of the piece; of matrices, it begins it if `overwrite`. Returns the sum
 * of the losses. */
static double backward_block(const Job *job, const Memory *w, float *gradient, int first, int count, int overwrite)
{
    const Step *step = job->step;
    const int C = step->C, L = step->layers, R = job->R, rows = count * step->T, width = padded(step->V, PANEL);
    const int64_t begin = (int64_t)first * step->T, *last = step->places + L * OF_LAYER;
    const Weights *top = &job->weights[L];
    const Saved *end = &w->saved[L];
    const double loss = read_out(w, job, end->norm_1, begin, rows);

    linear_gradient(w, job, gradient, (int64_t[]){ last[TOKENS], -1 }, w->dlogits, step->V, end->norm_1, C, 0);
    product(w->dlogits, R, width, top->matrix[TOKENS][BACKWARD], C, finish_floats, &(Finish){ .stream = w->d, .width = C });
    normalise_back(w->dx, 0, gradient, last + NORM, w->d, end->x, end->stats_1, top->vector[NORM], R, C);
    for (int l = L - 1; l >= 0; l--) {
        const Saved *s = &w->saved[l];
        const Weights *m = &job->weights[l];
        const int64_t *place = step->places + l * OF_LAYER;
        const Finish to_d = { .stream = w->d, .width = C };
        dropout_back(w->narrow, w->dx, step, 2 * l + 2, begin, R);
        linear_gradient(w, job, gradient, place + DOWN, w->narrow, C, s->active, 4 * C, overwrite);
        product(w->narrow, R, C, m->matrix[DOWN][BACKWARD], 4 * C, finish_times,
                &(Finish){ .to = w->wide, .factor = s->slope, .width = 4 * C });
        linear_gradient(w, job, gradient, place + UP, w->wide, 4 * C, s->norm_2, C, overwrite);
        product(w->wide, R, 4 * C, m->matrix[UP][BACKWARD], C, finish_floats, &to_d);
        normalise_back(w->dx, 1, gradient, place + NORM_2, w->d, s->middle, s->stats_2, m->vector[NORM_2], R, C);
        dropout_back(w->narrow, w->dx, step, 2 * l + 1, begin, R);
        linear_gradient(w, job, gradient, place + PROJ, w->narrow, C, s->y, C, overwrite);
        product(w->narrow, R, C, m->matrix[PROJ][BACKWARD], C, finish_numbers, &(Finish){ .to = w->dy, .width = C });
        const Attention a = attention_of(step, count, s, w);
        for (int item = 0; item < count * step->h; item++)
            backward(&a, item, w->attention);
        memset(w->dqkv + (size_t)rows * 3 * C, 0, (size_t)(R - rows) * 3 * C * sizeof *w->dqkv);
        linear_gradient(w, job, gradient, place + QKV, w->dqkv, 3 * C, s->norm_1, C, overwrite);
        product(w->dqkv, R, 3 * C, m->matrix[QKV][BACKWARD], C, finish_floats, &to_d);
        normalise_back(w->dx, 1, gradient, place + NORM_1, w->d, s->x, s->stats_1, m->vector[NORM_1], R, C);
    }
    embed_back(gradient, w->dx, job, begin, rows);
    return loss;
}

/* The memory of a thread. With memory NULL, only the size matters. Without a backward pass, that of two layers is enough: a
 * layer writes the `x` of the next one. */
static Memory thread_memory(const Job *job, char *memory)
{
    const Step *step = job->step;
    const size_t R = job->R, C = step->C, width = padded(step->V, PANEL), wide = width > 4 * C ? width : 4 * C;
    const size_t row = C * R, f = sizeof(float), n = sizeof(number), backward = step->logits ? 0 : n;
    Memory w = { .size = 0 };
    size_t *at = &w.size;
    w.saved = take(memory, at, (step->layers + 1) * sizeof *w.saved);
    for (int l = 0; l <= step->layers; l++) {
        Saved s = { 0 };
        if (l < 2 || !step->logits) {
            s.x = take(memory, at, f * row);
            s.stats_1 = take(memory, at, 2 * f * R);
            s.norm_1 = take(memory, at, n * row);
            s.middle = take(memory, at, f * row);
            s.stats_2 = take(memory, at, 2 * f * R);
            s.qkv = take(memory, at, 3 * n * row);
            s.y = take(memory, at, n * row);
            s.norm_2 = take(memory, at, n * row);
            s.active = take(memory, at, 4 * n * row);
            s.slope = step->logits ? NULL : take(memory, at, 4 * n * row);
            s.log2_sum = take(memory, at, f * R * step->h);
        } else if (memory)
            s = w.saved[l - 2];
        if (memory)
            w.saved[l] = s;
    }
    const Attention a = attention_of(step, job->sequences, &(Saved){ 0 }, &w);
    w.logits = take(memory, at, f * TILE * width);
    w.attention = take(memory, at, attention_scratch_size(&a));
    w.dx = take(memory, at, f * row);
    w.d = take(memory, at, f * row);
    w.narrow = take(memory, at, backward * row);
    w.dy = take(memory, at, backward * row);
    w.dqkv = take(memory, at, backward * 3 * row);
    w.wide = take(memory, at, backward * 4 * row);
    w.dlogits = take(memory, at, backward * R * width);
    w.left = take(memory, at, backward * R * wide);
    w.right = take(memory, at, backward * R * 4 * C);
    return w;
}

/* Packs the weights of a layer, or those of the model for the last item. */
static void pack_item(const void *data, int layer, int thread)
{
    const Job *job = data;
    const Step *step = job->step;
    const int64_t *place = step->places + layer * OF_LAYER;
    const Weights *to = &job->weights[layer];
    if (layer == step->layers) {
        const size_t used = (size_t)step->V * step->C, all = padded(step->V, PANEL) * step->C;
        memcpy(job->tokens, step->weights + place[TOKENS], used * sizeof(number));
        memset(job->tokens + used, 0, (all - used) * sizeof(number));
    }
    for (int kind = 0; kind < OF_LAYER; kind++) {
        const Size size = size_of(step, layer, kind);
        if (size.columns) {
            const number *from = layer == step->layers ? job->tokens : step->weights + place[kind];
            pack_transpose(to->matrix[kind][FORWARD], from, size.rows, size.columns);
            if (!step->logits)
                pack_rows(to->matrix[kind][BACKWARD], from, size.columns, size.rows, size.columns, NULL);
        }
        for (int c = 0; c < size.rows && !size.columns; c += LANES)
            *(vector *)(to->vector[kind] + c) = place[kind] < 0 ? (vector){ 0 } : load_numbers(step->weights + place[kind] + c);
    }
}

/* The number of pieces of B sequences of T characters: a power of 2, up to 8, of at least 192 characters each if possible. */
static int pieces_of(int B, int T)
{
    int pieces = 1;
    while (pieces < 8 && 2 * pieces <= B && (int64_t)B * T >= 192 * 2 * pieces)
        pieces *= 2;
    return pieces;
}

/* The logits of a piece's sequences, or their loss and its gradient. */
static void piece_item(const void *data, int item, int thread)
{
    const Job *job = data;
    const Step *step = job->step;
    const int begin = (int64_t)step->B * item / job->pieces, end = (int64_t)step->B * (item + 1) / job->pieces;
    float *gradient = job->gradients + item * step->count;
    const int slot = step->threads < job->pieces ? thread : item;
    const Memory w = thread_memory(job, job->threads + slot * job->thread_size);
    double loss = 0;
    if (!step->logits)
        memset(gradient + step->matrices, 0, (step->count - step->matrices) * sizeof *gradient);
    for (int first = begin; first < end; first += job->sequences) {
        const int count = first + job->sequences < end ? job->sequences : end - first;
        forward_block(job, &w, first, count);
        if (step->logits)
            read_out(&w, job, w.saved[step->layers].norm_1, (int64_t)first * step->T, count * step->T);
        else
            loss += backward_block(job, &w, gradient, first, count, first == begin);
    }
    job->losses[item] = loss;
}

enum { SUMMED = 8192 }; /* numbers of the gradient that an item sums */

static void sum_item(const void *data, int item, int thread)
{
    const Job *job = data;
    const Step *step = job->step;
    const int64_t begin = (int64_t)item * SUMMED, end = begin + SUMMED < step->count ? begin + SUMMED : step->count;
    for (int64_t i = begin; i < end; i += LANES) {
        vector sum = { 0 };
        for (int piece = 0; piece < job->pieces; piece++)
            sum += *(const vector *)(job->gradients + piece * step->count + i);
        float *to = step->gradient + i;
        vector before = { 0 };
        if (step->add)
            memcpy(&before, to, sizeof before);
        sum += before;
        memcpy(to, &sum, sizeof sum);
    }
}

/* Divides the scratch memory. With memory NULL, only the size matters. */
static Job divide(const Step *step, char *memory)
{
    const size_t n = sizeof(number), f = sizeof(float);
    Job job = { .step = step, .pieces = step->logits ? 1 : pieces_of(step->B, step->T) };
    const int most = (step->B + job.pieces - 1) / job.pieces, fit = BLOCK_ROWS / step->T;
    job.sequences = fit < 1 ? 1 : fit < most ? fit : most;
    if (step->logits)
        job.pieces = (step->B + job.sequences - 1) / job.sequences;
    job.R = padded((size_t)job.sequences * step->T, TILE);
    size_t *at = &job.size;
    job.weights = take(memory, at, (step->layers + 1) * sizeof(Weights));
    for (int l = 0; l <= step->layers; l++) {
        Weights w = { 0 };
        for (int kind = 0; kind < OF_LAYER; kind++) {
            const Size size = size_of(step, l, kind);
            for (int i = 0; i < 2 && size.columns; i++)
                w.matrix[kind][i] = take(memory, at, n * size.rows * size.columns);
            if (!size.columns)
                w.vector[kind] = take(memory, at, f * size.rows);
        }
        if (memory)
            job.weights[l] = w;
    }
    job.tokens = take(memory, at, n * padded(step->V, PANEL) * step->C);
    job.gradients = take(memory, at, step->logits ? 0 : f * job.pieces * step->count);
    job.losses = take(memory, at, job.pieces * sizeof(double));
    job.thread_size = thread_memory(&job, NULL).size;
    job.threads = take(memory, at, (step->threads < job.pieces ? step->threads : job.pieces) * job.thread_size);
    return job;
}

EXPORT size_t step_size(void) { return sizeof(Step); }

/* Bytes of scratch memory that step_run needs. */
EXPORT size_t step_scratch_size(const Step *step) { return divide(step, NULL).size; }

/* The logits, if step->logits is not NULL. Else the mean loss of the targets that count, in nats for each character, which it
 * returns, and its gradient times scale. Returns -1, and writes nothing, if an id is not one of the vocabulary. */
EXPORT double step_run(const Step *step)
{
    Job job = divide(step, step->scratch);
    double loss = 0;
    for (int64_t i = 0; i < (int64_t)step->B * step->T; i++) {
        if (step->idx[i] < 0 || step->idx[i] >= step->V || (!step->logits && step->targets[i] >= step->V))
            return -1;
        job.counted += !step->logits && step->targets[i] >= 0;
    }
    in_threads(&step->openmp, step->threads, step->layers + 1, pack_item, &job);
    in_threads(&step->openmp, step->threads, job.pieces, piece_item, &job);
    if (step->logits)
        return 0;
    in_threads(&step->openmp, step->threads, (step->count + SUMMED - 1) / SUMMED, sum_item, &job);
    for (int piece = 0; piece < job.pieces; piece++)
        loss += job.losses[piece];
    return loss / job.counted;
}

/* Muon's update, as `Muon` of optimizers.py computes it: the matrices move by the orthogonal ones nearest to their momentum. */

typedef struct { /* n matrices (rows, columns), and where in the vectors they begin; step.py has the same structure */
    int64_t place;
    int n, rows, columns;
} Stack;

typedef struct { /* step.py has the same structure */
    const Stack *stacks;
    const float *coefficients; /* (rounds, 3) */
    float *gradient, *momentum, *weights;
    char *scratch; /* muon_scratch_size bytes, aligned to 64 */
    double rate, decay, beta;
    int count, rounds, threads;
    OpenMP openmp;
} Muon;

EXPORT size_t muon_size(void) { return sizeof(Muon); }

/* One matrix of a stack. X is its gradient after Nesterov's momentum, x = X / (1.02 |X|), then for each (a, b, c) of the rounds:
 * G = x x^T, x = a x + (b G + c G^2) x; with more rows than columns, G = x^T x, x = a x + x (b G + c G^2). The gradient is
 * overwritten. Returns the bytes of memory that it needs; with memory NULL, only that. */
static size_t update_matrix(const Muon *muon, const Stack *stack, int item, char *memory)
{
    const int rows = stack->rows, columns = stack->columns, is_tall = rows > columns, r = is_tall ? columns : rows;
    const size_t size = (size_t)rows * columns, square = (size_t)r * r;
    size_t at = 0;
    number *x = take(memory, &at, size * sizeof *x), *next = take(memory, &at, size * sizeof *x);
    number *gram = take(memory, &at, square * sizeof *x), *factor = take(memory, &at, square * sizeof *x);
    word *packed = take(memory, &at, size * sizeof *x), *packed_square = take(memory, &at, square * sizeof *x);
    float *sums = take(memory, &at, square * sizeof *sums);
    if (!memory)
        return at;
    const size_t place = stack->place + item * size;
    float *const gradient = muon->gradient + place, *const momentum = muon->momentum + place, *const weights = muon->weights + place;
    const float share = 1 - muon->beta, ahead = (float)muon->beta - 1, kept = 1 - muon->rate * muon->decay;
    vector squares = { 0 };
    for (size_t i = 0; i < size; i += LANES) {
        vector *const g = (vector *)(gradient + i), *const m = (vector *)(momentum + i);
        *m += (*g - *m) * share;
        *g = *m + (*m - *g) * ahead;
        squares += *g * *g;
        *(vector *)(weights + i) *= kept;
    }
    const float norm = 1.02f * sqrtf(sum_of(squares)), scale = 1 / (norm < 1e-7f ? 1e-7f : norm);
    for (size_t i = 0; i < size; i += LANES)
        store_numbers(x + i, *(const vector *)(gradient + i) * scale);
    for (const float *q = muon->coefficients; q < muon->coefficients + 3 * muon->rounds; q += 3) {
        if (is_tall) {
            pack_rows(packed, x, columns, rows, columns, NULL);
            matrix_gradient(sums, r, r, packed, packed, rows, 1);
            for (size_t i = 0; i < square; i += LANES)
                store_numbers(gram + i, *(const vector *)(sums + i));
        } else {
            pack_transpose(packed, x, rows, columns);
            product(x, r, columns, packed, r, finish_numbers, &(Finish){ .to = gram, .width = r });
        }
        pack_rows(packed_square, gram, r, r, r, NULL);
        product(gram, r, r, packed_square, r, finish_combined,
                &(Finish){ .to = factor, .factor = gram, .a = q[1], .b = q[2], .width = r });
        const Finish to_next = { .to = next, .factor = x, .a = q[0], .b = 1, .width = columns };
        if (is_tall) {
            pack_rows(packed_square, factor, r, r, r, NULL);
            product(x, rows, r, packed_square, columns, finish_combined, &to_next);
        } else {
            pack_rows(packed, x, columns, rows, columns, NULL);
            product(factor, r, r, packed, columns, finish_combined, &to_next);
        }
        number *const old = x;
        x = next;
        next = old;
    }
    const float move = -muon->rate * (0.2 * sqrt(rows > columns ? rows : columns));
    for (size_t i = 0; i < size; i += LANES)
        *(vector *)(weights + i) += load_numbers(x + i) * move;
    return at;
}

/* Bytes that a thread needs for the largest of the matrices. */
static size_t muon_memory(const Muon *muon)
{
    size_t most = 0;
    for (const Stack *stack = muon->stacks; stack < muon->stacks + muon->count; stack++) {
        const size_t size = update_matrix(muon, stack, 0, NULL);
        most = size > most ? size : most;
    }
    return most;
}

/* Bytes of scratch memory that muon_update needs. */
EXPORT size_t muon_scratch_size(const Muon *muon) { return muon->threads * muon_memory(muon); }

static void muon_item(const void *data, int item, int thread)
{
    const Muon *muon = data;
    const Stack *stack = muon->stacks + muon->count - 1; /* the last ones first: they are the largest */
    for (; item >= stack->n; stack--)
        item -= stack->n;
    update_matrix(muon, stack, item, muon->scratch + thread * muon_memory(muon));
}

/* Updates the momentum and the weights of all stacks. Rows and columns are multiples of PANEL. Each matrix is computed in the
 * same way by any number of threads, and whatever the others are. */
EXPORT void muon_update(const Muon *muon)
{
    int items = 0;
    for (int i = 0; i < muon->count; i++)
        items += muon->stacks[i].n;
    in_threads(&muon->openmp, muon->threads, items, muon_item, muon);
}
