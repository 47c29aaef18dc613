/* Counts how often a program reads the operating system's counters of a
 * thread: CPU time, context switches, time without a CPU.  strace slows each
 * reading so much that the values change, and with them the number of
 * readings.
 *
 *     mkdir -p build && cc -O2 -shared -fPIC benchmarks/c/count_usage.c \
 *         -o build/count_usage.so -ldl
 *     LD_PRELOAD=build/count_usage.so python benchmarks/children.py steps 20000
 */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <time.h>

/* The original function, which this library replaces. */
#define NEXT(function) ((__typeof__(&(function)))dlsym(RTLD_NEXT, #function))

static unsigned long cpu_times, counts, delays;

int
clock_gettime(clockid_t clock, struct timespec *out)
{
    static __typeof__(&clock_gettime) next;
    next = next != NULL ? next : NEXT(clock_gettime);
    cpu_times += clock == CLOCK_THREAD_CPUTIME_ID;
    return next(clock, out);
}

int
getrusage(__rusage_who_t who, struct rusage *out)
{
    static __typeof__(&getrusage) next;
    next = next != NULL ? next : NEXT(getrusage);
    counts += who == RUSAGE_THREAD;
    return next(who, out);
}

ssize_t
pread(int file, void *into, size_t size, off_t offset)
{
    static __typeof__(&pread) next;
    next = next != NULL ? next : NEXT(pread);
    delays++;
    return next(file, into, size, offset);
}

__attribute__((destructor)) static void
tell(void)
{
    fprintf(stderr, "CPU time %lu, context switches %lu, pread %lu\n",
            cpu_times, counts, delays);
}
