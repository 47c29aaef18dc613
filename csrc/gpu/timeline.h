/* timeline: when a device was busy, and with what, against what the training
 * thread was doing meanwhile.
 *
 * Activities arrive in any order and late; host events (the outermost section
 * of the training thread, the end of a step) arrive in order.  Both are kept
 * until fp_timeline_fold(until) says that nothing earlier will come any more;
 * then they are swept once, summed up and forgotten: all that stays of the
 * activities is until when each union is busy.  An activity that comes later all
 * the same loses the part before that point to `late_ns`; a host event that does
 * holds from that point on.  Times are CUPTI's nanoseconds.  One thread at a
 * time. */
#ifndef FP_GPU_TIMELINE_H
#define FP_GPU_TIMELINE_H

#include "core/alloc.h"
#include "core/base.h"

typedef enum fp_gpu_class {
    FP_GPU_COMPUTE,
    FP_GPU_COMMUNICATION,
    FP_GPU_COPY,
    FP_GPU_MEMSET,
    FP_GPU_CLASSES,
} fp_gpu_class;

/* Activities that are added up as one: time in which two run counts once. */
typedef enum fp_timeline_union {
    FP_TIMELINE_ANY,
    FP_TIMELINE_KERNEL, /* compute or communication */
    FP_TIMELINE_COMPUTE,
    FP_TIMELINE_COMMUNICATION,
    FP_TIMELINE_COPY, /* or memset */
    FP_TIMELINE_UNIONS,
} fp_timeline_union;

/* Section 0: the training thread was in no section. */
enum { FP_TIMELINE_SECTIONS = 64 };

/* wall = busy + idle, idle = sum of idle_ns[]. */
typedef struct fp_timeline_sums {
    int64_t wall_ns;
    int64_t busy_ns;          /* any activity */
    int64_t kernel_ns;        /* compute or communication */
    int64_t compute_ns;       /* at least one compute kernel */
    int64_t communication_ns; /* at least one communication kernel */
    int64_t overlap_ns;       /* both at once */
    int64_t copy_ns;          /* at least one copy or memset */
    int64_t copy_alone_ns;    /* ... and no kernel */
    /* By the section the training thread was in; those beyond the last are
     * counted in the last. */
    int64_t idle_ns[FP_TIMELINE_SECTIONS];
} fp_timeline_sums;

typedef struct fp_interval {
    int64_t start;
    int64_t end;
    uint8_t gpu_class;
} fp_interval;

typedef struct fp_host_event {
    int64_t at;
    uint32_t section; /* from here on; valid if !is_step */
    uint8_t is_step;  /* a step ends here */
    uint8_t measured; /* ... and counts in the statistics (no warm-up) */
} fp_host_event;

typedef struct fp_timeline {
    fp_alloc alloc;
    fp_interval *interval; /* owned */
    uint32_t intervals;
    uint32_t interval_capacity;
    uint32_t ordered;     /* so many of the first ascend by start */
    fp_host_event *event; /* owned; ascending */
    uint32_t events;
    uint32_t event_capacity;
    int64_t folded;                         /* everything before is final */
    int64_t busy_until[FP_TIMELINE_UNIONS]; /* by what began before */
    uint32_t section;                       /* at `folded` */
    fp_timeline_sums step_so_far;           /* the step under way */
    fp_timeline_sums whole; /* from the beginning to `folded` */
    fp_timeline_sums steps; /* measured steps that are over */
    uint64_t step_count;    /* ... so many */
    int64_t late_ns;
    uint64_t late;
    uint64_t lost; /* activities or events there was no memory for */
} fp_timeline;

/* At most this many intervals, and as many events, are kept.  When there are
 * more, or no memory for more, half of them are folded at once: so a long silence
 * cannot eat the memory. */
enum { FP_TIMELINE_WAITING = 1 << 20 };

void
fp_timeline_init(fp_timeline *t, const fp_alloc *a, int64_t begin);

void
fp_timeline_fini(fp_timeline *t);

/* An activity from [start] to [end]; one that does not end after its start is
 * ignored. */
void
fp_timeline_add(fp_timeline *t, int64_t start, int64_t end, fp_gpu_class c);

/* From [at] on the training thread is in [section]. */
void
fp_timeline_section(fp_timeline *t, int64_t at, uint32_t section);

/* A step ends at [at], the next begins. */
void
fp_timeline_step(fp_timeline *t, int64_t at, int measured);

/* Time in which nothing was recorded (another client had the device's records):
 * it is in no sum, though steps end and sections change in it.  Everything before
 * [from] is folded first; of a gap that begins before what is folded already only
 * the rest counts as one. */
void
fp_timeline_gap(fp_timeline *t, int64_t from, int64_t to);

/* Nothing from before [until] will come any more. */
void
fp_timeline_fold(fp_timeline *t, int64_t until);

#endif
