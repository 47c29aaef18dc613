/* usage: what the operating system counts of the calling thread, and a meter that
 * asks it as seldom as it can: each question is a system call.
 *
 * A reading of the CPU time answers for FP_USAGE_NEAR_NS before and after it, as
 * if the thread had the CPU throughout; what is wrong by that is put right by the
 * next reading.  The counts are read when the thread has been off the CPU for
 * more than that and 1/1024 of the step since they were read last; what cost less
 * is told of after a later step.
 *
 * Tests put in a source of their own. */
#ifndef FP_CORE_USAGE_H
#define FP_CORE_USAGE_H

#include "core/clock.h"
#include "core/run_delay.h"

/* -1 is "not known", in each. */
typedef struct fp_usage {
    int64_t cpu_ns;
    int64_t switches; /* taken off the CPU against its will */
    int64_t waits;    /* went off the CPU by itself */
    int64_t faults;   /* pages that had to come from a disk */
} fp_usage;

typedef struct fp_usage_source {
    int64_t (*cpu_ns)(void *ctx);
    void (*counts)(void *ctx, fp_usage *out); /* all but cpu_ns */
    int64_t (*delay_ns)(void *ctx);           /* see run_delay.h */
    void *ctx;                                /* borrowed */
} fp_usage_source;

/* The operating system. */
fp_usage_source
fp_usage_of_thread(fp_run_delay *delay);

enum { FP_USAGE_NEAR_NS = 20000 };

/* Used by one thread. */
typedef struct fp_usage_meter {
    fp_usage_source source;
    const fp_clock *clock; /* borrowed; NULL: everything is read */
    double ns_per_tick;
    int64_t near_ticks;
    int64_t read_at; /* ticks of the last reading */
    int64_t read_ns; /* ... which was this; -1: there is none */
    int64_t told_ns; /* what was said last */
    double off_ns;   /* off the CPU since the counts were read */
    uint64_t reckoned;
} fp_usage_meter;

/* A [clock] that runs in real time saves readings; NULL: there is none. */
void
fp_usage_init(fp_usage_meter *m, fp_usage_source source,
              const fp_clock *clock);

/* CPU time at [now], which is about now; never less than was said before. */
int64_t
fp_usage_cpu(fp_usage_meter *m, int64_t now);

/* The same, and not reckoned. */
int64_t
fp_usage_cpu_read(fp_usage_meter *m);

static inline int64_t
fp_usage_delay(const fp_usage_meter *m)
{
    return m->source.delay_ns(m->source.ctx);
}

/* All there is, read now. */
fp_usage
fp_usage_read(fp_usage_meter *m);

/* All there is; readings before do not count. */
fp_usage
fp_usage_begin(fp_usage_meter *m, int64_t now);

/* The same at the end of a step that began with [before] and took [ticks]. */
fp_usage
fp_usage_end(fp_usage_meter *m, const fp_usage *before, int64_t ticks,
             int64_t now);

#endif
