/* Writing with a GPT: model.py's arithmetic for a few characters at a time, in float32, and generate.py's choice of the next.
 *
 * A network of this size writes as fast as its weights can be read from memory. So they stand in the order of their use, and
 * each is read once for all the rows (characters) at hand.
 *
 * Threads share the work as the GPUs of Megatron-LM do (arXiv 1909.08053): each owns some heads and some of the MLP's hidden
 * units, all the way from the stream and back to it, so that they meet only twice a layer. What is cheap (the stream itself,
 * the norms) every thread computes for itself.
 *
 * The letters are model.py's: C channels, d head size, V vocabulary. Rows of C, and of anything else that a matrix yields, are
 * padded to a multiple of PANEL. A matrix of K inputs and N outputs stands as panels of PANEL outputs: K rows of weights, then
 * one of biases, K padded with zeros to a multiple of STEP. chargpt/decoder.py lays all of this out.
 */

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
};

typedef float vector __attribute__((vector_size(4 * LANES)));

typedef struct {
    int n_layer, n_head, n_embd, block_size, vocab_size, texts, ranks;
    const float *tokens;    /* the embedding of each id, (V, C) */
    const float *positions; /* what is added to it, (block_size, C), or NULL */
    const float *rotary;    /* cosines and sines, (2, block_size, d / 2), or NULL */
    float *logits;          /* left here, (texts, V padded) */
} Shape;

typedef struct { /* what is a thread's own, of the weights and of the ids whose logits it computes */
    int heads, hidden, first_id, ids;
    const float *weights;
} Share;

typedef struct {
    int n;
    int text[ROWS], position[ROWS];
} Rows;

typedef struct {
    float value;
    int id;
} Candidate;

typedef struct { /* a thread */
    Share share;
    Rows rows;
    size_t stream, qkv, mixed, hidden; /* from a row to the next in... */
    float *x, *normal, *q, *y, *h;     /* x and normal; q; y; h */
    float *partial[2];                 /* what its heads, and its hidden units, add to the stream */
    float *keys, *values, *scores;
    Candidate *candidates;
    void *memory;
} Rank;

typedef struct {
    Shape shape;
    atomic_int arrived, meetings;
    Rank rank[];
} Decoder;

typedef struct { /* as in generate.py; temperature 0 takes the likeliest */
    float temperature, top_p, min_p;
    int top_k;
    const uint8_t *forbidden; /* (V,): 1 for an id that must not come */
} Sampling;

typedef struct { /* a call of decoder_write */
    Decoder *decoder;
    const Sampling *sampling;
    int start, count;
    const int64_t *ids;
    int steps;
    const float *noise;
    int64_t *chosen;
    float *log_probabilities;
    atomic_int go; /* 0: wait until all threads are there; 1: they are; -1: they cannot be had */
} Job;

typedef struct {
    Job *job;
    int rank;
} Worker;

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

/* A panel's outputs for `rows` rows: a number that the compiler knows, so that all sums stay in registers. */
static inline __attribute__((always_inline)) void tile(
    const int rows, float *out, size_t out_stride, const float *in, size_t in_stride, size_t K, const float *w)
{
    const int parts = rows == 1 ? STEP : 1; /* a sum waits for its last addend: the fewer rows, the more sums it takes */
    const vector *weights = (const vector *)w;
    vector sum[STEP][TALL][WIDE] = { 0 };
    for (size_t k = 0; k < K; k += parts)
#pragma GCC unroll 2
        for (int part = 0; part < parts; part++)
#pragma GCC unroll 6
            for (int row = 0; row < rows; row++)
#pragma GCC unroll 4
                for (int n = 0; n < WIDE; n++)
                    sum[part][row][n] += in[row * in_stride + k + part] * weights[(k + part) * WIDE + n];
#pragma GCC unroll 6
    for (int row = 0; row < rows; row++)
#pragma GCC unroll 4
        for (int n = 0; n < WIDE; n++)
            ((vector *)(out + row * out_stride))[n] = weights[K * WIDE + n] + sum[0][row][n] + sum[1][row][n];
}

