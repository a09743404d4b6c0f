/* Training in a browser, for chargpt/exchange/web/learn.js: what optimizers.py makes of the gradient of step_float32.c.
 *
 * WebAssembly has one thread here and no C library: memory, logarithms and the names of what is never called are learn.js's.
 */

#include "step_float32.c"

typedef struct { /* learn.js has the same structure */
    Step step;
    int muon, decayed, rounds; /* numbers that Muon updates, then those that decay; rounds of Muon */
    float *weights;            /* those of the step */
    float *means, *squares;    /* (count): AdamW's; of Muon's matrices, `means` is the momentum */
    const float *start;        /* (count), or NULL */
    const float *coefficients; /* (rounds, 3): Muon's */
} Learner;

typedef struct { /* of an update, and as far as the first two means have come: 1 - beta^updates */
    double rate, limit, decay, start_decay, beta_1, beta_2, done_1, done_2, momentum; /* limit: of the gradient's norm */
} Update;

/* Muon's update of the matrices inside the blocks, which are `stacks` (4 layers): as they lie in the gradient, with queries, keys
 * and values each on their own. */
static Muon muon_of(const Learner *l, const Update *u, Stack *stacks)
{
    static const int kinds[] = { QKV, PROJ, UP, DOWN };
    const Step *step = &l->step;
    for (int i = 0; i < 4 * step->layers; i++) {
        const int layer = i / 4, kind = kinds[i % 4], n = kind == QKV ? 3 : 1;
        const Size size = size_of(step, layer, kind);
        stacks[i] = (Stack){ step->places[layer * OF_LAYER + kind], n, size.rows / n, size.columns };
    }
    return (Muon){ stacks, l->coefficients, step->gradient, l->means, l->weights, step->scratch,
                   u->rate, u->decay, u->momentum, 4 * step->layers, l->rounds, 1, { 0 } };
}

/* Bytes that a step and an update need. */
EXPORT size_t learn_scratch_size(const Learner *l)
{
    Stack stacks[4 * l->step.layers];
    const Muon muon = muon_of(l, &(Update){ 0 }, stacks);
    const size_t step = step_scratch_size(&l->step), update = muon_scratch_size(&muon);
    return step > update ? step : update;
}

/* AdamW on the numbers [begin, end) of the vectors. */
static void adamw(const Learner *l, const Update *u, int begin, int end, double decay)
{
    const float size = u->rate / u->done_1, root = sqrt(u->done_2);
    const float mean_share = 1 - u->beta_1, square_share = 1 - u->beta_2, beta_2 = u->beta_2, kept = 1 - u->rate * decay;
    for (int i = begin; i < end; i++) {
        const float g = l->step.gradient[i];
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
    for (int i = 0; i < l->step.count; i += LANES) {
        const vector g = *(const vector *)(l->step.gradient + i);
        squares += sum_of(g * g);
    }
    const double norm = sqrt(squares);
    if (!isfinite(norm))
        return norm;
    const float clip = norm > u->limit ? u->limit / norm : 1, back = u->rate * u->start_decay;
    for (int i = 0; i < l->step.count; i++) {
        l->step.gradient[i] *= clip;
        if (l->start)
            l->weights[i] += (l->start[i] - l->weights[i]) * (back < 1 ? back : 1);
    }
    adamw(l, u, l->muon, l->decayed, u->decay);
    adamw(l, u, l->decayed, l->step.count, 0);
    if (l->muon) {
        Stack stacks[4 * l->step.layers];
        const Muon muon = muon_of(l, u, stacks);
        muon_update(&muon);
    }
    return norm;
}
