/* usage: what the operating system counts of the calling thread.  Tests put in a
 * source of their own. */
#ifndef FP_CORE_USAGE_H
#define FP_CORE_USAGE_H

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

static inline int64_t
fp_usage_cpu(const fp_usage_source *s)
{
    return s->cpu_ns(s->ctx);
}

static inline int64_t
fp_usage_delay(const fp_usage_source *s)
{
    return s->delay_ns(s->ctx);
}

static inline fp_usage
fp_usage_now(const fp_usage_source *s)
{
    fp_usage now = {fp_usage_cpu(s), -1, -1, -1};
    s->counts(s->ctx, &now);
    return now;
}

#endif
