#define _GNU_SOURCE /* RUSAGE_THREAD */

#include "core/usage.h"

#include <sys/resource.h>
#include <time.h>

static int64_t
thread_cpu_ns(void *ctx)
{
    (void)ctx;
    struct timespec ts;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts) != 0) {
        return -1;
    }
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void
thread_counts(void *ctx, fp_usage *out)
{
    (void)ctx;
#ifdef RUSAGE_THREAD
    struct rusage usage;
    if (getrusage(RUSAGE_THREAD, &usage) == 0) {
        out->switches = usage.ru_nivcsw;
        out->waits = usage.ru_nvcsw;
        out->faults = usage.ru_majflt;
    }
#else
    (void)out;
#endif
}

static int64_t
thread_delay_ns(void *ctx)
{
    return fp_run_delay_ns(ctx);
}

fp_usage_source
fp_usage_of_thread(fp_run_delay *delay)
{
    return (fp_usage_source){thread_cpu_ns, thread_counts, thread_delay_ns,
                             delay};
}
