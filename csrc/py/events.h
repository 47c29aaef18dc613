/* events: calls begin and end; what both hooks call, in two tiers.
 *
 * The plain one is what nearly every event needs: this thread is known, the node is
 * the expected one, its flags say nothing odd, the clock is the counter.  A key that
 * equals a node's was checked when the node was made, so nothing is checked again.
 * The full one does whatever else there is to do, for the whole event; the hooks
 * call it last.  See mode.h for when there is a plain one. */
#ifndef FP_PY_EVENTS_H
#define FP_PY_EVENTS_H

#include "py/paused.h"

#include "core/path.h"

/* ---- plain ---- */

/* [epoch] is where the hook finds fp_recorder.plain_epoch.  NULL: not this tier. */
static inline fp_thread *
fp_plain_thread(const uint64_t *epoch)
{
    const fp_tls *me = fp_this_thread;
    return FP_LIKELY(me->functions.epoch == *epoch) ? me->functions.thread
                                                    : NULL;
}

/* 1: done; 0: nothing was done. */
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

/* ---- full ---- */

/* [object] is what the key table needs when it sees [key] first. */
void
fp_recorder_enter(fp_recorder *r, fp_key key, PyObject *object, int resume);

void
fp_recorder_leave(fp_recorder *r, fp_key key);

/* The C function [key], called by the code [caller], has ended. */
void
fp_recorder_leave_c(fp_recorder *r, fp_key key, PyObject *caller);

#endif
