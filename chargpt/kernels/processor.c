/* Which instruction sets this processor and its system have. */

#include "threads.h"

#ifdef __x86_64__
#include <cpuid.h>

static int has(unsigned bits, unsigned wanted) { return (bits & wanted) == wanted; }

/* How many sets of INSTRUCTIONS in compiler.py follow "baseline" here: 1 with AVX2 and FMA, 2 with AVX-512 (F, BW, DQ, VL) too,
 * 3 with AVX-512 BF16 and BMI2 too. */
EXPORT int instruction_level(void)
{
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, bit_FMA | bit_OSXSAVE | bit_AVX))
        return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0)); /* registers that the system saves: AVX's are bits 1 and 2, */
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has(b, bit_AVX2) || !has(low, 0x06))
        return 0;
    if (!has(b, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL) || !has(low, 0xe6)) /* AVX-512's bits 5 to 7 */
        return 1;
    const int bmi2 = has(b, bit_BMI2);
    return bmi2 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && has(a, 1 << 5 /* AVX512_BF16 */) ? 3 : 2;
}

#else

EXPORT int instruction_level(void) { return 0; }

#endif
