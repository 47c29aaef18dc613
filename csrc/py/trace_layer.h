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

/* The dict of export()["trace"]; None: nothing was traced; NULL with an
 * exception.  [index] returns the number of a key, or -1 with an exception. */
PyObject *
fp_recorder_export_trace(fp_recorder *r, double ns_per_tick,
                         Py_ssize_t (*index)(void *ctx, fp_key key),
                         void *ctx);

#endif
