/* Writing with a GPT: model.py's arithmetic, in float32, and generate.py's choice of the next character.
 *
 * A network of this size writes as fast as its weights can be read from memory. So they stand in the order of their use, and
 * each is read once for all the rows (characters) at hand.
 *
 * Threads share the work as the GPUs of Megatron-LM do (arXiv 1909.08053): each owns some heads and some of the MLP's hidden
 * units, all the way from the stream and back to it, so that they meet only twice a layer. What is cheap (the stream itself,
 * the norms) every thread computes for itself.
 *
 * The letters are model.py's: C channels, d head size, V vocabulary. Rows of numbers are padded to a multiple of PANEL. A layer
 * of K inputs and N outputs stands as panels of PANEL outputs: K rows of weights, then one of biases, K padded with zeros to
 * a multiple of STEP. chargpt/decoder.py lays them out.
 */

#define _GNU_SOURCE /* for sched_getcpu and what goes with it */

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__)
enum { LANES = 16, TALL = 6 }; /* TALL rows of a panel fill the registers */
#elif defined(__AVX__)
enum { LANES = 8, TALL = 3 };
#elif defined(__aarch64__)
enum { LANES = 4, TALL = 6 };
#else
enum { LANES = 4, TALL = 3 };
#endif

enum {
    WIDE = 4,             /* vectors in a panel */
    PANEL = WIDE * LANES, /* outputs computed together */
    STEP = 2,             /* inputs taken together where there are few rows */
    ROWS = 96,            /* rows that go through the layers together */
    KEYS = 64,            /* keys that stand side by side */
    ALIGNMENT = 64,       /* bytes: a cache line, and the widest vector */
    PATIENCE = 5000,      /* looks at a variable that another thread will change: some microseconds */
};

typedef float vector __attribute__((vector_size(4 * LANES)));

typedef struct {
    int n_layer, n_head, n_embd, block_size, vocab_size, texts, ranks;
    const float *tokens;    /* the embedding of each id, (V, C) */
    const float *positions; /* what is added to it, (block_size, C), or NULL */
    const float *rotary;    /* cosines and sines, (2, block_size, d / 2), or NULL */
    float *logits;          /* left here, (texts, V padded) */
} Shape;

typedef struct { /* what a thread owns of the model, and the ids whose logits it computes */
    int heads, hidden, first_id, ids;
    const float *weights;
} Share;

typedef struct {
    float *at;
    size_t stride; /* from a row to the next */
} Matrix;

typedef struct {
    float value;
    int id;
} Candidate;

typedef struct { /* as in generate.py; temperature 0 takes the likeliest */
    float temperature, top_p, min_p;
    int top_k;
    const uint8_t *forbidden; /* (V,): 1 for an id that must not come */
} Sampling;

typedef struct { /* what decoder_write was asked for, and the core that it runs on */
    int core;
    const Sampling *sampling;
    int start, count;
    const int64_t *ids;
    int steps;
    const float *noise;
    int64_t *chosen;
    float *log_probabilities;
} Job;

typedef struct { /* a thread */
    Share share;
    int rows;                       /* that it is about to read, */
    int text[ROWS], position[ROWS]; /* and what they are */
    Matrix x, normal, qkv, mixed, hidden;
    Matrix partial[2];              /* what its heads, and its hidden units, add to the stream x */
    float *keys, *values;           /* the cache, see `place` */
    float *scores;
    Candidate *candidates;
    void *memory;
    pthread_t thread;
    struct Decoder *decoder;
} Rank;

typedef struct Decoder {
    Shape shape;
    Job job;
    atomic_int arrived, meetings, jobs;
    bool leave; /* there will be no more jobs */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int ranks; /* that exist: rank 0 is whoever calls, each other one a thread of its own */
    Rank rank[];
} Decoder;

const int decoder_panel = PANEL, decoder_step = STEP;

static size_t padded(size_t n, size_t to) { return (n + to - 1) / to * to; }
static inline float least(float a, float b) { return a < b ? a : b; }
static inline float most(float a, float b) { return a > b ? a : b; }

