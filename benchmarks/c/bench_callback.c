/* Measures the cost of launch callbacks for the program's thread: the four
 * calls that CUPTI makes per cudaLaunchKernel (enter and exit of the runtime's
 * call and of the driver's call inside it), or two if the runtime's callbacks
 * are off, compared to a callback that returns at once.
 *
 * Build it like bench_decode.c.  Emptying the lane is not timed: another
 * thread does that. */
#include "core/thread_sections.h"
#include "gpu/collector.h"
#include "gpu/cupti_abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LAUNCHES = 20000 };
#ifdef QUICK
enum { ROUNDS = 10 };
#else
enum { ROUNDS = 200 };
#endif
enum { RUNTIME_LAUNCH = 211, DRIVER_LAUNCH = 307 };

typedef struct program {
    fp_gpu gpu;
    fp_lane *lane;
    fp_thread *thread;
    uint32_t corr;
} program;

typedef void (*callback)(program *p, int domain, uint32_t cbid,
                         const fp_cupti_call *call);

static void
at_once(program *p, int domain, uint32_t cbid, const fp_cupti_call *call)
{
    (void)domain, (void)cbid, (void)call;
    (void)atomic_load_explicit(&p->gpu.accept, memory_order_relaxed);
}

static void
recorded(program *p, int domain, uint32_t cbid, const fp_cupti_call *call)
{
    fp_lane_enter(p->lane);
    (void)fp_gpu_on_call(&p->gpu, p->lane, p->thread, domain, cbid, call);
    fp_lane_exit(p->lane);
}

static double
now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static double
driver_slice_ns(program *p, callback volatile *f)
{
    double begin = now_ns();
    for (int i = 0; i < LAUNCHES; i++) {
        fp_cupti_call call = {.correlation = ++p->corr};
        call.site = FP_CUPTI_API_ENTER;
        (*f)(p, FP_CUPTI_DOMAIN_DRIVER, DRIVER_LAUNCH, &call);
        call.site = FP_CUPTI_API_EXIT;
        (*f)(p, FP_CUPTI_DOMAIN_DRIVER, DRIVER_LAUNCH, &call);
    }
    return (now_ns() - begin) / LAUNCHES;
}

static double
slice_ns(program *p, callback volatile *f)
{
    double begin = now_ns();
    for (int i = 0; i < LAUNCHES; i++) {
        fp_cupti_call call = {.correlation = ++p->corr};
        call.site = FP_CUPTI_API_ENTER;
        (*f)(p, FP_CUPTI_DOMAIN_RUNTIME, RUNTIME_LAUNCH, &call);
        (*f)(p, FP_CUPTI_DOMAIN_DRIVER, DRIVER_LAUNCH, &call);
        call.site = FP_CUPTI_API_EXIT;
        (*f)(p, FP_CUPTI_DOMAIN_DRIVER, DRIVER_LAUNCH, &call);
        (*f)(p, FP_CUPTI_DOMAIN_RUNTIME, RUNTIME_LAUNCH, &call);
    }
    return (now_ns() - begin) / LAUNCHES;
}

static uint64_t
empty_lane(program *p)
{
    uint64_t n = 0;
    while (fp_lane_read(p->lane) != NULL) {
        n++;
    }
    return n;
}

static int
nobody(fp_key key)
{
    (void)key;
    return 0;
}

static int
set_up(program *p)
{
    static const fp_gpu_entries none;
    const fp_limits limits = {1000, 100};
    fp_alloc a = fp_alloc_libc();
    fp_clock clock;
    fp_clock_init(&clock);
    if (fp_gpu_init(&p->gpu, &a, &clock, &none, nobody) != FP_OK) {
        return -1;
    }
    p->lane = fp_lane_create(&p->gpu.lanes);
    p->thread = fp_thread_create(&a, limits, fp_clock_now(&clock));
    if (p->lane == NULL || p->thread == NULL) {
        return -1;
    }
    p->thread->serial = 1;
    fp_gpu_lane_for(&p->gpu, p->lane, p->thread);
    p->lane->has_sections = 1;
    return fp_thread_open_section(p->thread, 1, FP_PHASE_FORWARD, NULL,
                                  fp_clock_now(&clock)) == FP_OK
               ? 0
               : -1;
}

int
main(void)
{
    static program p;
    callback volatile both[2] = {at_once, recorded};
    double best[3] = {1e18, 1e18, 1e18};
    if (set_up(&p) != 0) {
        return 1;
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 3; i++) {
            double ns =
                i < 2 ? slice_ns(&p, &both[i]) : driver_slice_ns(&p, &both[1]);
            best[i] = ns < best[i] ? ns : best[i];
            if (empty_lane(&p) != (i == 0 ? 0 : LAUNCHES)) {
                fprintf(stderr, "launches were lost\n");
                return 1;
            }
        }
    }
    printf("{\"at_once_ns\": %.2f, \"recorded_ns\": %.2f, "
           "\"driver_ns\": %.2f}\n",
           best[0], best[1], best[2]);
    return 0;
}
