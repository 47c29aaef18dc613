/* worker: starts a thread of fastprof inside the program. */
#ifndef FP_GPU_WORKER_H
#define FP_GPU_WORKER_H

#include <pthread.h>

/* Runs [run] in a new thread that gets none of the program's signals.  Returns
 * 0, or -1 if the thread cannot be created. */
int
fp_worker_begin(pthread_t *thread, void *(*run)(void *), void *argument);

#endif
