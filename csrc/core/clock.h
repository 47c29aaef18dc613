/* clock: reads the time in ticks as cheaply as the machine allows, and
 * converts ticks to nanoseconds.
 *
 * It uses the time stamp counter if the processor reports an invariant one
 * (constant_tsc and nonstop_tsc: CPUID 0x80000007, EDX bit 8; Intel SDM vol.
 * 3, "Invariant TSC"), the virtual counter on arm64, and CLOCK_MONOTONIC
 * elsewhere.  The scale is measured over the whole time since fp_clock_init,
 * never over microseconds: two bracketed readings with some milliseconds between are
 * exact to better than 1e-4, and improve while the program runs.  A scale that
 * differs from the first one by more than clocks drift is rejected.
 *
 * Tests supply their own reader. */
#ifndef FP_CORE_CLOCK_H
#define FP_CORE_CLOCK_H

#include "core/base.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

typedef enum fp_clock_kind {
    FP_CLOCK_MONOTONIC,
    FP_CLOCK_COUNTER, /* TSC or cntvct_el0 */
    FP_CLOCK_READER,  /* supplied by the caller */
} fp_clock_kind;

/* May be called from any thread; must not block. */
typedef int64_t (*fp_clock_reader)(void *ctx);

typedef struct fp_clock {
    fp_clock_kind kind;
    fp_clock_reader reader;
    void *ctx;           /* borrowed */
    double reader_scale; /* ns per tick of the reader */
    int64_t base_ticks;  /* with base_ns: one moment in both clocks */
    int64_t base_ns;
    double scale; /* first measured scale, see fp_clock_learn; 0: none yet */
} fp_clock;

/* CLOCK_MONOTONIC in ns. */
int64_t
fp_clock_monotonic_ns(void);

/* Chooses the best clock of the machine and starts measuring its scale. */
void
fp_clock_init(fp_clock *c);

/* Uses [reader] as the clock; one of its ticks is [ns_per_tick]
 * nanoseconds. */
void
fp_clock_init_reader(fp_clock *c, fp_clock_reader reader, void *ctx,
                     double ns_per_tick);

/* fp_clock_now for a clock that is not a counter. */
int64_t
fp_clock_now_slow(const fp_clock *c);

/* Reads the counter.  The clock's kind must be FP_CLOCK_COUNTER. */
static inline int64_t
fp_clock_counter(void)
{
#if defined(__x86_64__)
    return (int64_t)__rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return (int64_t)ticks;
#else
    return 0; /* this machine has no such clock */
#endif
}

/* The time in ticks. */
static inline int64_t
fp_clock_now(const fp_clock *c)
{
    if (FP_LIKELY(c->kind == FP_CLOCK_COUNTER)) {
        return fp_clock_counter();
    }
    return fp_clock_now_slow(c);
}

/* Nanoseconds per tick, measured since fp_clock_init.  If that was less than 4
 * ms ago, it spins for the rest: a few ms at most, and only once. */
double
fp_clock_ns_per_tick(const fp_clock *c);

/* The result of fp_clock_ns_per_tick() at a moment [ticks] and [ns] after
 * fp_clock_init. */
double
fp_clock_scale(const fp_clock *c, int64_t ticks, int64_t ns);

/* Fixes the first scale once enough time has passed since fp_clock_init; later
 * scales must be close to it.  Does not wait. */
void
fp_clock_learn(fp_clock *c);

/* Has one of the two clocks jumped since fp_clock_learn? */
int
fp_clock_has_jumped(const fp_clock *c);

/* Returns "tsc", "cntvct", "monotonic" or "external". */
const char *
fp_clock_name(const fp_clock *c);

#endif
