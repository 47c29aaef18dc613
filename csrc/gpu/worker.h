/* worker: threads of fastprof inside the program. */
#ifndef FP_GPU_WORKER_H
#define FP_GPU_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h> /* struct timespec */

/* Runs [run] in a new thread that gets none of the program's signals.  Returns
 * 0, or -1 if the thread cannot be created. */
int
fp_worker_begin(pthread_t *thread, void *(*run)(void *), void *argument);

/* The time of [clock] in ns. */
int64_t
fp_worker_now(int clock);

/* [ns] from now by [clock], for pthread_cond_timedwait. */
struct timespec
fp_worker_deadline(int clock, int64_t ns);

/* Wakes the thread that sleeps at [woken].  Any thread may call this inside
 * any call: it neither waits nor takes a lock. */
void
fp_worker_wake(_Atomic int *woken);

/* Sleeps until somebody wakes the calling thread, at most [ns]; negative:
 * without a limit.  May return early. */
void
fp_worker_sleep(_Atomic int *woken, int64_t ns);

/* The calling thread's nice value; 0 where threads have none. */
int
fp_worker_nice(void);

/* Sets it; other threads keep theirs.  Does nothing where the system does not
 * allow it. */
void
fp_worker_set_nice(int nice);

#endif