/* out (rows, N) = in (rows, K) times a matrix, plus its biases. Returns where the next weights begin. */
static const float *linear(
    float *out, size_t out_stride, const float *in, size_t in_stride, int rows, size_t K, size_t N, const float *w)
{
    K = padded(K, STEP);
    for (size_t n = 0; n < N; n += PANEL, w += (K + 1) * PANEL) {
        int row = 0;
        for (; row + TALL <= rows; row += TALL)
            tile(TALL, out + row * out_stride + n, out_stride, in + row * in_stride, in_stride, K, w);
        for (; row + 2 <= rows; row += 2)
            tile(2, out + row * out_stride + n, out_stride, in + row * in_stride, in_stride, K, w);
        if (row < rows)
            tile(1, out + row * out_stride + n, out_stride, in + row * in_stride, in_stride, K, w);
    }
    return w;
}

/* LayerNorm of rows of C. Returns where the next weights begin. */
static const float *norm(float *out, const float *x, int rows, int C, const float *w)
{
    const size_t stride = padded(C, PANEL);
    for (int row = 0; row < rows; row++, x += stride, out += stride) {
        float mean = 0, variance = 0;
        for (int i = 0; i < C; i++)
            mean += x[i];
        mean /= C;
        for (int i = 0; i < C; i++)
            variance += (x[i] - mean) * (x[i] - mean);
        const float scale = 1 / sqrtf(variance / C + 1e-5f);
        for (int i = 0; i < C; i++)
            out[i] = (x[i] - mean) * scale * w[i] + w[stride + i];
    }
    return w + 2 * stride;
}

/* Wait until every thread is here. */
static void meet(Decoder *decoder)
{
    const int meeting = atomic_load(&decoder->meetings);
    if (atomic_fetch_add(&decoder->arrived, 1) + 1 == decoder->shape.ranks) {
        atomic_store(&decoder->arrived, 0);
        atomic_store(&decoder->meetings, meeting + 1);
    }
    for (int tries = 0; atomic_load(&decoder->meetings) == meeting; tries++)
        if (tries > 10000) /* some microseconds: another program has that thread's core, and may have this one */
            sched_yield();
}

