/* What the kernels of training (step.h, attention_*.c) and of writing (decode.c) share.
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

#include <stddef.h>
#include <stdint.h>

#define ALWAYS_INLINE inline __attribute__((always_inline))

#if defined(__AVX512F__) || defined(__AVX512BF16__)
enum { LANES = 16 }; /* float32 numbers in a vector */
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif

typedef int32_t integers __attribute__((vector_size(4 * LANES)));

static inline size_t padded(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* Rotates a pair of numbers of a query or key, i and d / 2 + i, by the angle of its position: model.py's `rotate`. The inverse
 * rotation has the sine times -1. */
static ALWAYS_INLINE void rotate(float *first, float *second, float cosine, float sine)
{
    const float x = *first, y = *second;
    *first = x * cosine - y * sine;
    *second = y * cosine + x * sine;
}

#endif
