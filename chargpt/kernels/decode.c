/* A GPT's next characters: the arithmetic of model.py in float32 and the sampling rules of chargpt/sampling/rules.py.
 *
 *     x = E[id] + position                          E: the token embedding (V, C)
 *     x = x + attention(norm(x)) W_proj^T + b       once a layer, and then
 *     x = x + gelu(norm(x) W_up^T + b) W_down^T + b
 *     logits = norm(x) E^T
 *
 * The race of a small network is limited by the memory bandwidth for its weights. They are therefore stored in the order of
 * use, and each is read once for all rows (characters) at hand.
 *
 * Threads share the work as the GPUs of Megatron-LM do (arXiv 1909.08053): each owns some heads and some of the MLP's hidden
 * units, so that threads wait for each other only twice a layer. Every thread computes the cheap parts, the residual stream and
 * the norms, for itself.
 *
 * The letters are model.py's: C channels, d head size, V vocabulary. Rows of numbers are padded to a multiple of PANEL. A layer
 * of K inputs and N outputs is stored as panels of PANEL outputs: K rows of weights, then one of biases, K padded with zeros to
 * a multiple of STEP. chargpt/sampling/c_decoder.py writes this layout.
 */

#define _GNU_SOURCE /* declares sched_getcpu and sched_setaffinity */

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
enum { LANES = 16, TALL = 6 }; /* the sums of TALL rows of a panel fill the registers */
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
    STEP = 2,             /* inputs summed separately when there is one row */
    ROWS = 96,            /* rows that go through the layers together */
    KEYS = 64,            /* keys stored side by side */
    ALIGNMENT = 64,       /* bytes: a cache line, and the widest vector */
    SPINS = 5000,         /* reads of a variable before waiting otherwise: some microseconds */
};

typedef float vector __attribute__((vector_size(4 * LANES)));

typedef struct { /* this structure, Share and Rules are also in decode.py */
    int n_layer, n_head, n_embd, block_size, vocab_size, texts, ranks;
    const float *tokens;    /* the token embedding, (V, C) */
    const float *positions; /* what is added to it, (block_size, C), or NULL */
    const float *rotary;    /* cosines and sines, (2, block_size, d / 2), or NULL */
    float *logits;          /* output, (texts, V padded to PANEL) */
} Shape;

typedef struct { /* a thread's part of the model: numbers of heads and of hidden units, and the ids whose logits it computes */
    int heads, hidden, first_id, ids;
    const float *weights;
} Share;

typedef struct { /* rows are `stride` numbers apart */
    float *data;
    size_t stride;
} Matrix;

typedef struct {
    float value;
    int id;
} Candidate;

typedef struct { /* the rules of chargpt/sampling; temperature 0 takes the likeliest id */
    float temperature, top_p, min_p;
    int top_k;
    const uint8_t *forbidden; /* (V,): 1 for an id that must not be chosen */
} Rules;

typedef struct { /* the arguments of decoder_run, and the core that called it */
    int core;
    const Rules *rules;
    int start, count;
    const int64_t *ids;
    int steps;
    const float *noise;
    int64_t *chosen;
    float *log_probabilities;
} Job;

typedef struct { /* a thread */
    Share share;
    int rows;                       /* number of rows in x, */
    int text[ROWS], position[ROWS]; /* and the text and the position of each */
    Matrix x, normal;               /* the residual stream, and the norm's output, (ROWS, C) each */
    Matrix qkv, mixed, hidden;      /* q k v, attention's output, and the MLP's hidden units */
    Matrix partial[2];              /* what the thread's heads, and its hidden units, add to x, (ROWS, C) each */
    float *keys, *values;           /* the cache, see `cache_offset` */
    float *scores;                  /* (block_size padded to KEYS) */
    Candidate *candidates;          /* (V,) */
    void *memory;
    pthread_t thread;
    struct Decoder *decoder;
} Rank;

typedef struct Decoder {
    Shape shape;
    Job job;
    atomic_int arrived;  /* threads that wait at the barrier */
    atomic_int barriers; /* barriers passed */
    atomic_int jobs;     /* jobs started */
    bool stop;           /* the next job is none: threads end */
    pthread_mutex_t lock;
    pthread_cond_t job_started;
    int ranks; /* threads: rank 0 is the caller's, the others are the decoder's own */
    Rank rank[];
} Decoder;

const int decoder_panel = PANEL, decoder_step = STEP;

