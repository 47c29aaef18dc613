#define _GNU_SOURCE /* syscall */

#include "gpu/worker.h"

#include <signal.h>
#include <stddef.h>

#ifdef __linux__
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

struct timespec
fp_worker_deadline(int clock, int64_t ns)
{
    const int64_t second_ns = 1000000000;
    struct timespec t;
    clock_gettime(clock, &t);
    int64_t left = t.tv_nsec + ns;
    t.tv_sec += (time_t)(left / second_ns);
    t.tv_nsec = (long)(left % second_ns);
    return t;
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
