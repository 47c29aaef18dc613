#include "py/timer.h"

#include "py/in_use.h"

/* The timer's result in ticks; 0 with an exception if it is not a time. */
static int64_t
timer_ticks(const fp_recorder *r, PyObject *value)
{
    /* Half of the range, so that the difference of two readings cannot
     * overflow. */
    const double limit = 4.6e18;
    if (r->config.timer_unit > 0.0 && PyLong_Check(value)) {
        int overflow;
        int64_t ticks = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (!overflow && ticks < (int64_t)limit && ticks > -(int64_t)limit) {
            return ticks;
        }
    }
    double v = PyFloat_AsDouble(value);
    if (v == -1.0 && PyErr_Occurred()) {
        return 0;
    }
    if (r->config.timer_unit <= 0.0) {
        v *= 1e9; /* seconds: one tick is 1 ns */
    }
    if (!(v > -limit && v < limit)) {
        PyErr_SetString(PyExc_OverflowError, "timer value out of range");
        return 0;
    }
    return (int64_t)v;
}

int
fp_timer_read(fp_recorder *r, int64_t *now)
{
    uint64_t epoch = r->function_epoch;
    fp_tls *me = fp_this_thread->in_timer ? NULL : fp_tls_own();
    if (me == NULL) {
        return -1;
    }
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    Py_INCREF((PyObject *)r);
    me->in_timer++;
    fp_recorder_use(r, &r->busy_timer);
    PyObject *value = PyObject_CallNoArgs(r->config.timer);
    int64_t ticks = value != NULL ? timer_ticks(r, value) : 0;
    Py_XDECREF(value);
    fp_recorder_end_use(r, &r->busy_timer);
    me->in_timer--;
    if (PyErr_Occurred()) {
        /* As cProfile does: report the error and continue with time 0. */
        PyErr_WriteUnraisable(r->config.timer);
        r->recording.timer_errors++;
        ticks = 0;
    }
    /* The timer may have dropped all other references. */
    int same = r->function_epoch == epoch && Py_REFCNT((PyObject *)r) > 1;
    Py_DECREF((PyObject *)r);
    PyErr_Restore(type, exc, tb);
    *now = ticks;
    return same ? 0 : -1;
}

void
fp_timer_first(fp_thread *t, int64_t now)
{
    if (t->last == INT64_MIN) {
        t->last = now;
    }
}

int
fp_recorder_guard_timer(fp_recorder *r, const char *what, int whole)
{
    if (fp_this_thread->in_timer || (whole && r->busy_timer)) {
        PyErr_Format(PyExc_RuntimeError,
                     "%s() called from inside the profiler's timer: "
                     "a timer may only return the time",
                     what);
        return -1;
    }
    return 0;
}