/* e^x to a few units of the last place; 0 where that would be smaller than any normal number. */
static inline float exponential(float x)
{
    float bounded = most(least(x, 88.0f), -87.0f);
    float n = rintf(bounded * 1.44269504f), r = bounded - n * 0.693147181f; /* x = n ln 2 + r */
    float p = 1 + r * (1 + r * (0.5f + r * (1 / 6.0f + r * (1 / 24.0f + r * (1 / 120.0f + r * (1 / 720.0f))))));
    union { int32_t bits; float value; } power = { ((int32_t)n + 127) << 23 };
    return x < -87.0f ? 0.0f : p * power.value;
}

/* x times the probability that a normal variable is smaller; by the error function of Abramowitz and Stegun, 7.1.26. */
static inline float gelu(float x)
{
    float z = fabsf(x) * 0.707106781f, t = 1 / (1 + 0.3275911f * z);
    float p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    float beyond = 0.5f * p * exponential(-z * z);
    return x * (x < 0 ? beyond : 1 - beyond);
}

static inline Matrix part_of(Matrix m, int row, size_t column) { return (Matrix){ m.at + row * m.stride + column, m.stride }; }

/* A panel's outputs for `rows` rows: a number that the compiler knows, so that all sums stay in registers. */
static inline __attribute__((always_inline)) void tile(const int rows, Matrix out, Matrix in, size_t K, const float *w)
{
    const int parts = rows == 1 ? STEP : 1; /* an addition waits for the one before: the fewer rows, the more sums it takes */
    const vector *weights = (const vector *)w;
    vector sum[STEP][TALL][WIDE] = { 0 };
    for (size_t k = 0; k < K; k += parts)
#pragma GCC unroll 8
        for (int part = 0; part < parts; part++)
#pragma GCC unroll 8
            for (int row = 0; row < rows; row++)
#pragma GCC unroll 8
                for (int n = 0; n < WIDE; n++)
                    sum[part][row][n] += in.at[row * in.stride + k + part] * weights[(k + part) * WIDE + n];
#pragma GCC unroll 8
    for (int row = 0; row < rows; row++)
#pragma GCC unroll 8
        for (int n = 0; n < WIDE; n++)
            ((vector *)(out.at + row * out.stride))[n] = weights[K * WIDE + n] + sum[0][row][n] + sum[1][row][n];
}

/* out (rows, N) = in (rows, K) times a matrix, plus biases. Returns where the next weights begin. */
static const float *linear(Matrix out, Matrix in, int rows, size_t K, size_t N, const float *w)
{
    K = padded(K, STEP);
    for (size_t n = 0; n < N; n += PANEL, w += (K + 1) * PANEL) {
        int row = 0;
        for (; row + TALL <= rows; row += TALL)
            tile(TALL, part_of(out, row, n), part_of(in, row, 0), K, w);
        for (; row + 2 <= rows; row += 2)
            tile(2, part_of(out, row, n), part_of(in, row, 0), K, w);
        if (row < rows)
            tile(1, part_of(out, row, n), part_of(in, row, 0), K, w);
    }
    return w;
}

/* LayerNorm of rows of C numbers. Returns where the next weights begin. */
static const float *norm(Matrix out, Matrix in, int rows, int C, const float *w)
{
    const float *bias = w + in.stride;
    for (int row = 0; row < rows; row++) {
        const float *x = in.at + row * in.stride;
        float *y = out.at + row * out.stride, mean = 0, variance = 0;
        for (int i = 0; i < C; i++)
            mean += x[i];
        mean /= C;
        for (int i = 0; i < C; i++)
            variance += (x[i] - mean) * (x[i] - mean);
        const float scale = 1 / sqrtf(variance / C + 1e-5f);
        for (int i = 0; i < C; i++)
            y[i] = (x[i] - mean) * scale * w[i] + bias[i];
    }
    return bias + in.stride;
}

