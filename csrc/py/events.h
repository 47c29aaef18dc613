/* events: records the begin and the end of calls for both hooks, on two paths.
 *
 * The plain path serves nearly every event: the thread is known, the node is
 * the expected one, its flags are 0 and the clock is the counter.  A key that
 * equals a node's key was checked when the node was created, so this path
 * checks nothing.  The full path handles the whole event in all other cases;
 * the hooks call it last.  mode.h says when the plain path is allowed.
 *
 * In free-threaded builds the full path needs the guard.  There, a path in
 * between serves the events that touch nothing but the thread's own record:
 * any node that exists already. */
#ifndef FP_PY_EVENTS_H
#define FP_PY_EVENTS_H

#include "py/guard.h"
#include "py/paused.h"

#include "core/path.h"

/* ---- plain ---- */

/* The calling thread's record for the plain path; NULL: take the full path.
 * [epoch] points to fp_recorder.plain_epoch. */
static inline fp_thread *
fp_plain_thread(const uint64_t *epoch)
{
    const fp_tls *me = fp_this_thread;
    return FP_LIKELY(me->functions.epoch == FP_READ(*epoch))
               ? me->functions.thread
               : NULL;
}

/* Returns 1 if the call was recorded; 0: nothing was done, take the full
 * path. */
static inline int
fp_plain_enter(fp_thread *t, fp_key key, int resume)
{
    fp_node *n = fp_thread_predict(t, key);
    if (FP_UNLIKELY(n == NULL || n->flags != 0)) {
        return 0;
    }
    if (resume) {
        n->resumes++;
    }
    else {
        n->calls++;
    }
    fp_thread_enter(t, n, fp_clock_counter());
    return 1;
}

static inline int
fp_plain_leave(fp_thread *t, fp_key key)
{
    fp_node *n = t->cur;
    if (FP_UNLIKELY(n->key != key || n->flags != 0)) {
        return 0;
    }
    fp_thread_charge(t, fp_clock_counter());
    fp_thread_stand(t, n->parent);
    return 1;
}

/* ---- known nodes, in free-threaded builds ---- */

/* As fp_plain_enter and fp_plain_leave, for any node of [t] that exists. */
int
fp_known_enter(fp_thread *t, fp_key key, int resume);

int
fp_known_leave(fp_thread *t, fp_key key);

/* ---- full; under the guard ---- */

/* Records the begin of a call of [key].  [object] is the code object or
 * callable from which the key table creates an entry for a new key. */
void
fp_recorder_enter(fp_recorder *r, fp_key key, PyObject *object, int resume);

void
fp_recorder_leave(fp_recorder *r, fp_key key);

/* The call of [key], a C function that is open in [t], has ended at an unknown
 * time since the last event: that time stays with its caller. */
void
fp_recorder_leave_unseen(fp_recorder *r, fp_thread *t, fp_key key);

/* Records a call of [key] of which only one end is seen: its time is unknown
 * and stays with its caller. */
void
fp_recorder_count(fp_recorder *r, fp_key key, PyObject *object);

/* Records the end of the C function [key], which the code [caller] called.
 * Returns 1 if that call, made while [caller] was recorded, did not begin with
 * an event; nothing is recorded then. */
int
fp_recorder_leave_c(fp_recorder *r, fp_key key, PyObject *caller);

#endif
