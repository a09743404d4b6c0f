/* Runs step_bfloat16.c, or with FLOAT32 step_float32.c, over odd shapes, for the sanitizers and for other systems. Every
 * buffer is exactly as large as the kernel may assume. */

#ifdef FLOAT32
#include "../../chargpt/kernels/step_float32.c"
#else
#include "../../chargpt/kernels/step_bfloat16.c"
#endif

#include "driver.h"

static number *numbers(size_t n, float scale, float shift)
{
    number *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        const float value = scale * uniform() + shift;
        memcpy(&x[i], (const char *)&value + 4 - sizeof *x, sizeof *x); /* bfloat16: the upper half of a little-endian float */
    }
    return x;
}

static int64_t *ids(size_t n, int V)
{
    int64_t *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = (int64_t)((uniform() + 1) / 2 * V) % V;
    return x;
}

/* Puts a parameter of n numbers after those before it. */
static void place(int64_t *places, int64_t *count, int64_t n)
{
    *places = *count;
    *count += n;
}

/* `kind` chooses the positions, biases, dropout and whether the targets are probabilities. */
static void drive(int B, int T, int h, int C, int V, int layers, int threads, int kind)
{
    static const int matrices[][2] = { { QKV, 3 }, { PROJ, 1 }, { UP, 4 }, { DOWN, 4 } };
    static const int biases[][2] = { { NORM_1_BIAS, 1 }, { QKV_BIAS, 3 }, { PROJ_BIAS, 1 }, { NORM_2_BIAS, 1 }, { UP_BIAS, 4 },
                                     { DOWN_BIAS, 1 } };
    const int rotary = kind % 3 == 0, learned = kind % 3 == 1, biased = kind / 3 % 2, half = T * (C / h / 2);
    int64_t *places = malloc((layers * OF_LAYER + OF_MODEL) * sizeof *places), *last = places + layers * OF_LAYER, count = 0;
    for (int i = 0; i < layers * OF_LAYER + OF_MODEL; i++)
        places[i] = -1;
    for (int i = 0; i < 4; i++)
        for (int l = 0; l < layers; l++)
            place(places + l * OF_LAYER + matrices[i][0], &count, matrices[i][1] * C * C);
    const int64_t before = count;
    place(last + TOKENS, &count, V * C);
    if (learned)
        place(last + POSITIONS, &count, T * C);
    for (int l = 0; l < layers; l++) {
        place(places + l * OF_LAYER + NORM_1, &count, C);
        place(places + l * OF_LAYER + NORM_2, &count, C);
        for (int i = 0; biased && i < 6; i++)
            place(places + l * OF_LAYER + biases[i][0], &count, biases[i][1] * C);
    }
    place(last + NORM, &count, C);
    if (biased)
        place(last + NORM_BIAS, &count, C);
    number *weights = numbers(count, 0.3f, 0.1f), *table = numbers(T * C, 1, 0), *cosine = numbers(half, 1, 0);
    number *sine = numbers(half, 1, 0);
    int64_t *idx = ids(B * T, V), *targets = ids(B * T, V);
    float *expected = malloc(sizeof *expected * B * T * V), *gradient = malloc(count * sizeof *gradient);
    for (int i = 0; i < B * T * V; i++)
        expected[i] = 1.0f / V;
    if (B * T > 1 && kind % 4 == 1)
        targets[B * T / 2] = -100;
    Step step = { .B = B, .T = T, .h = h, .C = C, .V = V, .layers = layers, .threads = threads, .seed = kind, .scale = 0.5f };
    step.threshold = kind % 2 ? 0x10000000 : 0;
    step.count = count;
    step.matrices = before;
    step.places = places;
    step.weights = weights;
    step.positions = rotary ? NULL : learned ? weights + last[POSITIONS] : table;
    step.cosine = rotary ? cosine : NULL;
    step.sine = rotary ? sine : NULL;
    step.idx = idx;
    step.targets = targets;
    step.expected = kind % 5 == 4 ? expected : NULL;
    step.gradient = gradient;
    const size_t size = step_scratch_size(&step);
    step.scratch = aligned_alloc(64, size);
    for (step.add = 0; step.add < 2; step.add++) {
        memset(step.scratch, 0xff, size); /* what is read before it is written becomes NaN */
        const float loss = step_run(&step);
        if (!isfinite(loss) || loss < 0)
            abort();
        add_results(&loss, 1);
    }
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(gradient[i]))
            abort();
    add_results(gradient, count);
    step.logits = malloc(sizeof *step.logits * B * T * V);
    step.threshold = 0;
    free(step.scratch);
    const size_t less = step_scratch_size(&step);
    step.scratch = aligned_alloc(64, less);
    memset(step.scratch, 0xff, less);
    if (step_run(&step) != 0)
        abort();
    for (int i = 0; i < B * T * V; i++)
        if (!isfinite(step.logits[i]))
            abort();
    add_results(step.logits, (size_t)B * T * V);
    idx[B * T - 1] = V;
    if (step_run(&step) != -1)
        abort();
    free(step.logits);
    step.logits = NULL;
    free(step.scratch);
    step.scratch = aligned_alloc(64, size);
    if (step_run(&step) != -1)
        abort();
    void *buffers[] = { places, weights, table, cosine, sine, idx, targets, expected, gradient, step.scratch };
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        free(buffers[i]);
}

static void drive_muon(int n, int C, int threads)
{
    const int shapes[][3] = { { 4 * n, C, C }, { n, 4 * C, C }, { n, C, 4 * C } };
    const float coefficients[] = { 8.1f, -23.6f, 17.4f, 3.6f, -2.7f, 0.5f };
    Stack stacks[3];
    float *vectors[3];
    int64_t count = 0;
    for (int i = 0; i < 3; i++) {
        stacks[i] = (Stack){ count, shapes[i][0], shapes[i][1], shapes[i][2] };
        count += (int64_t)shapes[i][0] * shapes[i][1] * shapes[i][2];
    }
    for (int i = 0; i < 3; i++) {
        vectors[i] = aligned_alloc(64, count * sizeof(float));
        for (int64_t j = 0; j < count; j++)
            vectors[i][j] = uniform();
    }
    Muon muon = { stacks, coefficients, vectors[0], vectors[1], vectors[2], NULL, 0.3, 0.1, 0.9, 3, 2, threads };
    const size_t size = muon_scratch_size(&muon);
    muon.scratch = aligned_alloc(64, size);
    memset(muon.scratch, 0xff, size);
    muon_update(&muon);
    add_results(vectors[1], count);
    add_results(vectors[2], count);
    for (int i = 0; i < 3; i++)
        free(vectors[i]);
    free(muon.scratch);
}

int main(int argc, char **argv)
{
    const int T[] = { 1, 2, 7, 9, 33, 70 }, V[] = { 2, 32, 33, 150 }, heads[] = { 1, 2, 4 };
    int shapes = 0;
    open_results(argc, argv);
    for (size_t i = 0; i < sizeof T / sizeof *T; i++)
        for (int kind = 0; kind < 10; kind++, shapes++)
            drive(1 + shapes % 7, T[i], heads[shapes % 3], shapes % 5 ? 32 : 64, V[shapes % 4], 1 + shapes % 2, 1 + shapes % 4,
                  kind);
    drive(9, 100, 2, 64, 65, 2, 3, 3);
    drive(3, 200, 1, 32, 33, 5, 4, 4);
    drive_muon(2, 32, 3);
    drive_muon(1, 64, 1);
    return report(shapes);
}
