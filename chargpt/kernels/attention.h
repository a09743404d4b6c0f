/* What attention_float32.c and attention_bfloat16.c share: how a head is found, and the entry points. They include it when they
 * have a type `number`, and define `forward` and `backward` of a head and `attention_scratch_size`. */

typedef struct { /* attention.py has the same structure */
    int B, T, h, d, threads;
    const number *cosine, *sine; /* (T, d / 2) each; NULL where positions are not rotary */
    OpenMP openmp;
} Shape;

/* Bytes of scratch memory, aligned to 64, that each thread needs: those of `backward`, which needs more than `forward`. */
EXPORT size_t attention_scratch_size(const Shape *shape);

/* One head: y = P V and L. qkv (B, T, 3 C), y (B, T, C), log2_sum (B, h, T) is L. */
static void forward(const Shape *shape, const number *qkv, number *y, float *log2_sum, int item, char *scratch);

/* One head: dqkv from dy. qkv and dqkv (B, T, 3 C), y and dy (B, T, C), log2_sum (B, h, T). */
static void backward(const Shape *shape, const number *qkv, const number *y, const float *log2_sum, const number *dy,
                     number *dqkv, int item, char *scratch);

EXPORT size_t attention_shape_size(void) { return sizeof(Shape); }

/* Where head `item` of the B h heads begins in rows of `width` numbers. In rows of qkv, keys follow C later, values 2 C. */
static size_t head_offset(const Shape *shape, int item, size_t width)
{
    return (size_t)(item / shape->h) * shape->T * width + item % shape->h * shape->d;
}

typedef struct { /* the arguments of attention_forward or attention_backward */
    const Shape *shape;
    const number *qkv, *dy;
    number *y, *dqkv;
    float *log2_sum;
    char *scratch;
    size_t scratch_size;
} Arguments;

static void forward_item(const void *arguments, int item, int thread)
{
    const Arguments *a = arguments;
    forward(a->shape, a->qkv, a->y, a->log2_sum, item, a->scratch + thread * a->scratch_size);
}

static void backward_item(const void *arguments, int item, int thread)
{
    const Arguments *a = arguments;
    backward(a->shape, a->qkv, a->y, a->log2_sum, a->dy, a->dqkv, item, a->scratch + thread * a->scratch_size);
}

/* y (B, T, C) and L, log2_sum (B, h, T), from the queries, keys and values, qkv (B, T, 3 C). `scratch` is for all threads. */
EXPORT void attention_forward(const Shape *shape, const number *qkv, number *y, float *log2_sum, char *scratch)
{
    const Arguments arguments = { shape, qkv, NULL, y, NULL, log2_sum, scratch, attention_scratch_size(shape) };
    in_threads(&shape->openmp, shape->threads, shape->B * shape->h, forward_item, &arguments);
}

/* dqkv (B, T, 3 C), the gradient of qkv, from that of y, dy (B, T, C), and what `attention_forward` computed. */
EXPORT void attention_backward(const Shape *shape, const number *qkv, number *y, float *log2_sum, const number *dy,
                               number *dqkv, char *scratch)
{
    const Arguments arguments = { shape, qkv, dy, y, dqkv, log2_sum, scratch, attention_scratch_size(shape) };
    in_threads(&shape->openmp, shape->threads, shape->B * shape->h, backward_item, &arguments);
}
