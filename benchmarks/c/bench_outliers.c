/* Measures the cost of keeping the slowest steps: the additional CPU time of
 * fp_thread_end_step, as a share of steps of 1 ms.
 *
 *     mkdir -p build && cc -O2 -std=c11 -DNDEBUG -I csrc \
 *         csrc/core/[a-z]*.c benchmarks/c/bench_outliers.c \
 *         -o build/bench_outliers -lm && build/bench_outliers
 *
 * Only the looks are real.  The times of steps are artificial: nearly all 1
 * ms, one in twenty up to 10 ms, as on a machine with other work. */
#define _POSIX_C_SOURCE 200809L

#include "core/outliers.h"
#include "core/path.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 5, STEP_NS = 1000000, KEPT = 5 };

static void *
take(void *ctx, size_t size)
{
    (void)ctx;
    return malloc(size);
}

static void
give(void *ctx, void *block, size_t size)
{
    (void)ctx;
    (void)size;
    free(block);
}

static double
cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static fp_key
function(unsigned i)
{
    return (fp_key)(i + 1) << 3 | FP_TAG_PYTHON;
}

static int64_t
enter(fp_thread *t, fp_key key, int64_t now)
{
    fp_node *n = fp_thread_find(t, key);
    n = n != NULL ? n : fp_thread_add(t, key);
    n->calls++;
    fp_thread_enter(t, n, now);
    return now + 1;
}

/* [callers] functions call [callees] functions each. */
static int64_t
work(fp_thread *t, unsigned callers, unsigned callees, int64_t now)
{
    for (unsigned i = 0; i < callers; i++) {
        now = enter(t, function(i), now);
        for (unsigned k = 0; k < callees; k++) {
            now = enter(t, function(10000 + k), now);
            fp_thread_leave(t, function(10000 + k), ++now);
        }
        fp_thread_leave(t, function(i), ++now);
    }
    return now;
}

/* Returns the CPU time in ns of the ends of all steps; *end is the time of the
 * last one. */
static double
run(const fp_clock *clock, unsigned side, unsigned callers, unsigned callees,
    unsigned steps, uint32_t kept, int64_t *end)
{
    fp_alloc a = {take, give, NULL};
    fp_limits limits = {1 << 20, 1000};
    int64_t now = 0;
    fp_thread *t = fp_thread_create(&a, limits, now);
    (void)fp_thread_start_steps(t, 0, now);
    if (kept != 0) {
        (void)fp_thread_keep_outliers(t, kept, clock, now);
    }
    now = work(t, side, side, now);
    srand(1);
    double spent = 0;
    for (unsigned step = 0; step < steps; step++) {
        int64_t start = now;
        now = work(t, callers, callees, now);
        double slow = rand() % 20 == 0 ? 9.0 * rand() / RAND_MAX : 0;
        double jitter = 0.02 * rand() / RAND_MAX;
        int64_t least = start + (int64_t)(STEP_NS * (1 + slow + jitter));
        now = now > least ? now : least;
        double before = cpu_ns();
        fp_thread_end_step(t, now);
        spent += cpu_ns() - before;
    }
    fp_thread_destroy(t);
    *end = now;
    return spent;
}

int
main(void)
{
    static const struct {
        const char *name;
        unsigned side, callers, callees;
    } programs[] = {
        {"1,000 contexts, 20 called", 32, 1, 20},
        {"1,000 contexts, all called", 32, 32, 32},
        {"20,000 contexts, 20 called", 141, 1, 20},
        {"20,000 contexts, all called", 141, 141, 141},
        {"60,000 contexts, 20 called", 245, 1, 20},
        {"60,000 contexts, all called", 245, 245, 245},
    };
    const fp_clock clock = {.kind = FP_CLOCK_MONOTONIC}; /* a tick is 1 ns */
    printf("%-30s %8s %10s %10s\n", "steps of 1 ms", "steps", "us/step",
           "% of time");
    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
        for (unsigned steps = 1000; steps <= 10000; steps *= 10) {
            double best = INFINITY;
            int64_t end = 0;
            for (int round = 0; round < ROUNDS; round++) {
                double with =
                    run(&clock, programs[i].side, programs[i].callers,
                        programs[i].callees, steps, KEPT, &end);
                double without =
                    run(&clock, programs[i].side, programs[i].callers,
                        programs[i].callees, steps, 0, &end);
                best = fmin(best, with - without);
            }
            printf("%-30s %8u %10.2f %10.3f\n", programs[i].name, steps,
                   best / steps / 1e3, 100 * best / (double)end);
        }
    }
    return 0;
}
