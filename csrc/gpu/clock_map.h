/* clock_map: converts ticks of fastprof's clock to CUPTI's nanoseconds and
 * back.
 *
 * CUPTI's clock follows the system's wall clock, which drifts against the
 * counter and may be stepped.  Pairs of both clocks, read close together from
 * time to time, relate them: linear between two pairs, and with the slope over
 * all pairs outside of them.
 *
 * Device times here have no steps: they continue CUPTI's clock as of the first
 * pair, and fp_clock_map_steady corrects CUPTI's times after a step.  One
 * thread at a time. */
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
    int64_t shift; /* after the step: CUPTI's time minus device time */
} fp_clock_step;

typedef struct fp_clock_map {
    /* ascending; the oldest is dropped first */
    fp_clock_pair pair[FP_CLOCK_PAIRS];
    uint32_t pairs;
    double ns_per_tick;       /* as given; tells a step from drift */
    double slope;             /* over all pairs; as given if too short */
    uint64_t worst_gap_ticks; /* widest accepted bracket: the uncertainty */
    uint64_t steps;           /* steps of the device's clock */
    int64_t shift;            /* now: CUPTI's time minus device time */
    fp_clock_step step[FP_CLOCK_STEPS]; /* oldest first */
    uint32_t steps_kept;
} fp_clock_map;

/* Reads CUPTI's time.  Returns 0 on success. */
typedef int (*fp_gpu_time_reader)(uint64_t *ns);

/* [ns_per_tick] is the scale of our clock. */
void
fp_clock_map_init(fp_clock_map *m, double ns_per_tick);

/* Reads both clocks several times and adds the pair with the tightest bracket.
 * Returns -1 and adds nothing if [theirs] fails or [ours] only goes back. */
int
fp_clock_map_sample(fp_clock_map *m, const fp_clock *ours,
                    fp_gpu_time_reader theirs);

/* Adds a pair; ignores it if its ticks do not ascend.  The clock was stepped
 * if the device time went back, or differs from the time that ns_per_tick
 * predicts by more than a tenth of the interval plus 100 us. */
void
fp_clock_map_add(fp_clock_map *m, int64_t ticks, int64_t gpu_ns);

/* Device time of a moment that CUPTI calls [gpu_ns].  The result may be off by
 * the step near a step, and before the oldest step kept. */
int64_t
fp_clock_map_find_steady(const fp_clock_map *m, int64_t gpu_ns);

/* The same; fast while the clock was never stepped. */
static inline int64_t
fp_clock_map_steady(const fp_clock_map *m, int64_t gpu_ns)
{
    return FP_LIKELY(m->steps_kept == 0) ? gpu_ns
                                         : fp_clock_map_find_steady(m, gpu_ns);
}

/* Device time at [ticks], to the nearest ns; 0 without any pair.  Ascends with
 * ticks. */
int64_t
fp_clock_map_to_gpu(const fp_clock_map *m, int64_t ticks);

/* Uncertainty in ns of the relation between both clocks: the widest bracket of
 * a pair. */
static inline int64_t
fp_clock_map_error_ns(const fp_clock_map *m)
{
    return (int64_t)((double)m->worst_gap_ticks * m->ns_per_tick) + 1;
}

/* Ticks at device time [gpu_ns], to a nanosecond; 0 without any pair. */
int64_t
fp_clock_map_to_ticks(const fp_clock_map *m, int64_t gpu_ns);

#endif
