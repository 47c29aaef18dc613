/* Methods of the Recorder type for steps and for phases of the run. */
#include "py/recorder_methods.h"

#include "py/guard.h"
#include "py/export_parts.h"
#include "py/run_phase.h"
#include "py/section_type.h"
#include "py/switches.h"
#include "py/threads.h"

#include "core/steps_pairs.h"
#include "core/steps_split.h"
#include "core/thread_steps.h"

PyObject *
fp_recorder_mark_method(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_recorder *r = fp_recorder_cast(self);
    fp_thread *t =
        fp_recorder_ready(r) < 0 ? NULL : fp_recorder_section_thread(r);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (t != NULL) {
        const fp_thread *before = r->stepper;
        /* Until a step has ended, another thread may become the one that
         * steps; the step of the former one then never ends. */
        if (before != NULL && before != t && before->steps->count != 0) {
            r->recording.wrong_step_thread++;
            Py_RETURN_NONE;
        }
        /* Just after the import the clock's scale may not be known yet; wait
         * for it here, not inside a step. */
        (void)fp_clock_ns_per_tick(&r->clock);
        fp_clock_learn(&r->clock);
        int64_t now = fp_clock_now(&r->clock);
        /* A restarted step keeps the warm-up that it has now. */
        uint64_t skip =
            before != NULL ? before->steps->skip : r->config.skip_steps;
        if (fp_thread_start_steps(t, skip, now) != FP_OK) {
            return PyErr_NoMemory();
        }
        if (r->config.outliers != 0) {
            /* If memory runs out, steps continue without outliers; the failure
             * was counted. */
            (void)fp_thread_keep_outliers(t, r->config.outliers, &r->clock,
                                          now);
        }
        r->stepper = t;
        if (t->split != NULL) {
            t->split->signals = fp_recorder_signals(r);
            t->split->signals_before = t->split->signals;
            fp_split_set_clock(t, &r->clock, now);
        }
    }
    Py_RETURN_NONE;
}

PyObject *
fp_recorder_set_phase_method(PyObject *self, PyObject *args)
{
    FP_GUARD();
    fp_recorder *r = fp_recorder_cast(self);
    int phase, goes_on = 0;
    if (!PyArg_ParseTuple(args, "i|p:set_phase", &phase, &goes_on)) {
        return NULL;
    }
    if (phase < 0 || phase >= FP_RUN_PHASES) {
        PyErr_Format(PyExc_ValueError, "phase is %d: allowed are 0 to %d",
                     phase, FP_RUN_PHASES - 1);
        return NULL;
    }
    if (fp_recorder_ready(r) < 0) {
        return NULL;
    }
    fp_run_phase before = r->recording.phases.now;
    fp_recorder_set_phase(r, (fp_run_phase)phase, goes_on);
    return PyLong_FromLong(before);
}

PyObject *
fp_recorder_end_loop_method(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_recorder_end_loop(fp_recorder_cast(self));
    Py_RETURN_NONE;
}

PyObject *
fp_recorder_plan_unprofiled_method(PyObject *self, PyObject *step)
{
    FP_GUARD();
    unsigned long long at = PyLong_AsUnsignedLongLong(step);
    if (PyErr_Occurred()) {
        return NULL;
    }
    fp_recorder_cast(self)->recording.unprofiled_at = at;
    Py_RETURN_NONE;
}

/* Setting or removing the hook affects the next [settles_ns] nanoseconds, so
 * the steps that fit in that time are added and left out. */
PyObject *
fp_recorder_unprofiled_length_method(PyObject *self, PyObject *settles_ns)
{
    FP_GUARD();
    fp_recorder *r = fp_recorder_cast(self);
    long long ns = PyLong_AsLongLong(settles_ns);
    if (PyErr_Occurred()) {
        return NULL;
    }
    uint32_t settle = 1;
    if (r->stepper != NULL && r->stepper->steps != NULL) {
        double ticks = (double)ns / fp_clock_ns_per_tick(&r->clock);
        settle = fp_pairs_settle(r->stepper->steps, (int64_t)ticks);
    }
    r->recording.unprofiled_settle = settle;
    return PyLong_FromUnsignedLong(fp_pairs_length(settle));
}

