/* clock_map: from ticks of our clock to CUPTI's nanoseconds.
 *
 * CUPTI's clock follows the system's wall clock, which drifts against the
 * counter and may be stepped.  Pairs of both clocks, read closely together from
 * time to time, say how.  Between two pairs the line through them holds, outside
 * of all pairs their slope.
 *
 * Device times here have no steps: they go on as CUPTI's clock stood at the first
 * pair, and what CUPTI says after a step is brought back by fp_clock_map_steady.
 * One thread at a time. */
#ifndef FP_GPU_CLOCK_MAP_H
#define FP_GPU_CLOCK_MAP_H

#include "core/clock.h"

enum { FP_CLOCK_PAIRS = 64, FP_CLOCK_STEPS = 8 };

typedef struct fp_clock_pair {
    int64_t ticks;
    int64_t gpu_ns;
} fp_clock_pair;

/* CUPTI's clock was stepped between these two device times. */
typedef struct fp_clock_step {
    int64_t after;
    int64_t before;
    int64_t shift; /* from then on: CUPTI's time minus device time */
} fp_clock_step;

typedef struct fp_clock_map {
    fp_clock_pair pair[FP_CLOCK_PAIRS]; /* ascending; the oldest go first */
    uint32_t pairs;
    double ns_per_tick;       /* as told; tells a step from a drift */
    double slope;             /* over all pairs; as told if too short */
    uint64_t worst_gap_ticks; /* widest bracket accepted: the uncertainty */
    uint64_t steps;           /* times the device's clock was stepped */
    int64_t shift;            /* now: CUPTI's time minus device time */
    fp_clock_step step[FP_CLOCK_STEPS]; /* the last ones, oldest first */
    uint32_t steps_kept;
} fp_clock_map;

/* 0, or not: no time could be had. */
typedef int (*fp_gpu_time_reader)(uint64_t *ns);

void
fp_clock_map_init(fp_clock_map *m, double ns_per_tick);

/* Reads ours, theirs, ours some times and keeps the tightest bracket; its
 * middle is paired with theirs.  -1 when the reader fails, or ours only ever
 * goes back: nothing is added. */
int
fp_clock_map_sample(fp_clock_map *m, const fp_clock *ours,
                    fp_gpu_time_reader theirs);

/* Adds a pair as measured elsewhere; one that does not ascend in ticks is
 * refused.  A device time that went back, or is more than a tenth of the time
 * between (and 100 us) away from where ns_per_tick puts it, was stepped. */
void
fp_clock_map_add(fp_clock_map *m, int64_t ticks, int64_t gpu_ns);

/* Device time of a moment that CUPTI calls [gpu_ns].  Near a step, and for one that
 * is older than all steps kept, it may be off by the step. */
int64_t
fp_clock_map_find_steady(const fp_clock_map *m, int64_t gpu_ns);

static inline int64_t
fp_clock_map_steady(const fp_clock_map *m, int64_t gpu_ns)
{
    return FP_LIKELY(m->steps_kept == 0) ? gpu_ns
                                         : fp_clock_map_find_steady(m, gpu_ns);
}

/* Device time at [ticks], to the nearest ns; with no pair at all, 0.  Ascends
 * with ticks. */
int64_t
fp_clock_map_to_gpu(const fp_clock_map *m, int64_t ticks);

/* Our ticks at device time [gpu_ns], to a nanosecond.  With no pair at all, 0. */
int64_t
fp_clock_map_to_ticks(const fp_clock_map *m, int64_t gpu_ns);

#endif
