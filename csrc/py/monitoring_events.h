/* monitoring_events: what is done about an event of sys.monitoring: the short way,
 * else the long one.
 *
 * What a CALL event is followed by, and what is done about it:
 *   builtin, method descriptor     C_RETURN or C_RAISE    enter, leave
 *   Python function                PY_START ...           ignored
 *   type, callable object          C_RETURN or C_RAISE    only if asked for
 *   bound method over a builtin    C_RETURN of the builtin, or (3.13, called
 *     (every pybind11 method)      with *args) nothing: see enter_bound
 */
#ifndef FP_PY_MONITORING_EVENTS_H
#define FP_PY_MONITORING_EVENTS_H

#include "py/recorder.h"

typedef struct fp_callback {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    fp_recorder *recorder; /* borrowed; NULL: do nothing */
    const uint64_t *plain; /* the recorder's plain_epoch, or none's */
    PyObject *missing;     /* borrowed: sys.monitoring.MISSING */
} fp_callback;

/* What is called at [event]. */
vectorcallfunc
fp_monitoring_handler(const fp_recorder *r, int event);

#endif