/* Add to the stream what every thread has computed of it. */
static void gather(Decoder *decoder, Rank *my, int which)
{
    const size_t n = my->rows.n * my->stream;
    meet(decoder);
    for (int r = 0; r < decoder->shape.ranks; r++) {
        const float *partial = decoder->rank[r].partial[which];
        for (size_t i = 0; i < n; i++)
            my->x[i] += partial[i];
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

/* Where a head's keys and values begin. Keys stand KEYS side by side, (block_size / KEYS, d, KEYS); values (block_size, d). */
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

/* Put the embeddings of ids [first, first + n) of `count` for each text, the first of them at position `start`, on the stream. */
static void embed(const Shape *shape, Rank *my, const int64_t *ids, int start, int count, int first, int n)
{
    const int C = shape->n_embd;
    my->rows.n = n;
    for (int row = 0; row < n; row++) {
        const int position = start + (first + row) % count;
        const float *token = shape->tokens + ids[first + row] * C;
        float *x = my->x + row * my->stream;
        memcpy(x, token, C * sizeof *x);
        if (shape->positions)
            for (int i = 0; i < C; i++)
                x[i] += shape->positions[(size_t)position * C + i];
        my->rows.text[row] = (first + row) / count;
        my->rows.position[row] = position;
    }
}

/* Put the keys and values of all rows into the cache of this layer. */
static void remember_rows(const Shape *shape, Rank *my, int layer)
{
    const int d = shape->n_embd / shape->n_head, own = my->share.heads * d;
    for (int row = 0; row < my->rows.n; row++)
        for (int head = 0; head < my->share.heads; head++) {
            const size_t at = place(shape, my, layer, my->rows.text[row], head);
            float *q = my->q + row * my->qkv + head * d, *k = q + own, *v = k + own;
            if (shape->rotary) {
                rotate(q, my->rows.position[row], shape);
                rotate(k, my->rows.position[row], shape);
            }
            remember(my->keys + at, my->values + at, k, v, my->rows.position[row], d);
        }
}

static void attend_rows(const Shape *shape, Rank *my, int layer)
{
    const int d = shape->n_embd / shape->n_head;
    for (int row = 0; row < my->rows.n; row++)
        for (int head = 0; head < my->share.heads; head++) {
            const size_t at = place(shape, my, layer, my->rows.text[row], head);
            attend(my->y + row * my->mixed + head * d, my->q + row * my->qkv + head * d, my->keys + at, my->values + at,
                   my->rows.position[row] + 1, d, my->scores);
        }
}

/* Go on with the rows at position `last` alone. */
static void drop_all_but(Rank *my, int last)
{
    int kept = 0;
    for (int row = 0; row < my->rows.n; row++)
        if (my->rows.position[row] == last) {
            memmove(my->x + kept * my->stream, my->x + row * my->stream, my->stream * sizeof *my->x);
            memmove(my->q + kept * my->qkv, my->q + row * my->qkv, my->qkv * sizeof *my->q);
            my->rows.text[kept] = my->rows.text[row];
            my->rows.position[kept++] = last;
        }
    my->rows.n = kept;
}

/* Send the rows through all layers. The logits of what follows are left for those at position `last`, and for no others. */
static void forward(Decoder *decoder, Rank *my, int last)
{
    const Shape *shape = &decoder->shape;
    const int C = shape->n_embd, own = my->share.heads * (C / shape->n_head), hidden = my->share.hidden;
    const float *w = my->share.weights;
    for (int layer = 0; layer < shape->n_layer; layer++) {
        w = norm(my->normal, my->x, my->rows.n, C, w);
        w = linear(my->q, my->qkv, my->normal, my->stream, my->rows.n, C, 3 * own, w);
        remember_rows(shape, my, layer);
        if (layer == shape->n_layer - 1)
            drop_all_but(my, last);
        attend_rows(shape, my, layer);
        w = linear(my->partial[0], my->stream, my->y, my->mixed, my->rows.n, own, C, w);
        gather(decoder, my, 0);
        w = norm(my->normal, my->x, my->rows.n, C, w);
        w = linear(my->h, my->hidden, my->normal, my->stream, my->rows.n, C, hidden, w);
        for (size_t i = 0; i < my->rows.n * my->hidden; i++)
            my->h[i] = gelu(my->h[i]);
        w = linear(my->partial[1], my->stream, my->h, my->hidden, my->rows.n, hidden, C, w);
        gather(decoder, my, 1);
    }
    const size_t V = padded(shape->vocab_size, PANEL);
    float *logits = shape->logits + my->rows.text[0] * V + my->share.first_id;
    w = norm(my->normal, my->x, my->rows.n, C, w);
    linear(logits, V, my->normal, my->stream, my->rows.n, C, my->share.ids, w);
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
    while (exponential(sorted[n - 1].value) < sampling->min_p)
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
            const float speed = exponential(candidates[i].value) / noise[id];
            if (speed > fastest || (speed == fastest && id < winner)) {
                fastest = speed;
                winner = id;
            }
        }
    }
    *log_probability = logits[winner] - highest - logf(total);
    return winner;
}

/* One thread's part of a job. */
static void work(const Job *job, int r)
{
    Decoder *decoder = job->decoder;
    Rank *my = &decoder->rank[r];
    const int texts = decoder->shape.texts, V = decoder->shape.vocab_size;
    const int64_t *ids = job->ids;
    int start = job->start, count = job->count, step = 0;
    do {
        for (int first = 0; first < texts * count; first += ROWS) {
            embed(&decoder->shape, my, ids, start, count, first, texts * count - first < ROWS ? texts * count - first : ROWS);
            forward(decoder, my, start + count - 1);
        }
        meet(decoder);
        if (step == job->steps)
            return;
        for (int text = r; text < texts; text += decoder->shape.ranks) {
            const size_t at = (size_t)step * texts + text;
            job->chosen[at] = choose(decoder->shape.logits + text * padded(V, PANEL), V, job->sampling, job->noise + at * V,
                                     my->candidates, &job->log_probabilities[at]);
        }
        meet(decoder);
        ids = job->chosen + (size_t)step * texts;
        start += count;
        count = 1;
    } while (++step < job->steps);
}

