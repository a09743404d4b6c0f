/* What the kernels of training (step.h, attention.h) and of writing (decode.c) share: vectors of float32 numbers, and how memory
 * that Python gives is divided.
 *
 * Positions enter the arithmetic in two ways, for every kind that model.py has: a table (T, C) is added to the embeddings, or a
 * table of cosines and sines (2, T, d / 2) rotates queries and keys. standard.py says which way a kind takes.
 *
 * These stay apart, as one form would be slower or change bits:
 * - products: in training, a tile takes 2 vectors of a panel and the sum over all rows of a block, in bfloat16 by pairs; in
 *   writing, 4 vectors and one row, whose speed is that of reading weights, which are also int8
 * - exponentials: in training, of whole vectors, by powers of 2; in writing, of single numbers, so that the compiler may use
 *   vectors of any width, and so exact that a text for a seed is that of PyTorch
 * - norms: the backward pass needs their statistics
 */

#ifndef CHARGPT_ARITHMETIC_H
#define CHARGPT_ARITHMETIC_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ALWAYS_INLINE inline __attribute__((always_inline))

#define TWICE(n) (n), (n) + LANES, (n) + 1, (n) + 1 + LANES
#if defined(__AVX512F__) || defined(__AVX512BF16__)
enum { LANES = 16 }; /* float32 numbers in a vector */
#define LANES_FROM(n) TWICE(n), TWICE(n + 2), TWICE(n + 4), TWICE(n + 6)
#elif defined(__AVX__)
enum { LANES = 8 };
#define LANES_FROM(n) TWICE(n), TWICE(n + 2)
#else
enum { LANES = 4 };
#define LANES_FROM(n) TWICE(n)
#endif

/* INTERLEAVED(x, y, n): lanes n, n + 1 ... of x and y in turn, until a vector is full. n is a constant. */
#ifdef __clang__
#define INTERLEAVED(x, y, n) __builtin_shufflevector(x, y, LANES_FROM(n))
#else
#define INTERLEAVED(x, y, n) __builtin_shuffle(x, y, (integers){ LANES_FROM(n) })
#endif

typedef float vector __attribute__((vector_size(4 * LANES)));
typedef int32_t integers __attribute__((vector_size(4 * LANES)));

static inline size_t padded(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* The next `bytes` of memory, aligned to 64; *at moves on. With memory NULL, only *at matters. */
static inline void *take(char *memory, size_t *at, size_t bytes)
{
    const size_t start = *at;
    *at += padded(bytes, 64);
    return memory ? memory + start : NULL;
}

/* The numbers 0, 1, 2 ... */
static inline integers counting(void)
{
    integers lanes;
    for (int i = 0; i < LANES; i++)
        lanes[i] = i;
    return lanes;
}

/* Lane by lane, `yes` where the mask is set and `no` elsewhere. */
static inline vector choose(integers mask, vector yes, vector no)
{
    return (vector)((mask & (integers)yes) | (~mask & (integers)no));
}

#endif
