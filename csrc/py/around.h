/* around: calls a function of the program between two of fastprof's.
 *
 * A debugger steps into each function in Python.  An object of this type has no
 * frame, and tracing is off in the calling thread while fastprof's functions
 * run.  So the program's debugger, coverage or profile function sees what it
 * sees without fastprof. */
#ifndef FP_PY_AROUND_H
#define FP_PY_AROUND_H

#include "py/pycompat.h" /* Python.h goes first */

/* Adds _core.Around. */
int
fp_around_add_type(PyObject *module);

/* Calls one of fastprof's functions without tracing.  Returns a new reference;
 * NULL: there is no function, or it failed.  A live exception is kept. */
PyObject *
fp_call_untraced(PyObject *function, PyObject *args, PyObject *kwargs);

/* find_elsewhere() */
extern PyMethodDef fp_around_methods[];

#endif
