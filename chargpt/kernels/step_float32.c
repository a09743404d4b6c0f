/* The gradient of a training step in float32: what attention.h and step.h need of its numbers, by vectors of any width. */

#include "arithmetic.h"

#if defined(__AVX512F__) || defined(__aarch64__)
enum { TILE = 8, ROWS = 12 }; /* rows of a tile, and of attention's: the sums fill half, and three quarters, of the registers */
#else
enum { TILE = 4, ROWS = 6 };
#endif

enum { PAIR = 1, QUERIES = 96 };

typedef float number, word;
typedef vector words;

static __attribute__((noinline, cold)) vector load_some(const number *from, int n)
{
    vector x = { 0 };
    if (n > 0)
        memcpy(&x, from, n * sizeof *from);
    return x;
}

static __attribute__((noinline, cold)) void store_some(number *to, vector x, int n)
{
    if (n > 0)
        memcpy(to, &x, n * sizeof *to);
}

static inline vector load(const number *from, int n)
{
    vector x;
    if (n < LANES)
        return load_some(from, n);
    memcpy(&x, from, sizeof x);
    return x;
}

static inline void store(number *to, vector x, int n)
{
    if (n < LANES)
        store_some(to, x, n);
    else
        memcpy(to, &x, sizeof x);
}

static inline words joined(vector x, vector y) { return x; }
static inline words rounded(vector x, vector y) { return x; }
static ALWAYS_INLINE vector add_products(vector sum, word x, words y) { return sum + x * y; }

/* The sum of the lanes. */
static inline float sum_of(vector x)
{
    float part[LANES];
    memcpy(part, &x, sizeof part);
    for (int n = LANES / 2; n; n /= 2)
        for (int i = 0; i < n; i++)
            part[i] += part[i + n];
    return part[0];
}

static inline vector larger_of(vector x, vector y) { return choose(x > y, x, y); }

static inline float largest_of(vector x)
{
    float part[LANES];
    memcpy(part, &x, sizeof part);
    for (int n = LANES / 2; n; n /= 2)
        for (int i = 0; i < n; i++)
            part[i] = part[i] > part[i + n] ? part[i] : part[i + n];
    return part[0];
}

/* Below -64, it is 0: gradients times smaller numbers would be denormal, and CPUs compute with those up to a hundred times
 * slower. */
static inline vector exp2_of(vector x)
{
    const vector zero = { 0 }, rounding = zero + 12583039.0f; /* 1.5 * 2^23 + 127: adding it drops the fraction, */
    const vector whole = x + rounding, f = x - (whole - rounding); /* and leaves the exponent of the power in the lowest bits */
    const vector high = 5.55041087e-2f + f * (9.61812911e-3f + f * (1.33335581e-3f + f * 1.54035304e-4f));
    const vector p = 1 + f * (0.693147181f + f * (0.240226507f + f * high));
    return choose(x < zero - 64, zero, p * (vector)((integers)whole << 23));
}

#include "step.h"
