/* clock: what time it is, in ticks, as cheaply as the machine allows; and how
 * many nanoseconds a tick has.
 *
 * The time stamp counter is used where the processor says that it is invariant
 * (constant_tsc and nonstop_tsc: CPUID 0x80000007, EDX bit 8; Intel SDM vol. 3,
 * "Invariant TSC"), the virtual counter on arm64, else CLOCK_MONOTONIC.  The
 * scale is taken over the whole time from fp_clock_init to the question, never
 * over microseconds: two bracketed readings some milliseconds apart are exact
 * to better than 1e-4, and get better the longer the program runs.  One that is
 * further from the first than clocks drift is not believed.
 *
 * Tests put in a reader of their own. */
#ifndef FP_CORE_CLOCK_H
#define FP_CORE_CLOCK_H

#include "core/base.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

typedef enum fp_clock_kind {
    FP_CLOCK_MONOTONIC,
    FP_CLOCK_COUNTER, /* TSC or cntvct_el0 */
    FP_CLOCK_READER,  /* handed in */
} fp_clock_kind;

/* May be called from any thread; must not block. */
typedef int64_t (*fp_clock_reader)(void *ctx);

typedef struct fp_clock {
    fp_clock_kind kind;
    fp_clock_reader reader;
    void *ctx;           /* borrowed */
    double reader_scale; /* ns per tick of the reader */
    int64_t base_ticks;  /* both read at the same moment in fp_clock_init */
    int64_t base_ns;
    double scale; /* see fp_clock_learn; 0: none so far */
} fp_clock;

void
fp_clock_init(fp_clock *c);

/* Ticks come from [reader]; one tick is [ns_per_tick] nanoseconds. */
void
fp_clock_init_reader(fp_clock *c, fp_clock_reader reader, void *ctx,
                     double ns_per_tick);

int64_t
fp_clock_now_slow(const fp_clock *c);

/* The counter of a clock whose kind is FP_CLOCK_COUNTER. */
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
    return 0; /* no clock is of that kind here */
#endif
}

static inline int64_t
fp_clock_now(const fp_clock *c)
{
    if (FP_LIKELY(c->kind == FP_CLOCK_COUNTER)) {
        return fp_clock_counter();
    }
    return fp_clock_now_slow(c);
}

/* Nanoseconds per tick, over the time since fp_clock_init.  Waits (spinning, a
 * few ms at most, once) when that was so short that the scale would be poor. */
double
fp_clock_ns_per_tick(const fp_clock *c);

/* What it answers, [ticks] and [ns] after fp_clock_init. */
double
fp_clock_scale(const fp_clock *c, int64_t ticks, int64_t ns);

/* From the first call on for which it has been long enough since fp_clock_init,
 * only scales near that one are believed.  Does not wait. */
void
fp_clock_learn(fp_clock *c);

/* Has one of the two clocks jumped since then? */
int
fp_clock_has_jumped(const fp_clock *c);

/* "tsc", "cntvct", "monotonic" or "external". */
const char *
fp_clock_name(const fp_clock *c);

#endif
