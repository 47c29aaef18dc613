/* How often a program asks for what the operating system counts of a thread: CPU
 * time, context switches, time without a CPU.  strace slows each question so much
 * that the answers change, and with them how often is asked.
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

static unsigned long cpu_times, counts, delays;

int
clock_gettime(clockid_t clock, struct timespec *out)
{
    static int (*next)(clockid_t, struct timespec *);
    if (next == NULL) {
        next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT,
                                                            "clock_gettime");
    }
    cpu_times += clock == CLOCK_THREAD_CPUTIME_ID;
    return next(clock, out);
}

int
getrusage(__rusage_who_t who, struct rusage *out)
{
    static int (*next)(__rusage_who_t, struct rusage *);
    if (next == NULL) {
        next = (int (*)(__rusage_who_t, struct rusage *))dlsym(RTLD_NEXT,
                                                               "getrusage");
    }
    counts += who == RUSAGE_THREAD;
    return next(who, out);
}

ssize_t
pread(int file, void *into, size_t size, off_t offset)
{
    static ssize_t (*next)(int, void *, size_t, off_t);
    if (next == NULL) {
        next =
            (ssize_t(*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    }
    delays++;
    return next(file, into, size, offset);
}

__attribute__((destructor)) static void
tell(void)
{
    fprintf(stderr, "CPU time %lu, context switches %lu, pread %lu\n",
            cpu_times, counts, delays);
}
