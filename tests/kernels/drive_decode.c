/* Runs decode.c over odd shapes, for the sanitizers and for other systems. Every buffer is exactly as large as the
 * kernel may assume. */

#include "../../chargpt/kernels/decode.c"

#include "driver.h"

static float *numbers(size_t n)
{
    float *x = aligned_alloc(ALIGNMENT, padded(n * sizeof *x, ALIGNMENT));
    for (size_t i = 0; i < n; i++)
        x[i] = uniform();
    return x;
}

static void *zeros(size_t bytes)
{
    void *memory = aligned_alloc(ALIGNMENT, padded(bytes, ALIGNMENT));
    return memset(memory, 0, bytes);
}

/* In bytes, like all sizes of weights. */
static size_t linear_size(int precision, size_t K, size_t N)
{
    return padded(N, PANEL) * (padded(K, STEP) * weight_size(precision) + sizeof(float) * (precision == AS_INT8 ? 2 : 1));
}

/* The size of a share's weights, see `_Layout` in c_texts.py. */
static size_t weights_size(const Shape *shape, const Share *share)
{
    const size_t C = shape->n_embd, own = share->heads * (C / shape->n_head), hidden = share->hidden;
    const size_t norm = 2 * padded(C, PANEL) * sizeof(float), p = shape->precision;
    const size_t layer = 2 * norm + linear_size(p, C, 3 * own) + linear_size(p, own, C) + linear_size(p, C, hidden) +
                         linear_size(p, hidden, C);
    return shape->n_layer * layer + norm + linear_size(p, C, share->ids);
}

/* Random weights. Every 32 bits are a float32, and if halves are read, they are two bfloat16. */
static char *new_weights(const Shape *shape, const Share *share)
{
    const size_t n = weights_size(shape, share) / sizeof(float);
    float *weights = numbers(n);
    for (uint32_t *word = (uint32_t *)weights; shape->precision == AS_BFLOAT16 && word < (uint32_t *)weights + n; word++)
        *word = (*word & 0xffff0000) | *word >> 16;
    return (char *)weights;
}

/* The part of n that ranks up to r have, in multiples of `unit`. */
static int end(int n, int r, int ranks, int unit)
{
    const int units = (n + unit - 1) / unit, at = unit * (units * r / ranks);
    return at < n ? at : n;
}

/* Reads and chooses ids in jobs of different lengths up to block_size. */
static void generate(Decoder *decoder, const Rules *given)
{
    const Shape *shape = &decoder->shape;
    const int texts = shape->texts, V = shape->vocab_size;
    for (int position = 0, count = 1, steps = 0; position < shape->block_size; count = 2 * count + 1, steps = 3 * steps + 1) {
        const int left = shape->block_size - position;
        const int reads = count < left ? count : left, room = left - reads + 1, chosen_steps = steps < room ? steps : room;
        int64_t *ids = malloc(texts * reads * sizeof *ids), *chosen = malloc(texts * chosen_steps * sizeof *chosen);
        double *drawn = malloc(texts * chosen_steps * sizeof *drawn);
        float *log_probabilities = malloc(texts * chosen_steps * sizeof *log_probabilities);
        for (int i = 0; i < texts * reads; i++)
            ids[i] = i % V;
        for (int i = 0; i < texts * chosen_steps; i++) /* now and then, the smallest and the largest number */
            drawn[i] = i % 7 == 0 ? 0 : i % 7 == 1 ? 1 - 0x1p-53 : fabsf(uniform());
        Rules with_history = *given, *rules = &with_history;
        if (rules->repetition_penalty > 1)
            rules->history = calloc(texts * (rules->known + chosen_steps), sizeof *rules->history);
        decoder_run(decoder, rules, position, reads, ids, chosen_steps, rules->temperature > 0 ? drawn : NULL, chosen,
                    log_probabilities);
        for (int i = 0; i < texts * chosen_steps; i++)
            if (chosen[i] < 0 || chosen[i] >= V || !(log_probabilities[i] <= 1e-4f))
                abort();
        for (int i = 0; i < texts * chosen_steps; i++) {
            const float id = chosen[i];
            add_results(&id, 1);
            add_results(&log_probabilities[i], 1);
        }
        position += reads + (chosen_steps ? chosen_steps - 1 : 0);
        void *buffers[] = { ids, chosen, drawn, log_probabilities, rules->history };
        for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
            free(buffers[i]);
    }
}

