/* plain_time: a run without steps has the hook in windows of time.
 *
 *   SETUP (or WARMUP) | UNHOOKED | WINDOWS | UNHOOKED | WINDOWS ...
 *
 * Time without the hook is a phase of its own: it counts for none of the
 * functions that are open.  So are the windows: their functions stand for the
 * time around them, those before the first one only for themselves. */
#include "py/guard.h"
#include "py/recorder_methods.h"
#include "py/run_phase.h"
#include "py/switches.h"
#include "py/threads.h"

static int
has_steps(const fp_recorder *r)
{
    return r->stepper != NULL && r->stepper->steps->count != 0;
}

int
fp_recorder_in_plain_time(const fp_recorder *r)
{
    return r->hook_lent && !(r->stepper && r->stepper->steps->unprofiled);
}

PyObject *
fp_recorder_begin_plain_time_method(PyObject *self,
                                    PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_recorder *r = fp_recorder_cast(self);
    fp_run_phase phase = r->recording.phases.now;
    int first = phase == FP_RUN_SETUP || phase == FP_RUN_WARMUP;
    if (phase == FP_RUN_UNHOOKED && r->hook_lent) {
        Py_RETURN_TRUE; /* a signal handler interrupted the caller */
    }
    if (!r->functions_on || r->paused || has_steps(r) ||
        r->hooks.resting != 0 ||
        !(first || (phase == FP_RUN_WINDOWS && r->beside_windows != 0))) {
        Py_RETURN_FALSE;
    }
    fp_recorder_pause(r, 1);
    if (!r->unhooked) {
        fp_recorder_resume(r); /* another thread is changing the hook */
        Py_RETURN_FALSE;
    }
    r->hook_lent = 1;
    if (first) {
        r->beside_windows = (uint8_t)(1 + phase);
    }
    fp_recorder_set_phase_at(r, FP_RUN_UNHOOKED, 0, fp_clock_now(&r->clock));
    Py_RETURN_TRUE;
}

PyObject *
fp_recorder_end_plain_time_method(PyObject *self, PyObject *window)
{
    FP_GUARD();
    fp_recorder *r = fp_recorder_cast(self);
    int opens = PyObject_IsTrue(window), rc = 0;
    if (opens < 0) {
        return NULL;
    }
    int lent = fp_recorder_in_plain_time(r);
    if (lent) {
        r->hook_lent = 0;
        rc = fp_recorder_rehook(r);
    }
    int64_t now = fp_clock_now(&r->clock);
    if (!opens) {
        fp_recorder_leave_windows(r, now);
    }
    else if (r->beside_windows != 0 &&
             r->recording.phases.now == FP_RUN_UNHOOKED) {
        fp_recorder_set_phase_at(r, FP_RUN_WINDOWS, 0, now);
    }
    if (lent) {
        fp_recorder_resume(r);
    }
    return rc < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- what the hook has cost ---- */

typedef struct call_counts {
    const fp_recorder *r;
    unsigned long long of[FP_TAG_MASK + 1];
} call_counts;

static void
count(void *arg)
{
    call_counts *c = arg;
    fp_thread *t = NULL;
    while ((t = fp_recorder_next(c->r, t)) != NULL) {
        for (uint32_t i = 0; i < t->tree.count; i++) {
            const fp_node *n = fp_tree_node(&t->tree, i);
            c->of[fp_key_tag(n->key)] += n->calls + n->resumes;
        }
    }
}

PyObject *
fp_recorder_call_counts_method(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    call_counts c = {.r = fp_recorder_cast(self)};
    fp_world_stopped(count, &c);
    return Py_BuildValue("(KKK)", c.of[FP_TAG_PYTHON], c.of[FP_TAG_C],
                         c.of[FP_TAG_TYPE] + c.of[FP_TAG_CALLABLE]);
}
