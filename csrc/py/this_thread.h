/* this_thread: the state of one thread, behind one thread-local pointer.
 *
 * Every event reads the pointer, so it uses the initial-exec TLS model.  The
 * loader reserves very little room for that model: a process full of libraries
 * could not load a module that needs more.  So everything else is on the heap.
 * It is allocated when a thread first needs it, and a pthread destructor frees
 * it after the destructors that release its pointers. */
#ifndef FP_PY_THIS_THREAD_H
#define FP_PY_THIS_THREAD_H

#include "py/pycompat.h" /* Python.h goes first */

#include "core/thread.h"

/* No layer has this epoch, so a thread's slot never matches a layer that is
 * off. */
#define FP_EPOCH_OFF UINT64_MAX

typedef struct fp_slot {
    uint64_t epoch;
    fp_thread *thread; /* borrowed from the recorder; valid if epoch matches */
} fp_slot;

/* The struct owns nothing.  A slot is used only if its epoch is the
 * layer's. */
typedef struct fp_tls {
    fp_slot functions;
    fp_slot sections;
    unsigned in_timer;  /* depth of nested calls of an external timer */
    unsigned exporting; /* exports of this thread under way */
    /* its lane of the GPU collector; lives as long as the thread */
    struct fp_lane *lane;
    struct fp_nvtx_thread *nvtx; /* see nvtx_thread.h; NULL: none yet */
    unsigned ending;             /* the thread is ending */
    unsigned left_out;           /* the thread is excluded from recording */
    unsigned guarded;            /* depth of nested guards; see guard.h */
} fp_tls;

/* Never NULL: threads without a state share one of zeroes. */
extern _Thread_local const fp_tls *fp_this_thread;

/* The calling thread's state, for writing; NULL: it has none. */
fp_tls *
fp_tls_if_any(void);

/* The calling thread's state, created if needed; NULL: out of memory. */
fp_tls *
fp_tls_own(void);

/* Is this Python's main thread, which runs signal handlers and pending calls?
 * 0 where the system does not tell. */
int
fp_is_main_thread(void);

/* An epoch that this process has not used before.  Like the thread-local slots
 * that it guards, it survives a module that is imported again. */
uint64_t
fp_new_epoch(void);

#endif
