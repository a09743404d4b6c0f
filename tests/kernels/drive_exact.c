/* Runs exact.c over odd shapes, for the sanitizers and for other processors. Every buffer is exactly as large as the kernel may
 * assume. Prints the number of shapes, and a hash of all results, which is the same on every machine. */

#include "../../chargpt/kernels/exact.c"

#include <stdio.h>

static uint32_t state = 1;
static uint64_t hash = 14695981039346656037u; /* FNV-1a, of whole results */

static void add_to_hash(int64_t result)
{
    hash = (hash ^ (uint64_t)result) * 1099511628211u;
}

static double uniform(void) /* -1 to 1 */
{
    state = state * 1664525 + 1013904223;
    return (int32_t)state / 2147483648.0;
}

static double *numbers(size_t n)
{
    double *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = uniform();
    return x;
}

static Linear new_linear(int K, int N, int has_bias)
{
    const size_t n = (size_t)(N + PANEL - 1) / PANEL * PANEL * K;
    float *weight = malloc(n * sizeof *weight);
    for (size_t i = 0; i < n; i++)
        weight[i] = (int)(1000 * uniform()) / 1024.0f;
    return (Linear){ weight, has_bias ? numbers(N) : NULL };
}

static void free_linear(Linear linear)
{
    free((void *)linear.weight);
    free((void *)linear.bias);
}

static void drive(int n_head, int d, int block_size, int V, int texts, int rotary, int has_bias)
{
    const int C = n_head * d;
    Layer layers[2];
    for (int l = 0; l < 2; l++)
        layers[l] = (Layer){ .norm_1 = { numbers(C), has_bias ? numbers(C) : NULL },
                             .norm_2 = { numbers(C), NULL },
                             .qkv = new_linear(C, 3 * C, has_bias),
                             .proj = new_linear(C, C, has_bias),
                             .up = new_linear(C, 4 * C, has_bias),
                             .down = new_linear(4 * C, C, has_bias) };
    double *tokens = numbers((size_t)V * C), *table = numbers((size_t)block_size * (rotary ? d : C));
    const Model model = { 2, n_head, C, block_size, V, 20, 19, 22, 22, 42, layers, { numbers(C), NULL }, new_linear(C, V, 0),
                          tokens, rotary ? NULL : table, rotary ? table : NULL };
    Cache *caches = malloc(texts * sizeof *caches);
    for (int text = 0; text < texts; text++) {
        const size_t n = (size_t)2 * n_head * block_size;
        caches[text] = (Cache){ malloc(n * d * sizeof(float)), malloc(n * d * sizeof(float)), malloc(n * sizeof(double)) };
    }
    for (int start = 0, count = 1; start < block_size; start += count, count = 2 * count + 1) {
        count = count < block_size - start ? count : block_size - start;
        const int wanted = (count + 1) / 2;
        int64_t *ids = malloc(texts * count * sizeof *ids), *result = malloc((size_t)texts * wanted * V * sizeof *result);
        for (int i = 0; i < texts * count; i++)
            ids[i] = i % V;
        if (exact_read(&model, caches, ids, texts, start, count, wanted, result))
            abort();
        for (int i = 0; i < texts * wanted * V; i++) {
            if (result[i] < 1 || result[i] > 16777217)
                abort();
            add_to_hash(result[i]);
        }
        free(ids);
        free(result);
    }
    for (int text = 0; text < texts; text++) {
        free(caches[text].keys);
        free(caches[text].values);
        free(caches[text].units);
    }
    for (int l = 0; l < 2; l++) {
        const double *norms[] = { layers[l].norm_1[0], layers[l].norm_1[1], layers[l].norm_2[0] };
        for (int i = 0; i < 3; i++)
            free((void *)norms[i]);
        free_linear(layers[l].qkv);
        free_linear(layers[l].proj);
        free_linear(layers[l].up);
        free_linear(layers[l].down);
    }
    free((void *)model.norm[0]);
    free_linear(model.logits);
    free(tokens);
    free(table);
    free(caches);
}

int main(void)
{
    const int sizes[] = { 1, 2, 6, 16 };
    int shapes = 0;
    for (int n_head = 1; n_head <= 3; n_head++)
        for (int i = 0; i < 4; i++)
            for (int texts = 1; texts <= 6; texts += 2)
                for (int rotary = 0; rotary <= (sizes[i] % 2 == 0); rotary++, shapes++)
                    drive(n_head, sizes[i], 3 + 7 * i, 1 + 5 * i, texts, rotary, texts == 3);
    printf("%d shapes, results %016llx\n", shapes, (unsigned long long)hash);
    return 0;
}
