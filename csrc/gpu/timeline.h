/* timeline: when a device was busy and with what, compared to the section that
 * the training thread was in.
 *
 * Activities come late and in any order; host events (the training thread's
 * outermost section, the end of a step) come in order.  Both wait until
 * fp_timeline_fold(until) promises that nothing earlier will come.  Then they
 * are swept once, summed up and dropped, except for the time until which each
 * union is busy.  A later activity loses its part before that time to
 * `late_ns`; a later host event takes effect at that time.  Times are CUPTI's
 * nanoseconds.  One thread at a time. */
#ifndef FP_GPU_TIMELINE_H
#define FP_GPU_TIMELINE_H

#include "core/alloc.h"
#include "core/base.h"
#include "gpu/step_waits.h"

typedef enum fp_gpu_class {
    FP_GPU_COMPUTE,
    FP_GPU_COMMUNICATION, /* broadcast, send and receive, ... */
    FP_GPU_COLLECTIVE,    /* communication in which all ranks wait */
    FP_GPU_COPY,
    FP_GPU_MEMSET,
    FP_GPU_CLASSES,
} fp_gpu_class;

/* Groups of activities.  Time in which two of a group run counts once. */
typedef enum fp_timeline_union {
    FP_TIMELINE_ANY,
    FP_TIMELINE_KERNEL, /* compute, communication or collective */
    FP_TIMELINE_COMPUTE,
    FP_TIMELINE_COMMUNICATION, /* or collective */
    FP_TIMELINE_WORK,          /* compute or collective */
    FP_TIMELINE_COPY,          /* or memset */
    FP_TIMELINE_UNIONS,
} fp_timeline_union;

/* Section 0: the training thread was in no section. */
enum { FP_TIMELINE_SECTIONS = 64 };

/* wall = busy + idle, idle = sum of idle_ns[]. */
typedef struct fp_timeline_sums {
    int64_t wall_ns;
    int64_t busy_ns;          /* any activity */
    int64_t kernel_ns;        /* any kernel */
    int64_t compute_ns;       /* at least one compute kernel */
    int64_t communication_ns; /* at least one communication kernel */
    int64_t waiting_ns;       /* a collective, and no compute kernel */
    int64_t overlap_ns;       /* both at once */
    int64_t copy_ns;          /* at least one copy or memset */
    int64_t copy_alone_ns;    /* ... and no kernel */
    /* By the training thread's section; the last entry collects all further
     * sections. */
    int64_t idle_ns[FP_TIMELINE_SECTIONS];
} fp_timeline_sums;

typedef struct fp_interval {
    int64_t start;
    int64_t end;
    uint8_t gpu_class;
} fp_interval;

typedef struct fp_host_event {
    int64_t at;
    uint32_t section; /* from now on; valid if !is_step */
    uint64_t number;  /* of the step; valid if is_step */
    uint8_t is_step;  /* a step ends */
    uint8_t measured; /* ... and is measured, not warm-up */
} fp_host_event;

typedef struct fp_timeline {
    fp_alloc alloc;
    fp_interval *interval; /* owned */
    uint32_t intervals;
    uint32_t interval_capacity;
    uint32_t ordered;     /* the first ones, which ascend by start */
    fp_host_event *event; /* owned; ascending */
    uint32_t events;
    uint32_t event_capacity;
    int64_t folded;                         /* earlier time is final */
    int64_t busy_until[FP_TIMELINE_UNIONS]; /* by earlier activities */
    uint32_t section;                       /* at `folded` */
    fp_timeline_sums step_so_far;           /* the current step */
    fp_timeline_sums whole; /* from the beginning to `folded` */
    fp_timeline_sums steps; /* completed measured steps */
    uint64_t step_count;    /* ... their number */
    fp_step_waits waits;    /* waiting_ns of the last ones */
    int64_t late_ns;
    uint64_t late;
    uint64_t lost; /* activities or events lost: no memory */
} fp_timeline;

/* Limit of waiting intervals, and of waiting events.  Beyond it, or without
 * memory, half of them are folded at once, so a long pause takes bounded
 * memory. */
enum { FP_TIMELINE_WAITING = 1 << 20 };

/* An empty timeline from [begin] on. */
void
fp_timeline_init(fp_timeline *t, const fp_alloc *a, int64_t begin);

void
fp_timeline_fini(fp_timeline *t);

/* Adds an activity from [start] to [end]; ignores it if [end] <= [start]. */
void
fp_timeline_add(fp_timeline *t, int64_t start, int64_t end, fp_gpu_class c);

/* The training thread is in [section] from [at] on. */
void
fp_timeline_section(fp_timeline *t, int64_t at, uint32_t section);

/* Step [number] ends at [at] and the next begins. */
void
fp_timeline_step(fp_timeline *t, int64_t at, uint64_t number, int measured);

/* Excludes the time in which nothing was recorded because another client had
 * the device's records.  Steps end and sections change in it as usual.  Time
 * before [from] is folded first; a gap that begins earlier than the folded
 * time is shortened. */
void
fp_timeline_gap(fp_timeline *t, int64_t from, int64_t to);

/* Folds all time before [until]; nothing earlier will come. */
void
fp_timeline_fold(fp_timeline *t, int64_t until);

#endif
