/* run_delay: how long a thread was ready to run, and had no CPU: others had them
 * all, or its container had used up its share.  Linux counts it per thread, in
 * /proc/<process>/task/<thread>/schedstat (Documentation/scheduler/sched-stats);
 * elsewhere it is not known. */
#ifndef FP_CORE_RUN_DELAY_H
#define FP_CORE_RUN_DELAY_H

#include "core/base.h"

/* All zero bytes is one that is closed. */
typedef struct fp_run_delay {
    int file; /* descriptor + 1; 0: none */
    /* Whoever closes descriptors it did not open may have ours, too, and the
     * number may be another file's since. */
    uint64_t device, inode;
} fp_run_delay;

/* Of the calling thread.  Any thread may read it then. */
void
fp_run_delay_open(fp_run_delay *d);

/* Nanoseconds since the thread began; -1: not known. */
int64_t
fp_run_delay_ns(const fp_run_delay *d);

void
fp_run_delay_close(fp_run_delay *d);

#endif