/* Wait until every thread is here. */
static void meet(Decoder *decoder)
{
    const int meeting = atomic_load(&decoder->meetings);
    if (atomic_fetch_add(&decoder->arrived, 1) + 1 == decoder->shape.ranks) {
        atomic_store(&decoder->arrived, 0);
        atomic_store(&decoder->meetings, meeting + 1);
    }
    for (int looks = 0; atomic_load(&decoder->meetings) == meeting; looks++)
        if (looks > PATIENCE) /* another program has that thread's core, or that thread needs this one */
            sched_yield();
}

/* Add to the stream what every thread has computed of it. */
static void gather(Decoder *decoder, Rank *my, int which)
{
    meet(decoder);
    for (int r = 0; r < decoder->shape.ranks; r++) {
        const float *partial = decoder->rank[r].partial[which].at;
        for (size_t i = 0; i < my->rows * my->x.stride; i++)
            my->x.at[i] += partial[i];
    }
}

/* Turn each pair (x[i], x[i + d / 2]) of a query or key by its position's angle. */
static void rotate(float *x, int position, const Shape *shape)
{
    const int half = shape->n_embd / shape->n_head / 2;
    const float *cosine = shape->rotary + position * half, *sine = cosine + shape->block_size * half;
    for (int i = 0; i < half; i++) {
        const float first = x[i], second = x[i + half];
        x[i] = first * cosine[i] - second * sine[i];
        x[i + half] = second * cosine[i] + first * sine[i];
    }
}

/* Where the keys and the values of a head begin: of keys KEYS stand side by side, (block_size / KEYS, d, KEYS), values are
 * (block_size, d), all padded. */
static size_t place(const Shape *shape, const Rank *my, int layer, int text, int head)
{
    const size_t positions = padded(shape->block_size, KEYS), d = padded(shape->n_embd / shape->n_head, LANES);
    return (((size_t)layer * shape->texts + text) * my->share.heads + head) * positions * d;
}

static void remember(float *keys, float *values, const float *k, const float *v, int position, int d)
{
    float *key = keys + position / KEYS * KEYS * d + position % KEYS;
    for (int i = 0; i < d; i++)
        key[i * KEYS] = k[i];
    memcpy(values + position * padded(d, LANES), v, d * sizeof *v);
}

/* out (d) = softmax(q k^T / sqrt(d)) v over the first `length` keys and values. */
static void attend(float *out, const float *q, const float *keys, const float *values, int length, int d, float *scores)
{
    const int end = padded(length, KEYS), wide = padded(d, LANES) / LANES;
    for (int s = 0; s < end; s += KEYS) {
        vector sum[KEYS / LANES] = { 0 };
        for (int i = 0; i < d; i++, keys += KEYS)
            for (int n = 0; n < KEYS / LANES; n++)
                sum[n] += q[i] * ((const vector *)keys)[n];
        memcpy(scores + s, sum, sizeof sum);
    }
    const float scale = 1 / sqrtf(d);
    float highest = scores[0], total = 0;
    for (int s = 0; s < length; s++)
        highest = most(highest, scores[s]);
    for (int s = 0; s < length; s++) {
        scores[s] = exponential((scores[s] - highest) * scale);
        total += scores[s];
    }
    memset(scores + length, 0, (end - length) * sizeof *scores);
    for (int n = 0; n < wide; n++) {
        vector sum[4] = { 0 };
        for (int s = 0; s < length; s += 4)
            for (int part = 0; part < 4; part++)
                sum[part] += scores[s + part] * ((const vector *)values)[(s + part) * wide + n];
        const vector mixed = (sum[0] + sum[1] + sum[2] + sum[3]) / total;
        for (int i = n * LANES; i < d && i < (n + 1) * LANES; i++)
            out[i] = mixed[i - n * LANES];
    }
}

