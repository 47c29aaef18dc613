/* clock_map: from ticks of our clock to CUPTI's nanoseconds.
 *
 * CUPTI's clock follows the system's wall clock, which drifts against the
 * counter and may be stepped.  Pairs of both clocks, read closely together from
 * time to time, say how.  Between two pairs the line through them holds.  Where
 * the device's clock was stepped between them nobody knows when: each half is
 * told from the pair that is nearer.  Outside of all pairs the slope since the
 * last step holds.  One thread at a time. */
#ifndef FP_GPU_CLOCK_MAP_H
#define FP_GPU_CLOCK_MAP_H

#include "core/clock.h"

enum { FP_CLOCK_PAIRS = 64 };

typedef struct fp_clock_pair {
    int64_t ticks;
    int64_t gpu_ns;
    uint8_t stepped; /* the device's clock, between the pair before and this */
} fp_clock_pair;

typedef struct fp_clock_map {
    fp_clock_pair pair[FP_CLOCK_PAIRS]; /* ascending; the oldest go first */
    uint32_t pairs;
    double ns_per_tick;       /* as told; tells a step from a drift */
    double slope;             /* since the last step; as told if too short */
    uint64_t worst_gap_ticks; /* widest bracket accepted: the uncertainty */
    uint64_t steps;           /* times the device's clock was stepped */
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

/* Device time at [ticks], to the nearest ns; with no pair at all, 0.  Ascends
 * with ticks except where the device's clock was stepped back. */
int64_t
fp_clock_map_to_gpu(const fp_clock_map *m, int64_t ticks);

/* Our ticks at [gpu_ns], to a nanosecond; near a step of the device's clock, one
 * of the moments that it may have been.  With no pair at all, 0. */
int64_t
fp_clock_map_to_ticks(const fp_clock_map *m, int64_t gpu_ns);

#endif
