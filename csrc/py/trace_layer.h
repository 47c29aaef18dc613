/* trace_layer: the trace of a recorder. */
#ifndef FP_PY_TRACE_LAYER_H
#define FP_PY_TRACE_LAYER_H

#include "py/recorder.h"

extern const fp_layer fp_trace_layer;

/* Methods of the Recorder type. */
PyObject *
fp_recorder_trace_open_method(PyObject *self, PyObject *args,
                              PyObject *kwargs);

PyObject *
fp_recorder_trace_close_method(PyObject *self, PyObject *ignored);

#endif
