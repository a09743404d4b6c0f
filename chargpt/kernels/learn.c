/* Training in a browser: the gradient of step_float32.c, and what optimizers.py makes of it, for chargpt/exchange/web/learn.js.
 *
 * WebAssembly has one thread here and no C library: what the other files would take from one is at the end of this file.
 */

#include "step_float32.c"

typedef struct { /* learn.js fills it: numbers of 32 bits and pointers, in this order */
    int B, T, h, C, V, layers;
    int count, muon, decayed;                             /* numbers in the vectors; those that Muon updates, then those that decay */
    uint32_t threshold, seed;                             /* of dropout, as in Step */
    const int64_t *places;                                /* as in Step */
    float *weights, *gradient;                            /* (count) */
    float *means, *squares;                               /* (count): AdamW's; of Muon's matrices, `means` is the momentum */
    const float *start, *positions, *cosine, *sine;       /* (count), or NULL; as in Step */
    const int64_t *idx, *targets;                         /* (B, T) */
    float *logits;                                        /* (B, T, V), for `learn_loss` */
    const float *coefficients;                            /* (rounds, 3): Muon's */
    int rounds;
    char *scratch;                                        /* learn_scratch_size bytes */
} Learner;

typedef struct { /* of an update, and as far as the first two means have come: 1 - beta^updates */
    double rate, limit, decay, start_decay, beta_1, beta_2, done_1, done_2, momentum; /* limit: of the gradient's norm */
} Update;

static Step step_of(const Learner *l)
{
    return (Step){ .B = l->B, .T = l->T, .h = l->h, .C = l->C, .V = l->V, .layers = l->layers, .threads = 1, .seed = l->seed,
                   .threshold = l->threshold, .scale = 1, .count = l->count, .matrices = l->places[l->layers * OF_LAYER],
                   .places = l->places, .weights = l->weights, .positions = l->positions, .cosine = l->cosine,
                   .sine = l->sine, .idx = l->idx, .targets = l->targets, .gradient = l->gradient, .scratch = l->scratch };
}

/* The matrices inside the blocks, (4 layers), as they lie in `gradient`: queries, keys and values each on their own. */
static void stacks_of(const Learner *l, Stack *stacks)
{
    static const struct { int kind, n, rows, columns; } matrices[] = {
        { QKV, 3, 1, 1 }, { PROJ, 1, 1, 1 }, { UP, 1, 4, 1 }, { DOWN, 1, 1, 4 }
    };
    for (int i = 0; i < 4 * l->layers; i++) {
        const int64_t place = l->places[i / 4 * OF_LAYER + matrices[i % 4].kind];
        stacks[i] = (Stack){ l->gradient + place, matrices[i % 4].n, matrices[i % 4].rows * l->C, matrices[i % 4].columns * l->C };
    }
}

static Orthogonal orthogonal_of(const Learner *l, Stack *stacks)
{
    stacks_of(l, stacks);
    return (Orthogonal){ stacks, l->coefficients, l->scratch, 4 * l->layers, l->rounds, 1, { 0 } };
}

/* Bytes that a step, an update and a loss need. */
EXPORT size_t learn_scratch_size(const Learner *l)
{
    Stack stacks[4 * l->layers];
    Step step = step_of(l);
    const Orthogonal o = orthogonal_of(l, stacks);
    const size_t gradient = step_scratch_size(&step), muon = orthogonal_scratch_size(&o);
    step.logits = l->weights;
    const size_t logits = step_scratch_size(&step), most = gradient > muon ? gradient : muon;
    return most > logits ? most : logits;
}

/* The mean loss of a batch, nats for each character, and its gradient; -1 for an id that is not one of the vocabulary. */
EXPORT double learn_gradient(const Learner *l)
{
    const Step step = step_of(l);
    return step_run(&step);
}

/* The sum of the losses of a batch, without dropout; targets below 0 do not count. */
EXPORT double learn_loss(const Learner *l)
{
    const int width = padded(l->V, PANEL);
    float row[width] __attribute__((aligned(64))), spare[width] __attribute__((aligned(64)));
    Step step = step_of(l);
    double loss = 0;
    step.logits = l->logits;
    step.threshold = 0;
    step_run(&step);
    for (int i = 0; i < l->B * l->T; i++)
        if (l->targets[i] >= 0) {
            memcpy(row, l->logits + (size_t)i * l->V, l->V * sizeof *row);
            loss += cross_entropy_row(spare, row, NULL, l->targets[i], l->V, 1);
        }
    return loss;
}

