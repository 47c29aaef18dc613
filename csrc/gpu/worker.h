/* worker: a thread of fastprof's own inside the program. */
#ifndef FP_GPU_WORKER_H
#define FP_GPU_WORKER_H

#include <pthread.h>

/* Runs [run] in a new thread to which the program's signals never go.  0, or -1:
 * there is none. */
int
fp_worker_begin(pthread_t *thread, void *(*run)(void *), void *argument);

#endif
