/* What the drivers share: random numbers, aligned memory, and a file of results, for a comparison of processors. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef _WIN32 /* its C library has another name for it, and another function to free it; a driver ends soon */
#define aligned_alloc(alignment, size) _aligned_malloc(size, alignment)
#define free(memory) ((void)(memory))
#endif

static uint32_t state = 1;
static FILE *results; /* NULL where they are not wanted */

static float uniform(void) /* -1 to 1 */
{
    state = state * 1664525 + 1013904223;
    return (int32_t)state / 2147483648.0f;
}

static void open_results(int argc, char **argv)
{
    if (argc > 1 && !(results = fopen(argv[1], "wb")))
        abort();
}

/* Adds n numbers, as float32. */
static void add_results(const float *numbers, size_t n)
{
    if (results && fwrite(numbers, sizeof *numbers, n, results) != n)
        abort();
}

/* Ends the program. */
static int report(int shapes)
{
    if (results && fclose(results))
        abort();
    printf("%d shapes\n", shapes);
    return 0;
}