/* AdamW on the numbers [begin, end) of the vectors. */
static void adamw(const Learner *l, const Update *u, int begin, int end, double decay)
{
    const float size = u->rate / u->done_1, root = sqrt(u->done_2);
    const float mean_share = 1 - u->beta_1, square_share = 1 - u->beta_2, beta_2 = u->beta_2, kept = 1 - u->rate * decay;
    for (int i = begin; i < end; i++) {
        const float g = l->gradient[i];
        l->means[i] += (g - l->means[i]) * mean_share;
        l->squares[i] = l->squares[i] * beta_2 + g * g * square_share;
        l->weights[i] = l->weights[i] * kept - size * l->means[i] / (sqrtf(l->squares[i]) / root + 1e-8f);
    }
}

/* Clips the gradient, and updates the weights by it. Returns the norm of the gradient before; if that is no number, nothing
 * changes. */
EXPORT double learn_update(const Learner *l, const Update *u)
{
    double squares = 0;
    for (int i = 0; i < l->count; i += LANES) {
        const vector g = *(const vector *)(l->gradient + i);
        squares += sum_of(g * g);
    }
    const double norm = sqrt(squares);
    if (!isfinite(norm))
        return norm;
    const float clip = norm > u->limit ? u->limit / norm : 1, back = u->rate * u->start_decay;
    for (int i = 0; i < l->count; i++) {
        l->gradient[i] *= clip;
        if (l->start)
            l->weights[i] += (l->start[i] - l->weights[i]) * (back < 1 ? back : 1);
    }
    adamw(l, u, l->muon, l->decayed, u->decay);
    adamw(l, u, l->decayed, l->count, 0);
    if (!l->muon)
        return norm;
    for (int i = 0; i < l->muon; i++) {
        const float g = l->gradient[i];
        l->means[i] += (g - l->means[i]) * (float)(1 - u->momentum);
        l->gradient[i] = g + (l->means[i] - g) * (float)u->momentum;
    }
    Stack stacks[4 * l->layers];
    const Orthogonal o = orthogonal_of(l, stacks);
    step_orthogonalise(&o);
    for (int i = 0; i < o.count; i++) {
        const int rows = stacks[i].rows, columns = stacks[i].columns, length = stacks[i].n * rows * columns;
        const float scale = u->rate * 0.2 * sqrt(rows > columns ? rows : columns), kept = 1 - u->rate * u->decay;
        float *const weights = l->weights + (stacks[i].matrices - l->gradient);
        for (int k = 0; k < length; k++)
            weights[k] = weights[k] * kept - scale * stacks[i].matrices[k];
    }
    return norm;
}

/* What WebAssembly lacks. */

/* `bytes` of new memory, aligned to 64; NULL if there is no more. It is never given back: a new training is a new instance. */
EXPORT char *learn_memory(size_t bytes)
{
    extern char __heap_base;
    static size_t end;
    const size_t start = padded(end ? end : (size_t)&__heap_base, 64), page = 65536;
    const size_t have = page * __builtin_wasm_memory_size(0), need = start + bytes;
    if (need > have && __builtin_wasm_memory_grow(0, (need - have + page - 1) / page) == (size_t)-1)
        return NULL;
    end = need;
    return (char *)start;
}

/* The logarithm of a normal number to 1e-12, by the series of artanh. */
static double logarithm(double x)
{
    union { double number; uint64_t bits; } m = { x };
    int exponent = (int)(m.bits >> 52) - 1022;
    m.bits = (m.bits & 0xfffffffffffff) | 0x3fe0000000000000; /* 0.5 to 1 */
    if (m.number < 0.70710678) {
        m.number *= 2;
        exponent--;
    }
    const double t = (m.number - 1) / (m.number + 1), square = t * t;
    double sum = 0;
    for (int n = 15; n > 0; n -= 2)
        sum = sum * square + 2.0 / n;
    return exponent * 0.69314718055994531 + t * sum;
}

float logf(float x) { return logarithm(x); }
float log2f(float x) { return logarithm(x) * 1.44269504088896341; }

/* There is one thread, so nobody calls them. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument) { return 1; }
int pthread_join(pthread_t thread, void **result) { return 1; }
