/* run_delay: how long a thread was ready to run but had no CPU, because other
 * threads had them or its container had used up its quota.  Linux counts this
 * time per thread in /proc/<process>/task/<thread>/schedstat
 * (Documentation/scheduler/sched-stats).  Other systems do not report it. */
#ifndef FP_CORE_RUN_DELAY_H
#define FP_CORE_RUN_DELAY_H

#include "core/base.h"

/* All zero bytes: closed. */
typedef struct fp_run_delay {
    int file; /* file descriptor + 1; 0: none */
    /* Identity of the file.  A program that closes foreign descriptors may
     * close ours, and the number may then belong to another file. */
    uint64_t device, inode;
} fp_run_delay;

/* Opens the counter of the calling thread.  Any thread may then read it. */
void
fp_run_delay_open(fp_run_delay *d);

/* Nanoseconds of waiting since the thread began; -1: unknown. */
int64_t
fp_run_delay_ns(const fp_run_delay *d);

/* Closes the counter unless the descriptor is another file by now. */
void
fp_run_delay_close(fp_run_delay *d);

#endif
