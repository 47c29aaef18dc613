/* run_delay: how long a thread was ready to run but had no CPU, because other
 * threads had them or its container had used up its quota.  Linux counts this
 * time per thread in /proc/<process>/task/<thread>/schedstat
 * (Documentation/scheduler/sched-stats).  Other systems do not report it. */
#ifndef FP_CORE_RUN_DELAY_H
#define FP_CORE_RUN_DELAY_H

#include "core/own_file.h"

typedef fp_own_file fp_run_delay;

/* Opens the counter of the calling thread.  Any thread may then read it.
 * Close it as the file that it is. */
void
fp_run_delay_open(fp_run_delay *d);

/* Nanoseconds of waiting since the thread began; -1: unknown. */
int64_t
fp_run_delay_ns(const fp_run_delay *d);

#endif