/* Make rows of ids [first, first + rows), of which there are `count` for each text, the first of them at position `start`. */
static void embed(const Shape *shape, Rank *my, const int64_t *ids, int start, int count, int first, int rows)
{
    const int C = shape->n_embd;
    my->rows = rows;
    for (int row = 0; row < rows; row++) {
        my->text[row] = (first + row) / count;
        my->position[row] = start + (first + row) % count;
        float *x = my->x.at + row * my->x.stride;
        memcpy(x, shape->tokens + ids[first + row] * C, C * sizeof *x);
        if (shape->positions)
            for (int i = 0; i < C; i++)
                x[i] += shape->positions[my->position[row] * C + i];
    }
}

/* Take the keys and values of all rows into the cache. */
static void remember_rows(const Shape *shape, Rank *my, int layer)
{
    const int d = shape->n_embd / shape->n_head, own = my->share.heads * d;
    for (int row = 0; row < my->rows; row++)
        for (int head = 0; head < my->share.heads; head++) {
            const size_t at = place(shape, my, layer, my->text[row], head);
            float *q = my->qkv.at + row * my->qkv.stride + head * d, *k = q + own, *v = k + own;
            if (shape->rotary) {
                rotate(q, my->position[row], shape);
                rotate(k, my->position[row], shape);
            }
            remember(my->keys + at, my->values + at, k, v, my->position[row], d);
        }
}

static void attend_rows(const Shape *shape, Rank *my, int layer)
{
    const int d = shape->n_embd / shape->n_head;
    for (int row = 0; row < my->rows; row++)
        for (int head = 0; head < my->share.heads; head++) {
            const size_t at = place(shape, my, layer, my->text[row], head);
            const float *q = my->qkv.at + row * my->qkv.stride + head * d;
            float *out = my->mixed.at + row * my->mixed.stride + head * d;
            attend(out, q, my->keys + at, my->values + at, my->position[row] + 1, d, my->scores);
        }
}

/* Go on with the rows at position `last` alone. */
static void drop_all_but(Rank *my, int last)
{
    int kept = 0;
    for (int row = 0; row < my->rows; row++)
        if (my->position[row] == last) {
            memmove(my->x.at + kept * my->x.stride, my->x.at + row * my->x.stride, my->x.stride * sizeof(float));
            memmove(my->qkv.at + kept * my->qkv.stride, my->qkv.at + row * my->qkv.stride, my->qkv.stride * sizeof(float));
            my->text[kept] = my->text[row];
            my->position[kept++] = last;
        }
    my->rows = kept;
}

/* Send the rows through all layers. Only what follows those at position `last` matters, and its logits are left. */
static void forward(Decoder *decoder, Rank *my, int last)
{
    const Shape *shape = &decoder->shape;
    const int C = shape->n_embd, own = my->share.heads * (C / shape->n_head), hidden = my->share.hidden;
    const float *w = my->share.weights;
    for (int layer = 0; layer < shape->n_layer; layer++) {
        w = norm(my->normal, my->x, my->rows, C, w);
        w = linear(my->qkv, my->normal, my->rows, C, 3 * own, w);
        remember_rows(shape, my, layer);
        if (layer == shape->n_layer - 1)
            drop_all_but(my, last);
        attend_rows(shape, my, layer);
        w = linear(my->partial[0], my->mixed, my->rows, own, C, w);
        gather(decoder, my, 0);
        w = norm(my->normal, my->x, my->rows, C, w);
        w = linear(my->hidden, my->normal, my->rows, C, hidden, w);
        for (size_t i = 0; i < my->rows * my->hidden.stride; i++)
            my->hidden.at[i] = gelu(my->hidden.at[i]);
        w = linear(my->partial[1], my->hidden, my->rows, hidden, C, w);
        gather(decoder, my, 1);
    }
    const Matrix logits = { shape->logits, padded(shape->vocab_size, PANEL) };
    w = norm(my->normal, my->x, my->rows, C, w);
    linear(part_of(logits, my->text[0], my->share.first_id), my->normal, my->rows, C, my->share.ids, w);
}

/* For qsort: larger values first, and of equal ones the lower id. */
static int by_value(const void *left, const void *right)
{
    const Candidate *a = left, *b = right;
    return a->value < b->value ? 1 : a->value > b->value ? -1 : a->id - b->id;
}

