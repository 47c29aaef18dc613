/* usage: CPU time and scheduling counts of the calling thread, read from the
 * operating system as rarely as possible: each reading is a system call.
 *
 * A reading of the CPU time is extrapolated for FP_USAGE_NEAR_NS before and
 * after it, as if the thread had the CPU all the time; the next reading
 * corrects the error.  At the end of a step that is up to FP_USAGE_FAR_NS, as
 * long as readings find that the thread does have the CPU; of steps without
 * the function hook FP_USAGE_PLAIN times as long, unless the step is longer
 * than those before: an absence belongs to its step.  The counts are
 * read once the thread was off the CPU, since the last reading, for longer
 * than FP_USAGE_NEAR_NS and 1/1024 of the step.  Shorter absences appear in a
 * later step.
 *
 * Tests supply their own source. */
#ifndef FP_CORE_USAGE_H
#define FP_CORE_USAGE_H

#include "core/clock.h"
#include "core/run_delay.h"

/* -1 means unknown in every field. */
typedef struct fp_usage {
    int64_t cpu_ns;
    int64_t switches; /* involuntary context switches */
    int64_t waits;    /* voluntary context switches */
    int64_t faults;   /* page faults that read from disk */
} fp_usage;

typedef struct fp_usage_source {
    int64_t (*cpu_ns)(void *ctx);
    void (*counts)(void *ctx, fp_usage *out); /* all except cpu_ns */
    int64_t (*delay_ns)(void *ctx);           /* see run_delay.h */
    void *ctx;                                /* borrowed */
} fp_usage_source;

/* Reads the operating system's figures of the calling thread. */
fp_usage_source
fp_usage_of_thread(fp_run_delay *delay);

enum {
    FP_USAGE_NEAR_NS = 20000,
    FP_USAGE_FAR_NS = 1000000,
    FP_USAGE_PLAIN = 4,
};

/* Used by one thread. */
typedef struct fp_usage_meter {
    fp_usage_source source;
    const fp_clock *clock; /* borrowed; NULL: never extrapolate */
    double ns_per_tick;
    int64_t near_ticks;
    int64_t end_ticks;   /* the same at the end of a step */
    int64_t usual_ticks; /* of the last steps without the function hook */
    int64_t read_at;     /* time of the last reading, in ticks */
    int64_t read_ns;     /* its CPU time; -1: none */
    int64_t told_ns;     /* the last result */
    double off_ns; /* estimated time off the CPU since the counts were read */
    uint64_t reckoned;
} fp_usage_meter;

/* [clock] runs in real time and saves readings.  NULL: read every time. */
void
fp_usage_init(fp_usage_meter *m, fp_usage_source source,
              const fp_clock *clock);

/* CPU time at [now], which is close to the present; never decreases.  [reach]:
 * how long a reading is extrapolated. */
int64_t
fp_usage_cpu(fp_usage_meter *m, int64_t now, int64_t reach);

/* The reach at the end of a step. */
static inline int64_t
fp_usage_reach(const fp_usage_meter *m)
{
    int64_t far = m->near_ticks * (FP_USAGE_FAR_NS / FP_USAGE_NEAR_NS);
    return m->end_ticks < far ? m->end_ticks : far;
}

/* The same, always read. */
int64_t
fp_usage_cpu_read(fp_usage_meter *m);

/* Nanoseconds of waiting for a CPU since the thread began; -1: unknown. */
static inline int64_t
fp_usage_delay(const fp_usage_meter *m)
{
    return m->source.delay_ns(m->source.ctx);
}

/* CPU time and all counts, read now. */
fp_usage
fp_usage_read(fp_usage_meter *m);

/* The same at the start of a step; drops earlier readings. */
fp_usage
fp_usage_begin(fp_usage_meter *m, int64_t now);

/* The same at the end of a step that began with [before] and took [ticks].
 * [plain]: it ran without the function hook. */
fp_usage
fp_usage_end(fp_usage_meter *m, const fp_usage *before, int64_t ticks,
             int64_t now, int plain);

#endif
