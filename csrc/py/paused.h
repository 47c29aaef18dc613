/* paused: the paths of threads while calls are not recorded, and how they are
 * found again (core/path_rebuild.h).
 *
 * With the hook in place its events tell which of the calls on a path have
 * ended, and how many have begun; what these are, the interpreter's frames tell
 * when somebody needs to know.  Where events were lost (the hook was taken out,
 * or replaced for a while) the frames alone say what is open. */
#ifndef FP_PY_PAUSED_H
#define FP_PY_PAUSED_H

#include "py/recorder.h"

#include "core/path_rebuild.h"

/* What asks for this thread's record: an event of the hook, or somebody in the
 * middle of one. */
typedef enum fp_hook_kind {
    FP_HOOK_ENTER,
    FP_HOOK_LEAVE,
    FP_HOOK_ASKED,
} fp_hook_kind;

/* This thread's record for functions, at the first event since they were switched
 * on or resumed: its path is put in order.  NULL when they are off or paused, or
 * without memory (counted). */
fp_thread *
fp_recorder_arrive(fp_recorder *r, fp_hook_kind kind, fp_key key);

/* The thread's own record while it is inside a hook; NULL: not recording. */
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

/* Does this thread stand in a call of [key]? */
static inline int
fp_recorder_stands_in(fp_recorder *r, fp_key key)
{
    fp_thread *t = fp_recorder_here(r);
    return t != NULL && t->cur->key == key;
}

/* Recording begins: the calls that go on are put on the paths if they are wanted
 * there, in each thread at its first event. */
void
fp_paused_expect_callers(fp_recorder *r);

/* Parks every thread; [blind]: the hook goes, too. */
void
fp_paused_begin(fp_recorder *r, int blind);

/* The path of this thread, [t], is that of the interpreter from here on.
 * [started] is the key of a Python function whose call is about to be recorded,
 * or 0. */
void
fp_paused_catch_up(fp_recorder *r, fp_thread *t, fp_key started);

/* A section opens or closes in this thread, [t], which is parked.  [find]: it must
 * be known where. */
void
fp_paused_unpark(fp_recorder *r, fp_thread *t, int find);

/* ... and has done so: if calls are not recorded still, [t] is parked again. */
void
fp_paused_park(fp_recorder *r, fp_thread *t);

#endif
