/* recorder_methods: what the files of the Recorder type have of each other.
 *
 *   recorder_type.c     the type, its life and its attributes
 *   recorder_methods.c  its methods
 *   recorder_loaders.c  those for loaders
 *   export_window.c     those for a thread that looks on */
#ifndef FP_PY_RECORDER_METHODS_H
#define FP_PY_RECORDER_METHODS_H

#include "py/recorder.h"

static inline fp_recorder *
fp_recorder_cast(PyObject *self)
{
    return (fp_recorder *)self;
}

/* -1 with an exception when __init__ was never called. */
static inline int
fp_recorder_ready(fp_recorder *r)
{
    if (!r->initialised) {
        PyErr_SetString(PyExc_RuntimeError,
                        "the recorder is not initialised: a subclass must "
                        "call super().__init__()");
        return -1;
    }
    return 0;
}

/* Steps so far. */
PyObject *
fp_recorder_step_count(const fp_recorder *r);

/* ---- a look at a recording that goes on (export_window.c) ---- */

PyObject *
fp_recorder_window_method(PyObject *self, PyObject *first);

PyObject *
fp_recorder_node_times_method(PyObject *self, PyObject *ignored);

PyObject *
fp_recorder_nodes_method(PyObject *self, PyObject *ignored);

PyObject *
fp_recorder_run_unrecorded_method(PyObject *self, PyObject *function);

/* ---- loaders ---- */

PyObject *
fp_recorder_set_loader_method(PyObject *self, PyObject *value);

PyObject *
fp_recorder_next_batch_method(PyObject *self, PyObject *const *args,
                              Py_ssize_t nargs);

PyObject *
fp_recorder_take_loaders_method(PyObject *self, PyObject *ignored);

PyObject *
fp_recorder_loader_totals_method(PyObject *self, PyObject *ignored);

#endif
