/* steps_split: what the time of a thread's steps was spent on.
 *
 * Every tick is of one kind.  Which one is decided where it is spent:
 *
 *   - gc takes from whatever it interrupts, and what runs in it is gc;
 *   - a section that covers (data, communication) has all of its time, whatever
 *     runs in it; of two, the outer one;
 *   - waiting for the GPU takes from the function that waits;
 *   - a listed function (see waits.h) outside of these has its own time.
 *
 * What is left is computing, or being off the CPU for no reason known here: ready
 * to run while others have the CPUs (see run_delay.h), or something else.  All of
 * it is called by the thread that steps. */
#ifndef FP_CORE_STEPS_SPLIT_H
#define FP_CORE_STEPS_SPLIT_H

#include "core/steps_series.h"
#include "core/steps_split_gc.h"
#include "core/steps_split_places.h"
#include "core/thread.h"
#include "core/usage.h"

enum { FP_GC_GENERATIONS = 3 };

/* Who watched during a step; the thread's owner says who does now. */
enum {
    FP_SIGNAL_FUNCTIONS = 1,
    FP_SIGNAL_GC = 2,
    FP_SIGNAL_GPU = 4,
    FP_SIGNALS = 3, /* how many */
};

/* Sums of one step, or of all measured ones. */
typedef struct fp_split_sums {
    int64_t kind[FP_KIND_COUNT]; /* ticks */
    int64_t covered_ticks;       /* by sections: part of the above */
    int64_t covered_cpu_ns;
    int64_t gc_cpu_ns;
    int64_t delay_ns; /* ready to run, without a CPU, outside of covers */
    int64_t covered_delay_ns;
    uint64_t gc_runs[FP_GC_GENERATIONS];
} fp_split_sums;

typedef struct fp_split {
    fp_split_sums step; /* the one under way */
    fp_split_sums kept; /* what it was when it came to stand still */
    fp_split_sums sum;
    int64_t cpu_ns;                    /* measured steps */
    uint64_t cpu_steps;                /* ... of which it is known */
    uint64_t delay_steps;              /* ... and of which delay_ns is */
    uint64_t signal_steps[FP_SIGNALS]; /* ... in which each watched */
    unsigned signals;                  /* who watches now */
    unsigned signals_before;           /* ... and at the last end of a step */
    uint32_t covers;                   /* open sections that cover */
    fp_kind cover_kind;                /* of the outermost */
    int64_t cover_since;
    int64_t cover_cpu_ns;
    const fp_node *cover_node;
    uint8_t in_gc;
    uint8_t gc_steps; /* ends of steps since it began */
    int64_t gc_since;
    int64_t gc_cpu_ns;
    int64_t gc_self_ticks; /* own time of gc_node before */
    const fp_node *gc_node;
    fp_usage_meter usage;
    fp_usage at; /* at the beginning of the step */
    fp_run_delay delay;
    int64_t delay_at_ns; /* when it was last looked at; -1: not known */
    fp_usage paused_at;  /* while the step stands still: when that began */
    uint8_t shares_cpus; /* was off a CPU: covers look at the delay, too */
    fp_split_place place[FP_SPLIT_PLACES];
    uint32_t places;
    uint16_t used; /* places of this step: index + 1 of the first */
    fp_series series;
    struct fp_pairs *pairs; /* owned; NULL: every step was recorded */
} fp_split;

/* A step begins at [now], and what is known of one under way is dropped.  Made
 * if need be; without memory the thread has none. */
void
fp_split_start(fp_thread *t, int64_t now);

/* [source] instead of the operating system; see usage.h. */
void
fp_split_set_usage(fp_thread *t, fp_usage_source source, const fp_clock *clock,
                   int64_t now);

/* The operating system is asked less often by the help of [clock], which stays
 * as long as the thread.  [t] has a split, of whose step nothing is known. */
void
fp_split_set_clock(fp_thread *t, const fp_clock *clock, int64_t now);

void
fp_split_destroy(fp_thread *t);

size_t
fp_split_bytes(const fp_split *s);

/* The step that began at [start] has ended; the sections' times of it are still
 * there.  [t] has a split. */
void
fp_split_end_step(fp_thread *t, int64_t start, int64_t now, int measured);

/* The step under way stands still from [now] on, and goes on.  Accepts a thread
 * without a split. */
void
fp_split_pause(fp_thread *t, int64_t now);

void
fp_split_resume(fp_thread *t, int64_t now);

/* A section that covers was opened, or will be closed. */
void
fp_split_cover(fp_thread *t, fp_kind kind, int64_t now);

/* [elsewhere]: another thread calls, so the CPU time is not known. */
void
fp_split_uncover(fp_thread *t, int64_t now, int elsewhere);

/* The function in which the thread stands waited for the GPU; without the lock
 * that readers of the sums hold. */
void
fp_split_gpu(fp_thread *t, int64_t ticks);

/* ---- functions that wait ---- */

/* Lists [n], a new node for a function that waits, unless a section covers. */
void
fp_thread_list_wait(fp_thread *t, fp_node *n, fp_kind kind);

#endif