static void drive(
    int n_head, int d, int block_size, int V, int texts, int ranks, int precision, int rotary, const Rules *rules)
{
    const int C = n_head * d;
    float *tokens = numbers(V * C), *positions = numbers(2 * block_size * C), *logits = numbers(texts * padded(V, PANEL));
    Shape shape = { 2, n_head, C, block_size, V, texts, ranks, precision, .tokens = tokens, .logits = logits };
    const size_t cached = 2 * texts * padded(block_size, KEYS) * padded(d, LINE); /* of a head: 2 layers */
    *(rotary ? &shape.rotary : &shape.positions) = positions;
    Share *shares = calloc(ranks, sizeof *shares);
    char **weights = calloc(ranks, sizeof *weights);
    for (int r = 0; r < ranks; r++) {
        shares[r].heads = end(n_head, r + 1, ranks, 1) - end(n_head, r, ranks, 1);
        shares[r].hidden = end(4 * C, r + 1, ranks, PANEL) - end(4 * C, r, ranks, PANEL);
        shares[r].first_id = end(V, r, ranks, PANEL);
        shares[r].ids = end(V, r + 1, ranks, PANEL) - shares[r].first_id;
        shares[r].weights = weights[r] = new_weights(&shape, &shares[r]);
        shares[r].capacity = padded(block_size, KEYS);
        shares[r].keys = zeros(shares[r].heads * cached * sizeof(float));
        shares[r].values = zeros(shares[r].heads * cached * sizeof(float));
        shares[r].scratch = zeros(decoder_scratch_size(&shape, &shares[r]));
    }
    Decoder *decoder = decoder_new(&shape, shares);
    if (!decoder)
        abort();
    generate(decoder, rules);
    generate(decoder, rules); /* again, from position 0 */
    decoder_free(decoder);
    for (int r = 0; r < ranks; r++) {
        void *buffers[] = { weights[r], shares[r].keys, shares[r].values, shares[r].scratch };
        for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
            free(buffers[i]);
    }
    void *buffers[] = { tokens, positions, logits, shares, weights };
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        free(buffers[i]);
}

int main(int argc, char **argv)
{
    const int d[] = { 1, 2, 6, 7, 16, 33 }, block_size[] = { 1, 2, 7, 64, 65, 130 }, V[] = { 1, 2, 65, 300 };
    int shapes = 0;
    open_results(argc, argv);
    for (size_t i = 0; i < sizeof d / sizeof *d; i++)
        for (size_t j = 0; j < sizeof block_size / sizeof *block_size; j++)
            for (int rotary = 0; rotary <= (d[i] % 2 == 0); rotary++, shapes++) {
                const int n_head = 1 + shapes % 4, v = V[shapes % 4];
                uint8_t *forbidden = calloc(v, 1);
                forbidden[0] = v > 1;
                const Rules rules[] = { { 1, 0, 1, 0, 0, 0, 0, forbidden, NULL },
                                        { 1, 0.8f, 0.9f, 0.05f, v < 5 ? v : 5, 0, 0, forbidden, NULL },
                                        { 2, 1, 1, 0, 0, 3, 20, forbidden, NULL } };
                drive(n_head, d[i], block_size[j], v, 1 + shapes % 3, shapes % n_head + 1, shapes / 3 % 3, rotary,
                      &rules[shapes % 3]);
                free(forbidden);
            }
    return report(shapes);
}
