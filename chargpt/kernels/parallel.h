/* Work in several threads at once: in those of the OpenMP library that torch has loaded, else in threads of its own.
 *
 * torch's threads spin for a while after each operation. Other threads would have to compete with them for the processors.
 * OpenMP is called through pointers, so that every C compiler compiles this, and a library without torch loads it.
 */

#ifndef CHARGPT_PARALLEL_H
#define CHARGPT_PARALLEL_H

#include <stdatomic.h>
#include <stdint.h>

#include "threads.h"

typedef void (*Call)(void *argument);

typedef struct { /* LLVM's `ident_t`: where the source calls OpenMP */
    int32_t reserved_1, flags, reserved_2, reserved_3;
    const char *source;
} Location;

typedef struct { /* functions of the OpenMP library, or NULL; attention.py has the same structure */
    void (*gomp_parallel)(Call call, void *argument, unsigned threads, unsigned flags); /* gcc's interface; LLVM has it too */
    int32_t (*kmpc_global_thread_num)(Location *); /* LLVM's and Intel's interface, the only one on Windows */
    void (*kmpc_push_num_threads)(Location *, int32_t thread, int32_t threads);
    void (*kmpc_fork_call)(Location *, int32_t arguments, void (*call)(int32_t *, int32_t *, void *), ...);
} OpenMP;

typedef struct { /* what the threads share */
    void (*work)(const void *data, int item, int thread);
    const void *data;
    int items;
    atomic_int threads, taken; /* threads that have begun, and items that they have taken */
} Work;

static inline void take_items(void *argument)
{
    Work *work = argument;
    const int thread = atomic_fetch_add(&work->threads, 1);
    for (int item; (item = atomic_fetch_add(&work->taken, 1)) < work->items;)
        work->work(work->data, item, thread);
}

static inline void take_items_kmpc(int32_t *global_thread, int32_t *thread, void *argument)
{
    (void)global_thread, (void)thread;
    take_items(argument);
}

static inline THREAD_FUNCTION take_items_thread(void *argument)
{
    take_items(argument);
    return 0;
}

/* Calls work(data, item, thread) for the items [0, items) in up to `threads` threads at once, one of which is the caller's.
 * Threads have numbers from 0 on. A thread takes the next item when it is done with one, so that none waits for a slower one. */
static inline void in_threads(
    const OpenMP *openmp, int threads, int items, void (*work)(const void *data, int item, int thread), const void *data)
{
    Work shared = { .work = work, .data = data, .items = items };
    if (threads == 1) {
        take_items(&shared);
    } else if (openmp->gomp_parallel) {
        openmp->gomp_parallel(take_items, &shared, threads, 0);
    } else if (openmp->kmpc_fork_call) {
        static Location location = { .flags = 2, .source = ";unknown;unknown;0;0;;" }; /* 2: KMP_IDENT_KMPC */
        openmp->kmpc_push_num_threads(&location, openmp->kmpc_global_thread_num(&location), threads);
        openmp->kmpc_fork_call(&location, 1, take_items_kmpc, &shared);
    } else {
        Thread thread[threads];
        int started = 1;
        while (started < threads && !thread_start(&thread[started], take_items_thread, &shared))
            started++;
        take_items(&shared);
        for (int i = 1; i < started; i++)
            thread_join(thread[i]);
    }
}

#endif
