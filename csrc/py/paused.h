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

/* Recording begins: the calls that go on are put on the paths if they are wanted
 * there, in each thread at its first event. */
void
fp_paused_expect_callers(fp_recorder *r);

/* The record of a thread that was made just now. */
void
fp_paused_thread_made(fp_recorder *r, fp_thread *t);

/* Parks every thread; [blind]: the hook goes, too. */
void
fp_paused_begin(fp_recorder *r, int blind);

/* An event while calls are not recorded. */
void
fp_paused_event(fp_recorder *r, fp_hook_kind kind, fp_key key);

/* The path of this thread, [t], is that of the interpreter from here on.
 * [started] is the key of a Python function whose call is about to be recorded,
 * or 0. */
void
fp_paused_catch_up(fp_recorder *r, fp_thread *t, fp_key started);

/* A section opens or closes in this thread, [t], which is parked.  [catch_up]: it
 * must be known where. */
void
fp_paused_unpark(fp_recorder *r, fp_thread *t, int catch_up);

/* ... and has done so: if calls are not recorded still, [t] is parked again. */
void
fp_paused_park(fp_recorder *r, fp_thread *t);

/* The C function [key], called by the code [caller], has ended. */
static inline void
fp_recorder_leave_c(fp_recorder *r, fp_key key, PyObject *caller)
{
    fp_thread *t = fp_recorder_at(r, FP_HOOK_LEAVE, key);
    if (t != NULL &&
        (t->cur->key == key || !fp_thread_unseen_ends(t, (fp_key)caller))) {
        fp_recorder_leave(r, key);
    }
}

#endif
