/* monitoring_events: handles the events of sys.monitoring, on the plain path
 * or else on the full one.
 *
 * The events that follow a CALL event, and the action taken:
 *
 *   builtin, method descriptor     C_RETURN or C_RAISE    enter, leave
 *   Python function                PY_START ...           ignored
 *   type, callable object          C_RETURN or C_RAISE    optional
 *   bound method over a builtin    C_RETURN of the builtin, or (3.13, called
 *     (every pybind11 method)      with *args) nothing: see ends_unseen */
#ifndef FP_PY_MONITORING_EVENTS_H
#define FP_PY_MONITORING_EVENTS_H

#include "py/recorder.h"

typedef struct fp_callback {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    fp_recorder *recorder; /* borrowed; NULL: do nothing */
    /* the recorder's plain_epoch, or one that never matches */
    const uint64_t *plain;
    PyObject *missing;        /* borrowed: sys.monitoring.MISSING ... */
    PyObject *disable;        /* ... and DISABLE */
    struct fp_callback *next; /* in the state's list of spare ones */
} fp_callback;

/* The functions that handle the events. */
extern const vectorcallfunc fp_monitoring_handlers[FP_EVENTS];

#endif
