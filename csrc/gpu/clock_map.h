/* clock_map: from ticks of our clock to CUPTI's nanoseconds.
 *
 * CUPTI's clock follows the system's wall clock, which drifts against the
 * counter and may be stepped.  Pairs of both clocks, read closely together from
 * time to time, say how; between two pairs the line through them holds, beyond
 * the last one the slope of the whole.  One thread at a time. */
#ifndef FP_GPU_CLOCK_MAP_H
#define FP_GPU_CLOCK_MAP_H

#include "core/clock.h"

enum { FP_CLOCK_PAIRS = 64 };

typedef struct fp_clock_pair {
    int64_t ticks;
    int64_t gpu_ns;
} fp_clock_pair;

typedef struct fp_clock_map {
    fp_clock_pair pair[FP_CLOCK_PAIRS]; /* ascending; the oldest go first */
    uint32_t pairs;
    double ns_per_tick;       /* used while there is one pair only */
    uint64_t worst_gap_ticks; /* widest bracket accepted: the uncertainty */
    uint64_t steps_back; /* times the device's clock went back between pairs */
} fp_clock_map;

/* 0, or not: no time could be had. */
typedef int (*fp_gpu_time_reader)(uint64_t *ns);

void
fp_clock_map_init(fp_clock_map *m, double ns_per_tick);

/* Reads ours, theirs, ours some times and keeps the tightest bracket; its
 * middle is paired with theirs.  -1 when the reader fails: nothing is added. */
int
fp_clock_map_sample(fp_clock_map *m, const fp_clock *ours,
                    fp_gpu_time_reader theirs);

/* Adds a pair as measured elsewhere.  One that does not ascend in ticks is
 * refused; one whose device time went back is counted and starts anew. */
void
fp_clock_map_add(fp_clock_map *m, int64_t ticks, int64_t gpu_ns);

/* Device time at [ticks]; with no pair at all, 0. */
int64_t
fp_clock_map_to_gpu(const fp_clock_map *m, int64_t ticks);

#endif
