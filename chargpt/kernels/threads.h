/* What C11 leaves to the system, which is POSIX or Windows: threads, locks, a clock, and the number of this process. */

#ifndef CHARGPT_THREADS_H
#define CHARGPT_THREADS_H

#ifdef _WIN32

#define NOMINMAX
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#define EXPORT __declspec(dllexport)
#define THREAD_FUNCTION DWORD WINAPI /* the type of a function that a thread runs; it returns 0 */

typedef HANDLE Thread;
typedef SRWLOCK Lock;
typedef CONDITION_VARIABLE Condition;

static inline void lock_new(Lock *lock) { InitializeSRWLock(lock); }
static inline void lock_take(Lock *lock) { AcquireSRWLockExclusive(lock); }
static inline void lock_give(Lock *lock) { ReleaseSRWLockExclusive(lock); }
static inline void condition_new(Condition *condition) { InitializeConditionVariable(condition); }
static inline void condition_wait(Condition *condition, Lock *lock) { SleepConditionVariableSRW(condition, lock, INFINITE, 0); }
static inline void condition_wake_all(Condition *condition) { WakeAllConditionVariable(condition); }

static inline void thread_join(Thread thread)
{
    WaitForSingleObject(thread, INFINITE);
    CloseHandle(thread);
}

/* Starts a thread that runs function(argument). Returns 0, or another number if there can be no more threads. */
static inline int thread_start(Thread *thread, LPTHREAD_START_ROUTINE function, void *argument)
{
    *thread = CreateThread(NULL, 0, function, argument, 0, NULL);
    return *thread == NULL;
}

static inline long process_now(void) { return 0; } /* no process is a copy of another */

static inline double seconds_now(void)
{
    LARGE_INTEGER count, frequency;
    QueryPerformanceCounter(&count);
    QueryPerformanceFrequency(&frequency);
    return (double)count.QuadPart / (double)frequency.QuadPart;
}

#else

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define THREAD_FUNCTION void *

typedef pthread_t Thread;
typedef pthread_mutex_t Lock;
typedef pthread_cond_t Condition;

static inline void lock_new(Lock *lock) { pthread_mutex_init(lock, NULL); }
static inline void lock_take(Lock *lock) { pthread_mutex_lock(lock); }
static inline void lock_give(Lock *lock) { pthread_mutex_unlock(lock); }
static inline void condition_new(Condition *condition) { pthread_cond_init(condition, NULL); }
static inline void condition_wait(Condition *condition, Lock *lock) { pthread_cond_wait(condition, lock); }
static inline void condition_wake_all(Condition *condition) { pthread_cond_broadcast(condition); }
static inline void thread_join(Thread thread) { pthread_join(thread, NULL); }

static inline int thread_start(Thread *thread, void *(*function)(void *), void *argument)
{
    return pthread_create(thread, NULL, function, argument);
}

/* A number that a forked child does not share with its parent. */
static inline long process_now(void) { return getpid(); }

static inline double seconds_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

#endif

#endif
