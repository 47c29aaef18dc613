/* timeline_order: a timeline's intervals, by when they start.  Those of one buffer
 * ascend nearly; buffers come one after another though they were filled at the same
 * time. */
#ifndef FP_GPU_TIMELINE_ORDER_H
#define FP_GPU_TIMELINE_ORDER_H

#include "gpu/timeline.h"

/* Of [n] intervals the first [ordered] ascend; afterwards all do.  -1: there is no
 * memory, and nothing was done. */
int
fp_intervals_sort_last(const fp_alloc *a, fp_interval *v, uint32_t ordered,
                       uint32_t n);

/* All of them, slower and without memory. */
void
fp_intervals_sort_in_place(fp_interval *v, uint32_t n);

#endif