/* A list of (plain ns, hooked ns): the medians of the steps without and with
 * the hook, at most [count], the last ones. */
PyObject *
fp_recorder_last_blocks_method(PyObject *self, PyObject *count)
{
    FP_GUARD();
    const fp_recorder *r = fp_recorder_cast(self);
    long most = PyLong_AsLong(count);
    if (most == -1 && PyErr_Occurred()) {
        return NULL;
    }
    const fp_thread *t = r->stepper;
    const fp_pairs *p = t != NULL && t->split != NULL ? t->split->pairs : NULL;
    PyObject *list = PyList_New(0);
    double ns = fp_clock_ns_per_tick(&r->clock);
    uint32_t blocks = p != NULL ? fp_pairs_kept(p) : 0;
    for (uint32_t i = 0; list != NULL && i < blocks && (long)i < most; i++) {
        int64_t plain, hooked;
        if (fp_pairs_medians(p, i, ns, &plain, &hooked)) {
            fp_export_add(&list, Py_BuildValue("(LL)", (long long)plain,
                                               (long long)hooked));
        }
    }
    return list;
}

PyObject *
fp_recorder_begin_unprofiled_method(PyObject *self,
                                    PyObject *Py_UNUSED(ignored))
{
    FP_GUARD();
    fp_recorder *r = fp_recorder_cast(self);
    const fp_thread *t = r->stepper;
    if (t == NULL || !t->steps->unprofiled || !r->functions_on || r->paused ||
        r->recording.phases.now != FP_RUN_UNPROFILED) {
        Py_RETURN_FALSE;
    }
    fp_recorder_pause(r, 1);
    r->hook_lent = r->unhooked;
    return PyBool_FromLong(r->unhooked);
}

/* [valid]: see fp_thread_end_unprofiled. */
PyObject *
fp_recorder_end_unprofiled_method(PyObject *self, PyObject *valid)
{
    FP_GUARD();
    fp_recorder *r = fp_recorder_cast(self);
    int is_valid = PyObject_IsTrue(valid);
    if (is_valid < 0) {
        return NULL;
    }
    fp_thread *t = r->stepper;
    int rc = 0;
    /* Otherwise the block was only planned, and we must not set the hook. */
    if (r->hook_lent) {
        r->hook_lent = 0;
        rc = fp_recorder_rehook(r);
        fp_recorder_resume(r);
    }
    if (t != NULL && t->steps->unprofiled && t == fp_recorder_own_thread(r)) {
        int64_t now = fp_clock_now(&r->clock);
        fp_thread_end_unprofiled(t, is_valid && rc == 0, now);
        if (r->recording.phases.now == FP_RUN_UNPROFILED) {
            fp_recorder_set_phase_at(r, FP_RUN_STEPS, 1, now);
        }
        t->split->signals = t->split->signals_before = fp_recorder_signals(r);
    }
    return rc < 0 ? NULL : Py_NewRef(Py_None);
}

PyObject *
fp_recorder_step_count(const fp_recorder *r)
{
    return PyLong_FromUnsignedLongLong(r->stepper ? r->stepper->steps->count
                                                  : 0);
}

void
fp_recorder_end_step(fp_recorder *r)
{
    FP_GUARD();
    fp_section_end_lingering(r);
    fp_thread *t = r->initialised ? fp_recorder_section_thread(r) : NULL;
    if (t != NULL && t == r->stepper) {
        int64_t now = fp_clock_now(&r->clock), began = t->steps->start;
        if (t->split != NULL) {
            t->split->signals = fp_recorder_signals(r);
        }
        fp_recorder_phase_before_step(r);
        int measured = fp_thread_end_step(t, now);
        fp_recorder_phase_after_step(r, now);
        FP_LAYERS(r, stepped, r, t, began, now, measured);
    }
    else if (t != NULL) {
        r->recording.wrong_step_thread++;
    }
}

PyObject *
fp_recorder_step_method(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    fp_recorder_end_step(fp_recorder_cast(self));
    return fp_recorder_step_count(fp_recorder_cast(self));
}