size_t decoder_shape_size(void) { return sizeof(Shape); }
size_t decoder_share_size(void) { return sizeof(Share); }
size_t decoder_rules_size(void) { return sizeof(Rules); }

static size_t padded(size_t n, size_t to) { return (n + to - 1) / to * to; }
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

/* One panel: out (rows, PANEL) = in (rows, K) w (K, PANEL) + bias (PANEL). `rows` is a constant, so that all sums stay in
 * registers. */
static inline __attribute__((always_inline)) void tile(const int rows, Matrix out, Matrix in, size_t K, const float *w)
{
    const int parts = rows == 1 ? STEP : 1; /* an addition waits for the one before it, so one row alone has two sums */
    const vector *weights = (const vector *)w;
    vector sum[STEP][TALL][WIDE] = { 0 };
    for (size_t k = 0; k < K; k += parts)
#pragma GCC unroll 8
        for (int part = 0; part < parts; part++)
#pragma GCC unroll 8
            for (int row = 0; row < rows; row++)
#pragma GCC unroll 8
                for (int n = 0; n < WIDE; n++)
                    sum[part][row][n] += in.data[row * in.stride + k + part] * weights[(k + part) * WIDE + n];
#pragma GCC unroll 8
    for (int row = 0; row < rows; row++)
#pragma GCC unroll 8
        for (int n = 0; n < WIDE; n++)
            ((vector *)(out.data + row * out.stride))[n] = weights[K * WIDE + n] + sum[0][row][n] + sum[1][row][n];
}

/* out (rows, N) = in (rows, K) W^T (K, N) + b (N). Returns where the next weights begin. */
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

/* LayerNorm of rows of C numbers: out = (in - mean) / sqrt(variance + 1e-5) * w + bias. Returns where the next weights
 * begin. */
static const float *norm(Matrix out, Matrix in, int rows, int C, const float *w)
{
    const float *bias = w + in.stride;
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
    return bias + in.stride;
}

/* Returns when every thread has called it. */
static void barrier(Decoder *decoder)
{
    const int passed = atomic_load(&decoder->barriers);
    if (atomic_fetch_add(&decoder->arrived, 1) + 1 == decoder->shape.ranks) {
        atomic_store(&decoder->arrived, 0);
        atomic_store(&decoder->barriers, passed + 1);
    }
    for (int spins = 0; atomic_load(&decoder->barriers) == passed; spins++)
        if (spins > SPINS) /* the other thread has no core, or needs this one */
            sched_yield();
}

/* x (rows, C) += the sum over all threads of partial[which] (rows, C). */
static void all_reduce(Decoder *decoder, Rank *my, int which)
{
    barrier(decoder);
    for (int r = 0; r < decoder->shape.ranks; r++) {
        const float *partial = decoder->rank[r].partial[which].data;
        for (size_t i = 0; i < my->rows * my->x.stride; i++)
            my->x.data[i] += partial[i];
    }
}

/* Rotates each pair (x[i], x[i + d / 2]) of a query or key, (d), by its position's angles: model.py's `rotate`. */
static void rotate(float *x, int position, const Shape *shape)
{
    const int half = shape->n_embd / shape->n_head / 2;
    const float *cosine = shape->rotary + (size_t)position * half, *sine = cosine + (size_t)shape->block_size * half;
    for (int i = 0; i < half; i++) {
        const float first = x[i], second = x[i + half];
        x[i] = first * cosine[i] - second * sine[i];
        x[i + half] = second * cosine[i] + first * sine[i];
    }
}

/* Where the keys and the values of a head begin in the cache. Keys are (block_size / KEYS, d, KEYS), that is, KEYS of them side
 * by side; values are (block_size, d). block_size is padded to KEYS and d to LANES. */
static size_t cache_offset(const Shape *shape, const Rank *my, int layer, int text, int head)
{
    const size_t positions = padded(shape->block_size, KEYS), d = padded(shape->n_embd / shape->n_head, LANES);
    return (((size_t)layer * shape->texts + text) * my->share.heads + head) * positions * d;
}

/* Stores one position's key k (d) and value v (d) in one head's part of the cache. */
static void cache_store(float *keys, float *values, const float *k, const float *v, int position, int d)
{
    float *key = keys + (size_t)(position / KEYS) * KEYS * d + position % KEYS;
    for (int i = 0; i < d; i++)
        key[i * KEYS] = k[i];
    memcpy(values + position * padded(d, LANES), v, d * sizeof *v);
}

