/* rest: the hook is out in one thread while a library is imported.
 *
 * Importing torch makes millions of calls, which nobody reads one by one; before Python
 * 3.12 the hook makes each of them, and every bytecode, slower.  Where it can be taken
 * out of one thread alone, the bodies of modules are recorded by what their loaders
 * tell, and have the time of what they call. */
#ifndef FP_PY_REST_H
#define FP_PY_REST_H

#include "py/recorder.h"

/* The body of the module in [file] begins in this thread.  What stands for it, a new
 * reference; Py_None: it is recorded as everything else is.  NULL with an exception. */
PyObject *
fp_rest_begin(fp_recorder *r, const char *file);

/* What [module] stands for has ended; NULL: the hook is to be back, although it goes on.
 * The path is then what the interpreter's frames say.  Keeps a live exception; does
 * nothing in another thread. */
void
fp_rest_end(fp_recorder *r, PyObject *module);

PyObject *
fp_recorder_rest_method(PyObject *self, PyObject *file);

PyObject *
fp_recorder_end_rest_method(PyObject *self, PyObject *module);

#endif
