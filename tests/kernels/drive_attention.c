/* Runs the attention of step_bfloat16.c, or with FLOAT32 of step_float32.c, over odd shapes, for the sanitizers and for other
 * systems. Every buffer is exactly as large as the kernel may assume. */

#ifdef FLOAT32
#include "../../chargpt/kernels/step_float32.c"
#else
#include "../../chargpt/kernels/step_bfloat16.c"
#endif

#include "driver.h"

static number *numbers(size_t n)
{
    number *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        const float value = uniform();
        memcpy(&x[i], (const char *)&value + 4 - sizeof *x, sizeof *x); /* bfloat16: the upper half of a little-endian float */
    }
    return x;
}

/* Adds n results. Each must be finite. */
static void check(const number *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float value = 0;
        memcpy((char *)&value + 4 - sizeof *x, &x[i], sizeof *x);
        if (!isfinite(value))
            abort();
        add_results(&value, 1);
    }
}

static void drive(int B, int T, int h, int d, int threads, int rotary)
{
    const size_t C = h * d, half = (size_t)T * (d / 2);
    number *qkv = numbers(B * T * 3 * C), *dy = numbers(B * T * C), *y = malloc(B * T * C * sizeof *y);
    number *dqkv = malloc(B * T * 3 * C * sizeof *dqkv), *cosine = numbers(half), *sine = numbers(half);
    float *log2_sum = malloc(B * h * T * sizeof *log2_sum);
    Attention a = { .B = B, .T = T, .h = h, .d = d, .threads = threads, .qkv = qkv, .dy = dy, .y = y, .dqkv = dqkv,
                    .cosine = rotary ? cosine : NULL, .sine = rotary ? sine : NULL, .log2_sum = log2_sum };
    const size_t size = threads * attention_scratch_size(&a);
    a.scratch = aligned_alloc(64, size);
    memset(a.scratch, 0xff, size); /* what is read before it is written becomes NaN */
    attention_forward(&a);
    memset(a.scratch, 0xff, size);
    attention_backward(&a);
    check(y, B * T * C);
    check(dqkv, B * T * 3 * C);
    void *buffers[] = { qkv, dy, y, dqkv, cosine, sine, log2_sum, a.scratch };
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        free(buffers[i]);
}

int main(int argc, char **argv)
{
    const int T[] = { 1, 2, 8, 9, 32, 33, 64, 65, 129 }, d[] = { 1, 2, 6, 7, 16, 32, 34, 65 };
    int shapes = 0;
    open_results(argc, argv);
    for (size_t i = 0; i < sizeof T / sizeof *T; i++)
        for (size_t j = 0; j < sizeof d / sizeof *d; j++)
            for (int rotary = 0; rotary <= (d[j] % 2 == 0); rotary++, shapes++)
                drive(1 + shapes % 3, T[i], 1 + shapes % 2, d[j], 1 + shapes % 4, rotary);
    return report(shapes);
}
