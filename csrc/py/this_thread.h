/* this_thread: what a thread knows about itself, behind the one thread-local pointer.
 *
 * The pointer is read at every event, so it is of the initial-exec model, for which
 * the loader keeps very little room (a process full of libraries cannot load one
 * more that asks for much): all the rest is on the heap.  It is made when a thread has
 * something to say, and freed by a pthread destructor, after those that let go of
 * what it points to. */
#ifndef FP_PY_THIS_THREAD_H
#define FP_PY_THIS_THREAD_H

#include "py/pycompat.h" /* Python.h goes first */

#include "core/thread.h"

/* No layer has this epoch, so a thread's slot never matches a layer that is
 * off. */
#define FP_EPOCH_OFF UINT64_MAX

typedef struct fp_slot {
    uint64_t epoch;
    fp_thread
        *thread; /* borrowed from the recorder; valid iff epoch matches */
} fp_slot;

/* Nothing in it is owned, and a slot whose epoch is not the layer's is never
 * followed. */
typedef struct fp_tls {
    fp_slot functions;
    fp_slot sections;
    unsigned in_timer;      /* nested calls of an external timer */
    unsigned exporting;     /* exports of this thread that are under way */
    PyObject *pending_code; /* never followed; see hook_monitoring.c */
    long pending_offset;
    fp_key pending_key;
    struct fp_lane *lane; /* its lane to the GPU collector; lives as long */
    struct fp_nvtx_thread *nvtx; /* see nvtx_thread.h; NULL: none yet */
    unsigned ending;             /* its thread ends */
    unsigned left_out;           /* nothing of it is recorded */
} fp_tls;

/* Never NULL: one of zeroes belongs to every thread that has none. */
extern _Thread_local const fp_tls *fp_this_thread;

/* To write to; NULL: this thread has none. */
fp_tls *
fp_tls_if_any(void);

/* The same, made if need be; NULL: without memory. */
fp_tls *
fp_tls_own(void);

/* Never given twice in this process: like the thread-locals it guards, it
 * outlives a module that is imported anew. */
uint64_t
fp_new_epoch(void);

#endif
