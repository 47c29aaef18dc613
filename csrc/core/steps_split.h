/* steps_split: divides the time of a thread's steps by kind.
 *
 * Every tick has one kind, decided where it is spent:
 *
 *   - gc: collections, and all code that runs inside them;
 *   - a section that covers (data, communication): its whole time; of nested
 *     ones, the outer one counts;
 *   - waiting for the GPU: taken from the function that waits;
 *   - elsewhere, a listed function (see waits.h): its own time.
 *
 * The rest is computing, or time off the CPU for an unknown reason: ready to
 * run without a CPU (see run_delay.h), or something else.  The stepping thread
 * makes all calls. */
#ifndef FP_CORE_STEPS_SPLIT_H
#define FP_CORE_STEPS_SPLIT_H

#include "core/steps_series.h"
#include "core/steps_split_gc.h"
#include "core/steps_split_places.h"
#include "core/thread.h"
#include "core/usage.h"

enum { FP_GC_GENERATIONS = 3 };

/* Sections read the delay at most once in this many FP_USAGE_NEAR_NS: a
 * reading takes about 1 us. */
enum { FP_DELAY_READ_EVERY = 10 };

/* Of covers that do not wait, the CPU time is read in one plain step of so
 * many; in the others they are estimated to have the CPU. */
enum { FP_COVERS_READ_EVERY = 16 };

/* Which sources observed a step.  The owner of the thread sets the current
 * ones. */
enum {
    FP_SIGNAL_FUNCTIONS = 1,
    FP_SIGNAL_GC = 2,
    FP_SIGNAL_GPU = 4,
    FP_SIGNALS = 3, /* their number */
};

/* Sums of one step, or of many. */
typedef struct fp_split_sums {
    int64_t kind[FP_KIND_COUNT]; /* ticks */
    int64_t covered_ticks;       /* in sections that cover; part of kind */
    int64_t covered_cpu_ns;
    int64_t gc_cpu_ns;
    int64_t delay_ns; /* waiting for a CPU, outside of covers */
    int64_t covered_delay_ns;
    uint64_t gc_runs[FP_GC_GENERATIONS];
} fp_split_sums;

/* The steps of one kind: their sums, and the last ones one by one. */
typedef struct fp_split_steps {
    fp_split_sums sum;
    int64_t cpu_ns;
    uint64_t cpu_steps;                /* steps with known cpu_ns */
    uint64_t delay_steps;              /* ... and with known delay_ns */
    uint64_t signal_steps[FP_SIGNALS]; /* ... that each source observed */
    fp_series series;
} fp_split_steps;

typedef struct fp_split {
    fp_split_sums step; /* the current step */
    fp_split_sums kept; /* the current step when it was paused */
    fp_split_steps measured;
    fp_split_steps *plain;   /* owned; NULL: no step ran without the hook */
    unsigned signals;        /* current sources */
    unsigned signals_before; /* sources at the end of the last step */
    uint32_t covers;         /* open sections that cover */
    fp_kind cover_kind;      /* of the outermost one */
    int64_t cover_since;
    int64_t cover_cpu_ns;
    const fp_node *cover_node;
    uint8_t cover_waits; /* the last one whose CPU time was read was off it */
    uint8_t in_gc;
    uint8_t gc_steps; /* steps that ended in the collection */
    int64_t gc_since;
    int64_t gc_cpu_ns;
    int64_t gc_self_ticks; /* self time of gc_node, counted so far */
    const fp_node *gc_node;
    fp_usage_meter usage;
    fp_usage at; /* at the start of the current step */
    fp_run_delay delay;
    int64_t delay_at_ns;     /* last reading; -1: unknown */
    int64_t delay_read_at;   /* its time, if a section began or ended there */
    int64_t placed_delay_ns; /* of the step's delay, what has a place */
    const fp_node *bottom_node; /* section at the bottom; NULL: unknown */
    fp_usage paused_at;         /* at the start of the pause */
    /* The thread was off a CPU: sections read the delay. */
    uint8_t shares_cpus;
    fp_split_place place[FP_SPLIT_PLACES];
    uint32_t places;
    uint16_t used;          /* in this step: index + 1 of the first */
    struct fp_pairs *pairs; /* owned; NULL like `plain` */
} fp_split;

/* Starts a step at [now] and drops the current one.  Creates the split if
 * needed; without memory the thread has none. */
void
fp_split_start(fp_thread *t, int64_t now);

/* Reads the usage from [source] instead of the operating system; see
 * usage.h. */
void
fp_split_set_usage(fp_thread *t, fp_usage_source source, const fp_clock *clock,
                   int64_t now);

/* Uses [clock] to ask the operating system less often; [clock] must live as
 * long as the thread.  [t] has a split and its step has just begun. */
void
fp_split_set_clock(fp_thread *t, const fp_clock *clock, int64_t now);

/* No step follows until fp_split_start(): forgets a collection in progress and
 * closes the file of the run delay.  Accepts a thread without a split. */
void
fp_split_stop(fp_thread *t);

/* Frees the split of [t], if it has one. */
void
fp_split_destroy(fp_thread *t);

/* Bytes of memory held. */
size_t
fp_split_bytes(const fp_split *s);

/* The step that began at [start] ends at [now]; call this before its section
 * times are reset.  [t] has a split. */
void
fp_split_end_step(fp_thread *t, int64_t start, int64_t now, fp_step_kind kind);

/* Gives [t] room for plain steps.  FP_ENOTFOUND: it has no split. */
fp_status
fp_split_keep_plain(fp_thread *t);

/* Where the times of the section at the bottom go in this phase of the run;
 * NULL: nowhere. */
fp_series *
fp_split_series(fp_split *s, fp_run_phase phase);

/* Pauses the current step at [now], and resumes it.  Both accept a thread
 * without a split. */
void
fp_split_pause(fp_thread *t, int64_t now);

void
fp_split_resume(fp_thread *t, int64_t now);

/* A section that covers, of [kind], was opened at [now]. */
void
fp_split_cover(fp_thread *t, fp_kind kind, int64_t now);

/* The section that covers ends at [now].  [elsewhere]: another thread calls,
 * so its CPU time is unknown. */
void
fp_split_uncover(fp_thread *t, int64_t now, int elsewhere);

/* A section was opened at the bottom of the stack at [now]; the thread stands
 * in it and shares its CPU.  A cover reads the delay before. */
void
fp_split_open_bottom(fp_thread *t, int64_t now);

/* The section at the bottom ends at [now], or its step does. */
void
fp_split_charge_bottom(fp_thread *t, int64_t now);

/* The function in which the thread stands waited [ticks] for the GPU.  Does
 * not need the lock that guards the sums against readers. */
void
fp_split_gpu(fp_thread *t, int64_t ticks);

/* ---- functions that wait ---- */

/* Lists [n], a new node for a function that waits, unless a section covers
 * it. */
void
fp_thread_list_wait(fp_thread *t, fp_node *n, fp_kind kind);

#endif
