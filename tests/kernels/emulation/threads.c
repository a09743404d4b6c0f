/* gcc's interface to its OpenMP library, by plain threads: ThreadSanitizer does not see how the real library synchronises. */

#include <pthread.h>
#include <stdlib.h>

int omp_get_thread_num(void);
int omp_get_num_threads(void);
void GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags);

typedef struct {
    void (*function)(void *);
    void *data;
    int number, threads;
} Member;

static _Thread_local int thread_num, num_threads = 1;

int omp_get_thread_num(void) { return thread_num; }
int omp_get_num_threads(void) { return num_threads; }

static void *run(void *argument)
{
    const Member *member = argument;
    thread_num = member->number;
    num_threads = member->threads;
    member->function(member->data);
    return NULL;
}

/* Calls function(data) in `threads` threads and waits for all of them. */
void GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags)
{
    pthread_t *thread = calloc(threads, sizeof *thread);
    Member *member = calloc(threads, sizeof *member);
    (void)flags;
    for (unsigned i = 0; i < threads; i++) {
        member[i] = (Member){ function, data, i, threads };
        if (pthread_create(&thread[i], NULL, run, &member[i]))
            abort();
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    free(thread);
    free(member);
}