static void *worker(void *argument)
{
    const Worker *me = argument;
    int go;
    while (!(go = atomic_load(&me->job->go)))
        sched_yield();
    if (go > 0)
        work(me->job, me->rank);
    return NULL;
}

/* Read `count` ids of each text, (texts, count), the first at position `start` and block_size not exceeded, then write `steps`
 * more. `noise` is (steps, texts, V), exponentially distributed and above 0, or NULL at temperature 0. The results are `chosen`
 * and `log_probabilities`, both (steps, texts); the last ids chosen are not yet read. With no steps, only the logits are left.
 * Returns 0, or -1 if the system has no threads to spare. */
int decoder_write(Decoder *decoder, const Sampling *sampling, int start, int count, const int64_t *ids, int steps,
                  const float *noise, int64_t *chosen, float *log_probabilities)
{
    const int ranks = decoder->shape.ranks;
    Job job = { decoder, sampling, start, count, ids, steps, noise, chosen, log_probabilities, 0 };
    pthread_t threads[ranks];
    Worker workers[ranks];
    int started = 1;
    for (; started < ranks; started++) {
        workers[started] = (Worker){ &job, started };
        if (pthread_create(&threads[started], NULL, worker, &workers[started]))
            break;
    }
    atomic_store(&job.go, started == ranks ? 1 : -1);
    if (started == ranks)
        work(&job, 0);
    for (int r = 1; r < started; r++)
        pthread_join(threads[r], NULL);
    return started == ranks ? 0 : -1;
}

/* Give a thread its memory, all zeros. False when there is none. */
static bool allot(Rank *my, const Shape *shape)
{
    const size_t own = (size_t)my->share.heads * (shape->n_embd / shape->n_head), cache = place(shape, my, shape->n_layer, 0, 0);
    my->stream = padded(shape->n_embd, PANEL);
    my->qkv = padded(3 * own, PANEL);
    my->mixed = padded(own, PANEL);
    my->hidden = padded(my->share.hidden, PANEL);
    const struct { float **start; size_t length; } parts[] = {
        { &my->x, ROWS * my->stream }, { &my->normal, ROWS * my->stream }, { &my->q, ROWS * my->qkv },
        { &my->y, ROWS * my->mixed }, { &my->h, ROWS * my->hidden },
        { &my->partial[0], ROWS * my->stream }, { &my->partial[1], ROWS * my->stream },
        { &my->keys, cache }, { &my->values, cache }, { &my->scores, padded(shape->block_size, KEYS) },
        { (float **)&my->candidates, padded(2 * shape->vocab_size, PANEL) },
    };
    const int n = sizeof parts / sizeof *parts;
    size_t total = 0;
    for (int i = 0; i < n; i++)
        total += parts[i].length;
    float *at = my->memory = aligned_alloc(ALIGNMENT, total * sizeof(float));
    if (!at)
        return false;
    memset(at, 0, total * sizeof(float));
    for (int i = 0; i < n; at += parts[i++].length)
        *parts[i].start = at;
    return true;
}

void decoder_free(Decoder *decoder)
{
    for (int r = 0; r < decoder->shape.ranks; r++)
        free(decoder->rank[r].memory);
    free(decoder);
}

/* A decoder of `shape`, with a share for each of its ranks. What they point to must outlive it. NULL when there is no memory. */
Decoder *decoder_new(const Shape *shape, const Share *shares)
{
    Decoder *decoder = calloc(1, sizeof *decoder + shape->ranks * sizeof *decoder->rank);
    if (!decoder)
        return NULL;
    decoder->shape = *shape;
    for (int r = 0; r < shape->ranks; r++) {
        decoder->rank[r].share = shares[r];
        if (!allot(&decoder->rank[r], shape)) {
            decoder_free(decoder);
            return NULL;
        }
    }
    return decoder;
}
