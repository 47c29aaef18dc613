#define _GNU_SOURCE /* syscall */

#include "gpu/worker.h"

#include <signal.h>
#include <stddef.h>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

int
fp_worker_begin(pthread_t *thread, void *(*run)(void *), void *argument)
{
    /* Signals go to the program's threads, except faults of this thread: a
     * blocked fault would end the process without a message. */
    static const int faults[] = {SIGSEGV, SIGBUS,  SIGFPE, SIGILL,
                                 SIGABRT, SIGTRAP, SIGSYS};
    sigset_t all, before;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        sigdelset(&all, faults[i]);
    }
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0 ? 0 : -1;
}

#define SECOND_NS INT64_C(1000000000)

static struct timespec
timespec_of(int64_t ns)
{
    return (struct timespec){(time_t)(ns / SECOND_NS), (long)(ns % SECOND_NS)};
}

int64_t
fp_worker_now(int clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * SECOND_NS + t.tv_nsec;
}

struct timespec
fp_worker_deadline(int clock, int64_t ns)
{
    return timespec_of(fp_worker_now(clock) + ns);
}

/* A futex, because it has no descriptor, which the program may close and whose
 * number another file may get, and no lock, which the program's thread would
 * have to wait for. */

void
fp_worker_wake(_Atomic int *woken)
{
    if (atomic_exchange(woken, 1) == 0) {
#ifdef __linux__
        (void)syscall(SYS_futex, woken, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
#endif
    }
}

void
fp_worker_sleep(_Atomic int *woken, int64_t ns)
{
    struct timespec limit = timespec_of(ns < 0 ? 0 : ns);
#ifdef __linux__
    (void)syscall(SYS_futex, woken, FUTEX_WAIT_PRIVATE, 0,
                  ns < 0 ? NULL : &limit, NULL, 0);
#else
    enum { LOOK_NS = 10000000 }; /* other systems have no CUDA */
    if (atomic_load(woken) == 0) {
        limit = ns < 0 || ns > LOOK_NS ? timespec_of(LOOK_NS) : limit;
        (void)nanosleep(&limit, NULL);
    }
#endif
    atomic_store(woken, 0);
}

/* Linux keeps one nice value per thread. */

int
fp_worker_nice(void)
{
#ifdef __linux__
    return getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
#else
    return 0;
#endif
}

void
fp_worker_set_nice(int nice)
{
#ifdef __linux__
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), nice);
#else
    (void)nice;
#endif
}
