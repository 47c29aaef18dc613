/* timeline_order: sorts a timeline's intervals by their start.  Those of one
 * buffer ascend nearly; buffers that were filled at the same time come one
 * after another. */
#ifndef FP_GPU_TIMELINE_ORDER_H
#define FP_GPU_TIMELINE_ORDER_H

#include "gpu/timeline.h"

/* Sorts [n] intervals, the first [ordered] of which ascend already.  -1: no
 * memory; nothing has changed. */
int
fp_intervals_sort_last(const fp_alloc *a, fp_interval *v, uint32_t ordered,
                       uint32_t n);

/* Sorts all of them without memory, more slowly. */
void
fp_intervals_sort_in_place(fp_interval *v, uint32_t n);

#endif