/* out (d) = softmax(q k^T / sqrt(d)) v over the first `length` keys and values of one head; q (d), scores (length). */
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
        highest = max(highest, scores[s]);
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

/* x = E[id] + position, for ids [first, first + rows) of (texts, count). The first id of each text is at position `start`. */
static void embed(const Shape *shape, Rank *my, const int64_t *ids, int start, int count, int first, int rows)
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
    const int d = shape->n_embd / shape->n_head, own = my->share.heads * d;
    for (int row = 0; row < my->rows; row++)
        for (int head = 0; head < my->share.heads; head++) {
            const size_t at = cache_offset(shape, my, layer, my->text[row], head);
            float *q = my->qkv.data + row * my->qkv.stride + head * d, *k = q + own, *v = k + own;
            if (shape->rotary) {
                rotate(q, my->position[row], shape);
                rotate(k, my->position[row], shape);
            }
            cache_store(my->keys + at, my->values + at, k, v, my->position[row], d);
        }
}

/* mixed (rows, heads d) = attention of every row over its text up to its position. */
static void attend_rows(const Shape *shape, Rank *my, int layer)
{
    const int d = shape->n_embd / shape->n_head;
    for (int row = 0; row < my->rows; row++)
        for (int head = 0; head < my->share.heads; head++) {
            const size_t at = cache_offset(shape, my, layer, my->text[row], head);
            const float *q = my->qkv.data + row * my->qkv.stride + head * d;
            float *out = my->mixed.data + row * my->mixed.stride + head * d;
            attend(out, q, my->keys + at, my->values + at, my->position[row] + 1, d, my->scores);
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

/* All layers for the rows, and the logits of those at position `last`. In the last layer only the keys and values of the other
 * rows are computed. */
static void forward(Decoder *decoder, Rank *my, int last)
{
    const Shape *shape = &decoder->shape;
    const int C = shape->n_embd, own = my->share.heads * (C / shape->n_head), hidden = my->share.hidden;
    const float *w = my->share.weights;
    for (int layer = 0; layer < shape->n_layer; layer++) {
        w = norm(my->normal, my->x, my->rows, C, w);
        w = linear(my->qkv, my->normal, my->rows, C, 3 * own, w);
        cache_store_rows(shape, my, layer);
        if (layer == shape->n_layer - 1)
            keep_only(my, last);
        attend_rows(shape, my, layer);
        w = linear(my->partial[0], my->mixed, my->rows, own, C, w);
        all_reduce(decoder, my, 0);
        w = norm(my->normal, my->x, my->rows, C, w);
        w = linear(my->hidden, my->normal, my->rows, C, hidden, w);
        for (size_t i = 0; i < my->rows * my->hidden.stride; i++)
            my->hidden.data[i] = gelu(my->hidden.data[i]);
        w = linear(my->partial[1], my->hidden, my->rows, hidden, C, w);
        all_reduce(decoder, my, 1);
    }
    const Matrix logits = { shape->logits, padded(shape->vocab_size, PANEL) };
    w = norm(my->normal, my->x, my->rows, C, w);
    linear(part_of(logits, my->text[0], my->share.first_id), my->normal, my->rows, C, my->share.ids, w);
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

/* The next id after `logits` (V,): the largest probability / noise among the candidates, or the likeliest at temperature 0, as
 * in chargpt/sampling/rules.py. `log_probability`, in nats, is of the model's distribution before any rule. */
static int choose(
    const float *logits, int V, const Rules *rules, const float *noise, Candidate *candidates, float *log_probability)
{
    float highest = logits[0], total = 0, best = -1;
    int n = 0, winner = -1;
    for (int id = 0; id < V; id++)
        highest = max(highest, logits[id]);
    for (int id = 0; id < V; id++)
        total += exponential(logits[id] - highest);
    for (int id = 0; id < V; id++)
        if (!rules->forbidden[id]) {
            candidates[n++] = (Candidate){ logits[id], id };
            if (winner < 0 || logits[id] > logits[winner])
                winner = id;
        }
    if (rules->temperature > 0) {
        const float likeliest = logits[winner];
        for (int i = 0; i < n; i++)
            candidates[i].value = (candidates[i].value - likeliest) / rules->temperature;
        if (rules->top_k || rules->top_p < 1 || rules->min_p > 0) {
            qsort(candidates, n, sizeof *candidates, by_value);
            n = count_kept(candidates, n, rules);
        }
        for (int i = 0; i < n; i++) {
            const int id = candidates[i].id;
            const float race = exponential(candidates[i].value) / max(noise[id], FLT_MIN);
            if (race > best || (race == best && id < winner)) {
                best = race;
                winner = id;
            }
        }
    }
    *log_probability = logits[winner] - highest - logf(total);
    return winner;
}

/* Rank r's part of the job. */
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
        barrier(decoder);
        for (int text = r; text < texts && job->steps; text += decoder->shape.ranks) {
            const size_t at = (size_t)step * texts + text;
            job->chosen[at] = choose(decoder->shape.logits + text * padded(V, PANEL), V, job->rules, job->noise + at * V,
                                     my->candidates, &job->log_probabilities[at]);
        }
        barrier(decoder);
        ids = job->chosen + (size_t)step * texts;
        start += count;
        count = 1;
    } while (++step < job->steps);
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

static void *worker(void *argument)
{
    Rank *my = argument;
    Decoder *decoder = my->decoder;
    for (int jobs = 0;; jobs++) {
        for (int spins = 0; spins < SPINS && atomic_load(&decoder->jobs) == jobs; spins++)
            ;
        pthread_mutex_lock(&decoder->lock);
        while (atomic_load(&decoder->jobs) == jobs)
            pthread_cond_wait(&decoder->job_started, &decoder->lock);
        pthread_mutex_unlock(&decoder->lock);
        if (decoder->stop)
            return NULL;
        leave_core(decoder->job.core);
        work(decoder, my - decoder->rank);
    }
}

static void start_job(Decoder *decoder)
{
    pthread_mutex_lock(&decoder->lock);
    atomic_fetch_add(&decoder->jobs, 1);
    pthread_cond_broadcast(&decoder->job_started);
    pthread_mutex_unlock(&decoder->lock);
}

/* Reads `count` ids of each text, (texts, count), the first at position `start`, then chooses `steps` more for each. At most
 * block_size positions are read. `noise` is (steps, texts, V), exponentially distributed, or NULL at temperature 0. Results are
 * `chosen` and `log_probabilities`, (steps, texts) each; the last chosen ids are not read. With steps = 0, the result is
 * shape.logits. */
void decoder_run(Decoder *decoder, const Rules *rules, int start, int count, const int64_t *ids, int steps,
                 const float *noise, int64_t *chosen, float *log_probabilities)
{
    decoder->job = (Job){ current_core(), rules, start, count, ids, steps, noise, chosen, log_probabilities };
    start_job(decoder);
    work(decoder, 0);
}

/* Allocates a thread's memory, all zeros. False if there is not enough. */
static bool allocate(Rank *my, const Shape *shape)
{
    const size_t own = my->share.heads * (shape->n_embd / shape->n_head), cache = cache_offset(shape, my, shape->n_layer, 0, 0);
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
        matrices[i]->data = at;
    my->keys = at;
    my->values = my->keys + cache;
    my->scores = my->values + cache;
    return true;
}

/* Ends the threads and frees the memory. */
void decoder_free(Decoder *decoder)
{
    decoder->stop = true;
    start_job(decoder);
    for (int r = 0; r < decoder->ranks; r++) {
        if (r > 0)
            pthread_join(decoder->rank[r].thread, NULL);
        free(decoder->rank[r].memory);
        free(decoder->rank[r].candidates);
    }
    free(decoder);
}

/* A new decoder; shares (ranks). The memory that shape and shares point to must live as long as the decoder. NULL if there is
 * not enough memory or a thread cannot be started. */
Decoder *decoder_new(const Shape *shape, const Share *shares)
{
    Decoder *decoder = calloc(1, sizeof *decoder + shape->ranks * sizeof *decoder->rank);
    if (!decoder)
        return NULL;
    decoder->shape = *shape;
    pthread_mutex_init(&decoder->lock, NULL);
    pthread_cond_init(&decoder->job_started, NULL);
    for (int r = 0; r < shape->ranks; r++, decoder->ranks++) {
        Rank *rank = &decoder->rank[r];
        rank->share = shares[r];
        rank->decoder = decoder;
        if (!allocate(rank, shape) || (r > 0 && pthread_create(&rank->thread, NULL, worker, rank))) {
            free(rank->memory);
            free(rank->candidates);
            decoder_free(decoder);
            return NULL;
        }
    }
    return decoder;
}