/* How many of n candidates, sorted by value, the first's being 0, the sampling keeps. */
static int keep(const Candidate *sorted, int n, const Sampling *sampling)
{
    if (sampling->top_k && sampling->top_k < n) {
        const int all = n;
        for (n = sampling->top_k; n < all && sorted[n].value == sorted[n - 1].value;)
            n++;
    }
    if (sampling->top_p < 1) {
        float total = 0;
        for (int i = 0; i < n; i++)
            total += exponential(sorted[i].value);
        double before = 0;
        int kept = 0;
        for (; kept < n && (float)before < sampling->top_p; kept++)
            before += exponential(sorted[kept].value) / total;
        n = kept;
    }
    while (n > 1 && exponential(sorted[n - 1].value) < sampling->min_p)
        n--;
    return n;
}

/* The next id after `logits` (V,): the winner of the race in generate.py. `log_probability` is the model's own, in nats. */
static int choose(
    const float *logits, int V, const Sampling *sampling, const float *noise, Candidate *candidates, float *log_probability)
{
    float highest = logits[0], total = 0, fastest = -1;
    int n = 0, winner = -1;
    for (int id = 0; id < V; id++)
        highest = most(highest, logits[id]);
    for (int id = 0; id < V; id++)
        total += exponential(logits[id] - highest);
    for (int id = 0; id < V; id++)
        if (!sampling->forbidden[id]) {
            candidates[n++] = (Candidate){ logits[id], id };
            if (winner < 0 || logits[id] > logits[winner])
                winner = id;
        }
    if (sampling->temperature > 0) {
        const float likeliest = logits[winner];
        for (int i = 0; i < n; i++)
            candidates[i].value = (candidates[i].value - likeliest) / sampling->temperature;
        if (sampling->top_k || sampling->top_p < 1 || sampling->min_p > 0) {
            qsort(candidates, n, sizeof *candidates, by_value);
            n = keep(candidates, n, sampling);
        }
        for (int i = 0; i < n; i++) {
            const int id = candidates[i].id;
            const float speed = exponential(candidates[i].value) / most(noise[id], FLT_MIN);
            if (speed > fastest || (speed == fastest && id < winner)) {
                fastest = speed;
                winner = id;
            }
        }
    }
    *log_probability = logits[winner] - highest - logf(total);
    return winner;
}

/* A thread's part of the job. */
static void work(Decoder *decoder, int r)
{
    const Job *job = &decoder->job;
    Rank *my = &decoder->rank[r];
    const int texts = decoder->shape.texts, V = decoder->shape.vocab_size;
    const int64_t *ids = job->ids;
    int start = job->start, count = job->count, step = 0;
    do {
        for (int first = 0, left; (left = texts * count - first) > 0; first += ROWS) {
            embed(&decoder->shape, my, ids, start, count, first, left < ROWS ? left : ROWS);
            forward(decoder, my, start + count - 1);
        }
        meet(decoder);
        for (int text = r; text < texts && job->steps; text += decoder->shape.ranks) {
            const size_t at = (size_t)step * texts + text;
            job->chosen[at] = choose(decoder->shape.logits + text * padded(V, PANEL), V, job->sampling, job->noise + at * V,
                                     my->candidates, &job->log_probabilities[at]);
        }
        meet(decoder);
        ids = job->chosen + (size_t)step * texts;
        start += count;
        count = 1;
    } while (++step < job->steps);
    meet(decoder); /* nobody looks at the job any more */
}

#ifdef __linux__
static int current_core(void) { return sched_getcpu(); }

/* Leave that core, if there is another: the scheduler likes to wake a thread where its waker runs, and takes long to see that
 * two of them are then waiting for each other. */
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

static void *worker(void *argument)
{
    Rank *my = argument;
    Decoder *decoder = my->decoder;
    for (int jobs = 0;; jobs++) {
        for (int looks = 0; looks < PATIENCE && atomic_load(&decoder->jobs) == jobs; looks++)
            ;
        pthread_mutex_lock(&decoder->lock);
        while (atomic_load(&decoder->jobs) == jobs)
            pthread_cond_wait(&decoder->wake, &decoder->lock);
        pthread_mutex_unlock(&decoder->lock);
        if (decoder->leave)
            return NULL;
        leave_core(decoder->job.core);
        work(decoder, my - decoder->rank);
    }
}

