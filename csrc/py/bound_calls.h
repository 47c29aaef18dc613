/* bound_calls: calls of bound methods over builtins (every pybind11 method).
 * The version and the form of the call decide whether a C_RETURN follows, so
 * the first call at a site is only counted; if a C_RETURN follows, the site is
 * learned and later calls are timed. */
#ifndef FP_PY_BOUND_CALLS_H
#define FP_PY_BOUND_CALLS_H

#include "py/recorder.h"

/* Such a method over [function] was called.  [args] are those of the CALL
 * event. */
void
fp_bound_enter(fp_recorder *r, PyObject *function, PyObject *const *args);

/* Is this the return of a call that fp_bound_enter only counted?  [args] are
 * those of the C_RETURN event. */
int
fp_bound_ends(fp_recorder *r, fp_key key, PyObject *const *args);

/* The thread makes another call: a call that was only counted has ended. */
void
fp_bound_forget(void);

#endif
