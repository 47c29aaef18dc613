/* paused: keeps the paths of threads while calls are not recorded, and
 * rebuilds them afterwards (core/path_rebuild.h).
 *
 * While the hook is set, its events show which calls of a path have ended and
 * how many have begun.  The interpreter's frames show which calls these are;
 * they are read only when the path is needed.  If events were lost, because
 * the hook was removed or replaced for a while, the frames alone show which
 * calls are open. */
#ifndef FP_PY_PAUSED_H
#define FP_PY_PAUSED_H

#include "py/recorder.h"

#include "core/path_rebuild.h"

/* The reason for requesting a thread's record: an event of the hook, or a
 * query. */
typedef enum fp_hook_kind {
    FP_HOOK_ENTER,
    FP_HOOK_LEAVE,
    FP_HOOK_ASKED,
} fp_hook_kind;

/* The calling thread's record at its first event since functions were switched
 * on or resumed; rebuilds its path.  NULL: functions are off or paused, or out
 * of memory (counted). */
fp_thread *
fp_recorder_arrive(fp_recorder *r, fp_hook_kind kind, fp_key key);

/* The calling thread's record inside a hook; NULL: not recording. */
static inline fp_thread *
fp_recorder_at(fp_recorder *r, fp_hook_kind kind, fp_key key)
{
    const fp_tls *me = fp_this_thread;
    if (FP_LIKELY(me->functions.epoch == r->function_epoch)) {
        return me->functions.thread;
    }
    return fp_recorder_arrive(r, kind, key);
}

static inline fp_thread *
fp_recorder_here(fp_recorder *r)
{
    return fp_recorder_at(r, FP_HOOK_ASKED, 0);
}

/* The time for a change of [t] that no event causes.  An external timer is
 * Python code: its last reading is used instead. */
static inline int64_t
fp_recorder_now_of(const fp_recorder *r, const fp_thread *t)
{
    return r->config.timer != NULL ? t->last : fp_clock_now(&r->clock);
}

/* Recording begins.  If the calls that are already open are wanted as callers,
 * each thread's first event puts them on its path. */
void
fp_paused_expect_callers(fp_recorder *r);

/* Parks every thread.  [blind]: the hook is removed, too, so that events are
 * lost.  [pauses]: calls are recorded up to now, and not from now on. */
void
fp_paused_begin(fp_recorder *r, int blind, int pauses);

/* Makes the path of [t], the calling thread, match the interpreter's frames.
 * [started]: key of a Python function whose call is about to be recorded, or
 * 0. */
void
fp_paused_catch_up(fp_recorder *r, fp_thread *t, fp_key started);

/* A section is about to open or close in [t], the calling thread, which is
 * parked.  [find]: rebuild the path, because the section's place is needed. */
void
fp_paused_unpark(fp_recorder *r, fp_thread *t, int find);

/* The section has opened or closed: parks [t] again if calls are still not
 * recorded. */
void
fp_paused_park(fp_recorder *r, fp_thread *t);

#endif