static void wake(Decoder *decoder)
{
    pthread_mutex_lock(&decoder->lock);
    atomic_fetch_add(&decoder->jobs, 1);
    pthread_cond_broadcast(&decoder->wake);
    pthread_mutex_unlock(&decoder->lock);
}

/* Read `count` ids of each text, (texts, count), the first at position `start` and block_size not exceeded, then write `steps`
 * more. `noise` is (steps, texts, V), exponentially distributed, or NULL at temperature 0. The results are `chosen` and
 * `log_probabilities`, both (steps, texts); the last ids chosen are not yet read. With no steps, only the logits are left. */
void decoder_write(Decoder *decoder, const Sampling *sampling, int start, int count, const int64_t *ids, int steps,
                   const float *noise, int64_t *chosen, float *log_probabilities)
{
    decoder->job = (Job){ current_core(), sampling, start, count, ids, steps, noise, chosen, log_probabilities };
    wake(decoder);
    work(decoder, 0);
}

/* Give a thread its memory, all zeros. False when there is none. */
static bool allot(Rank *my, const Shape *shape)
{
    const size_t own = my->share.heads * (shape->n_embd / shape->n_head), cache = place(shape, my, shape->n_layer, 0, 0);
    my->x.stride = my->normal.stride = my->partial[0].stride = my->partial[1].stride = padded(shape->n_embd, PANEL);
    my->qkv.stride = padded(3 * own, PANEL);
    my->mixed.stride = padded(own, PANEL);
    my->hidden.stride = padded(my->share.hidden, PANEL);
    Matrix *matrices[] = { &my->x, &my->normal, &my->partial[0], &my->partial[1], &my->qkv, &my->mixed, &my->hidden };
    const int n = sizeof matrices / sizeof *matrices;
    size_t total = 2 * cache + padded(shape->block_size, KEYS);
    for (int i = 0; i < n; i++)
        total += ROWS * matrices[i]->stride;
    float *at = my->memory = aligned_alloc(ALIGNMENT, total * sizeof *at);
    my->candidates = calloc(shape->vocab_size, sizeof *my->candidates);
    if (!at || !my->candidates)
        return false;
    memset(at, 0, total * sizeof *at);
    for (int i = 0; i < n; at += ROWS * matrices[i++]->stride)
        matrices[i]->at = at;
    my->keys = at;
    my->values = my->keys + cache;
    my->scores = my->values + cache;
    return true;
}

void decoder_free(Decoder *decoder)
{
    decoder->leave = true;
    wake(decoder);
    for (int r = 0; r < decoder->ranks; r++) {
        if (r > 0)
            pthread_join(decoder->rank[r].thread, NULL);
        free(decoder->rank[r].memory);
        free(decoder->rank[r].candidates);
    }
    free(decoder);
}

/* A decoder with a share for each of its ranks. What they point to must outlive it. NULL where there is no memory, or no
 * thread, to be had. */
Decoder *decoder_new(const Shape *shape, const Share *shares)
{
    Decoder *decoder = calloc(1, sizeof *decoder + shape->ranks * sizeof *decoder->rank);
    if (!decoder)
        return NULL;
    decoder->shape = *shape;
    pthread_mutex_init(&decoder->lock, NULL);
    pthread_cond_init(&decoder->wake, NULL);
    for (int r = 0; r < shape->ranks; r++, decoder->ranks++) {
        Rank *rank = &decoder->rank[r];
        rank->share = shares[r];
        rank->decoder = decoder;
        if (!allot(rank, shape) || (r > 0 && pthread_create(&rank->thread, NULL, worker, rank))) {
            free(rank->memory);
            free(rank->candidates);
            decoder_free(decoder);
            return NULL;
        }
    }
    return decoder;
}
