#define _DEFAULT_SOURCE

#include "core/clock.h"

#include <time.h>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* Reading both clocks has an error of some tens of ns at each end; over 4 ms
 * that is 1e-5. */
enum { BASELINE_NS = 4000000, BRACKET_TRIES = 8 };

/* About 50 ms of readings.  Limits the wait for a CLOCK_MONOTONIC that stands
 * still. */
enum { MOST_READINGS = 100000 };

/* A scale that differs more from the first one is wrong: the machine was
 * suspended or migrated, and one of the two clocks stopped meanwhile. */
static const double MOST_DRIFT = 1e-3;

int64_t
fp_clock_monotonic_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* The same, from the kernel: the program's clock_gettime may be another one
 * (libfaketime), and the scale of the counter must not be its. */
static int64_t
kernel_ns(void)
{
#if defined(__linux__) && defined(SYS_clock_gettime) && defined(__LP64__)
    struct timespec ts = {0, 0};
    if (syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &ts) == 0) {
        return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
    }
#endif
    return fp_clock_monotonic_ns();
}

static int
have_counter(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8)) != 0;
#elif defined(__aarch64__)
    return 1;
#else
    return 0;
#endif
}

/* Reads both clocks at one moment.  Of several tries it takes the one with the
 * tightest bracket, so that preemption between two reads does not matter. */
static void
read_pair(const fp_clock *c, int64_t *ticks, int64_t *ns)
{
    int64_t best = INT64_MAX;
    for (int i = 0; i < BRACKET_TRIES; i++) {
        int64_t before = kernel_ns();
        int64_t t = fp_clock_now(c);
        int64_t after = kernel_ns();
        if (after - before < best) {
            best = after - before;
            *ticks = t;
            *ns = before + (after - before) / 2;
        }
    }
}

void
fp_clock_init(fp_clock *c)
{
    *c = (fp_clock){.kind = have_counter() ? FP_CLOCK_COUNTER
                                           : FP_CLOCK_MONOTONIC};
    read_pair(c, &c->base_ticks, &c->base_ns);
}

void
fp_clock_init_reader(fp_clock *c, fp_clock_reader reader, void *ctx,
                     double ns_per_tick)
{
    *c = (fp_clock){FP_CLOCK_READER, reader, ctx, ns_per_tick, 0, 0, 0.0};
}

int64_t
fp_clock_now_slow(const fp_clock *c)
{
    return c->kind == FP_CLOCK_READER ? c->reader(c->ctx)
                                      : fp_clock_monotonic_ns();
}

/* Nanoseconds per tick, or 0 if the interval is too short. */
static double
whole_scale(int64_t ticks, int64_t ns)
{
    return ticks > 0 && ns >= BASELINE_NS ? (double)ns / (double)ticks : 0.0;
}

static int
is_drift(const fp_clock *c, double scale)
{
    double drift = scale / c->scale - 1.0;
    return drift > -MOST_DRIFT && drift < MOST_DRIFT;
}

double
fp_clock_scale(const fp_clock *c, int64_t ticks, int64_t ns)
{
    double scale = whole_scale(ticks, ns);
    if (c->scale > 0.0 && !is_drift(c, scale)) {
        return c->scale;
    }
    return scale > 0.0 ? scale : 1.0; /* unknown: assume nanoseconds */
}

void
fp_clock_learn(fp_clock *c)
{
    if (c->kind == FP_CLOCK_COUNTER && c->scale == 0.0) {
        int64_t ticks = 0, ns = 0;
        read_pair(c, &ticks, &ns);
        c->scale = whole_scale(ticks - c->base_ticks, ns - c->base_ns);
    }
}

int
fp_clock_has_jumped(const fp_clock *c)
{
    if (c->kind != FP_CLOCK_COUNTER || c->scale == 0.0) {
        return 0;
    }
    int64_t ticks = 0, ns = 0;
    read_pair(c, &ticks, &ns);
    return !is_drift(c, whole_scale(ticks - c->base_ticks, ns - c->base_ns));
}

double
fp_clock_ns_per_tick(const fp_clock *c)
{
    if (c->kind == FP_CLOCK_READER) {
        return c->reader_scale;
    }
    if (c->kind == FP_CLOCK_MONOTONIC) {
        return 1.0;
    }
    int64_t ticks = c->base_ticks, ns = c->base_ns;
    int readings = 0;
    do {
        read_pair(c, &ticks, &ns);
    } while (ns - c->base_ns < BASELINE_NS &&
             (readings += BRACKET_TRIES) < MOST_READINGS);
    return fp_clock_scale(c, ticks - c->base_ticks, ns - c->base_ns);
}

const char *
fp_clock_name(const fp_clock *c)
{
    switch (c->kind) {
    case FP_CLOCK_READER:
        return "external";
    case FP_CLOCK_COUNTER:
#if defined(__aarch64__)
        return "cntvct";
#else
        return "tsc";
#endif
    default:
        return "monotonic";
    }
}
